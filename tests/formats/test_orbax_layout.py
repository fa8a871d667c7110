"""Pieces of arrays: regions and corners, laws against numpy."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.formats.orbax_layout import Pieces, extent, inside


@st.composite
def cuts(draw):
    """An array, a chunk that divides it, and a region of it."""
    counts = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=3))
    shape = tuple(number * size for number, size in counts)
    chunk = tuple(size for _, size in counts)
    region = []
    for size in shape:
        start = draw(st.integers(0, size))
        region.append(slice(start, draw(st.integers(start, size))))
    return np.arange(np.prod(shape, dtype=int)).reshape(shape), chunk, tuple(region)


def cut(array, chunk):
    pieces = Pieces(array.shape, chunk, ())
    corners = list(pieces.corners(tuple(slice(0, size) for size in array.shape)))
    blobs = [array[pieces.region(corner)].tobytes() for corner in corners]
    return Pieces(array.shape, chunk, [zlib.crc32(blob) for blob in blobs]), corners, blobs


@given(cuts())
def test_pieces_cover_a_region_and_nothing_else(given):
    array, chunk, region = given
    pieces, corners, _ = cut(array, chunk)
    assert [pieces.index(corner) for corner in corners] == list(range(pieces.count()))
    made = np.full(extent(region), -1)
    met = list(pieces.corners(region))
    for corner in met:
        piece = pieces.region(corner)
        made[inside(region, piece)] = array[piece][inside(piece, region)]
    assert np.array_equal(made, array[region])
    if array[region].size:
        assert sorted(met) == sorted(
            c for c in corners if np.intersect1d(array[pieces.region(c)], array[region]).size
        )


@given(cuts())
def test_checksums_of_pieces_make_that_of_all(given):
    array, chunk, _ = given
    pieces, corners, blobs = cut(array, chunk)
    assert pieces.whole(array.itemsize) == zlib.crc32(b"".join(blobs))
    assert [pieces.checksum(corner) for corner in corners] == [zlib.crc32(blob) for blob in blobs]
    assert pieces.problem(array.itemsize, zlib.crc32(b"".join(blobs))) is None


@pytest.mark.parametrize(
    ("record", "pieces"),
    [
        ({"shape": [2, 3], "crc32": 7}, Pieces((2, 3), (2, 3), [7])),
        ({"shape": []}, Pieces((), (), [0])),
        (
            {"shape": [4], "crc32": 7, "chunk": [2], "chunk_crc32": [1, 2]},
            Pieces((4,), (2,), [1, 2]),
        ),
    ],
)
def test_what_records_say(record, pieces):
    assert Pieces.of(record) == pieces
