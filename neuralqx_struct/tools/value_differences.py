"""Comparison of the values of two checkpoints: bundles, foreign files, or one of each.

Arrays are read one at a time, and compared in pieces. Needs no JAX and no class.

Example:
    >>> import numpy as np, tempfile
    >>> from neuralqx_struct import formats
    >>> folder = tempfile.mkdtemp()
    >>> paths = [f"{folder}/a.safetensors", f"{folder}/b.safetensors"]
    >>> for path, last in zip(paths, (1.0, 1.5)):
    ...     _ = formats.write(path, "safetensors", {"w": np.array([0.5, last])})
    >>> found = diff_values(*paths)
    >>> print(found.equal, found.leaves[0].different, found.leaves[0].absolute)
    False 1 0.5
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from neuralqx_struct import bundle
from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import Diagnostic, StructError, printable
from neuralqx_struct.formats import is_foreign
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.paths import format_path
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.tools.leaves import Leaf, foreign_name, leaves_of, leaves_of_payload

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["ComparedLeaf", "ValueDifferences", "diff_values"]

_PIECE: Final = 1 << 20  # elements that are compared at a time
State = Literal["equal", "changed", "added", "removed", "unread"]


@dataclass(frozen=True, slots=True)
class ComparedLeaf:
    """One leaf of two checkpoints.

    Attributes:
        path: Its key path, or its name where a foreign file has it.
        state: ``equal``, ``changed``, ``added``, ``removed``, or ``unread`` if one of the two cannot be read.
        old: Its type in the first, such as ``float32[2, 3]``, with the value of a plain one; None if it is not there.
        new: Likewise in the second.
        size: Number of elements, of arrays of the same shape.
        different: Number of elements that differ; NaN is equal to NaN.
        absolute: Largest difference of two numbers.
        relative: Largest difference of two numbers, divided by the larger one in absolute value.
        old_nan: Number of NaN in the first.
        new_nan: Number of NaN in the second.
    """

    path: str
    state: State
    old: str | None = None
    new: str | None = None
    size: int | None = None
    different: int | None = None
    absolute: float | None = None
    relative: float | None = None
    old_nan: int | None = None
    new_nan: int | None = None

    def finding(self, file: str) -> Diagnostic:
        """The difference as a finding about the second checkpoint."""
        message = f"expected {self.old or 'nothing'}, got {self.new or 'nothing'}"
        if self.old == self.new and self.different is not None:
            message = f"expected the elements of {self.old}, got {self.different} that differ"
        if self.different and self.absolute is not None:
            message += f"\nlargest difference {self.absolute:.6g}, relative {self.relative:.3g}"
        if self.old_nan or self.new_nan:
            message += f"\n{self.old_nan} NaN, now {self.new_nan}"
        return Diagnostic("NQX433", "error", message, self.path, file)


@dataclass(frozen=True, slots=True)
class ValueDifferences:
    """The result of a comparison; ``str()`` lists the differences.

    Attributes:
        old: The first path.
        new: The second path.
        leaves: All leaves, first those of the first checkpoint.
        unread: Reasons why arrays could not be read.
        brought: That the older of two bundles of one schema was brought to the version of the newer first, or why it
            could not be and the two are compared as they are stored; empty for two of one version.
    """

    old: str
    new: str
    leaves: tuple[ComparedLeaf, ...]
    unread: tuple[Diagnostic, ...] = field(default=())
    brought: tuple[Diagnostic, ...] = field(default=())

    @property
    def equal(self) -> bool:
        """True if all leaves are equal."""
        return all(leaf.state == "equal" for leaf in self.leaves)

    @property
    def apart(self) -> list[ComparedLeaf]:
        """The leaves that differ: those without numbers, then the largest relative difference first."""
        apart = (leaf for leaf in self.leaves if leaf.state != "equal")
        return sorted(
            apart, key=lambda leaf: -math.inf if leaf.relative is None else -leaf.relative
        )

    @property
    def findings(self) -> list[Diagnostic]:
        """The differences as findings."""
        changed = (leaf for leaf in self.apart if leaf.state != "unread")
        return [*self.brought, *self.unread, *(leaf.finding(self.new) for leaf in changed)]

    @property
    def summary(self) -> str:
        """The numbers of leaves in each state."""
        states = [leaf.state for leaf in self.leaves]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        text = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no leaves"
        return f"{self.old} and {self.new}: {text}"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), printable(self.summary)])

    def to_json(self) -> list[dict[str, Any]]:
        """The leaves as plain JSON values."""
        return [asdict(leaf) for leaf in self.leaves]


@bundle.read_again
def diff_values(
    old: str | Place,
    new: str | Place,
    *,
    limits: Limits | None = None,
    trust: Iterable[str] = (),
    storage_options: Options | None = None,
) -> ValueDifferences:
    """Compares the values of two checkpoints, array by array.

    The older of two bundles of one schema is brought to the version of the newer first, by the steps in the newer one.

    Args:
        old: A bundle, or a foreign file such as ``model.safetensors``.
        new: The one to compare it with.
        limits: Sizes above which one is refused.
        trust: Packages whose functions ``python`` steps may run.
        storage_options: Options of fsspec for URLs, such as keys.

    Returns:
        All leaves. An array is equal if dtype, shape and all elements are; random keys, static fields and plain
        values are compared too, classes are not.

    Raises:
        SerializationError: One of them is missing (then also a FileNotFoundError), or cannot be read.

    Example:
        >>> path = "tests/golden/format-1/vmc_state_1"
        >>> print(diff_values(path, path).equal)
        True
    """
    unread: list[Diagnostic] = []
    old, new = place_of(old, storage_options), place_of(new, storage_options)
    both_bundles = not is_foreign(old) and not is_foreign(new)
    brought: list[Diagnostic] = []
    with ExitStack() as stack:
        if both_bundles:
            payloads = bundle.read(old, limits=limits), bundle.read(new, limits=limits)
            same, brought = _of_one_version((str(old), str(new)), payloads, trust)
            before, after = (list(leaves_of_payload(each)) for each in same)
        else:
            before, after = (stack.enter_context(leaves_of(each, limits)) for each in (old, new))
        shown = format_path if both_bundles else foreign_name
        first = {shown(path): leaf for path, leaf in before}
        second = {shown(path): leaf for path, leaf in after}
        leaves: list[ComparedLeaf] = []
        for path, leaf in first.items():
            if path not in second:
                leaves.append(ComparedLeaf(path, "removed", old=leaf.text))
                continue
            try:
                found = _compared(path, leaf, second[path], kinds=both_bundles)
            except OSError:  # of the disk or the server, which will not read the others either
                raise
            except StructError as error:
                found = ComparedLeaf(path, "unread", leaf.text, second[path].text)
                unread += [d if d.path else replace(d, path=path) for d in error.diagnostics]
            leaves.append(found)
        added = (path for path in second if path not in first)
        leaves += [ComparedLeaf(path, "added", new=second[path].text) for path in added]
    return ValueDifferences(str(old), str(new), tuple(leaves), tuple(unread), tuple(brought))


def _of_one_version(
    files: tuple[str, str], payloads: tuple[Payload, Payload], trust: Iterable[str]
) -> tuple[tuple[Payload, Payload], list[Diagnostic]]:
    """Two payloads, the older one of a schema brought to the version of the newer; and a finding that says so."""
    first, second = (payload.document.get("schema") for payload in payloads)
    if first is None or second is None or first["id"] != second["id"]:
        return payloads, []
    identity, versions = first["id"], (first["version"], second["version"])
    if versions[0] == versions[1]:
        return payloads, []
    from neuralqx_struct.evolution.migrations import resolve  # most comparisons are of one version
    from neuralqx_struct.schema.series import carried_series

    older, newer = (0, 1) if versions[0] < versions[1] else (1, 0)
    found: list[Diagnostic] = []
    way = f"{identity} from version {versions[older]} to {versions[newer]}"
    try:
        series = carried_series(payloads[newer].document).get(identity)
        made = resolve(payloads[older], series, to=versions[newer], trust=trust)
    except StructError as error:
        why = "\n".join(map(str, error.diagnostics))
        message = f"cannot bring {way}: compared as the two are stored\n{why}"
        hint = error.diagnostics[0].hint if error.diagnostics else None
        found.append(Diagnostic("NQX433", "warning", message, "", files[older], hint=hint))
        return payloads, found
    message = f"brought {way} before the comparison"
    found.append(Diagnostic("NQX433", "info", message, "", files[older]))
    return ((made, payloads[1]) if older == 0 else (payloads[0], made)), found


def _compared(path: str, old: Leaf, new: Leaf, *, kinds: bool) -> ComparedLeaf:
    """Two leaves of one path; with ``kinds``, an array and a scalar of numpy are different."""
    if old.array is None or new.array is None:
        equal = old.array is new.array and old.token == new.token
        return ComparedLeaf(path, "equal" if equal else "changed", old.text, new.text)
    before, after = old.array, new.array
    same_type = before.dtype == after.dtype and (old.text == new.text or not kinds)
    if before.shape != after.shape:
        return ComparedLeaf(path, "changed", old.text, new.text)
    numbers = compared_numbers(before.read(), after.read())
    equal = same_type and not numbers.different
    return ComparedLeaf(
        path,
        "equal" if equal else "changed",
        old.text,
        new.text,
        math.prod(before.shape),
        *numbers,
    )


# Numbers


class Numbers(NamedTuple):
    """Facts about the elements of two arrays; see :class:`ComparedLeaf`."""

    different: int = 0
    absolute: float | None = None
    relative: float | None = None
    old_nan: int | None = None
    new_nan: int | None = None

    def plus(self, other: Numbers) -> Numbers:
        """The facts about two pieces together."""
        return Numbers(
            self.different + other.different,
            _larger(self.absolute, other.absolute),
            _larger(self.relative, other.relative),
            _sum(self.old_nan, other.old_nan),
            _sum(self.new_nan, other.new_nan),
        )


def _larger(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


def compared_numbers(old: Array, new: Array) -> Numbers:
    """Compares two arrays of one shape, piece by piece."""
    compare = _comparison(old.dtype, new.dtype)
    before, after = old.reshape(-1), new.reshape(-1)
    found = compare(before[:0], after[:0])
    for start in range(0, before.size, _PIECE):
        piece = slice(start, start + _PIECE)
        found = found.plus(compare(before[piece], after[piece]))
    return found


def _comparison(old: np.dtype[Any], new: np.dtype[Any]) -> Callable[[Array, Array], Numbers]:
    """The function that compares pieces of two dtypes."""
    families = {DTYPES[name].family if name in DTYPES else "" for name in (old.name, new.name)}
    if "" in families:
        return _others
    if families & {"floating", "complex"}:
        dtype = "complex128" if "complex" in families else "float64"
        return lambda a, b: _floats(a.astype(dtype), b.astype(dtype))
    if {old.name, new.name} >= {"uint64"} and families != {"unsigned"}:
        return lambda a, b: _floats(a.astype("float64"), b.astype("float64"))
    dtype = "uint64" if "uint64" in (old.name, new.name) else "int64"
    return lambda a, b: _integers(a.astype(dtype), b.astype(dtype))


def _others(old: Array, new: Array) -> Numbers:
    """Text, dates, and elements of two kinds: equal or not."""
    if old.dtype.kind != new.dtype.kind:
        return Numbers(old.size)
    same = (old == new) | ((old != old) & (new != new))  # noqa: PLR0124 - NaT, a date that is none
    return Numbers(int(old.size - same.sum()))


def _integers(old: Array, new: Array) -> Numbers:
    """Integers and truth values; their differences fit into 64 bits without a sign."""
    import numpy as np

    if not old.size:
        return Numbers(0, 0, 0.0)
    apart = np.maximum(old, new).astype("uint64") - np.minimum(old, new).astype("uint64")
    larger = np.maximum(np.abs(old.astype("float64")), np.abs(new.astype("float64")))
    relative = apart / np.where(larger, larger, 1)
    return Numbers(int(np.count_nonzero(apart)), int(apart.max()), float(relative.max()))


def _floats(old: Array, new: Array) -> Numbers:
    """Floats and complex numbers; NaN counts as equal to NaN, and in no difference."""
    import numpy as np

    old_nan, new_nan = np.isnan(old), np.isnan(new)
    nans = int(old_nan.sum()), int(new_nan.sum())
    same = (old == new) | (old_nan & new_nan)
    rows = ~(same | old_nan | new_nan)
    different = int(same.size - same.sum())
    if not rows.any():
        return Numbers(different, 0.0, 0.0, *nans)
    a, b = old[rows], new[rows]
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        relative = apart / np.maximum(np.abs(a), np.abs(b))
    apart[np.isnan(apart)] = math.inf  # of complex numbers with infinite parts
    relative[np.isnan(relative)] = math.inf
    return Numbers(different, float(apart.max()), float(relative.max()), *nans)
