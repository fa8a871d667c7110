"""Shardings of arrays: by the names of their axes and rules for a mesh, or as an argument has them; and placement.

The names are those of ``axes:``, in the declarations of fields, which are in the paths of leaves.

The argument ``shardings=`` of a load is one sharding, a tree of them that is a prefix of the object, or a
function of path and array; an array or a ``jax.ShapeDtypeStruct`` means its own sharding. The decoder
(``codecs/jax.py``) reads shards straight to the devices that :meth:`Placement.target` returns.

Example:
    >>> import jax.numpy as jnp
    >>> here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    >>> Placement(here).place({"w": jnp.ones(2), "step": 3})["w"].sharding == here
    True
    >>> import numpy as np
    >>> from neuralqx_struct.fieldspec import field
    >>> from neuralqx_struct.struct import Struct
    >>> class Dense(Struct):
    ...     kernel: jax.Array = field(metadata={"axes": ["embed", "mlp"]})
    >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("model",))
    >>> tuple(shardings(Dense(kernel=jnp.zeros((4, 8))), mesh, {"mlp": "model"}).kernel.spec)
    (None, 'model')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Final

import jax

from neuralqx_struct.classes.schemas import Schema
from neuralqx_struct.errors import did_you_mean, within_stack
from neuralqx_struct.fieldspec import FieldSpec, is_struct
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import brief
from neuralqx_struct.trees import flattened, is_none, leaves_with_paths, paths_of
from neuralqx_struct.types import Type


class Placement:
    """The shardings of one load: of each array that is about to be read, and then of the whole object.

    Args:
        shardings: The argument of the load.
    """

    def __init__(self, shardings: Any) -> None:
        self._shardings = shardings
        self._asked: dict[Path, tuple[Any, Any]] = {}

    def target(self, path: Path, leaf: Any) -> Any:
        """The sharding that an array is read into.

        Args:
            path: Its path in the object.
            leaf: Its ``jax.ShapeDtypeStruct``.

        Returns:
            None if there is none; :meth:`place` refuses what fits no array.
        """
        try:
            if callable(self._shardings):
                wanted = _sharding_of(self._shardings(path, leaf))
                self._asked[path] = leaf, wanted
            else:
                wanted = self._above(path)
        except ValueError:
            return None
        return wanted if isinstance(wanted, jax.sharding.Sharding) else None

    def _above(self, path: Path) -> Any:
        """The sharding in the tree of them at a path, or above it."""
        starts = (path[:end] for end in range(len(path) + 1))
        return next((self._prefix[start] for start in starts if start in self._prefix), None)

    @cached_property
    def _prefix(self) -> dict[Path, Any]:
        leaves, _ = flattened(self._shardings, is_none)
        return dict(zip(paths_of(self._shardings, is_none), map(_sharding_of, leaves), strict=True))

    @within_stack
    def place(self, value: Any) -> Any:
        """The value with its JAX arrays in their shardings; all else stays the same.

        Raises:
            ValueError: The shardings are no prefix of the value, or one of them does not fit its array.
        """
        leaves, structure = jax.tree.flatten(value)
        put: list[Any] = []
        for place, (leaf, sharding) in enumerate(zip(leaves, self._wanted(value), strict=True)):
            try:
                put.append(_put(leaf, sharding))
            except ValueError as error:
                path = format_path(leaves_with_paths(value)[place][0])
                message = f"shardings=: {path}: expected a sharding that fits\n{error}"
                raise ValueError(message) from None
        return jax.tree.unflatten(structure, put)

    def _wanted(self, value: Any) -> list[Any]:
        """A sharding or None for each leaf of a value."""
        if callable(self._shardings):
            return all_of(self._of_leaf, leaves_with_paths(value))
        jax.tree.leaves(self._shardings)  # too deep a tree fails here; see trees.flattened
        wanted: list[Any] = []
        try:
            jax.tree.map(
                lambda sharding, part: wanted.extend([sharding] * len(jax.tree.leaves(part))),
                self._shardings,
                value,
                is_leaf=is_none,
            )
        except ValueError as error:
            raise ValueError(
                f"shardings=: expected one sharding or a prefix of the tree, got another tree\n{error}"
            ) from None
        return [*map(_sharding_of, wanted)]

    def _of_leaf(self, path: Path, leaf: Any) -> Any:
        """The sharding of a leaf by the function, which is asked again only if a constructor made another array."""
        if not isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
            return None
        read, wanted = self._asked.get(path, (None, None))
        if read is not None and (read.shape, read.dtype) == (leaf.shape, leaf.dtype):
            return wanted
        return _sharding_of(self._shardings(path, leaf))


def _sharding_of(given: Any) -> Any:
    """A sharding, or that of an array or a ``jax.ShapeDtypeStruct``."""
    return getattr(given, "sharding", given)


def all_of(
    sharding: Callable[[tuple[Hashable, ...], Any], Any],
    leaves: Iterable[tuple[tuple[Hashable, ...], Any]],
) -> list[Any]:
    """The sharding of each leaf by a function of path and leaf.

    Raises:
        ValueError: The function refused some of them; with all of its messages.
    """
    found: list[Any] = []
    refused: list[ValueError] = []
    for path, leaf in leaves:
        try:
            found.append(sharding(path, leaf))
        except ValueError as error:
            refused.append(error)
    if refused:
        raise ValueError("\n".join(map(str, refused))) from refused[0]
    return found


def _put(leaf: Any, sharding: Any) -> Any:
    if sharding is None or (isinstance(leaf, jax.Array) and leaf.sharding == sharding):
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        make: Any = jax.ShapeDtypeStruct  # JAX leaves its constructor untyped
        return make(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)
    if not isinstance(leaf, jax.Array):
        return leaf
    if getattr(sharding, "is_fully_addressable", True) or not leaf.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    # Every host has the same.
    return jax.make_array_from_callback(leaf.shape, sharding, leaf.__getitem__)


Rules = Mapping[str, str | tuple[str, ...] | None]
Sharder = Callable[[tuple[Hashable, ...], Any], Any]
_SPEC: Final[Any] = jax.sharding.PartitionSpec  # JAX leaves its constructor untyped


def shardings(target: Any, mesh: Any, rules: Rules) -> Any:
    """The shardings of arrays by the names of their axes.

    Args:
        target: An object, or the ``jax.ShapeDtypeStruct`` of one; or a schema or a Struct class.
        mesh: The ``jax.sharding.Mesh``.
        rules: The axis of the mesh for each name, or a tuple of several. Axes whose name has no rule, or None,
            are not divided. Arrays without names are on every device.

    Returns:
        For an object, the same tree with a ``jax.sharding.NamedSharding`` in the place of each leaf. For a schema
        or a class, a function of path and array, which ``load(shardings=...)`` takes.

    Raises:
        ValueError: A rule has another axis than the mesh, or a misspelt name, or does not fit an array; with
            every problem.
        TypeError: ``mesh`` or ``rules`` is something else.

    Example:
        >>> import numpy as np
        >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("model",))
        >>> tuple(shardings({"step": 3}, mesh, {"embed": "model"})["step"].spec)
        ()
    """
    sharder = by_axes(mesh, rules)
    if isinstance(target, Schema):
        documents = target.document.closure()
        fields = (
            field
            for each in documents
            for struct in each.structs.values()
            for field in struct.fields.values()
        )
        _check_spelling(rules, {name for field in fields for name in field.axes or ()})
        return sharder
    if isinstance(target, type):
        if not is_struct(target):
            message = f"expected a schema, a Struct class or an object, got {brief(target)}"
            raise TypeError(f"shardings(): {message}")
        return sharder
    check_rules(rules, target)
    found = all_of(sharder, leaves_with_paths(target))
    return jax.tree.unflatten(jax.tree.structure(target), found)


def by_axes(mesh: Any, rules: Any) -> Sharder:
    """A function of path and array that returns its sharding; the arguments are those of :func:`shardings`.

    Raises:
        ValueError: A rule has another axis than the mesh.
        TypeError: An argument is something else.
    """
    if not isinstance(mesh, (jax.sharding.Mesh, jax.sharding.AbstractMesh)):
        raise TypeError(f"mesh=: expected a jax.sharding.Mesh, got {brief(mesh)}")
    if not isinstance(rules, Mapping):
        example = '{"embed": "model"}'
        raise TypeError(f"rules=: expected a mapping such as {example}, got {brief(rules)}")
    sizes = mesh.shape
    divided = {name: _mesh_axes(axes) for name, axes in rules.items()}
    unknown = [
        f"rules=: expected axes of the mesh ({', '.join(map(str, sizes))}) for {name!r}, got {axes!r}"
        for name, axes in rules.items()
        if any(axis not in sizes for axis in divided[name])
    ]
    if unknown:
        raise ValueError("\n".join(unknown))

    everywhere = jax.sharding.NamedSharding(mesh, _SPEC())

    def sharder(path: tuple[Hashable, ...], leaf: Any) -> Any:
        shape = getattr(leaf, "shape", ())
        names = _names(path)
        if not any(names):
            return everywhere
        lead = len(shape) - len(names)
        axes = [divided.get(name, ()) if name else () for name in names]
        problems = [*_misfits(names, axes, shape, sizes)]
        if problems:
            where = f"rules=: {format_path(path)}"
            raise ValueError("\n".join(f"{where}: {problem}" for problem in problems))
        entries = [None] * lead + [_entry(each) for each in axes]
        return jax.sharding.NamedSharding(mesh, _SPEC(*entries))

    return sharder


def _mesh_axes(axes: Any) -> tuple[Any, ...]:
    if axes is None:
        return ()
    return tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)


def _entry(axes: tuple[Any, ...]) -> Any:
    """The entry of a PartitionSpec for one axis."""
    if len(axes) < 2:
        return axes[0] if axes else None
    return axes


def _names(path: tuple[Hashable, ...]) -> list[str | None]:
    """The names of the last axes of the array at a path; None for those of stacked structs without a name."""
    names: list[str | None] = []
    for part in path:
        if isinstance(part, FieldName) and part.spec is not None:
            names += _own_names(part.spec)
    return names


@lru_cache(maxsize=4096)
def _own_names(spec: FieldSpec) -> Sequence[str | None]:
    named = spec.metadata.get("axes") or ()
    if not isinstance(named, (list, tuple)) or not all(isinstance(name, str) for name in named):
        message = f"expected names of axes in a list, got {brief(named)}"
        raise TypeError(f'{spec.name}: metadata["axes"]: {message}')
    if not named and isinstance(spec.type, Type):
        return [None for branch in spec.type.branches if branch.stacks for _ in branch.extents]
    return named


def _misfits(
    names: list[str | None],
    axes: list[tuple[Any, ...]],
    shape: tuple[int, ...],
    sizes: Mapping[Any, int],
) -> Iterator[str]:
    """Yields the reasons why an array cannot be divided."""
    if len(shape) < len(names):
        shown = ", ".join(name or "_" for name in names)
        yield f"expected an array with the axes {shown}, got the shape {shape}"
        return
    for axis, count in Counter(axis for each in axes for axis in each).items():
        if count > 1:
            users = [name for name, each in zip(names, axes, strict=True) if axis in each]
            shown = " and ".join(map(repr, users))
            yield f"expected each axis of the mesh once in an array, got {axis!r} for {shown}"
    own = shape[len(shape) - len(names) :]
    for name, each, size in zip(names, axes, own, strict=True):
        devices = prod(sizes[axis] for axis in each)
        if size % devices:
            yield f"expected a size of {name!r} that {devices} devices divide, got {size}"


def check_rules(rules: Rules, tree: Any) -> None:
    """Checks the names in rules against those of the axes of an object.

    Raises:
        ValueError: A name is misspelt.
    """
    paths = (path for path, _ in leaves_with_paths(tree))
    _check_spelling(rules, {name for path in paths for name in _names(path) if name})


def _check_spelling(rules: Rules, known: set[str]) -> None:
    """Refuses a rule for no axis if an axis without a rule has nearly its name; other rules may be for other models.

    Raises:
        ValueError: With every such rule.
    """
    open_names = sorted(known - rules.keys())
    hints = {name: did_you_mean(str(name), open_names) for name in rules if name not in known}
    wrong = [
        f"rules=: expected names of axes, got {name!r}; {hint} If not, give that name a rule of its own, such as None"
        for name, hint in hints.items()
        if hint
    ]
    if wrong:
        raise ValueError("\n".join(wrong))
