"""Lazy arrays by name, each source of which is read once, and the parts of it that wait for their turn.

A file has the arrays of one layer after those of another, and a schema can have all layers in one array, or parts of one
array as several. What is read of a source for an array that is not asked for yet is kept here.

Example:
    >>> import numpy as np
    >>> whole = Part.of(ForeignArray("int64", (2, 3), lambda: np.arange(6).reshape(2, 3)))
    >>> arrays = LazyArrays({"a": whole.at(0, 0), "b": whole.at(0, 1).reshaped((3, 1))})
    >>> arrays["a"].tolist(), arrays["b"].tolist()
    ([0, 1, 2], [[3], [4], [5]])
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, Literal

from neuralqx_struct.dtypes import bytes_of
from neuralqx_struct.manifest.lazy_arrays import LazyArray, Part, Reader, bounded, compact
from neuralqx_struct.manifest.payload import ForeignArray, HeldArrays, Region, StoredArrays

if TYPE_CHECKING:
    import numpy as np

    NumpyArray = np.ndarray[Any, Any]

#: Bytes that stay in memory, and the largest array among them.
_MOST_HELD: Final = 16 << 20
_MOST_EACH: Final = 1 << 20

Order = Literal["file", "all", "some"]
"""Which arrays are asked for: all in the order of the file, all in any order, or some of them."""


class LazyArrays(StoredArrays):
    """Arrays by name that are computed when they are asked for.

    Several can need parts of one source that costs reading. It is read once for all of them.

    Args:
        arrays: The arrays by name.
        order: Which arrays are asked for. With ``all``, parts of a source that was read are kept until then; with
            ``file`` too, those behind the next source in a temporary file; with ``some`` no more is read than they
            need, where the source allows that.
    """

    __slots__ = ("__weakref__", "_arrays", "_kept", "_last", "_wanted", "order")

    def __init__(self, arrays: Mapping[str, LazyArray], order: Order = "file") -> None:
        super().__init__(arrays)
        self._arrays, self.order = arrays, order
        self._wanted: dict[int, list[Part]] = {}  # by the identity of their source
        self._last: dict[Part, NumpyArray] = {}
        self._kept = KeptArrays()

    def verify(self, name: str) -> None:
        """Computed arrays have no checksums."""

    def lazy(self, name: str) -> LazyArray:
        """One array, which is not read."""
        return self._arrays[name]

    def of_others(self, sources: Mapping[int, ForeignArray]) -> LazyArrays:
        """The same arrays of other sources, which are given by the identity of theirs."""
        made = {name: array.of_others(sources) for name, array in self._arrays.items()}
        return LazyArrays(made, self.order)

    def __getitem__(self, name: str) -> NumpyArray:
        array = self._arrays[name]
        if isinstance(array, Part) and array.is_whole and self._is_alone(array):
            return array.source.read()
        return array.read(self._read)

    def divisible(self, name: str) -> bool:
        """True if no source of an array has to be read whole."""
        return all(part.source.slices is not None for part in self._arrays[name].parts())

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[NumpyArray]:
        """Yields parts of one array; no more is read than these need, where the source allows that."""
        array, given = self._arrays[name], [*regions]
        wanted: list[Region] = []
        needs: list[tuple[Part, Region]] = []
        for region in given:
            ranges = bounded(region, array.shape) if all(array.shape) else None
            needed = None if ranges is None else array.needs(ranges)
            if ranges is None or needed is None:
                whole = self[name]
                yield from (whole[region] for region in given)
                return
            wanted.append(ranges)
            needs += needed
        read = self._regions_read(needs)
        for region in wanted:
            yield array.view(read, region)

    def _regions_read(self, needs: Iterable[tuple[Part, Region]]) -> Reader:
        """Returns the regions of parts in this order; each source is asked once for all of its regions, or read once."""
        asked: dict[int, tuple[ForeignArray, list[Region]]] = {}
        for part, region in needs:
            if part.source.slices is not None:
                _, known = asked.setdefault(id(part.source), (part.source, []))
                known.append(part.within(region).region)
        coming = {key: source.parts(known) for key, (source, known) in asked.items()}
        held: dict[Part, NumpyArray] = {}

        def read(part: Part, region: Region | None) -> NumpyArray:
            assert region is not None
            parts = coming.get(id(part.source))
            if parts is not None:
                return part.within(region).cut(lambda _: next(parts))
            if part not in held:
                held[part] = self._read(part, None)
            return held[part][region]

        return read

    def _is_alone(self, part: Part) -> bool:
        """True if no other part of its source is worth to be kept."""
        return part.source.cheap or len(self._parts_of(part.source)) < 2

    def _read(self, part: Part, region: Region | None) -> NumpyArray:
        """The elements of a part; the other parts of its source are kept."""
        del region  # only `parts` asks for some
        for held in (self._last, self._kept):
            kept = held.pop(part, None)
            if kept is not None:
                return kept
        source = part.source
        if self.order == "some" and source.slices is not None:
            return part.cut(source.slices)
        if source.cheap:
            return part.cut(source.read().__getitem__)
        self._drop()
        whole = source.read()
        if self.order == "file":
            whole = out_of_memory(whole)
        for other in self._parts_of(source):
            if other is not part:
                view = other.cut(whole.__getitem__)
                self._last[other] = compact(view) if self.order == "all" else view
        return part.cut(whole.__getitem__)

    def _parts_of(self, source: ForeignArray) -> Sequence[Part]:
        """All parts of a source that the arrays need."""
        if not self._wanted:
            for array in self._arrays.values():
                for part in array.parts():
                    self._wanted.setdefault(id(part.source), []).append(part)
        return self._wanted[id(source)]

    def _drop(self) -> None:
        """Drops the source that was read last, before another one is read."""
        if self.order == "all":
            return
        while self._last:
            part, array = self._last.popitem()
            if self.order == "file":
                self._kept.keep(part, array)


class MigratedArrays(HeldArrays):
    """The arrays of a payload after migration steps: stored ones, and lazy ones that steps made of them.

    Args:
        stored: The arrays that the first step started from.
        made: The lazy arrays by name; a stored one of the same name is hidden.
        names: The names to include, in their order; those of ``stored`` if left out.
        sources: The stored arrays that lazy ones are made of, by name.

    Example:
        >>> import numpy as np
        >>> before = MigratedArrays({"w": np.arange(6).reshape(2, 3), "b": np.ones(2)})
        >>> made = {"v": before.lazy("w", "int64", [2, 3]).transposed((1, 0))}
        >>> after = before.followed({**made}, ["b", "v"])
        >>> [part.tolist() for part in after.parts("v", [(slice(1, 2), slice(None))])]
        [[[1, 4]]]
    """

    __slots__ = ("_lazy", "_sources")

    def __init__(
        self,
        stored: Mapping[str, Any],
        made: Mapping[str, LazyArray] = MappingProxyType({}),
        names: Iterable[str] | None = None,
        sources: dict[str, Part] | None = None,
    ) -> None:
        self._lazy = LazyArrays(made, "all")
        reads = {name: partial(self._lazy.__getitem__, name) for name in made}
        super().__init__(stored, made=reads, names=names)
        self._sources = {} if sources is None else sources

    @property
    def order(self) -> Order:
        """Which arrays are asked for: all in any order, unless another one is set."""
        return self._lazy.order

    @order.setter
    def order(self, order: Order) -> None:
        self._lazy.order = order

    def lazy(self, name: str, dtype: str, shape: Iterable[int]) -> LazyArray:
        """An array of a dtype and shape; asked for twice, a stored one has the same source."""
        if name in self._made:
            return self._lazy.lazy(name)
        if name not in self._sources:
            read, stored = partial(self._held.__getitem__, name), self._source(name)
            if stored is None:
                source = ForeignArray(dtype, tuple(shape), read, cheap=True)
            else:
                several = partial(stored.parts, name) if stored.divisible(name) else None
                slices = None if several is None else lambda region: next(several([region]))
                cheap = stored.at_hand(name)
                source = ForeignArray(dtype, tuple(shape), read, slices, cheap, several)
            self._sources[name] = Part.of(source)
        return self._sources[name]

    def followed(self, made: dict[str, LazyArray], names: Iterable[str]) -> MigratedArrays:
        """The arrays after further steps.

        Args:
            made: The arrays that these steps made, by name.
            names: The names of all arrays that are left, in their order.
        """
        names = [*names]
        for name in names:
            if name in made:
                continue
            if name in self._made:
                made[name] = self._lazy.lazy(name)
                continue
            source = self._sources.get(name)
            if source is not None and not source.source.cheap:
                made[name] = source  # other arrays are made of what is read for this one
        return MigratedArrays(self._held, made, names, self._sources)

    def expect(self, names: Iterable[str]) -> None:
        """Announces arrays, and the sources of those that steps made, to the bundle that has them."""
        if not isinstance(self._held, StoredArrays):
            return
        sources = {id(part.source): name for name, part in self._sources.items()}
        wanted: list[str] = []
        for name in names:
            if name in self._made:
                parts = self._lazy.lazy(name).parts()
                wanted += (sources[id(p.source)] for p in parts if id(p.source) in sources)
            elif name in self._names:
                wanted.append(name)
        self._held.expect(dict.fromkeys(wanted))

    def divisible(self, name: str) -> bool:
        """True for an array that is made of such arrays alone, or is one."""
        return self._lazy.divisible(name) if name in self._made else super().divisible(name)

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[NumpyArray]:
        """Yields parts of one array; of its sources no more is read than these need, where they allow that."""
        if name in self._made:
            return self._lazy.parts(name, regions)
        return super().parts(name, regions)


class KeptArrays:
    """Arrays by key; large ones are maps of a temporary file.

    Example:
        >>> import numpy as np
        >>> kept = KeptArrays()
        >>> kept.keep("w", np.arange(6.0).reshape(2, 3))
        >>> kept.pop("w").tolist(), kept.pop("w")
        ([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], None)
    """

    def __init__(self) -> None:
        self._left = _MOST_HELD
        self._held: dict[Hashable, NumpyArray] = {}
        self._mapped: dict[Hashable, NumpyArray] = {}
        self._file: IO[bytes] | None = None

    def keep(self, key: Hashable, array: NumpyArray) -> None:
        """Adds an array; of a part of a larger one, a copy."""
        if array.nbytes <= min(_MOST_EACH, self._left):
            self._left -= array.nbytes
            self._held[key] = array if array.base is None else array.copy()
            return
        if self._file is None:
            self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - for as long as the arrays
            weakref.finalize(self, self._file.close)
        self._mapped[key] = _mapped(array, self._file)

    def pop(self, key: Hashable, default: NumpyArray | None = None) -> NumpyArray | None:
        """Removes an array, and returns it."""
        array = self._held.pop(key, None)
        if array is None:
            return self._mapped.pop(key, default)
        self._left += array.nbytes
        return array


def out_of_memory(array: NumpyArray) -> NumpyArray:
    """A large array as a map of a temporary file, so that arrays computed of it are alone in memory."""
    if array.nbytes <= _MOST_EACH:
        return array
    with TemporaryFile(buffering=0) as file:
        return _mapped(array, file)


def _mapped(array: NumpyArray, file: IO[bytes]) -> NumpyArray:
    """Appends an array to a file, and maps it there."""
    import numpy as np

    start = -(-file.seek(0, 2) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
    file.seek(start)
    data = memoryview(bytes_of(array))
    while data:
        data = data[file.write(data) :]
    held = mmap.mmap(file.fileno(), array.nbytes, access=mmap.ACCESS_READ, offset=start)
    return np.ndarray(array.shape, array.dtype, held)
