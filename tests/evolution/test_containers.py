"""The steps split and merge between fields and the list, tuple or dict that holds their values."""

import numpy as np
import pytest

from neuralqx_struct.errors import MigrationError, SchemaError
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.changes import LIMITS
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.manifest.kinds import DICT, LIST, TUPLE
from neuralqx_struct.schema.series import series_of
from tests.builders import conforms, doc, every, payload, refused, same, value

LAYER = {"Layer": {"w": "float32[i]"}}


def merge(how, *fields):
    return steps.merge(fields=list(fields), into="x", how=how)


def split(how, *fields):
    return steps.split(field="x", into=list(fields), how=how)


def moved(old, new, held):
    after = apply(held, plan(series_of([old, new]), 1, 2))
    assert conforms(new, after) == []
    return after


def test_numbered_layers_become_a_stack_and_come_back():
    old = doc({"a": "Layer", "b": "Layer"}, structs=LAYER)
    new = doc({"x": "Layer[][2]"}, 2, [merge("list", "a", "b"), steps.stack(field="x")], LAYER)
    held = payload(old, {n: ("Layer", {"w": np.full(2, k, "f4")}) for k, n in enumerate("ab")})
    after = moved(old, new, held)
    assert value(after.document["manifest"], after.arrays)["x"]["w"].tolist() == [[0, 0], [1, 1]]
    back = apply(after, plan(series_of([old, new]), 2, 1))
    assert same(
        value(back.document["manifest"], back.arrays), value(held.document["manifest"], held.arrays)
    )


def test_no_array_is_moved():
    old = doc({"a": "float32[n]", "b": "float32[n]"})
    new = doc({"x": "list[float32[n]]"}, 2, [merge("list", "a", "b")])
    series = series_of([old, new])
    assert {plan(series, 1, 2).cost, plan(series, 2, 1).cost} == {"manifest"}
    held = payload(old, {"a": np.zeros(2, "f4"), "b": np.ones(2, "f4")})
    assert {*moved(old, new, held).arrays} == {*held.arrays}


def test_a_tuple_takes_fields_of_several_types():
    old, new = (
        doc({"a": "str", "b": "int"}),
        doc({"x": "tuple[str, int]"}, 2, [merge("tuple", "a", "b")]),
    )
    after = moved(old, new, payload(old, {"a": "t", "b": 1}))
    assert after.document["manifest"]["fields"] == {"x": TUPLE.node(items=["t", 1])}
    back = apply(after, plan(series_of([old, new]), 2, 1))
    assert back.document["manifest"]["fields"] == {"a": "t", "b": 1}


REFUSED = [
    (merge("list", "a", "c"), "NQX310", "float32[n] and int"),
    (merge("dict", "a", "c"), "NQX310", "float32[n] and int"),
    (merge("list", "a", "a"), "NQX304", "['a', 'a']"),
    (steps.merge(fields=["a", "b"], into="c", how="list"), "NQX304", "'c'"),
    (split("list", "p", "q"), "NQX309", "list[int, 3]"),
    (split("list", "p", "q", "q"), "NQX304", "['p', 'q', 'q']"),
    (split("tuple", "p", "q", "r"), "NQX304", "list[int, 3]"),
    (split("list", "p", "q", "c"), "NQX304", "'c'"),
    (steps.split(field="x", into={"p": 1, "q": 2}, how="list"), "NQX309", "sizes"),
    (steps.split(field="t", into=["p"], how="tuple"), "NQX309", "tuple[int, str]"),
]  # fmt: skip


@every(("step", "code", "word"), REFUSED)
def test_declarations_that_are_refused(step, code, word):
    fields = {"a": "float32[n]", "b": "float32[n]", "c": "int", "x": "list[int, 3]", "t": "tuple[int, str]"}  # fmt: skip
    if step.name == "merge":
        del fields["x"]
    with pytest.raises(SchemaError) as caught:
        steps.apply_to_document(doc(fields), step, doc({}, 2))
    (found,) = caught.value.diagnostics
    assert (found.code, word in found.message) == (code, True), found


STOPS = [
    ("list[int]", split("list", "a", "b"), LIST.node(items=[1]), "a, b"),
    ("list[int, n]", split("list", "a", "b"), LIST.node(items=[1] * 3), "of 2 values"),
    ("tuple[int, ...]", split("tuple", "a", "b"), TUPLE.node(items=[1] * 3), "of 2 values"),
    ("dict[str, int]", split("dict", "a", "b"), DICT.node(items=[["a", 1], ["c", 1]]), "a, c"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "step", "held", "word"), STOPS)
def test_payloads_with_other_values_stop_and_lint_says_so(declared, step, held, word):
    old, new = doc({"x": declared}), doc({"a": "int", "b": "int"}, 2, [step])
    (found,) = [d for d in prove(old, new) if "downgrade" not in d.message]
    assert found.code == "NQX320"
    with refused(MigrationError, "NQX411", word):
        apply(payload(old, {"x": held}), plan(series_of([old, new]), 1, 2))


def test_a_list_of_a_known_length_never_stops():
    old, new = (
        doc({"x": "list[int, 2]"}),
        doc({"a": "int", "b": "int"}, 2, [split("list", "a", "b")]),
    )
    assert prove(old, new) == []


def test_constraints_follow_a_value_into_a_list_and_out_of_it():
    old = {
        "fields": {"a": "int", "b": "int"},
        "constraints": [{"expr": "a > 0"}, {"expr": "b > a"}],
    }
    new = {
        "fields": {"x": "list[int, 2]"},
        "constraints": [{"expr": "x[0] > 0"}, {"expr": "x[1] > x[0]"}],
    }
    documents = [
        (doc({}, raw={"A": old}), doc({}, 2, [merge("list", "a", "b")], raw={"A": new})),
        (doc({}, raw={"A": new}), doc({}, 2, [split("list", "a", "b")], raw={"A": old})),
    ]
    for before, after in documents:
        assert {change.code for change in diff(before, after)} & LIMITS == set()
