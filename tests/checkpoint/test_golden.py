"""Bundles of every format version, as they were written: they must be read for ever."""

import collections
import dataclasses
import datetime as dt
import json
import math
import pathlib
import types

import flax.core
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.bundle import read_manifest
from neuralqx_struct.manifest.kinds import KINDS, iter_nodes
from tests.builders import ROOT
from tests.golden_kinds import values
from tests.preloaded import check_jsonschema

FOLDER = ROOT / "tests" / "golden" / "format-1"


@pytest.mark.parametrize("name", ["vmc_state_1", "values.zip"])
def test_golden_bundles_are_valid_and_intact(name):
    assert s.validate(FOLDER / name) == [] == s.verify(FOLDER / name)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_state_of_version_1_loads_as_every_version(vmc_folder, version):
    state = s.load_schema(vmc_folder).at(version).load(FOLDER / "vmc_state_1")
    step, history = (
        (state.n_iter, state.E_hist) if version == 1 else (state.step, state.energy_history)
    )
    kernel = jax.lax.complex(state.W_re, state.W_im) if version == 1 else state.kernel
    assert step == 7 and history[0] == -1.5 and math.isnan(history[1])
    assert bool(jnp.all(kernel.real == 1)) and bool(jnp.all(jnp.signbit(kernel.imag)))


def test_one_value_of_each_kind():
    held = s.load(FOLDER / "values.zip")
    plain = {
        "none": None, "bool": True, "int": -3, "big": 2**70, "complex": 1 - 2j, "text": "ü\n", "bytes": b"\x00\xff",
        "tuple": (1, (2,)), "set": {1, 2, 3}, "frozen": frozenset("ab"), "path": pathlib.Path("a/b"), "slice": slice(1, None, 2),
        "dtype": np.dtype("int8"), "date": dt.date(2026, 11, 21), "delta": dt.timedelta(1, 2, 3), "scalar": np.float32(1.5),
    }  # fmt: skip
    for name, value in plain.items():
        assert type(held[name]) is type(value) and held[name] == value
    assert math.copysign(1, held["float"]) == -1 and math.isnan(held["nan"])
    assert (
        str(jax.random.key_impl(held["keys"])) == "rbg"
        and held["weak"].weak_type
        and not held["zero_d"].weak_type
    )
    arrays = {
        "bf16": np.arange(3).astype(ml_dtypes.bfloat16), "fp8": np.arange(3).astype(ml_dtypes.float8_e4m3fn),
        "int4": np.arange(3).astype(ml_dtypes.int4), "wide": np.arange(2, dtype=">i8"), "empty": np.zeros((0, 2)),
        "words": np.array(["a", "bc"]), "zero_d": np.float32(2),
    }  # fmt: skip
    for name, array in arrays.items():
        assert held[name].dtype == array.dtype and held[name].shape == array.shape
        assert np.asarray(held[name]).tobytes() == array.tobytes()


def same(loaded, value):
    """Of the same types all the way down, with the same values in the same order."""
    assert type(loaded) is type(value)
    if isinstance(value, (dict, types.MappingProxyType)):
        same([*loaded.items()], [*value.items()])
        assert getattr(loaded, "default_factory", None) is getattr(value, "default_factory", None)
    elif isinstance(value, (list, tuple, collections.deque)):
        assert len(loaded) == len(value) and getattr(loaded, "maxlen", None) == getattr(
            value, "maxlen", None
        )
        for one, other in zip(loaded, value, strict=True):
            same(one, other)
    elif isinstance(value, np.ndarray):
        assert (loaded.dtype, loaded.shape, loaded.tobytes()) == (
            value.dtype,
            value.shape,
            value.tobytes(),
        )
    elif dataclasses.is_dataclass(value):
        same(vars(loaded), vars(value))
    elif isinstance(value, flax.core.FrozenDict):
        same(loaded.unfreeze(), value.unfreeze())
    else:
        assert loaded == value


@pytest.mark.parametrize("name", ["values", "values.zip"])
def test_one_value_of_each_kind_that_came_later(name):
    path = FOLDER.parent / "format-1-kinds" / name
    assert s.validate(path) == [] == s.verify(path)
    loaded = s.load(path)
    same(loaded, values())
    assert loaded["shared"][0] is loaded["shared"][1]


def test_the_golden_bundles_together_hold_every_kind():
    """But `full`, which migrations alone write, and `external`, which is newer: it is a vector of `tests/vectors`."""
    seen = set()
    for path in [*FOLDER.iterdir(), *(FOLDER.parent / "format-1-kinds").iterdir()]:
        seen |= {
            node["__kind__"]
            for _, node in iter_nodes(read_manifest(path)["manifest"])
            if isinstance(node, dict)
        }
    assert KINDS.keys() - seen == {"full", "external"}


def test_other_tools_read_them_too(root, tmp_path):
    with np.load(FOLDER / "vmc_state_1" / "arrays.npz") as arrays:
        assert arrays["W_re"].tolist() == [[1.0] * 4] * 2
    schema, manifest = root / "schemas/manifest/1.json", FOLDER / "vmc_state_1" / "manifest.json"
    assert check_jsonschema("--schemafile", schema, manifest).returncode == 0
    document = json.loads(manifest.read_text())
    del document["manifest"]["fields"]["W_re"]["dtype"]
    (tmp_path / "bad.json").write_text(json.dumps(document))
    refused = check_jsonschema("--schemafile", schema, tmp_path / "bad.json")
    assert refused.returncode == 1 and "'dtype' is a required property" in refused.stdout
