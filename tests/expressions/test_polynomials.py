"""Polynomials of sizes: quotients, sums, and their text."""

import pytest

from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.polynomials import divided, polynomial, polynomial_text, summed
from tests.builders import every

QUOTIENTS = [
    ("d * h * k", "d", "h * k"),
    ("3 * d * d", "3 * d", "d"),
    ("2 * n * m + 4 * m", "2 * m", "n + 2"),
    ("n - m", "1", "n - m"),
    ("(n // 2) * m", "m", "n // 2"),
    ("d * d", "d + 1", None),
    ("3 * d", "2", None),
    ("d * h", "k", None),
    ("d", "d * d", None),
]


@every(("whole", "part", "wanted"), QUOTIENTS)
def test_a_quotient_leaves_nothing(whole, part, wanted):
    found = divided(*(polynomial(parse(text), {}) for text in (whole, part)))
    assert found == (None if wanted is None else polynomial(parse(wanted), {}))


@pytest.mark.parametrize(
    "text", ["0", "7", "n", "-n", "2 * n * m - m + 1", "3 * (n // 2)", "n - 1"]
)
def test_the_text_of_a_polynomial_has_the_same_polynomial(text):
    form = polynomial(parse(text), {})
    assert polynomial(parse(polynomial_text(form)), {}) == form


def test_terms_of_a_sum_cancel():
    assert summed(polynomial(parse(text), {}) for text in ("n - m", "m - n")) == {}


def test_whole_quotients_are_divided_and_very_long_products_are_one_atom():
    assert polynomial(parse("(2 * a + 4) // 2"), {}) == polynomial(parse("a + 2"), {})
    sums = [" + ".join(f"{letter}{i}" for i in range(30)) for letter in "ab"]
    assert len(polynomial(parse(sums[0]), {})) == 30
    product = parse(f"({sums[0]}) * ({sums[1]})")
    assert len(polynomial(product, {})) == 1 and summed([polynomial(product, {})])
