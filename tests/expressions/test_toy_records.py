"""A new function or operator of expressions is one record: parsing, printing, evaluation and lint take it."""

import ast
import math

import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.functions import FUNCTIONS, Function
from neuralqx_struct.expressions.operators import OPERATORS, Operator
from neuralqx_struct.schema.sizes import linear_form
from tests.builders import refused

SCHEMA = """
language: "1"
schema: lab.toy
version: 1
root: A
structs:
  A:
    fields:
      n: {type: int, kind: static}
      root: {type: int, kind: static, derived: "isqrt(n) @ 2"}
      x: "float32[isqrt(n)]"
    constraints:
      - {expr: "isqrt(n) > 1"}
"""


@pytest.fixture(autouse=True)
def _records():
    FUNCTIONS["isqrt"] = Function(
        evaluate=lambda run, node, value: run.apply(node, math.isqrt, value),
        shown=True,
    )
    OPERATORS[ast.MatMult] = Operator(
        symbol="@", binding=OPERATORS[ast.Mult].binding, apply=math.lcm
    )
    yield
    del FUNCTIONS["isqrt"], OPERATORS[ast.MatMult]


def test_parse_print_and_evaluate():
    expression = parse("isqrt( n )@(3+1)")
    assert expression.text == "isqrt(n) @ (3 + 1)"
    assert parse(expression.text) == expression
    assert evaluate(expression, {"n": 40}) == 12
    with refused(SchemaError, "NQX116", "isqrt"):
        parse("isqr(n)")
    with refused(SchemaError, "NQX114", "isqrt", "2"):
        parse("isqrt(n, 2)")


def test_sizes_that_are_not_linear_are_not_solved():
    assert linear_form(parse("n @ 2"), frozenset({"n"}), {}) is None


def test_schemas(tmp_path):
    schema = s.load_schema(SCHEMA)
    made = schema.A(n=17, x=s.example(schema.A, dims={"n": 17}).x)
    assert (made.root, made.x.shape) == (4, (4,))
    with refused(s.ValidationError, "NQX416", "isqrt(n) > 1", "isqrt(n) = 1"):
        s.example(schema.A, dims={"n": 2})
    path = made.export(tmp_path / "ckpt")
    assert s.validate(path, schema) == []
    assert s.load(path, load_cls=schema.A) == made
    with refused(s.SchemaError, "NQX115"):
        s.load_schema(SCHEMA.replace("isqrt(n) > 1", "isqrt('four') > 1"))


def test_afterwards_the_language_is_as_before():
    del FUNCTIONS["isqrt"], OPERATORS[ast.MatMult]
    try:
        with refused(SchemaError, "NQX116", "isqrt"):
            parse("isqrt(n)")
        with refused(SchemaError, "NQX114"):
            parse("n @ 2")
    finally:
        FUNCTIONS["isqrt"] = OPERATORS[ast.MatMult] = None
