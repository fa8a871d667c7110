"""Lazy arrays against the same operations of numpy, whole and in regions."""

import random

import numpy as np
import pytest

from neuralqx_struct.formats.table import ForeignArray
from neuralqx_struct.manifest.lazy_arrays import (
    Casting,
    Combined,
    Joined,
    Part,
    Transposition,
    bounded,
)
from neuralqx_struct.manifest.lazy_reading import LazyArrays
from tests.builders import every


def source(array, *, slices=True, cheap=False, log=None):
    def read():
        if log is not None:
            log.append(array.shape)
        return array.copy()

    part = (lambda region: array[region].copy()) if slices else None
    return Part.of(ForeignArray(str(array.dtype), array.shape, read, part, cheap))


def drawn(draw):
    shape = tuple(draw.choice([1, 2, 3, 4, 6]) for _ in range(draw.randint(0, 3)))
    return np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape)


def changed(draw, lazy, array):
    """One operation on both."""
    rank = array.ndim
    how = draw.choice(
        ["transposed", "reshaped", "window", "at", "moved", "cast", "joined", "stacked", "combined"]
    )
    if how == "combined":
        return Combined([lazy, lazy], lazy.dtype, np.add), array + array
    if how == "cast":
        return lazy.cast("float64", exact=True, path="$"), array.astype("float64")
    if how == "reshaped":
        shape = draw.choice([(array.size,), (1, *array.shape), (*array.shape, 1)])
        return lazy.reshaped(shape), array.reshape(shape)
    if how == "stacked":
        axis = draw.randint(0, rank)
        return Joined([lazy, lazy], axis, stacked=True), np.stack([array, array], axis)
    if rank == 0:
        return lazy, array
    axis = draw.randrange(rank)
    size = array.shape[axis]
    if how == "transposed":
        order = draw.sample(range(rank), rank)
        return lazy.transposed(order), array.transpose(order)
    if how == "window":
        start = draw.randint(0, size)
        length = draw.randint(0, size - start)
        return lazy.window(axis, start, length), array.take(range(start, start + length), axis)
    if how == "at" and size:
        index = draw.randrange(size)
        return lazy.at(axis, index), array.take(index, axis)
    if how == "moved":
        to = draw.randrange(rank)
        return lazy.moved(axis, to), np.moveaxis(array, axis, to)
    return Joined([lazy, lazy], axis), np.concatenate([array, array], axis)


@every("slices", [False, True])
@every("seed", range(150))
def test_chains_of_operations_are_those_of_numpy(seed, slices):
    draw = random.Random(seed)
    first = wanted = drawn(draw)
    lazy = whole = source(wanted, slices=slices)
    for _ in range(draw.randint(0, 5)):
        lazy, wanted = changed(draw, lazy, wanted)
    assert (lazy.dtype, lazy.shape) == (str(wanted.dtype), wanted.shape)
    made = lazy.read()
    assert np.array_equal(made, wanted) and made.dtype == wanted.dtype
    assert made.flags.c_contiguous
    arrays = LazyArrays({"x": lazy})
    regions = [
        tuple(slice(*sorted((draw.randint(0, n), draw.randint(0, n)))) for n in wanted.shape)
        for _ in range(4)
    ]
    for region, part in zip(regions, arrays.parts("x", regions), strict=True):
        assert np.array_equal(part, wanted[region])
    doubled = LazyArrays({"x": lazy}).of_others({id(whole.source): source(2 * first).source})["x"]
    assert np.array_equal(doubled, 2 * wanted) and doubled.dtype == wanted.dtype


def test_operations_are_compared_by_what_they_do():
    assert Transposition((1, 0)) == Transposition((1, 0)) != Transposition((0, 1))
    assert Casting("int8", True, "$.a") == Casting("int8", True, "$.b")
    assert Transposition((2, 0, 1)).inverse == Transposition((1, 2, 0))


@pytest.mark.parametrize("order", ["file", "all"])
def test_a_source_is_read_once_for_all_of_its_parts(order):
    array, log = np.arange(12).reshape(3, 4), []
    whole = source(array, slices=False, log=log)
    arrays = LazyArrays({str(i): whole.at(0, i) for i in range(3)}, order)
    assert [arrays[name].tolist() for name in arrays] == array.tolist()
    assert len(log) == 1


def test_a_source_at_hand_is_not_kept():
    array, log = np.arange(6).reshape(2, 3), []
    whole = source(array, slices=False, cheap=True, log=log)
    arrays = LazyArrays({"a": whole.at(0, 0), "b": whole.at(0, 1)})
    assert [*map(np.ndarray.tolist, arrays.values())] == array.tolist()
    assert len(log) == 2


def test_regions_have_ends():
    assert bounded((slice(None), slice(3, 1)), (2, 5)) == (slice(0, 2), slice(3, 3))
    assert bounded((slice(None, None, 2),), (4,)) is None
