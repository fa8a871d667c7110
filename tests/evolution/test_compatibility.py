"""Compatibility modes: Confluent's table cell by cell, and verdicts that count steps."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import MigrationError, SchemaError, has_errors
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.plans import plan
from neuralqx_struct.schema.series import load_series, series_of
from tests.builders import cases, doc, every

A = {"a": "int32[n]"}
DEFAULT = {"type": "int", "default": 0}

# The rows of Confluent's table (reference/evolution.md A.2): fields of the old and the new version, then whether the
# change is backward, forward and fully compatible.
TABLE = {
    "add field with default": (A, {**A, "b": DEFAULT}, "yes", "yes", "yes"),
    "add field without default": (A, {**A, "b": "int"}, "no", "yes", "no"),
    "delete field with default": ({**A, "b": DEFAULT}, A, "yes", "yes", "yes"),
    "delete field without default": ({**A, "b": "int"}, A, "yes", "no", "no"),
    "rename with alias in the new schema": (
        A,
        {"b": {"type": "int32[n]", "aliases": ["a"]}},
        "yes",
        "no",
        "no",
    ),
    "type to union containing it": (A, {"a": "int32[n] | null"}, "yes", "no", "no"),
    "add union branch": ({"a": "int | null"}, {"a": "int | null | str"}, "yes", "no", "no"),
    "remove union branch": ({"a": "int | null | str"}, {"a": "int | null"}, "no", "yes", "no"),
    "remove a default from a field": ({"a": DEFAULT}, {"a": "int"}, "yes", "yes", "yes"),
    "promotion": (A, {"a": "int64[n]"}, "yes", "no", "no"),
}
CELLS = [
    pytest.param(old, new, mode, cell, id=f"{name}-{mode}")
    for name, (old, new, *cells) in TABLE.items()
    for mode, cell in zip(("backward", "forward", "full"), cells, strict=True)
]


@every(("old", "new", "mode", "cell"), CELLS)
def test_confluents_table(old, new, mode, cell):
    found = verdict(doc(old), doc(new, 2), mode, unknown="drop", steps=False)
    assert (found == []) is (cell == "yes")
    assert has_errors(found) is (cell == "no")
    for transitive in (f"{mode}-transitive",):  # one earlier version: the same
        assert verdict([doc(old)], doc(new, 2), transitive, unknown="drop", steps=False) == found


def test_a_default_that_goes_away_breaks_transitively():
    first, second, third = doc(A), doc({**A, "b": DEFAULT}, 2), doc({**A, "b": "int"}, 3)
    for mode, ok in {
        "backward": True,
        "full": True,
        "forward-transitive": True,
        "backward-transitive": False,
        "full-transitive": False,
    }.items():
        found = verdict([first, second], third, mode, unknown="drop", steps=False)
        assert (found == []) is ok, mode
    (found,) = verdict([first, second], third, "backward-transitive", unknown="drop", steps=False)
    assert (found.code, found.path) == ("NQX414", "$.structs.A.fields.b")
    assert "version 3" in found.message and "version 1" in found.message
    # Loading goes version by version, so with the chain counted the default of version 2 serves.
    assert verdict([first, second], third, "backward-transitive") == []


def test_none_asks_for_nothing():
    assert verdict(doc(A), doc({}, 2), "none") == []
    assert verdict(doc(A), doc({"a": "str"}), "none") == []


@pytest.mark.parametrize("mode", ["sideways", "none-transitive", "backward-"])
def test_unknown_modes_are_refused(mode):
    with pytest.raises(SchemaError) as caught:
        verdict(doc(A), doc(A, 2), mode)
    assert "full-transitive" in str(caught.value)


def test_the_mode_is_the_new_versions_own():
    assert verdict(doc(A), doc({}, 2, compatibility="none")) == []
    assert verdict(doc(A), doc({}, 2)) != []


def test_an_undeclared_removal_breaks_by_default():
    (found,) = verdict(doc({**A, "b": DEFAULT}), doc(A, 2), "backward")
    assert (found.code, found.severity) == ("NQX415", "error")
    assert "remove: {field: b, undo_default: 0}" in found.hint
    assert verdict(doc({**A, "b": DEFAULT}), doc(A, 2), "backward", unknown="drop") == []
    removed = doc(A, 2, [s.remove(field="b", undo_default=0)])
    assert verdict(doc({**A, "b": DEFAULT}), removed, "full") == []


STEPS = {
    "rename": (A, {"b": "int32[n]"}, s.rename(field="a", to="b"), "full"),
    "exact cast": ({"a": "float64[n]"}, {"a": "int8[n]"}, s.cast(field="a", dtype="int8"), "full"),
    "lossy removal": (A, {}, s.remove(field="a", lossy=True), "backward"),
    "removal with a value": (A | {"b": "int"}, A, s.remove(field="b", undo_default=0), "full"),
    "addition": (A, A | {"b": "int"}, s.add(field="b", default=1), "full"),
    "fill": ({"a": "int | null"}, {"a": "int"}, s.fill(field="a", value=0), "full"),
    "a shape with another axis": (
        {"a": "int8[4]"},
        {"a": "int8[1, 4]"},
        s.reshape(field="a", shape=[1, 4]),
        "full",
    ),
}


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
def test_steps_make_changes_compatible(case):
    old, new, step, mode = case
    assert verdict(doc(old), doc(new, 2, [step]), mode) == []
    if mode == "backward":
        assert has_errors(verdict(doc(old), doc(new, 2, [step]), "forward"))
    assert has_errors(verdict(doc(old), doc(new, 2, []), mode))


def test_forward_sees_values_that_the_old_version_lacks():
    (found,) = verdict(doc({"a": "int"}), doc({"a": "int | null"}, 2, []), "forward")
    assert (found.code, found.path) == ("NQX307", "$.structs.A.fields.a")
    assert verdict(doc({"a": "int"}), doc({"a": "int | null"}, 2, []), "backward") == []


def test_a_published_version_that_means_something_else():
    (found,) = verdict(doc(A), doc({"a": "int8[n]"}), "backward")
    assert found.code == "NQX290"
    assert all(part in found.message for part in ("structs.A.fields.a", "int32[n]", "int8[n]"))
    assert "give the changed schema the version 2" in found.hint
    (found,) = verdict(doc(A), doc(A, doc="Edited."), "backward")
    assert (found.code, found.severity) == ("NQX291", "warning")
    old, new = series_of([doc(A)]), series_of([doc({"a": "int8[n]"}), doc({"a": "int8[n]"}, 2)])
    assert {d.code for d in verdict(old, new, "backward")} == {"NQX290"}
    assert verdict(doc(A), doc(A), "full-transitive") == []


def test_another_schema_is_no_earlier_version():
    (found,) = verdict(doc(A, schema="lab.b"), doc(A, 2))
    assert found.code == "NQX283"


def test_the_real_schema_is_fully_compatible():
    series = load_series("schemas/vmc_state")
    assert verdict(series, series, "full-transitive") == []
    assert verdict(series_of([series.at(1)]), series, "full-transitive") == []
    broken = series.head.model_copy(update={"migrations": []})
    found = verdict([series.at(1), series.at(2)], broken, "backward-transitive")
    assert {d.code for d in found} == {"NQX414", "NQX415"}
    assert any("version 3" in d.message and "version 2" in d.message for d in found)


FIELDS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(
        [
            "int",
            "int | null",
            "str",
            "int8[n]",
            "int16[n]",
            DEFAULT,
            {"type": "int16[n]", "aliases": ["c"]},
        ]
    ),
    max_size=3,
)


@settings(max_examples=cases(150), deadline=None)
@given(FIELDS, FIELDS, st.sampled_from(["error", "warn", "drop"]))
def test_backward_is_what_the_resolver_does(old, new, unknown):
    """The law behind every verdict: compatible exactly if there is a way for payloads."""
    first, second = doc(old), doc(new, 2)
    try:
        plan(series_of([first, second]), 1, 2, unknown=unknown)
    except MigrationError:
        loads = False
    else:
        loads = True
    assert (verdict(first, second, "backward", unknown=unknown) == []) is loads
    assert (verdict(first, second, "backward", unknown=unknown, steps=False) == []) is loads


@settings(max_examples=cases(60), deadline=None)
@given(st.lists(FIELDS, min_size=2, max_size=4))
def test_modes_are_ordered(versions):
    """Full is both, and transitive is never laxer."""
    *earlier, head = [doc(fields, number + 1) for number, fields in enumerate(versions)]

    def ok(mode):
        return verdict(earlier, head, mode, unknown="drop", steps=False) == []

    for end in ("", "-transitive"):
        assert ok(f"full{end}") is (ok(f"backward{end}") and ok(f"forward{end}"))
    for mode, other in itertools.product(("backward", "forward", "full"), ("-transitive",)):
        assert ok(mode) or not ok(mode + other)
