"""Instances made from declarations alone: every type, sizes that fit, constraints that hold."""

import enum
import typing

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.tools.linting import lint_series
from tests.builders import cases, refused

HEAD = 'language: "1"\nschema: lab.sample\nversion: 1\nroot: A\n'


def schema(body):
    return s.load_schema(HEAD + body)


EVERY_TYPE = """
dims: {n: {min: 1, doc: rows}}
enums:
  Mode: [fast, slow]
structs:
  B: {params: [k], fields: {x: "float32[k, n]", "n": int}}
  A:
    fields:
      flag: bool
      count: {type: int, ge: 10, lt: 20, multiple_of: 5}
      rate: {type: float, gt: 0, le: 0.001}
      step: {type: float, ge: 1, multiple_of: 0.5}
      z: complex
      name: {type: str, min_length: 3, max_length: 4}
      short: {type: str, max_length: 0}
      code: {type: str, pattern: "[a-z]-[0-9]", examples: [a-1, b-2]}
      fixed: {type: str, pattern: "x+", default: xx}
      raw: bytes
      where: path
      dtype: dtype
      mode: Mode
      letter: 'literal["a", 1]'
      maybe: "float | null"
      many: "list[int]"
      table: "dict[str, float]"
      pair: "tuple[int, str]"
      row: "tuple[int, ...]"
      key: "prng_key[threefry2x32]"
      keys: "prng_key[rbg, 3]"
      any: pytree
      parts: "list[B[2 * n]]"
      below: {type: "int16[n]", lt: 0}
      handle: {kind: opaque, default: null}
      norm: {type: int, kind: static, derived: "size(below)"}
"""
EVERY_DTYPE = "\n".join(f"      a_{name}: '{name}[2, 3]'" for name in sorted(DTYPES))


@settings(max_examples=12, deadline=None)
@given(key=st.integers(0, 2**31))
def test_every_type(key):
    every = schema(EVERY_TYPE)
    made = s.example(every.A, key=key)
    assert (
        10 <= made.count < 20
        and 0 < made.rate <= 0.001
        and made.code in ("a-1", "b-2")
        and made.fixed == "xx"
    )
    assert 3 <= len(made.name) <= 4 and made.short == "" and made.row and made.letter in ("a", 1)
    assert (
        (np.asarray(made.below) < 0).all()
        and made.keys.shape == (3,)
        and made.norm == made.below.size
    )
    assert all(part.x.shape[0] == 2 * part.x.shape[1] for part in made.parts)
    assert s.example(every.A, key=key) == made
    assert s.from_state_dict(made.to_state_dict()) == made


def test_every_dtype(tmp_path):
    every = schema(f"structs:\n  A:\n    fields:\n{EVERY_DTYPE}\n")
    made = s.example(every.A)
    made.export(tmp_path / "ckpt")
    assert s.load(tmp_path / "ckpt") == made and s.validate(tmp_path / "ckpt") == []


SIZES = """
dims:
  n: {min: 3}
  m: {equals: alpha * n}
  top: {max: 1}
structs:
  A:
    fields:
      w: "float32[n, m]"
      alpha: {type: int, kind: static, gt: 0, lt: 4}
      v: "float32[..., top]"
      free: "float32[q, 2 * q, _]"
"""


def test_sizes_are_those_of_the_caller_and_the_equations():
    sizes = schema(SIZES)
    made = s.example(sizes.A, dims={"n": 7, "q": 2})
    assert (
        made.w.shape == (7, 7 * made.alpha)
        and made.free.shape[:2] == (2, 4)
        and made.v.shape[-1] <= 1
    )
    for key in range(cases(20)):
        assert s.example(sizes.A, key=jax.random.key(key)).w.shape[0] >= 3
    same = schema(SIZES.replace("alpha * n", "alpha").replace("lt: 4", "lt: 40"))
    assert all(s.example(same.A, dims={"m": 9}, key=key).alpha == 9 for key in range(5))
    with refused(s.SchemaError, "NQX103", "dims", "lab.sample", "o"):
        s.example(sizes.A, dims={"o": 1})
    with refused(s.ValidationError, "NQX413", "$.w", "float32"):
        s.example(sizes.A, dims={"n": 3, "m": 100})


def test_static_ints_of_the_root_are_those_of_the_caller():
    net = schema("""
dims: {width: {equals: n_heads * 2}}
structs:
  Inner: {fields: {n_layers: {type: int, kind: static}, w: "float32[width]"}}
  A:
    fields:
      n_heads: {type: int, kind: static, ge: 1, le: 8}
      depth: {type: "int | null", kind: static, default: null}
      inner: Inner
""")
    made = s.example(net.A, dims={"n_heads": 4, "depth": 7})
    assert (made.n_heads, made.depth, made.inner.w.shape) == (4, 7, (8,))
    with refused(s.SchemaError, "NQX103", "n_heads", "dims", "n_layers"):
        s.example(net.A, dims={"n_layers": 1})
    with refused(s.ValidationError, "NQX416", "<= 8", "9"):
        s.example(net.A, dims={"n_heads": 9})


@pytest.mark.parametrize("bounds", ["min: 700, max: 700", "min: 500", "max: 1"])
def test_ints_that_are_dims_have_the_bounds_of_these(bounds):
    made = schema(
        f"dims: {{d: {{equals: n, {bounds}}}}}\n"
        "structs:\n  A:\n    fields: {n: {type: int, kind: static}, x: 'float32[d]'}\n"
    )
    for key in range(5):
        found = s.example(made.A, key=key)
        assert found.x.shape == (found.n,)


def test_constraints_on_several_fields_are_met_by_drawing_again():
    both = schema(
        "structs:\n  A:\n    fields: {a: int, b: int}\n    constraints: [{expr: 'a < b and a + b > 9', message: 'no'}]\n"
    )
    assert all((m := s.example(both.A, key=key)).a < m.b for key in range(10))
    numbers = schema(
        "structs:\n  A:\n    fields: {a: float, b: 'int32[3]', c: int}\n    constraints:\n"
        "      - {expr: 'a == 1236.5 or a == 99', message: 'no'}\n"
        "      - {expr: 'c > 7 and all(b == 1236) or all(b == 1237)', message: 'no'}\n"
    )
    made = s.example(numbers.A, key=0)
    assert made.a in (1236.5, 99) and set(made.b.tolist()) <= {1236, 1237}
    never = schema(
        "structs:\n  A:\n    fields: {a: int}\n    constraints: [{expr: 'a < 0 and a > 0', message: 'never'}]\n"
    )
    with refused(s.ValidationError, "NQX416"):
        s.example(never.A)


def test_constraints_on_the_numbers_of_an_array_are_met():
    conditions = [
        "all(0 <= a <= 1)",
        "all(abs(b) <= 1e-3 * 2) and all(isfinite(b))",
        "5 < c",
        "all(2 > d)",
        "shape(a) > (1, 2)",
    ]
    many = schema(
        "structs:\n  A:\n    fields: {a: 'float32[9, 3]', b: 'float64[100]', c: int, d: 'int32[50]'}\n"
        f"    constraints: [{', '.join(f'{{expr: {c!r}}}' for c in conditions)}]\n"
    )
    for key in range(5):
        made = s.example(many.A, key=key)
        assert (
            made.a.min() >= 0
            and made.a.max() <= 1
            and abs(made.b).max() <= 0.002
            and made.c > 5
            and made.d.max() < 2
        )


def test_text_for_a_pattern_is_made_or_needs_examples():
    made = schema(
        'structs:\n  A:\n    fields: {a: {type: str, pattern: "run-[0-9]{2,}(/x+)?"}}\n'
    ).A
    assert all(s.example(made, key=key).a.startswith("run-") for key in range(5))
    pattern = schema("structs:\n  A:\n    fields: {a: {type: str, pattern: '\\p{Greek}+'}}\n")
    with refused(s.SchemaError, "NQX107", "A.a", "\\\\p{Greek}+"):
        s.example(pattern.A)


def test_structs_inside_themselves_end():
    tree = schema(
        'structs:\n  A:\n    fields: {left: "A | null", more: "list[A]", x: "float32[2]"}\n'
    )
    assert all(s.example(tree.A, key=key).x.shape == (2,) for key in range(10))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Inner(s.Struct):
    w: object
    n: int = 3


class Outer(s.Struct):
    inner: Inner
    many: list[Inner]
    colour: Colour
    act: typing.Literal["relu", "tanh"] = "relu"
    rate: float = s.field(default=0.1, validator=lambda rate: 0 <= rate <= 1)


def test_classes_of_python():
    made = s.example(Outer, key=5)
    assert type(made) is Outer and type(made.inner) is Inner and isinstance(made.colour, Colour)
    assert s.example(Outer, key=5) == made
    with refused(TypeError, "3", "example()"):
        s.example(3)


def test_a_subclass_of_a_schema_class_is_made_as_itself():
    base = schema('structs:\n  A:\n    fields: {x: "float32[2]"}\n').A

    class Own(base):
        def norm(self):
            return float((self.x**2).sum())

    assert s.example(Own).norm() > 0


def test_the_shipped_schema():
    for version in (1, 2, 3):
        cls = s.load_schema("schemas/vmc_state").at(version).root
        made = s.example(cls, dims={"n_sites": 6}, key=version)
        assert type(made) is cls


@pytest.mark.parametrize("wrong", ["schema", "instance"])
def test_what_was_likely_meant_is_named(wrong):
    loaded = schema("structs:\n  A: {fields: {a: int}}\n")
    with refused(TypeError, "example()"):
        s.example(loaded if wrong == "schema" else loaded.A(a=1))


def test_static_fields_of_any_type_hold_no_arrays():
    made = schema("structs:\n  A: {fields: {x: {type: pytree, kind: static}}}\n").A
    assert isinstance(s.example(made).x, int)


def test_lengths_that_a_constraint_gives_are_met():
    cls = schema(
        "dims: {width: {min: 3}}\n"
        "structs:\n"
        '  Layer: {fields: {w: "float32[k]"}}\n'
        "  A:\n"
        "    fields:\n"
        "      layers: list[Layer]\n"
        '      betas: "float32[T]"\n'
        '      alphas: "float32[T]"\n'
        "      table: 'dict[str, int]'\n"
        "      names: {type: 'tuple[str, ...]', kind: static}\n"
        '      rows: "float32[width]"\n'
        "      steps: {type: int, kind: static, choices: [40]}\n"
        "    constraints:\n"
        "      - {expr: steps == len(layers) and len(betas) == 2 * steps}\n"
        "      - {expr: len(table) == width}\n"
        "      - {expr: len(names) == len(layers)}\n"
    ).A
    made = s.example(cls, key=3)
    assert (len(made.layers), made.betas.shape, made.alphas.shape) == (40, (80,), (80,))
    assert len(made.table) == len(made.rows) and len(made.names) == 40


def test_structs_of_other_documents_have_dims_of_their_own(tmp_path):
    texts = {
        "optim": "dims: {n: {min: 7}}\nenums: {M: [a, b]}\nstructs:\n  A: {fields: {mu: 'float32[n]', m: M}}\n",
        "state": "uses: [lab.optim@1]\ndims: {n: {max: 3}}\nstructs:\n"
        "  A: {fields: {w: 'float32[n]', o: lab.optim.A, e: lab.optim.M}}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        head = f'language: "1"\nschema: lab.{name}\nversion: 1\nroot: A\n'
        (tmp_path / name / "v1.yaml").write_text(head + text)
    made = s.example(s.load_schema(tmp_path / "state").A)
    assert len(made.w) <= 3 and len(made.o.mu) >= 7 and {made.o.m, made.e} <= {"a", "b"}


class Adam(s.Struct, schema="lab.bound_adam", version=1):
    mu: object
    steps: int = s.field(static=True, default=3)


class Holder(s.Struct, schema="lab.bound_outer", version=1):
    adam: Adam


def test_structs_of_other_bound_classes():
    assert type(s.example(Holder).adam) is Adam


PLACES = """\
structs:
  Links: {fields: {phase: "float32[p, q]", names: "list[float]"}}
  Config: {fields: {heads: INT, width: INT, rate: float}}
  A:
    fields:
      links: Links
      w: float32[n, m]
      config: Config
      step: INT
      extent: {type: "tuple[int, int]", kind: static}
      layers: list[Config]
      scale: float
      rates: list[float]
    constraints:
      - {expr: "shape(links.phase)[0] == n * m"}
      - {expr: "m == shape(links.phase)[1]"}
      - {expr: "len(links.names) == n + 1"}
      - {expr: "config.heads == n"}
      - {expr: "config.width * 100 == step"}
      - {expr: "extent[0] == config.heads and extent[1] == config.width * step"}
      - {expr: "all(layers.width == config.width)"}
      - {expr: "len(layers) == config.heads"}
      - {expr: "config.rate == 2 * scale"}
      - {expr: "all(rates == scale)"}
""".replace("INT", "{type: int, kind: static}")


@pytest.mark.parametrize("key", range(3))
def test_equalities_of_paths_are_met(key):
    made = s.example(schema(PLACES).A, key=key)
    n, m = made.w.shape
    assert made.links.phase.shape == (n * m, m) and len(made.links.names) == n + 1
    assert {layer.width for layer in made.layers} == {made.config.width}


def test_sizes_of_an_equality_are_those_of_the_caller():
    made = s.example(schema(PLACES).A, dims={"n": 4, "m": 3})
    assert made.links.phase.shape == (12, 3)


GIVEN = """\
enums: {Mode: [fast, slow]}
structs:
  A:
    fields:
      extent: {type: "tuple[int, int]", kind: static, examples: [[2, 3]]}
      names: {type: "list[str]", examples: [[a, b]]}
      mode: {type: "Mode | int", kind: static, choices: [slow, 3]}
      maybe: {type: "float | null", choices: [0.5]}
      table: {type: "dict[str, float]", examples: [{a: 1, b: .inf}]}
"""


def test_examples_of_the_schema_are_whole_values():
    made = s.example(schema(GIVEN).A)
    assert (made.extent, made.names, made.maybe) == ((2, 3), ["a", "b"], 0.5)
    assert made.mode in ("slow", 3) and made.table == {"a": 1, "b": float("inf")}


SHOWN = """
structs:
  B: {fields: {a: int}}
  A:
    fields:
      mode: {type: int, kind: static, choices: [1, 2, 3], examples: [2]}
      maybe: {type: "int | null", examples: [null]}
      row: {type: "int8[2, n] | null", examples: [[[1, 2, 3], [4, 5, 6]], 0, null]}
      any: {type: "int8[...]", examples: [[[1]]]}
      either: {type: "list[int] | int8[2]", examples: [[1, 2, 3]]}
      part: {type: B, examples: [{a: 1}]}
      tree: {type: pytree, examples: [{a: [1, {b: x}]}]}
      handle: {kind: opaque, default: null, examples: [1]}
"""


def test_an_example_is_drawn_before_a_choice():
    made = schema(SHOWN)
    assert lint_series(made.series) == []
    state = s.example(made.A)
    assert (state.mode, state.maybe) == (2, None)


def test_examples_that_a_field_refuses_are_all_named(tmp_path):
    made = schema(SHOWN.replace("[2]}", "[2, 4, x]}"))
    with pytest.raises(s.SchemaError) as caught:
        s.example(made.A)
    assert [(d.code, d.path) for d in caught.value.diagnostics] == [
        ("NQX107", "A.mode.examples[1]"),
        ("NQX107", "A.mode.examples[2]"),
    ]
    right = schema(SHOWN)
    path = s.example(right.A).export(tmp_path / "c")
    assert made.load(path).mode == right.load(path).mode == 2  # payloads do not need them
