"""Tests of limits on fields that steps rename, move or make: what verdicts and lint state about them."""

import pytest

from neuralqx_struct.errors import has_errors
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import every

LIMITED = {"type": "int", "ge": 0}
INNER = {"fields": {"a": "int", "y": "int"}}
INNER_LIMITED = {"fields": {"a": LIMITED, "y": "int"}}
PAIR = {"a": "float32[2]", "b": "float32[2]"}


def doc(version, root, steps=None, constraints=(), since=1, **structs):
    data = {"language": "1", "schema": "lab.f", "version": version, "root": "A"}
    limits = [{"expr": text} for text in constraints]
    data["structs"] = {"A": {"fields": root, "constraints": limits}, **structs}
    if steps is not None:
        data["migrations"] = [{"from": since, "steps": steps}]
    return document_from_data(data, "test")


def merged(into):
    return [{"merge": {"fields": ["a", "b"], "into": into, "how": "concat"}}]


def move(fields):
    return [{"move": {"fields": fields, "into": "b", "struct": "B"}}]


def inline(fields):
    return [{"inline": {"field": "b", "fields": fields}}]


def computed(name):
    return [{"python": {"function": "lab.f", "reads": ["a"], "writes": [name], "lossy": True}}]


NAMED = {
    "without steps": (doc(1, {"a": "int"}), doc(2, {"a": LIMITED})),
    "renamed": (
        doc(1, {"a": "int"}),
        doc(2, {"b": LIMITED}, [{"rename": {"field": "a", "to": "b"}}]),
    ),
    "moved into a new struct": (
        doc(1, {"a": "int", "x": "int"}),
        doc(2, {"b": "B", "x": "int"}, move(["a"]), B={"fields": {"a": LIMITED}}),
    ),
    "moved into a struct with a constraint": (
        doc(1, {"a": "int", "x": "int"}),
        doc(
            2,
            {"b": "B", "x": "int"},
            move(["a"]),
            B={"fields": {"a": "int"}, "constraints": [{"expr": "a > 0"}]},
        ),
    ),
    "moved, then renamed": (
        doc(1, {"a": "int", "x": "int"}),
        doc(
            2,
            {"b": "B", "x": "int"},
            [*move(["a"]), {"rename": {"in": "B", "field": "a", "to": "c"}}],
            B={"fields": {"c": LIMITED}},
        ),
    ),
    "inlined": (
        doc(1, {"b": "B"}, B=INNER),
        doc(2, {"a": LIMITED, "y": "int"}, inline(["a", "y"])),
    ),
    "inlined in part": (
        doc(1, {"b": "B"}, B=INNER),
        doc(2, {"b": "B", "a": LIMITED}, inline(["a"]), B={"fields": {"y": "int"}}),
    ),
    "in a renamed struct": (
        doc(1, {"b": "B"}, B=INNER),
        doc(2, {"b": "C"}, [{"rename_struct": {"struct": "B", "to": "C"}}], C=INNER_LIMITED),
    ),
    "made by a function": (doc(1, {"a": LIMITED}), doc(2, {"a": LIMITED}, computed("a"))),
    "made anew by a function": (
        doc(1, {"a": "int"}),
        doc(2, {"a": "int", "b": LIMITED}, computed("b")),
    ),
    "merged": (doc(1, PAIR), doc(2, {"c": "float32[4]"}, merged("c"), ["all(c > 0)"])),
    "merged under a name that was limited": (
        doc(1, PAIR, None, ["shape(a)[0] < 3"]),
        doc(2, {"a": "float32[4]"}, merged("a"), ["shape(a)[0] < 3"]),
    ),
    "transposed under a constraint": (
        doc(1, {"w": "float32[n, m]"}, None, ["shape(w)[0] < 3"]),
        doc(2, {"w": "float32[m, n]"}, [{"transpose": {"field": "w"}}], ["shape(w)[0] < 3"]),
    ),
}


@every("name", NAMED)
def test_limits_that_values_may_miss_are_named(name):
    old, new = NAMED[name]
    found = verdict(old, new, "backward")
    assert "NQX270" in {d.code for d in found if d.severity == "error"}
    stops = lint_series(series_of([old, new]))
    assert not has_errors(stops)
    named = {(d.path, d.severity) for d in stops if d.code == "NQX270"}
    assert {(d.path, "warning") for d in found if d.code == "NQX270"} == named


KEPT = {
    "moved": (
        doc(1, {"a": LIMITED, "x": "int"}),
        doc(2, {"b": "B", "x": "int"}, move(["a"]), B={"fields": {"a": LIMITED}}),
    ),
    "inlined": (
        doc(1, {"b": "B"}, B=INNER_LIMITED),
        doc(2, {"a": LIMITED, "y": "int"}, inline(["a", "y"])),
    ),
    "cast exactly": (
        doc(1, {"w": "float32[n]"}, None, ["all(w > 0)"]),
        doc(2, {"w": "float64[n]"}, [{"cast": {"field": "w", "dtype": "float64"}}], ["all(w > 0)"]),
    ),
    "merged beside a constraint": (
        doc(1, {**PAIR, "x": "int"}, None, ["x > 0"]),
        doc(2, {"c": "float32[4]", "x": "int"}, merged("c"), ["x > 0"]),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_limits_that_all_values_keep_are_not(name):
    old, new = KEPT[name]
    assert not has_errors(verdict(old, new, "backward"))
    assert [d for d in lint_series(series_of([old, new])) if d.code == "NQX270"] == []


REMOVE = [{"remove": {"field": "a", "undo_default": 7}}]
ADDED_AGAIN = {
    "by a step": {"steps": [{"add": {"field": "a", "default": 7}}]},
    "by a default": {"default": 7},
}


@pytest.mark.parametrize("name", ADDED_AGAIN)
@pytest.mark.parametrize("limited", [1, 3])
def test_the_limits_of_a_removed_field_are_not_those_of_one_added_later(name, limited):
    how = ADDED_AGAIN[name]
    default = {"default": how["default"]} if "default" in how else {}
    first, last = (
        {"type": "int", **({"ge": 0} if version == limited else {})} for version in (1, 3)
    )
    versions = [
        doc(1, {"x": "int", "a": first}),
        doc(2, {"x": "int"}, REMOVE),
        doc(3, {"x": "int", "a": {**last, **default}}, how.get("steps"), since=2),
    ]
    series = series_of(versions)
    for direction in ("backward", "forward"):
        found = verdict(series.at(1), series, direction, unknown="drop")
        assert not has_errors(found), direction


def test_limits_on_a_field_of_a_renamed_struct_are_compared():
    renamed = [{"rename_struct": {"struct": "B", "to": "C"}}]
    series = series_of(
        [
            doc(1, {"b": "B"}, B=INNER),
            doc(2, {"b": "C"}, renamed, C=INNER),
            doc(3, {"b": "C"}, C=INNER_LIMITED),
        ]
    )
    found = verdict(series.at(1), series, "backward")
    assert {d.code for d in found if d.severity == "error"} == {"NQX270"}
