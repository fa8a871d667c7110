"""Verdicts on instances by declaration: the walk of the schema, construction and replace agree."""

import itertools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.documents.instance_checks import see_value
from neuralqx_struct.errors import ValidationError
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.schema.conformance import conform
from tests.builders import every, refused

HEAD = 'language: "1"\nschema: lab.sound{number}\nversion: 1\nroot: R\n'
NUMBERS = itertools.count()


def f32(*shape):
    return jnp.zeros(shape, jnp.float32)


def schema(fields, *, more="", constraint=None, structs=""):
    """A schema of one struct R, and of others."""
    text = HEAD.format(number=next(NUMBERS)) + more + "structs:\n" + structs
    text += "  R:\n    fields:\n" + "".join(
        f"      {name}: {declared}\n" for name, declared in fields.items()
    )
    return s.load_schema(
        text + (f"    constraints: [{{expr: {constraint!r}}}]\n" if constraint else "")
    )


def decided(cls, values):
    """The findings of the walk of the schema; the check has the same, now and when it remembers them."""
    found = conform(
        cls.__nqx_document__, "R", cls.__nqx_assemble__(values), see_value, closed=False
    )
    for _ in range(3):
        assert cls.__nqx_check__(cls.__nqx_assemble__(values)) == found
    return found


NAN, INF = math.nan, math.inf
ONE_FIELD = {
    "bool": ([True, np.bool_(True)], [], [1, None, "a"]),
    "int": (
        [3, -(10**400), jnp.int32(3), np.int8(1)],
        [],
        [True, 1.0, "3", None, f32(), jnp.zeros(1, jnp.int32)],
    ),
    "float": (
        [0.5, 3, NAN, f32(), np.float64(1), jnp.int32(3), np.int64(3)],
        [],
        [True, 1j, "3", None, f32(1), np.bool_(True), jnp.zeros(1, jnp.int32), []],
    ),
    "complex": ([1j, 0.5, 3, jnp.complex64(1)], [], [True, "3", None]),
    "str": (["", "a"], [], [b"a", 3, None]),
    "bytes": ([b"a"], [], ["a", bytearray(b"a")]),
    "path": ([Path("a")], [], ["a", None]),
    "dtype": ([np.dtype("int8")], [], ["int8", np.int8, None]),
    '"float | null"': ([0.5, None], [], ["a"]),
    '"int | str"': ([3, "a"], [], [0.5, None]),
    "{type: int, ge: 0, lt: 9}": (
        [0, 8, jnp.int32(3)],
        [],
        [-1, 9, 3.0, jnp.int32(-3), np.int8(9)],
    ),
    "{type: float, gt: 0, le: 1.5, finite: true}": ([1, 1.5, 1e-300], [], [0, 1.6, INF, NAN]),
    "{type: float, finite: true}": ([1, 1.5], [], [INF, -INF, NAN]),
    "{type: bool, choices: [true]}": ([True], [], [False]),
    "{type: complex, choices: [1]}": ([1, 1.0, 1 + 0j], [], [2j]),
    "{type: int, multiple_of: 3}": ([0, 3, -9], [], [1]),
    "{type: int, choices: [3, 5]}": ([3, 5], [], [4]),
    "{type: str, min_length: 1, max_length: 3}": (["a", "abc"], [], ["", "abcd"]),
    "{type: str, pattern: 'a+'}": (["aaa"], [], ["", "ab", "a" * 5000]),
    "{type: 'literal[1, \"a\", true]'}": ([1, "a", True], [], [1.0, False, "b", [], None]),
    "Mode": (["slow"], [], ["slwo", None, 3, []]),
    '"Mode | null"': (["slow", None], [], ["slwo", 3]),
    '"Mode | int"': (["slow", 3], [], ["slwo", None]),
    "{type: Mode, choices: [slow]}": (["slow"], [], ["fast"]),
    '"float32[]"': ([f32(), np.float32(1)], [], [f32(1), 1.0, jnp.int32(3)]),
    '"float32[...]"': (
        [f32(), f32(2, 3), np.zeros(3, np.float32)],
        [],
        [np.zeros(3), np.zeros(3, ">f4"), None, [1.0]],
    ),
    '"bfloat16[n]"': ([jnp.zeros(3, jnp.bfloat16)], [], [f32(3), None]),
    '"float32[3, 2 + 1]"': ([f32(3, 3)], [], [f32(3), f32(3, 4), f32(3, 3, 3)]),
    '"float32[n, n]"': ([f32(3, 3), f32(0, 0)], [], [f32(3, 4), f32(3)]),
    '"float32[n, _, n]"': ([f32(3, 4, 3)], [], [f32(3, 4, 4)]),
    '"float32[n, ..., n]"': ([f32(3, 3), f32(3, 4, 5, 3)], [], [f32(3), f32(3, 4)]),
    '"float32[..., 3]"': ([f32(3), f32(4, 3)], [], [f32(), f32(3, 4)]),
    '"float32[n, 2 * n]"': ([f32(3, 6)], [], [f32(3, 7), f32(3)]),
    '"float32[2 * n - 1, n * 3]"': ([f32(5, 9)], [], [f32(6, 9), f32(5, 8)]),
    '"float32[n, n // 2]"': ([f32(7, 3)], [], [f32(7, 4)]),
    '"float32[n, 6 // n]"': ([f32(2, 3)], [], [f32(0, 3), f32(2, 2)]),
    '"float32[n] | null"': ([f32(3), None], [], [f32(3, 3), 3]),
    '"float32[n, n] | float"': ([f32(3, 3), f32(), 3.0], [], [f32(3, 4), None]),
    '"float | float32[n, n] | null"': ([f32(3, 3), f32(), 3.0, None], [], [f32(3, 4), "a"]),
    '"float32[3] | int32[3] | null"': ([], [f32(3), None], [f32(4)]),
    '"prng_key[threefry2x32]"': (
        [jax.random.key(0)],
        [],
        [jax.random.key(0, impl="rbg"), jax.random.PRNGKey(0), 3],
    ),
    '"prng_key[threefry2x32, n, n]"': (
        [jax.random.split(jax.random.key(0), (2, 2))],
        [],
        [jax.random.key(0)],
    ),
    '"list[int]"': ([[], [1, 2]], [[jnp.int32(3)]], [[1, 2.0], (1,), None]),
    "{type: 'list[int]', max_length: 2}": ([[], [1, 2]], [], [[1, 2, 3]]),
    '"list[float32[n, m]]"': (
        [[], [f32(2, 3), f32(2, 3)]],
        [],
        [[f32(2, 3), f32(2, 4)], [f32(2)], [None]],
    ),
    '"list[float32[n] | null]"': (
        [[], [None, None], [f32(2)]],
        [[None, f32(2)]],
        [[f32(2), f32(3)]],
    ),
    '"list[list[float32[n]]]"': (
        [[], [[f32(2)], [f32(2)]]],
        [[[], [f32(2)]]],
        [[[f32(2)], [f32(3)]]],
    ),
    '"dict[str, float32[n]]"': (
        [{}, {"a": f32(2), "b": f32(2)}],
        [],
        [{"a": f32(2), "b": f32(3)}, {1: f32(2)}],
    ),
    "{type: 'dict[str, int]', min_length: 1}": ([{"a": 1}], [], [{}, {"a": "a"}, {3: 3}]),
    '"tuple[int, ...]"': ([(), (1, 2)], [], [(1, "a"), [1]]),
    '"tuple[int, float32[n], float32[n]]"': (
        [(1, f32(2), f32(2))],
        [],
        [(1, f32(2), f32(3)), (1, f32(2)), ()],
    ),
    '"list[Mode]"': ([["slow"]], [], [["slwo"], [3]]),
    "pytree": ([object(), None, 3], [], []),
    '"pytree | null"': ([object(), None, 3], [], []),
    '"pytree | int"': ([], [object(), 3], []),
}


@every("declared", ONE_FIELD)
def test_values_of_one_field(declared):
    cls = schema({"x": declared}, more="enums: {Mode: [slow, fast]}\n").R
    usual, rare, wrong = ONE_FIELD[declared]
    for value in usual:
        assert decided(cls, {"x": value}) == [], value
        assert cls(x=value).replace(x=value).x is value
    for value in rare:
        assert decided(cls, {"x": value}) == [], value
        assert cls(x=value).replace(x=value).x is value
    for value in wrong:
        assert decided(cls, {"x": value}), value
        with pytest.raises(ValidationError):
            cls(x=value)


DIMS = "dims: {d: {min: 1, max: 9}, e: {equals: 2 * d}, free: {}}\n"
DENSE = '  Dense:\n    params: [n, m]\n    fields: {kernel: "float32[n, m]", bias: "float32[m] | null"}\n'
LAYER = '  Layer: {fields: {w: "float32[d]", v: "float32[e]"}}\n'
TREE = '  Tree: {fields: {w: "float32[d]", left: "Tree | null", right: "Tree | null"}}\n'
BAG = '  Bag: {fields: {items: "list[float32[d]]"}}\n'


def dense(cls, n, m, bias=None):
    return cls.Dense(kernel=f32(n, m), bias=bias)


SEVERAL = {
    "local sizes": (
        {"a": '"float32[n]"', "b": '"float32[n, k]"', "c": '"float32[k] | null"'},
        [
            (lambda c: {"a": f32(2), "b": f32(2, 3), "c": f32(3)}, True),
            (lambda c: {"a": f32(2), "b": f32(2, 3), "c": None}, True),
            (lambda c: {"a": f32(2), "b": f32(2, 3), "c": f32(2)}, False),
            (lambda c: {"a": f32(3), "b": f32(2, 3), "c": None}, False),
        ],
    ),
    "only what may be missing": (
        {"a": '"float32[n] | null"', "b": '"float32[n] | null"'},
        [
            (lambda c: {"a": f32(2), "b": f32(2)}, True),
            (lambda c: {"a": f32(2), "b": None}, True),
            (lambda c: {"a": None, "b": None}, True),
            (lambda c: {"a": None, "b": f32(2)}, None),
            (lambda c: {"a": f32(2), "b": f32(3)}, False),
        ],
    ),
    "bounds of dims": (
        {"a": '"float32[d]"'},
        [
            (lambda c: {"a": f32(9)}, True),
            (lambda c: {"a": f32(0)}, False),
            (lambda c: {"a": f32(10)}, False),
        ],
    ),
    "equations": (
        {"a": '"float32[d]"', "b": '"float32[e]"'},
        [
            (lambda c: {"a": f32(3), "b": f32(6)}, True),
            (lambda c: {"a": f32(3), "b": f32(5)}, False),
        ],
    ),
    "equations with what may be missing": (
        {"a": '"float32[d]"', "b": '"float32[e] | null"'},
        [
            (lambda c: {"a": f32(3), "b": f32(6)}, True),
            (lambda c: {"a": f32(3), "b": None}, True),
            (lambda c: {"a": f32(3), "b": f32(5)}, False),
        ],
    ),
    "equations to be solved": (
        {"b": '"float32[e]"'},
        [
            (lambda c: {"b": f32(6)}, None),
            (lambda c: {"b": f32(5)}, False),
        ],
    ),
    "static sizes": (
        {
            "n": "{type: int, kind: static}",
            "d": "{type: 'int | null', kind: static}",
            "a": '"float32[n, d]"',
        },
        [
            (lambda c: {"n": 3, "d": 2, "a": f32(3, 2)}, True),
            (lambda c: {"n": 3, "d": None, "a": f32(3, 2)}, True),
            (lambda c: {"n": 3, "d": 3, "a": f32(3, 2)}, False),
            (lambda c: {"n": 2, "d": 2, "a": f32(3, 2)}, False),
            (lambda c: {"n": True, "d": 2, "a": f32(1, 2)}, False),
        ],
    ),
    "a static dim that no array shows": (
        {"d": "{type: int, kind: static}", "a": '"float32[]"'},
        [
            (lambda c: {"d": 2, "a": f32()}, True),
            (lambda c: {"d": -2, "a": f32()}, False),
            (lambda c: {"d": 0, "a": f32()}, False),
        ],
    ),
    "a static size of another type": (
        {"n": "{type: 'int | str', kind: static}", "a": '"float32[n]"'},
        [
            (lambda c: {"n": 3, "a": f32(3)}, None),
            (lambda c: {"n": 3, "a": f32(2)}, False),
        ],
    ),
    "a struct inside": (
        {"a": '"float32[d]"', "x": "Layer"},
        [
            (lambda c: {"a": f32(2), "x": c.Layer(w=f32(2), v=f32(4))}, True),
            (lambda c: {"a": f32(3), "x": c.Layer(w=f32(2), v=f32(4))}, False),
            (
                lambda c: {"a": f32(2), "x": c.Layer.__nqx_assemble__({"w": f32(2), "v": f32(5)})},
                False,
            ),
            (lambda c: {"a": f32(2), "x": c.Layer.__nqx_assemble__({"w": f32(2), "v": 3})}, False),
            (lambda c: {"a": f32(2), "x": dense(c, 2, 2)}, False),
            (lambda c: {"a": f32(2), "x": c.Layer}, False),
        ],
    ),
    "structs in a list": (
        {"a": '"float32[d]"', "x": '"list[Layer]"'},
        [
            (lambda c: {"a": f32(2), "x": [c.Layer(w=f32(2), v=f32(4))] * 3}, True),
            (lambda c: {"a": f32(2), "x": []}, True),
            (
                lambda c: {"a": f32(2), "x": [c.Layer(w=f32(n), v=f32(2 * n)) for n in (2, 3)]},
                False,
            ),
            (lambda c: {"a": f32(3), "x": [c.Layer(w=f32(2), v=f32(4))]}, False),
        ],
    ),
    "lists alone": (
        {"x": '"list[Layer]"', "y": '"dict[str, Layer]"'},
        [
            (
                lambda c: {
                    "x": [c.Layer(w=f32(2), v=f32(4))],
                    "y": {"a": c.Layer(w=f32(2), v=f32(4))},
                },
                True,
            ),
            (lambda c: {"x": [], "y": {}}, None),
            (lambda c: {"x": [], "y": {"a": c.Layer(w=f32(2), v=f32(4))}}, None),
            (
                lambda c: {
                    "x": [c.Layer(w=f32(3), v=f32(6))],
                    "y": {"a": c.Layer(w=f32(2), v=f32(4))},
                },
                False,
            ),
        ],
    ),
    "parameters": (
        {
            "a": '"float32[d]"',
            "x": '"Dense[d, 4 * d]"',
            "y": '"Dense[4 * d, free]"',
            "z": '"Dense[free, _] | null"',
        },
        [
            (
                lambda c: {
                    "a": f32(2),
                    "x": dense(c, 2, 8),
                    "y": dense(c, 8, 5, f32(5)),
                    "z": dense(c, 5, 7),
                },
                True,
            ),
            (lambda c: {"a": f32(2), "x": dense(c, 2, 8), "y": dense(c, 8, 5), "z": None}, True),
            (
                lambda c: {
                    "a": f32(2),
                    "x": dense(c, 2, 8),
                    "y": dense(c, 8, 5),
                    "z": dense(c, 6, 7),
                },
                False,
            ),
            (lambda c: {"a": f32(2), "x": dense(c, 2, 9), "y": dense(c, 8, 5), "z": None}, False),
            (lambda c: {"a": f32(2), "x": dense(c, 2, 8), "y": dense(c, 9, 5), "z": None}, False),
        ],
    ),
    "structs of their own kind": (
        {"a": '"float32[d]"', "x": "Tree"},
        [
            (lambda c: {"a": f32(2), "x": tree(c, 2, 2, 2)}, True),
            (lambda c: {"a": f32(2), "x": tree(c, 2, 2, 3, checked=False)}, False),
            (lambda c: {"a": f32(3), "x": tree(c, 2, 2, 2)}, False),
        ],
    ),
    "a struct whose list may be empty": (
        {"a": '"float32[d]"', "x": "Bag"},
        [
            (lambda c: {"a": f32(2), "x": c.Bag(items=[f32(2)])}, True),
            (lambda c: {"a": f32(2), "x": c.Bag(items=[])}, None),
            (lambda c: {"a": f32(2), "x": c.Bag(items=[f32(3)])}, False),
        ],
    ),
    "one of two structs": (
        {"a": '"float32[d]"', "x": '"Layer | Bag"'},
        [
            (lambda c: {"a": f32(2), "x": c.Bag(items=[f32(2)])}, None),
            (lambda c: {"a": f32(2), "x": c.Bag(items=[f32(3)])}, False),
        ],
    ),
}


def tree(c, *sizes, checked=True):
    top = None
    for size in reversed(sizes):
        values = {"w": f32(size), "left": top, "right": None}
        top = c.Tree(**values) if checked else c.Tree.__nqx_assemble__(values)
    return top


@every("name", SEVERAL)
def test_sizes_of_several_fields(name):
    fields, cases = SEVERAL[name]
    c = schema(fields, more=DIMS, structs=DENSE + LAYER + TREE + BAG)
    for number, (make, wanted) in enumerate(cases):
        values = make(c)
        assert bool(decided(c.R, values)) == (wanted is False), number
        if wanted is False:
            with pytest.raises(ValidationError):
                c.R(**values)
        else:
            assert c.R(**values).replace(**values) == c.R.__nqx_assemble__(values)


CONSTRAINTS = {
    "x < y": (
        [(1, 2.0, "a"), (jnp.float32(1), 2.0, "a")],
        [(2, 1, "a"), (math.nan, 2, "a"), (jnp.float32(9), 2, "a")],
    ),
    "0 < x <= 8 and (y != 3 or name == 'a')": (
        [(1, 2, "a"), (8, 3, "a")],
        [(9, 2, "a"), (1, 3, "b"), (0, 0, "a")],
    ),
    "x > -1": ([(0, 0, "a"), (10**400, 0, "a")], [(-1, 0, "a")]),
    "x + y < 3": ([(1, 1, "a")], [(2, 1, "a")]),
    "n >= 2": ([(0, 0, "a")], []),
    "x < n and size(w) == n": ([(1, 0, "a")], [(2, 0, "a")]),
    "all(w >= x)": ([(0, 0, "a"), (-1, 0, "a")], [(1, 0, "a")]),
    "name in ('a', 'b')": ([(1, 1, "a")], [(1, 1, "c")]),
    "not x > 3": ([(1, 1, "a")], [(4, 1, "a")]),
    "twice < 8": ([(3, 1, "a")], [(4, 1, "a")]),
    "maybe < 8": ([(3, 1, "a")], []),
    "maybe < 8 or x > 2": ([(3, 1, "a")], []),
}


@every("text", CONSTRAINTS)
def test_constraints(text):
    fields = {
        "x": "float",
        "y": "float",
        "name": "str",
        "w": '"float32[n]"',
        "maybe": '"float | null"',
    }
    fields["twice"] = "{type: float, kind: static, derived: 2 * x}"
    cls = schema(fields, constraint=text).R
    good, bad = CONSTRAINTS[text]
    for x, y, name in good:
        assert decided(cls, {"x": x, "y": y, "name": name, "w": f32(2), "maybe": None}) == []
    for x, y, name in bad:
        values = {"x": x, "y": y, "name": name, "w": f32(2), "maybe": None}
        assert [d.code for d in decided(cls, values)] == ["NQX416"]
        with pytest.raises(ValidationError):
            cls(**values)


def test_constraints_inside_and_under_tracing():
    inner = '  I: {fields: {low: float, high: float}, constraints: [{expr: "low < high"}]}\n'
    c = schema({"x": "I", "more": '"list[I]"'}, structs=inner)
    fine, wrong = c.I(low=0.0, high=1.0), c.I.__nqx_assemble__({"low": 1.0, "high": 0.0})
    assert decided(c.R, {"x": fine, "more": [fine]}) == []
    assert decided(c.R, {"x": fine, "more": [wrong]})

    @jax.jit
    def traced(low, high):
        return c.R(x=c.I(low=low, high=high), more=[c.I(low=low, high=3.0)]).x.high

    assert traced(2.0, 1.0) == 1.0  # there are no values to compare


def test_dims_known_elsewhere_are_left_to_the_walk():
    inner = '  I: {fields: {w: "float32[d] | null"}, constraints: [{expr: "d < 3"}]}\n'
    c = schema({"a": '"float32[d]"', "x": "I"}, structs=inner, more="dims: {d: {}}\n")
    assert decided(c.R, {"a": f32(2), "x": c.I(w=None)}) == []
    assert decided(c.R, {"a": f32(3), "x": c.I(w=None)})
    assert decided(c.R, {"a": f32(2), "x": c.I(w=f32(2))}) == []


def test_traced_instances_are_checked():
    c = schema({"a": '"float32[d]"', "n": "int", "x": '"list[Layer]"'}, more=DIMS, structs=LAYER)

    @jax.jit
    def traced(w, v, n):
        return c.R(a=w, n=n, x=[c.Layer(w=w, v=v)] * 2).replace(n=n + 1).n

    assert traced(f32(2), f32(4), 3) == 4


def test_fields_named_as_what_the_code_needs():
    names = [
        "type",
        "len",
        "map",
        "pair",
        "item",
        "_",
        "self",
        "cls",
        "isinstance",
        "n",
        "made",
        "prove",
    ]
    c = schema({**dict.fromkeys(names, '"float32[n]"'), "k": "{type: int, kind: static}"})
    values = {name: f32(2) for name in names} | {"k": 3}
    assert decided(c.R, values) == []
    assert c.R(**values).replace(k=4).k == 4
    with refused(ValidationError, "NQX413", "$._", "n = 2"):
        c.R(**values | {"_": f32(3)})


def test_chains_of_equations_stay_small():
    dims = "".join(f"  d{i}: {{equals: d{i - 1} * d{i - 1}}}\n" for i in range(1, 200))
    c = schema({"a": '"float32[d0]"'}, more=f"dims:\n  d0: {{}}\n{dims}")
    assert decided(c.R, {"a": f32(1)}) == []


def test_opaque_values_and_structs_of_other_documents():
    first = s.load_schema(
        HEAD.format(number="_first").replace("root: R", "root: Part")
        + 'dims: {d: {max: 3}}\nstructs:\n  Part: {params: [k], fields: {w: "float32[d, k]", tag: {type: str, kind: opaque}}}\n'
    )
    c = schema(
        {"d": '"float32[d]"', "x": '"lab.sound_first.Part[d]"', "log": "{type: str, kind: opaque}"},
        more="uses: [lab.sound_first@1]\ndims: {d: {}}\n",
    )
    part = first.Part(w=f32(3, 5), tag="a")
    assert decided(c.R, {"d": f32(5), "x": part, "log": "b"}) == []
    assert decided(c.R, {"d": f32(3), "x": part, "log": "b"})
    assert decided(c.R, {"d": f32(5), "x": part, "log": 3})
    assert decided(
        c.R,
        {"d": f32(5), "x": first.Part.__nqx_assemble__({"w": f32(4, 5), "tag": "a"}), "log": "b"},
    )


@every("value", [1.5, -1e-300, 0.0, -0.0, NAN, INF, 2, True, "a", None, (1.0, 0.0), 1j])
def test_the_keys_of_static_values_are_those_of_the_layout(value):
    class Held(s.Struct):
        x: object = s.field(static=True)
        y: int = s.field(static=True, default=1)

    keys, *_ = Held(x=value)._nqx_pair[1]
    assert keys == Held.__nqx_layout__.pair({"x": value, "y": 1}, "Held")[1][0]


def test_static_floats_are_made_the_short_way(monkeypatch):
    cls = schema({"x": "{type: float, kind: static, gt: 0}", "w": '"float32[n]"'}).R
    cls(x=1.5, w=f32(2))
    monkeypatch.setattr("neuralqx_struct.struct.lifecycle.finish", None)
    assert cls(x=1.5, w=f32(2)).x == 1.5


def test_expressions_are_derived_once(monkeypatch):
    cls = schema(
        {"w": '"float32[n]"', "k": "{type: int, kind: static, derived: 2 * sum(shape(w))}"}
    ).R
    asked = []

    def counting(*arguments):
        asked.append(arguments)
        return evaluate(*arguments)

    monkeypatch.setattr("neuralqx_struct.classes.defaults.evaluate", counting)
    assert cls(w=f32(3)).k == 6
    assert len(asked) == 1
