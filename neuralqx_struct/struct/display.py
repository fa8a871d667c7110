"""Display of objects with fields in rich and in notebooks.

Owns ``__rich_repr__``, ``__treescope_repr__`` and ``_repr_mimebundle_``. They show the content of ``repr``: no pending field
is computed, long containers and deep nests are cut, and a value whose ``repr`` fails is named. Rich and treescope are not
imported here; without treescope a notebook shows the ``repr``.

Example:
    >>> from rich.pretty import pretty_repr
    >>> from neuralqx_struct import Struct
    >>> class Layer(Struct):
    ...     w: object
    ...     name: str = "dense"
    >>> print(pretty_repr(Layer(w=[1.0] * 3)))
    Layer(w=[1.0, 1.0, 1.0], name='dense')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from neuralqx_struct.fieldspec import Values
from neuralqx_struct.printing import UNLABELLED, Shown, Text, brief, parts_of

_MANY = 20
_DEEP = 12
_LEAVES = 500


class Displayed(Shown):
    """Base of objects that rich and notebooks lay out."""

    __slots__ = ()

    def __rich_repr__(self) -> Iterable[tuple[str, Any]]:
        """The fields for ``rich.pretty``."""
        return _Views(_brief_leaf).fields(self)

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        """The rendering by treescope, which shows arrays itself."""
        fields = dict(_Views(_array_or_brief).fields(self))
        return _render(type(self), fields, path, subtree_renderer)

    # Not _repr_html_: treescope calls that of every object that it renders, which would recurse.
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str] | None:  # noqa: ARG002
        """The HTML of treescope for notebooks; None without treescope, which leaves it to ``repr``."""
        try:
            import treescope
        except ImportError:
            return None
        # Treescope computes statistics of arrays, which must be concrete inside a trace too.
        with jax.ensure_compile_time_eval():
            return {"text/plain": repr(self), "text/html": treescope.render_to_html(self)}


class _Fields:
    """The fields of an object inside another one, displayed under the name of that object."""

    def __init__(self, kind: type, fields: Values) -> None:
        self.kind = kind
        self.fields = fields

    def __rich_repr__(self) -> Iterable[tuple[str, Any]]:
        return self.fields.items()

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        return _render(self.kind, self.fields, path, subtree_renderer)


class _Text(Text):
    """A text that treescope shows unchanged."""

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        from treescope import rendering_parts

        return rendering_parts.text(self.text)


def _render(kind: type, fields: Values, path: str | None, subtree_renderer: Any) -> Any:
    from treescope import repr_lib

    with jax.ensure_compile_time_eval():
        return repr_lib.render_object_constructor(kind, fields, path, subtree_renderer)


def _brief_leaf(value: Any) -> Any:
    return _Text(brief(value))


def _array_or_brief(value: Any) -> Any:
    """Returns arrays with accessible numbers unchanged, everything else as text."""
    try:
        shows = _has_numbers(value)
    except Exception:  # noqa: BLE001 - a placeholder for an array without a usable dtype
        shows = False
    return value if shows else _brief_leaf(value)


def _has_numbers(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.dtype != object)
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return False
    if value.is_deleted() or not value.is_fully_addressable:
        return False
    return "key<" not in str(value.dtype)


class _Views:
    """Copies of a tree for display: its first parts, with displayable objects as leaves."""

    def __init__(self, leaf: Callable[[Any], Any]) -> None:
        self.leaf = leaf
        self.left = _LEAVES

    def fields(self, shown: Shown) -> Iterator[tuple[str, Any]]:
        yield from ((label, self.view(value, _DEEP)) for label, value in shown.__nqx_shown__()[1])

    def view(self, value: Any, depth: int) -> Any:
        self.left -= 1
        try:
            parts = parts_of(value, _MANY)
            if parts is None or not depth or self.left < 0:
                return self.leaf(value)
            entries = [(label, self.view(item, depth - 1)) for label, item in parts.entries]
        except Exception:  # noqa: BLE001 - the brief text names the failure of a container
            return _brief_leaf(value)
        if not parts.braces:
            kind = type(value)
            return type(kind.__name__, (_Fields,), {"__module__": kind.__module__})(
                kind, dict(entries)
            )
        items = [item for _, item in entries]
        if parts.braces == "[]":
            return items
        if parts.braces == "()":
            return tuple(items)
        if not entries or any(label is not UNLABELLED for label, _ in entries):
            return {
                _brief_leaf(item if label is UNLABELLED else label): item for label, item in entries
            }
        return {item if isinstance(item, Text) else _brief_leaf(item) for item in items}
