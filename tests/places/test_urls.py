"""Safetensors behind URLs: the header and the ranges that are read are fetched, and nothing else."""

import json
import sys

import fsspec
import numpy as np
import pytest
import safetensors.numpy

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.places.urls import is_url
from tests.builders import invoke, refused

ARRAYS = {"w": np.arange(60_000, dtype=np.float32).reshape(300, 200), "b": np.ones(3, np.int8)}
FIRST = 64 << 10


@pytest.fixture
def remote(monkeypatch):
    """A file system in memory that lists its requests."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    asked = []
    cat_file = type(files).cat_file

    def counted(self, path, start=None, end=None, **options):
        asked.append((path, start, end))
        return cat_file(self, path, start=start, end=end, **options)

    monkeypatch.setattr(type(files), "cat_file", counted)
    files.asked = asked
    yield files
    files.store.clear()
    del files.asked


def put(remote, name, arrays=ARRAYS):
    data = safetensors.numpy.save(arrays, {"format": "pt"})
    remote.pipe_file(name, data)
    return data


def test_the_header_and_the_arrays_that_are_read_are_fetched(remote):
    data = put(remote, "/m.safetensors")
    start = len(data) - 60_000 * 4 - 3
    with formats.opened("memory://m.safetensors") as file:
        assert (file.metadata, list(file.arrays)) == ({"format": "pt"}, ["w", "b"])
        assert remote.asked == [("/m.safetensors", 0, FIRST)]
        assert file.arrays["b"].read().tolist() == [1, 1, 1]
        assert np.array_equal(file.arrays["w"].read(), ARRAYS["w"])
    end = len(data)
    assert remote.asked[1:] == [
        ("/m.safetensors", end - 3, end),
        ("/m.safetensors", start, end - 3),
    ]


@pytest.mark.parametrize(
    "region",
    [
        (slice(10, 20), slice(None)),
        (slice(299, None), slice(0, 5, 2)),
        (slice(200, 100, -7), slice(None, None, -1)),
        (slice(5, 5), slice(None)),
        (slice(None), slice(3)),
    ],
)
def test_a_part_of_an_array_fetches_its_rows(remote, region):
    put(remote, "/m.safetensors")
    with formats.opened("memory://m.safetensors") as file:
        del remote.asked[:]
        part = file.arrays["w"].part(region)
    assert np.array_equal(part, ARRAYS["w"][region])
    rows = range(300)[region[0]]
    fetched = sum(end - start for _, start, end in remote.asked)
    assert fetched <= ((max(rows) - min(rows) + 1) * 800 if rows else 0)


def test_parts_of_local_files_are_the_same(tmp_path):
    path = formats.write(
        tmp_path / "m.safetensors", "safetensors", {"e": np.zeros((0, 2)), **ARRAYS}
    )
    with formats.opened(path) as file, formats.opened(f"file://{path}") as same:
        for each in (file, same):
            assert np.array_equal(each.arrays["w"].part((slice(2), slice(2))), ARRAYS["w"][:2, :2])


def test_scalars_and_empty_arrays(remote):
    arrays = {"scalar": np.array(5.0), "empty": np.zeros((0, 3))}
    put(remote, "/m.safetensors", arrays)
    with formats.opened("memory://m.safetensors") as file:
        assert file.arrays["scalar"].part(()) == 5
        assert file.arrays["empty"].part((slice(None), slice(1))).shape == (0, 1)


def test_a_header_beyond_the_first_bytes_is_one_request_more(remote):
    arrays = {f"{n:04}" * 20: np.ones(1, np.int8) for n in range(1000)}
    data = put(remote, "/m.safetensors", arrays)
    with formats.opened("memory://m.safetensors") as file:
        assert len(file.arrays) == 1000
        assert file.form() == {}
    assert remote.asked[1:] == [("/m.safetensors", 0, len(data) - 1000)] * 2


@pytest.mark.parametrize("given", ["", "/model.safetensors.index.json"])
def test_shards(remote, given):
    names = {}
    for name, file in zip("wb", ("one", "two"), strict=True):
        put(remote, f"/m/{file}.safetensors", {name: ARRAYS[name]})
        names[name] = f"{file}.safetensors"
    remote.pipe_file("/m/model.safetensors.index.json", json.dumps({"weight_map": names}).encode())
    with formats.opened(f"memory://m{given}") as file:
        assert np.array_equal(file.arrays["w"].read(), ARRAYS["w"])
    remote.rm("/m/two.safetensors")
    with refused(s.SerializationError, "NQX401", "memory://m/two.safetensors"):
        formats.opened(f"memory://m{given}")


def test_inspect_and_verify(remote):
    put(remote, "/m.safetensors")
    assert str(s.inspect("memory://m.safetensors")).startswith(
        "memory://m.safetensors: a safetensors file\n"
    )
    assert s.verify("memory://m.safetensors") == []
    assert invoke("inspect", "memory://m.safetensors").stdout.startswith("memory://m.safetensors: ")
    assert invoke("verify", "memory://m.safetensors").exit_code == 0
    assert [request[1:] for request in remote.asked] == [(0, FIRST)] * 4
    remote.pipe_file("/m.safetensors", put(remote, "/m.safetensors")[:-1])
    assert [d.code for d in s.verify("memory://m.safetensors")] == ["NQX408"]
    assert [d.code for d in s.verify("memory://none")] == ["NQX401"]


def test_a_file_of_no_known_kind(remote):
    remote.pipe_file("/m.bin", b"nothing known")
    with refused(s.SerializationError, "NQX620", "nqxpack, npz, safetensors"):
        formats.opened("memory://m.bin")


def test_a_server_without_ranges_is_an_error(remote, monkeypatch):
    put(remote, "/m.safetensors")
    monkeypatch.setattr(type(remote), "cat_file", lambda self, path, **options: b"x" * 7)
    with refused(s.SerializationError, "NQX408", "65536", "0", "7"):
        formats.opened("memory://m.safetensors")


def test_a_file_of_unknown_size_is_an_error(remote, monkeypatch):
    put(remote, "/m.safetensors")
    monkeypatch.setattr(
        type(remote), "info", lambda self, path, **options: {"type": "file", "size": None}
    )
    with refused(s.SerializationError, "NQX401", None):
        formats.opened("memory://m.safetensors")


def test_errors_of_file_systems_have_no_passwords(remote, monkeypatch):
    def refuse(self, path, **options):
        raise RuntimeError("https://me:secret@host/m?token=secret: 403")

    monkeypatch.setattr(type(remote), "info", refuse)
    with refused(s.SerializationError, "NQX401", "RuntimeError", "https://host/m") as caught:
        formats.opened("memory://me:secret@m.safetensors?token=secret")
    assert "secret" not in str(caught.value)
    [finding] = caught.value.diagnostics
    assert finding.file == "memory://m.safetensors"


def test_packages_that_are_missing_are_named(monkeypatch):
    with refused(s.SerializationError, "NQX401") as caught:
        formats.opened("nothing-known://m.safetensors")
    assert caught.value.code in ("NQX401", "NQX615")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with refused(s.SerializationError, "NQX615", "fsspec.core", "[remote]"):
        formats.opened("memory://m.safetensors")


def test_paths_are_no_urls(tmp_path):
    assert [is_url(each) for each in ("a:/b", "c:\\a", "://", "1://", tmp_path)] == [False] * 5


@pytest.mark.parametrize("url", ["memory://m", "memory://m/model.safetensors"])
def test_a_layout_reads_from_a_url_and_the_values_beside_it(remote, tmp_path, url):
    (tmp_path / "layouts").mkdir()
    (tmp_path / "v1.yaml").write_text(
        'language: "1"\nschema: lab.net\nversion: 1\nroot: Net\nstructs:\n'
        '  Net: {fields: {kernel: "float32[200, 300]", bias: "int8[3]", heads: int}}\n'
    )
    (tmp_path / "layouts" / "hf.yaml").write_text(
        'language: "1"\nlayout: hf\nof: lab.net@1\n'
        "values_from: {config.json: {heads: attention.n_head}}\n"
        "structs:\n  Net: {kernel: {name: w, transpose: true}, bias: b}\n"
    )
    put(remote, "/m/model.safetensors")
    schema = s.load_schema(tmp_path)
    with refused(s.SerializationError, "NQX707", "$.heads"):
        schema.from_layout(url, "hf")
    remote.pipe_file("/m/config.json", b'{"attention": {"n_head": 12}}')
    net = schema.from_layout(url, "hf")
    assert np.array_equal(net.kernel, ARRAYS["w"].T)
    assert net.heads == 12
    remote.pipe_file("/m/config.json", b"{")
    with refused(s.SerializationError, "NQX001", "memory://m/config.json:1"):
        schema.from_layout(url, "hf")
