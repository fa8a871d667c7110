"""Verification of checkpoints of any kind."""

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.bundle import BundleMissingError
from tests.builders import invoke


def test_foreign_files(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, w=np.arange(100.0), b=np.ones(1))
    seen = []
    assert s.verify(path, progress=lambda *done: seen.append(done)) == []
    assert seen == [(800, 808), (808, 808)]
    assert invoke("verify", path).stdout == f"{path}: intact\n"
    path.write_bytes(path.read_bytes()[:-1])
    assert [d.code for d in s.verify(path)] == ["NQX408"]
    assert invoke("verify", path).exit_code == 1


def test_bundles_are_verified_as_bundles(tmp_path):
    path = s.export({"w": np.ones(3)}, tmp_path / "ckpt", store="safetensors")
    assert s.verify(path) == []
    file = path / "arrays.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert [d.code for d in s.verify(path)] == ["NQX407"]
    assert s.verify(file) == [], "the file alone has no checksums"


def test_nothing_and_other_files(tmp_path):
    assert [d.code for d in s.verify(tmp_path / "none")] == ["NQX401"]
    (tmp_path / "notes").write_text("text")
    [found] = s.verify(tmp_path / "notes")
    assert (found.code, "safetensors, npz" in found.message) == ("NQX620", True)
    assert invoke("verify", tmp_path / "none").exit_code == 2
    with pytest.raises(BundleMissingError):
        s.inspect(tmp_path / "none")


def test_loading_a_foreign_file_names_the_command_that_shows_it(tmp_path):
    np.save(tmp_path / "m.npy", np.ones(1))
    with pytest.raises(s.SerializationError, match="inspect recognises files of other programs"):
        s.load(tmp_path / "m.npy")
