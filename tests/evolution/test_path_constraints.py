"""Constraints with paths in two versions: renames of what a path names are followed, other changes are changes."""

import pytest

from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.proof import prove
from tests.builders import doc

INT = {"type": "int", "kind": "static"}


def version(number, expression, *, inner="step", outer="adam", struct="Adam", made=None):
    fields = {outer: struct, "layers": f"list[{struct}]", "step": INT, "extent": "tuple[int, int]"}
    own = {inner: INT, "other": INT}
    document = doc(fields, number, made, {struct: own}, compatibility="full")
    data = document.to_data()
    data["structs"]["A"]["constraints"] = [{"expr": expression}]
    return type(document).model_validate(data)


CASES = [
    ("adam.step <= step", "adam.t <= step", {"inner": "t"}, [("step", "t", "Adam")]),
    ("all(layers.step > 0)", "all(layers.t > 0)", {"inner": "t"}, [("step", "t", "Adam")]),
    ("layers[0].step > 0", "layers[0].t > 0", {"inner": "t"}, [("step", "t", "Adam")]),
    ("adam.step > 0", "optimizer.step > 0", {"outer": "optimizer"}, [("adam", "optimizer", None)]),
    (
        "adam.step < sum(layers.step)",
        "optimizer.t < sum(layers.t)",
        {"inner": "t", "outer": "optimizer"},
        [("adam", "optimizer", None), ("step", "t", "Adam")],
    ),
    ("adam.step > step", "adam.step > step", {"struct": "Sgd"}, []),
    ("adam.other > extent[0]", "adam.other > extent[0]", {"inner": "t"}, [("step", "t", "Adam")]),
]


@pytest.mark.parametrize(("before", "after", "changed", "renames"), CASES)
def test_renames_are_no_change_of_a_constraint(before, after, changed, renames):
    made = [steps.rename(field=a, to=b, within=within) for a, b, within in renames]
    if "struct" in changed:
        made.append(steps.rename_struct(struct="Adam", to=changed["struct"]))
    old, new = version(1, before), version(2, after, **changed, made=made)
    codes = {change.code for change in diff_documents(old, new, [new])}
    assert not codes & {"NQX270", "NQX271"}
    assert prove(old, new) == []
    assert verdict(old, new) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("adam.step > 0", "adam.step > 1"),
        ("adam.step > 0", "adam.other > 0"),
        ("all(layers.step > 0)", "any(layers.step > 0)"),
        ("extent[0] > 0", "extent[1] > 0"),
    ],
)
def test_other_constraints_are_changes_in_both_directions(before, after):
    old, new = version(1, before), version(2, after)
    assert {"NQX270", "NQX271"} <= {change.code for change in diff_documents(old, new)}
    assert {found.code for found in verdict(old, new)} == {"NQX270", "NQX271"}


def test_a_path_to_another_field_of_the_old_name_is_a_change():
    made = [steps.rename(field="step", to="t", within="Adam")]
    made += [steps.rename(field="other", to="step", within="Adam")]
    data = version(2, "adam.step > 0", made=made).to_data()
    data["structs"]["Adam"]["fields"] = {"t": INT, "step": INT}
    old = version(1, "adam.step > 0")
    new = type(old).model_validate(data)
    assert {"NQX270", "NQX271"} <= {change.code for change in diff_documents(old, new, [new])}
