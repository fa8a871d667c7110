"""Questions about fields: every answer that makes sense, each with steps that lint."""

import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import step_text
from neuralqx_struct.evolution.suggestions import suggest
from tests.builders import doc, every

P = {"P": {"w": "float32[n]"}}
MOMENTS = {**P, "Opt": {"mu": "P", "nu": "P"}}
ONE_MOMENT = {**P, "Opt": {"mu": "P"}}
COUNT = {"count": "int"}

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
    "axes in another order, or another array": (
        doc({"w": "float32[n, m]", "s": "int8[n, m]"}),
        doc({"w": "float32[m, n]", "s": "int8[n, m]"}, 2),
        {
            "axes in another order": ["transpose: {field: w, axes: [1, 0]}"],
            "the same elements in the same order, in another shape": [
                'reshape: {field: w, shape: [m, "n"]}'
            ],
            "unrelated, lossy": [
                "remove: {field: w, undo_default: 0}",
                "add: {field: w, default: 0}",
            ],
        },
    ),
    "a value that is rounded": (
        doc({"w": "float32[n]", "s": "int8[n]"}),
        doc({"w": "bfloat16[n]", "s": "int8[n]"}, 2),
        {
            "the same values": ["cast: {field: w, dtype: bfloat16}"],
            "the same values, rounded, lossy": [
                "cast: {field: w, dtype: bfloat16, exact: false, lossy: true}"
            ],
            "unrelated, lossy": [
                "remove: {field: w, undo_default: 0}",
                "add: {field: w, default: 0}",
            ],
        },
    ),
    "a struct in a new struct": (
        doc({"x": "int"}),
        doc({"x": "int", "opt": "Chain"}, 2, structs={"Chain": {"adam": "Adam"}, "Adam": COUNT}),
        {"this value, or another": ["add: {field: opt, default: {adam: {count: 0}}}"]},
    ),
    "a struct that goes": (
        doc({"x": "int", "adam": "Adam"}, structs={"Adam": COUNT}),
        doc({"x": "int"}, 2),
        {
            "the value that a downgrade puts in its place, lossy": [
                "remove: {field: adam, undo_default: {count: 0}}"
            ],
            "no downgrade, lossy": ["remove: {field: adam, lossy: true}"],
        },
    ),
    "a struct that goes, with the only array of its size": (
        doc({"x": "int", "p": "P"}, structs=P),
        doc({"x": "int"}, 2),
        {"no downgrade, lossy": ["remove: {field: p, lossy: true}"]},
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


@every("name", CASES)
def test_a_question_has_all_answers(name):
    old, new, wanted = CASES[name]
    (question,) = suggest(old, new)
    assert {
        answer.label: [step_text(step)[2:] for step in answer.steps] for answer in question.answers
    } == wanted


def test_a_default_of_a_struct_is_taken_beside_another_field_of_its_type():
    old = doc({"a": "Adam"}, structs={"Adam": COUNT})
    added = {"type": "Adam", "default": {"count": 3}}
    new = doc({"a": "Adam", "b": added}, 2, structs={"Adam": COUNT})
    (sure,) = suggest(old, new)
    assert [step_text(step) for step in sure.steps] == ["- add: {field: b, default: {count: 3}}"]


@every("name", CASES)
def test_every_answer_lints(name):
    old, new, _ = CASES[name]
    (question,) = suggest(old, new)
    for answer in question.answers:
        migrated = new.model_copy(update={"migrations": [s.steps.migration(1, answer.steps)]})
        assert [str(d) for d in prove(old, migrated) if d.severity == "error"] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"rng": "prng_key[rbg]"}, {"key": "prng_key[rbg]"}),  # a file holds no random key
        ({"kernel": "float32[n]"}, {"weight": "float32[m]"}),  # m is the size of nothing else
        ({"w": "float32[n, m]"}, {"w": "float32[m, n]"}),  # as are n and m
        ({"x": "int", "key": "bytes"}, {"x": "int"}),  # a downgrade needs a value
    ],
)
def test_a_question_without_an_answer_that_drops_the_values_says_why(old, new):
    (question,) = suggest(doc(old), doc(new, 2))
    assert not any(step.name == "add" for a in question.answers for step in a.steps)
    assert question.answers and question.otherwise


def test_the_steps_behind_need_the_answer_that_the_others_follow():
    """Without the rename of the struct, C comes as it is, and the step that renames its field has nothing to rename."""
    old = doc({"x": "list[B]"}, structs={"B": {"count": "int"}})
    new = doc({"x": "list[C]"}, 2, structs={"C": {"counts": "int"}})
    struct, _ = suggest(old, new)
    assert [answer.label for answer in struct.answers] == ["yes"]
    assert "`remove` and `add` x" in struct.otherwise


def test_why_an_answer_is_missing_stands_behind_the_others(tmp_path):
    old, new = doc({"rng": "prng_key[rbg]"}), doc({"key": "prng_key[rbg]"}, 2)
    (tmp_path / "v1.yaml").write_text(s.dump_schema(old))
    made = s.revise(tmp_path, edited=new)
    (question,) = suggest(old, new)
    assert made.questions == (question.question,)
    lines = made.text.splitlines()
    assert lines[-3:] == [
        "      # yes:",
        "      # - rename: {field: rng, to: key}",
        f"      # {question.otherwise}",
    ]
    shown = [d.hint for d in prove(old, new) if question.question in d.hint]
    assert any(hint.endswith(f"`. {question.otherwise}") for hint in shown)
