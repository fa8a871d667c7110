"""Plans: the part that reading and writing a file share: numbers of sizes, problems, claims on arrays, and arrays kept.

A file of another program has the fields of one layer after those of another, and a schema can have all layers in one
array. Whatever is read of the source for a layer that is not written yet is kept here, so that nothing is read twice.

Example:
    >>> import numpy as np
    >>> kept = KeptArrays()
    >>> kept.keep("w", np.arange(6.0).reshape(2, 3))
    >>> "w" in kept, kept["w"].tolist(), kept.pop("w").shape, kept.pop("w")
    (True, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], (2, 3), None)
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import prod
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from neuralqx_struct.errors import (
    Diagnostic,
    SerializationError,
    has_errors,
)
from neuralqx_struct.evolution.sizes import extent
from neuralqx_struct.formats.store import bytes_of
from neuralqx_struct.layouts.forms import Sizes, Window
from neuralqx_struct.layouts.places import Leaf, settings_of
from neuralqx_struct.layouts.walk import Walk
from neuralqx_struct.schema.text import FIX_THESE_FIRST, MAX_PROBLEMS
from neuralqx_struct.types.text import format_extents

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

#: Bytes that stay in memory, and the largest array among them.
_MOST_HELD: Final = 16 << 20
_MOST_EACH: Final = 1 << 20


class KeptArrays:
    """Arrays by key; those in the file are maps of it."""

    def __init__(self) -> None:
        self._left = _MOST_HELD
        self._held: dict[Hashable, Array] = {}
        self._mapped: dict[Hashable, Array] = {}
        self._file: IO[bytes] | None = None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._held or key in self._mapped

    def __getitem__(self, key: Hashable) -> Array:
        return self._held[key] if key in self._held else self._mapped[key]

    def keep(self, key: Hashable, array: Array) -> None:
        """Adds an array; of a part of a larger one, a copy."""
        if array.nbytes <= min(_MOST_EACH, self._left):
            self._left -= array.nbytes
            self._held[key] = array if array.base is None else array.copy()
        else:
            self._mapped[key] = self._written(array)

    def pop(self, key: Hashable, default: Array | None = None) -> Array | None:
        """Removes an array, and returns it."""
        array = self._held.pop(key, None)
        if array is None:
            return self._mapped.pop(key, default)
        self._left += array.nbytes
        return array

    def _written(self, array: Array) -> Array:
        if self._file is None:
            self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - for as long as the arrays
            weakref.finalize(self, self._file.close)
        return _mapped(array, self._file)


def out_of_memory(array: Array) -> Array:
    """A large array as a map of a temporary file, so that what is computed of it is alone in memory."""
    if array.nbytes <= _MOST_EACH:
        return array
    with TemporaryFile(buffering=0) as file:
        return _mapped(array, file)


def _mapped(array: Array, file: IO[bytes]) -> Array:
    """Appends an array to a file, and maps it there."""
    import numpy as np

    start = -(-file.seek(0, 2) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
    file.seek(start)
    data = memoryview(bytes_of(array))
    while data:
        data = data[file.write(data) :]
    held = mmap.mmap(file.fileno(), array.nbytes, access=mmap.ACCESS_READ, offset=start)
    return np.ndarray(array.shape, array.dtype, held)


#: The fix of shapes and dtypes that differ.
RULE = "correct its rule in the layout, or the type in the schema"


class Numbers:
    """The numbers of one array on the way between both sides.

    Attributes:
        files: The shapes in the file for one item; of a merge one for each name.
        windows: The parts of the merged array, or the part of the array in the file.
        whole: The shape of the part, or of the merged array.
        inner: The shape before the transposition.
    """

    __slots__ = ("files", "inner", "whole", "windows")

    def __init__(
        self, files: Sequence[Sizes], windows: Sequence[Window], whole: Sizes, inner: Sizes
    ) -> None:
        self.files, self.windows, self.whole, self.inner = files, windows, whole, inner


class Plan:
    """The part that both directions share.

    Attributes:
        walk: The walk over the schema.
        found: All problems.
        numbers: The numbers of each array.
    """

    walk: Walk

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self.numbers: dict[Leaf, Numbers] = {}

    def report(self, code: str, path: str, message: str, hint: str | None = None) -> None:
        """Adds a problem."""
        self.found.append(Diagnostic(code, "error", message, path=path, hint=hint))

    def size(self, leaf: Leaf) -> Callable[[Any], int | None]:
        """Returns the numbers of sizes at the place of an array."""
        scope = leaf.place.scope
        return lambda each: None if each is ... else scope.size(each)

    def settle(self, leaves: Sequence[Leaf], numbered: Callable[[Leaf], Numbers | None]) -> None:
        """Finds the numbers of all arrays; one can give the sizes that others need."""
        waiting = [*leaves]
        while waiting:
            self.found += self.walk.dims.solve()
            if has_errors(self.found):
                return
            left = []
            for leaf in waiting:
                made = numbered(leaf)
                if made is None:
                    left.append(leaf)
                else:
                    self.numbers[leaf] = made
            if len(left) == len(waiting):
                break
            waiting = left
        for leaf in waiting if not has_errors(self.found) else ():
            self._unknown(leaf)

    def _unknown(self, leaf: Leaf) -> None:
        """Reports an array whose sizes are not known."""
        rule, size = leaf.place.rule, self.size(leaf)
        written = [*(rule.sizes or ()), *(rule.reshape or ())]
        written += [] if rule.blocks is None else [rule.blocks]
        sizes = [*map(extent, written), *leaf.form.inner]
        names = {n for each in sizes if each is not ... and size(each) is None for n in each.names}
        unknown = sorted(name for name in names if size(extent(name)) is None)
        where = leaf.place.text
        open_axes = [each for each in leaf.form.inner if each is ... or size(each) is None]
        derivable = rule.reshape is not None and len(open_axes) < 2
        if not unknown or (derivable and not rule.sizes and rule.blocks is None):
            shown = f"[{format_extents(leaf.form.inner)}]"
            self.report("NQX412", where, f"expected sizes that make {shown}, got others", RULE)
            return
        listed = ", ".join(unknown)
        message = f"expected sizes that the arrays show, got {listed}, which none of them does"
        hint = f"pass values={{{unknown[0]!r}: ...}}, or write it under `values:` in the layout"
        settings = settings_of(self.walk.document).intersection(unknown)
        if settings:
            line = ", ".join(f"{name}: {{}}" for name in sorted(settings))
            hint = f"write `dims: {{{line}}}` in the schema: sizes of that name are then the static field of the root"
        self.report("NQX707", where, message, hint)

    def refuse_errors(self) -> None:
        """Raises all problems.

        Raises:
            SerializationError: There are some.
        """
        found = list(dict.fromkeys(self.found))
        if not has_errors(found):
            return
        if len(found) > MAX_PROBLEMS:
            message = f"expected at most {MAX_PROBLEMS} problems, got {len(found)}"
            last = Diagnostic("NQX005", "error", message, hint=FIX_THESE_FIRST)
            found[MAX_PROBLEMS:] = [last]
        raise SerializationError(found)


# ---------------------------------------------------------------------------------------------------------------------
# Claims: each array of the file belongs to one field, or its parts to one field each.


def claims_of(leaves: Iterable[Leaf]) -> dict[str, list[tuple[Leaf, int]]]:
    """The arrays of the schema that each array of the file is in, with the place of its name among theirs."""
    found: dict[str, list[tuple[Leaf, int]]] = {}
    for leaf in leaves:
        for place, name in enumerate(leaf.names):
            found.setdefault(name, []).append((leaf, place))
    return found


def claim_problems(claims: Mapping[str, Sequence[tuple[Leaf, int]]]) -> Iterator[Diagnostic]:
    """Yields NQX703 for arrays of the file that two fields take, and for parts that none takes."""
    for name, each in claims.items():
        first = each[0][0]
        counts = [
            f.count or 0 for f in first.place.frames if f.index is not None and f.axis is not None
        ]
        wanted = prod(counts) * first.place.rule.parts
        if wanted == len(each) == 1:
            continue
        taken: dict[tuple[Any, ...], Leaf] = {}
        for leaf, _ in each:
            indices = tuple(f.index for f in leaf.place.frames if f.axis is not None)
            key = (*indices, leaf.place.rule.place if leaf.place.rule.parts > 1 else None)
            other = taken.setdefault(key, leaf)
            if other is not leaf:
                message = f"expected one field for the array {name!r}, got two\nthe other is {other.place.text}"
                hint = "give one of the two another name, or both a `part` of it"
                yield Diagnostic("NQX703", "error", message, path=leaf.place.text, hint=hint)
        if len(taken) == len(each) and len(each) != wanted:
            message = (
                f"expected fields for all {wanted} parts of the array {name!r}, got {len(each)}"
            )
            hint = "each part needs one field, with the same `axis` and `sizes`"
            yield Diagnostic("NQX703", "error", message, path=first.place.text, hint=hint)
