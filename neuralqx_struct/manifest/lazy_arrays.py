"""Arrays that are not read yet, and the operations on them that migration steps and layouts share.

A :class:`Part` of a source, which is any array that can be read, :class:`Changed` by operations and :class:`Joined` with others,
knows its dtype and shape. Reading it computes it. A region of it reads no more of its sources than that needs, where the
operations allow it.

Example:
    >>> import numpy as np
    >>> rows = Part.of(ForeignArray("float32", (6, 4), lambda: np.arange(24, dtype="float32").reshape(6, 4)))
    >>> made = Joined([rows.window(0, 0, 1), rows.window(0, 3, 2)], 0).transposed((1, 0)).reshaped((2, 2, 3))
    >>> made.shape, made.read()[0].tolist()
    ((2, 2, 3), [[0.0, 12.0, 16.0], [1.0, 13.0, 17.0]])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self, TypeVar

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.dtypes.casts import cast
from neuralqx_struct.manifest.payload import ForeignArray, Region

if TYPE_CHECKING:
    import numpy as np

    NumpyArray = np.ndarray[Any, Any]

T = TypeVar("T")
Sizes = tuple[int, ...]


# ---------------------------------------------------------------------------------------------------------------------
# Operations on one array. Equal operations on equal arrays make equal arrays.


class Operation(ABC):
    """A change of one array."""

    __slots__ = ()

    @abstractmethod
    def shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """The shape of the result, also where sizes are expressions."""

    def dtype_of(self, dtype: str) -> str:
        """The dtype of the result."""
        return dtype

    @abstractmethod
    def of(self, array: NumpyArray) -> NumpyArray:
        """The result, a view where that is possible."""

    def of_region(self, array: NumpyArray, region: Region) -> NumpyArray:
        """A region of the result, from the region of the array that it needs."""
        return self.of(array)

    @abstractmethod
    def region(self, region: Region, shape: Sizes) -> Region | None:
        """The region of an array of a shape that a region of the result needs; None if no region has it alone."""

    @abstractmethod
    def behind(self, lead: Sizes) -> Operation:
        """The same operation on each array of several that are stacked along leading axes."""

    def of_part(self, part: Part) -> LazyArray:
        """The result for a part of a source."""
        return Changed(part, self)


@dataclass(frozen=True, slots=True)
class Transposition(Operation):
    """Other order of axes, as in ``numpy.transpose``."""

    order: tuple[int, ...]

    @classmethod
    def of_axes(cls, axes: Sequence[int] | None, rank: int) -> Self | None:
        """The transposition by axes that may be negative, or without axes the reversed order; None if they are no order."""
        if axes is None:
            return cls((*reversed(range(rank)),))
        order = tuple(axis + rank if axis < 0 else axis for axis in axes)
        return cls(order) if sorted(order) == [*range(rank)] else None

    @property
    def inverse(self) -> Transposition:
        """The transposition that undoes it."""
        return Transposition(tuple(map(self.order.index, range(len(self.order)))))

    def shape(self, shape: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(shape[axis] for axis in self.order)

    def of(self, array: NumpyArray) -> NumpyArray:
        return array.transpose(self.order)

    def region(self, region: Region, shape: Sizes) -> Region:
        return self.inverse.shape(region)

    def behind(self, lead: Sizes) -> Transposition:
        count = len(lead)
        return Transposition((*range(count), *(count + axis for axis in self.order)))

    def of_part(self, part: Part) -> Part:
        return Part(part.source, part.region, self.shape(part.axes))


@dataclass(frozen=True, slots=True)
class Reshaping(Operation):
    """The same elements in the same order, in another shape."""

    sizes: Sizes

    def shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.sizes

    def of(self, array: NumpyArray) -> NumpyArray:
        return array.reshape(self.sizes)

    def of_region(self, array: NumpyArray, region: Region) -> NumpyArray:
        return array.reshape(sizes_of(region))

    def region(self, region: Region, shape: Sizes) -> Region | None:
        return reshaped_region(region, self.sizes, shape) if all(shape) else None

    def behind(self, lead: Sizes) -> Reshaping:
        return Reshaping((*lead, *self.sizes))


@dataclass(frozen=True, slots=True)
class Window(Operation):
    """A range of one axis; without a length one position of it, which has no axis then."""

    axis: int
    start: int
    length: int | None = None

    @property
    def range(self) -> slice:
        """The range of the axis."""
        return slice(self.start, self.start + (1 if self.length is None else self.length))

    def shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        length = () if self.length is None else (self.length,)
        return (*shape[: self.axis], *length, *shape[self.axis + 1 :])

    def of(self, array: NumpyArray) -> NumpyArray:
        chosen = self.start if self.length is None else self.range
        return array[(*(slice(None),) * self.axis, chosen, ...)]

    def of_region(self, array: NumpyArray, region: Region) -> NumpyArray:
        return array if self.length is not None else Window(self.axis, 0).of(array)

    def region(self, region: Region, shape: Sizes) -> Region:
        if self.length is None:
            return (*region[: self.axis], self.range, *region[self.axis :])
        there = region[self.axis]
        moved = slice(self.start + there.start, self.start + there.stop)
        return (*region[: self.axis], moved, *region[self.axis + 1 :])

    def behind(self, lead: Sizes) -> Window:
        return replace(self, axis=len(lead) + self.axis)

    def of_part(self, part: Part) -> Part:
        axis = part.axes[self.axis]
        first = part.region[axis].start + self.start
        chosen = slice(first, first + (1 if self.length is None else self.length))
        axes = part.axes
        if self.length is None:
            axes = (*axes[: self.axis], *axes[self.axis + 1 :])
        return Part(part.source, (*part.region[:axis], chosen, *part.region[axis + 1 :]), axes)


class Elementwise(Operation):
    """A change of each element."""

    __slots__ = ()

    def shape(self, shape: tuple[T, ...]) -> tuple[T, ...]:
        return shape

    def region(self, region: Region, shape: Sizes) -> Region:
        return region

    def behind(self, lead: Sizes) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class Casting(Elementwise):
    """Another dtype; ``path`` is named where an exact cast refuses a value."""

    dtype: str
    exact: bool
    path: str = field(compare=False)

    def dtype_of(self, dtype: str) -> str:
        return self.dtype

    def of(self, array: NumpyArray) -> NumpyArray:
        return cast(compact(array), self.dtype, exact=self.exact, path=self.path)


@dataclass(frozen=True, slots=True)
class Computation(Elementwise):
    """A function of each element; its name stands for it where operations are compared."""

    name: str
    dtype: str
    compute: Callable[[NumpyArray], NumpyArray] = field(compare=False)

    def dtype_of(self, dtype: str) -> str:
        return self.dtype

    def of(self, array: NumpyArray) -> NumpyArray:
        return self.compute(array)


# ---------------------------------------------------------------------------------------------------------------------
# Arrays.

#: Returns the elements of a part, or of a region of it.
Reader = Callable[["Part", "Region | None"], "NumpyArray"]


class LazyArray(ABC):
    """An array that is read, or computed of others, when it is asked for.

    Attributes:
        dtype: The name of its dtype.
        shape: Its shape.
    """

    __slots__ = ()

    dtype: str
    shape: Sizes

    @property
    def record(self) -> dict[str, Any]:
        """Its dtype and shape, as manifests have them."""
        return {"dtype": self.dtype, "shape": [*self.shape]}

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """Yields the parts of sources that it is made of."""

    @abstractmethod
    def of_others(self, sources: Mapping[int, ForeignArray]) -> LazyArray:
        """The same array of other sources, which are given by the identity of its own."""

    @abstractmethod
    def needs(self, region: Region) -> list[tuple[Part, Region]] | None:
        """The regions of parts that a region is made of, in the order in which :meth:`view` reads them; None if it needs more."""

    @abstractmethod
    def view(self, reader: Reader, region: Region | None = None) -> NumpyArray:
        """Its elements, or those of a region that :meth:`needs` has an answer for."""

    def read(self, reader: Reader | None = None) -> NumpyArray:
        """Its elements in C order."""
        return compact(self.view(reader or Part.take))

    def changed(self, operation: Operation) -> LazyArray:
        """The result of an operation."""
        return Changed(self, operation)

    def transposed(self, order: Sequence[int]) -> LazyArray:
        """The array with its axes in another order."""
        order = tuple(order)
        return self if order == (*range(len(order)),) else self.changed(Transposition(order))

    def reshaped(self, sizes: Sequence[int]) -> LazyArray:
        """The array in another shape."""
        sizes = tuple(sizes)
        return self if sizes == self.shape else self.changed(Reshaping(sizes))

    def at(self, axis: int, index: int) -> LazyArray:
        """One position of an axis, without the axis."""
        return self.changed(Window(axis, index))

    def window(self, axis: int, start: int, length: int) -> LazyArray:
        """A range of an axis."""
        return self.changed(Window(axis, start, length))

    def moved(self, axis: int, to: int) -> LazyArray:
        """The array with one axis at another place."""
        order = [each for each in range(len(self.shape)) if each != axis]
        return self.transposed([*order[:to], axis, *order[to:]])

    def cast(self, dtype: str, *, exact: bool, path: str) -> LazyArray:
        """The array in another dtype."""
        return self if dtype == self.dtype else self.changed(Casting(dtype, exact, path))


class Part(LazyArray):
    """A part of a source.

    Args:
        source: The source.
        region: The range of each of its axes.
        axes: The axes of the part, in their order; any other axis of the source has one position.
    """

    __slots__ = ("axes", "dtype", "region", "shape", "source")

    def __init__(self, source: ForeignArray, region: Region, axes: Sizes) -> None:
        self.source, self.region, self.axes = source, region, axes
        self.dtype = source.dtype
        self.shape = sizes_of([region[axis] for axis in axes])

    @classmethod
    def of(cls, source: ForeignArray) -> Self:
        """All of a source."""
        region = tuple(slice(0, size) for size in source.shape)
        return cls(source, region, (*range(len(region)),))

    @property
    def is_whole(self) -> bool:
        """True for all of a source, in its order of axes."""
        return self.shape == self.source.shape and self.axes == (*range(len(self.axes)),)

    def parts(self) -> Iterator[Part]:
        yield self

    def of_others(self, sources: Mapping[int, ForeignArray]) -> Part:
        return Part(sources[id(self.source)], self.region, self.axes)

    def changed(self, operation: Operation) -> LazyArray:
        return operation.of_part(self)

    def needs(self, region: Region) -> list[tuple[Part, Region]]:
        return [(self, region)]

    def view(self, reader: Reader, region: Region | None = None) -> NumpyArray:
        return reader(self, region)

    def within(self, region: Region) -> Part:
        """A region of it."""
        made: Part = self
        for axis, chosen in enumerate(region):
            made = Window(axis, chosen.start, chosen.stop - chosen.start).of_part(made)
        return made

    def cut(self, read: Callable[[Region], NumpyArray]) -> NumpyArray:
        """Its elements, by a function that returns those of a region of the source."""
        left = sorted(self.axes)
        index = tuple(slice(None) if axis in left else 0 for axis in range(len(self.region)))
        return read(self.region)[(*index, ...)].transpose([left.index(axis) for axis in self.axes])

    def take(self, region: Region | None = None) -> NumpyArray:
        """Its elements, or those of a region of it."""
        part = self if region is None else self.within(region)
        return part.cut(self.source.read().__getitem__)


class Changed(LazyArray):
    """The result of an operation on an array."""

    __slots__ = ("array", "dtype", "operation", "shape")

    def __init__(self, array: LazyArray, operation: Operation) -> None:
        self.array, self.operation = array, operation
        self.dtype = operation.dtype_of(array.dtype)
        self.shape = operation.shape(array.shape)

    def parts(self) -> Iterator[Part]:
        return self.array.parts()

    def of_others(self, sources: Mapping[int, ForeignArray]) -> Changed:
        return Changed(self.array.of_others(sources), self.operation)

    def needs(self, region: Region) -> list[tuple[Part, Region]] | None:
        there = self.operation.region(region, self.array.shape)
        return None if there is None else self.array.needs(there)

    def view(self, reader: Reader, region: Region | None = None) -> NumpyArray:
        if region is None:
            return self.operation.of(self.array.view(reader))
        there = self.operation.region(region, self.array.shape)
        assert there is not None  # it has no answer in `needs` otherwise
        return self.operation.of_region(self.array.view(reader, there), region)


class Joined(LazyArray):
    """Arrays joined along an axis, or stacked along a new one; one of them is in memory at a time.

    Args:
        arrays: The arrays, at least one, of one dtype; they have one shape, but for the axis.
        axis: The axis.
        stacked: Stack them.
    """

    __slots__ = ("arrays", "axis", "dtype", "shape", "stacked")

    def __init__(self, arrays: Sequence[LazyArray], axis: int, *, stacked: bool = False) -> None:
        self.arrays, self.axis, self.stacked = arrays, axis, stacked
        first = arrays[0]
        length = len(arrays) if stacked else sum(array.shape[axis] for array in arrays)
        self.dtype = first.dtype
        self.shape = (*first.shape[:axis], length, *first.shape[axis + (not stacked) :])

    def parts(self) -> Iterator[Part]:
        for array in self.arrays:
            yield from array.parts()

    def of_others(self, sources: Mapping[int, ForeignArray]) -> Joined:
        arrays = [array.of_others(sources) for array in self.arrays]
        return Joined(arrays, self.axis, stacked=self.stacked)

    def _meeting(self, region: Region) -> Iterator[tuple[LazyArray, int, Region]]:
        """Yields the arrays that a region has elements of, with their first place on the axis, and the region of each."""
        axis, start = self.axis, 0
        wanted = region[axis]
        for array in self.arrays:
            length = 1 if self.stacked else array.shape[axis]
            low, high = max(start, wanted.start), min(start + length, wanted.stop)
            if low < high:
                own = () if self.stacked else (slice(low - start, high - start),)
                yield array, low, (*region[:axis], *own, *region[axis + 1 :])
            start += length

    def needs(self, region: Region) -> list[tuple[Part, Region]] | None:
        return _needed((array, inside) for array, _, inside in self._meeting(region))

    def view(self, reader: Reader, region: Region | None = None) -> NumpyArray:
        import numpy as np

        axis = self.axis
        wanted = region or tuple(slice(0, size) for size in self.shape)
        result = np.empty(sizes_of(wanted), dtype_named(self.dtype))
        for array, low, inside in self._meeting(wanted):
            length = 1 if self.stacked else inside[axis].stop - inside[axis].start
            made = array.view(reader, None if region is None else inside)
            target = Window(axis, low - wanted[axis].start, length).of(result)
            target[...] = made.reshape(target.shape) if self.stacked else made
        return result


class Combined(LazyArray):
    """A function of the elements of several arrays.

    Args:
        arrays: The arrays, of one shape.
        dtype: The name of the dtype of the results.
        compute: The function, of the elements or of those of a region.
    """

    __slots__ = ("arrays", "compute", "dtype", "shape")

    def __init__(
        self, arrays: Sequence[LazyArray], dtype: str, compute: Callable[..., NumpyArray]
    ) -> None:
        self.arrays, self.dtype, self.compute = arrays, dtype, compute
        self.shape = arrays[0].shape

    def parts(self) -> Iterator[Part]:
        for array in self.arrays:
            yield from array.parts()

    def of_others(self, sources: Mapping[int, ForeignArray]) -> Combined:
        arrays = [array.of_others(sources) for array in self.arrays]
        return Combined(arrays, self.dtype, self.compute)

    def needs(self, region: Region) -> list[tuple[Part, Region]] | None:
        return _needed((array, region) for array in self.arrays)

    def view(self, reader: Reader, region: Region | None = None) -> NumpyArray:
        return self.compute(*[array.view(reader, region) for array in self.arrays])


def _needed(asked: Iterable[tuple[LazyArray, Region]]) -> list[tuple[Part, Region]] | None:
    """The regions of parts that regions of several arrays are made of; None if one needs more."""
    found: list[tuple[Part, Region]] = []
    for array, region in asked:
        needed = array.needs(region)
        if needed is None:
            return None
        found += needed
    return found


def compact(array: NumpyArray) -> NumpyArray:
    """The array in C order, itself if it is so already."""
    import numpy as np

    return np.array(array, order="C", copy=None) if array.ndim else array


# ---------------------------------------------------------------------------------------------------------------------
# Regions.


def sizes_of(region: Iterable[slice]) -> Sizes:
    """The shape of a region."""
    return tuple(each.stop - each.start for each in region)


def bounded(region: Region, shape: Sizes) -> Region | None:
    """A region with numbers for the ends of its ranges; None if they have steps."""
    found = [each.indices(size) for each, size in zip(region, shape, strict=True)]
    if any(step != 1 for _, _, step in found):
        return None
    return tuple(slice(start, max(start, stop)) for start, stop, _ in found)


def reshaped_region(region: Sequence[slice], shape: Sizes, other: Sizes) -> Region | None:
    """The region of an array that has the same elements, in the same order, as one of its reshaped array.

    Both have elements.

    Args:
        region: The region of the reshaped array.
        shape: The shape of that.
        other: The shape of the array.

    Returns:
        None if no region has these elements alone.
    """
    found: list[slice] = []
    for mine, theirs in _groups(shape, other):
        sizes = other[theirs]
        if all(
            each == slice(0, size) for each, size in zip(region[mine], shape[mine], strict=True)
        ):
            found += [slice(0, size) for size in sizes]
            continue
        run = _run(region[mine], shape[mine])
        ranges = None if run is None else _ranges(*run, sizes)
        if ranges is None:
            return None
        found += ranges
    return tuple(found)


def _groups(shape: Sizes, other: Sizes) -> Iterator[tuple[slice, slice]]:
    """Yields the axes of two shapes that belong together: they have the same number of elements."""
    i = j = 0
    while i < len(shape) or j < len(other):
        first, there = i, j
        mine, theirs = prod(shape[i : i + 1]), prod(other[j : j + 1])
        i, j = min(i + 1, len(shape)), min(j + 1, len(other))
        while mine != theirs:
            if mine < theirs:
                mine *= shape[i]
                i += 1
            else:
                theirs *= other[j]
                j += 1
        yield slice(first, i), slice(there, j)


def _run(region: Sequence[slice], shape: Sizes) -> tuple[int, int] | None:
    """The first place and the number of the elements in a region, which follow each other; None if they do not."""
    start, length = 0, 1
    is_open = False  # an axis has several positions: those behind it have to be whole
    for each, size in zip(region, shape, strict=True):
        count = each.stop - each.start
        if is_open and count != size:
            return None
        start = start * size + each.start
        length *= count
        is_open = is_open or count != 1
    return start, length


def _ranges(start: int, length: int, shape: Sizes) -> list[slice] | None:
    """The ranges of the axes of the elements that follow a place; None if they are no region."""
    found: list[slice] = []
    for axis, size in enumerate(shape):
        row = prod(shape[axis + 1 :])
        first, inside = divmod(start, row)
        if inside == 0 and length % row == 0 and first + length // row <= size:
            found.append(slice(first, first + length // row))
            return [*found, *(slice(0, each) for each in shape[axis + 1 :])]
        found.append(slice(first, first + 1))
        start = inside
    return None
