"""Constraints and limits on values that a step takes apart or joins: nothing is known of them, so each is a finding."""

import pytest

from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.refusals import Reading
from neuralqx_struct.schema.series import series_of
from tests.builders import doc, every


def broken_limits(old, new, direction, _):
    """The limits of one version that payloads of the other may break."""
    ends = (old, new) if direction == "backward" else (new, old)
    reading = Reading(series_of([old, new]), *ends, "error")
    reading.compare()
    return reading.limits


ARRAYS = {"w": "float32[4]"}, {"a": "float32[2]", "b": "float32[2]"}
SPLIT = steps.split(field="w", into={"a": 2, "b": 2})
MERGE = steps.merge(fields=["a", "b"], into="w", how="concat")
ITEMS = {"w": "list[L]"}, {"a": "L", "b": "L"}
APART = steps.split(field="w", into=["a", "b"], how="list")
LISTED = steps.merge(fields=["a", "b"], into="w", how="list")
NUMBERS = {"w": "dict[str, int]", "top": "int"}, {"a": "int", "b": "int", "top": "int"}
BY_NAME = steps.merge(fields=["a", "b"], into="w", how="dict")

# fields before and after, the step, the constraints before and after, those that a payload may break
MADE = {
    "split": (*ARRAYS, SPLIT, ["sum(w) == 1"], ["sum(a) == 1"], ["sum(a) == 1"]),
    "merged": (*ARRAYS[::-1], MERGE, ["all(a >= 0)"], ["all(w >= 0)"], ["all(w >= 0)"]),
    "all elements": (*ARRAYS, SPLIT, ["all(w >= 0)"], ["all(a >= 0)"], ["all(a >= 0)"]),
    "items": (*ITEMS, APART, ["w[0].x > 1"], ["a.x > 1", "b.x > 1"], ["b.x > 1"]),
    "listed": (*ITEMS[::-1], LISTED, ["a.x > 1"], ["w[0].x > 1"], []),
    "by name": (*NUMBERS[::-1], BY_NAME, ["a < top"], ["all(w < top)"], ["all(w < top)"]),
}  # fmt: skip


def documents(old, new, step, before, after):
    def struct(fields, texts):
        return {"A": {"fields": fields, "constraints": [{"expr": text} for text in texts]}}

    inner = {"L": {"fields": {"x": "int"}}}
    first = doc({}, raw={**inner, **struct(old, before)})
    return first, doc({}, 2, [step], raw={**inner, **struct(new, after)})


@pytest.mark.parametrize("case", MADE.values(), ids=MADE)
def test_constraints_on_values_that_a_step_makes(case):
    *given, breaks = case
    old, new = documents(*given)
    broken = [d.message for d in broken_limits(old, new, "backward", [new])]
    assert broken == [f"constraint {each} was added" for each in breaks]


def test_a_part_under_the_name_of_the_whole_has_no_constraint_of_it():
    step = steps.split(field="w", into={"w": 2, "b": 2})
    fields = {"w": "float32[2]", "b": "float32[2]"}
    old, new = documents(ARRAYS[0], fields, step, ["sum(w) == 1"], ["sum(w) == 1"])
    (found,) = broken_limits(old, new, "backward", [new])
    assert "sum(w) == 1" in found.message
    (found,) = broken_limits(old, new, "forward", [new])
    assert "sum(w) == 1" in found.message


def test_limits_of_items_are_new_or_gone():
    limited = {"a": {"type": "int", "ge": 0}, "b": "int"}
    old, new = doc({"w": "list[int, 2]"}), doc(limited, 2, [APART])
    (found,) = broken_limits(old, new, "backward", [new])
    assert found.path == "$.structs.A.fields.a" and "split may give" in found.message
    assert [*broken_limits(old, new, "forward", [new])] == []
    old, new = doc(limited), doc({"w": "list[int, 2]"}, 2, [LISTED])
    (found,) = broken_limits(old, new, "forward", [new])
    assert "split may give" in found.message


SWAPPED = [steps.rename(field="a", to="c"), steps.rename(field="b", to="a")]
JOINED = steps.merge(fields=["a", "c"], into="w", how="concat")
RENAMED = steps.merge(fields=["c", "b"], into="w", how="concat")

# as above, with several steps, and whether payloads may break a constraint in each direction
NAMED = {
    "swapped, then merged": (*ARRAYS[::-1], [*SWAPPED, JOINED], ["all(a >= 0)"], ["all(w >= 0)"], True, True),
    "renamed, then merged": (*ARRAYS[::-1], [SWAPPED[0], RENAMED], ["sum(a) == 1"], [], False, True),
    "renamed alone": (*[ARRAYS[1]] * 2, [*SWAPPED, steps.rename(field="c", to="b")], ["sum(a) == 1"], ["sum(b) == 1"], False, False),
    "renamed, the other": (*[ARRAYS[1]] * 2, [*SWAPPED, steps.rename(field="c", to="b")], ["sum(a) == 1"], ["sum(a) == 1"], True, True),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED)
def test_constraints_follow_the_values_under_their_names_at_each_step(case):
    before, after, given, *texts, breaks, breaks_back = case
    first, last = documents(before, after, given[0], *texts)
    last = doc(
        {}, 2, given, raw={"A": last.structs["A"].model_dump(by_alias=True, exclude_unset=True)}
    )
    for direction, broken in (("backward", breaks), ("forward", breaks_back)):
        assert bool(broken_limits(first, last, direction, [last])) is broken


TAKEN_OUT = steps.inline(field="b", fields=["a", "c"])
PUT_IN = steps.move(fields=["a", "c"], into="b", struct="B")
AC = {"a": "float32[2]", "c": "float32[2]"}
WHOLE, HELD = {"a": "float32[4]"}, {"b": "B"}


def joined(**within):
    return steps.merge(fields=["a", "c"], into="a", how="concat", **within)


def parted(**within):
    return steps.split(field="a", into={"a": 2, "c": 2}, **within)


# the structs with fields and constraints before and after, the steps, and whether payloads may break one in each direction
PLACED = {
    "inlined, then merged": ({"A": (HELD, []), "B": (AC, ["sum(a) == 1"])}, {"A": (WHOLE, [])}, [TAKEN_OUT, joined()], False, True),
    "inlined, then merged, repeated": ({"A": (HELD, []), "B": (AC, ["sum(a) == 1"])}, {"A": (WHOLE, ["sum(a) == 1"])}, [TAKEN_OUT, joined()], True, True),
    "inlined, then split": ({"A": (HELD, []), "B": (WHOLE, ["min(a) > 0"])}, {"A": (AC, [])}, [steps.inline(field="b", fields=["a"]), parted()], False, True),
    "merged, then inlined": ({"A": (HELD, []), "B": (AC, ["sum(c) == 1"])}, {"A": (WHOLE, [])}, [joined(within="B"), steps.inline(field="b", fields=["a"])], False, True),
    "inlined alone": ({"A": (HELD, []), "B": (AC, ["sum(a) == 1"])}, {"A": (AC, ["sum(a) == 1"])}, [TAKEN_OUT], False, False),
    "moved, then merged, from outside": ({"A": (AC, ["sum(a) == 1"])}, {"A": (HELD, ["sum(b.a) == 1"]), "B": (WHOLE, [])}, [PUT_IN, joined(within="B")], True, True),
    "moved, then merged, repeated": ({"A": (AC, ["sum(a) == 1"])}, {"A": (HELD, []), "B": (WHOLE, ["sum(a) == 1"])}, [PUT_IN, joined(within="B")], True, True),
    "moved, then split": ({"A": (WHOLE, ["any(a > 0)"])}, {"A": (HELD, []), "B": (AC, ["any(a > 0)"])}, [steps.move(fields=["a"], into="b", struct="B"), parted(within="B")], True, True),
    "moved alone": ({"A": (AC, ["sum(a) == 1"])}, {"A": (HELD, []), "B": (AC, ["sum(a) == 1"])}, [PUT_IN], False, False),
    "merged inside, from outside": ({"A": (HELD, ["any(b.a > 0)"]), "B": (AC, [])}, {"A": (HELD, ["any(b.a > 0)"]), "B": (WHOLE, [])}, [joined(within="B")], True, True),
}  # fmt: skip


@every("case", PLACED.values())
def test_constraints_on_values_that_move_between_structs_and_are_made_anew(case):
    before, after, given, *broken = case
    old, new = (
        doc({}, *more, raw={
            name: {"fields": fields, "constraints": [{"expr": text} for text in texts]}
            for name, (fields, texts) in structs.items()
        })
        for structs, more in ((before, ()), (after, (2, given)))
    )  # fmt: skip
    for direction, expected in zip(("backward", "forward"), broken, strict=True):
        assert bool(broken_limits(old, new, direction, [new])) is expected
