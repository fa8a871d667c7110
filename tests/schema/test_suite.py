"""The suite of schema files: each invalid one gives what it says, its mend gives nothing, and the documentation shows both.

An invalid file says in its first lines what it must give: ``expect: NQX104 6:21``, the code with line and column. The
file of the same name in ``valid/`` is its mend. The published JSON Schemas agree as far as structure goes.
"""

import json
import re

import jsonschema
import pytest
import yaml

from neuralqx_struct.dtypes import DTYPES, FAMILIES
from neuralqx_struct.errors import has_errors
from neuralqx_struct.schema.language import language_schema, language_schema_twin
from neuralqx_struct.tools.linting import lint
from tests.builders import DIAGNOSTICS, ROOT, every, yaml_blocks
from tests.preloaded import check_jsonschema

SUITE = ROOT / "tests" / "suite" / "schema"
INVALID = sorted((SUITE / "invalid").iterdir())
VALID = sorted((SUITE / "valid").iterdir())
SCHEMAS = {"1.json": language_schema, "1.draft-07.json": language_schema_twin}

#: No file gives these: what fails inside the program, what nothing reports, what only a Python class can give.
WITHOUT_FILES = {"NQX000", "NQX016", "NQX134"}

#: What JSON Schema can see. The others are about text that is no YAML, or about what names and expressions mean.
STRUCTURAL = {"NQX008", "NQX009", "NQX010", "NQX012"}

SECTIONS = {code: yaml_blocks(page) for code, page in DIAGNOSTICS.items() if code < "NQX200"}


def names(paths):
    return [path.name for path in paths]


@every("path", INVALID)
def test_an_invalid_file_gives_what_it_says(path):
    expected = re.search(
        r"expect: (NQX\d{3}) (\d+):(\d+)", "".join(path.read_text().splitlines()[:2])
    )
    assert expected[1] == path.stem[:6]
    found = lint(path)
    assert (found[0].code, str(found[0].line), str(found[0].column)) == expected.groups()
    assert {d.code for d in found} == {expected[1]}
    assert found[0].message.startswith("expected ")
    assert found[0].file == str(path)


@every("path", VALID)
def test_its_mend_gives_nothing(path):
    assert lint(path) == []


def test_every_code_of_files_and_versions_has_both():
    codes = SECTIONS.keys() - WITHOUT_FILES
    assert {path.stem[:6] for path in INVALID} == {path.stem[:6] for path in VALID} == codes
    assert names(INVALID) == names(VALID)


HEADER = re.compile(
    r'(?:# expect: .*\n|language: "1"\n|schema: lab\.net\n|version: 1\n|root: Net\n)'
)


def body(path):
    """What the documentation shows of a file: all but the members that every file needs."""
    return HEADER.sub("", path.read_text(encoding="utf-8"))


@every("code", [code for code, blocks in SECTIONS.items() if blocks])
def test_the_documentation_shows_both(code):
    wrong, mend = SECTIONS[code]
    for kind, shown in {"invalid": wrong, "valid": mend}.items():
        assert HEADER.sub("", shown) == body(SUITE / kind / f"{code}.yaml")


def plain(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schemas_are_the_generated_ones_and_are_schemas(name):
    published = json.loads((ROOT / "schemas" / "struct-schema" / name).read_text(encoding="utf-8"))
    assert published == SCHEMAS[name]()
    jsonschema.validators.validator_for(published).check_schema(published)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schemas_take_the_valid_and_refuse_what_is_malformed(name):
    schema = SCHEMAS[name]()
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [path.name for path in VALID if not validator.is_valid(plain(path))] == []
    malformed = [path for path in INVALID if path.stem in STRUCTURAL]
    assert len(malformed) >= len(STRUCTURAL)
    assert [path.name for path in malformed if validator.is_valid(plain(path))] == []


GOOD = {
    "language": "1",
    "schema": "lab.x",
    "version": 1,
    "root": "A",
    "structs": {"A": {"fields": {"x": "int"}}},
}
MALFORMED = {
    "a name that is none": {"structs": {"A-B": {"fields": {}}}},
    "a field name that is none": {"structs": {"A": {"fields": {"1x": "int"}}}},
    "a field without name": {"structs": {"A": {"fields": {"": "int"}}}},
    "a field with a name of another alphabet": {"structs": {"A": {"fields": {"σ": "int"}}}},
    "a field that is a number": {"structs": {"A": {"fields": {"x": 3}}}},
    "an unknown member of a field": {
        "structs": {"A": {"fields": {"x": {"type": "int", "defualt": 1}}}}
    },
    "an unknown kind": {"structs": {"A": {"fields": {"x": {"type": "int", "kind": "statc"}}}}},
    "no structs": {"structs": {}},
    "an identity that is none": {"schema": "lab/x"},
    "a version of zero": {"version": 0},
    "a language to come": {"language": "2"},
    "a member of an enum that is no name": {"enums": {"E": {"members": ["a b"]}}},
    "an empty enum": {"enums": {"E": []}},
    "a use without version": {"uses": ["lab.y"]},
    "two steps in one": {
        "migrations": [
            {
                "from": 1,
                "steps": [{"fill": {"field": "a", "value": 1}, "unwrap_key": {"field": "a"}}],
            }
        ]
    },
    "an unknown step": {"migrations": [{"from": 1, "steps": [{"drop": {"field": "a"}}]}]},
    "a negative bound of a dim": {"dims": {"n": {"min": -1}}},
}


@every("name", SCHEMAS)
@every("case", MALFORMED)
def test_what_the_reader_refuses_the_published_schemas_refuse(case, name, tmp_path):
    schema = SCHEMAS[name]()
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert validator.is_valid(GOOD)
    wrong = {**GOOD, **MALFORMED[case]}
    assert not validator.is_valid(wrong)
    (tmp_path / "v1.json").write_text(json.dumps(wrong))
    assert any(d.severity == "error" for d in lint(tmp_path / "v1.json"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_editors_offer_is_sound(name, tmp_path):
    """Types that stand as examples are types, and no null is put where something has to be written."""
    definitions = next(
        SCHEMAS[name]()[key] for key in ("$defs", "definitions") if key in SCHEMAS[name]()
    )
    shorthand, long = definitions["FieldDeclaration"]["anyOf"]
    assert shorthand["examples"] == long["properties"]["type"]["examples"]
    fields = {
        f"f{number}": text for number, text in enumerate(shorthand["examples"]) if text != "array"
    }
    (tmp_path / "v1.json").write_text(json.dumps({**GOOD, "structs": {"A": {"fields": fields}}}))
    assert not has_errors(lint(tmp_path / "v1.json"))
    assert long["properties"]["dtype"]["examples"] == [*DTYPES, *FAMILIES]
    nulls = [
        member for member, value in long["properties"].items() if value.get("default", ...) is None
    ]
    assert nulls == ["default"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_check_jsonschema_agrees(name):
    schema = ROOT / "schemas" / "struct-schema" / name
    done = check_jsonschema("--schemafile", schema, *VALID)
    assert done.returncode == 0, done.stdout
    malformed = [path for path in INVALID if path.stem in STRUCTURAL]
    done = check_jsonschema("--schemafile", schema, *malformed)
    assert done.returncode == 1
    assert [path.name for path in malformed if path.name not in done.stdout] == []
