"""Sizes of two versions: lint passes only if payloads with every allowed size can be read."""

import numpy as np
import pytest

from neuralqx_struct.errors import StructError
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.schema.lock import payload_fingerprint, payload_fingerprints
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import conforms, doc, every, payload

INT = {"type": "int", "kind": "static"}
L = {"L": {"w": "float32[k]"}}
P = {"P": {"params": ["d"], "fields": {"w": "float32[d]"}}}
BOTH = {"x": "float32[n]", "y": "float32[m]"}
SUM = {"m": {"min": 2, "max": 4}, "p": {"max": 2}, "n": {"equals": "m + p"}}
FACTORS = {"m": {"min": 1}, "p": {"min": 1}}
DIFFERENCE = "max(m - 3, -9) + 5"
SHOWN = "list[tuple[float32[m], float32[p]]]"


def zeros(*shape):
    return np.zeros(shape, "f4")


def inner(size, struct="L"):
    return (struct, {"w": zeros(size)})


# Name -> old, new, a payload of the old version, the code and the place of the finding.
REFUSED = {
    "a local size becomes a dim": (
        doc({"a": "L", "b": "L"}, structs=L),
        doc({"a": "L", "b": "L"}, 2, [], structs=L, dims={"k": {}}),
        {"a": inner(2), "b": inner(3)},
        ("NQX305", "$.dims.k"),
    ),
    "a local size in a list becomes a dim": (
        doc({"a": "list[L]"}, structs=L),
        doc({"a": "list[L]"}, 2, [], structs=L, dims={"k": {}}),
        {"a": [inner(2), inner(3)]},
        ("NQX305", "$.dims.k"),
    ),
    "equals is added": (
        doc(BOTH, dims={"n": {}, "m": {}}),
        doc(BOTH, 2, [], dims={"n": {}, "m": {"equals": "2 * n"}}),
        {"x": zeros(2), "y": zeros(3)},
        ("NQX305", "$.dims.m"),
    ),
    "equals is changed": (
        doc(BOTH, dims={"n": {}, "m": {"equals": "2 * n"}}),
        doc(BOTH, 2, [], dims={"n": {}, "m": {"equals": "3 * n"}}),
        {"x": zeros(2), "y": zeros(4)},
        ("NQX305", "$.dims.m"),
    ),
    "equals of a dim that was a local size": (
        doc(BOTH),
        doc(BOTH, 2, [], dims={"n": {}, "m": {"equals": "n + 1"}}),
        {"x": zeros(2), "y": zeros(2)},
        ("NQX305", "$.dims.m"),
    ),
    "min is added": (
        doc({"x": "float32[n]"}, dims={"n": {}}),
        doc({"x": "float32[n]"}, 2, [], dims={"n": {"min": 3}}),
        {"x": zeros(2)},
        ("NQX305", "$.dims.n"),
    ),
    "min is raised, and the dim renamed": (
        doc({"x": "float32[n]"}, dims={"n": {"min": 1}}),
        doc({"x": "float32[k]"}, 2, [], dims={"k": {"min": 2}}),
        {"x": zeros(1)},
        ("NQX305", "$.dims.k"),
    ),
    "min of a new dim that follows from others": (
        doc({"x": "float32[2 * n]", "y": "float32[n]"}, dims={"n": {"min": 1}}),
        doc(
            {"x": "float32[m]", "y": "float32[n]"},
            2,
            [],
            dims={"n": {"min": 1}, "m": {"equals": "2 * n", "min": 3}},
        ),
        {"x": zeros(2), "y": zeros(1)},
        ("NQX305", "$.dims.m"),
    ),
    "any size twice becomes one": (
        doc({"x": "float32[_]", "y": "float32[_]"}),
        doc({"x": "float32[n]", "y": "float32[n]"}, 2, []),
        {"x": zeros(2), "y": zeros(3)},
        ("NQX305", "$.structs.A.fields.x"),
    ),
    "any size in a list becomes one": (
        doc({"x": "list[float32[_]]"}),
        doc({"x": "list[float32[n]]"}, 2, []),
        {"x": [zeros(2), zeros(3)]},
        ("NQX305", "$.structs.A.fields.x"),
    ),
    "any size becomes a dim": (
        doc({"x": "float32[_]", "a": "L"}, structs=L, dims={"k": {}}),
        doc({"x": "float32[k]", "a": "L"}, 2, [], structs=L, dims={"k": {}}),
        {"x": zeros(2), "a": inner(3)},
        ("NQX305", "$.structs.A.fields.x"),
    ),
    "an argument that may be any size becomes one": (
        doc({"a": "P[_]", "x": "float32[n]"}, raw=P),
        doc({"a": "P[n]", "x": "float32[n]"}, 2, [], raw=P),
        {"a": inner(3, "P"), "x": zeros(2)},
        ("NQX305", "$.structs.A.fields.a"),
    ),
    "an int that is named like a size is added": (
        doc({"x": "float32[n]"}),
        doc({"x": "float32[n]", "n": {**INT, "default": 5}}, 2, [steps.add(field="n", default=5)]),
        {"x": zeros(2)},
        ("NQX305", "$.structs.A.fields.n"),
    ),
    "an int is renamed to a size": (
        doc({"x": "float32[n]", "q": INT}),
        doc({"x": "float32[n]", "n": INT}, 2, [steps.rename(field="q", to="n")]),
        {"x": zeros(2), "q": 7},
        ("NQX305", "$.structs.A.fields.n"),
    ),
    "an int that is named like a size becomes static": (
        doc({"x": "float32[n]", "n": "int"}),
        doc({"x": "float32[n]", "n": INT}, 2, []),
        {"x": zeros(2), "n": 7},
        ("NQX305", "$.structs.A.fields.n"),
    ),
    "an int that an equation names is exchanged": (
        doc(
            {"x": "float32[n]", "y": "float32[m]", "a": INT, "b": INT},
            dims={"n": {}, "m": {"equals": "a * n"}},
        ),
        doc(
            {"x": "float32[n]", "y": "float32[m]", "a": INT, "old": INT},
            2,
            [steps.rename(field="a", to="old"), steps.rename(field="b", to="a")],
            dims={"n": {}, "m": {"equals": "a * n"}},
        ),
        {"x": zeros(2), "y": zeros(4), "a": 2, "b": 3},
        ("NQX305", "$.structs.A.fields.a"),
    ),
    "min of a new dim that an int gives": (
        doc({"m": INT}),
        doc({"m": INT}, 2, [], dims={"m": {"min": 3}}),
        {"m": 1},
        ("NQX305", "$.dims.m"),
    ),
    "inline beside a size of the same name": (
        doc({"x": "float32[k]", "l": "L"}, structs=L),
        doc({"x": "float32[k]", "w": "float32[k]"}, 2, [steps.inline(field="l", fields=["w"])]),
        {"x": zeros(2), "l": inner(3)},
        ("NQX305", "$.structs.A.fields.w"),
    ),
    "move beside a size of the same name": (
        doc({"v": "float32[k]", "l": "L"}, structs=L),
        doc(
            {"l": "L"},
            2,
            [steps.move(fields=["v"], into="l", struct="L")],
            structs={"L": {"w": "float32[k]", "v": "float32[k]"}},
        ),
        {"v": zeros(2), "l": inner(3)},
        ("NQX305", "$.structs.L.fields.v"),
    ),
    "inline beside an int of the name": (
        doc({"k": INT, "l": "L"}, structs=L),
        doc({"k": INT, "w": "float32[k]"}, 2, [steps.inline(field="l", fields=["w"])]),
        {"k": 2, "l": inner(3)},
        ("NQX305", "$.structs.A.fields.w"),
    ),
    "move of a dim into a struct with a parameter of its name": (
        doc({"d_arr": "float32[d]", "n_arr": "float32[n]"}, dims={"d": {}, "n": {}}),
        doc(
            {"n_arr": "float32[n]", "p": "P[n]"},
            2,
            [steps.move(fields=["d_arr"], into="p", struct="P")],
            raw={"P": {"params": ["d"], "fields": {"d_arr": "float32[d]"}}},
            dims={"d": {}, "n": {}},
        ),
        {"d_arr": zeros(2), "n_arr": zeros(3)},
        ("NQX305", "$.structs.P.fields.d_arr"),
    ),
    "inline of a dim into a struct with a parameter of its name": (
        doc(
            {"d_arr": "float32[d]", "p": "P[3]"},
            dims={"d": {}},
            raw={
                "P": {"params": ["d"], "fields": {"v": "int8[d]", "l": "L"}},
                "L": {"fields": {"w": "float32[d]"}},
            },
        ),
        doc(
            {"d_arr": "float32[d]", "p": "P[3]"},
            2,
            [steps.inline(within="P", field="l", fields=["w"])],
            dims={"d": {}},
            raw={"P": {"params": ["d"], "fields": {"v": "int8[d]", "w": "float32[d]"}}},
        ),
        {"d_arr": zeros(2), "p": ("P", {"v": np.zeros(3, "i1"), "l": inner(2)})},
        ("NQX305", "$.structs.P.fields.w"),
    ),
    "fill with a size that only a null shows": (
        doc({"x": "float32[n] | null", "y": "float32[n] | null"}),
        doc({"x": "float32[n]", "y": "float32[n] | null"}, 2, [steps.fill(field="x", value=0)]),
        {"x": None, "y": None},
        ("NQX105", "$.migrations[0].steps[0].fill.value"),
    ),
    "add with a size that only a null shows": (
        doc({"y": "float32[n] | null"}),
        doc({"x": "float32[n]", "y": "float32[n] | null"}, 2, [steps.add(field="x", default=0)]),
        {"y": None},
        ("NQX105", "$.migrations[0].steps[0].add.default"),
    ),
    "a struct that only a pytree holds": (
        doc({"p": "pytree"}, structs=L),
        doc({"p": "pytree"}, 2, [], structs={"L": {"w": "float32[k, 2]"}}),
        {"p": {"a": inner(3)}},
        ("NQX305", "$.structs.L.fields.w"),
    ),
    "a bound of a product of two dims that no payload shows": (
        doc({"x": "float32[n]"}, dims={**FACTORS, "n": {"equals": "m * p"}}),
        doc({"x": "float32[n]"}, 2, [], dims={**FACTORS, "n": {"equals": "m * p", "min": 1}}),
        {"x": zeros(0)},
        ("NQX305", "$.dims.n"),
    ),
    "a bound of a sum with an int that is negative": (
        doc({"x": "float32[n]", "a": INT}, dims={"n": {"equals": "a + 5"}}),
        doc({"x": "float32[n]", "a": INT}, 2, [], dims={"n": {"equals": "a + 5", "min": 5}}),
        {"x": zeros(2), "a": -3},
        ("NQX305", "$.dims.n"),
    ),
    "a bound of a sum with a difference that is negative": (
        doc({"x": "float32[n]", "y": "float32[m]"}, dims={"n": {"equals": DIFFERENCE}, "m": {}}),
        doc(
            {"x": "float32[n]", "y": "float32[m]"},
            2,
            [],
            dims={"n": {"equals": DIFFERENCE, "min": 5}, "m": {}},
        ),
        {"x": zeros(2), "y": zeros(0)},
        ("NQX305", "$.dims.n"),
    ),
    "a bound of a sum of two dims that no payload shows": (
        doc({"x": "float32[n]"}, dims=SUM),
        doc({"x": "float32[n]"}, 2, [], dims={**SUM, "n": {"equals": "m + p", "min": 2}}),
        {"x": zeros(1)},
        ("NQX305", "$.dims.n"),
    ),
    "a bound of a sum of two dims that no payload has to show": (
        doc({"x": "float32[n]", "z": SHOWN}, dims=SUM),
        doc(
            {"x": "float32[n]", "z": SHOWN}, 2, [], dims={**SUM, "n": {"equals": "m + p", "max": 6}}
        ),
        {"x": zeros(7), "z": []},
        ("NQX305", "$.dims.n"),
    ),
}


@every("case", REFUSED.values())
def test_a_size_that_cannot_be_proved_is_an_error(case):
    old, new, values, expected = case
    held, series = payload(old, values), series_of([old, new])
    assert conforms(old, held) == []
    found = [each for each in lint_series(series) if each.severity == "error"]
    assert expected in [(each.code, each.path) for each in found]
    assert all(each.hint for each in found)
    try:
        after = apply(held, plan(series, 1, 2))
    except StructError:
        return
    assert conforms(new, after)


PROVED = {
    "a local size of the root becomes a dim": (
        doc({"x": "float32[n]", "y": "float32[n]"}),
        doc({"x": "float32[n]", "y": "float32[n]"}, 2, [], dims={"n": {}}),
        {"x": zeros(2), "y": zeros(2)},
    ),
    "a local size of a struct that is there once": (
        doc({"a": "L | null"}, structs=L),
        doc({"a": "L | null"}, 2, [], structs=L, dims={"k": {}}),
        {"a": inner(2)},
    ),
    "any size becomes a size of its own": (
        doc({"x": "float32[_]"}),
        doc({"x": "float32[n]"}, 2, []),
        {"x": zeros(2)},
    ),
    "sizes become any": (
        doc({"x": "float32[n, 3]", "y": "float32[m, 2 * n]"}),
        doc({"x": "float32[_, _]", "y": "float32[_, _]"}, 2, []),
        {"x": zeros(2, 3), "y": zeros(1, 4)},
    ),
    "a dim is renamed everywhere": (
        doc(BOTH, dims={"n": {"min": 1}, "m": {"equals": "2 * n"}}),
        doc(
            {"x": "float32[k]", "y": "float32[m]"},
            2,
            [],
            dims={"k": {"min": 1}, "m": {"equals": "2 * k"}},
        ),
        {"x": zeros(2), "y": zeros(4)},
    ),
    "an equation is written otherwise": (
        doc(BOTH, dims={"n": {}, "m": {"equals": "2 * (n + 1)"}}),
        doc(BOTH, 2, [], dims={"n": {}, "m": {"equals": "n + n + 2"}}),
        {"x": zeros(2), "y": zeros(6)},
    ),
    "a new dim names a size that arrays have": (
        doc({"x": "float32[2 * n]", "y": "float32[n]"}, dims={"n": {"min": 1}}),
        doc(
            {"x": "float32[m]", "y": "float32[n]"},
            2,
            [],
            dims={"n": {"min": 1}, "m": {"equals": "2 * n", "min": 2}},
        ),
        {"x": zeros(2), "y": zeros(1)},
    ),
    "a field with a dim of its own": (
        doc({"x": "float32[n]"}, dims={"n": {}}),
        doc(
            {"x": "float32[n]", "b": "float32[m] | null"},
            2,
            [steps.add(field="b", default=None)],
            dims={"n": {}, "m": {"min": 1}},
        ),
        {"x": zeros(2)},
    ),
    "min is lowered": (
        doc({"x": "float32[n]"}, dims={"n": {"min": 2}}),
        doc({"x": "float32[n]"}, 2, [], dims={"n": {"min": 1}}),
        {"x": zeros(2)},
    ),
    "an int that is a size is kept": (
        doc({"x": "float32[n]", "n": INT}),
        doc({"z": "float32[n]", "n": INT}, 2, [steps.rename(field="x", to="z")]),
        {"x": zeros(2), "n": 2},
    ),
    "a size that an int gives": (
        doc({"k": INT}),
        doc({"k": INT, "x": "float32[k + 1]"}, 2, [steps.add(field="x", default=0)]),
        {"k": 2},
    ),
    "an int that is a size is renamed with it": (
        doc({"x": "float32[n]", "n": INT}),
        doc({"x": "float32[size]", "size": INT}, 2, [steps.rename(field="n", to="size")]),
        {"x": zeros(2), "n": 2},
    ),
    "inline beside a size of another name": (
        doc({"x": "float32[k]", "l": "L"}, structs=L),
        doc({"x": "float32[k]", "w": "float32[j]"}, 2, [steps.inline(field="l", fields=["w"])]),
        {"x": zeros(2), "l": inner(3)},
    ),
    "move beside a size of another name": (
        doc({"v": "float32[k]", "l": "L"}, structs=L),
        doc(
            {"l": "L"},
            2,
            [steps.move(fields=["v"], into="l", struct="L")],
            structs={"L": {"w": "float32[k]", "v": "float32[j]"}},
        ),
        {"v": zeros(2), "l": inner(3)},
    ),
    "a maximum that a sum has by its parts": (
        doc({"x": "float32[n] | null", "z": "float32[p]"}, dims=SUM),
        doc(
            {"x": "float32[n] | null", "z": "float32[p]"},
            2,
            [],
            dims={**SUM, "n": {"equals": "m + p", "min": 2, "max": 6}},
        ),
        {"x": zeros(6), "z": zeros(2)},
    ),
    "a maximum that no even number exceeds": (
        doc({"x": "float32[n]"}, dims={"k": {}, "n": {"equals": "2 * k", "max": 7}}),
        doc({"x": "float32[n]"}, 2, [], dims={"k": {}, "n": {"equals": "2 * k", "max": 6}}),
        {"x": zeros(6)},
    ),
    "a minimum of a product of sizes that are never zero": (
        doc(
            {"x": "float32[n]", "y": "float32[m]"},
            dims={"m": {"min": 1}, "p": {"min": 1}, "n": {"equals": "m * p"}},
        ),
        doc(
            {"x": "float32[n]", "y": "float32[m]"},
            2,
            [],
            dims={"m": {"min": 1}, "p": {"min": 1}, "n": {"equals": "m * p", "min": 1}},
        ),
        {"x": zeros(6), "y": zeros(2)},
    ),
}


@every("case", PROVED.values())
def test_a_size_that_is_proved_is_read(case):
    old, new, values = case
    held, series = payload(old, values), series_of([old, new])
    assert conforms(old, held) == []
    assert [each for each in lint_series(series) if each.severity == "error"] == []
    assert conforms(new, apply(held, plan(series, 1, 2))) == []


STOPS = {
    "a derived field without a value": (
        doc({"a": INT}),
        doc({"a": INT, "d": {"derived": "1 / a"}}, 2, []),
        "warning",
    ),
    "the same without a migration": (
        doc({"a": INT}),
        doc({"a": INT, "d": {"derived": "max(1, 2 // a)"}}, 2),
        "warning",
    ),
    "a derived field that is gone": (
        doc({"a": INT, "d": {"derived": "1 / a"}}),
        doc({"a": INT}, 2, []),
        "warning",
    ),
    "the same on a downgrade without a migration": (
        doc({"a": INT, "d": {"derived": "1 / a"}}),
        doc({"a": INT}, 2),
        "warning",
    ),
    "a struct that a pytree may hold": (
        doc({"p": "pytree"}, structs=L),
        doc({"p": "pytree"}, 2, []),
        "info",
    ),
}


@pytest.mark.parametrize("case", STOPS.values(), ids=STOPS)
def test_a_stop_is_named(case):
    old, new, severity = case
    found = lint_series(series_of([old, new]))
    assert [(each.code, each.severity) for each in found] == [("NQX320", severity)]
    assert found[0].path
    assert found[0].hint


SAFE = ["a / max(b, 1)", "a / 2", "1 / a if a > 0 else 0", "a + b"]


@pytest.mark.parametrize("text", SAFE)
def test_a_derived_field_that_has_always_a_value(text):
    fields = {"a": INT, "b": INT}
    new = doc({**fields, "d": {"derived": text}}, 2, [])
    assert lint_series(series_of([doc(fields), new])) == []


def test_payload_fingerprints_have_the_scopes_and_equations_of_sizes():
    fields = {"x": "float32[n]", "a": "L", "k": INT, "b": "L"}
    versions = [
        doc(fields, structs=L, dims=dims)
        for dims in ({}, {"n": {}}, {"n": {"min": 2}}, {"n": {"equals": "2 * k"}}, {"k": {}})
    ]
    assert len(set(map(payload_fingerprint, versions))) == len(versions)
    same = doc(fields, structs=L, dims={"n": {"doc": "sites", "min": 0}, "unused": {}})
    assert payload_fingerprint(same) == payload_fingerprint(versions[1])
    node = doc({**fields, "k": "int"}, structs=L, dims={"n": {"equals": "2 * k"}})
    assert payload_fingerprint(node) != payload_fingerprint(versions[3])


def test_bundles_of_release_0_1_have_fingerprints_without_sizes():
    plain, sized = doc({"x": "float32[n]"}), doc({"x": "float32[n]"}, dims={"n": {"min": 2}})
    assert payload_fingerprints(plain) == [payload_fingerprint(plain)]
    assert payload_fingerprints(sized) == [payload_fingerprint(sized), payload_fingerprint(plain)]
    held = payload(sized, {"x": zeros(2)})
    held.document["schema"]["fingerprint"] = payload_fingerprint(plain)
    assert conforms(sized, held) == []
