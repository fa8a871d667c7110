"""A toy step and a toy compatibility mode: one record each, and every operation works with them."""

import json

import pytest
from pydantic.fields import FieldInfo

import neuralqx_struct as s
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps.operations import StepKind, builder
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.schema.language import language_schema
from neuralqx_struct.schema.migration import MODES, Migration, Mode, Name, Step, StepItem
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.types import ListOf
from tests.builders import invoke, payload, refused, value

# ---------------------------------------------------------------------------------------------------------------------
# The toy step: a value becomes a list of one value.


class Enlist(Step):
    """A value becomes a list of one value, or with ``out`` the other way round."""

    field: Name
    out: bool = False


def declare(step, scope):
    return scope.with_type(step.field, lambda have: have.item if step.out else ListOf(have))


def rewrite(step, place):
    node = place.field(step.field)
    if step.out and len(node["items"]) != 1:
        raise place.error("NQX411", "expected a list of one value", step.field)
    made = node["items"][0] if step.out else {"__kind__": "list", "items": [node]}
    return place.with_fields({step.field: made})


def propose(gap):
    if gap.want == ListOf(gap.have):
        yield enlist(field=gap.field, within=gap.within)


enlist = builder(Enlist)
ENLIST = StepKind(
    model=Enlist,
    declare=declare,
    rewrite=rewrite,
    inverse=lambda step, *_: [Enlist(field=step.field, out=not step.out)],
    cost="manifest",
    suggest=propose,
)


def rebuild():
    for model in (StepItem, Migration, Document):
        model.model_rebuild(force=True)


@pytest.fixture
def toy(monkeypatch):
    """The step in the table, and a member of entries under ``steps:``."""
    monkeypatch.setitem(steps.STEPS, "enlist", ENLIST)
    monkeypatch.setitem(
        StepItem.__pydantic_fields__,
        "enlist",
        FieldInfo.from_annotated_attribute(Enlist | None, None),
    )
    rebuild()
    yield
    monkeypatch.undo()
    rebuild()


V1 = """\
# yaml-language-server: $schema=../struct-schema/1.json
language: "1"
schema: lab.toy
version: 1
root: Net
doc: A toy.
structs:
  Net:
    doc: One value.
    fields:
      rate: {type: float, doc: A rate.}
"""
V2 = V1.replace("version: 1", "version: 2").replace("type: float", 'type: "list[float]"') + (
    "migrations:\n  - from: 1\n    steps:\n      - enlist: {field: rate}\n"
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schemas" / "toy").mkdir(parents=True)
    for version, text in ((1, V1), (2, V2)):
        (tmp_path / "schemas" / "toy" / f"v{version}.yaml").write_text(text)
    return tmp_path / "schemas" / "toy"


def run(*words):
    return invoke(*words)


def test_without_its_record_the_step_is_unknown(folder):
    with refused(s.SchemaError, "NQX009", "enlist"):
        load_series(folder)


def test_the_step_is_read_linted_and_proven(toy, folder):
    series = load_series(folder)
    assert prove(series.at(1), series.at(2)) == []
    assert [
        d for d in s.load_schema(folder).document.migrations[0].steps if d.name != "enlist"
    ] == []
    done = run("schema", "lint", folder)
    assert done.exit_code == 0, done.output
    assert "- enlist: {field: rate}" in s.dump_schema(series.head)
    assert str(plan(series, 1, 2)).endswith("upgrade 1 -> 2 (manifest)\n  - enlist: {field: rate}")


def test_a_wrong_argument_is_named(toy, folder):
    with refused(TypeError, "steps.enlist()", "field=", "3"):
        enlist(field=3)
    (folder / "v2.yaml").write_text(V2.replace("field: rate", "field: rates"))
    assert "NQX304" in run("schema", "lint", folder).output


def test_payloads_go_up_and_down(toy, folder):
    series = load_series(folder)
    old = payload(series.at(1), {"rate": 0.5})
    new = apply(old, plan(series, 1, 2))
    assert value(new.document["manifest"], new.arrays) == {"rate": [0.5]}
    back = apply(new, plan(series, 2, 1))
    assert value(back.document["manifest"], back.arrays) == {"rate": 0.5}


def test_bundles_are_migrated_and_loaded(toy, folder, tmp_path):
    schema = s.load_schema(folder)
    schema.at(1).Net(rate=0.5).export(tmp_path / "old")
    assert schema.load(tmp_path / "old").rate == [0.5]
    s.migrate(tmp_path / "old", tmp_path / "new", schema=folder)
    assert s.validate(tmp_path / "new", schema=folder) == []
    assert schema.load(tmp_path / "new").rate == [0.5]
    s.migrate(tmp_path / "new", tmp_path / "again", schema=folder, to=1)
    assert json.loads((tmp_path / "again" / "manifest.json").read_text())["manifest"]["fields"] == {
        "rate": 0.5
    }


def test_it_is_suggested_and_a_revision_writes_it(toy, folder, tmp_path):
    series = load_series(folder)
    (found,) = suggest(series.at(1), series.at(2))
    assert found.steps == (enlist(field="rate"),)
    edited = tmp_path / "edited.yaml"
    edited.write_text(V2[: V2.index("migrations:")])
    (folder / "v2.yaml").unlink()
    assert s.revise(folder, edited=edited).steps == ("- enlist: {field: rate}",)


def test_a_declared_step_explains_a_change(toy, folder):
    series = load_series(folder)
    (change,) = diff_documents(series.at(1), series.at(2))
    assert (change.code, change.severity) == ("NQX210", "info")
    assert verdict(series.at(1), series, "backward") == []


def test_the_schema_of_files_has_it(toy):
    entry = language_schema()["$defs"]["StepItem"]["properties"]
    assert entry["enlist"] == {"$ref": "#/$defs/Enlist"}


def test_the_table_is_as_before(folder):
    test_without_its_record_the_step_is_unknown(folder)
    assert "Enlist" not in language_schema()["$defs"]


# ---------------------------------------------------------------------------------------------------------------------
# The toy mode: both directions, without earlier versions, and stricter than all others.


@pytest.fixture
def toy_mode(monkeypatch):
    mode = Mode("mutual", ("backward", "forward"), transitive=False, strictness=9)
    monkeypatch.setitem(MODES, mode.name, mode)
    rebuild()
    yield mode
    monkeypatch.undo()
    rebuild()


def test_a_mode_is_one_record(toy_mode, folder, tmp_path):
    new = V1.replace("version: 1", "version: 2").replace("root:", "compatibility: mutual\nroot:")
    (folder / "v2.yaml").write_text(f"{new}      bias: float\n")
    series = load_series(folder)
    assert series.head.compatibility == "mutual"
    found = verdict(series.at(1), series)
    assert {d.message.rpartition("\n")[2].partition(":")[0] for d in found} == {
        "backward",
        "forward",
    }
    assert found == verdict(series.at(1), series, "full") == verdict(series.at(1), series, "mutual")
    assert "NQX292" in {c.code for c in diff_documents(series.at(2), series.at(1))}
    assert "mutual" in language_schema()["properties"]["compatibility"]["enum"]
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "v1.yaml").write_text(V1)
    done = run("breaking", folder, "--against", earlier, "--mode", "mutual")
    assert done.exit_code == 1 and "NQX" in done.output


def test_an_unknown_mode_lists_the_known_ones(folder):
    (folder / "v2.yaml").unlink()
    series = load_series(folder)
    with refused(s.SchemaError, "NQX010", "full-transitive", "'mutual'"):
        verdict(series, series, "mutual")
