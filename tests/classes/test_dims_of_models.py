"""Sizes of whole instances of schemas: where they agree, where they do not, and what the messages tell."""

import jax
import jax.numpy as jnp
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import StructError
from tests.builders import every, refused


def schema(dims, structs, root="Net"):
    return s.load_schema(
        f'language: "1"\nschema: lab.sizes\nversion: 1\nroot: {root}\ndims: {dims}\nstructs: {structs}\n'
    )


def zeros(*shape, dtype=jnp.float32):
    return jnp.zeros(shape, dtype)


# Attention: one equation over two dims, blocks in a list.
ATTENTION = schema(
    "{d: {min: 2, max: 64}, heads: {min: 1}, width: {equals: d // heads}}",
    """
  Block: {fields: {q: "float32[d, heads, width]", norm: "float32[d]"}}
  Net: {fields: {embed: "float32[vocab, d]", blocks: "list[Block]", head: "float32[d, vocab]"}}
""",
)
# A parameterised struct used with other sizes, inside dicts of lists.
DENSE = schema(
    "{d: {}, ff: {equals: 4 * d}}",
    """
  Dense: {params: [n_in, n_out], fields: {w: "float32[n_in, n_out]", b: "float32[n_out]"}}
  Mlp: {fields: {up: "Dense[d, ff]", down: "Dense[ff, d]"}}
  Net: {fields: {experts: "dict[str, list[Mlp]]", gate: "float32[d, n_experts]"}}
""",
)
# Sizes from a static int of the root, local names in nested lists.
GRID = schema(
    "{sites: {equals: side * side}}",
    """
  Chain: {fields: {spins: "int8[steps, sites]", energy: "float32[steps]"}}
  Net: {fields: {side: {type: int, kind: static}, runs: "list[list[Chain]]"}}
""",
)


def block(d=8, heads=2, width=4, norm=None):
    return ATTENTION.Block(q=zeros(d, heads, width), norm=zeros(norm or d))


def attention(*blocks, d=8, vocab=5, out=5):
    return ATTENTION.Net(embed=zeros(vocab, d), blocks=list(blocks), head=zeros(d, out))


def dense(n_in, n_out, b=None):
    return DENSE.Dense(w=zeros(n_in, n_out), b=zeros(b or n_out))


def experts(**more):
    return DENSE.Net(experts={name: [mlp] for name, mlp in more.items()}, gate=zeros(2, 3))


def mlp(up=(2, 8), down=(8, 2)):
    return DENSE.Mlp(up=dense(*up), down=dense(*down))


def chain(steps, sites, energy=None):
    return GRID.Chain(spins=zeros(steps, sites, dtype=jnp.int8), energy=zeros(energy or steps))


def grid(side, *runs):
    return GRID.Net(side=side, runs=list(runs))


AGREE = {
    "no blocks": lambda: attention(),
    "blocks": lambda: attention(block(), block()),
    "experts": lambda: experts(a=mlp(), b=mlp()),
    "chains of their own lengths": lambda: grid(2, [chain(3, 4), chain(5, 4)], [], [chain(1, 4)]),
}


@pytest.mark.parametrize("case", AGREE)
def test_sizes_that_agree_also_after_a_round_trip(case, tmp_path):
    made = AGREE[case]()
    assert s.load(made.export(tmp_path / "c")) == made


# What is built; the message of each finding by its path. Structs are checked as soon as they are built.
DISAGREE = {
    "a block of another width": (
        lambda: attention(block(), block(d=6, width=3)),
        {
            "$.blocks[1].q": "expected float32[d=8, heads=2, width=4], got float32[6, 2, 3]\n"
            "d = 8 was fixed by $.embed axis 1\nwidth = 4 was fixed by $.blocks[0].q axis 2",
            "$.blocks[1].norm": "expected float32[d=8], got float32[6]\nd = 8 was fixed by $.embed axis 1",
        },
    ),
    "another vocabulary": (
        lambda: attention(out=7),
        {
            "$.head": "expected float32[d=8, vocab=5], got float32[8, 7]\nvocab = 5 was fixed by $.embed axis 0"
        },
    ),
    "an equation": (
        lambda: block(width=3),
        {
            "$.q": "expected float32[d=8, heads=2, width=4], got float32[8, 2, 3]\n"
            "width = d // heads = 4, d from $.q axis 0, heads from $.q axis 1"
        },
    ),
    "an equation that a parameter stands for": (
        lambda: mlp(up=(2, 6), down=(6, 2)),
        {
            "$.up.w": "expected float32[n_in=2, n_out=8], got float32[2, 6]\nff = 4 * d = 8, d from $.up.w axis 0"
        },
    ),
    "a parameter": (
        lambda: mlp(down=(8, 3)),
        {
            "$.down.w": "expected float32[n_in=8, n_out=2], got float32[8, 3]\nn_out = d = 2 was fixed by $.up.w axis 0",
            "$.down.b": "expected float32[n_out=2], got float32[3]\nn_out = d = 2 was fixed by $.up.w axis 0",
        },
    ),
    "a static int of the root": (
        lambda: grid(3, [chain(2, 4)]),
        {
            "$.runs[0][0].spins": "expected int8[steps=2, sites=9], got int8[2, 4]\n"
            "sites = side * side = 9, side from $.side"
        },
    ),
    "a name of one struct alone": (
        lambda: chain(2, 4, energy=3),
        {
            "$.energy": "expected float32[steps=2], got float32[3]\nsteps = 2 was fixed by $.spins axis 0"
        },
    ),
    "below a bound": (
        lambda: attention(d=1),
        {"$.embed": "expected d >= 2, got 1\nd = 1 was fixed by $.embed axis 1"},
    ),
    "above a bound": (
        lambda: attention(d=65),
        {"$.embed": "expected d <= 64, got 65\nd = 65 was fixed by $.embed axis 1"},
    ),
}


@every("case", DISAGREE)
def test_sizes_that_do_not_agree(case):
    build, expected = DISAGREE[case]
    with pytest.raises(StructError) as caught:
        build()
    assert {d.path: d.message for d in caught.value.diagnostics} == expected
    assert {d.code for d in caught.value.diagnostics} == {"NQX413"}


def test_loading_checks_the_sizes_of_all_arrays():
    """A payload of another hand: each array is sound, and they do not fit together."""
    data, other = (
        s.to_state_dict(attention(block())),
        s.to_state_dict(attention(block(d=6, width=3), d=6)),
    )
    data["manifest"]["fields"]["blocks"] = other["manifest"]["fields"]["blocks"]
    for part in ("arrays", "array_data"):
        data[part] |= {
            name: value for name, value in other[part].items() if name.startswith("blocks/")
        }
    with pytest.raises(StructError) as caught:
        s.from_state_dict(data)
    assert {(d.code, d.path) for d in caught.value.diagnostics} == {
        ("NQX413", "$.blocks[0].q"),
        ("NQX413", "$.blocks[0].norm"),
    }
    assert all("$.embed axis 1" in d.message for d in caught.value.diagnostics)


def test_under_tracing_shapes_are_checked_and_values_are_not():
    cls = schema(
        "{n: {}}",
        '{Net: {fields: {w: "float32[n]", b: "float32[n]"}, constraints: [{expr: all(w > 0)}]}}',
    ).Net

    @jax.jit
    def shifted(x, y):
        return cls(w=x, b=y).w

    assert shifted(-jnp.ones(3), jnp.ones(3)).tolist() == [-1, -1, -1]
    with refused(StructError, "NQX413", "$.b", "n = 3"):
        shifted(jnp.ones(3), jnp.ones(4))
    with pytest.raises(StructError) as caught:
        cls(w=-jnp.ones(3), b=jnp.ones(3))
    assert [d.code for d in caught.value.diagnostics] == ["NQX416"]


SCOPES = """
language: "1"
schema: lab.scopes
version: 1
root: Net
dims: {n: {equals: p + 1}, p: {}, m: {}}
structs:
  Dense:
    params: [n, k]
    fields: {w: "float32[n, k]", own: "float32[p]", m: {type: bool, kind: static}}
  Net:
    fields: {a: "Dense[_, _]", b: "Dense[_, _]", p: "int8[m]"}
"""


def test_a_parameter_hides_a_dim_any_is_no_size_and_only_static_ints_of_the_root_are_sizes():
    schema = s.load_schema(SCOPES)
    dense = [
        schema.Dense(w=jnp.ones(shape, "f4"), own=jnp.ones(4, "f4"), m=False)
        for shape in ((2, 3), (5, 4))
    ]
    net = schema.Net(a=dense[0], b=dense[1], p=jnp.ones(1, "i1"))
    assert s.to_state_dict(net)["manifest"]["fields"].keys() == {"a", "b", "p"}
