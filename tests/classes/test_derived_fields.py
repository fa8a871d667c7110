"""What the code of derived fields gives, beside the evaluator, which says what they are."""

import enum
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.classes import derived_fields as derivations
from neuralqx_struct.classes.derived_fields import derivation
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.struct.equality import JAX_ARRAYS as ARRAYS

ARRAYS.add(type(jnp.zeros(1)))


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


def agree(text, values):
    expression = parse(text)
    used = {name: values[name] for name in expression.names}
    derived = derivation(expression)
    assert outcome(lambda: derived(SimpleNamespace(**used))) == outcome(
        lambda: evaluate(expression, used)
    )


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


@given(text=texts, given=st.fixed_dictionaries(dict.fromkeys(NAMES, values)))
@example("a * b * (a * b) * a", dict.fromkeys(NAMES, 2**62))
@example("(a + 1) // b", {"a": 1, "b": 0})
@example("a in (1, 2)", {"a": math.nan})
@example("a * 3", {"a": "text"})
@example("ndim(a) + len(x)", {"a": Liar(1.0), "x": [1]})
@example("min(a, b)", {"a": 1.0, "b": math.nan})
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_code_does_as_the_evaluator_does(text, given):
    """Values, types and errors are the same, for values of every kind."""
    agree(text, given)


PROVEN = [
    ("4 * alpha + 1", {"alpha": 3}),
    ("size(kernel) + alpha if alpha > 0 else 0", {"alpha": 3, "kernel": jnp.zeros((2, 3))}),
    ("shape(kernel)[0] * ndim(kernel) - len(kernel)", {"kernel": jnp.zeros((2, 3))}),
    ("shape(kernel)", {"kernel": jnp.zeros((2, 3))}),
    ("alpha ** 4 // 7 % 5", {"alpha": -9}),
    ("0 < rate <= 1 and not deep", {"rate": 0.5, "deep": False}),
    ("alpha if init == 'normal' else -1", {"alpha": 2, "init": "normal"}),
    ("width == None or width in (8, 16)", {"width": None}),
    ("max(alpha, 2, abs(beta))", {"alpha": 1, "beta": -3}),
    (" + ".join(["a"] * 40), {"a": 1}),
    ("-" * 20 + "(" * 45 + "a" + " + 1)" * 40 + ")" * 5, {"a": 1}),
]


@pytest.mark.parametrize(("text", "given"), PROVEN, ids=[text[:20] for text, _ in PROVEN])
def test_what_is_usual_needs_no_evaluator(text, given, monkeypatch):
    expected = evaluate(parse(text), given)
    monkeypatch.setattr(derivations, "evaluate", None)
    monkeypatch.setattr(derivations, "evaluate_tree", None)
    found = derivation(parse(text))(SimpleNamespace(**given))
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("2 + 3", {}),
        ("a * a * a * a * a", {"a": 2}),
        ("a ** b", {"a": 2, "b": 3}),
        ("2 ** -a", {"a": 3}),
        ("sum(a)", {"a": [1, 2]}),
        ("min(a)", {"a": [1, 2]}),
        ("len(a + a)", {"a": "no"}),
        ("shape(a) == (2, 3)", {"a": np.zeros((2, 3))}),
        ("shape(a + 1)[0]", {"a": np.zeros((2, 3))}),
        ("(a, 1)", {"a": 3}),
        ("a + 'n'", {"a": "no"}),
        ("a < 2 in (True, 3)", {"a": 1}),
        ("a ** 0.5 ** 2", {"a": 2}),
        (" + ".join(["a"] * 245), {"a": 1}),
        ("a ** -100", {"a": 2.0}),
        (
            "size(a) * size(a) * size(a) * size(a)",
            {"a": jax.ShapeDtypeStruct((2**62, 16), np.int8)},
        ),
        ("size(a) * 2", {"a": jax.ShapeDtypeStruct((2**62, 4), np.int8)}),
    ],
)
def test_what_is_not_straight_code_is_evaluated(text, given):
    agree(text, given)


@pytest.mark.parametrize("given", [{"a": 1, "b": 0}, {"a": 2**300, "b": 1}, {"a": "text", "b": 1}])
def test_errors_are_those_of_the_evaluator(given):
    """Nothing is left of the code in them: no context, and the words of the evaluator."""
    with pytest.raises(SchemaError) as raised:
        derivation(parse("a // b"))(SimpleNamespace(**given))
    with pytest.raises(SchemaError) as expected:
        evaluate(parse("a // b"), given)
    assert str(raised.value) == str(expected.value)
    assert not any(
        "generated" in str(entry.path) and entry.name != "derived" for entry in raised.traceback
    )


def test_text_of_a_schema_never_reaches_the_source():
    """Names and texts come in as objects, whatever they are."""
    name = "__import__"
    derived = derivation(parse(f"{name} + 1 if init == 'exit()' else 0"))
    known = {
        *derived.__code__.co_names,
        *derived.__code__.co_varnames,
        *map(str, derived.__code__.co_consts),
    }
    assert not known & {name, "init", "exit()"}
    assert derived(SimpleNamespace(**{name: 2, "init": "exit()"})) == 3


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


def test_sizes_that_are_no_numbers_yet():
    """Of an array exported for any length, the evaluator takes no size."""
    told = []

    def length(x):
        for text in ("shape(x)", "size(x) + 1", "shape(x)[0]"):
            agree(text, {"x": x})
            told.append(outcome(lambda text=text: derivation(parse(text))(SimpleNamespace(x=x)))[0])
        return x

    jax.make_jaxpr(lambda x: ARRAYS.add(type(x)) or x)(1.0)
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    jax.export.export(jax.jit(length))(spec)
    assert told == ["error"] * 3


WHOLE = [
    "a",
    "(a if a else 0)",
    "(a or 0)",
    "max(0, a)",
    "abs(a)",
    "-a",
    "(a - 0)",
    "(a // 1)",
    "(a % (a + 1))",
    "a ** 1",
]


@pytest.mark.parametrize("part", WHOLE)
@pytest.mark.parametrize("count", [2, 4, 5])
def test_no_whole_number_grows_too_long(part, count):
    """The bound on code is that of the evaluator, whatever the numbers went through before."""
    agree(" * ".join([part] * count), {"a": 2**62})
    agree(" * ".join([part] * count), {"a": 1 - 2**63})
