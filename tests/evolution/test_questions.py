"""Questions about fields: every answer that makes sense, each with steps that lint."""

import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import step_text
from neuralqx_struct.evolution.suggestions import suggest
from tests.builders import doc

P = {"P": {"w": "float32[n]"}}
MOMENTS = {**P, "Opt": {"mu": "P", "nu": "P"}}
ONE_MOMENT = {**P, "Opt": {"mu": "P"}}

#: The two versions, and the answers to the only question as text.
CASES = {
    "a new field of a struct type": (
        doc({"params": "P"}, structs=P),
        doc({"params": "P", "ema": "P"}, 2, structs=P),
        {
            "a copy of params": ["add: {field: ema, copy: params}"],
            "as params, with 0 or another number in its arrays": [
                "add: {field: ema, like: params, default: 0}"
            ],
        },
    ),
    "a new array": (
        doc({"params": "float32[n]"}),
        doc({"params": "float32[n]", "ema": "float32[n]"}, 2),
        {
            "this value, or another": ["add: {field: ema, default: 0}"],
            "a copy of params": ["add: {field: ema, copy: params}"],
        },
    ),
    "a field of a struct type that goes": (
        doc({"params": "P", "ema": "P"}, structs=P),
        doc({"params": "P"}, 2, structs=P),
        {
            "a downgrade puts the structure of params in its place, with 0 in its arrays, lossy": [
                "remove: {field: ema, like: params, undo_default: 0}"
            ],
            "a downgrade puts a copy of params in its place, lossy": [
                "remove: {field: ema, undo_copy: params}"
            ],
            "no downgrade, lossy": ["remove: {field: ema, lossy: true}"],
        },
    ),
    "two fields that go and one that comes": (
        doc({"a": "float32[n]", "b": "float32[n]"}),
        doc({"x": "float32[n]"}, 2),
        {
            "a is x now, lossy": [
                "rename: {field: a, to: x}",
                "remove: {field: b, undo_default: 0}",
            ],
            "b is x now, lossy": [
                "rename: {field: b, to: x}",
                "remove: {field: a, undo_default: 0}",
            ],
            "none of them, lossy": [
                "add: {field: x, default: 0}",
                "remove: {field: a, undo_default: 0}",
                "remove: {field: b, undo_default: 0}",
            ],
        },
    ),
    "one field that goes and two that come": (
        doc({"x": "float32[n]"}),
        doc({"a": "float32[n]", "b": "float32[n]"}, 2),
        {
            "x is a now": ["rename: {field: x, to: a}", "add: {field: b, default: 0}"],
            "x is b now": ["rename: {field: x, to: b}", "add: {field: a, default: 0}"],
            "none of them, lossy": [
                "add: {field: a, default: 0}",
                "add: {field: b, default: 0}",
                "remove: {field: x, undo_default: 0}",
            ],
        },
    ),
    "fields of two structs under names that do not resemble each other": (
        doc({"params": "P", "opt": "Opt"}, structs=MOMENTS),
        doc(
            {"params": "P", "ema": {"type": "P | null", "default": None}, "opt": "Opt"},
            2,
            structs=ONE_MOMENT,
        ),
        {
            "yes": ["inline: {field: opt, fields: [nu]}", "rename: {field: nu, to: ema}"],
            "no, lossy": [
                "add: {field: ema, default: null}",
                "remove: {in: Opt, field: nu, like: mu, undo_default: 0}",
            ],
        },
    ),
    "a struct under another name beside none of its type": (
        doc({"a": "P"}, structs=P),
        doc({"x": "P"}, 2, structs=P),
        {
            "yes": ["rename: {field: a, to: x}"],
            "no, lossy": [
                "add: {field: x, like: a, default: 0}",
                "remove: {field: a, like: x, undo_default: 0}",
            ],
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_question_has_all_answers(name):
    old, new, wanted = CASES[name]
    (question,) = suggest(old, new)
    assert {
        answer.label: [step_text(step)[2:] for step in answer.steps] for answer in question.answers
    } == wanted


@pytest.mark.parametrize("name", CASES)
def test_every_answer_lints(name):
    old, new, _ = CASES[name]
    (question,) = suggest(old, new)
    for answer in question.answers:
        migrated = new.model_copy(update={"migrations": [s.steps.migration(1, answer.steps)]})
        assert [str(d) for d in prove(old, migrated) if d.severity == "error"] == []
