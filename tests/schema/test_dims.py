"""Dims: sizes found by unification, and what is said where they disagree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.expressions import parse
from neuralqx_struct.schema.model import DimDeclaration
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.tools.linting import lint_document
from tests.builders import bounded, cases, doc, every, stands_in


def shape(text):
    """``"n, 2 * m, ..."`` as declared axes."""
    return [... if axis == "..." else parse(axis) for axis in text.split(", ")] if text else []


def dims(**declared):
    """``n={}``, ``m={"equals": "2 * n"}`` as declared dims."""
    return {name: DimDeclaration(**arguments) for name, arguments in declared.items()}


def run(solver, *arrays, solve=True):
    found = []
    for position, (declared, actual) in enumerate(arrays):
        found += solver.unify(shape(declared), actual, f"$.{'abcdefgh'[position]}", "float32")
    return found + (solver.solve() if solve else [])


def sizes(solver):
    return solver.sizes()


@every(
    ("arrays", "expected"),
    [
        ([("n, m", (3, 4))], {"n": 3, "m": 4}),
        ([("", ())], {}),
        ([("n", (0,)), ("2 * n", (0,))], {"n": 0}),
        ([("n, n", (3, 3))], {"n": 3}),
        ([("3, 2 * 2", (3, 4))], {}),
        ([("2 * n + 1", (9,))], {"n": 4}),
        ([("n + m", (9,)), ("n", (4,))], {"n": 4, "m": 5}),
        ([("n * m, m * k, k * j", (6, 12, 20)), ("n", (2,))], {"n": 2, "m": 3, "k": 4, "j": 5}),
        ([("n // 2", (3,))], {}),
        ([("n // 2", (3,)), ("n", (7,))], {"n": 7}),
        ([("n + m", (5,)), ("n - m", (1,))], {}),
        ([("0 * n", (0,))], {}),
        ([("_, n, _", (3, 4, 5))], {"n": 4}),
        ([("_ + 1", (0,))], {}),
        ([("..., n", (7, 8, 3))], {"n": 3}),
        ([("n, ...", (3, 8, 9))], {"n": 3}),
        ([("n, ..., m", (3, 8, 9, 4))], {"n": 3, "m": 4}),
        ([("n, ..., m", (3, 4))], {"n": 3, "m": 4}),
        ([("n, ..., k, ..., m", (3, 1, 2, 4))], {"n": 3, "m": 4}),
        ([("...", ())], {}),
        ([("0.5 * n", (3,)), ("n", (6,))], {"n": 6}),
        ([("n / 49 * 49", (1,)), ("n", (1,))], {"n": 1}),
        ([("min(n,4)", (4,)), ("n", (6,))], {"n": 6}),
        ([("n if n > 2 else 2", (2,)), ("n", (1,))], {"n": 1}),
    ],
)
def test_sizes_that_agree(arrays, expected):
    for order in (arrays, arrays[::-1]):
        solver = Solver({})
        assert run(solver, *order) == []
        assert sizes(solver) == expected


@every(
    ("arrays", "code", "named"),
    [
        ([("n, m", (3,))], "NQX412", ["float32[n, m]", "float32[3]"]),
        ([("", (3,))], "NQX412", ["float32[]", "float32[3]"]),
        ([("n, ..., m", (3,))], "NQX412", ["float32[n, ..., m]", "float32[3]"]),
        ([("n, 3", (4, 5))], "NQX412", ["float32[n=4, 3]", "float32[4, 5]"]),
        ([("_, 1 // 0", (4, 5))], "NQX412", ["float32[_, 1 // 0]", "float32[4, 5]"]),
        (
            [("n", (3,)), ("n, 7", (4, 5))],
            "NQX412",
            ["float32[n=3, 7]", "float32[4, 5]", "n = 3"],
        ),
        (
            [("n, n", (3, 4))],
            "NQX413",
            ["float32[n=3, n=3]", "float32[3, 4]", "n = 3", "$.a axis 0"],
        ),
        (
            [("n, ..., m", (3, 9, 9, 4)), ("m", (5,))],
            "NQX413",
            ["float32[m=4]", "float32[5]", "m = 4", "$.a axis 3"],
        ),
        (
            [("2 * n", (8,)), ("n", (3,))],
            "NQX413",
            ["float32[n=4]", "float32[3]", "n = 4", "2 * n = 8", "$.a axis 0"],
        ),
        (
            [("n", (3,)), ("2 * n", (8,))],
            "NQX413",
            ["float32[2 * n=6]", "float32[8]", "2 * n = 6", "$.a axis 0"],
        ),
        (
            [("2 * n", (9,))],
            "NQX413",
            ["float32[2 * n]", "float32[9]", "2 * n = 9"],
        ),
        (
            [("n * 0 + 1", (9,))],
            "NQX413",
            ["float32[n * 0 + 1]", "float32[9]", "n * 0 + 1 = 1"],
        ),
        (
            [("n", (3,)), ("n / 2", (1,))],
            "NQX413",
            ["float32[n / 2]", "float32[1]", "n / 2 = 3/2", "$.a axis 0"],
        ),
        (
            [("n", (0,)), ("4 // n", (1,))],
            "NQX413",
            ["[1]", "`4 // n`", "$.a axis 0"],
        ),
        ([("n", (3,)), ("n > 2", (1,))], "NQX413", ["n > 2 = True"]),
        ([("n", (3,)), ("n + 4", (1,))], "NQX413", ["float32[n + 4=7]", "float32[1]"]),
        (
            [("n + 4", (1,))],
            "NQX413",
            ["n >= 0", "-3", "n = -3", "n + 4 = 1", "$.a axis 0"],
        ),
        (
            [("n * m", (6,)), ("n", (2,)), ("m", (4,))],
            "NQX413",
            ["float32[m=3]", "float32[4]", "m = 3", "n * m = 6", "$.a axis 0", "$.b axis 0"],
        ),
        (
            [("n * m", (6,)), ("n", (4,))],
            "NQX413",
            ["float32[n * m]", "float32[6]", "n * m = 6", "$.b axis 0"],
        ),
    ],
)
def test_one_conflict_is_one_finding(arrays, code, named):
    (found,) = run(Solver({}), *arrays)
    assert (found.code, found.severity) == (code, "error")
    assert all(stands_in(each, found.message) for each in named)
    assert found.hint


def test_every_wrong_array_is_named_once_with_all_its_axes():
    found = run(
        Solver({}), ("n, m, n * m", (2, 3, 6)), ("m, n, n + m, 7", (5, 6, 7, 8)), ("n", (9,))
    )
    assert [(d.path, d.code) for d in found] == [("$.b", "NQX412"), ("$.c", "NQX413")]
    assert found[0].message == (
        "expected float32[m=3, n=2, n + m=5, 7], got float32[5, 6, 7, 8]\n"
        "m = 3 was fixed by $.a axis 1\n"
        "n = 2 was fixed by $.a axis 0\n"
        "n + m = 5, m from $.a axis 1, n from $.a axis 0"
    )


def test_the_message_of_the_contract():
    solver = Solver(dims(n_sites={"min": 1}, n_hidden={"equals": "alpha * n_sites"}))
    sigma, kernel = parse("n_sites"), parse("n_hidden")
    solver.know("alpha", 4, "$.alpha")
    assert solver.unify([parse("n_chains"), sigma], [16, 12], "$.sampler.sigma", "int8") == []
    assert solver.solve() == []
    (found,) = solver.unify([sigma, kernel], [10, 40], "$.params.kernel", "complex64")
    assert str(found) == (
        "$.params.kernel: expected complex64[n_sites=12, n_hidden=48], got complex64[10, 40] [NQX413]\n"
        "  n_sites = 12 was fixed by $.sampler.sigma axis 1\n"
        "  n_hidden = alpha * n_sites = 48, alpha from $.alpha, n_sites from $.sampler.sigma axis 1\n"
        "  make the sizes agree, or use another name in the schema where they are meant to differ"
    )


def test_equals_blames_the_array_that_fixed_the_dim():
    solver = Solver(dims(n={}, m={"equals": "alpha * n"}))
    solver.know("alpha", 3, "$.alpha")
    found = run(solver, ("n, m", (10, 40)), ("m", (40,)))
    assert [d.path for d in found] == ["$.a"]
    assert found[0].message == (
        "expected float32[n=10, m=30], got float32[10, 40]\nm = alpha * n = 30, alpha from $.alpha, n from $.a axis 0"
    )
    assert solver.solve() == []


@every(
    ("declared", "known", "arrays", "expected"),
    [
        (
            {"m": {"equals": "alpha * n"}, "n": {}},
            {"alpha": 2},
            [("n", (3,))],
            {"alpha": 2, "n": 3, "m": 6},
        ),
        (
            {"m": {"equals": "alpha * n"}, "n": {}},
            {"alpha": 2},
            [("m", (6,))],
            {"alpha": 2, "n": 3, "m": 6},
        ),
        (
            {"m": {"equals": "alpha * n"}, "n": {}},
            {},
            [("m, n", (6, 3))],
            {"alpha": 2, "n": 3, "m": 6},
        ),
        ({"m": {"equals": "alpha * n"}, "n": {}}, {}, [("m", (6,))], {"m": 6}),
        (
            {"m": {"equals": "k + 1"}, "k": {"equals": "j + 1"}, "j": {}},
            {},
            [("j", (1,))],
            {"j": 1, "k": 2, "m": 3},
        ),
        (
            {"m": {"equals": "k + 1"}, "k": {"equals": "j + 1"}, "j": {}},
            {},
            [("m", (3,))],
            {"j": 1, "k": 2, "m": 3},
        ),
        ({"m": {"equals": "12"}}, {}, [], {"m": 12}),
        ({"m": {"equals": "2 * m - 4"}}, {}, [], {}),
        ({"m": {"equals": "2 * m - 4"}}, {}, [("m", (4,))], {"m": 4}),
        ({"m": {"equals": "n // 2"}, "n": {}}, {}, [("m", (3,))], {"m": 3}),
        ({"m": {"equals": "_ + 1"}}, {}, [("m", (3,))], {"m": 3}),
        (
            {"m": {"equals": "offset + n"}, "n": {}},
            {"offset": -1},
            [("n", (3,))],
            {"offset": -1, "n": 3, "m": 2},
        ),
    ],
)
def test_equals_works_both_ways(declared, known, arrays, expected):
    solver = Solver(dims(**declared))
    for name, size in known.items():
        solver.know(name, size, f"$.{name}")
    assert run(solver, *arrays) == []
    assert sizes(solver) == expected


@every(
    ("declared", "known", "arrays", "path", "named"),
    [
        (
            {"n": {"min": 1}},
            {},
            [("n", (0,))],
            "$.a",
            ["n >= 1", "n = 0", "$.a axis 0"],
        ),
        (
            {"n": {"max": 4}},
            {},
            [("n", (5,))],
            "$.a",
            ["n <= 4", "n = 5", "$.a axis 0"],
        ),
        (
            {"n": {}},
            {"n": -1},
            [],
            "$.n",
            ["n >= 0", "-1", "n = -1", "$.n"],
        ),
        (
            {"m": {"equals": "k - 5"}},
            {"k": 3},
            [],
            "$.k",
            ["m >= 0", "-2", "m = k - 5 = -2", "$.k"],
        ),
        (
            {"m": {"equals": "k"}},
            {"m": 4, "k": 3},
            [],
            "$.m",
            ["m = 3", "m = k = 3", "$.k", "m = 4"],
        ),
        (
            {"m": {"equals": "k / 2"}},
            {"k": 3},
            [],
            "$.k",
            ["m = k / 2", "k / 2 = 3/2"],
        ),
        (
            {"m": {"equals": "2 * k"}},
            {"m": 3},
            [],
            "$.m",
            ["m = 2 * k", "m = 2 * k"],
        ),
        (
            {"m": {"equals": "12"}},
            {},
            [("2 * m", (8,))],
            "$.a",
            ["float32[2 * m=24]", "float32[8]", "m = 12", "m = 4", "2 * m = 8", "$.a axis 0"],
        ),
    ],
)
def test_conflicts_of_declared_dims(declared, known, arrays, path, named):
    solver = Solver(dims(**declared))
    for name, size in known.items():
        solver.know(name, size, f"$.{name}")
    (found,) = run(solver, *arrays)
    assert (found.code, found.path) == ("NQX413", path)
    assert all(stands_in(each, found.message) for each in named)
    assert solver.solve() == []


def test_statements_that_disagree():
    solver = Solver({})
    solver.know("n", 3, "$.n")
    solver.know("n", 3, "$.again")
    solver.know("n", 4, "$.other")
    (found,) = solver.solve()
    assert (found.path, found.message) == (
        "$.other",
        "expected n = 3, got 4\nn = 3 was fixed by $.n",
    )
    assert solver.sizes() == {"n": 3}


def test_a_chain_of_reasons_ends():
    declared = {f"d{i}": {"equals": f"d{i - 1} + 1"} for i in range(1, 30)}
    solver = Solver(dims(d0={}, **declared))
    solver.know("d0", 1, "$.d0")
    assert solver.solve() == []
    (found,) = solver.unify(shape("d29"), [7], "$.x", "int8")
    lines = found.message.splitlines()
    assert lines[1] == "d29 = d28 + 1 = 30, d28 from d27 + 1"
    assert lines[2] == "d28 = d27 + 1 = 29, d27 from d26 + 1"
    assert len(lines) == 10
    assert lines[-1] == "and so on"


def test_declared_names_are_shared_and_the_others_are_local():
    solver = Solver(dims(n={}))
    first, second = solver.scope(), solver.scope()
    assert first.unify(shape("n, width"), [3, 4], "$.layers[0].w", "float32") == []
    assert second.unify(shape("n, width"), [3, 5], "$.layers[1].w", "float32") == []
    (found,) = second.scope().unify(shape("n, width"), [2, 5], "$.layers[1].inner.w", "float32")
    assert "n = 3" in found.message and "$.layers[0].w axis 0" in found.message
    assert (sizes(solver), sizes(first), sizes(second)) == (
        {"n": 3},
        {"n": 3, "width": 4},
        {"n": 3, "width": 5},
    )
    first.know("k", 1, "$.layers[0].k")
    assert "k" not in sizes(second)
    # What a scope left open is decided with the whole tree.
    first.unify(shape("width * z"), [9], "$.layers[0].v", "float32")
    second.unify(shape("n + y"), [2], "$.layers[1].v", "float32")
    assert [d.path for d in solver.solve()] == ["$.layers[1].v"]


def test_parameters_are_sizes_of_the_outer_scope():
    solver = Solver(dims(d={}))
    inner = solver.scope(
        {"rows": parse("d"), "columns": parse("4 * d"), "free": parse("_"), "n": parse("rows")}
    )
    assert inner.unify(shape("columns, free"), [12, 5], "$.dense.w", "float32") == []
    assert sizes(solver) == {"d": 3}
    assert sizes(inner) == {"d": 3, "rows": 3, "columns": 12, "free": 5}
    (found,) = inner.unify(shape("rows"), [4], "$.dense.b", "float32")
    assert (
        found.message.splitlines()[1]
        == "rows = d = 3 solves columns = 4 * d, columns from $.dense.w axis 0"
    )
    # Two names of one size are one unknown.
    twice = Solver(dims(d={})).scope({"a": parse("d"), "b": parse("d")})
    assert twice.unify(shape("a + 2 * b"), [9], "$.x", "int8") == []
    assert sizes(twice) == {"a": 3, "b": 3, "d": 3}


def test_a_parameter_that_has_no_size_is_reported():
    solver = Solver({})
    solver.scope({"rows": parse("1 // 0")})
    (found,) = solver.solve()
    assert (found.code, found.message.splitlines()[0]) == (
        "NQX413",
        "expected rows = 1 // 0, got no such size",
    )


def test_many_arrays_and_long_chains_are_quick():
    with bounded():
        solver = Solver(dims(n={}))
        for i in range(3000):  # each waits for the next one; the last decides about all
            assert solver.unify(shape(f"d{i} + d{i + 1}"), [i % 2 + 5], f"$.x[{i}]", "int8") == []
        found = solver.unify(shape("d3000"), [3], "$.last", "int8")
        assert found == []
        assert len(solver.sizes()) == 3001
        for i in range(3000):
            assert solver.scope().unify(shape("n, width"), [3, i], "$.y", "int8") == []


# ---------------------------------------------------------------------------------------------------------------------
# Laws

_AXES = st.sampled_from(
    [
        "n",
        "m",
        "k",
        "3",
        "2 * n",
        "n + m",
        "n * m",
        "n - k",
        "n // 2",
        "m / 2",
        "max(n, m)",
        "2 * k + 1",
        "0.5 * n",
        "_",
        "0 * n + m",
        "k * m + n",
        "m % 2 + n",
    ]
)
_CLAIMS = st.lists(
    st.one_of(
        st.tuples(
            st.just("array"), st.lists(st.tuples(_AXES, st.integers(0, 6)), min_size=1, max_size=3)
        ),
        st.tuples(st.just("know"), st.sampled_from("nmk"), st.integers(-1, 4)),
    ),
    min_size=1,
    max_size=6,
)
_DECLARED = st.sampled_from(
    [
        {},
        {"n": {}, "m": {"equals": "2 * n"}},
        {"n": {"min": 1, "max": 3}, "k": {"equals": "n + m"}, "m": {}},
        {"m": {"equals": "n // 2"}, "n": {"equals": "k + 1"}},
    ]
)


def _solved(declared, claims):
    solver = Solver(dims(**declared))
    found = []
    for position, (sort, *arguments) in enumerate(claims):
        if sort == "know":
            solver.know(*arguments, f"$.{position}")
        else:
            axes, actual = zip(*arguments[0], strict=True)
            found += solver.unify([parse(axis) for axis in axes], actual, f"$.{position}", "int8")
    return found + solver.solve(), sizes(solver)


@settings(max_examples=cases(400), deadline=None)
@given(_DECLARED, _CLAIMS, st.randoms(use_true_random=False))
def test_the_order_does_not_matter_for_whether_sizes_agree(declared, claims, random):
    found, known = _solved(declared, claims)
    shuffled = list(claims)
    random.shuffle(shuffled)
    again, known_again = _solved(declared, shuffled)
    assert bool(found) == bool(again)
    if not found:
        assert known == known_again


@settings(max_examples=cases(200), deadline=None)
@given(st.lists(st.lists(_AXES, min_size=1, max_size=3), min_size=1, max_size=6), st.data())
def test_shapes_that_come_from_sizes_agree(arrays, data):
    truth = {name: data.draw(st.integers(1, 9)) for name in "nmk"}
    truth |= {"_": 7}
    solver = Solver({})
    found = []
    for axes in arrays:
        actual = [eval(axis, {"max": max}, truth) for axis in axes]
        if all(size >= 0 and size == int(size) for size in actual):
            found += solver.unify(
                [parse(axis) for axis in axes], [int(size) for size in actual], "$", "int8"
            )
    assert found + solver.solve() == []
    assert sizes(solver).items() <= truth.items()


@pytest.mark.parametrize("size", [10**5000, -(10**5000), 2**64], ids=["long", "negative", "wide"])
def test_sizes_of_any_length_are_told_in_words(size):
    solver = Solver({"n": DimDeclaration(max=9), "m": DimDeclaration(equals="2 * n")})
    solver.know("n", size, "$.n")
    solver.know("n", size + 1, "$.k")
    found = solver.unify([parse("n"), parse("n + 1")], [3, 4], "$.w", "int8") + solver.solve()
    assert {d.code for d in found} == {"NQX413"}
    assert all(len(str(d)) < 1000 for d in found)


def test_sizes_that_grow_from_each_other_end():
    dims = {f"d{i}": DimDeclaration(equals=f"d{i - 1} * d{i - 1}") for i in range(1, 200)}
    solver = Solver({"d0": DimDeclaration(), **dims})
    assert solver.unify([parse("d0")], [10], "$.w", "int8") == []
    [found] = solver.solve()
    assert "d4 * d4 = 100000000000000000000000000000000" in found.message


def test_an_equation_of_many_unknowns_that_become_known_one_by_one():
    solver, names = Solver({}), [f"n{i}" for i in range(240)]
    whole = parse(" + ".join(names))
    with bounded():
        for i in range(500):
            assert solver.unify([whole], [240], f"$.x{i}", "int8") == []
        for name in names:
            assert solver.unify([parse(name)], [1], f"$.{name}", "int8") == []
        assert solver.solve() == []


def test_sizes_that_follow_from_each_other_end_at_the_longest_axis():
    solver = Solver({})
    solver.unify([parse("n0")], [9], "$.a", "int8")
    found = []
    for i in range(400):
        text = f"n{i + 1} / ({' * '.join([f'n{i}'] * 30)})"
        found += solver.unify([parse(text)], [3], f"$.b{i}", "int8")
    assert [each.code for each in found] == ["NQX413"]
    assert "n1" in found[0].message


def test_numbers_of_any_length_in_messages():
    solver = Solver({})
    solver.unify([parse("n")], [2**62], "$.a", "int8")
    large = " * ".join(["n ** 64"] * 20)
    for text in (large, f"{large} / 7", f"0 * m + {large}", f"0 * m + {large} / 7"):
        (found,) = solver.unify([parse(text)], [3], "$.b", "int8")
        assert "bits" in found.message
        assert len(found.message) < 3000


def test_long_equations_of_many_arrays_have_a_budget():
    solver = Solver({"n": DimDeclaration(min=1)})
    long = parse(" + ".join("n" * 250))
    found = solver.unify([parse("n")], [1], "$.a", "int8")
    with bounded():
        for i in range(7_000):
            found += solver.unify([long], [250], f"$.x{i}", "int8")
        found += solver.solve()
    assert [each.code for each in found] == ["NQX507"]


def test_errors_about_long_equations_are_short():
    solver, names = Solver({}), [f"n{i}" for i in range(240)]
    for i, name in enumerate(names):
        before = " + ".join([f"0 * {other}" for other in names[:i]][:80] or ["0"])
        assert solver.unify([parse(f"{name} + {before}")], [1], f"$.{name}", "int8") == []
    (found,) = solver.unify([parse(" + ".join(names))], [7], "$.x", "int8")
    assert len(found.message) < 10_000


def test_a_size_that_nothing_declares_beside_a_root_that_is_no_struct():
    document = doc({"a": "int8[n]"}, dims={"n": {"equals": "2 * k"}})
    damaged = document.model_copy(update={"root": "Nothing"})
    assert {"NQX101", "NQX103"} <= {found.code for found in lint_document(damaged)}
