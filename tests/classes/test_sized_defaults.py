"""Defaults of arrays whose sizes the other fields of an instance fix."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.classes.compiler import register_hook
from neuralqx_struct.tools.linting import lint
from tests.builders import refused

HEAD = 'language: "1"\nschema: lab.sized\nversion: 1\nroot: Net\n'
NET = (
    HEAD
    + """
dims:
  n: {}
  twice: {equals: 2 * n}
  heads: {equals: n_heads}
structs:
  Dense:
    params: [a, b]
    fields: {kernel: "float32[a, b]", bias: {type: "float32[b]", default: zeros}}
  Net:
    fields:
      x: float32[n]
      n_heads: {type: int, kind: static, default: 3}
      first: Dense[n, h]
      hidden: list[Dense[h, h]]
      identity: {type: "float32[n, n]", default: {eye: n}}
      ones: {type: "int8[n, twice]", default: ones}
      fill: {type: "float32[h, heads] | null", default: {fill: 0.5}}
      fixed: {type: "float32[2, 2]", default: {eye: 2}}
      scratch: {type: "float32[h + 1]", default: 2, serialize: false}
"""
)
schema = s.load_schema(NET)


def dense(a=3, b=4):
    return schema.Dense(kernel=jnp.ones((a, b)))


def net(**more):
    return schema.Net(**{"x": jnp.ones(3), "first": dense(), "hidden": []} | more)


def test_sizes_come_from_the_other_fields():
    made = net()
    np.testing.assert_array_equal(made.identity, np.eye(3, dtype="float32"))
    np.testing.assert_array_equal(made.ones, np.ones((3, 6), "int8"))
    np.testing.assert_array_equal(made.fill, np.full((4, 3), 0.5, "float32"))
    np.testing.assert_array_equal(made.fixed, np.eye(2, dtype="float32"))
    assert made.first.bias.tolist() == [0.0] * 4
    assert made.scratch.shape == (5,)
    assert {type(leaf) for leaf in jax.tree.leaves(made)} == {type(jnp.ones(1))}
    assert net(n_heads=1).fill.shape == (4, 1)
    assert net(identity=jnp.zeros((3, 3))).identity.sum() == 0
    assert net(fill=None).fill is None


def test_they_are_made_in_loads_dicts_copies_and_under_jit(tmp_path):
    made = net()
    made.export(tmp_path / "a")
    assert s.validate(tmp_path / "a", schema) == []
    assert schema.load(tmp_path / "a") == made
    abstract = schema.load(tmp_path / "a", abstract=True)
    assert abstract.identity.shape == (3, 3)
    assert abstract.scratch.shape == (5,)
    assert s.from_dict({"x": made.x, "first": made.first, "hidden": []}, schema) == made
    assert made.replace(n_heads=3) == made
    assert jax.jit(lambda kernel: schema.Dense(kernel=kernel).bias)(jnp.ones((2, 5))).shape == (5,)
    assert s.example(schema.Net, dims={"n": 2, "h": 7}).first.kernel.shape == (2, 7)


def test_other_fields_that_do_not_fix_the_sizes():
    loose = s.load_schema(
        HEAD
        + "structs:\n  Net:\n    fields:\n"
        + '      x: "list[float32[n]]"\n      y: {type: "float32[n]", default: 0}\n'
    )
    assert loose.Net(x=[jnp.ones(2)]).y.shape == (2,)
    with pytest.raises(s.ValidationError) as caught:
        loose.Net(x=[])
    (found,) = caught.value.diagnostics
    assert (found.code, found.path, found.hint) == ("NQX108", "$.y", "pass the array")


def test_unknown_sizes_hide_no_other_fault():
    """All problems of one instance come at once, those that may be the reason first."""
    schema = s.load_schema(
        HEAD
        + "structs:\n  Net:\n    constraints: [{expr: step >= 0}, {expr: 'all(y >= 0)'}]\n    fields:\n"
        + '      x: "float32[n, m]"\n      step: {type: int, default: 0}\n'
        + "      name: {type: str, kind: static, default: a, max_length: 3}\n"
        + '      y: {type: "float32[n]", default: 0}\n      z: {type: "float32[m]", default: 1}\n'
    )
    with pytest.raises(s.ValidationError) as caught:
        schema.Net(x=jnp.ones(3), step=-1, name="abcdef")
    found = [(each.code, each.path) for each in caught.value.diagnostics]
    wanted = [("NQX412", "$.x"), ("NQX416", "$.name"), ("NQX416", "$")]
    assert found == [*wanted, ("NQX108", "$.y"), ("NQX108", "$.z")]


def test_sizes_that_disagree_are_reported_as_for_arrays_that_are_given():
    with refused(s.ValidationError, "NQX413", "$.first.kernel", "float32"):
        net(first=dense(a=2))


def test_too_large_a_default_is_refused():
    wide = s.load_schema(
        HEAD
        + "structs:\n  Net:\n    fields:\n"
        + '      n: {type: int, kind: static}\n      y: {type: "float32[n, n]", default: 0}\n'
    )
    assert wide.Net(n=2).y.shape == (2, 2)
    with pytest.raises(s.ValidationError) as caught:
        wide.Net(n=100_000)
    assert caught.value.diagnostics[0].code == "NQX109"
    with pytest.raises(s.ValidationError):
        wide.Net(n=-1)


def test_converters_and_validators_see_the_array():
    seen = []

    def convert(value):
        seen.append(value.shape)
        return value + 1

    register_hook("plus_one", convert)
    register_hook("positive", lambda value: bool((value > 0).all()))
    hooked = s.load_schema(
        HEAD
        + "structs:\n  Net:\n    fields:\n      x: float32[n]\n"
        + '      y: {type: "float32[n]", default: 0, converter: plus_one, validator: positive}\n'
    )
    assert hooked.Net(x=jnp.ones(2)).y.tolist() == [1.0, 1.0]
    assert seen == [(2,)]


def findings(fields, folder):
    path = folder / "v1.yaml"
    path.write_text(f"{HEAD}structs:\n  Net: {{fields: {{{fields}}}}}\n")
    return [d.code for d in lint(path) if d.severity == "error"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ('x: {type: "float32[n]", default: 0}', "NQX108"),
        ('x: {type: "float32[n]", default: 0}, y: {type: "float32[n]", default: 1}', "NQX108"),
        ('x: {type: "float32[n]", default: [1, 2]}, y: "float32[n]"', "NQX108"),
        ('x: {type: "float32[n, m]", default: {eye: n}}, y: "float32[n, m]"', "NQX107"),
        ('x: {type: "float32[n]", default: {eye: n}}, y: "float32[n]"', "NQX107"),
        ('x: {type: "float32[n, n]", default: {eye: []}}, y: "float32[n]"', "NQX107"),
        ('x: {type: "float32[100000, 100000]", default: {eye: 100000}}', "NQX109"),
    ],
)
def test_lint_refuses(fields, code, tmp_path):
    assert {*findings(fields, tmp_path)} == {code}


@pytest.mark.parametrize(
    "fields",
    [
        'x: {type: "float32[n]", default: 0}, y: "float32[n]"',
        'x: {type: "float32[2 * n]", default: 0}, y: "list[int, n]"',
        'x: {type: "float32[n]", default: 0}, n: {type: int, kind: static}',
    ],
)
def test_lint_takes(fields, tmp_path):
    assert findings(fields, tmp_path) == []


def test_sizes_of_defaults_that_equations_give_backwards_or_inner_structs_show():
    data = {"language": "1", "schema": "tests.rope", "version": 1, "root": "A"}
    data["dims"] = {"d": {"equals": "heads * head"}, "head": {}, "inner": {}}
    fields = {"heads": {"type": "int", "kind": "static"}, "x": "float32[d]", "b": "B"}
    fields["rope"] = {"type": "float32[head, head]", "default": {"eye": "head"}}
    fields["more"] = {"type": "float32[inner]", "default": "ones"}
    structs = {"A": {"fields": fields}, "B": {"fields": {"w": "float32[inner]"}}}
    made = s.load_schema(json.dumps(data | {"structs": structs}, indent=1))
    state = made.A(heads=2, x=jnp.ones(6), b=made.B(w=jnp.ones(5)))
    assert (state.rope.shape, state.more.shape) == ((3, 3), (5,))


IMAGES = """
language: "1"
schema: tests.images
version: 1
root: Net
dims: {patches: {equals: "(image[0] // patch) * (image[1] // patch)"}}
structs:
  Dense: {params: [a, b], fields: {kernel: "float32[a, b]", scale: {type: float, kind: static, default: 1}}}
  Net:
    fields:
      image: {type: "tuple[int, int]", kind: static}
      patch: {type: int, kind: static, default: 4}
      positions: {type: "float32[patches + 1, 2]", default: zeros}
      inner: Dense[n, hidden]
      gates: {type: int, derived: 4 * hidden}
    constraints: [{expr: hidden <= 8}]
"""


def test_sizes_that_equations_read_from_items_of_the_root():
    schema = s.load_schema(IMAGES)
    made = schema.Net(image=(8, 12), inner=schema.Dense(kernel=jnp.ones((3, 5))))
    assert made.positions.shape == (7, 2)
    assert type(made.inner.scale) is float
    loop = IMAGES.replace("image[1] // patch", "shape(positions)[0]")
    with refused(s.SchemaError, "NQX108", "patches + 1"):
        s.load_schema(loop)


def test_sizes_that_are_only_passed_on_are_known_in_expressions():
    schema = s.load_schema(IMAGES)
    made = schema.Net(image=(8, 8), inner=schema.Dense(kernel=jnp.ones((3, 5))))
    assert made.gates == 20
    with refused(s.ValidationError, "NQX416", "hidden <= 8", "hidden = 9"):
        schema.Net(image=(8, 8), inner=schema.Dense(kernel=jnp.ones((3, 9))))
    with refused(s.SchemaError, "NQX116", "Net", "b"):
        s.load_schema(IMAGES.replace("hidden <= 8", "b <= 8"))
