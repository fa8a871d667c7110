"""Lists of a declared length, and stacked structs: one instance whose arrays have a leading axis."""

import json

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.classes.compiler import register_hook
from neuralqx_struct.schema.export import payload_schema
from neuralqx_struct.schema.stubs import stub_module
from tests.builders import refused

NET = """
language: "1"
schema: lab.net
version: 1
root: Net
structs:
  Dense:
    params: [a, b]
    fields: {kernel: "float32[a, b]", bias: "float32[b] | null"}
  Block:
    params: [d]
    fields:
      up: Dense[d, h]
      down: Dense[h, d]
      rng: prng_key[threefry2x32]
      norms: list[float32[d], 2]
      experts: dict[str, Dense[d, d]]
      scale: "float32[] | float32[k]"
      rate: {type: float, kind: static, default: 0.5}
      mode: {type: Mode, kind: static, default: fast}
      size: {type: int, kind: static, derived: "size(scale)"}
    constraints:
      - {expr: "all(scale > 0)", message: scales are positive}
      - {expr: "rate < 1"}
      - {expr: "shape(scale) == ()"}
  Net:
    fields:
      embedding: float32[v, d]
      blocks: Block[d][n]
      heads: list[Dense[d, 1], n]
      table: "list[int, 3]"
      others: "list[Inner[][2]] | null"
  Inner:
    fields: {block: "Block[k][m]", w: "float32[m]"}
enums:
  Mode: [fast, slow]
"""
net = s.load_schema(NET)


def dense(a, b, bias=True):
    return net.Dense(kernel=jnp.ones((a, b)), bias=jnp.ones(b) if bias else None)


def block(i=0, d=3, h=2, **more):
    fields = {
        "up": dense(d, h),
        "down": dense(h, d, bias=False),
        "rng": jax.random.key(i),
        "norms": [jnp.zeros(d), jnp.ones(d)],
        "experts": {"x": dense(d, d)},
        "scale": jnp.array(1.0 + i),
    }
    return net.Block(**fields | more)


def state(blocks=None, n=4, **more):
    fields = {
        "embedding": jnp.ones((7, 3)),
        "blocks": s.stack([block(i) for i in range(n)]) if blocks is None else blocks,
        "heads": [dense(3, 1)] * n,
        "table": [1, 2, 3],
        "others": None,
    }
    return net.Net(**fields | more)


def wrong(make):
    with pytest.raises(s.ValidationError) as caught:
        make()
    return [(d.code, d.path, d.message) for d in caught.value.diagnostics]


def test_it_is_built_saved_validated_and_loaded(tmp_path):
    built = state()
    built.export(tmp_path / "a")
    assert s.validate(tmp_path / "a", net) == []
    loaded = net.load(tmp_path / "a")
    assert loaded == built
    assert type(loaded.blocks) is net.Block
    assert s.unstack(loaded.blocks)[3] == block(3)
    assert net.load(tmp_path / "a", abstract=True).blocks.up.kernel.shape == (4, 3, 2)
    assert s.from_state_dict(s.to_state_dict(built), load_cls=net.Net) == built


def test_it_is_the_xs_of_a_scan():
    def step(h, one):
        assert type(one) is net.Block
        assert one == one.replace(rate=one.rate)  # one layer passes its own checks
        return jnp.tanh(h @ one.up.kernel @ one.down.kernel) * one.scale, one.rate

    built = state()
    result, rates = jax.lax.scan(step, built.embedding, built.blocks)
    expected = built.embedding
    for one in s.unstack(built.blocks):
        expected, _ = step(expected, one)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert rates.shape == (4,)


def test_a_grad_of_the_whole_keeps_the_structure():
    found = jax.grad(lambda built: jnp.sum(built.blocks.up.kernel**2), allow_int=True)(state())
    assert type(found.blocks) is net.Block
    assert found.blocks.up.kernel.shape == (4, 3, 2)


def test_the_leading_axis_has_one_size_for_everything_that_names_it():
    ((code, path, message),) = wrong(lambda: state(n=4, heads=[dense(3, 1)] * 3))
    assert (code, path) == ("NQX413", "$.heads")
    assert message.splitlines()[0] == "expected list[n=4], got list[3]"
    blocks = state().blocks
    shorter = jax.tree.map(lambda x: x, blocks)
    longer = {
        "experts": {
            "x": net.Dense.__nqx_assemble__(
                {"kernel": jnp.ones((5, 3, 3)), "bias": jnp.ones((4, 3))}
            )
        }
    }
    torn = net.Block.__nqx_assemble__({**shorter._nqx_values(), **longer})
    ((code, path, message),) = wrong(lambda: state(blocks=torn))
    assert (code, path) == ("NQX413", "$.blocks.experts['x'].kernel")
    assert "expected float32[n=4, a=3, b=3], got float32[5, 3, 3]" in message


def test_a_single_struct_is_no_stacked_one_and_the_other_way_round():
    found = wrong(lambda: state(blocks=block()))
    assert ("NQX412", "$.blocks.up.kernel") in [each[:2] for each in found]
    assert "expected float32[n, a=3, b], got float32[3, 2]" in found[0][2]
    assert wrong(lambda: state(blocks=[block()]))[0][1] == "$.blocks"
    # By itself, a stacked struct is checked as a single one.
    stacked = s.stack([block(), block(1)])
    with pytest.raises(s.ValidationError):
        stacked.replace(rate=0.25)
    with pytest.raises(s.StructError):
        s.to_state_dict(stacked)


def test_constraints_hold_for_each_layer():
    blocks = s.stack([block(0), block(1)])
    one = net.Block.__nqx_assemble__({**blocks._nqx_values(), "scale": jnp.array([1.0, -1.0])})
    ((code, path, message),) = wrong(lambda: state(blocks=one, n=2))
    assert (code, path) == ("NQX416", "$.blocks")
    assert "all(scale > 0)" in message
    two = net.Block.__nqx_assemble__({**blocks._nqx_values(), "rate": 2.0})
    assert "expected rate < 1, got rate = 2.0" in wrong(lambda: state(blocks=two, n=2))[0][2]
    vectors = net.Block.__nqx_assemble__({**blocks._nqx_values(), "scale": jnp.ones((2, 2))})
    assert "shape(scale)" in wrong(lambda: state(blocks=vectors, n=2))[0][2]


def test_conditions_on_the_numbers_of_very_many_layers_are_refused():
    blocks = s.stack([block(0, d=3)])
    many = jax.tree.map(lambda x: jnp.repeat(x, 10_001, axis=0), blocks)
    found = wrong(lambda: state(blocks=many, heads=[]))
    assert "NQX507" in [each[0] for each in found]


def test_no_layer_at_all():
    none = jax.tree.map(lambda x: x[:0], s.stack([block()]))
    built = state(blocks=none, n=0)
    assert s.unstack(built.blocks) == []
    assert s.from_state_dict(s.to_state_dict(built), load_cls=net.Net) == built


def test_stacked_structs_inside_of_stacked_ones():
    inner = s.stack(
        [net.Inner(block=s.stack([block(i) for i in range(3)]), w=jnp.ones(3)) for _ in range(2)]
    )
    built = state(others=[inner])
    assert inner.block.up.kernel.shape == (2, 3, 3, 2)
    assert s.from_state_dict(s.to_state_dict(built), load_cls=net.Net) == built
    swapped = net.Inner.__nqx_assemble__({"block": inner.block, "w": jnp.ones((3, 2))})
    ((code, path, _),) = wrong(lambda: state(others=[swapped]))[:1]
    assert (code, path) == ("NQX412", "$.others[0].w")


def test_lists_of_a_length():
    ((code, path, message),) = wrong(lambda: state(table=[1, 2]))
    assert (code, path) == ("NQX412", "$.table")
    assert message == "expected list[3], got list[2]"
    assert wrong(lambda: state(table=None))[0][:2] == ("NQX411", "$.table")


def test_hooks_run_for_single_instances_alone(tmp_path):
    seen = []

    def record(value):
        seen.append(value.shape)
        return value

    register_hook("record", record)
    schema = s.load_schema(
        '{"language": "1", "schema": "lab.hooks", "version": 1, "root": "A", "structs": {\n'
        '"A": {"fields": {"rows": "Row[][n]"}},'
        '"Row": {"fields": {"x": {"type": "float32[d]", "converter": "record"}}}}}'
    )
    rows = s.stack([schema.Row(x=jnp.zeros(2)), schema.Row(x=jnp.ones(2))])
    built = schema.A(rows=rows)
    built.export(tmp_path / "a")
    assert schema.load(tmp_path / "a") == built
    assert seen == [(2,), (2,)]


def test_examples_have_it():
    for key in range(5):
        built = s.example(net.Net, key=key)
        assert s.from_state_dict(s.to_state_dict(built), load_cls=net.Net) == built
        assert len(built.heads) == len(s.unstack(built.blocks))
    assert len(s.example(net.Net, dims={"n": 5}).heads) == 5


def test_documents_and_stubs_have_it():
    text = s.dump_schema(net)
    assert "Block[d][n]" in text and "list[Dense[d, 1], n]" in text and "Inner[][2]" in text
    assert s.load_schema(text).document == net.document
    assert s.schema_of(net.Net) == net.document
    stub = stub_module(net.document, "net")
    assert "blocks: Block\n" in stub
    assert "others: list[Inner] | None" in stub


def test_json_schemas_have_it(tmp_path):
    schema = payload_schema(net.document)
    state().export(tmp_path / "a")
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    jsonschema.validate(manifest, schema)
    assert "lab.net@1:Dense.stacked" in schema["definitions"]
    assert "lab.net@1:Dense.stacked2" in schema["definitions"]
    for break_it in (
        lambda fields: fields["blocks"]["fields"]["up"]["fields"]["kernel"]["shape"].pop(),
        lambda fields: fields["table"]["items"].pop(),
    ):
        broken = json.loads(json.dumps(manifest))
        break_it(broken["manifest"]["fields"])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_dicts_become_stacked_structs():
    built = state()
    assert s.from_dict(built.to_dict(recursive=True), net) == built


ENSEMBLE = """
language: "1"
schema: lab.ensemble
version: 1
root: Ensemble
dtypes: {compute: [float32, bfloat16]}
structs:
  Moments: {params: [n], fields: {mu: "compute[n]", count: "int32[]"}}
  State:
    fields:
      w: compute[n, m]
      moments: Moments[m]
      rate: {type: float, kind: static, default: 0.5}
      size: {type: int, kind: static, derived: n * m}
  Ensemble: {fields: {members: "State[][k]"}}
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_vmapped_copy_of_a_state_is_described_saved_and_loaded(tmp_path, dtype):
    schema = s.load_schema(ENSEMBLE)

    def first(seed):
        w = jnp.full((2, 3), seed, dtype)
        moments = schema.Moments(mu=jnp.zeros(3, dtype), count=jnp.zeros((), jnp.int32))
        return schema.State(w=w, moments=moments)

    members = jax.vmap(first)(jnp.arange(4.0))
    made = schema.Ensemble(members=members)
    path = made.export(tmp_path / "ckpt")
    assert s.validate(path) == []
    loaded = schema.load(path)
    assert loaded == made and loaded.members.size == 6
    assert s.unstack(loaded.members, 2) == first(2.0)


def test_a_stacked_struct_has_subscripts():
    blocks = [block(i) for i in range(3)]
    stacked = s.stack(blocks)
    assert [stacked[0], stacked[-1]] == [blocks[0], blocks[2]]
    assert stacked[1:] == s.unstack(stacked, slice(1, None)) == s.stack(blocks[1:])
    assert stacked.up[np.int64(1)] == blocks[1].up  # a struct inside
    traced = jax.jit(lambda held, i: held[i].rng)(stacked, 1)
    assert jax.random.key_data(traced).tolist() == jax.random.key_data(blocks[1].rng).tolist()
    for index in ([0, -1], np.array([0, 2]), jnp.array([0, 2]), [True, False, True]):
        assert stacked[index] == s.unstack(stacked, index) == s.stack([blocks[0], blocks[2]])
    assert stacked[[]] == stacked[:0]
    assert jax.jit(lambda held, i: held[i])(stacked, jnp.array([0, 2])) == stacked[[0, 2]]
    for index in (3, -4, [0, 3], np.array([-4])):
        with refused(IndexError, 3):
            stacked[index]
    with refused(IndexError, 3):
        stacked[np.array([True])]
    for index in ("a", None, (0, 1), np.array([0.5]), [[0], [1, 2]], ...):
        with pytest.raises(TypeError):
            stacked[index]
    with refused(s.ValidationError, "NQX432", "$.up.bias"):
        blocks[0][0]  # its scale has no axes


def test_no_struct_is_iterable_and_other_structs_have_no_subscripts():
    with pytest.raises(TypeError, match=type(block()).__name__):
        iter(s.stack([block(), block(1)]))
    assert np.asarray(block()).shape == ()
    assert not hasattr(net.Net, "__getitem__")


def test_stubs_declare_the_subscripts():
    text = stub_module(net.document, "net")
    index = "index: typing.SupportsIndex | slice, /"
    assert text.count(f"def __getitem__(self, {index}) -> typing.Self: ...") == 2 + 1
