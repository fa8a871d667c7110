"""Suggestions for fields that became the values of one collection, and back."""

import pytest

from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.steps.parts import numbered
from neuralqx_struct.evolution.suggestions import suggest
from tests.builders import doc

LAYER = {"Layer": {"w": "float32[d]"}}


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["layer_2", "layer_0", "layer_10"], [("layer_0", "layer_2", "layer_10")]),
        (["h1", "g0", "h0", "g1"], [("h0", "h1"), ("g0", "g1")]),
        (["w1", "scale", "w"], []),
        (["x_1", "x1", "x_2"], [("x_1", "x_2")]),
    ],
)
def test_numbered_names(names, groups):
    assert [*numbered(names)] == groups


def texts(old, new):
    found = suggest(doc(old, structs=LAYER), doc(new, 2, structs=LAYER))
    return [[steps.step_text(step)[2:] for step in each.answers[0].steps] for each in found]


FIELDS = {"a": "Layer", "b": "Layer"}
CASES = [
    (FIELDS, {"x": "list[Layer]"}, ["merge: {fields: [a, b], into: x, how: list}"]),
    (FIELDS, {"x": "dict[str, Layer]"}, ["merge: {fields: [a, b], into: x, how: dict}"]),
    (FIELDS, {"x": "tuple[Layer, Layer]"}, ["merge: {fields: [a, b], into: x, how: tuple}"]),
    (FIELDS, {"x": "Layer[][n]"}, ["merge: {fields: [a, b], into: x, how: list}", "stack: {field: x}"]),
    ({"x": "Layer[][2]"}, FIELDS, ["unstack: {field: x}", "split: {field: x, into: [a, b], how: list}"]),
    ({"x": "list[Layer]"}, {"layer": "Layer"}, ["split: {field: x, into: [layer], how: list}"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "wanted"), CASES)
def test_steps_between_fields_and_a_collection(old, new, wanted):
    assert texts(old, new) == [wanted]


def test_a_number_alone_is_no_list():
    assert len(texts({"n": "int"}, {"x": "list[int]"})) == 2
