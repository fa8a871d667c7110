"""CRC-32 by either implementation, of pieces, of maps, and of what is written while it changes."""

import importlib.util
import io
import mmap
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from neuralqx_struct.places import checksums


@pytest.fixture
def without_isal(monkeypatch):
    """The module as it is where the fast implementation is not installed."""
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    spec = importlib.util.find_spec("neuralqx_struct.places.checksums")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_fast_implementation_is_taken_where_it_is_there(without_isal):
    assert checksums.crc32 is isal_zlib.crc32
    assert without_isal.crc32 is zlib.crc32


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1), st.integers(0, 5000))
def test_both_give_the_same_numbers(data, start, cut):
    assert isal_zlib.crc32(data) == zlib.crc32(data)
    assert isal_zlib.crc32(data, start) == zlib.crc32(data, start)
    assert isal_zlib.crc32(data[cut:], isal_zlib.crc32(data[:cut])) == zlib.crc32(data)
    assert isal_zlib.crc32(memoryview(data)[cut:]) == zlib.crc32(data[cut:])
    pieces = zlib.crc32(data[:cut]), zlib.crc32(data[cut:]), len(data[cut:])
    assert checksums.joined(*pieces) == zlib.crc32(data)


SIZES = [0, 1, 511, 4096, (512 << 10) - 1, (512 << 10) + 1, (8 << 20) - 1, 8 << 20, (12 << 20) + 17]


@pytest.mark.parametrize("size", SIZES)
def test_of_pieces_by_several_threads(size, without_isal):
    data = bytes(range(251)) * (size // 251 + 1)
    view = memoryview(data)[:size]
    for module in (checksums, without_isal):
        ticks = []
        assert module.checksum(view, ticks.append) == zlib.crc32(view) == module.checksum(view)
        assert sum(ticks) == size
        room = bytearray(size)

        def fill(piece, at, view=view):
            piece[:] = view[at : at + len(piece)]

        assert module.checksum(memoryview(room), fill=fill) == zlib.crc32(view) == zlib.crc32(room)


def test_of_a_map_that_is_read_alone(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 70_000)
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    assert view.readonly
    assert checksums.checksum(view) == zlib.crc32(path.read_bytes())
    assert checksums.crc32(view[64:8256]) == zlib.crc32(path.read_bytes()[64:8256])


class Changing(io.BytesIO):
    """A file whose writer finds that somebody changes the data meanwhile; it takes little at a time."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def write(self, data):
        self.body[:] = bytes(len(self.body))
        return super().write(data[:100_000])


@pytest.mark.parametrize("size", [0, 7, 300_000, (1 << 20) + 3])
def test_written_is_what_was_looked_at(size, without_isal):
    for module in (checksums, without_isal):
        body = bytearray(b"\1" * size)
        file, ticks = Changing(body), []
        assert module.write_checked(file, memoryview(body), ticks.append) == zlib.crc32(
            file.getvalue()
        )
        assert len(file.getvalue()) == size == sum(ticks)
        assert not any(body) or not size
