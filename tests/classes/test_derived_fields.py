"""Derived fields give the results of the evaluator, computed or kept."""

import enum
import json
import math
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.classes import defaults
from neuralqx_struct.classes.defaults import derivation
from neuralqx_struct.classes.schemas import Schema
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.functions import Items
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_document
from tests.builders import doc, every, refused


class Level(enum.IntEnum):
    LOW = 1


class Liar(float):
    """A number that says it had a shape."""

    shape = (7,)
    dtype = np.dtype("float32")


def outcome(compute):
    """What came of it, as something that tells 1 from True and 0.0 from -0.0, and finds NaN like NaN."""
    try:
        value = compute()
    except SchemaError as error:
        return "error", str(error), type(error.__cause__)
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return type(value), value.dtype, value.shape, repr(value)
    return type(value), repr(value)


def agree(text, *values):
    """Twice for each, as results are kept."""
    expression = parse(text)
    derived = derivation(expression)
    for current in (*values, *values):
        used = {name: current[name] for name in expression.names}
        instance = SimpleNamespace(**used)

        def expected(names=used):
            result = evaluate(expression, names)
            return tuple(result.values) if isinstance(result, Items) else result

        assert outcome(lambda: derived(instance)) == outcome(expected)


NAMES = ("a", "b", "x", "y")
CONSTANTS = ("0", "1", "3", "0.5", "2.0", "64", "True", "1e300", str(2**255), "'n'", "None")
numeric = st.recursive(
    st.sampled_from(
        NAMES + NAMES + CONSTANTS + ("len(x)", "size(y)", "ndim(a)", "shape(x)[0]", "shape(y)[-1]")
    ),
    lambda inner: st.one_of(
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner
        ),
        st.builds(
            "({} ** {})".format, inner, st.sampled_from(["2", "-1", "0.5", "64", "True", "b"])
        ),
        st.builds(
            "({} {} {})".format,
            inner,
            st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "and", "or"]),
            inner,
        ),
        st.builds(
            "({} {} {} < {})".format, inner, st.sampled_from(["<", "==", "!="]), inner, inner
        ),
        st.builds(
            "({} {} (1, -2, 'n', None, 0.5))".format, inner, st.sampled_from(["in", "not in"])
        ),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({}{})".format, st.sampled_from(["-", "+", "not "]), inner),
        st.builds("abs({})".format, inner),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
    ),
    max_leaves=6,
)
texts = numeric | st.sampled_from(
    ["shape(x)", "shape(a)", "shape(x) if a else y", "x", "sum(x)", "max(y)", "all(y)"]
)
values = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), 2**256, 10**400, math.nan, math.inf, -0.0, 1e300]),
    st.floats(),
    st.booleans(),
    st.sampled_from(
        ["", "n", b"n", None, 1j, Level.LOW, Liar(2.0), np.float64(0.5), np.int8(3), np.True_]
    ),
    st.sampled_from([(), (1, 2), [1.5], "text", {"a": 1}, range(3), object]),
    st.sampled_from([np.arange(6).reshape(2, 3), jnp.zeros((2, 3)), jnp.float32(2), np.zeros(0)]),
)


several = st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, values)), min_size=1, max_size=4)


@given(text=texts, given=several)
@example("a * 1", [dict.fromkeys(NAMES, value) for value in (1, True, 1.0, 1.0 + 0j)])
@example("a / 1", [dict.fromkeys(NAMES, value) for value in (0.0, -0.0, math.nan)])
@example("len(a)", [dict.fromkeys(NAMES, jnp.zeros(n)) for n in (1, 2)])
@example("size(a) * 1.0", [dict.fromkeys(NAMES, np.zeros(n)) for n in (1, 2)])
@example("size(a) + sum(a)", [dict.fromkeys(NAMES, jnp.full(2, n)) for n in (1, 2)])
@example("size(a)", [{"a": None}])
@example("ndim(a) + len(x)", [{"a": Liar(1.0), "x": [1]}])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_evaluator(text, given):
    """Values, types and errors are the same, for values of every kind."""
    agree(text, *given)


KEPT = [
    ("4 * alpha + 1", {"alpha": 3}),
    ("size(kernel) + alpha if alpha > 0 else 0", {"alpha": 3, "kernel": jnp.zeros((2, 3))}),
    ("size(size)", {"size": 3}),
    ("rate * 2", {"rate": 0.5}),
    ("alpha if init == 'normal' else -1", {"alpha": 2, "init": "normal"}),
    ("width == None or width in (8, 16)", {"width": None}),
]


@pytest.mark.parametrize(("text", "given"), KEPT, ids=[text for text, _ in KEPT])
def test_a_result_is_computed_once(text, given, monkeypatch):
    derived = derivation(parse(text))
    first = derived(SimpleNamespace(**given))
    monkeypatch.setattr(defaults, "evaluate", None)
    assert derived(SimpleNamespace(**given)) == first


def test_few_results_are_kept():
    derived = derivation(parse("a + 1"))
    for a in range(1000):
        assert derived(SimpleNamespace(a=a)) == a + 1
    (results,) = (
        cell.cell_contents for cell in derived.__closure__ if type(cell.cell_contents) is dict
    )
    assert 0 < len(results) <= 64


@pytest.mark.parametrize("given", [{"a": 1, "b": 0}, {"a": 2**300, "b": 1}, {"a": "text", "b": 1}])
def test_errors_are_those_of_the_evaluator(given):
    with pytest.raises(SchemaError) as raised:
        derivation(parse("a // b"))(SimpleNamespace(**given))
    with pytest.raises(SchemaError) as expected:
        evaluate(parse("a // b"), given)
    assert str(raised.value) == str(expected.value)


SCHEMA = """\
language: "1"
schema: test.derivations
version: 1
root: Net
structs:
  Net:
    fields:
      kernel: "float32[d, n]"
      rate: {type: float}
      alpha: {type: int, kind: static}
      width: {type: int, derived: 4 * alpha + 1}
      rows: {type: int, derived: "shape(kernel)[0] * width"}
      half: {kind: opaque, derived: rate / 2}
"""


def test_instances_under_transformations():
    """Sizes of tracers are numbers; what is made of traced numbers is traced."""
    cls = s.load_schema(SCHEMA).Net
    net = cls(kernel=jnp.zeros((2, 3)), rate=0.5, alpha=1)
    assert (net.width, net.rows, net.half) == (5, 10, 0.25)

    @jax.jit
    def traced(net):
        made = net.replace(rate=net.rate * 2)
        assert (made.width, made.rows) == (5, 10)
        assert isinstance(made.half, jax.core.Tracer)
        return made.half + made.rows

    assert traced(net) == 10.5


STACKED = """\
language: "1"
schema: test.sizes
version: 1
root: Net
structs:
  Inner: {fields: {v: "float32[k]", twice: {type: int, derived: 2 * k}}}
  Net:
    fields:
      kernel: "float32[d, n]"
      key: prng_key[threefry2x32]
      inner: Inner
      size: {type: int, derived: d * n}
"""


def test_sizes_of_stacked_and_vmapped_instances_are_those_of_one():
    cls = s.load_schema(STACKED).Net
    net = s.example(cls, dims={"d": 3, "n": 2, "k": 4})
    stacked = s.stack([net, net])
    mapped = jax.vmap(lambda _: jax.vmap(lambda _: net)(jnp.arange(2)))(jnp.arange(3))
    for made in (net, stacked, mapped):
        assert (made.size, made.inner.twice) == (6, 8)
    assert jax.vmap(lambda one: one.size * one.kernel[0, 0])(stacked).shape == (2,)


def test_sizes_that_are_no_numbers_yet():
    """Of an array exported for any length, the evaluator takes no size."""
    told = []

    def length(x):
        for text in ("shape(x)", "size(x) + 1", "shape(x)[0]"):
            agree(text, {"x": x})
            told.append(outcome(lambda text=text: derivation(parse(text))(SimpleNamespace(x=x)))[0])
        return x

    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    jax.export.export(jax.jit(length))(spec)
    assert told == ["error"] * 3


def test_results_without_axes_are_python_numbers():
    fields = {"history": {"type": "list[float]", "default": []}, "x": "float32[n]"}
    fields["mean"] = {"type": "float", "derived": "sum(history) / max(len(history), 1)"}
    fields["total"] = {"type": "float", "derived": "sum(x)"}
    data = {"language": "1", "schema": "tests.means", "version": 1, "root": "A"}
    made = s.load_schema(json.dumps(data | {"structs": {"A": {"fields": fields}}}, indent=1))
    state = jax.jit(lambda state: state)(made.A(history=[1.0, 2.0], x=jnp.ones(3)))
    assert (state.mean, state.total) == (1.5, 3.0)
    assert {type(state.mean), type(state.total)} == {float}
    assert jax.jit(lambda state: 2 * state.total)(state) == 6.0
    hash(state)


AS_DECLARED = [
    ("list[int]", "shape(f)", [2, 3]),
    ("list[int]", "history", [4, 5]),
    ("tuple[int, ...]", "history", (4, 5)),
    ("tuple[int, int]", "[n, 7]", (2, 7)),
    ("list[tuple[int, int]]", "[shape(f), (1, 2)]", [(2, 3), (1, 2)]),
    ("list[int] | null", "None", None),
    ("dict[str, int]", "named", {"a": 1}),
    ("int", "n / 1", 2),
    ("Mode", "'fast'", "fast"),
    ("path", "'a/b'", Path("a/b")),
    ("complex", "1", 1 + 0j),
    ("float", "n", 2.0),
    ("int | float", "n", 2),
    ("tuple[float, ...]", "history", (4.0, 5.0)),
]
NOT_AS_DECLARED = [
    ("int", "n / 4", "NQX411", ["A.made", "int", 0.5]),
    ("int", "n > 1", "NQX411", ["A.made", "int", True]),
    ("tuple[int]", "history", "NQX411", ["A.made", "tuple[int]", "list"]),
    ("Mode", "'fats'", "NQX411", ["A.made", "Mode", "fats"]),
    ("int", "shape(f)", "NQX115", ["int", "tuple", "`shape(f)`"]),
    ("str", "n", "NQX115", ["str", "int", "`n`"]),
    ("list[int]", "n", "NQX115", ["list[int]", "int", "`n`"]),
    ("list[int]", "named", "NQX115", ["list[int]", "dict", "`named`"]),
    ("int", "2 * history", "NQX115", ["int", "`2 * history`"]),
]


def derived_value(declared, expression):
    fields = {"f": "float32[n, m]", "history": "list[int]", "named": "dict[str, int]"}
    kind = {"kind": "opaque"} if "dict" in declared else {}
    fields["made"] = {"type": declared, "derived": expression, **kind}
    schema = s.load_schema(s.dump_schema(doc(fields, enums={"Mode": ["fast", "slow"]})))
    made = schema.A(f=np.ones((2, 3), "float32"), history=[4, 5], named={"a": 1})
    assert jax.tree.map(lambda x: x, made).made == made.made
    return made.made


@every(("declared", "expression", "value"), AS_DECLARED)
def test_a_derived_field_has_its_declared_type(declared, expression, value):
    found = derived_value(declared, expression)
    assert (type(found), found) == (type(value), value)


@every(("declared", "expression", "code", "named"), NOT_AS_DECLARED)
def test_a_derived_value_of_another_type_is_refused(declared, expression, code, named):
    with refused(s.StructError, code, *named):
        derived_value(declared, expression)


def test_a_condition_guards_paths_that_lead_nowhere():
    net = s.load_schema("""
language: "1"
schema: test.guarded
version: 1
root: Net
structs:
  Net:
    fields:
      inner: {type: "Net | null", default: null}
      n: {type: int, kind: static, default: 1}
      inside: {type: int, kind: static, derived: inner.n if inner != None else 7}
""").Net
    assert net().inside == 7 and net(inner=net(n=3)).inside == 3


def test_a_static_derived_field_is_no_list():
    fields = {"f": "float32[n]", "g": {"type": "list[int]", "kind": "static", "derived": "[n]"}}
    with refused(s.SchemaError, "NQX110", "list[int]"):
        s.load_schema(s.dump_schema(doc(fields)))


def test_a_derived_field_of_arrays_has_to_be_opaque():
    fields = {"f": "float32[n]", "g": {"type": "float32[n]", "derived": "2 * f"}}
    with refused(s.SchemaError, "NQX110", "float32[n]"):
        s.load_schema(s.dump_schema(doc(fields)))
    fields["g"]["kind"] = "opaque"
    schema = s.load_schema(s.dump_schema(doc(fields)))
    assert schema.A(f=np.ones(2, "float32")).g.tolist() == [2, 2]


def of_nulls(expression):
    """Whether an object with nulls can be made, and the findings of lint about the expression."""
    fields = {"n": "int | null", "n0": "int", "y": "float32[k] | null", "part": "P"}
    fields |= {"parts": "list[P]", "lost": "list[P]", "items": "list[int] | null"}
    fields["made"] = {"derived": expression, "kind": "static"}
    document = doc(fields, structs={"P": {"m": "int | null"}})
    schema = Schema(series_of([document]), 1)
    part, other = schema.P(m=None), schema.P(m=2)
    found = [each for each in lint_document(document) if each.code == "NQX115"]
    try:
        schema.A(n=None, n0=3, y=None, part=part, parts=[part, other], lost=[part], items=None)
    except s.SchemaError as error:
        assert error.code == "NQX115" and str(error).startswith("lab.a@1:A.made: ")
        return False, found
    return True, found


@every(
    "expression",
    [
        "n + 1",
        "size(y) + n0",
        "part.m * 2",
        "max(lost.m)",
        "len(items)",
        "n0 + 1",
        "n == None",
        "sum(parts.m)",
        "n != None and n0 > 1",
    ],
)
def test_lint_warns_of_what_has_no_value_where_a_field_is_null(expression):
    is_made, found = of_nulls(expression)
    wanted = [] if is_made else [("warning", "$.structs.A.fields.made.derived")]
    assert [(each.severity, each.path) for each in found] == wanted
    for each in found:
        condition = str(each.hint).split(" if ")[1].split(" else ")[0]
        assert of_nulls(f"{expression} if {condition} else 0") == (True, [])
