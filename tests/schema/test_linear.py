"""Linear expressions: solving for one unknown, exactly."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.schema.sizes import linear_form
from tests.builders import cases, every


def solved(form, result):
    """The whole number at which a linear form has a value, or None."""
    if form is None or not form[0]:
        return None
    solution = (result - form[1]) / form[0]
    return int(solution) if solution.denominator == 1 else None


@every(
    ("text", "result", "solution"),
    [
        ("n", 5, 5),
        ("2*n + 1", 9, 4),
        ("2*n + 1", 8, None),
        ("k * n", 12, 4),
        ("(n - 1) * k - n", 7, 5),
        ("n / 2", 3, 6),
        ("n / 2 * 2", 3, 3),
        ("n / 3 + n / 6", 1, 2),
        ("-n + 10", 3, 7),
        ("k ** 2 * n", 18, 2),
        ("k // 2 + n % 1", 5, None),
        ("k // 2 + n", 5, 4),
        ("7 % k + n", 5, 4),
        ("n * 0 + 3", 3, None),
        ("n - n", 0, None),
        ("n * n", 9, None),
        ("n ** 1", 9, None),
        ("n // 2", 4, None),
        ("k / n", 1, None),
        ("max(n, 1)", 4, None),
        ("max(k, 1) * n", 6, 2),
        ("(k if k > 2 else 1) * n", 6, 2),
        ("n if k else 1", 6, None),
        ("0.5 * n", 6, None),
        ("n / 0", 6, None),
        ("n // 0", 6, None),
        ("k % 0 + n", 6, None),
        ("k ** -1 * n", 6, None),
        ("k ** (60 + 5) * n", 6, None),
        ("(k / 2) ** 2 * n", 6, None),
        ("missing + n", 6, None),
        ("True + n", 6, None),
        ("n + 5", 2, -3),
        ("2**60 * n", 2**61, 2),
    ],
)
def test_the_solution_of_a_linear_form(text, result, solution):
    assert solved(linear_form(parse(text), frozenset({"n"}), {"k": 3}), result) == solution


def test_linear_form_is_exact():
    assert linear_form(parse("n / 3 + k / 7"), frozenset({"n"}), {"k": 2}) == (
        Fraction(1, 3),
        Fraction(2, 7),
    )
    assert linear_form(parse("a + 2 * b"), frozenset({"a", "b"}), {}) == (Fraction(3), Fraction(0))
    assert linear_form(parse("k / 49 * 49"), frozenset(), {"k": 1}) == (Fraction(0), Fraction(1))
    assert linear_form(parse("7 // 2 % 2"), frozenset(), {}) == (Fraction(0), Fraction(1))


_LINEAR = st.recursive(
    st.sampled_from(["n", "k", "2", "5", "7"]),
    lambda inner: st.tuples(inner, st.sampled_from([" + ", " - ", " * "]), inner).map(
        lambda t: f"({''.join(t)})"
    ),
    max_leaves=8,
)


@settings(max_examples=cases(200), deadline=None)
@given(_LINEAR, st.integers(-50, 50), st.integers(0, 9))
def test_a_solution_solves(text, n, k):
    expression = parse(text)
    result = evaluate(expression, {"n": n, "k": k})
    form = linear_form(expression, frozenset({"n"}), {"k": k})
    if form is not None:
        assert form[0] * n + form[1] == result
    assert solved(form, result) == (n if form is not None and form[0] else None)
