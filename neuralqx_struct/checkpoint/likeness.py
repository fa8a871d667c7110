"""Comparison of a loaded object with one that it has to be like: the argument ``like=`` of a load.

Example:
    >>> import numpy as np
    >>> [found.message for found in differences({"w": np.zeros(3)}, {"w": np.zeros(4)}, whole=True)]
    ['expected float64[4], as in like=, got float64[3]']
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import jax
from jax.tree_util import default_registry

from neuralqx_struct.errors import Diagnostic, SerializationError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.paths import Path, format_path
from neuralqx_struct.printing import brief
from neuralqx_struct.references import class_ref
from neuralqx_struct.struct.pytree import path_parts
from neuralqx_struct.trees import leaves_with_paths

_HINT = "pass an object of the structure that was saved, or migrate the payload"


_MOST = 10_000  # differences that are listed

Form = tuple[str, tuple[Any, ...]]


def _require_bounded(like: Any, limits: Limits) -> None:
    """Checks that JAX can flatten an object: it visits shared parts once for each place, and cycles without an end.

    Raises:
        SerializationError: NQX005: it has too many nodes, or is nested too deeply.
    """
    left = limits.nodes
    waiting = [(0, iter((like,)))]
    while waiting:
        depth, nodes = waiting[-1]
        node = next(nodes, waiting)
        if node is waiting:
            waiting.pop()
            continue
        left -= 1
        if left < 0 or depth > limits.depth:
            what = f"at most {limits.nodes} nodes" if left < 0 else f"at most {limits.depth} levels"
            message = f"like=: expected an object of {what}, got more"
            hint = "pass limits= for more; a part that is shared counts at each of its places"
            raise SerializationError(message, code="NQX005", path="$", hint=hint)
        try:
            flat = default_registry.flatten_one_level(node)
        except ValueError:  # keys without an order; they are named when the object is flattened
            continue
        if flat is not None:
            waiting.append((depth + 1, iter(flat[0])))


def require_like(value: Any, like: Any, *, whole: bool) -> None:
    """Checks that an object has the structure of another.

    Raises:
        SerializationError: It has another one, with every difference, or the first ones of very many.
    """
    found = [*islice(differences(value, like, whole=whole), _MOST + 1)]
    if len(found) > _MOST:
        message = f"expected the structure of like=, got more than {_MOST} differences"
        found[-1] = Diagnostic("NQX411", "error", message, "$", hint=_HINT)
    if found:
        raise SerializationError(found)


def differences(value: Any, like: Any, *, whole: bool, at: Path = ()) -> Iterator[Diagnostic]:
    """Yields the differences in structure between an object and another, leaf by leaf.

    Args:
        value: The object.
        like: The other.
        whole: Whether the object has all of its leaves; else None matches any.
        at: The path of both.
    """
    if value is None and not whole:
        return
    here, there = _children(value), _children(like)
    if type(value) is not type(like) and not (_is_number(value, like) or _is_number(like, value)):
        yield _different("NQX411", at, like, value)
        return
    if here is None or there is None:
        yield from _leaves(value, like, at)
        return
    for part, other in there.items():
        if part not in here:
            yield _different("NQX414", (*at, *part), other, None)
        else:
            yield from differences(here[part], other, whole=whole, at=(*at, *part))
    for part, each in here.items():
        if part not in there:
            yield _different("NQX415", (*at, *part), None, each)


def _leaves(value: Any, like: Any, at: Path) -> Iterator[Diagnostic]:
    here, there = _form(value), _form(like)
    if here is not None and there is not None and here != there:
        code = "NQX412" if here[0] == there[0] else "NQX411"
        yield _different(code, at, like, value)


def _different(code: str, at: Path, wanted: Any, got: Any) -> Diagnostic:
    message = f"expected {_shown(wanted)}, as in like=, got {_shown(got)}"
    dtypes = code == "NQX411" and _form(wanted) is not None and _form(got) is not None
    hint = "pass dtype= to convert it, or another like=" if dtypes else _HINT
    return Diagnostic(code, "error", message, format_path(at), hint=hint)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    form = _form(value)
    if form is not None:
        return f"{form[0]}[{', '.join(map(brief, form[1]))}]"
    return brief(value) if _children(value) is None else class_ref(type(value))


def _form(value: Any) -> Form | None:
    """The dtype and the shape of an array; None for other values."""
    try:
        return str(value.dtype), tuple(value.shape)
    except Exception:  # noqa: BLE001 - attributes of foreign objects may raise anything
        return None


def _is_number(value: Any, other: Any) -> bool:
    """True for an array beside another, or one without axes beside the Python number that JAX makes it of."""
    form = _form(value)
    if form is None:
        return False
    return _form(other) is not None or (
        form[1] == () and isinstance(other, (bool, int, float, complex))
    )


def _children(value: Any) -> dict[Path, Any] | None:
    """The parts of a pytree node by their paths; None for a leaf."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda each: each is not value)
    if len(pairs) == 1 and pairs[0][1] is value:
        return None
    return {path_parts(keys): child for keys, child in pairs}


def shardings_like(like: Any, given: Any, limits: Limits) -> Any:
    """The shardings of a load: those given, else a function that returns those of ``like``; None without any.

    Arrays that JAX placed by itself may lie anywhere.

    Raises:
        SerializationError: NQX005: ``like`` has too many nodes, or is nested too deeply.
    """
    if like is None:
        return given
    _require_bounded(like, limits)
    if given is not None:
        return given
    found = {path: leaf.sharding for path, leaf in leaves_with_paths(like) if _is_placed(leaf)}
    return (lambda path, _: found.get(tuple(path))) if found else None


def _is_placed(leaf: Any) -> bool:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.sharding is not None
    return isinstance(leaf, jax.Array) and leaf.committed
