"""Files of nqxpack: read lazily and without what they name, as zips and as folders; damage and tricks are refused."""

import io
import json
import zipfile

import numpy as np
import pytest
from flax import serialization

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.formats.nqxpack import named_objects
from neuralqx_struct.formats.table import Reading
from tests.builders import ROOT, invoke, refused

GOLDEN = ROOT / "tests/golden/foreign/netket.nk"
METADATA = {"format": "NetKet", "format_version": 1.3, "packages": {"netket": "3.23.0"}}
OBJECT = {
    "model": {
        "alpha": 2,
        "activation": "< evil.module.function >",
        "_target_": "evil.module.Model",
    },
    "variables_structure": {"_target_": "#evil.tree.Def", "children": []},
    "_target_": "#evil.State",
}
STATE = {"variables": {"params": {"kernel": np.arange(6.0).reshape(2, 3)}}, "n_samples": 64}


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def members(**changes):
    made = {
        "assets//state.msgpack": serialization.msgpack_serialize(STATE),
        "assets/sampler/rule/array.npy": npy(np.arange(4)),
        "object.json": json.dumps(OBJECT).encode(),
        "metadata.json": json.dumps(METADATA).encode(),
    }
    made |= {name.replace("_json", ".json"): data for name, data in changes.items()}
    return {name: data for name, data in made.items() if data is not None}


def packed(path, given=None, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in (given or members()).items():
            file.writestr(name, data)
    return path


def unpacked(folder):
    for name, data in members().items():
        path = folder / name.replace("//", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture(params=["zip", "folder"])
def path(request, tmp_path):
    at = tmp_path / "state.nk"
    return packed(at) if request.param == "zip" else unpacked(at)


def test_what_nqxpack_wrote_is_read_without_it():
    """The state that a bundle beside it has, after the same steps."""
    state = s.load(GOLDEN.with_name("netket_state.zip"), as_numpy=True)
    assert formats.recognised(GOLDEN).name == "nqxpack" and s.verify(GOLDEN) == []
    with formats.opened(GOLDEN) as file:
        held = {name: array.read() for name, array in file.arrays.items()}
        values = dict(file.values)
    for name, field in {"Dense.kernel": "kernel", "visible_bias": "visible_bias"}.items():
        assert np.array_equal(
            held[f"state.variables.params.{name}"], getattr(state.parameters, field)
        )
    assert np.array_equal(held["state.sampler_state.σ"], state.sampler.sigma)
    assert values["state.n_samples"] == values["object.sampler.n_chains"] * 4 == 16
    assert values["object.model._target_"] == "netket.models.rbm.RBM"
    assert file.metadata == {"format": "1.3", "netket": "3.23.0", "jax": file.metadata["jax"]}


def test_arrays_and_values_by_their_places(path):
    with formats.opened(path) as file:
        assert file.arrays["state.variables.params.kernel"].read().tolist() == [
            [0, 1, 2],
            [3, 4, 5],
        ]
        assert file.arrays["sampler.rule.array"].read().tolist() == [0, 1, 2, 3]
        assert file.values == {
            "state.n_samples": 64,
            "object.model.alpha": 2,
            "object.model.activation": "< evil.module.function >",
            "object.model._target_": "evil.module.Model",
            "object._target_": "#evil.State",
        }
    assert named_objects(path, Reading()) == {
        *("evil.module.function", "evil.module.Model", "evil.tree.Def", "evil.State"),
    }


def test_the_commands_name_the_kind(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "a file of nqxpack" in invoke("inspect", path).stdout
    assert invoke("verify", path).exit_code == 0
    assert invoke("infer", path, "--out", "schemas/rbm").exit_code == 0
    given = ("--schema", "schemas/rbm", "--layout", "nqxpack")
    assert invoke("convert", path, "--out", "one", *given).exit_code == 0
    held = s.load("one", raw=True)
    assert s.validate("one", "schemas/rbm") == [] and held["state"]["n_samples"] == 64
    (tmp_path / "run").mkdir()
    path.rename(tmp_path / "run/3.nk")
    ran = invoke("convert", "run", "--out", "typed", *given)
    assert ran.exit_code == 0 and "1 step: 1 typed" in ran.stdout
    again = s.load("typed/3", raw=True)["state"]
    assert np.array_equal(again["variables"], held["state"]["variables"])


def test_the_format_of_old_releases(tmp_path):
    old = {
        "state.msgpack": serialization.msgpack_serialize(STATE),
        "config.json": json.dumps(OBJECT).encode(),
        "metadata.json": json.dumps(METADATA | {"format_version": 1.1}).encode(),
    }
    with formats.opened(packed(tmp_path / "old.nk", old)) as file:
        assert [*file.arrays] == ["state.variables.params.kernel"]
        assert file.values["object.model.alpha"] == 2


def test_a_zip_is_known_by_its_first_member(tmp_path):
    assert formats.recognised(packed(tmp_path / "state")).name == "nqxpack"
    arrays = {
        "assets/rule/array.npy": npy(np.ones(2)),
        **members(**{"assets//state.msgpack": None}),
    }
    assert formats.recognised(packed(tmp_path / "rule", arrays)).name == "nqxpack"


@pytest.mark.parametrize(
    ("changes", "error", "code"),
    [
        ({"metadata_json": None}, IntegrityError, "NQX408"),
        ({"object_json": None}, IntegrityError, "NQX408"),
        (
            {"metadata_json": b'{"format": "other", "format_version": 1.3}'},
            IntegrityError,
            "NQX408",
        ),
        (
            {"metadata_json": b'{"format": "NetKet", "format_version": 2}'},
            SerializationError,
            "NQX614",
        ),
        ({"metadata_json": b"{"}, SerializationError, "NQX001"),
        (
            {"assets/state.npy": npy(np.ones(1)), "assets/state.msgpack": b"\x01"},
            UntrustedError,
            "NQX509",
        ),
        ({"assets//state.msgpack": b"\x81\xa1a\xc1"}, IntegrityError, "NQX408"),
        ({"assets/bad.npy": b"not"}, SerializationError, None),
    ],
)
def test_damage_is_refused(tmp_path, changes, error, code):
    path = packed(tmp_path / "bad.nk", members(**changes))
    with pytest.raises(error) as caught:
        formats.opened(path)
    assert code in (None, caught.value.code)


def test_compressed_members_are_refused_with_the_way_out(tmp_path):
    path = packed(tmp_path / "small.nk", method=zipfile.ZIP_DEFLATED)
    with refused(UntrustedError, "NQX508") as caught:
        formats.opened(path)
    assert "pass the folder" in caught.value.diagnostics[0].hint


def test_verify_compares_the_checksums_of_the_zip(tmp_path):
    path = packed(tmp_path / "state.nk")
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(6.0).tobytes()) + 8] ^= 1
    path.write_bytes(data)
    found = s.verify(path)
    assert [(d.code, d.file) for d in found] == [("NQX407", str(path))]
    assert found[0].path == "$.arrays['state.variables.params.kernel']"


def test_it_is_not_written(tmp_path):
    with refused(SerializationError, "NQX614"):
        formats.write(tmp_path / "a.nk", "nqxpack", {"a": np.ones(1)})


def test_a_file_behind_a_url(tmp_path):
    import fsspec

    with fsspec.open("memory://nk/state.nk", "wb") as file:
        file.write(packed(tmp_path / "state.nk").read_bytes())
    with formats.opened("memory://nk/state.nk") as file:
        assert file.arrays["sampler.rule.array"].read().tolist() == [0, 1, 2, 3]
