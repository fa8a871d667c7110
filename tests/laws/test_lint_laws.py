"""Laws of lint: an expression that some valid instance has a value for is no error, and one that fails for all of them is found."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.items import UnequalItemsError
from neuralqx_struct.schema.lint.expressions import EXPRESSION_CHECKS
from neuralqx_struct.schema.reading import document_from_data
from tests.builders import cases

SCHEMA = s.load_schema("""
language: "1"
schema: test.lint_laws
version: 1
root: R
enums: {Mode: [fast, slow]}
structs:
  Inner: {fields: {width: int, rate: float | null, w: "float32[k]"}}
  R:
    fields:
      i: int
      f: float
      b: {type: bool, kind: static}
      t: {type: str, kind: static}
      mode: {type: Mode, kind: static}
      either: {type: int | str, kind: static}
      x: "int8[n]"
      y: "float32[n]"
      m: "float32[n, 2]"
      list: "list[int]"
      pair: "tuple[int, float]"
      inner: Inner
      many: "list[Inner]"
      named: "dict[str, float]"
      maybe: "float32[n] | null"
""")
NAMES = [
    *("i", "f", "b", "t", "mode", "either", "x", "y", "m", "list", "pair", "pair[0]", "inner"),
    *("inner.width", "inner.rate", "inner.w", "many", "many.width", "many.rate", "many.w", "named", "maybe"),
]  # fmt: skip


def instances():
    """Yields instances of different numbers and sizes, without null: samples of lint have none either."""
    for number, text, mode, rate, either, jax in (
        (1, "fast", "fast", 0.25, 3, True),
        (2, "x", "slow", 0.5, "x", False),
        (7, "", "fast", 2.0, "fast", True),
    ):
        xp = jnp if jax else np
        inner = [
            SCHEMA.Inner(
                width=number + place, rate=rate + place, w=xp.full(number, 0.5, np.float32)
            )
            for place in range(3)
        ]
        x, y = xp.full(number, number, np.int8), xp.full(number, 0.5, np.float32)
        yield SCHEMA.R(
            i=number, f=number / 2, b=number > 1, t=text, mode=mode, either=either, x=x, y=y,
            m=xp.ones((number, 2), np.float32), list=[number, 3], pair=(number, 1.5), inner=inner[2],
            many=inner[:2], named={"a": 1.0, "b": rate}, maybe=y,
        )  # fmt: skip


HELD = [
    {name: getattr(made, name) for name in SCHEMA.document.structs["R"].fields}
    for made in instances()
]


def grown(parts):
    arithmetic = st.tuples(parts, st.sampled_from(["+", "-", "*", "/", "//", "%"]), parts)
    compared = st.tuples(parts, st.sampled_from(["<", "<=", "==", "!=", ">"]), parts)
    called = st.tuples(
        st.sampled_from(
            ["len", "size", "shape", "ndim", "min", "max", "abs", "sum", "all", "any", "isfinite"]
        ),
        parts,
    )
    return st.one_of(
        arithmetic.map("({0[0]} {0[1]} {0[2]})".format),
        compared.map("({0[0]} {0[1]} {0[2]})".format),
        called.map("{0[0]}({0[1]})".format),
        st.tuples(parts, st.sampled_from(["and", "or"]), parts).map(
            "({0[0]} {0[1]} {0[2]})".format
        ),
        parts.map("(-{})".format),
        parts.map("(not {})".format),
        st.tuples(parts, parts, parts).map("({0[0]} if {0[1]} else {0[2]})".format),
        parts.map("({} in ('fast', 'x', 1))".format),
    )


literals = st.sampled_from(["1", "0.5", "'fast'", "None", "True", "(1, 2)"])
expressions = st.recursive(st.sampled_from(NAMES) | literals, grown, max_leaves=5)


def outcome(text, held):
    """True if an expression has a value, False if its operands do not fit, None if other numbers would do."""
    try:
        evaluate(parse(text), held)
    except UnequalItemsError:
        return None
    except SchemaError as error:
        return (
            None
            if isinstance(error.__context__, ArithmeticError) or error.code == "NQX507"
            else False
        )
    return True


def findings(text):
    """The findings about a document in which a field is derived by an expression."""
    data = SCHEMA.document.to_data()
    data["structs"]["R"]["fields"]["d"] = {"kind": "opaque", "derived": text}
    document = document_from_data(data, "laws")
    return [problem for check in EXPRESSION_CHECKS for problem in check(document)]


@settings(max_examples=cases(400))
@given(expressions)
def test_what_has_a_value_is_no_error_and_what_has_none_is_found(text):
    try:
        parse(text)
    except SchemaError:
        return
    outcomes = {outcome(text, held) for held in HELD}
    every = findings(text)
    found = [problem for problem in every if problem.severity == "error"]
    if True in outcomes and not any(word in text for word in (" and ", " or ", " if ")):
        assert not found, text  # else one may be in a part that no instance evaluates
    if outcomes == {False}:
        assert every, text
