"""Functions beside checkpoints: written with golden outputs, run without the program, and after migrations."""

import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.manifest import Limits
from tests.builders import edit, invoke, refused
from tests.preloaded import PROGRAMS, python

VERSIONS = (
    """language: "1"
schema: lab.replayed
version: 1
root: Net
structs:
  Net:
    fields: {kernel: "float32[n, m]", bias: "float32[m]", note: str, scale: float}
""",
    """language: "1"
schema: lab.replayed
version: 2
root: Net
structs:
  Net:
    fields: {weights: "float64[m, n]", bias: "float64[m]", note: str, scale: float}
    reserved: [kernel]
migrations:
  - from: 1
    steps:
      - rename: {field: kernel, to: weights}
      - transpose: {field: weights}
      - cast: {field: weights, dtype: float64}
      - cast: {field: bias, dtype: float64}
""",
)


class Net(s.Struct):
    kernel: object
    bias: object
    scale: float
    heads: int = s.field(static=True, default=2)


def net():
    rng = np.random.default_rng(1)
    kernel = jnp.asarray(rng.normal(size=(3, 4)), "float32")
    return Net(kernel=kernel, bias=jnp.ones(4), scale=0.3)


X = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)


def log_psi(net, x):
    out = net.scale * jnp.tanh(x @ net.kernel + net.bias)
    return {"log": out.sum(axis=-1), "sign": jnp.sign(out)}


def written(path, state=None, f=log_psi, *inputs, **options):
    state = net() if state is None else state
    kept = s.replay(f, state, *(inputs or (X,)))
    return s.export(state, path, replay={"log_psi": kept}, **options)


def codes(path, **options):
    with pytest.raises(s.StructError) as error:
        s.replayed(path, **options)
    return [each.code for each in error.value.diagnostics]


@pytest.mark.parametrize("store", ["npz", "safetensors", "orbax"])
def test_a_function_gives_the_bits_that_it_gave(tmp_path, store):
    path = written(tmp_path / "ckpt", store=store, metadata={"run": 7})
    found = s.replayed(path)
    assert found.equal and found.exact and not found.findings
    assert [each.path for each in found.outputs] == ["log_psi['log']", "log_psi['sign']"]
    assert found.written == {"log_psi": "cpu"}
    assert json.loads((path / "manifest.json").read_text())["metadata"]["run"] == 7
    assert s.validate(path) == [] and s.verify(path) == []


def test_every_form_and_the_series_keep_functions(tmp_path):
    path = written(tmp_path / "ckpt")
    s.convert(path, tmp_path / "ckpt.zip", compress=True)
    assert s.replayed(tmp_path / "ckpt.zip").exact
    state = net()
    series = s.Series(tmp_path / "run")
    series.save(3, state, metrics={"loss": 1.0}, replay={"f": s.replay(log_psi, state, X)})
    assert s.replayed(tmp_path / "run" / "3").exact
    pending = s.export(
        state, tmp_path / "later", asynchronous=True, replay={"f": s.replay(log_psi, state, X)}
    )
    assert s.replayed(pending.wait()).exact


def test_leaves_of_all_kinds_are_arguments_or_part_of_the_function(tmp_path):
    state = {
        "key": jax.random.key(3),
        "bf": jnp.ones(3, "bfloat16"),
        "z": 2j,
        "n": 5,
        "text": "times",
        "params": s.Params({("a", "b"): s.Param(np.arange(3.0))}),
        "inf": float("inf"),
        "large": 2**70,  # JAX has no arrays of these two
        "words": np.array(["a"]),
    }

    def f(state, x, op):
        drawn = jax.random.normal(state["key"], (3,)) * state["bf"]
        out = drawn * state["n"] if state["text"] == op["op"] else drawn
        low = state["params"]["a", "b"].value.min()
        return (
            out,
            state["z"] * x,
            jax.random.split(state["key"]),
            low,
            jnp.minimum(x, state["inf"]),
            jnp.nan * x,
        )

    kept = s.replay(f, state, jnp.ones(2), {"op": "times"})
    assert not {"$['text']", "$['large']", "$['words']"} & {*kept.arguments}
    assert "$['n']" in kept.arguments
    path = s.export(state, tmp_path / "ckpt", replay={"f": kept})
    found = s.replayed(path)
    assert found.exact and len(found.outputs) == 6


ALONE = """
import sys
import neuralqx_struct as s
found = s.replayed(sys.argv[1])
assert "tests" not in sys.modules
print(found.equal, found.exact)
"""


def test_a_fresh_process_runs_it_without_the_classes(tmp_path):
    path = written(tmp_path / "ckpt")
    done = python(*PROGRAMS).run("-c", ALONE, str(path), cwd=tmp_path)
    assert done.stdout == "True True\n", done.stderr


SHARDED = """
import sys
import jax
import jax.numpy as jnp
import neuralqx_struct as s

mesh = jax.make_mesh((4,), ("a",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
state = {"w": jax.device_put(jnp.arange(16.0).reshape(8, 2), sharding)}
kept = s.replay(lambda state: (state["w"] ** 2).sum(axis=0), state)
s.export(state, sys.argv[1], replay={"f": kept})
"""


def test_the_function_of_a_sharded_state_runs_on_one_device(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = python(*PROGRAMS).run("-c", SHARDED, str(tmp_path / "ckpt"), env=environment)
    assert done.returncode == 0, done.stderr
    assert s.replayed(tmp_path / "ckpt").equal


def test_double_precision_needs_no_setting_of_the_reader(tmp_path):
    with jax.enable_x64(True):
        path = written(
            tmp_path / "ckpt", {"w": jnp.arange(3.0)}, lambda state, x: state["w"] * x, 2.5
        )
    found = s.replayed(path)
    assert found.exact and found.outputs[0].type == "float64[3]"


@pytest.fixture
def schema(tmp_path):
    folder = tmp_path / "schema"
    folder.mkdir()
    for number, text in enumerate(VERSIONS, start=1):
        (folder / f"v{number}.yaml").write_text(text)
    return folder


def state_of(schema):
    old = net()
    cls = s.load_schema(schema).at(1).root
    return cls(kernel=old.kernel, bias=old.bias, note="a", scale=0.3)


def test_equal_outputs_prove_that_a_migration_lost_nothing(tmp_path, schema):
    path = written(tmp_path / "old", state_of(schema))
    assert s.replayed(path).exact
    done = s.migrate(path, tmp_path / "new", schema=schema)
    document = json.loads((done.out / "manifest.json").read_text())
    assert document["schema"]["version"] == 2 and "weights" in document["manifest"]["fields"]
    assert s.replayed(done.out).exact
    fresh = python(*PROGRAMS).run("-c", ALONE, str(done.out), cwd=tmp_path)
    assert fresh.stdout == "True True\n", fresh.stderr


def test_a_migration_that_cannot_be_undone_is_refused(tmp_path, schema):
    text = VERSIONS[1].replace('bias: "float64[m]", ', "").replace("[kernel]", "[kernel, bias]")
    text = text.replace("cast: {field: bias, dtype: float64}", "remove: {field: bias, lossy: true}")
    (schema / "v2.yaml").write_text(text)
    path = written(tmp_path / "old", state_of(schema))
    new = s.migrate(path, tmp_path / "new", schema=schema).out
    assert codes(new) == ["NQX423"]


def with_record(path, change):
    """Changes the record of the function, and gives the manifest its digest again."""

    def changed(document):
        change(document["metadata"]["replay"])

    edit(path, changed)


def test_other_parameters_differ_and_the_finding_has_the_numbers(tmp_path):
    state = net()
    kept = s.replay(log_psi, state, X)
    path = s.export(state, tmp_path / "a", replay={"log_psi": kept})
    other = s.export(
        state.replace(kernel=state.kernel + 0.5), tmp_path / "b",
        metadata=json.loads((path / "manifest.json").read_text())["metadata"],
    )  # fmt: skip
    found = s.replayed(other)
    log = found.outputs[0]
    assert not found.equal and not log.close and log.different == 2
    assert log.absolute > log.tolerance > 0
    finding = found.findings[0]
    assert finding.code == "NQX434" and finding.path == "log_psi['log']"
    assert f"{log.absolute:.3g}" in finding.message and f"{log.tolerance:.3g}" in finding.message
    assert s.replayed(other, rtol=10.0).outputs[0].close
    done = invoke("replay", other)
    assert done.exit_code == 1 and "NQX434" in done.stdout
    assert invoke("replay", path).exit_code == 0


def test_a_change_within_the_tolerance_is_not_exact(tmp_path):
    state = net()
    path = s.export(state, tmp_path / "a", replay={"log_psi": s.replay(log_psi, state, X)})
    metadata = json.loads((path / "manifest.json").read_text())["metadata"]
    near = s.export(state.replace(scale=0.3000003), tmp_path / "b", metadata=metadata)
    found = s.replayed(near)
    assert found.equal and not found.exact and found.outputs[0].different
    assert not s.replayed(near, rtol=0.0).equal


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_equal_in_its_own_place_alone(tmp_path, value):
    state = {"w": jnp.array([1.0, value, value])}
    kept = s.replay(lambda state: state["w"] * 2, state)
    path = s.export(state, tmp_path / "a", replay={"f": kept})
    assert s.replayed(path).equal
    metadata = json.loads((path / "manifest.json").read_text())["metadata"]
    moved = s.export({"w": jnp.array([value, 1.0, value])}, tmp_path / "b", metadata=metadata)
    assert not s.replayed(moved, rtol=10.0).equal


def test_another_type_than_that_of_the_golden_output_is_no_match(tmp_path):
    state = net()
    kept = {
        "f": s.replay(lambda net, x: log_psi(net, x)["log"], state, X),
        "g": s.replay(lambda net, x: jnp.asarray(log_psi(net, x)["log"], "float16"), state, X),
    }
    path = s.export(state, tmp_path / "a", replay=kept)
    with_record(path, lambda records: records["f"].update(outputs=records["g"]["outputs"]))
    with_record(path, lambda records: records["f"].update(platform="tpu", names=["f"]))
    found = s.replayed(path)
    first = found.outputs[0]
    assert (first.type, first.got) == ("float16[2]", "float32[2]") and first.different is None
    assert not found.equal and [each.path for each in found.findings] == ["f"]
    lines = str(found).splitlines()
    assert "float32[2]" in lines[0] and {"tpu,", "cpu"} <= set(lines[-1].split())


def test_a_state_above_the_limits_needs_them_in_the_reader_too(tmp_path):
    limits = Limits(depth=900)
    state = {"w": jnp.ones(2)}
    for _ in range(300):
        state = {"a": state}
    path = written(tmp_path / "ckpt", state, lambda state, x: jnp.ones(2), limits=limits)
    assert set(codes(path)) == {"NQX005"}
    assert s.replayed(path, limits=limits).exact


def test_a_bundle_without_a_function_is_refused(tmp_path):
    for metadata in (None, {"replay": {}}, {"replay": 3}):
        path = s.export(net(), tmp_path / "ckpt", metadata=metadata, overwrite=True)
        assert codes(path) == ["NQX435"]
    done = invoke("replay", path)
    assert done.exit_code == 1 and "NQX435" in done.stdout


DAMAGE = {
    "a newer convention": {"calling_convention": 10**6},
    "an older convention": {"calling_convention": 1},
    "a newer record": {"version": 2},
    "another function": {"function": "AAAA"},
    "no base64": {"function": "?"},
    "another type": {"function": 3},
    "other arguments": {"arguments": ["$['nope']", "$['bias']", "$['scale']"]},
    "arguments of other shapes": {"arguments": ["$['bias']", "$['kernel']", "$['scale']"]},
    "fewer arguments": {"arguments": ["$['kernel']", "$['bias']"]},
    "inputs": {"inputs": {}},
    "outputs": {"outputs": {"arrays": {}, "array_data": 3}},
    "names": {"names": []},
    "another schema": {"schema": {"id": "lab.other", "version": 1, "fingerprint": "a"}},
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_record_that_cannot_be_run_is_refused(tmp_path, how):
    path = written(tmp_path / "ckpt")
    with_record(path, lambda records: records["log_psi"].update(DAMAGE[how]))
    assert codes(path) == ["NQX436"]


def test_arrays_of_a_newer_version_are_named(tmp_path):
    path = written(tmp_path / "ckpt")
    with_record(path, lambda records: records["log_psi"]["outputs"].update(version=2))
    assert codes(path) == ["NQX402"]


def test_a_record_that_is_no_object_is_refused(tmp_path):
    path = written(tmp_path / "ckpt")
    with_record(path, lambda records: records.update(log_psi=[1]))
    assert codes(path) == ["NQX436"]


def test_a_function_written_beside_an_accelerator_runs_on_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(jax.export, "default_export_platform", lambda: "cuda")
    assert s.replayed(written(tmp_path / "ckpt")).exact


def test_a_function_of_another_platform_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(jax.export, "default_export_platform", lambda: "tpu")
    export = jax.export.export
    monkeypatch.setattr(jax.export, "export", lambda f, platforms: export(f, platforms=["tpu"]))
    path = written(tmp_path / "ckpt")
    assert codes(path) == ["NQX436"]


def test_without_flatbuffers_the_extra_is_named(tmp_path, monkeypatch):
    path = written(tmp_path / "ckpt")
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with refused(s.SerializationError, "NQX615", "neuralqx-struct[replay]"):
        s.replay(log_psi, net(), X)
    assert codes(path) == ["NQX615"]
    assert invoke("replay", path).exit_code == 2


class Cached(s.Struct):
    w: object
    cache: object = s.field(serialize=False, default=1.0)


REFUSED = {
    "it branches on an array": lambda state, x: state.kernel if state.kernel.sum() > 0 else x,
    "it returns nothing": lambda state, x: (),
    "it holds a large array": lambda state, x: x.sum() + jnp.asarray(np.arange(2**22, dtype="float32"))[:3],
    "it returns text": lambda state, x: "text",
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_function_that_cannot_be_written_is_refused(why):
    with refused(s.SerializationError, "NQX430"):
        s.replay(REFUSED[why], net(), X)


def test_an_error_of_this_package_in_a_function_is_its_own(tmp_path):
    with refused(s.SerializationError, "NQX401", "ckpt"):
        s.replay(lambda state, x: state.scale * s.load(tmp_path / "ckpt") * x, net(), X)


def test_a_function_of_what_is_not_saved_is_refused(tmp_path):
    state = Cached(w=jnp.ones(2))
    kept = s.replay(lambda state: state.w * state.cache, state)
    wrong = {
        "a leaf that is not saved": (state, kept),
        "another object": (net(), s.replay(log_psi, net(), X)),
        "no record": (state, 3),
    }
    for each, replay in wrong.values():
        with refused(s.SerializationError, "NQX430"):
            s.export(each, tmp_path / "ckpt", replay={"f": replay})
    state = net()
    kept = s.replay(log_psi, state, X)
    with refused(s.SerializationError, "NQX430"):
        s.export(state, tmp_path / "ckpt", replay={"f": kept}, metadata={"replay": 1})
    assert not (tmp_path / "ckpt").exists()


def test_a_migration_back_and_forth_and_the_method_keep_the_function(tmp_path, schema):
    state = s.load_schema(schema).at(2).root(
        weights=np.ones((4, 3)), bias=np.zeros(4), note="a", scale=0.5
    )  # fmt: skip
    kept = s.replay(lambda net, x: net.scale * (net.weights @ x).sum(), state, np.ones(3))
    path = state.export(tmp_path / "new", replay={"f": kept})
    old = s.migrate(path, tmp_path / "old", to=1).out
    assert "kernel" in json.loads((old / "manifest.json").read_text())["manifest"]["fields"]
    assert s.replayed(old).exact
