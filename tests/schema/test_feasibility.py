"""Tests of `schema/sizes/feasibility.py`: dims and shapes for which no sizes exist."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.schema.model import DimDeclaration, FieldDeclaration
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.sizes.feasibility import impossible_sizes
from neuralqx_struct.tools.linting import lint_document
from tests.builders import cases, every


def dims_of(data):
    return {name: DimDeclaration(**dim) for name, dim in data.items()}


def impossible(dims, ints=None, extents=None):
    fields = {n: FieldDeclaration(type="int", **f) for n, f in (ints or {}).items()}
    sizes = {text: parse(text) for text in extents or ()}
    return list(impossible_sizes(dims_of(dims), fields, sizes))


FOUND = {
    "a minimum above the maximum": {"k": {"min": 3, "max": 2}},
    "a difference that is zero": {"d": {}, "k": {"equals": "d - d", "min": 3}},
    "a fixed size": {"k": {"equals": 2, "min": 3}},
    "a fixed size above the maximum": {"k": {"equals": "2 * 2", "max": 3}},
    "a negative size": {"d": {"max": 4}, "k": {"equals": "d - 5"}},
    "a negative size for all": {"d": {}, "k": {"equals": "-d - 1"}},
    "a sum of minima": {"n": {"min": 3}, "m": {"min": 3}, "k": {"equals": "n + m", "max": 5}},
    "a product": {"n": {"min": 2}, "m": {}, "j": {"equals": "n * m - 5"}, "k": {"equals": "2 - m", "min": 3}},
    "a product of minima": {"n": {"min": 2}, "m": {"min": 3}, "k": {"equals": "n * m", "max": 5}},
    "an odd size": {"n": {}, "k": {"equals": "2 * n", "min": 3, "max": 3}},
    "a chain": {"a": {"max": 1}, "b": {"equals": "a + 1"}, "k": {"equals": "2 * b", "min": 5}},
}  # fmt: skip


@every("name", FOUND)
def test_dims_without_sizes_are_found(name):
    assert len(impossible(FOUND[name])) == 1


def test_static_ints_have_their_bounds():
    dims = {"n": {"min": 1}, "k": {"equals": "alpha * n"}}
    assert impossible(dims, {"alpha": {}}) == []
    assert impossible(dims, {"alpha": {"le": -1}}) == ["k"]
    assert impossible(dims, {"alpha": {"lt": 0.5}}) == []
    assert impossible({"n": {"max": 3}}, {"n": {"gt": 2.5}}) == []
    assert impossible({"n": {"max": 3}}, {"n": {"gt": 3}}) == ["n"]
    assert impossible({"n": {"max": 3}}, {"n": {"ge": 4.5}}) == ["n"]
    dims = {"n": {"max": 3}, "k": {"equals": "n + 1"}}
    assert impossible(dims, {"n": {"ge": 4}}) == ["n"]


def test_sizes_in_shapes_are_judged_beside_the_dims():
    dims = {"n": {"max": 3}}
    assert impossible(dims, {}, ["n - 3", "n - 4", "m - 4", "h - h - 1"]) == ["n - 4", "h - h - 1"]
    assert impossible(dims, {"alpha": {}}, ["alpha - 4"]) == []


def test_parts_that_are_no_polynomials_are_not_decided():
    assert impossible({"n": {"max": 1}, "k": {"equals": "n / 2 - 9"}}) == []
    assert impossible({"n": {"max": 1}, "k": {"equals": "n // 2 * 3", "min": 1, "max": 1}}) == []


def test_lint_names_the_dim_and_the_field():
    fields = {"a": "int8[d]", "b": "int8[k]", "c": "int8[d - 3]"}
    structs = {"A": {"fields": fields}, "B": {"params": ["d"], "fields": {"x": "int8[9 - d]"}}}
    dims = {"d": {"max": 2}, "k": {"equals": "d - d", "min": 3}}
    data = {"language": "1", "schema": "a", "version": 1, "root": "A", "dims": dims}
    structs["A"]["fields"]["held"] = "B[d]"
    found = lint_document(document_from_data({**data, "structs": structs}, "a"))
    errors = {d.path: d.message for d in found if d.severity == "error"}
    assert errors == {
        "$.dims.k": "expected a size that exists, got none for k: equals d - d, min 3",
        "$.structs.A.fields.c.type": "expected a size >= 0, got d - 3, which no sizes make so",
    }


def test_many_dims_take_bounded_work():
    names = [f"n{i}" for i in range(60)]
    dims = {name: {} for name in names}
    for i, (a, b) in enumerate(itertools.islice(itertools.combinations(names, 2), 400)):
        dims[f"k{i}"] = {"equals": f"{a} - 2 * {b} + {names[i % 60]}"}
    assert impossible(dims) == []


EXPRESSIONS = st.sampled_from(
    ["a", "a + b", "a - b", "2 * a - 3", "a * b", "a - a", "b - 4", "3", "-a", "a * b - a", "b // 2"]
)  # fmt: skip
BOUNDS = st.fixed_dictionaries(
    {}, optional={"min": st.integers(0, 4), "max": st.integers(0, 5)}
).filter(lambda bounds: bounds.get("min", 0) <= bounds.get("max", 9))


@settings(max_examples=cases(150), deadline=None, derandomize=True)
@given(BOUNDS, BOUNDS, st.lists(st.tuples(EXPRESSIONS, BOUNDS), min_size=1, max_size=3))
def test_dims_that_have_sizes_are_never_reported(a, b, others):
    dims = {"a": a, "b": b} | {f"k{i}": {"equals": e, **m} for i, (e, m) in enumerate(others)}
    declared = dims_of(dims)

    def fits(sizes):
        for name, dim in declared.items():
            if dim.equation is not None:
                sizes[name] = evaluate(dim.equation, sizes)
        return all((d.min or 0) <= sizes[n] <= (99 if d.max is None else d.max) for n, d in declared.items())  # fmt: skip

    if any(fits({"a": x, "b": y}) for x in range(10) for y in range(10)):
        assert impossible(dims) == []
