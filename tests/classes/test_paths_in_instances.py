"""Constraints and derived fields that reach into structs, tuples, lists and dicts: live, stored and traced."""

import jax
import jax.numpy as jnp
import pytest

import neuralqx_struct as s
from tests.builders import refused, stands_in

SCHEMA = """
language: "1"
schema: test.reaching
version: 1
root: Net
dims: {nx: {}, nt: {min: 1}, area: {equals: nx * nt}}
structs:
  Adam:
    fields:
      step: {type: int, kind: static}
      mu: "float32[nx]"
  Layer:
    fields:
      w: "float32[a, b]"
      rate: float | null
      width: {type: int, kind: static}
      n: {type: int, derived: a * b}
  Net:
    fields:
      adam: Adam | null
      step: {type: int, kind: static}
      layers: list[Layer]
      more: {type: "dict[str, list[Layer]]", default: {}}
      extent: {type: "tuple[int, int]", kind: static}
      x: "float32[nx, nt]"
      total: {type: int, derived: nx * nt}
      same: {type: int, derived: area + 0}
      volume: {type: int, derived: "extent[0] * extent[1]"}
      widths: {kind: static, derived: layers.width}
      n_weights: {type: int, derived: sum(layers.n) + sum(more.n)}
      norm: {kind: opaque, derived: sum(layers.w ** 2)}
      late: {type: int, derived: adam.step if adam != null else -1}
    constraints:
      - {expr: adam.step <= step, message: the optimizer is ahead}
      - {expr: "all(layers.width == shape(layers.w)[1])"}
      - {expr: all(0 < layers.rate < 1)}
      - {expr: n_weights < 100}
""".replace("null else", "None else").replace("!= null", "!= None")


@pytest.fixture
def schema():
    return s.load_schema(SCHEMA)


def make(schema, **values):
    def layer(rows, width=3, rate=None):
        return schema.Layer(w=jnp.ones((rows, 3)), width=width, rate=rate)

    given = {
        "adam": schema.Adam(step=2, mu=jnp.ones(4)),
        "step": 3,
        "layers": [layer(2), layer(5, rate=0.5)],
        "extent": (2, 3),
        "x": jnp.ones((4, 7)),
    }
    return schema.Net(**{**given, **{k: v(layer) if callable(v) else v for k, v in values.items()}})


def test_derived_fields(schema):
    net = make(schema, more=lambda layer: {"a": [layer(1)], "b": []})
    assert (net.total, net.same, net.volume, net.widths) == (28, 28, 6, (3, 3))
    assert (net.n_weights, net.norm, net.late) == (24, 21.0, 2)
    assert make(schema, adam=None).late == -1
    assert make(schema, layers=[]).widths == ()


WRONG = [
    ({"step": 1}, ["adam.step <= step", "adam.step = 2", "step = 1"]),
    ({"layers": lambda layer: [layer(2), layer(2, width=4)]}, ["layers.width = (3, 4)"]),
    ({"layers": lambda layer: [layer(2, rate=2.0)]}, ["layers.rate = (2.0)"]),
    ({"layers": lambda layer: [layer(50)]}, ["n_weights < 100", "n_weights = 150"]),
    ({"more": lambda layer: {"a": [layer(40)]}}, ["n_weights = 141"]),
]


@pytest.mark.parametrize(("values", "named"), WRONG)
def test_constraints(schema, values, named, tmp_path):
    with refused(s.ValidationError, "NQX416", *named):
        make(schema, **values)
    # A valid instance that differs in the values alone is no precedent.
    make(schema)
    with pytest.raises(s.ValidationError):
        make(schema, **values)
    # Constraints are outside of the fingerprint of payloads: files may come from a version without them.
    loose = s.load_schema(SCHEMA.partition("    constraints:")[0])
    path = make(loose, **values).export(tmp_path / "net")
    (found,) = s.validate(path, schema)
    assert found.code == "NQX416" and all(stands_in(each, found.message) for each in named)
    with refused(s.StructError, "NQX416"):
        schema.load(path)


def test_null_on_the_way_leaves_a_condition_open(schema):
    make(schema, adam=None, step=-5)
    make(schema, layers=[])


def test_transformations(schema):
    net = make(schema)

    @jax.jit
    def run(net):
        made = net.replace(x=net.x * 2)
        assert (made.total, made.volume, made.widths, made.n_weights) == (28, 6, (3, 3), 21)
        assert isinstance(made.norm, jax.core.Tracer)
        return made.norm + made.total

    assert run(net) == 49
    grads = jax.grad(lambda net: net.norm)(net)
    assert (grads.layers[0].w == 2).all()
    assert (grads.total, grads.widths) == (28, (3, 3))
    totals = jax.vmap(lambda x: net.replace(x=x).total * x.sum())(jnp.ones((5, 4, 7)))
    assert totals.shape == (5,)
    last, seen = jax.lax.scan(lambda c, _: (c.replace(x=c.x + 1), c.norm + c.total), net, None, 3)
    assert (last.total, seen.shape) == (28, (3,))
    shapes = jax.eval_shape(lambda net: net.replace(x=net.x), net)
    assert shapes.total == 28


def test_files(schema, tmp_path):
    net = make(schema)
    path = net.export(tmp_path / "net")
    assert s.validate(path, schema) == []
    back = schema.load(path)
    assert back == net
    assert (back.total, back.n_weights) == (28, 21)
    assert s.load_schema(s.dump_schema(schema)).document == schema.document


def test_fields_that_take_any_value_count_in_sizes():
    schema = s.load_schema("""
language: "1"
schema: test.counted
version: 1
root: A
structs:
  Inner: {fields: {w: pytree}}
  A: {fields: {inner: Inner}, constraints: [{expr: size(inner) < 5}]}
""")
    schema.A(inner=schema.Inner(w=jnp.ones(3)))
    with refused(s.ValidationError, "NQX416", "size(inner) = 8"):
        schema.A(inner=schema.Inner(w=jnp.ones(8)))


def test_structs_that_hold_themselves():
    schema = s.load_schema("""
language: "1"
schema: test.nodes
version: 1
root: Node
structs:
  Node:
    fields:
      n: {type: int, kind: static}
      below: list[Node]
      depth: {type: int, derived: "1 + max(0, max(below.depth)) if len(below) > 0 else 1"}
      total: {type: int, derived: n + sum(below.total)}
    constraints: [{expr: all(below.n < n)}, {expr: depth < 4}]
""")

    def chain(*numbers):
        below = [chain(*numbers[1:])] if len(numbers) > 1 else []
        return schema.Node(n=numbers[0], below=below)

    assert (chain(3, 2, 1).depth, chain(3, 2, 1).total) == (3, 6)
    with refused(s.ValidationError, "NQX416", "below.n = (3)"):
        chain(3, 3)
    with refused(s.ValidationError, "NQX416", "depth = 4"):
        chain(4, 3, 2, 1)


def test_sizes_that_no_array_shows():
    schema = s.load_schema("""
language: "1"
schema: test.unshown
version: 1
root: A
structs: {A: {fields: {xs: "list[float32[n]]", twice: {type: int, derived: 2 * n}}}}
""")
    assert schema.A(xs=[jnp.ones(3)]).twice == 6
    with refused(s.SchemaError, "NQX116", "n"):
        schema.A(xs=[])


def test_wrong_shapes_are_reported_before_the_sizes_that_they_do_not_show():
    schema = s.load_schema("""
language: "1"
schema: test.misshapen
version: 1
root: A
dims: {d: {}, n_layers: {}}
structs:
  Layer: {params: [d], fields: {w: "float32[d]"}}
  A: {fields: {layers: "Layer[d][n_layers]", width: {type: int, derived: d * n_layers}}}
""")
    layer = schema.Layer(w=jnp.ones(3))
    assert schema.A(layers=s.stack([layer, layer])).width == 6
    with pytest.raises(s.ValidationError) as caught:
        schema.A(layers=layer)
    message = caught.value.diagnostics[0].message
    assert "float32[n_layers, d]" in message and "float32[3]" in message


def test_stacked_structs():
    schema = s.load_schema("""
language: "1"
schema: test.stacked_paths
version: 1
root: A
dims: {d: {}, n: {}}
structs:
  Layer:
    params: [a]
    fields: {w: "float32[a, a]", k: {type: int, kind: static}, r: "float32[]"}
    constraints: [{expr: r > 0}]
  A:
    fields: {stacked: "Layer[d][n]", layers: "list[Layer[d], n]", k: {type: int, kind: static}}
    constraints:
      - {expr: stacked.k == k}
      - {expr: all(layers.k == k)}
      - {expr: "shape(stacked.w)[0] == n"}
      - {expr: all(layers.r < stacked.r)}
""")

    def layers(*numbers):
        return [schema.Layer(w=jnp.ones((3, 3)), k=2, r=jnp.float32(r)) for r in numbers]

    made = schema.A(stacked=s.stack(layers(2, 3)), layers=layers(1, 1), k=2)
    with refused(s.ValidationError, "NQX416", "stacked.k = 2"):
        made.replace(k=3)
    with refused(s.ValidationError, "NQX416", "all(layers.r < stacked.r)"):
        made.replace(layers=layers(1, 3))


def test_examples_keep_bounds_on_paths():
    schema = s.load_schema("""
language: "1"
schema: test.path_bounds
version: 1
root: A
structs:
  Config: {fields: {rate: float, deep: "Deep | null"}}
  Deep: {fields: {n: {type: int, kind: static}, w: "float32[2]"}}
  A:
    fields: {config: Config, all: "list[Config]", extent: {type: "tuple[int, int]", kind: static}}
    constraints:
      - {expr: 0 < config.rate <= 0.001}
      - {expr: all(100 < all.rate)}
      - {expr: config.deep.n > 70 and all(all.deep.n < -5)}
      - {expr: all(abs(all.deep.w) < 0.01)}
      - {expr: "extent[1] >= 50"}
""")
    for key in range(5):
        made = s.example(schema.A, key=key)
        assert made.extent[1] >= 50


@pytest.mark.parametrize("count", [1, 50, 3000])
def test_conditions_on_many_items_are_checked_or_refused(count):
    schema = s.load_schema("""
language: "1"
schema: test.many_items
version: 1
root: A
structs:
  Layer: {fields: {width: {type: int, kind: static}}}
  A: {fields: {layers: "list[Layer]"}, constraints: [{expr: all(layers.width == 4)}]}
""")
    layers = [schema.Layer(width=4)] * count
    if count < 3000:
        schema.A(layers=layers)
        with refused(s.ValidationError, "NQX416", "layers.width"):
            schema.A(layers=[*layers, schema.Layer(width=5)])
    else:
        with refused(s.ValidationError, "NQX416", "layers.width"):
            schema.A(layers=layers * 3)
