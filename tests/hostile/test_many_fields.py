"""Declarations and payloads with thousands of fields: suggestions, steps and messages whose work could grow by the square."""

import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.errors import MigrationError
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import bounded, doc, payload, refused

FEW, SOME, MANY = 600, 1000, 5000


def fields(prefix, count, declared="int"):
    return {f"{prefix}{i}": declared for i in range(count)}


def renames(count, source="a", **options):
    return [steps.rename(field=f"{source}{i}", to=f"b{i}", **options) for i in range(count)]


@pytest.mark.parametrize("count", [SOME, MANY])
def test_versions_that_share_no_field(count):
    series = series_of([doc(fields("a", count)), doc(fields("b", count), 2)])
    with bounded(25):
        found = lint_series(series)
        verdicts = verdict(series.at(1), series, mode="full")
        changes = s.diff(*series.documents.values())
    assert any(each.severity == "error" for each in found)
    assert verdicts
    assert len(changes) >= 2 * count
    if count == SOME:  # the first have suggestions, the others only a question, and then nothing
        hints = [each.hint for each in found if each.code == "NQX301"]
        question = "a0 is gone and b0 is new, of type int: was it renamed?"
        assert hints[0].startswith(
            f"{question} yes: `- rename: {{field: a0, to: b0}}`; no, lossy: "
        )
        assert hints[count] == f"{question} see structs.A.fields.a0"
        assert hints[-1] is None


@pytest.mark.parametrize("declared", [True, False])
def test_too_many_steps_for_the_fields_of_a_struct(declared, tmp_path):
    migration = renames(MANY) if declared else None
    old, new = doc(fields("a", MANY)), doc(fields("b", MANY), 2, migration)
    series = series_of([old, new])
    path = bundle.write(tmp_path / "b", payload(old, dict.fromkeys(fields("a", MANY), 1)))
    with bounded():
        assert "NQX321" in {each.code for each in lint_series(series)}
        assert {each.code for each in verdict(series.at(1), series)} == {"NQX321"}
        with refused(MigrationError, "NQX321", "$.migrations", "3200") as caught:
            s.migrate(path, tmp_path / "c", schema=series)
    assert caught.value.diagnostics[0].code == "NQX321"


def test_steps_of_thousands_of_fields():
    old, new = doc(fields("a", FEW)), doc(fields("b", FEW), 2, renames(FEW))
    series = series_of([old, new])
    held = payload(old, {f"a{i}": i for i in range(FEW)})
    with bounded(10):
        assert not [each for each in lint_series(series) if each.severity == "error"]
        made = apply(held, plan(series, 1, 2))
    assert made.document["manifest"]["fields"] == {f"b{i}": i for i in range(FEW)}


def test_too_many_steps_for_the_nodes_of_a_payload():
    old = doc({"a": "pytree"})
    chain = [steps.rename(field="ab"[i % 2], to="ba"[i % 2]) for i in range(1000)]
    series = series_of([old, doc({"a": "pytree"}, 2, chain)])
    held = payload(old, {"a": [0] * 100_000})
    with bounded(), refused(MigrationError, "NQX321", "999") as caught:
        apply(held, plan(series, 1, 2))
    assert caught.value.diagnostics[0].code == "NQX321"


def test_wrong_steps_list_some_of_the_fields():
    wrong = renames(FEW, source="c")
    series = series_of([doc(fields("a", FEW)), doc(fields("b", FEW), 2, wrong)])
    with bounded(10):
        found = [each for each in lint_series(series) if each.code == "NQX304"]
    assert len(found) == FEW
    assert f"a18, a19 and {FEW - 20} more" in found[0].message


def test_messages_are_cut():
    found = s.Diagnostic("NQX000", "error", "x" * 30_000, hint="y" * 30_000)
    assert found.message == f"{'x' * 20_000} ... (30000 characters)"
    assert found.hint.endswith("y ... (30000 characters)")
