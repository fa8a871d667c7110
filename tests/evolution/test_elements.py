"""Constraints and limits on values that a step takes apart or joins: those on all elements follow."""

import pytest

from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.evolution.refusals import Reading
from neuralqx_struct.schema.series import series_of
from tests.builders import doc


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
FOLLOWED = {
    "split": (*ARRAYS, SPLIT, ["all(w >= 0)"], ["all(a >= 0)", "all(b >= 0)"], ""),
    "merged": (*ARRAYS[::-1], MERGE, ["all(a >= 0)", "all(b >= 0)"], ["all(w >= 0)"], ""),
    "functions of elements": (*ARRAYS, SPLIT, ["all(abs(w) < 1)"], ["all(abs(b) < 1)"], ""),
    "merged, one without": (*ARRAYS[::-1], MERGE, ["all(a >= 0)"], ["all(w >= 0)"], "all(w >= 0)"),
    "a sum": (*ARRAYS, SPLIT, ["sum(w) == 1"], ["sum(a) == 1"], "sum(a) == 1"),
    "a share": (*ARRAYS, SPLIT, ["all(w < sum(w))"], ["all(a < sum(a))"], "all(a < sum(a))"),
    "items": (*ITEMS, APART, ["all(w.x > 1)"], ["a.x > 1", "b.x > 1"], ""),
    "one item": (*ITEMS, APART, ["w[0].x > 1"], ["a.x > 1", "b.x > 1"], "b.x > 1"),
    "listed": (*ITEMS[::-1], LISTED, ["a.x > 1", "b.x > 1"], ["all(w.x > 1)"], ""),
    "beside a number": (*NUMBERS[::-1], BY_NAME, ["a < top", "b < top"], ["all(w < top)"], ""),
    "another one": (*ITEMS[::-1], LISTED, ["a.x > 1", "b.x > 1"], ["all(w.x > 2)"], "all(w.x > 2)"),
}  # fmt: skip


def documents(old, new, step, before, after):
    def struct(fields, texts):
        return {"A": {"fields": fields, "constraints": [{"expr": text} for text in texts]}}

    inner = {"L": {"fields": {"x": "int"}}}
    first = doc({}, raw={**inner, **struct(old, before)})
    return first, doc({}, 2, [step], raw={**inner, **struct(new, after)})


@pytest.mark.parametrize("case", FOLLOWED.values(), ids=FOLLOWED)
def test_constraints_on_all_elements_follow(case):
    *given, breaks = case
    old, new = documents(*given)
    broken = [d.message for d in broken_limits(old, new, "backward", [new])]
    assert broken == ([f"constraint {breaks} was added"] if breaks else [])


def test_a_part_under_the_name_of_the_whole_has_no_constraint_of_it_but_those_on_all_elements():
    step = steps.split(field="w", into={"w": 2, "b": 2})
    fields = {"w": "float32[2]", "b": "float32[2]"}
    both = ["sum(w) == 1", "all(w > 0)"]
    old, new = documents(ARRAYS[0], fields, step, both, both)
    (found,) = broken_limits(old, new, "backward", [new])
    assert found.message == "constraint sum(w) == 1 is on w, which the step split makes"


def test_limits_of_items_are_new_or_gone():
    limited = {"a": {"type": "int", "ge": 0}, "b": "int"}
    old, new = doc({"w": "list[int, 2]"}), doc(limited, 2, [APART])
    (found,) = broken_limits(old, new, "backward", [new])
    assert found.path == "$.structs.A.fields.a" and "split may give" in found.message
    assert [*broken_limits(old, new, "forward", [new])] == []
    old, new = doc(limited), doc({"w": "list[int, 2]"}, 2, [LISTED])
    (found,) = broken_limits(old, new, "forward", [new])
    assert "limits of a are gone" in found.message
    assert [c.code for c in diff(old, new) if c.code in ("NQX270", "NQX271")] == ["NQX271"]


@pytest.mark.parametrize(("least", "gone"), [(2, []), (3, ["NQX271"])])
def test_a_list_of_all_parts_is_as_long_as_there_are_parts(least, gone):
    old = doc({"w": {"type": "list[int]", "min_length": least}})
    new = doc({"a": "int", "b": "int"}, 2, [APART])
    assert [d.code for d in broken_limits(old, new, "forward", [new])] == [*gone, *gone]


SWAPPED = [steps.rename(field="a", to="c"), steps.rename(field="b", to="a")]
JOINED = steps.merge(fields=["a", "c"], into="w", how="concat")
RENAMED = steps.merge(fields=["c", "b"], into="w", how="concat")

# as above, with several steps, and the constraint that a payload of the new version may break
NAMED = {
    "swapped, then merged": (*ARRAYS[::-1], [*SWAPPED, JOINED], ["all(a >= 0)"], ["all(w >= 0)"], "all(w >= 0)", ""),
    "swapped, then merged, both": (*ARRAYS[::-1], [*SWAPPED, JOINED], ["all(a >= 0)", "all(b >= 0)"], ["all(w >= 0)"], "", ""),
    "renamed, then merged": (*ARRAYS[::-1], [SWAPPED[0], RENAMED], ["all(a >= 0)", "all(b >= 0)"], ["all(w >= 0)"], "", ""),
    "split under one name": (ARRAYS[0], {"w": "float32[2]", "b": "float32[2]"}, [steps.split(field="w", into={"w": 2, "b": 2})], ["all(w >= 0)"], ["all(w >= 0)"], "", "all(w >= 0)"),
    "filled again, then merged": ({**ARRAYS[1], "n": "int8[2]"}, {**ARRAYS[0], "n": "int8[2]"}, [steps.remove(field="a", lossy=True), steps.rename(field="b", to="a"), steps.add(field="b", default=-1), MERGE], ["all(a >= 0)", "all(b >= 0)"], ["all(w >= 0)"], "all(w >= 0)", "all(a >= 0)"),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED)
def test_constraints_follow_the_values_under_their_names_at_each_step(case):
    before, after, given, *texts, breaks, breaks_back = case
    first, last = documents(before, after, given[0], *texts)
    last = doc(
        {}, 2, given, raw={"A": last.structs["A"].model_dump(by_alias=True, exclude_unset=True)}
    )
    for direction, broken in (("backward", breaks), ("forward", breaks_back)):
        found = [d.message for d in broken_limits(first, last, direction, [last])]
        assert bool(found) == bool(broken)
        assert all(broken in message for message in found)


def test_constraints_of_a_new_struct_are_on_the_values_that_were_merged_into_it():
    given = [MERGE, steps.move(fields=["w"], into="b", struct="B")]
    inner = {"B": {"fields": {"w": "float32[4]"}, "constraints": [{"expr": "all(w >= 0)"}]}}
    for limits, broken in (
        ([], True),
        (["all(a >= 0)"], True),
        (["all(a >= 0)", "all(b >= 0)"], False),
    ):
        old, _ = documents(ARRAYS[1], ARRAYS[0], MERGE, limits, [])
        new = doc({"b": "B"}, 2, given, raw=inner)
        found = [d.message for d in broken_limits(old, new, "backward", [new])]
        assert found == (["constraint all(w >= 0) was added"] if broken else [])


TAKEN_OUT = steps.inline(field="b", fields=["a", "c"])
PUT_IN = steps.move(fields=["a", "c"], into="b", struct="B")
AC = {"a": "float32[2]", "c": "float32[2]"}
WHOLE, HELD = {"a": "float32[4]"}, {"b": "B"}


def joined(**within):
    return steps.merge(fields=["a", "c"], into="a", how="concat", **within)


def parted(**within):
    return steps.split(field="a", into={"a": 2, "c": 2}, **within)


# the structs with fields and constraints before and after, the steps, and what payloads may break in each direction
PLACED = {
    "inlined, then merged": ({"A": (HELD, []), "B": (AC, ["sum(a) == 1"])}, {"A": (WHOLE, [])}, [TAKEN_OUT, joined()], [], ["constraint sum(a) == 1 was removed"]),
    "inlined, then merged, repeated": ({"A": (HELD, []), "B": (AC, ["sum(a) == 1"])}, {"A": (WHOLE, ["sum(a) == 1"])}, [TAKEN_OUT, joined()], ["constraint sum(a) == 1 is on a, which the step merge makes"], ["constraint sum(a) == 1 is on a, which the step merge makes"]),
    "inlined, then merged, all": ({"A": (HELD, []), "B": (AC, ["all(a > 0)", "all(c > 0)"])}, {"A": (WHOLE, ["all(a > 0)"])}, [TAKEN_OUT, joined()], [], []),
    "inlined, then split": ({"A": (HELD, []), "B": (WHOLE, ["min(a) > 0"])}, {"A": (AC, [])}, [steps.inline(field="b", fields=["a"]), parted()], [], ["constraint min(a) > 0 was removed"]),
    "merged, then inlined": ({"A": (HELD, []), "B": (AC, ["sum(c) == 1"])}, {"A": (WHOLE, [])}, [joined(within="B"), steps.inline(field="b", fields=["a"])], [], ["constraint sum(b.c) == 1 was removed"]),
    "inlined alone": ({"A": (HELD, []), "B": (AC, ["sum(a) == 1"])}, {"A": (AC, ["sum(a) == 1"])}, [TAKEN_OUT], [], []),
    "moved, then merged, from outside": ({"A": (AC, ["sum(a) == 1"])}, {"A": (HELD, ["sum(b.a) == 1"]), "B": (WHOLE, [])}, [PUT_IN, joined(within="B")], ["constraint sum(b.a) == 1 is on a, which the step merge makes"], ["constraint sum(b.a) == 1 is on a, which the step merge makes"]),
    "moved, then merged, repeated": ({"A": (AC, ["sum(a) == 1"])}, {"A": (HELD, []), "B": (WHOLE, ["sum(a) == 1"])}, [PUT_IN, joined(within="B")], ["constraint sum(a) == 1 is on a, which the step merge makes"], ["constraint sum(b.a) == 1 was removed"]),
    "moved, then split": ({"A": (WHOLE, ["any(a > 0)"])}, {"A": (HELD, []), "B": (AC, ["any(a > 0)"])}, [steps.move(fields=["a"], into="b", struct="B"), parted(within="B")], ["constraint any(a > 0) is on a, which the step split makes"], ["constraint any(b.a > 0) was removed"]),
    "merged inside, from outside": ({"A": (HELD, ["any(b.a > 0)"]), "B": (AC, [])}, {"A": (HELD, ["any(b.a > 0)"]), "B": (WHOLE, [])}, [joined(within="B")], ["constraint any(b.a > 0) is on a, which the step merge makes"], ["constraint any(b.a > 0) is on a, which the step merge makes"]),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACED.values(), ids=PLACED)
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
        found = [d.message for d in broken_limits(old, new, direction, [new])]
        assert found == expected
