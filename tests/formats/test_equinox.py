"""Files of equinox.tree_serialise_leaves, named by ``like`` or by position."""

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.trees import leaves_with_paths
from tests.builders import bounded, refused, same


class Model(equinox.Module):
    weight: jax.Array
    small: jax.Array
    tiny: jax.Array
    scale: float
    steps: int
    on: bool
    phase: complex
    table: np.ndarray
    act: object
    name: str


MODEL = Model(
    weight=jnp.arange(6.0).reshape(2, 3),
    small=jnp.ones(3, jnp.bfloat16),
    tiny=jnp.ones(2, jnp.int4),
    scale=1.5,
    steps=7,
    on=True,
    phase=1 + 2j,
    table=np.asfortranarray(np.arange(4.0, dtype="f4").reshape(2, 2)),
    act=jnp.tanh,
    name="x",
)


def names_of(model):
    return {formats.joined(map(str, path)): leaf for path, leaf in leaves_with_paths(model)}


@pytest.fixture
def saved(tmp_path):
    equinox.tree_serialise_leaves(tmp_path / "model.eqx", MODEL)
    return tmp_path / "model.eqx"


@pytest.mark.parametrize("like", [MODEL, equinox.filter_eval_shape(lambda: MODEL)])
def test_a_model_like_another(saved, like):
    with formats.opened(saved, like=like) as file:
        named = formats.opened(saved, like=names_of(like))
        assert list(file.arrays) == list(named.arrays) and file.values == named.values
        assert file.format == "equinox"
        assert file.values == {"scale": 1.5, "steps": 7, "on": True}
        assert list(file.arrays) == ["weight", "small", "tiny", "phase", "table"]
        for name in ("weight", "small", "tiny", "table"):
            assert same(file.arrays[name].read(), np.asarray(getattr(MODEL, name)))
        assert file.arrays["small"].dtype == "bfloat16"
        assert file.arrays["phase"].read() == 1 + 2j


def test_a_tree_of_dicts_and_lists(tmp_path):
    tree = {"b": [np.ones(2), np.zeros(3)], "a.x": {"w": np.ones(1)}}
    equinox.tree_serialise_leaves(tmp_path / "tree.eqx", tree)
    with formats.opened(tmp_path / "tree.eqx", like=tree, separator="/") as file:
        assert list(file.arrays) == ["a.x/w", "b/0", "b/1"]
        assert file.arrays["b/1"].shape == (3,)


def test_names_are_positions_without_like(saved):
    with formats.opened(saved) as file:
        assert file.arrays["0"].shape == (2, 3)
        assert list(file.arrays) == [str(place) for place in range(8)]
        assert same(file.arrays["1"].read(), np.asarray(MODEL.small))
        assert file.arrays["2"].dtype == "<V1"
        with refused(SerializationError, "NQX411", "<V1", "like={'layers.0.weight'"):
            file.arrays["2"].read()
    assert [d.code for d in formats.verify(saved)] == ["NQX411"]


def test_pairs_of_dtype_and_shape(saved):
    like = {str(place): leaf for place, leaf in enumerate(names_of(MODEL).values())}
    like["0"], like["1"] = ("float32", (2, 3)), (np.dtype("bfloat16"), [3])
    with formats.opened(saved, like=like) as file:
        assert same(file.arrays["1"].read(), np.asarray(MODEL.small))


DIFFERENT = {
    "dtype": ({"weight": ("int32", (2, 3))}, ["NQX411", "$.arrays.weight", "int32[2, 3]"]),
    "shape": ({"weight": ("float32", (3, 2))}, ["NQX412", "$.arrays.weight", "float32[2, 3]"]),
    "several": (
        {"weight": ("int32", (3,)), "steps": 1.5},
        ["NQX411", "$.arrays.weight", "NQX412", "$.arrays.steps", 1.5, "int64[]"],
    ),
    "size": ({"tiny": ("bfloat16", (2,))}, ["NQX411", "$.arrays.tiny", "bfloat16[2]"]),
    "more": ({"more": 1}, ["NQX409", "$.arrays", 9, 8]),
    "fewer": ({"scale": None}, ["NQX410", "$.arrays", 7, 8]),
}


@pytest.mark.parametrize(("change", "named"), DIFFERENT.values(), ids=DIFFERENT)
def test_other_models(saved, change, named):
    with refused(IntegrityError, *named):
        formats.opened(saved, like=names_of(MODEL) | change)


@pytest.mark.parametrize(
    ("like", "named"),
    [
        (Model, ["like=", Model]),
        ({"a": (1,)}, ["$.like.a"]),
        ({"a": ("float33", (1,)), "b": (1,)}, ["$.like.a", "float33", "$.like.b"]),
        ({"a": jax.ShapeDtypeStruct((), jax.random.key(0).dtype)}, ["$.like.a"]),
    ],
)
def test_likes_that_describe_nothing(saved, like, named):
    with refused(SerializationError, "NQX612", *named):
        formats.opened(saved, like=like)


def record(descr="<f4", shape="(2,)", data=bytes(8)):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + data


def test_recognised(tmp_path):
    for name, data, kind in [
        ("a", record() * 2, "equinox"),
        ("a", record(), "npy"),
        ("a.npy", record() * 2, "npy"),
        ("a.eqx", b"", "equinox"),
        ("a", record("|O"), "npy"),
    ]:
        (tmp_path / name).write_bytes(data)
        assert formats.recognised(tmp_path / name).name == kind


HOSTILE = {
    "empty": (b"", IntegrityError, "NQX408"),
    "other bytes": (record() + b"x", IntegrityError, "NQX408"),
    "cut": (record(data=bytes(7)), IntegrityError, "NQX408"),
    "huge": (record(shape=f"({2**62}, {2**62})"), IntegrityError, "NQX412"),
    "huge and empty": (record(shape=f"(0, {2**62}, {2**62})", data=b""), IntegrityError, "NQX412"),
    "objects": (record("|O"), UntrustedError, "NQX502"),
    "many": (record(shape="(0,)", data=b"") * 100, SerializationError, "NQX005"),
}


@pytest.mark.parametrize(("data", "kind", "code"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(tmp_path, data, kind, code):
    (tmp_path / "x.eqx").write_bytes(data)
    with bounded(), refused(kind, code, "x.eqx"):
        formats.opened(tmp_path / "x.eqx", limits=Limits(nodes=50))
