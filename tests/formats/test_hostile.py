"""Foreign files that were damaged or made to harm: one clear error each, in little time and memory."""

import io
import json
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest

from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError, StructError, UntrustedError
from tests.builders import bounded, every, invoke, refused


def made(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


def item(start, end, *, code="U8", shape=None):
    return {
        "dtype": code,
        "shape": [end - start] if shape is None else shape,
        "data_offsets": [start, end],
    }


MANY = ",".join(f'"{n}":[]' for n in range(20_000)).encode()
#: Files, and the parts of their errors.
SAFETENSORS = {
    "nothing": (b"", "NQX408", "1 bytes"),
    "seven bytes": (b"\x01" + bytes(6), "NQX408", "m.safetensors"),
    "header behind the end": (made({}, size=99), "NQX408", "m.safetensors"),
    "header of 2**63": (made({}, size=1 << 63), "NQX408", "m.safetensors"),
    "other text": (made(b"{'a': 1}"), "NQX408", "m.safetensors"),
    "no UTF-8": (made(b'{"\xff": 1}'), "NQX408", "0xff"),
    "list": (made(b"[]"), "NQX408", "list"),
    "deep": (made(b'{"a":' * 1_000_000), "NQX408", "2 deep"),
    "half a character": (made(b'{"\\ud800": 1}'), "NQX408", r"\ud800"),
    "long number": (made(b'{"a": ' + b"9" * 100_000 + b"}"), "NQX408", "4300"),
    "NaN": (made(b'{"a": NaN}'), "NQX408", "data_offsets"),
    "name twice": (made(b'{"a": 1, "a": 2}'), "NQX408", "'a'"),
    "twice inside": (made(b'{"a": {"dtype": "U8", "dtype": "I8"}}'), "NQX408", "'dtype'"),
    "metadata": (made({"__metadata__": {"a": 1}}), "NQX408", "__metadata__"),
    "overlap": (
        made({"a": item(0, 4), "b": item(2, 6)}, bytes(6)),
        "NQX408",
        "$.arrays.b",
    ),
    "the same": (
        made({"a": item(0, 4), "b": item(0, 4)}, bytes(4)),
        "NQX408",
        "$.arrays.b",
    ),
    "gap": (
        made({"a": item(0, 2), "b": item(4, 6)}, bytes(6)),
        "NQX408",
        "$.arrays.b",
    ),
    "rest": (made({"a": item(0, 2)}, bytes(6)), "NQX408", "2 bytes"),
    "behind the end": (made({"a": item(0, 1 << 60)}, bytes(6)), "NQX408", 1 << 60),
    "backwards": (made({"a": item(4, 2, shape=[2])}, bytes(4)), "NQX408", "$.arrays.a"),
    "negative": (
        made({"a": item(0, 4, shape=[-4])}, bytes(4)),
        "NQX408",
        "$.arrays.a",
    ),
    "truth": (made({"a": item(0, 1, shape=[True])}, b"x"), "NQX408", "$.arrays.a"),
    "fraction": (
        made({"a": item(0, 4, shape=[4.0])}, bytes(4)),
        "NQX408",
        "$.arrays.a",
    ),
    "size": (
        made({"a": item(0, 4, code="F32", shape=[2])}, bytes(4)),
        "NQX408",
        "F32[2]",
    ),
    "huge": (made({"a": item(0, 0, shape=[1 << 40, 1 << 40, 0])}), "NQX412", 1 << 40),
    "huge numbers": (made({"a": item(0, 0, shape=[10**4000] * 60)}), "NQX412", "$.arrays.a"),
    "dimensions": (
        made({"a": item(0, 1, shape=[9999] * 20_000)}, b"x"),
        "NQX412",
        9999,
    ),
    "many findings": (made(b"{" + MANY + b"}"), "NQX408", "900"),
}


@every("name", SAFETENSORS)
def test_safetensors(tmp_path, name):
    data, code, named = SAFETENSORS[name]
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with bounded(), refused(IntegrityError, code, named) as caught:
        formats.opened(path)
    assert {d.code for d in caught.value.diagnostics} == {code}
    assert {d.file for d in caught.value.diagnostics} == {str(path)}
    assert {d.code for d in formats.verify(path)} == {code}


def test_a_header_of_two_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write((2 << 30).to_bytes(8, "little") + b"{")
        file.truncate(3 << 30)  # takes no room on the disk
    with bounded(), refused(IntegrityError, "NQX506", "100000000"):
        formats.opened(path)


def test_names_steer_no_terminal(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(made({"\x1b[2J\n::error::x": item(0, 4), "b": 5}, bytes(5)))
    for command in ("inspect", "verify"):
        output = invoke(command, path).output
        assert "\x1b" not in output
        assert "\n::error" not in output


def test_every_truncation_is_an_error(tmp_path):
    arrays = {"w": np.arange(3, dtype=np.int16), "b": np.zeros((0, 2))}
    for kind in ("safetensors", "npz"):
        data = formats.write(tmp_path / f"m.{kind}", kind, arrays).read_bytes()
        for length in range(0, len(data), 3):
            (tmp_path / f"m.{kind}").write_bytes(data[:length])
            assert formats.verify(tmp_path / f"m.{kind}"), length


def test_every_flipped_bit_is_an_error_or_another_sound_file(tmp_path):
    arrays = {"w": np.arange(3, dtype=np.int16), "b": np.zeros((0, 2))}
    for kind in ("safetensors", "npz"):
        path = formats.write(tmp_path / f"m.{kind}", kind, arrays)
        data = path.read_bytes()
        for bit in range(0, 8 * len(data), 13):
            broken = bytearray(data)
            broken[bit >> 3] ^= 1 << (bit & 7)
            path.write_bytes(broken)
            try:
                with formats.opened(path) as file:
                    for array in file.arrays.values():
                        array.read()
            except StructError:
                continue


# numpy's files


def zipped(path, data):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("w.npy", data)
    return path


def header(shape, descr="<f8", order="False"):
    text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


NPY = {
    "nothing": (b"", "NQX408"),
    "no header": (b"\x93NUMPY", "NQX408"),
    "long header": (b"\x93NUMPY\x02\x00" + b"\xff" * 4 + b" " * 99, "NQX408"),
    "huge": (header(f"({1 << 62}, {1 << 62})"), "NQX412"),
    "huge and empty": (header(f"(0, {1 << 62}, {1 << 62})"), "NQX412"),
    "dimensions": (header(f"({', '.join('1' * 100)})"), "NQX412"),
    "negative": (header("(-1,)"), "NQX408"),
    "short": (header("(1000,)") + bytes(8), "NQX408"),
    "long": (header("(1,)") + bytes(9), "NQX408"),
    "objects": (header("(1,)", "|O") + bytes(8), "NQX502"),
    "pickle": (header("(1,)", "|O8") + b"cos\nsystem\n", "NQX502"),
    "huge text": (header("()", "<U99999999"), "NQX408"),
    "code": (header("__import__('os')"), "NQX408"),
}


@every("name", NPY)
def test_npy_and_npz(tmp_path, name):
    data, code = NPY[name]
    (tmp_path / "m.npy").write_bytes(data)
    for path in (tmp_path / "m.npy", zipped(tmp_path / "m.npz", data)):
        with bounded():
            assert [d.code for d in formats.verify(path)] == [code]
            with refused(StructError, code):
                formats.opened(path)


def test_a_zip_bomb_expands_no_further_than_its_header(tmp_path):
    """Forty kilobytes that expand to forty megabytes, in a directory that has two gigabytes, or a thousand bytes."""
    body = header(f"({1 << 28},)")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(body)
    piece = bytes(1 << 20)
    for _ in range(40):
        packed += packer.compress(piece)
    packed += packer.flush()
    for claimed in (len(body) + (2 << 30), 1000):
        name = b"w.npy"
        sizes = struct.pack("<3I2H", 0, len(packed), claimed, len(name), 0)
        local = b"PK\3\4" + struct.pack("<5H", 20, 0, 8, 0, 33) + sizes
        entry = b"PK\1\2" + struct.pack("<6H", 20, 20, 0, 8, 0, 33) + sizes + bytes(14) + name
        data = local + name + packed
        end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(entry), len(data), 0)
        path = tmp_path / "m.npz"
        path.write_bytes(data + entry + end)
        with bounded():
            [finding] = formats.verify(path)
        assert finding.code in ("NQX408", "NQX505")


def test_a_pipe_a_device_and_a_loop_are_refused(tmp_path):
    os.mkfifo(tmp_path / "m.npz")
    with refused(UntrustedError, "NQX504"):
        formats.opened(tmp_path / "m.npz")
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    assert [d.code for d in formats.verify(tmp_path / "loop.npz")] == ["NQX401"]
    (tmp_path / "folder.npz").mkdir()
    assert [d.code for d in formats.verify(tmp_path / "folder.npz")] == ["NQX620"]


def test_an_index_is_no_way_to_fill_memory(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    names = ", ".join(f'"{n}": "{n}.safetensors"' for n in range(20_000))
    for text in ('{"weight_map": ' * 100_000, f'{{"weight_map": {{{names}}}}}'):
        index.write_text(text)
        with bounded(), pytest.raises(StructError) as caught:
            formats.opened(index)
        assert len(caught.value.diagnostics) <= 1000


def test_a_file_that_the_system_refuses(tmp_path, monkeypatch):
    path = tmp_path / "m.npy"
    np.save(path, np.ones(1))

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    [finding] = formats.verify(path)
    assert (finding.code, "Permission denied" in finding.message) == ("NQX401", True)


def test_a_zip_of_a_thousand_members_that_are_no_arrays(tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for n in range(1500):
            archive.writestr(f"{n}", b"")
    (tmp_path / "m.npz").write_bytes(file.getvalue())
    with bounded():
        assert len(formats.verify(tmp_path / "m.npz")) == 1000
