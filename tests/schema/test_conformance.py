import numpy as np
import pytest

from neuralqx_struct.errors import StructError
from neuralqx_struct.schema.conditions import Shaped
from neuralqx_struct.schema.conformance import conform, conform_node, see_node
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.text.loader import read_text
from tests.builders import doc, every, payload

DOCUMENT = parse_document(
    read_text("""\
language: "1"
schema: lab.net
version: 1
root: Net
dims: {d: {min: 1}}
enums: {Mode: [slow, fast]}
structs:
  Layer:
    fields: {w: "float32[d, h]", b: "float32[h]"}
  Dense:
    params: [a, c]
    fields: {w: "float32[a, c]"}
  Net:
    fields:
      n: {type: int, kind: static, ge: 1, multiple_of: 2}
      layers: list[Layer]
      by_name: {type: "dict[str, Layer]"}
      pair: {type: "tuple[int, str]"}
      many: {type: "tuple[float, ...]"}
      mode: Mode
      name: {type: str, pattern: "[a-z]+", min_length: 2, max_length: 4}
      rate: {type: float, gt: 0, lt: 1, finite: true}
      label: {type: "literal[1, 'x']"}
      key: prng_key[threefry2x32]
      maybe: "float32[d] | int8[d] | null"
      dense: Dense[d, 3]
      free: pytree
      z: complex
      level: {type: int, choices: [1, 2], le: 2}
      even: {type: int, multiple_of: 2, default: 0}
      tenths: {type: float, multiple_of: 0.1, finite: true, default: 0.0}
      lower: {type: str, pattern: "a*", default: ""}
      either: {type: "literal[1] | bool", default: true}
    constraints:
      - {expr: size(maybe) > 1, message: too small}
      - {expr: n * d > 3}
      - {expr: sum(maybe) > 0}
""")
)


def array(dtype, *shape):
    return {"__kind__": "array", "name": "a", "dtype": dtype, "shape": list(shape)}


def struct(title, /, **fields):
    return {"__kind__": "struct", "type": f"lab.net@1:{title}", "fields": fields}


def sequence(kind, *items):
    return {"__kind__": kind, "items": list(items)}


def layer(d, h, **changes):
    return struct("Layer", **{"w": array("float32", d, h), "b": array("float32", h), **changes})


def net(**changes):
    fields = {
        "n": 2, "layers": sequence("list", layer(4, 2), layer(4, 7)), "by_name": sequence("dict", ["a", layer(4, 1)]),
        "pair": sequence("tuple", 1, "a"), "many": sequence("tuple", 1.5, 2), "mode": "slow", "name": "abc", "rate": 0.5, "label": "x",
        "key": {"__kind__": "prng-key", "impl": "threefry2x32", "data": array("uint32", 2)}, "maybe": array("int8", 4),
        "even": 0, "tenths": 0.0, "lower": "", "either": True,
        "dense": struct("Dense", w=array("float32", 4, 3)), "free": sequence("set", 1), "z": {"__kind__": "complex", "real": 1, "imag": 2}, "level": 1,
    }  # fmt: skip
    return struct(
        "Net", **{name: value for name, value in {**fields, **changes}.items() if value != "absent"}
    )


HUGE = {"__kind__": "bigint", "value": "1" + "0" * 5000}


@every(
    "changes",
    [
        {"tenths": 0.3},
        {"tenths": 1e9},
        {"tenths": -0.7},
        {"tenths": 12},
        {"even": 2**62},
        {"even": HUGE},
        {"lower": "a" * 4096},
        {"either": 1},
        {"either": False},
    ],
)
def test_values_at_the_edge(changes):
    assert conform(DOCUMENT, "Net", net(**changes), see_node) == []


def test_what_conforms():
    assert conform(DOCUMENT, "Net", net(), see_node) == []
    assert (
        conform(DOCUMENT, "Net", net(maybe=None, z=1.0, rate=array("float32"), n=2), see_node) == []
    )


WRONG = {
    "wrong dtype": ({"maybe": array("float64", 4)}, [("NQX411", "$.maybe")]),
    "wrong rank": (
        {"layers": sequence("list", layer(4, 2, b=array("float32", 2, 2)))},
        [("NQX412", "$.layers[0].b")],
    ),
    "local dims disagree": (
        {"layers": sequence("list", layer(4, 2, b=array("float32", 3)))},
        [("NQX413", "$.layers[0].b")],
    ),
    "global dims disagree": (
        {"by_name": sequence("dict", ["a", layer(5, 2)])},
        [("NQX413", "$.by_name['a'].w")],
    ),
    "missing field": ({"mode": "absent"}, [("NQX414", "$.mode")]),
    "unknown field": ({"modes": 1}, [("NQX415", "$.modes")]),
    "enum": ({"mode": "sloww"}, [("NQX421", "$.mode")]),
    "literal": ({"label": True}, [("NQX411", "$.label")]),
    "scalar": ({"pair": sequence("tuple", True, "a")}, [("NQX411", "$.pair[0]")]),
    "tuple length": ({"pair": sequence("tuple", 1)}, [("NQX411", "$.pair")]),
    "list for tuple": ({"many": sequence("list", 1.0)}, [("NQX411", "$.many")]),
    "tuple for list": ({"layers": sequence("tuple")}, [("NQX411", "$.layers")]),
    "list for dict": ({"by_name": sequence("list")}, [("NQX411", "$.by_name")]),
    "dict with other keys": ({"by_name": sequence("dict", [1, 2])}, [("NQX411", "$.by_name")]),
    "key": ({"key": array("uint32", 2)}, [("NQX420", "$.key")]),
    "struct": ({"dense": layer(4, 3)}, [("NQX411", "$.dense")]),
    "array for struct": ({"dense": array("int8")}, [("NQX412", "$.dense")]),
    "parameters": ({"dense": struct("Dense", w=array("float32", 4, 5))}, [("NQX413", "$.dense.w")]),
    "bounds": (
        {"rate": 1.5, "level": 3},
        [("NQX416", "$.level"), ("NQX416", "$.level"), ("NQX416", "$.rate")],
    ),
    "not finite": ({"rate": {"__kind__": "float", "value": "nan"}}, [("NQX416", "$.rate")] * 3),
    "text": ({"name": "A"}, [("NQX416", "$.name")] * 2),
    "long text": ({"name": "abcdef"}, [("NQX416", "$.name")]),
    "array for scalar": ({"n": array("float32")}, [("NQX411", "$.n")]),
    "constraint on a shape": ({"maybe": array("int8", 1)}, None),
    "constraint on a dim": ({"n": 2, "maybe": None}, []),
    "odd": ({"n": 3}, [("NQX416", "$.n")]),
    "large and odd": ({"even": 2**31 + 1}, [("NQX416", "$.even")]),
    "between tenths": ({"tenths": 0.05}, [("NQX416", "$.tenths")]),
    "infinite": ({"tenths": {"__kind__": "float", "value": "inf"}}, [("NQX416", "$.tenths")] * 2),
    "not a number": (
        {"tenths": {"__kind__": "float", "value": "nan"}},
        [("NQX416", "$.tenths")] * 2,
    ),
    "an integer too large to print": ({"level": HUGE}, [("NQX416", "$.level")] * 2),
    "too long to match": ({"lower": "a" * 4096 + "!"}, [("NQX416", "$.lower")]),
}


@every("case", WRONG)
def test_what_does_not(case):
    changes, expected = WRONG[case]
    found = conform(DOCUMENT, "Net", net(**changes), see_node)
    if expected is None:
        assert {d.code for d in found} == {"NQX413", "NQX416"} and "too small" in str(
            StructError(found)
        )
    else:
        codes = sorted((d.code, d.path) for d in found)
        assert [c for c in codes if c in expected] == sorted(expected) and {
            c for c, _ in codes
        } <= {c for c, _ in expected}


def test_another_version_is_another_struct():
    node = net()
    node["type"] = "lab.net@2:Net"
    assert [d.path for d in conform(DOCUMENT, "Net", node, see_node)] == ["$"]


def test_open_checks_leave_missing_and_extra_fields_alone():
    assert conform(DOCUMENT, "Net", net(mode="absent", extra=1), see_node, closed=False) == []


def test_shaped_refuses_to_be_a_number():
    shaped = Shaped("float32", [2, 3])
    assert (shaped.size, shaped.ndim, shaped.shape) == (6, 2, (2, 3))
    with pytest.raises(TypeError):
        hash(shaped)


def test_kinds_without_a_type_are_other():
    assert see_node({"__kind__": "slice", "start": 0, "stop": 1, "step": None}).sort == "other"
    assert see_node({"__kind__": "bigint", "value": "9"}).type_name == "int"


RATIOS = parse_document(
    read_text("""\
language: "1"
schema: lab.ratios
version: 1
root: R
structs:
  R:
    fields:
      a: int
      x: "float32[n]"
      share: {type: float, derived: 1 / a}
      rest: {type: int, derived: "n // a if a else 0"}
      largest: {type: float, derived: max(x)}
""")
)


def test_a_derived_field_without_a_value():
    def found(a, **options):
        node = {"__kind__": "struct", "type": "lab.ratios@1:R"}
        node["fields"] = {"a": a, "x": array("float32", 3)}
        return [str(each) for each in conform(RATIOS, "R", node, see_node, **options)]

    assert found(2) == []
    assert found(0) == [
        "$: expected a divisor other than zero, got 0 [NQX115]\n  in `1 / a`",
    ]
    assert found(0, closed=False) == []  # the constructor of an object computes it
    (other,) = found("x")  # a value of another type is all that is wrong
    assert "NQX411" in other


def test_derived_fields_of_stacked_structs_are_not_computed():
    """A load computes none of them: they are made when they are read."""
    document = parse_document(
        read_text("""\
language: "1"
schema: lab.stacked
version: 1
root: R
structs:
  L:
    fields:
      x: "float32[n]"
      share: {type: int, derived: "6 // (shape(x)[0] - 3)"}
  R:
    fields:
      stacked: "L[][3]"
      each: list[L]
""")
    )

    def layer(*shape):
        return {
            "__kind__": "struct",
            "type": "lab.stacked@1:L",
            "fields": {"x": array("float32", *shape)},
        }

    def found(*each):
        fields = {"stacked": layer(3, 2), "each": sequence("list", *each)}
        node = {"__kind__": "struct", "type": "lab.stacked@1:R", "fields": fields}
        return [problem.code for problem in conform(document, "R", node, see_node)]

    assert found(layer(2)) == []
    assert found(layer(3)) == ["NQX115"]


def test_constraints_on_numbers_are_checked_where_arrays_are_given():
    structs = {"B": {"w": "float32[k]"}}
    raw = {
        "A": {
            "fields": {"w": "float32[n]", "s": "B[][n]"},
            "constraints": [{"expr": "all(w > 0)"}, {"expr": "sum(s.w) < 9"}],
        }
    }
    document = doc({}, structs=structs, raw=raw)
    for numbers, broken in (([1, 2], 0), ([1, 0], 1)):
        arrays = {"w": np.array(numbers, np.float32), "v": np.full((2, 2), 4, np.float32)}
        values = {"w": arrays["w"], "s": ("B", {"w": arrays["v"]})}
        held = payload(document, values)
        root = held.document["manifest"]
        assert conform_node(document, root) == []
        assert len(conform_node(document, root, held.arrays)) == broken + 1
