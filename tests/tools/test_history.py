"""Freezing versions, their history, and golden payloads that later releases must read."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest

import neuralqx_struct as s
from neuralqx_struct.checkpoint.golden import write_golden
from neuralqx_struct.errors import SchemaError, has_errors
from neuralqx_struct.schema import language
from neuralqx_struct.schema.language import new_schema
from neuralqx_struct.schema.lock import read_lock
from neuralqx_struct.schema.series import SchemaMissingError
from neuralqx_struct.tools import history as releases
from neuralqx_struct.tools.formatting import format_schema
from neuralqx_struct.tools.history import check_golden, freeze, golden_place, history
from neuralqx_struct.tools.linting import lint
from tests.builders import every, refused

V1 = """language: "1"
schema: lab.point
version: 1
root: Point
structs:
  Point:
    fields:
      x: "float64[n]"
      step: int
"""
V2 = (
    V1.replace("version: 1", "version: 2")
    .replace("step: int", "count: {type: int, default: 0}")
    .replace("float64", "int8")
    + "migrations:\n  - {from: 1, steps: [{rename: {field: step, to: count}}, {cast: {field: x, dtype: int8}}]}\n"
)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "point"
    place.mkdir()
    (place / "v1.yaml").write_text(V1)
    (place / "v2.yaml").write_text(V2)
    return place


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


# --- new -----------------------------------------------------------------------------------------------------------


@every(
    ("identity", "place", "root"),
    [
        ("lab.train_state", "train_state", "TrainState"),
        ("State", "State", "State"),
        ("a.b.runState2", "runState2", "RunState2"),
        ("lab.layer", "layer", "LayerState"),
        ("lab._", "_", "State"),
        ("lab.null", "null", "NullState"),
        ("lab.none", "none", "NoneState"),
        ("lab._1x", "_1x", "State1x"),
    ],
)
def test_a_new_schema_is_sound_and_can_be_used(tmp_path, identity, place, root):
    file = new_schema(identity, tmp_path / "schemas")
    assert file == tmp_path / "schemas" / place / "v1.yaml"
    assert lint(file.parent) == []
    assert format_schema(file.read_text()) == file.read_text()
    schema = s.load_schema(file)
    assert (schema.document.id, schema.document.root) == (identity, root)
    s.example(schema.root).export(tmp_path / "ckpt")
    assert s.validate(tmp_path / "ckpt", schema) == []


def test_the_line_for_editors_leads_to_a_json_schema(tmp_path, root):
    assert (
        new_schema("lab.a", tmp_path)
        .read_text()
        .startswith("# yaml-language-server: $schema=https://")
    )
    shutil.copytree(root / "schemas/struct-schema", tmp_path / "struct-schema")
    file = new_schema("lab.b", tmp_path)
    line = file.read_text().partition("\n")[0]
    assert (file.parent / line.partition("$schema=")[2]).is_file()
    assert lint(file) == []


@every("identity", ["", "a b", "a..b", "1a", "../a", "a/b", "ä", "a.b\n"])
def test_identities_are_names(tmp_path, identity):
    with refused(SchemaError, "NQX400", repr(identity)):
        new_schema(identity, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    file = new_schema("lab.a", tmp_path)
    file.write_text("mine")
    with refused(SchemaError, "NQX400", "a"):
        new_schema("other.a", tmp_path)
    assert file.read_text() == "mine"


# --- freeze --------------------------------------------------------------------------------------------------------


def test_freezing_one_version_and_then_the_rest(folder):
    first = freeze(folder / "v1.yaml")
    assert (first.added, first.kept) == ((1,), ())
    before = read_lock(folder)
    second = freeze(folder)
    assert (second.added, second.kept) == ((2,), (1,))
    assert read_lock(folder)[1] == before[1]
    text = (folder / "schema.lock").read_text()
    again = freeze(folder)
    assert (
        again.added,
        again.kept,
        str(again).endswith("nothing to freeze; frozen before: versions 1, 2"),
    ) == (
        (),
        (1, 2),
        True,
    )
    assert (folder / "schema.lock").read_text() == text
    assert sorted(p.name for p in folder.iterdir()) == ["schema.lock", "v1.yaml", "v2.yaml"]


def test_frozen_versions_are_not_edited_nor_frozen_again(folder):
    freeze(folder)
    text = (folder / "schema.lock").read_text()
    edit(folder / "v1.yaml", "root: Point", "root: Point\ncompatibility: none")
    with pytest.raises(SchemaError) as caught:
        freeze(folder)
    assert {d.code for d in caught.value.diagnostics} == {"NQX291"}
    assert (folder / "schema.lock").read_text() == text


CORRECTIONS = [
    ("root: Point", "root: Point\ndoc: A point.", "doc"),
    ("step: int", "step: {type: int, unit: s, tags: [counter]}", "unit and tags"),
    ("step: int", "step: {type: int, examples: [3]}", "examples"),
    ("  Point:\n", "  Point:\n    doc: A point.\n", "doc"),
]


@pytest.mark.parametrize(("old", "new", "parts"), CORRECTIONS)
def test_frozen_versions_may_correct_what_only_explains(folder, old, new, parts):
    freeze(folder)
    before = read_lock(folder)[1]
    edit(folder / "v1.yaml", old, new)
    found = [d for d in lint(folder) if d.code.startswith("NQX29")]
    assert [(d.code, d.severity, d.line) for d in found] == [("NQX294", "info", 3)]
    assert f"{parts}\n" in found[0].message
    done = freeze(folder)
    assert (done.added, done.kept, done.corrected) == ((), (1, 2), (1,))
    assert "recorded corrections of version 1" in str(done)
    after = read_lock(folder)[1]
    changed = {member for member in after if after[member] != before.get(member)}
    assert changed == {"full", *parts.split(" and ")}
    assert not [d for d in lint(folder) if d.code.startswith("NQX29")]
    assert freeze(folder).corrected == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("step: int", "step: {type: int, ge: 0}"),
        ("step: int", "step: {type: int, default: 0, doc: Steps.}"),
        ("step: int", "doc: int"),
        ("root: Point", "root: Point\ndims: {m: {min: 2}}"),
        ("  Point:\n", "  Point:\n    constraints: [{expr: step > 0}]\n"),
    ],
)
def test_other_edits_of_frozen_versions_are_refused(folder, old, new):
    freeze(folder)
    edit(folder / "v1.yaml", old, new)
    found = [d for d in lint(folder) if d.severity == "error"]
    assert "NQX291" in {d.code for d in found}
    with pytest.raises(SchemaError):
        freeze(folder)


def test_a_lock_file_of_an_earlier_release_refuses_corrections_until_it_is_completed(folder):
    freeze(folder)
    file = folder / "schema.lock"
    complete = json.loads(file.read_text())
    earlier = json.loads(file.read_text())
    for entry in earlier["versions"].values():
        for member in entry.keys() - {"payload", "full"}:
            del entry[member]
    file.write_text(json.dumps(earlier))
    assert not [d for d in lint(folder) if d.code.startswith("NQX29")]
    edit(folder / "v1.yaml", "root: Point", "root: Point\ndoc: Edited.")
    assert "NQX291" in {d.code for d in lint(folder)}
    edit(folder / "v1.yaml", "root: Point\ndoc: Edited.", "root: Point")
    assert (freeze(folder).added, freeze(folder).corrected) == ((), ())
    assert json.loads(file.read_text()) == complete


def test_lint_reports_a_newest_version_that_is_not_frozen(folder):
    assert "NQX295" not in {d.code for d in lint(folder)}  # no lock file: under development
    freeze(folder / "v1.yaml")
    (found,) = [d for d in lint(folder) if d.code == "NQX295"]
    assert (found.severity, found.line, found.file) == ("info", 3, str(folder / "v2.yaml"))
    assert f"`neuralqx-struct schema freeze {folder}`" in found.hint
    assert "NQX295" not in {d.code for d in lint(folder / "v2.yaml")}
    freeze(folder)
    assert "NQX295" not in {d.code for d in lint(folder)}


def test_a_lock_file_with_conflicts_is_named_as_such(folder):
    freeze(folder)
    file = folder / "schema.lock"
    lines = file.read_text().splitlines()
    both = ["<<<<<<< HEAD", lines[3], "=======", lines[3], ">>>>>>> main"]
    file.write_text("\n".join([*lines[:3], *both, *lines[4:]]))
    found = [(d.code, d.line, d.file) for d in lint(folder) if d.severity == "error"]
    assert found == [("NQX017", line, str(file)) for line in (4, 6, 8)]
    with refused(SchemaError, "NQX017"):
        freeze(folder)


def test_what_has_errors_is_not_frozen(folder):
    edit(folder / "v2.yaml", "rename: {field: step", "rename: {field: stop")
    with pytest.raises(SchemaError):
        freeze(folder)
    assert not (folder / "schema.lock").exists()


def test_the_lock_of_another_schema_is_no_lock(folder):
    freeze(folder / "v1.yaml")
    edit(folder / "schema.lock", "lab.point", "lab.other")
    with refused(SchemaError, "NQX291", "lab.point", "lab.other"):
        freeze(folder)


@pytest.mark.parametrize("function", [freeze, write_golden])
def test_nothing_there(tmp_path, function):
    with pytest.raises(SchemaMissingError):
        function(tmp_path / "nope")


def test_a_full_disk_leaves_the_lock_as_it_was(folder, monkeypatch):
    freeze(folder / "v1.yaml")
    text = (folder / "schema.lock").read_text()

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(releases.Path, "write_text", refuse)
    with refused(OSError, "NQX406"):
        freeze(folder)
    assert (folder / "schema.lock").read_text() == text
    assert sorted(p.name for p in folder.iterdir()) == ["schema.lock", "v1.yaml", "v2.yaml"]


# --- history -------------------------------------------------------------------------------------------------------


def test_files_outside_of_git_have_the_date_of_the_file(folder, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent.parent))
    os.utime(folder / "v1.yaml", (10**9, 10**9))
    freeze(folder / "v1.yaml")
    first, second = history(folder)
    assert (first.date.isoformat(), first.dated_by, first.frozen) == (
        "2001-09-09T01:46:40+00:00",
        "file",
        True,
    )
    assert (second.frozen, second.version, first.changes, first.steps) == (False, 2, (), ())
    assert {change.code for change in second.changes} == {
        c.code for c in s.diff(folder / "v1.yaml", folder / "v2.yaml")
    }
    assert second.steps[0] == "rename: {field: step, to: count}"
    assert "2001-09-09 01:46 (file, frozen)" in str(first) and "step cast" in str(second)
    assert json.loads(json.dumps(second.to_json()))["steps"] == list(second.steps)


def test_files_in_git_have_the_date_of_the_commit_that_added_them(folder, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)

    def git(*words, date="2020-01-02T03:04:05+00:00"):
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        names = {
            f"GIT_{who}_{what}": "a@b"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        subprocess.run(
            ["git", "-C", folder, *words],
            check=True,
            capture_output=True,
            env=os.environ | dates | names,
        )

    git("init", "-q")
    git("add", "v1.yaml")
    git("commit", "-qm", "one")
    edit(folder / "v1.yaml", "root: Point", "root: Point\ncompatibility: none")
    git("commit", "-qam", "two", date="2021-01-02T03:04:05+00:00")
    first, second = history(folder)
    assert (first.date.isoformat(), first.dated_by) == ("2020-01-02T03:04:05+00:00", "git")
    assert second.dated_by == "file"  # not committed


def test_the_history_of_one_file_has_nothing_before_it(folder):
    (only,) = history(folder / "v2.yaml")
    assert (only.version, only.changes, only.steps) == (2, (), ())


# --- golden payloads -----------------------------------------------------------------------------------------------


def test_golden_payloads_are_read_at_the_newest_version(folder):
    assert [d.code for d in check_golden(folder)] == ["NQX314", "NQX314"]
    written = write_golden(folder)
    assert written == [golden_place(folder, 1), golden_place(folder, 2)]
    assert check_golden(folder) == []
    assert [d.code for d in lint(folder)] == ["NQX320"]  # the cast is exact
    # Whole numbers, so that the exact cast to int8 takes them.
    assert s.load_schema(folder).load(written[0]).x.dtype == "int8"
    assert write_golden(folder) == []


def test_the_same_schema_gives_the_same_bytes(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "again/point")
    for one, two in zip(write_golden(folder), write_golden(tmp_path / "again/point"), strict=True):
        for file in one.iterdir():
            assert file.read_bytes() == (two / file.name).read_bytes()


def test_lists_that_a_later_version_stacks_have_items_of_equal_sizes(tmp_path):
    text = """\
language: "1"
schema: lab.deep
version: {version}
root: Net
dims: {{n: {{}}}}
structs:
  Block: {{params: [d], fields: {{w: "float32[d, k]", b: "float32[k]"}}}}
  Net: {{fields: {{x: "float32[m]", layers: "{layers}"}}}}
"""
    steps = "migrations: [{from: 1, steps: [{stack: {field: layers, size: n}}]}]\n"
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "v1.yaml").write_text(text.format(version=1, layers="list[Block[m], n]"))
    (folder / "v2.yaml").write_text(text.format(version=2, layers="Block[m][n]") + steps)
    assert len(write_golden(folder)) == 2
    assert check_golden(folder) == []


def test_one_version_by_itself(folder):
    assert write_golden(folder / "v2.yaml") == [golden_place(folder, 2)]
    assert [d.code for d in check_golden(folder / "v1.yaml")] == ["NQX314"]


def test_golden_payloads_tell_of_what_breaks_them(folder):
    write_golden(folder)
    edit(
        folder / "v2.yaml",
        "{cast: {field: x, dtype: int8}}",
        "{cast: {field: x, dtype: int8}}, {python: {function: lab.f, reads: [x], writes: [x]}}",
    )
    assert any(d.code == "NQX315" for d in check_golden(folder))
    shutil.rmtree(golden_place(folder, 2))
    shutil.copytree(golden_place(folder, 1), golden_place(folder, 2))
    wrong = [d for d in check_golden(folder) if d.file == str(golden_place(folder, 2))]
    assert "version 2" in wrong[0].message and "version 1" in wrong[0].message


def test_edited_versions_no_longer_fit_their_golden_payload(folder):
    write_golden(folder)
    edit(folder / "v1.yaml", "float64[n]", "float64[n, n]")
    (found,) = (d for d in check_golden(folder) if d.file == str(golden_place(folder, 1)))
    assert "NQX405" in found.message and has_errors([found])


def test_damaged_golden_payloads_are_found(folder):
    write_golden(folder)
    file = golden_place(folder, 1) / "arrays.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    found = check_golden(folder)
    assert {d.code for d in found} == {"NQX315"} and "from a copy" in found[0].hint


def test_folders_of_schemas(folder):
    write_golden(folder)
    assert check_golden(folder.parent) == []
    shutil.rmtree(golden_place(folder, 1))
    assert [d.code for d in check_golden(folder.parent)] == ["NQX314"]


def test_versions_whose_migration_takes_no_instance_have_none(folder):
    edit(folder / "v1.yaml", "step: int", "step: {type: int, ge: 1000}")
    edit(folder / "v2.yaml", "{type: int, default: 0}", "{type: int, default: 0, le: 10}")
    with refused(SchemaError, "NQX315"):
        write_golden(folder)
    assert not golden_place(folder, 1).exists()


def test_constraints_come_before_whole_numbers(folder):
    (folder / "v2.yaml").unlink()
    edit(folder / "v1.yaml", "step: int", "step: int\n    constraints: [{expr: min(x) < 0}]")
    (place,) = write_golden(folder)
    assert s.load(place).x.min() < 0


def test_the_check_needs_no_jax(folder):
    write_golden(folder)
    code = (
        "import sys; from neuralqx_struct.tools.history import check_golden, freeze, history;"
        f"assert check_golden({str(folder)!r}) == []; freeze({str(folder)!r}); history({str(folder)!r});"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_new_schema_that_cannot_be_written_leaves_no_folder(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(language, "replace_text", full)
    with pytest.raises(OSError, match="no space"):
        new_schema("lab.net", tmp_path / "schemas")
    monkeypatch.undo()
    assert new_schema("lab.net", tmp_path / "schemas").is_file()
