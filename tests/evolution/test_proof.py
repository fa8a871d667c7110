"""What lint says about migrations: for each code a pair of versions that gives it and nothing else, and the mend that gives nothing."""

import pytest
import yaml

from neuralqx_struct.evolution.compatibility import skew_between
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.tools.linting import lint
from tests.builders import DIAGNOSTICS, ROOT

SUITE = ROOT / "tests" / "suite" / "migrations"
CODES = sorted(path.name for path in SUITE.iterdir())
#: Told when a function runs, or about golden payloads, hooks, or thousands of fields: not by reading two short versions.
AT_RUN_TIME = {"NQX311", "NQX312", "NQX313", "NQX314", "NQX315", "NQX321"}


@pytest.fixture
def folder(request, tmp_path):
    """The two versions of a case, beside the schemas that they use."""
    code, which = request.param
    for name in ("net", "part"):
        (tmp_path / name).mkdir()
    for file in (SUITE / code).glob("*.yaml"):
        place = {"v1": "net/v1.yaml", which: "net/v2.yaml"}.get(
            file.stem, f"{file.stem.replace('-', '/')}.yaml"
        )
        if "/" in place:
            (tmp_path / place).write_text(file.read_text())
    return tmp_path / "net"


@pytest.mark.parametrize("folder", [(code, "wrong") for code in CODES], indirect=True, ids=CODES)
def test_a_wrong_migration_gives_its_code_at_its_place(folder, request):
    code = request.node.callspec.id
    expected = yaml.safe_load((SUITE / code / "expected.yaml").read_text())
    # Steps that stop at some payloads are no mistake.
    found = [d for d in lint(folder) if d.code == code or d.severity == "error"]
    assert {d.code for d in found} == {code}, "\n".join(map(str, found))
    first = found[0]
    assert (first.file, f"{first.line}:{first.column}") == (
        str(folder / "v2.yaml"),
        expected["place"],
    )
    assert (first.severity, first.message.split("\n")[0]) == (
        expected["severity"],
        expected["says"],
    )
    assert first.remedy


@pytest.mark.parametrize("folder", [(code, "right") for code in CODES], indirect=True, ids=CODES)
def test_its_mend_gives_nothing(folder):
    # A cast to a wider dtype stops some downgrades, which is no mistake.
    assert [d for d in lint(folder) if d.severity != "info" and d.code != "NQX320"] == []


def test_every_code_of_migrations_has_a_pair():
    codes = {code for code in DIAGNOSTICS if code.startswith("NQX3")}
    assert codes == set(CODES) | AT_RUN_TIME


PART = 'language: "1"\nschema: lab.part\nversion: {0}\nroot: Part\nstructs: {{Part: {{fields: {{x: int}}}}}}\n'
MIDDLE = 'language: "1"\nschema: lab.middle\nversion: 1\nroot: M\nuses: [lab.part@2]\nstructs: {M: {fields: {p: lab.part.Part}}}\n'
TOP = 'language: "1"\nschema: lab.top\nversion: {0}\nroot: T\nuses: [lab.middle@1, lab.part@{1}]\nstructs: {{T: {{fields: {{m: lab.middle.M, p: lab.part.Part}}}}}}\n'


def write(folder, **files):
    for name, text in files.items():
        path = folder / f"{name.replace('_', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def test_one_document_holds_one_version_of_a_schema(tmp_path):
    write(tmp_path, part_v1=PART.format(1), part_v2=PART.format(2), middle_v1=MIDDLE)
    write(tmp_path, top_v1=TOP.format(1, 2), top_v2=TOP.format(2, 1))
    (found,) = lint(tmp_path / "top")
    assert (found.code, found.line) == ("NQX316", 5)
    assert "lab.part" in found.message
    assert "lab.part@2" in found.hint
    write(tmp_path, top_v2=TOP.format(2, 2))
    assert lint(tmp_path / "top") == []


def test_a_used_schema_may_skip_versions_where_its_files_lead_on(tmp_path):
    use = 'language: "1"\nschema: lab.top\nversion: {0}\nroot: T\nuses: [lab.part@{0}]\nstructs: {{T: {{fields: {{p: lab.part.Part}}}}}}\n'
    write(
        tmp_path,
        **{f"part_v{v}": PART.format(v) for v in (1, 2, 3)},
        top_v1=use.format(1),
        top_v3=use.format(3),
    )
    series = load_series(tmp_path / "top")
    old, new = series.at(1), series.at(3)
    assert [
        *skew_between(old, new, lambda identity, version: None)
    ] == []  # nothing changed in between
    gap = PART.format(3).replace("x: int", "y: str") + "migrations: [{from: 2, steps: []}]\n"
    write(tmp_path, part_v3=gap)
    series = load_series(tmp_path / "top")
    (found,) = skew_between(series.at(1), series.at(3), lambda identity, version: None)
    assert found.code == "NQX316"
    assert "version 1 to 3" in found.message
