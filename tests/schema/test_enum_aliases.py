"""Aliases of members of enums: loads of payloads with former names, lint, differences and verdicts."""

import json

import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema.lock import full_fingerprint, payload_fingerprint
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import refused

FIELDS = {
    "x": {"type": "E", "kind": "static"},
    "y": {"type": "tuple[E | null, ...]", "kind": "static"},
}


def document(enum, version=1, **members):
    data = {"language": "1", "schema": "tests.members", "version": version, "root": "A"}
    return {**data, "enums": {"E": enum}, "structs": {"A": {"fields": FIELDS}}, **members}


def read(enum, version=1, **members):
    return document_from_data(document(enum, version, **members), "<test>")


def schema(enum, version, tmp_path, **members):
    folder = tmp_path / "members"
    folder.mkdir(exist_ok=True)
    text = json.dumps(document(enum, version, **members))
    (folder / f"v{version}.json").write_text(text)
    return s.load_schema(folder)


OLD = ["normal", "uniform"]
NEW = {"members": ["gaussian", "uniform"], "aliases": {"gaussian": ["normal"]}}


def test_former_names_are_read_without_a_step(tmp_path):
    old = schema(OLD, 1, tmp_path)
    path = old.A(x="normal", y=("uniform", None, "normal")).export(tmp_path / "old")
    new = schema(NEW, 2, tmp_path)
    loaded = new.load(path)
    assert (loaded.x, loaded.y) == ("gaussian", ("uniform", None, "gaussian"))
    assert s.validate(path, schema=tmp_path / "members") == []
    s.migrate(path, tmp_path / "new", schema=tmp_path / "members")
    assert new.load(tmp_path / "new") == loaded
    assert s.load_schema(s.dump_schema(new)).document.enums["E"].aliases == {"gaussian": ["normal"]}


def test_two_former_names_may_become_one_member(tmp_path):
    old = schema(["a", "b", "c"], 1, tmp_path)
    path = old.A(x="a", y=("b", "c")).export(tmp_path / "old")
    new = schema({"members": ["d", "c"], "aliases": {"d": ["a"], "c": ["b"]}}, 2, tmp_path)
    loaded = new.load(path)
    assert (loaded.x, loaded.y) == ("d", ("c", "c"))


def test_declared_steps_take_precedence(tmp_path):
    steps = [{"map_enum": {"enum": "E", "values": {"normal": "uniform"}, "lossy": True}}]
    old = schema(OLD, 1, tmp_path)
    path = old.A(x="normal", y=()).export(tmp_path / "old")
    new = schema(NEW, 2, tmp_path, migrations=[{"from": 1, "steps": steps}])
    assert new.load(path).x == "uniform"


def test_a_former_name_is_no_member_of_new_values(tmp_path):
    new = schema(NEW, 1, tmp_path)
    with refused(s.ValidationError, "NQX421", "$.x", "gaussian, uniform", "'normal'"):
        new.A(x="normal", y=())


@pytest.mark.parametrize(
    "members",
    [
        {"type": "E", "default": "normal"},
        {"type": "E | null", "default": "normal"},
        {"type": "list[E]", "default": ["normal"]},
        {"type": "E", "choices": ["normal"]},
        {"type": "E", "examples": ["normal"]},
    ],
)
def test_a_former_name_in_a_file_leads_to_the_member(members):
    found = lint_series(series_of([read(NEW, structs={"A": {"fields": {"x": members}}})]))
    assert [each.hint for each in found if each.code == "NQX107"] == [
        "normal is called gaussian now"
    ]


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("x != 'normal'", "normal is called gaussian now"),
        ("x in ('uniform', 'normal')", "normal is called gaussian now"),
        ("'normal' != x", "normal is called gaussian now"),
        ("x == 'unifrm'", "did you mean 'uniform'?"),
        ("b.x != 'normal'", "normal is called gaussian now"),
    ],
)
def test_a_former_name_in_an_expression_leads_to_the_member(expression, hint):
    inner = {"fields": {"x": FIELDS["x"]}}
    root = {"fields": {**inner["fields"], "b": "B"}, "constraints": [{"expr": expression}]}
    (found,) = lint_series(series_of([read(NEW, structs={"A": root, "B": inner})]))
    assert (found.code, found.hint) == ("NQX115", hint)


@pytest.mark.parametrize(
    ("aliases", "code", "message"),
    [
        ({"gaussian": ["uniform"]}, "NQX124", "'uniform'"),
        ({"gaussian": ["a"], "uniform": ["a"]}, "NQX123", "'a'"),
        ({"gaussian": ["a", "a"]}, "NQX123", "'a'"),
        ({"gausian": ["a"]}, "NQX124", "expected aliases of a member of"),
    ],
)
def test_wrong_aliases_have_a_finding(aliases, code, message):
    found = lint_series(series_of([read({"members": NEW["members"], "aliases": aliases})]))
    assert [(each.code, message in each.message) for each in found] == [(code, True)]


@pytest.mark.parametrize("default", [None, "uniform"])
def test_changes_and_verdicts(default):
    extra = {} if default is None else {"default": default}
    a, b = read({"members": OLD, **extra}), read({**NEW, **extra}, 2)
    (change,) = diff_documents(a, b)
    assert change.code == "NQX251"
    assert "normal" in change.message and "gaussian" in change.message
    assert change.direction == ("none" if default else "forward")
    assert prove(a, b) == []
    assert verdict(a, b, "backward", steps=False) == []
    back = [each.severity for each in verdict(a, b, "forward", steps=False)]
    assert back == (["warning"] if default else ["error"])


def test_aliases_that_come_and_go_are_changes():
    a, b = read({**NEW}), read(NEW["members"], 2)
    assert [change.code for change in diff_documents(a, b)] == ["NQX207"]
    assert [change.code for change in diff_documents(b, a)][-1] == "NQX234"
    assert payload_fingerprint(a) == payload_fingerprint(read(NEW["members"]))
    assert full_fingerprint(a) != full_fingerprint(read(NEW["members"]))
