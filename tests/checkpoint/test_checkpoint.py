import json
import logging
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.errors import IntegrityError, MigrationError, SerializationError, StructError
from neuralqx_struct.manifest import Limits
from tests.builders import every, refused
from tests.preloaded import PROGRAMS, python


class Inner(s.Struct):
    w: object
    n: int = s.field(static=True, default=1)


class State(s.Struct):
    params: object
    step: int = s.field(static=True, default=0)
    inner: object = None
    norm: object = s.field(
        static=True, init=False, derived=lambda self: len(jax.tree.leaves(self.params))
    )
    cache: object = s.field(pytree=False, default=None)


class Child(State):
    pass


def state():
    params = {"w": jnp.arange(4.0), "b": np.zeros((2, 0)), "key": jax.random.key(1)}
    return State(params=params, step=3, inner=[Inner(jnp.bfloat16(2)), Inner(None, 2)])


@pytest.fixture(params=["ckpt", "ckpt.zip"])
def target(request, tmp_path):
    return tmp_path / request.param


def test_disk_and_memory_agree(target):
    a = state()
    assert a.export(target) == target
    assert State.load(target) == a == State.from_state_dict(a.to_state_dict()) == s.load(target)
    assert s.validate(target) == [] == s.verify(target)
    loaded = State.load(target)
    assert isinstance(loaded.params["w"], jax.Array) and isinstance(loaded.params["b"], np.ndarray)


def test_a_state_dict_is_plain_and_a_snapshot():
    array = np.zeros(2)
    payload = s.to_state_dict({"a": array})
    array[:] = 5
    assert payload["array_data"]["a"].tolist() == [0, 0] and payload["version"] == 1
    json.dumps({k: v for k, v in payload.items() if k != "array_data"}, allow_nan=False)


def test_nothing_is_lost_by_an_existing_target(target):
    state().export(target)
    with refused(FileExistsError, "NQX431", target) as caught:
        State(params=1).export(target)
    assert isinstance(caught.value, SerializationError) and State.load(target) == state()
    State(params=1).export(target, overwrite=True)
    assert State.load(target) == State(params=1)


def test_converters_do_not_run_in_export_and_post_init_not_in_load(target):
    calls = []

    class Hooked(s.Struct):
        x: int = s.field(
            converter=lambda v: calls.append("convert") or int(v),
            validator=lambda v: calls.append("validate"),
        )

        def __post_init__(self):
            calls.append("post_init")

    a = Hooked("3")
    calls.clear()
    a.export(target)
    assert calls == ["validate"]
    calls.clear()
    assert Hooked.load(target).x == 3 and calls == ["convert", "validate"]


def test_metadata_travels(target):
    state().export(target, metadata={"note": "hello", "list": [1, None]})
    from neuralqx_struct.bundle import read_manifest

    assert read_manifest(target)["metadata"] == {"note": "hello", "list": [1, None]}


ENDLESS = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("metadata", "places"),
    [
        ({"loss": float("nan")}, {"$.metadata.loss": "got nan"}),
        ({"a": [1, {"b c": -np.inf}]}, {"$.metadata.a[1]['b c']": "got -inf"}),
        (
            {"a": {1, 2}, "b": 3, "c": np.ones(2)},
            {"$.metadata.a": "{1, 2}", "$.metadata.c": "float64[2]"},
        ),
        ({"a": {1: 2, "1": 3}}, {"$.metadata.a": "keys of type str, got 1"}),
        ({"a": ENDLESS}, {"$.metadata": "Circular"}),
        ({"a": 10**5000}, {"$.metadata": "digits"}),
    ],
)
def test_metadata_is_plain_json(target, metadata, places):
    with pytest.raises(SerializationError) as caught:
        state().export(target, metadata=metadata)
    found = caught.value.diagnostics
    assert [d.path for d in found] == [*places]
    for finding, part in zip(found, places.values(), strict=True):
        assert finding.code == "NQX430" and part in finding.message and finding.hint
    assert not target.exists()


def test_what_cannot_be_saved_leaves_nothing_behind(target):
    with pytest.raises(SerializationError) as caught:
        State(params={"f": object(), "g": memoryview(b"")}).export(target)
    assert [d.path for d in caught.value.diagnostics] == [
        "$.params['f']",
        "$.params['g']",
    ] and not target.exists()


def test_the_class_must_be_the_right_one(target):
    Child(params=1).export(target)
    assert State.load(target) == Child(params=1)
    with refused(SerializationError, "NQX401", "Inner") as caught:
        Inner.load(target)
    assert caught.value.diagnostics[0].file == str(target)
    s.export([1, 2], target, overwrite=True)
    with refused(SerializationError, "NQX401", "State"):
        State.load(target)
    assert s.load(target) == [1, 2]
    assert State.load(s.export(Child(params=2), target, overwrite=True), load_cls=Child) == Child(
        params=2
    )


def test_options(target):
    state().export(target)
    abstract = State.load(target, abstract=True)
    assert abstract.params["w"] == jax.ShapeDtypeStruct((4,), jnp.float32)
    assert isinstance(State.load(target, as_numpy=True).params["w"], np.ndarray)
    chosen = State.load(target, select=lambda path, leaf: path[-1] == "w" and path[0] == "params")
    assert (
        chosen.params["w"].shape == (4,)
        and chosen.params["key"] is None
        and chosen.inner[0].w is None
    )
    assert State.load(target, select="path:params/w").params["w"].shape == (4,)
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[1])
    assert State.load(target, shardings=sharding).params["w"].devices() == {jax.devices()[1]}
    seen = []
    State.load(target, progress=lambda done, total: seen.append((done, total)), mmap=False)
    assert seen[-1][0] == seen[-1][1] > 0
    with refused(ValueError, "unknown=", "maybe"):
        State.load(target, unknown="maybe")


def test_what_was_defaulted_is_logged(target, caplog):
    class Grown(s.Struct):
        x: int

    Grown(1).export(target)

    class Grown(s.Struct):
        x: int
        y: int = 7

    with caplog.at_level(logging.INFO, logger="neuralqx_struct"):
        assert Grown.load(target).y == 7
    assert "NQX425" in caplog.text and "$.y" in caplog.text


@pytest.mark.parametrize("payload", [None, {}, {"array_data": 3}, [1]])
def test_what_is_no_state_dict(payload):
    with refused(SerializationError, "NQX401", "array_data"):
        s.from_state_dict(payload)


@pytest.mark.parametrize("version", [2, True, "1", None])
def test_versions_are_checked_in_memory_too(version):
    with pytest.raises(SerializationError):
        s.from_state_dict({**s.to_state_dict(1), "version": version})


def test_a_wrong_array_is_caught_in_memory():
    payload = state().to_state_dict()
    payload["array_data"]["params/w"] = np.zeros((5, 5), "float32")
    with refused(IntegrityError, "NQX412", "$.arrays['params/w']", "float32[4]"):
        State.from_state_dict(payload)


def test_missing_paths_and_other_files(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        State.load(tmp_path / "nowhere")
    assert isinstance(caught.value, StructError)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(SerializationError):
        State.load(tmp_path / "text")


def test_export_from_threads(tmp_path):
    states = [State(params=jnp.full(3, i)) for i in range(8)]
    threads = [
        threading.Thread(target=states[i].export, args=(tmp_path / str(i),)) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [State.load(tmp_path / str(i)) for i in range(8)] == states


class TestSchemas:
    def fields(self, schema):
        return {
            "W_re": jnp.ones((2, 4)), "W_im": jnp.full((2, 4), -0.0), "b_all": jnp.arange(6).astype("complex64"), "alpha": 2,
            "dW_re": jnp.zeros((2, 4)), "dW_im": jnp.zeros((2, 4)), "db_all": jnp.zeros(6, "complex64"), "samples": np.ones((3, 2)),
            "rng": jax.random.key_data(jax.random.key(5)), "n_iter": 7, "E_hist": np.arange(2.0), "mpi_rank": 4,
        }  # fmt: skip

    def test_old_versions_load_and_new_ones_downgrade(self, vmc_folder, target):
        vmc = s.load_schema(vmc_folder)
        old = vmc.at(1).root(**self.fields(vmc))
        old.export(target)
        report = []
        new = vmc.load(target, report=report)
        assert (
            type(new) is vmc.root
            and new.sampler.sigma.dtype == "int8"
            and new.exponent == 2.0
            and new.n_parameters == 14
        )
        assert np.array_equal(jax.random.key_data(new.sampler.key), old.rng)
        assert new.kernel.dtype == "complex64" and bool(jnp.all(jnp.signbit(new.kernel.imag)))
        assert {"exponent", "energy"} <= {d.path.rpartition(".")[2] for d in report}
        back = vmc.at(1).root.load(new.export(target, overwrite=True))
        assert back == old.replace(mpi_rank=0)

    def test_memory_too(self, vmc_folder):
        vmc = s.load_schema(vmc_folder)
        old = vmc.at(1).root(**self.fields(vmc))
        assert vmc.root.from_state_dict(old.to_state_dict()).step == 7

    def test_data_that_forbid_a_step(self, vmc_folder, target):
        vmc = s.load_schema(vmc_folder)
        fields = self.fields(vmc)
        fields["samples"][1, 1] = 0.5
        vmc.at(1).root(**fields).export(target)
        with refused(MigrationError, "NQX213", "$.samples", "0.5") as caught:
            vmc.load(target)
        assert "samples" in str(caught.value) and str(target) in str(caught.value)

    def test_without_the_class_or_the_files(self, vmc_folder, target):
        vmc = s.load_schema(vmc_folder)
        vmc.at(2).root.load(vmc.at(1).root(**self.fields(vmc)).export(target)).export(
            target, overwrite=True
        )
        code = f"import neuralqx_struct as s; x = s.load({str(target)!r}); print(type(x).__name__, x.kernel.shape, s.class_ref(type(x)))"
        out = python(*PROGRAMS).run("-c", code)
        assert out.stdout.strip() == "VMCState (2, 4) neuralqx.vmc_state@2:VMCState"

    def test_another_schema_is_an_error(self, vmc_folder, target):
        other = s.load_schema(
            'language: "1"\nschema: lab.other\nversion: 1\nroot: A\nstructs: {A: {fields: {x: int}}}\n'
        )
        other.root(x=1).export(target)
        with refused(SerializationError, "NQX404", "$.schema.id", "lab.other"):
            s.load_schema(vmc_folder).load(target)

    def test_an_edited_version_is_noticed(self, target):
        text = 'language: "1"\nschema: lab.edited\nversion: 1\nroot: A\nstructs: {A: {fields: {x: int, y: {type: int, default: 1}}}}\n'
        s.load_schema(text).root(x=1).export(target)
        with refused(SerializationError, "NQX405"):
            s.load_schema(text.replace("y:", "z:")).load(target)


TREES = st.recursive(
    st.one_of(
        st.none(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.booleans(),
        st.integers(0, 3).map(lambda n: np.arange(n)), st.integers(0, 3).map(lambda n: jnp.arange(n)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3), st.builds(Inner, inner, st.integers(0, 9))
    ),
    max_leaves=8,
)  # fmt: skip


@given(TREES)
def test_load_inverts_export(tree):
    a = State(params=tree)
    assert State.from_state_dict(a.to_state_dict()) == a


def test_what_one_bundle_carries_does_not_rule_another(tmp_path):
    code = """
import sys
import neuralqx_struct as s
text = 'language: "1"\\nschema: lab.victim\\nversion: 1\\nroot: P\\nstructs: {P: {fields: {a: int%s}}}\\n'
wide = ', z: {type: int, default: 666}' if sys.argv[1] == 'wide' else ''
s.load_schema(text % wide).root(a=1).export(sys.argv[2])
"""
    for name in ("wide", "plain"):
        assert python(*PROGRAMS).run("-c", code, name, str(tmp_path / name)).returncode == 0
    wide, plain = s.load(tmp_path / "wide"), s.load(tmp_path / "plain")
    assert wide.z == 666 and not hasattr(plain, "z") and type(wide) is not type(plain)


def test_what_is_loaded_is_not_what_the_caller_still_holds():
    payload = s.to_state_dict({"w": jnp.zeros(1 << 12), "n": np.zeros(3), "again": None})
    size = 1 << 12
    room = np.zeros(size + 64, "float32")
    start = (-room.ctypes.data % 64) // 4
    name = next(name for name, array in payload["array_data"].items() if array.shape == (size,))
    payload["array_data"][name] = aligned = room[
        start : start + size
    ]  # what device_put would share
    first, second = s.from_state_dict(payload), s.from_state_dict(payload)
    aligned[:] = 7
    first["n"][0] = 5
    assert float(first["w"][0]) == 0 and second["n"][0] == 0


def test_shardings_are_for_jax_arrays(tmp_path):
    held = {
        "w": jnp.ones(2),
        "n": np.ones(2),
        "step": 3,
        "name": "a",
        "key": jax.random.key(0),
        "s": [jnp.ones(1)],
    }
    s.export(held, tmp_path / "b")
    where = jax.sharding.SingleDeviceSharding(
        jax.devices()[0], memory_kind=jax.devices()[0].default_memory().kind
    )
    part = {"w": where, "n": where, "step": where, "name": None, "key": where, "s": None}
    for shardings in (where, part):
        again = s.load(tmp_path / "b", shardings=shardings)
        assert (
            type(again["step"]) is int
            and type(again["name"]) is str
            and type(again["n"]) is np.ndarray
        )
        assert again["w"].sharding == where and again["key"].sharding == where
        abstract = s.load(tmp_path / "b", shardings=shardings, abstract=True)
        assert abstract["w"].sharding == where and abstract["w"].shape == (2,)
        assert (abstract["s"][0].sharding == where) is (shardings is where)
    with refused(ValueError, "shardings="):
        s.load(tmp_path / "b", shardings={"w": where})


def test_an_array_that_is_donated_while_it_is_written_is_told(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    spread = jax.device_put(
        jnp.arange(8.0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    )
    held = {"first": np.zeros(4), "spread": spread}
    with refused(SerializationError, "NQX430"):
        s.export(held, tmp_path / "c", progress=lambda *_: spread.is_deleted() or spread.delete())
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_several_devices_leave_no_copy_behind(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    spread = jax.device_put(
        jnp.arange(8.0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    )
    for store in ("npz", "safetensors"):
        again = s.load(s.export({"w": spread}, tmp_path / store, store=store))["w"]
        assert np.array_equal(again, np.arange(8.0))
    assert spread._npy_value is None


SMALL = """
language: "1"
schema: lab.small
version: 1
root: Small
structs:
  Part:
    fields: {n: int}
  Small:
    fields: {x: "float32[3]", part: Part}
"""
SMALL_CLASSES = s.load_schema(SMALL)


class Handy(SMALL_CLASSES.Small):
    def doubled(self):
        return 2 * self.x


class HandyPart(SMALL_CLASSES.Part):
    """Nothing but another name."""


class Larger(SMALL_CLASSES.Small):
    extra: object = s.field(default=0, kw_only=True)


def test_a_subclass_of_a_schema_class_that_adds_no_field_is_saved_as_the_class_of_the_schema(
    target,
):
    Small, Part = SMALL_CLASSES.Small, SMALL_CLASSES.Part
    values = {"x": jnp.ones(3, jnp.float32), "part": HandyPart(n=2)}
    s.export(Handy(**values), target)
    assert s.validate(target) == []
    assert (
        s.to_state_dict(Handy(**values))["manifest"] == s.to_state_dict(Small(**values))["manifest"]
    )
    for load in (s.load, Small.load, SMALL_CLASSES.load):
        loaded = load(target)
        assert type(loaded) is Small and type(loaded.part) is Part
    for loaded in (
        Handy.load(target),
        s.load(target, load_cls=Handy),
        Handy.from_state_dict(Handy(**values).to_state_dict()),
    ):
        assert type(loaded) is Handy and type(loaded.part) is Part
        assert loaded.doubled().tolist() == [2, 2, 2]
    assert type(Handy.load(Small(**values).export(target, overwrite=True))) is Handy


def test_a_subclass_of_a_schema_class_that_adds_fields_is_a_class_of_python(target):
    value = Larger(x=jnp.ones(3, jnp.float32), part=SMALL_CLASSES.Part(n=2), extra=5)
    payload = s.to_state_dict(value)
    assert "schema" not in payload and payload["manifest"]["type"] == f"{__name__}:Larger"
    assert [d["schema"] for d in payload["schemas"]] == [
        "lab.small"
    ]  # of the part, which is one of the schema's
    assert type(Larger.load(value.export(target))) is Larger
    assert type(s.load(target)) is Larger and s.load(target) == value
    assert s.validate(target) == []
    with refused(SerializationError, "NQX401", "Larger", "lab.small@1:Small"):
        Larger.load(SMALL_CLASSES.Small(x=value.x, part=value.part).export(target, overwrite=True))


NESTED = """
language: "1"
schema: lab.nested
version: 1
root: Outer
structs:
  Inner:
    fields:
      w: {type: array, dtype: float32, shape: [n]}
  Outer:
    fields:
      inner: {type: Inner}
"""


def test_a_subclass_with_more_fields_loads_as_the_class_of_the_schema_and_is_none_of_its_nested_structs(
    target,
):
    schema = s.load_schema(NESTED)

    class WiderOuter(schema.Outer):
        extra: int = 5

    class WiderInner(schema.Inner):
        extra: int = 5

    weights = np.ones(3, np.float32)
    saved = WiderOuter(inner=schema.Inner(w=weights))
    saved.export(target)
    assert type(schema.Outer.load(target)) is WiderOuter and schema.Outer.load(target) == saved
    with refused(s.ValidationError, "NQX411", "$.inner", "lab.nested@1:Inner", "WiderInner"):
        schema.Outer(inner=WiderInner(w=weights))


# -- limits


def deep_lists():
    value = [np.arange(3)]
    for _ in range(230):
        value = [value]
    return value


@pytest.mark.parametrize("where", ["ckpt", "ckpt.zip", "memory://limits/ckpt"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_limits_of_an_export_are_those_of_its_readers(tmp_path, where, asynchronous):
    path = where if "://" in where else tmp_path / where
    options = {"overwrite": True, "asynchronous": asynchronous}
    with refused(SerializationError, "NQX430", "200") as caught:
        s.export(deep_lists(), path, **options)
    assert caught.value.diagnostics[0].hint.endswith("or pass limits= for more")
    limits = Limits(depth=240)
    for _ in range(2):
        done = s.export(deep_lists(), path, limits=limits, **options)
        if asynchronous:
            done.wait()
    with refused(SerializationError, "NQX005", "limits="):
        s.load(path)
    assert [d.code for d in s.validate(path)] == ["NQX005"]
    assert s.validate(path, limits=limits) == s.verify(path, limits=limits) == []
    value = s.load(path, limits=limits)
    while isinstance(value[0], list):
        value = value[0]
    assert value[0].tolist() == [0, 1, 2]


@every("store", ["npz", "orbax"])
@every(
    ("limits", "code", "most"),
    [
        (Limits(nodes=1), "NQX430", 1),
        (Limits(nodes=4), "NQX005", 4),
        (Limits(depth=1), "NQX430", 1),
        (Limits(manifest_bytes=100), "NQX005", 100),
    ],
)
def test_an_export_above_its_limits_writes_nothing(tmp_path, store, limits, code, most):
    tree = {"a": np.arange(3), "b": np.arange(2)}
    with refused(SerializationError, code, most, "limits="):
        s.export(tree, tmp_path / "ckpt", store=store, asynchronous=True, limits=limits).wait()
    assert not (tmp_path / "ckpt").exists()


@every("inside", [1, "a", None])
def test_plain_values_are_a_level_of_a_nest(tmp_path, inside):
    tree = [[[inside]]]
    limits = Limits(depth=4)
    assert s.load(s.export(tree, tmp_path / "ckpt", limits=limits), limits=limits) == tree
    with refused(SerializationError, "NQX430", 3):
        s.export(tree, tmp_path / "none", limits=Limits(depth=3))


GUARDS = {
    "transfers": lambda: jax.transfer_guard("disallow"),
    "nan": lambda: jax.debug_nans(True),
    "infinity": lambda: jax.debug_infs(True),
}


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
@pytest.mark.parametrize("store", ["npz", "orbax"])
def test_guards_of_the_program_do_not_stop_a_load(tmp_path, guard, store):
    """A load asks for its transfers, and a diverged state is what a program that looks for nan wants to see."""
    weights = jnp.array([jnp.nan, jnp.inf, 1.0])
    state = {"w": weights, "weak": jnp.asarray(2.0), "key": jax.random.key(0)}
    mesh = jax.make_mesh((1,), ("x",))
    with guard():
        path = s.export(state, tmp_path / "bundle", store=store)
        loaded = [s.load(path), s.load(path, like=state), s.load(path, mesh=mesh)]
        loaded.append(s.warm_start(path, state)[0])
    for each in loaded:
        assert np.array_equal(each["w"], weights, equal_nan=True)
        assert each["weak"].weak_type and each["key"] == state["key"]
