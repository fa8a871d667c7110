"""Steps that a revision proposes for edits of real schemas: the table in `revisions.yaml`."""

import pytest
import yaml

from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import kind, step_text
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.schema.reading import document_from_data
from tests.builders import ROOT, doc

TABLE = yaml.safe_load((ROOT / "tests" / "evolution" / "revisions.yaml").read_text())


def document(case, version, migrations=()):
    structs = case["new" if version == 2 else "old"]
    data = {
        "language": "1",
        "schema": "lab.table",
        "version": version,
        "root": next(iter(structs)),
        "structs": {name: {"fields": fields} for name, fields in structs.items()},
        "migrations": [*migrations],
    }
    if "enums" in case:
        data["enums"] = case["enums"][version - 1]
    return document_from_data(data, "table")


def proposed(case):
    return suggest(document(case, 1), document(case, 2))


def chosen(case):
    """The proposed steps, with the first answer to each question, as a file has them."""
    steps = [step for each in proposed(case) for step in each.answers[0].steps]
    return [item for step in steps for item in yaml.safe_load(step_text(step))]


@pytest.mark.parametrize("name", TABLE)
def test_the_proposal_is_that_of_the_table(name):
    assert chosen(TABLE[name]) == TABLE[name]["steps"]
    assert bool(TABLE[name].get("asks")) == any(each.question for each in proposed(TABLE[name]))


@pytest.mark.parametrize("name", TABLE)
def test_every_proposal_is_applied_and_lints(name):
    case = TABLE[name]
    found = prove(document(case, 1), document(case, 2, [{"from": 1, "steps": chosen(case)}]))
    assert [str(each) for each in found if each.severity == "error"] == []


@pytest.mark.parametrize("name", TABLE)
def test_answers_that_lose_values_come_last_and_are_labelled(name):
    for each in proposed(TABLE[name]):
        lossy = [any(kind(step).drops_values for step in a.steps) for a in each.answers]
        assert lossy == sorted(lossy)
        assert [a.label.endswith(", lossy") for a in each.answers] == lossy


def test_the_table_is_large_enough():
    assert len(TABLE) >= 30
    assert sum("(" in name for name in TABLE) >= 10  # with the public model that it is from


def test_a_number_of_another_type_and_name_is_no_rename():
    old, new = doc({"count": "int"}), doc({"loss": "float32[]"}, 2)
    assert [len(each.answers[0].steps) for each in suggest(old, new)] == [1, 1]


def test_two_arrays_that_may_have_become_a_third_are_no_renames():
    old = doc({"a": "float32[n, m]", "b": "float32[n, m]"})
    new = doc({"x": "float32[m, n]"}, 2)
    names = [step.name for each in suggest(old, new) for step in each.answers[0].steps]
    assert "rename" not in names
