"""Reading documents: the place and the advice of every structural mistake, and that the published schema agrees."""

import json

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.language import language_schema
from neuralqx_struct.schema.reading import document_from_data, parse_document
from neuralqx_struct.schema.text.loader import read_file, read_text
from tests.builders import every, refused

GOOD = """\
language: "1"
schema: lab.point
version: 1
root: Point
dims: {n: {min: 1}, m: {equals: 2 * n}}
enums:
  Mode: [slow, fast]
  Kind: {members: [a, b], default: a}
structs:
  Point:
    fields:
      x: float32[n]
      y: {type: array, dtype: float32, shape: [n, 2], tags: [trainable]}
      z: {type: array, dtype: int8}
      k: {type: prng_key, impl: rbg, shape: [n]}
      mode: {type: Mode, kind: static, default: slow}
      size: {type: int, kind: static, derived: size(x)}
      handle: {kind: opaque, default: null}
    constraints:
      - {expr: size(x) > 0, message: empty}
"""


def wrong(old, new):
    assert old in GOOD
    return GOOD.replace(old, new, 1)


# What is written, and the code, line and column that it must give.
WRONG = {
    "typo in a key": (wrong("root: Point", "rooot: Point"), {("NQX009", 4, 1), ("NQX010", 1, 1)}),
    "typo in a field's member": (wrong("tags: [", "tgas: ["), {("NQX009", 13, 55)}),
    "unquoted language": (wrong('"1"', "1"), {("NQX012", 1, 11)}),
    "another language": (wrong('"1"', '"2"'), {("NQX008", 1, 11)}),
    "quoted version": (wrong("version: 1", 'version: "1"'), {("NQX008", 3, 10)}),
    "version zero": (wrong("version: 1", "version: 0"), {("NQX008", 3, 10)}),
    "bad kind": (wrong("kind: opaque", "kind: opake"), {("NQX010", 18, 22)}),
    "bad name of a field": (
        wrong("      x: float32[n]", "      x-y: float32[n]"),
        {("NQX118", 12, 7)},
    ),
    "bad identity": (wrong("lab.point", "lab point"), {("NQX118", 2, 9)}),
    "malformed type": (wrong("float32[n]", "float32[n"), {("NQX101", 12, 10)}),
    "array without dtype": (wrong("dtype: int8", "doc: x"), {("NQX102", 14, 17)}),
    "dtype beside a scalar": (
        wrong("{type: Mode,", "{type: int, dtype: int8,"),
        {("NQX101", 16, 20)},
    ),
    "shape beside a scalar": (
        wrong("{type: Mode,", "{type: int, shape: [1],"),
        {("NQX101", 16, 20)},
    ),
    "impl beside a scalar": (wrong("{type: Mode,", "{type: int, impl: rbg,"), {("NQX126", 16, 20)}),
    "no type": (
        wrong("{type: Mode, kind: static, default: slow}", "{doc: x}"),
        {("NQX101", 16, 13)},
    ),
    "malformed expression": (wrong("size(x) > 0", "size(x >"), {("NQX114", 20, 16)}),
    "malformed derivation": (wrong("derived: size(x)", "derived: sise(x)"), {("NQX116", 17, 48)}),
    "malformed equation": (wrong("2 * n", "2 *"), {("NQX114", 5, 33)}),
    "no structs": (wrong("structs:", "structures:"), {("NQX009", 9, 1), ("NQX010", 1, 1)}),
    "a list for a mapping": ("- 1\n", {("NQX010", 1, 1)}),
}


@every("case", WRONG)
def test_positions_of_mistakes(case):
    text, expected = WRONG[case]
    with pytest.raises(SchemaError) as caught:
        parse_document(read_text(text, "f.yaml"))
    assert {(d.code, d.line, d.column) for d in caught.value.diagnostics} == expected
    assert all(d.file == "f.yaml" for d in caught.value.diagnostics)


FIELD = "      handle: {kind: opaque, default: null}\n"
PLAIN_WORDS = {
    "no structs": (GOOD.partition("structs:")[0] + "structs: {}\n", "none"),
    "no members": (wrong("[slow, fast]", "[]"), "none"),
    "a list at the top": ("[]\n", "list"),
    "nothing at the top": ("null\n", "nothing"),
    "a field of nothing": (wrong(FIELD, "      h: null\n"), "nothing"),
    "a field of a number": (wrong(FIELD, "      h: 5\n"), "5"),
    "a struct of nothing": (wrong("structs:\n", "structs:\n  A: null\n"), "nothing"),
    "a bound of text": (wrong("{kind: opaque,", "{type: float, ge: abc,"), "'abc'"),
    "a bound of a list": (wrong("{kind: opaque,", "{type: float, ge: [1],"), "list"),
    "a length below zero": (wrong("{kind: opaque,", "{min_length: -1,"), "-1"),
    "a shape of lists": (wrong("[n, 2]", "[[n], 2]"), "list"),
    "a shape of a number": (wrong("[n, 2]", "2"), "2"),
    "a boolean": (wrong("{kind: opaque,", "{kind: opaque, reset: 3,"), "3"),
}


@every("case", PLAIN_WORDS)
def test_a_wrong_sort_of_value_is_one_problem_in_plain_words(case):
    text, got = PLAIN_WORDS[case]
    with refused(SchemaError, "NQX010", got) as caught:
        parse_document(read_text(text))
    assert len(caught.value.diagnostics) == 1


def test_all_mistakes_at_once_and_in_order():
    text = wrong("compat" if "compat" in GOOD else "root: Point", "root: Point\ncolour: 1").replace(
        "float32[n]", "float32[n", 1
    )
    with pytest.raises(SchemaError) as caught:
        parse_document(read_text(text))
    assert [d.code for d in caught.value.diagnostics] == ["NQX009", "NQX101"]


@pytest.mark.parametrize(
    ("typo", "hint"),
    [
        ("tgas: [", "did you mean 'tags'?"),
        ("colour: [", "known members: aliases"),
        (
            "doc: sites, along x, tags: [",
            "inside {...} a comma ends a value: put text that holds one in quotes\n",
        ),
    ],
)
def test_suggestions(typo, hint):
    with pytest.raises(SchemaError) as caught:
        parse_document(read_text(wrong("tags: [", typo)))
    assert caught.value.diagnostics[0].hint.startswith(hint)


IN_PLACE = {
    "a shape of a name": (wrong("[n, 2]", "n"), "[n]"),
    "a shape of a number": (wrong("[n, 2]", "2"), "[2]"),
    "one tag": (wrong("[trainable]", "trainable"), "[trainable]"),
    "a dim of a number": (wrong("{min: 1}", "3"), "{equals: 3}"),
    "a dim of an equation": (wrong("{equals: 2 * n}", "2 * n"), "{equals: 2 * n}"),
    "a dim that names itself": (wrong("{min: 1}", "{n: 3}"), "{equals: 3}"),
    "a constraint of text": (wrong("{expr: size(x) > 0, message: empty}", "size(x) > 0"), '{expr: "size(x) > 0"}'),
    "a type in braces": (wrong("{type: Mode,", "{type: float32[n],"), '"float32[n, 3]"'),
}  # fmt: skip


@every("case", IN_PLACE)
def test_a_value_of_the_wrong_sort_is_answered_with_what_to_write(case):
    text, written = IN_PLACE[case]
    with pytest.raises(SchemaError) as caught:
        parse_document(read_text(text))
    assert [written in d.hint for d in caught.value.diagnostics] == [True]


MIGRATION = (
    GOOD.replace("version: 1", "version: 2")
    + "migrations:\n  - from: 1\n    steps:\n      - {step}\n"
)
STEPS = {
    "unknown step": ("renme: {field: a, to: b}", "NQX009"),
    "missing argument": ("rename: {field: a}", "NQX010"),
    "two steps": ("{rename: {field: a, to: b}, fill: {field: a, value: 1}}", "NQX010"),
    "unknown argument": ("rename: {field: a, too: b}", "NQX009"),
    "bad name": ("rename: {field: a b, to: c}", "NQX118"),
}


@pytest.mark.parametrize("case", STEPS)
def test_steps_that_are_not(case):
    step, code = STEPS[case]
    with pytest.raises(SchemaError) as caught:
        parse_document(read_text(MIGRATION.replace("{step}", step)))
    assert code in {d.code for d in caught.value.diagnostics}


def test_the_published_schema_agrees(root, vmc_folder):
    for validator in (Draft202012Validator, Draft7Validator):
        validator.check_schema(language_schema())
        check = validator(language_schema())
        for path in sorted(vmc_folder.glob("*.yaml")):
            check.validate(read_file(path).data)
        check.validate(read_text(GOOD).data)
        for case in (
            "typo in a key",
            "typo in a field's member",
            "unquoted language",
            "bad kind",
            "no structs",
            "a list for a mapping",
        ):
            assert not check.is_valid(read_text(WRONG[case][0]).data), case


def test_long_and_short_forms_and_plain_values():
    document = parse_document(read_text(GOOD))
    assert document_from_data(document.to_data(), "x") == document
    assert document_from_data(json.loads(json.dumps(document.to_data())), "x") == document
    assert parse_document(read_text(json.dumps(document.to_data()), format="json")) == document


@pytest.mark.parametrize(
    ("member", "hint"),
    [
        ("optional: true", "`T | null`"),
        ("static: true", "`kind: static`"),
        ("description: x", "`doc:`"),
        ("minimum: 1", "`ge:`"),
    ],
)
def test_members_of_other_languages_are_answered_with_ours(member, hint):
    head = 'language: "1"\nschema: a\nversion: 1\nroot: A\nstructs:\n'
    with pytest.raises(SchemaError) as caught:
        parse_document(read_text(f"{head}  A: {{fields: {{x: {{type: int, {member}}}}}}}\n"))
    assert hint in caught.value.diagnostics[0].hint
    with pytest.raises(SchemaError) as caught:
        parse_document(read_text(f"{head}  A:\n    steps: int\n    mode: str\n"))
    assert "fields are one level deeper, under `fields:`" in {
        d.hint for d in caught.value.diagnostics
    }


@every(
    ("members", "line", "meant"),
    [
        ("rooot: A\nstructs: {A: {fields: {x: int}}}", 4, "root"),
        ("root: A\ndims: {n: {mni: 1}}\nstructs: {A: {fields: {x: int}}}", 5, "min"),
        ("root: A\nenums: {E: {membres: [a]}}\nstructs: {A: {fields: {x: int}}}", 5, "members"),
        ("root: A\nstructs: {A: {feilds: {x: int}}}", 5, "fields"),
        ("root: A\nstructs: {A: {fields: {x: {type: int, tagz: [a]}}}}", 5, "tags"),
        ("root: A\nstructs: {A: {fields: {x: int}, constraints: [{exp: x > 1}]}}", 5, "expr"),
        (
            "root: A\nmigrations: [{form: 0, steps: []}]\nstructs: {A: {fields: {x: int}}}",
            5,
            "from",
        ),
        (
            "root: A\nmigrations: [{from: 0, steps: [{renam: {}}]}]\nstructs: {A: {fields: {x: int}}}",
            5,
            "rename",
        ),
        (
            "root: A\nmigrations: [{from: 0, steps: [{rename: {feild: x}}]}]\nstructs: {A: {fields: {x: int}}}",
            5,
            "field",
        ),
    ],
)
def test_misspelt_members_are_recognised_at_every_level(members, line, meant):
    with pytest.raises(SchemaError) as caught:
        parse_document(read_text(f'language: "1"\nschema: lab.a\nversion: 1\n{members}\n'))
    found = [d for d in caught.value.diagnostics if d.code == "NQX009"]
    assert [(d.line, d.hint) for d in found] == [(line, f"did you mean {meant!r}?")]
