"""Limits on the lengths of collections whose items are fields before or after a step."""

import pytest

from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.schema.series import series_of
from tests.builders import doc

#: How the fields become a collection, its type and limits, and whether two items are within these.
WHOLES = {
    "a list": ("list", {"type": "list[str]", "min_length": 1}, True),
    "a dict": ("dict", {"type": "dict[str, str]", "max_length": 2}, True),
    "a list of more": ("list", {"type": "list[str]", "min_length": 3}, False),
    "a dict of fewer": ("dict", {"type": "dict[str, str]", "max_length": 1}, False),
}


@pytest.mark.parametrize("name", WHOLES)
def test_the_length_of_a_collection_is_the_number_of_its_fields(name):
    how, limited, accepted = WHOLES[name]
    merge = steps.merge(fields=["a", "b"], into="c", how=how)
    split = steps.split(field="c", into=["a", "b"], how=how)
    apart, whole = {"a": "str", "b": "str"}, {"c": limited}
    merged = series_of([doc(apart), doc(whole, 2, [merge])])
    parted = series_of([doc(whole), doc(apart, 2, [split])])
    codes = [found.code for found in verdict(merged.at(1), merged, "backward")]
    assert codes == ([] if accepted else ["NQX270"])
    codes = [found.code for found in verdict(parted.at(1), parted, "forward")]
    assert codes == ([] if accepted else ["NQX271"] * 2)


@pytest.mark.parametrize("how", ["list", "tuple", "dict"])
def test_the_lengths_of_fields_are_not_those_of_the_collection_that_holds_them(how):
    merge = steps.merge(fields=["a", "b"], into="c", how=how)
    item = "list[str]"
    wholes = {
        "list": f"list[{item}]",
        "tuple": f"tuple[{item}, {item}]",
        "dict": f"dict[str, {item}]",
    }
    old = doc({"a": {"type": item, "min_length": 1}, "b": item})
    series = series_of([old, doc({"c": wholes[how]}, 2, [merge])])
    assert [found.code for found in verdict(old, series, "forward")] == ["NQX271"]
