"""Patterns that the engine refuses: an error of lint in files, a warning for documents in bundles, which load all the same."""

import json

import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.tools.linting import lint
from tests.builders import refused

REFUSED = [r"[a-z]+\Z", "a{,2}", "(?=a)a", r"(a)\1", "a{2", "[", "(a{1000}){1000}"]
FIELD = {"kind": "static", "type": "str"}


def data(pattern):
    fields = {"x": {**FIELD, "pattern": pattern}, "y": {**FIELD, "pattern": "[a-z]*"}}
    return {
        "language": "1",
        "schema": "test.old_pattern",
        "version": 1,
        "root": "R",
        "structs": {"R": {"fields": fields}},
    }


@pytest.fixture
def old(tmp_path):
    """A bundle whose document got a pattern that the engine refuses."""

    def make(pattern):
        schema = s.load_schema(json.dumps(data("[a-z]*"), indent=1))
        path = schema.R(x="ab", y="cd").export(tmp_path / "old")
        manifest = json.loads((path / "manifest.json").read_text())
        (document,) = manifest["schemas"]
        document["structs"]["R"]["fields"]["x"]["pattern"] = pattern
        # As another program wrote it: this process knows no class of the document.
        manifest = json.loads(json.dumps(manifest).replace("old_pattern", f"old{len(pattern)}"))
        written = document_from_data(manifest["schemas"][0], "old")
        manifest["schema"]["fingerprint"] = payload_fingerprint(written)
        (path / "manifest.json").write_text(json.dumps(manifest))
        bundle.seal(path)
        return path

    return make


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_bundle_with_a_refused_pattern_loads(old, pattern):
    path = old(pattern)
    found = s.validate(path)
    assert [(d.severity, d.path) for d in found] == [
        ("warning", "$.schemas.structs.R.fields.x.pattern")
    ]
    for _ in range(2):  # the classes of the second time are known
        receipt = []
        loaded = s.load(path, report=receipt)
        assert (loaded.x, loaded.y) == ("ab", "cd")
        assert [(d.code, d.severity, d.path) for d in receipt] == [
            (found[0].code, "warning", found[0].path)
        ]
    assert loaded.replace(x="AB").x == "AB"
    with refused(s.ValidationError, "NQX416", "$.y", "CD"):
        loaded.replace(y="CD")


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_file_with_a_refused_pattern_is_an_error(tmp_path, pattern):
    file = tmp_path / "v1.json"
    file.write_text(json.dumps(data(pattern)))
    (found,) = [d for d in lint(file) if d.severity == "error"]
    assert found.code == ("NQX117" if "1000" in pattern else "NQX114")
    assert found.path == "$.structs.R.fields.x.pattern"
    with pytest.raises(s.SchemaError):
        s.load_schema(file)
