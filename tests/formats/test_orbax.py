"""Checkpoints of Orbax without the classes that wrote them: every layout, and every damage."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax.training.train_state import TrainState
from orbax.checkpoint import v1

from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.manifest import Limits
from tests.builders import bounded, every, refused, same

PARAMS = {
    "dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3, jnp.bfloat16)},
    "a.b": [jnp.ones(2, jnp.complex64), jnp.zeros(2, jnp.int4)],
}
STATE = TrainState.create(apply_fn=None, params=PARAMS, tx=optax.adam(1e-3))
TREE = {"state": STATE, "n": 3, "f": 1.5, "on": True, "none": None, "empty": {}, "list": []}
TEXT = {"name": "é"}


def standard(path):
    with ocp.StandardCheckpointer() as writer:
        writer.save(path, TREE)


def pytree(path, tree=TREE | TEXT, **options):
    ocp.PyTreeCheckpointer(**options).save(path, tree)


def managed(path):
    with ocp.CheckpointManager(path.parent / "run") as manager:
        for step in (3, 12):
            manager.save(step, args=ocp.args.StandardSave(TREE))
            manager.wait_until_finished()
    path.symlink_to(path.parent / "run/12")


def composite(path):
    meta = ocp.args.JsonSave({"a": 1})
    with ocp.CheckpointManager(path.parent / "composite") as manager:
        args = ocp.args.Composite(state=ocp.args.StandardSave(TREE), meta=meta)
        manager.save(3, args=args)
    path.symlink_to(path.parent / "composite/3")


LAYOUTS = {
    "standard": standard,
    "zarr2": lambda path: pytree(path, use_ocdbt=False, use_zarr3=False),
    "zarr3": lambda path: pytree(path, use_ocdbt=False, use_zarr3=True),
    "ocdbt": lambda path: pytree(path, use_ocdbt=True, use_zarr3=False),
    "ocdbt and zarr3": lambda path: pytree(path, use_ocdbt=True, use_zarr3=True),
    "step": managed,
    "composite": composite,
    "v1": lambda path: (getattr(v1, "save", None) or v1.save_pytree)(path, TREE | TEXT),
}


@every("write", LAYOUTS.values())
def test_every_layout(tmp_path, write):
    path = tmp_path / "ckpt"
    write(path)
    with formats.opened(path) as file:
        assert file.format == "orbax"
        values = {"state.step": 0, "n": 3, "f": 1.5, "on": True, "none": None}
        texts = {"name": "é"} if "name" in file.values else {}
        assert file.values == values | {"state.opt_state.1": None} | texts
        assert type(file.values["on"]) is bool
        arrays = {name: array.read() for name, array in file.arrays.items()}
    assert arrays.keys() == {
        *(f"state.{place}" for place in names("params")),
        *(f"state.opt_state.0.{place}" for place in (*names("mu"), *names("nu"), "count")),
    }
    for name in ("kernel", "bias"):
        assert same(arrays[f"state.params.dense.{name}"], np.asarray(PARAMS["dense"][name]))
    assert same(arrays[r"state.params.a\.b.1"], np.asarray(PARAMS["a.b"][1]))
    assert not arrays["state.params.dense.kernel"].flags.writeable
    kernel = file.arrays["state.params.dense.kernel"]
    assert kernel.part((slice(1, 2), slice(0, 2))).tolist() == [[3, 4]]
    assert formats.verify(path) == []


def names(tree):
    return [f"{tree}.{name}" for name in ("dense.kernel", "dense.bias", r"a\.b.0", r"a\.b.1")]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint with OCDBT, and one of plain files."""
    folder = tmp_path_factory.mktemp("orbax")
    tree = {"w": jnp.arange(64.0).reshape(8, 8), "b": jnp.ones(3), "n": 3, "name": "x"}
    pytree(folder / "ocdbt", tree)
    pytree(folder / "plain", tree, use_ocdbt=False)
    return folder


def test_folders_of_several_checkpoints(tmp_path, saved):
    for step in ("2", "10"):
        shutil.copytree(saved / "plain", tmp_path / "run" / step / "default")
        (tmp_path / "run" / step / "_CHECKPOINT_METADATA").write_text("{}")
    with refused(SerializationError, "NQX621", "2, 10", "run/10"):
        formats.opened(tmp_path / "run")
    shutil.copytree(saved / "plain", tmp_path / "run/2/other")
    with refused(SerializationError, "NQX621", "default, other"):
        formats.opened(tmp_path / "run/2")
    shutil.copytree(saved / "plain/array_metadatas", tmp_path / "run/10/meta")
    shutil.rmtree(tmp_path / "run/10/default")
    with refused(SerializationError, "NQX621", "meta", "run/10/meta"):
        formats.opened(tmp_path / "run/10")
    shutil.rmtree(tmp_path / "run/10/meta")
    with refused(SerializationError, "NQX621"):
        formats.opened(tmp_path / "run/10")
    (tmp_path / "10.orbax-checkpoint-tmp").mkdir()
    (tmp_path / "10.orbax-checkpoint-tmp/_CHECKPOINT_METADATA").touch()
    with refused(IntegrityError, "NQX408"):
        formats.opened(tmp_path / "10.orbax-checkpoint-tmp")


@pytest.mark.parametrize("name", ["ocdbt", "plain"])
def test_a_folder_without_the_names_of_its_arrays(tmp_path, saved, name):
    shutil.copytree(saved / name, tmp_path / "ckpt")
    (tmp_path / "ckpt/_METADATA").unlink()
    with refused(IntegrityError, "NQX409", "_METADATA"):
        formats.opened(tmp_path / "ckpt")


def edited(name, edit):
    def damage(folder):
        path = folder / name
        found = json.loads(path.read_bytes())
        path.write_text(json.dumps(edit(found)))

    return damage


def entry(key, kind="jax.Array"):
    return {"key_metadata": [{"key": key, "key_type": 2}], "value_metadata": {"value_type": kind}}


def added(text, facts):
    return edited("_METADATA", lambda d: d | {"tree_metadata": d["tree_metadata"] | {text: facts}})


def linked(folder):
    (folder / "b/.zarray").rename(folder.parent / "outside")
    (folder / "b/.zarray").symlink_to(folder.parent / "outside")


W = "$.arrays.w"
DAMAGED = {
    "no manifest": ("ocdbt", lambda f: (f / "manifest.ocdbt").unlink(), ["NQX408", W]),
    "cut": ("ocdbt", lambda f: (f / "manifest.ocdbt").write_bytes(b"x"), ["NQX408", W]),
    "no data": ("ocdbt", lambda f: shutil.rmtree(f / "d"), ["NQX408", W]),
    "no array": ("plain", lambda f: shutil.rmtree(f / "w"), ["NQX408", W]),
    "no metadata": (
        "plain",
        lambda f: (f / "_METADATA").write_bytes(b"{"),
        ["NQX408", "_METADATA"],
    ),
    "empty": (
        "plain",
        lambda f: (f / "_METADATA").write_bytes(b""),
        ["NQX408", "_METADATA"],
    ),
    "a list": (
        "plain",
        edited("_METADATA", lambda d: d | {"tree_metadata": []}),
        ["NQX408", "tree_metadata"],
    ),
    "entries": ("plain", added("x", 5), ["NQX408", "$.tree_metadata.x"]),
    "keys": ("plain", added("x", entry(5)), ["NQX408", "$.tree_metadata.x"]),
    "twice": ("plain", added("x", entry("w")), ["NQX408", "'w'"]),
    "no number": ("plain", added("x", entry("b", "scalar")), ["NQX408", "'b'"]),
    "no text": (
        "plain",
        edited("_strings.json", lambda d: {"name": 5}),
        ["NQX409", "$.arrays.name"],
    ),
    "number": (
        "plain",
        edited("_METADATA", lambda d: {"tree_metadata": {"b": entry("b", "scalar")}}),
        ["NQX412", "$.arrays.b"],
    ),
    "shape": ("plain", edited("w/.zarray", lambda d: d | {"shape": [-1]}), ["NQX408", W]),
    "codec": (
        "plain",
        edited("w/.zarray", lambda d: d | {"compressor": {"id": "pickle"}}),
        ["NQX408", W],
    ),
    "overflow": (
        "plain",
        edited("w/.zarray", lambda d: d | {"shape": [0, 2**62, 4], "chunks": [1, 1, 1]}),
        ["NQX412", W],
    ),
}


@pytest.mark.parametrize(("layout", "damage", "named"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_folders(tmp_path, saved, layout, damage, named):
    path = shutil.copytree(saved / layout, tmp_path / "ckpt")
    damage(path)
    with bounded(), refused(IntegrityError, *named):
        formats.opened(path)
    assert formats.verify(path)


def test_lost_chunks_are_no_zeros(tmp_path, saved):
    path = shutil.copytree(saved / "plain", tmp_path / "ckpt")
    (path / "w/0.0").unlink()
    [found] = formats.verify(path)
    assert (found.code, found.path) == ("NQX408", "$.arrays.w")


@pytest.mark.parametrize("layout", ["ocdbt", "plain"])
def test_flipped_bytes_are_found_or_harmless(tmp_path, saved, layout):
    path = shutil.copytree(saved / layout, tmp_path / "ckpt")
    before = {name: array.read() for name, array in formats.opened(path).arrays.items()}
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.name.startswith("_") or file.stat().st_size < 8:
            continue
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
        try:
            with formats.opened(path) as opened:
                assert all(same(opened.arrays[name].read(), before[name]) for name in before)
        except IntegrityError as error:
            assert "expected" in error.diagnostics[0].message
        file.write_bytes(data)


def huge(shape, chunks):
    return edited("w/.zarray", lambda d: d | {"shape": shape, "chunks": chunks, "fill_value": 0})


UNTRUSTED = {
    "an array that is not stored": (huge([10**12], [8]), "NQX505", 4_000_000_000_000),
    "a large chunk": (huge([8], [10**11]), "NQX505", 400_000_000_000),
    "outside": (added("x", entry("../x")), "NQX503", "$.tree_metadata.x"),
    "no name": (added("x", entry("a\0b")), "NQX503", "$.tree_metadata.x"),
    "a link": (linked, "NQX504", "'.zarray'"),
}


@pytest.mark.parametrize(("damage", "code", "named"), UNTRUSTED.values(), ids=UNTRUSTED)
def test_untrusted_folders(tmp_path, saved, damage, code, named):
    path = shutil.copytree(saved / "plain", tmp_path / "ckpt")
    damage(path)
    with bounded(), refused(UntrustedError, code, named):
        formats.opened(path)


def test_other_dtypes_and_limits(tmp_path, saved):
    path = shutil.copytree(saved / "plain", tmp_path / "ckpt")
    with refused(SerializationError, "NQX005", "2"):
        formats.opened(path, limits=Limits(nodes=2))
    edited("w/.zarray", lambda d: d | {"dtype": "|S4", "fill_value": None})(path)
    with formats.opened(path) as file:
        array = file.arrays["w"]
        assert not array.readable
        with refused(SerializationError, "NQX411", "w", "ml_dtypes"):
            array.read()


def test_without_tensorstore(saved, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorstore", None)
    with refused(SerializationError, "NQX615", "tensorstore", "[orbax]"):
        formats.opened(saved / "plain")
    assert formats.recognised(saved / "plain").name == "orbax"
