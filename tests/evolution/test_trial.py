"""Verdicts on sizes by payloads that are tried: where no proof is found, and where one is wrong."""

import pytest

from neuralqx_struct.evolution import counterexamples
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.counterexamples import counterexample
from neuralqx_struct.schema.series import series_of
from tests.builders import bounded, doc

HELD = {
    "B": {"fields": {"w": "int8[n]"}},
    "C": {"params": ["k"], "fields": {"x": "int"}},
}
SIZES = {"a": "int8[k]", "b": "int8[n]"}


def tried(old, new, **options):
    """The codes of a payload of the first version that the second one refuses; None if nothing is decided."""
    found = counterexample(series_of([old, new]), old, new, "error", **options)
    return None if found is None else {d.code for d in found}


#: Fields and dims before and after, and the codes of a payload that is refused; None where nothing is decided.
CASES = {
    "the same size by another name": ({"a": "int8[n]"}, {}, {"a": "int8[m]"}, {}, set()),
    "a size for any": ({"a": "int8[n]", "b": "int8[n]"}, {}, {"a": "int8[_]", "b": "int8[_]"}, {}, set()),
    "one size for each of a list": ({"a": "list[B]"}, {}, {"a": "list[B]"}, {"n": {}}, {"NQX413"}),
    "one size for the only one": ({"a": "B"}, {}, {"a": "B"}, {"n": {}}, set()),
    "equal polynomials": (SIZES, {"n": {}, "k": {"equals": "(n + 1) * (n + 1)"}},
                          SIZES, {"n": {}, "k": {"equals": "n * n + 2 * n + 1"}}, set()),
    "polynomials that are equal below three": (
        SIZES, {"n": {}, "k": {"equals": "n * n * n + 2 * n"}},
        SIZES, {"n": {}, "k": {"equals": "3 * n * n"}}, {"NQX413"},
    ),
    "halves of odd sizes": (
        {"a": "int8[n]"}, {"n": {}}, {"a": "int8[n]"}, {"n": {"equals": "2 * k"}, "k": {}}, {"NQX413"},
    ),
    "a minimum that equations keep": (
        SIZES, {"n": {}, "k": {"equals": "n * n + 2"}},
        SIZES, {"n": {}, "k": {"equals": "n * n + 2", "min": 2}}, set(),
    ),
    "a maximum": ({"a": "int8[n]"}, {"n": {}}, {"a": "int8[n]"}, {"n": {"max": 12}}, {"NQX413"}),
    "a maximum of a list": (
        {"a": "list[int, n]"}, {"n": {}}, {"a": "list[int, n]"}, {"n": {"max": 12}}, {"NQX413"},
    ),
    "a maximum far off": ({"a": "int8[n]"}, {"n": {}}, {"a": "int8[n]"}, {"n": {"max": 1000}}, None),
    "no polynomials": ({"a": "int8[n // 2]"}, {}, {"a": "int8[n]"}, {}, None),
    "a pytree": ({"a": "pytree", "b": "int8[n]"}, {}, {"a": "pytree", "b": "int8[m]"}, {}, None),
    "a struct that is not there": ({"a": "No", "b": "int8[n]"}, {}, {"a": "No", "b": "int8[m]"}, {}, None),
    "an argument that nothing shows": ({"a": "C[2 * n]"}, {}, {"a": "C[n + 3]"}, {}, set()),
    "text for a pattern": (
        {"a": "int8[n]", "b": {"type": "str", "pattern": "x+"}}, {},
        {"a": "int8[m]", "b": {"type": "str", "pattern": "x+"}}, {}, None,
    ),
    "text that is very long": (
        {"a": "int8[n]", "b": {"type": "str", "min_length": 10**9}}, {},
        {"a": "int8[m]", "b": {"type": "str", "min_length": 10**9}}, {}, None,
    ),
    "an equation that names its dim": (
        SIZES, {"n": {"equals": "2 * n - 4"}}, {"a": "int8[_]", "b": "int8[n]"}, {"n": {"equals": "2 * n - 4"}}, None,
    ),
    "many dims that follow from each other": (
        {"a": "int8[n0]"}, {f"n{i}": {"equals": f"n{i + 1} + 1"} for i in range(2000)} | {"n2000": {}},
        {"a": "int8[m]"}, {}, None,
    ),
    "bounds that are very large": (
        {"a": "int8[n]", "b": {"type": "int", "ge": 10**30}}, {},
        {"a": "int8[m]", "b": {"type": "int", "ge": 10**30}}, {}, None,
    ),
    "very large arrays": ({"a": "int8[n * n * n * n * n, 4194305]"}, {}, {"a": "int8[_, _]"}, {}, None),
    "lengths that exclude each other": (
        {"a": "int8[n]", "b": {"type": "str", "min_length": 5, "max_length": 3}}, {},
        {"a": "int8[m]", "b": {"type": "str", "min_length": 5, "max_length": 3}}, {}, None,
    ),
    "a field that is gone": (SIZES, {}, {"a": "int8[k]"}, {}, None),  # no plan leads there
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_payloads_of_random_sizes_decide(name):
    before, had, after, dims, codes = CASES[name]
    old, new = doc(before, dims=had, raw=HELD), doc(after, 2, dims=dims, raw=HELD)
    assert tried(old, new) == codes


def test_every_kind_of_value_is_drawn():
    fields = {
        "a": "complex64[n, 2 * n]", "b": "floating[..., n] | null", "c": "list[tuple[E, path, bytes]]",
        "d": 'dict[str, literal["x", 2]]', "e": "prng_key[threefry2x32, n]", "f": "B[n][m]", "g": "list[B[n], m]",
        "h": {"type": "int", "ge": 2, "le": 9, "multiple_of": 3}, "i": {"type": "float", "gt": 0, "lt": 1},
        "j": {"type": "str", "min_length": 2, "max_length": 3}, "k": {"type": "list[int]", "min_length": 4},
        "l": {"type": "int | null", "kind": "static"}, "o": "int8[l] | null", "p": "dtype | complex | bool",
        "q": {"type": "float", "multiple_of": 0.5}, "r": {"type": "int", "choices": [4, 7]}, "s": "B[_] | A | null",
        "t": {"type": "str", "pattern": "x+", "default": "xx"}, "u": {"type": "int", "le": -20},
    }  # fmt: skip
    raw = {"B": {"params": ["k"], "fields": {"w": "int8[k]", "v": "S[k]"}}}
    more = {"enums": {"E": ["x", "y"]}, "dtypes": {"S": ["int8", "float32"]}, "dims": {"n": {}}}
    old, new = (doc(fields, version, raw=raw, **more) for version in (1, 2))
    assert tried(old, new) == set()


def test_where_no_proof_is_found_payloads_decide():
    """Nothing in a payload shows the parameter of C, so it has no value on the way back."""
    inner = {"D": {"fields": {"f": "bool[m]", "a": "C[2 * m] | null"}}, **HELD}
    outer = {"D": {"fields": {"f": "bool[m]"}}, **HELD}
    steps = [{"inline": {"field": "i", "fields": ["a"]}}]
    old = doc({"i": "D"}, raw=inner)
    new = doc(
        {"i": "D", "a": "C[2 * m] | null"}, 2, raw=outer, migrations=[{"from": 1, "steps": steps}]
    )
    assert verdict(old, series_of([old, new]), "full") == []


def test_where_a_proof_is_wrong_payloads_decide(monkeypatch):
    old = doc({"a": "list[B]"}, raw=HELD)
    new = doc({"a": "list[B]"}, 2, raw=HELD, dims={"n": {}})
    assert [d.code for d in verdict(old, new, "backward")] == ["NQX270"]
    monkeypatch.setattr("neuralqx_struct.evolution.refusals.unproved", lambda *_: [])
    (found,) = verdict(old, new, "backward")
    assert (found.code, found.severity) == ("NQX270", "error")
    assert found.message.startswith(
        "expected every payload to be read, got one that is refused\n$.a[1].w: expected int8[n="
    )


def test_the_work_is_bounded():
    structs = {f"S{i}": {"fields": {"a": f"tuple[S{i + 1}, S{i + 1}]"}} for i in range(22)}
    structs["S22"] = {"fields": {"a": "int8[n]"}}
    old = doc({"x": "S0", "b": "int8[n]"}, raw=structs)
    new = doc({"x": "S0", "b": "int8[m]"}, 2, raw=structs)
    with bounded():
        assert tried(old, new) is None


def test_results_are_kept_for_the_documents_that_they_are_of(monkeypatch):
    old, new = doc({"a": "int8[n]"}), doc({"a": "int8[m]"}, 2)
    assert tried(old, new) == set()
    monkeypatch.setattr(counterexamples, "_try", None)
    assert tried(old, new) == set()
    monkeypatch.setattr(counterexamples, "_MOST_TRIED", 0)
    with pytest.raises(TypeError):
        tried(old, new, proved=True)
