"""Steps that a revision proposes for edits of real schemas: the table in `revisions.yaml`."""

import pytest
import yaml

import neuralqx_struct as s
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.differences import differences
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import step_text
from neuralqx_struct.evolution.suggestions import explained, suggest
from neuralqx_struct.evolution.suggestions.work import loses_values
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import ROOT, doc, every

TABLE = yaml.safe_load((ROOT / "tests" / "evolution" / "revisions.yaml").read_text())


def document(case, version, migrations=()):
    structs = case["new" if version == 2 else "old"]
    params = case.get("params", {})
    data = {
        "language": "1",
        "schema": "lab.table",
        "version": version,
        "root": next(iter(structs)),
        "dims": case.get("dims", {}),
        "structs": {
            name: {"params": params.get(name, []), "fields": fields}
            for name, fields in structs.items()
        },
        "migrations": [*migrations],
    }
    if "enums" in case:
        data["enums"] = case["enums"][version - 1]
    return document_from_data(data, "table")


_FOUND = {}


def proposed(case):
    """The suggestions for a case, which are found once for all tests."""
    key = repr(case)
    if key not in _FOUND:
        _FOUND[key] = suggest(document(case, 1), document(case, 2))
    return _FOUND[key]


def chosen(case):
    """The proposed steps, with the first answer to each question, as a file has them."""
    steps = [step for each in proposed(case) for step in each.answers[0].steps]
    return [item for step in steps for item in yaml.safe_load(step_text(step))]


@every("name", TABLE)
def test_the_proposal_is_that_of_the_table(name):
    assert chosen(TABLE[name]) == TABLE[name]["steps"]
    assert bool(TABLE[name].get("asks")) == any(each.question for each in proposed(TABLE[name]))


@every("name", TABLE)
def test_every_proposal_is_applied_and_lints(name):
    case = TABLE[name]
    found = prove(document(case, 1), document(case, 2, [{"from": 1, "steps": chosen(case)}]))
    assert [str(each) for each in found if each.severity == "error"] == []


@every("name", TABLE)
def test_every_other_answer_lints_beside_the_first_ones_to_other_questions(name):
    case = TABLE[name]
    found = proposed(case)
    for question in found:
        for answer in question.answers[1:]:
            steps = [
                step
                for each in found
                for step in (answer if each is question else each.answers[0]).steps
            ]
            items = [item for step in steps for item in yaml.safe_load(step_text(step))]
            judged = prove(document(case, 1), document(case, 2, [{"from": 1, "steps": items}]))
            assert [str(d) for d in judged if d.severity == "error"] == [], answer.label


@every("name", TABLE)
def test_answers_that_lose_values_come_last_and_are_labelled(name):
    for each in proposed(TABLE[name]):
        lossy = [any(map(loses_values, a.steps)) for a in each.answers]
        assert lossy == sorted(lossy)
        assert [a.label.endswith(", lossy") for a in each.answers] == lossy


def _is_about_a_value(question):
    """True where one constant stands for all others: for a new field, and for null."""
    return [step.name for a in question.answers for step in a.steps] in (["add"], ["fill"])


@every("name", TABLE)
def test_a_question_has_several_answers_or_says_why_not(name):
    for each in proposed(TABLE[name]):
        if each.question and not _is_about_a_value(each):
            assert len(each.answers) > 1 or each.otherwise, each.question
            # Where the steps behind fit to one answer alone, or a new field has no value, it says so.
            assert each.answers


def test_the_table_is_large_enough():
    assert len(TABLE) >= 30
    assert sum("history" in case for case in TABLE.values()) >= 10


def test_a_number_of_another_type_and_name_is_no_rename():
    old, new = doc({"count": "int"}), doc({"loss": "float32[]"}, 2)
    assert [len(each.answers[0].steps) for each in suggest(old, new)] == [1, 1]


def test_two_arrays_that_may_have_become_a_third_are_no_renames():
    old = doc({"a": "float32[n, m]", "b": "float32[n, m]"})
    new = doc({"x": "float32[m, n]"}, 2)
    names = [step.name for each in suggest(old, new) for step in each.answers[0].steps]
    assert "rename" not in names


def steps_of(case, pick):
    """The proposed steps with the first or the last answer to each question."""
    return [step for each in proposed(case) for step in each.answers[pick].steps]


@every("name", TABLE)
def test_every_proposal_migrates_a_payload_and_back(name, tmp_path):
    case = TABLE[name]
    pick = -1 if case.get("rounds") else 0
    (tmp_path / "v1.yaml").write_text(s.dump_schema(document(case, 1)))
    steps = steps_of(case, pick)
    migration = s.steps.migration(1, steps)
    new = document(case, 2).model_copy(update={"migrations": [migration]})
    (tmp_path / "v2.yaml").write_text(s.dump_schema(new))
    schema = s.load_schema(tmp_path)
    fields = document(case, 1).structs[document(case, 1).root].fields
    given = {n: d.default for n, d in fields.items() if isinstance(d.default, dict)}
    old = s.example(schema.at(1).root, dims=case.get("sizes")).replace(**given)
    old.export(tmp_path / "old")
    assert type(schema.load(tmp_path / "old", as_numpy=True)) is schema.root
    if case.get("forgets"):
        return
    assert not any(map(loses_values, steps))
    s.migrate(tmp_path / "old", tmp_path / "new", schema=tmp_path)
    s.migrate(tmp_path / "new", tmp_path / "back", to=1, schema=tmp_path)
    assert schema.at(1).root.load(tmp_path / "back") == old


def test_arrays_of_any_size_are_no_parts():
    old, new = doc({"a": "float32[_]", "b": "float32[_]"}), doc({"x": "float32[_, 2]"}, 2)
    found = [answer for each in suggest(old, new) for answer in each.answers]
    assert "merge" not in [step.name for answer in found for step in answer.steps]


def test_the_answer_that_rounds_follows_those_that_do_not():
    old, new = doc({"weight": "float32[n]", "rng": "int"}), doc({"weights": "bfloat16[n]"}, 2)
    (question, *_) = suggest(old, new)
    assert [answer.label for answer in question.answers] == [
        "yes",
        "yes, rounded, lossy",
        "no, lossy",
    ]
    exact, rounded, _ = (answer.steps[-1] for answer in question.answers)
    assert (exact.exact, rounded.exact, rounded.lossy) == (True, False, True)


def test_a_real_array_with_two_axes_of_2_may_hold_complex_parts_along_each():
    old, new = (
        doc({"w": "float32[2, 2]", "w_real": "int"}),
        doc({"w": "complex64[2]", "w_real": "int"}, 2),
    )
    (question,) = suggest(old, new)
    *splits, apart = [answer.steps[0] for answer in question.answers]
    assert apart.name == "remove"
    assert [(step.axis, step.into) for step in splits] == [
        (0, ["w_real_", "w_imag_"]),
        (1, ["w_real_", "w_imag_"]),
    ]


def test_the_size_of_a_struct_that_goes_away_is_named():
    case = {
        "old": {"T": {"opt": "Adam", "w": "float32[n]"}, "Adam": {"mu": "float32[n]"}},
        "new": {"T": {"mu": "float32[n]", "w": "float32[n]"}},
    }
    moved, left = proposed(case)
    assert [step.name for step in moved.steps] == ["inline"]
    assert not left.answers
    assert "write `float32[n_of_Adam]`, or declare them under dims" in left.question
    case["new"]["T"]["mu"] = "float32[n_of_Adam]"
    assert [step.name for each in proposed(case) for step in each.steps] == ["inline"]


def test_a_step_that_no_message_is_about_follows_one_that_it_can_be_applied_after():
    """The cast unites the dtypes of S, which differ once h is there; the message whose step makes h has it."""
    dtypes = {"S": ["int8", "float64"]}
    old = doc({"n": "S[]", "e": "float64[]"}, dtypes=dtypes)
    new = doc({"h": "tuple[S[], S[]]", "a": "str | null"}, 2, dtypes=dtypes)
    hints = {found.field: found.hint for found in explained(old, new, differences(old, new))}
    assert [name for name, hint in hints.items() if "cast: {field: h" in hint] == ["n"]


CHOICES = {"S": ["float32", "int8"], "T": ["float32", "float64"]}


@pytest.mark.parametrize(
    ("pair", "codes"),
    [("tuple[T[2] | null, S[]]", []), ("tuple[T[2] | str, S[] | str]", ["NQX305", "NQX305"])],
)
def test_arrays_of_two_choices_in_one_value(pair, codes):
    """Arrays at one place have one choice; those of unions may be of either, and a cast for one choice ends the other."""
    old = doc({"u": pair, "n": "S[_]"}, dtypes=CHOICES)
    casts = [steps.cast(field="n", dtype="float64")]
    new = doc({"u": pair, "n": "float64[_]"}, 2, casts, dtypes=CHOICES)
    found = lint_series(series_of([old, new]))
    assert [each.code for each in found if each.severity == "error"] == codes
