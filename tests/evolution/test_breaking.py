"""Breaking changes: against paths, git revisions, lock files and bundles; waivers; and that the verdict is what loading does."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.classes.compiler import classes_of
from neuralqx_struct.errors import has_errors
from neuralqx_struct.evolution.against import baseline
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.schema.lock import format_lock, lock_entry
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series, series_of
from neuralqx_struct.tools.linting import lint
from tests.builders import ROOT, SHIPPED, cases, doc, every, invoke, refused

SUITE = ROOT / "tests" / "suite" / "compatibility"
CELLS = [
    pytest.param(case, policy, mode, cell, id=f"{case.name}-{policy}-{mode}")
    for case in sorted(SUITE.iterdir())
    for policy, cells in yaml.safe_load((case / "expected.yaml").read_text()).items()
    for mode, cell in cells.items()
]


@every(("case", "policy", "mode", "cell"), CELLS)
def test_the_compatibility_table(case, policy, mode, cell, tmp_path):
    old = load_series(case / "v1.yaml")
    if policy == "drop":  # Confluent's table: each pair of documents by itself
        found = verdict(old, load_series(case / "v2.yaml"), mode, unknown="drop", steps=False)
        assert has_errors(found) is (cell == "no"), found
        return
    new = tmp_path / "schemas" / "a"
    shutil.copytree(case, new, ignore=shutil.ignore_patterns("expected.yaml", "v2*"))
    shutil.copy(case / ("v2-with-steps.yaml" if policy == "steps" else "v2.yaml"), new / "v2.yaml")
    found = s.breaking(new, against=case / "v1.yaml", mode=mode)
    assert has_errors(found) is (cell == "no"), found
    for finding in found:
        assert finding.file == str(new / "v2.yaml") and finding.line, finding


# ---------------------------------------------------------------------------------------------------------------------
# References

V1 = """language: "1"
schema: lab.net
version: 1
root: Net
structs:
  Net:
    fields:
      w: {type: "float32[n]", tags: [trainable]}
      b: {type: int, default: 0}
"""
V2 = V1.replace("version: 1", "version: 2").replace("      b: {type: int, default: 0}\n", "")
TAGLESS = V1.replace("version: 1", "version: 2").replace(", tags: [trainable]", "")


@pytest.fixture
def repository(tmp_path):
    """A git repository with one published version of a schema."""
    folder = tmp_path / "repo" / "schemas" / "net"
    folder.mkdir(parents=True)
    (folder / "v1.yaml").write_text(V1)
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "1.json").write_text("{}")  # no schema: its name is no version's

    def git(*words):
        subprocess.run(
            [
                "git",
                "-C",
                tmp_path / "repo",
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@example.org",
                *words,
            ],
            check=True,
            capture_output=True,
        )

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "first")
    return tmp_path / "repo" / "schemas"


def codes(found):
    return [(d.code, d.severity) for d in found]


def test_against_a_git_revision(repository, monkeypatch):
    net = repository / "net"
    assert s.breaking(repository, against="git:main") == []
    (net / "v2.yaml").write_text(V2)
    for path in (repository, net, net / "v2.yaml"):
        found = s.breaking(path, against="git:main")
        assert codes(found) == [("NQX415", "error")], path
        assert (
            found[0].file == str(net / "v2.yaml")
            and "remove: {field: b, undo_default: 0}" in found[0].hint
        )
    monkeypatch.chdir(repository.parent)
    assert codes(s.breaking(against="git:HEAD")) == [("NQX415", "error")]
    assert s.breaking(against="git:HEAD", unknown="drop") == []
    (net / "v1.yaml").write_text(V1.replace("float32", "float64"))
    assert "NQX290" in {d.code for d in s.breaking(net, against="git:main", unknown="drop")}
    new = repository / "fresh"
    new.mkdir()
    (new / "v1.yaml").write_text(V1.replace("lab.net", "lab.fresh"))
    found = s.breaking(new, against="git:main")
    assert codes(found) == [("NQX296", "warning")], (
        "a schema that was not there has nothing to break"
    )
    assert [(each.schema, each.writer) for each in found.comparisons] == [("lab.fresh", None)]


@pytest.mark.parametrize(
    ("reference", "code", "named"),
    [
        ("git:nope", "NQX400", "'nope'"),
        ("git:", "NQX400", "''"),
        ("git:--help", "NQX400", "'--help'"),
        ("nowhere", "NQX404", "nowhere"),
    ],
)
def test_references_that_lead_nowhere(repository, reference, code, named):
    with refused(s.SchemaError, code, named):
        s.breaking(repository, against=reference)


def test_outside_of_a_repository(tmp_path, monkeypatch):
    (tmp_path / "v1.yaml").write_text(V1)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("LANGUAGE", "de")
    with refused(s.SchemaError, "NQX400", "git") as no:
        s.breaking(tmp_path, against="git:main")
    assert no.value.diagnostics[0].hint.startswith("compare with a folder, a lock file or a bundle")
    monkeypatch.setenv("PATH", "")
    with refused(s.SchemaError, "NQX400", "git"):
        s.breaking(tmp_path, against="git:main")


def test_against_a_lock_file(repository):
    net = repository / "net"
    lock = net / "schema.lock"
    document = load_series(net).head
    lock.write_text(format_lock("lab.net", {1: lock_entry(document)}))
    assert s.breaking(net, against=lock) == []
    (net / "v1.yaml").write_text("# edited\n" + V1.replace("root: Net", "root: Net\ndoc: Edited."))
    assert codes(s.breaking(net, against=lock)) == [("NQX291", "warning")]
    (net / "v1.yaml").write_text(V1.replace("float32", "float64"))
    assert codes(s.breaking(net, against=lock)) == [("NQX290", "error")]
    (net / "v1.yaml").rename(net / "v2.yaml")
    (net / "v2.yaml").write_text(V2)
    assert codes(s.breaking(net, against=lock)) == [("NQX291", "error")]


def test_against_a_bundle(repository, tmp_path):
    net = repository / "net"
    s.example(s.load_schema(net).Net).export(tmp_path / "ckpt")
    assert s.breaking(net, against=tmp_path / "ckpt") == []
    (net / "v2.yaml").write_text(V2)
    assert codes(s.breaking(net, against=tmp_path / "ckpt")) == [("NQX415", "error")]

    class Plain(s.Struct):
        x: int

    Plain(1).export(tmp_path / "plain")
    with refused(s.SchemaError, "NQX404", tmp_path / "plain"):
        s.breaking(net, against=tmp_path / "plain")


def test_a_schema_that_is_gone(repository, tmp_path):
    second = repository / "second"
    second.mkdir()
    (second / "v1.yaml").write_text(V1.replace("lab.net", "lab.second"))
    third = repository / "third"
    third.mkdir()
    (third / "v1.yaml").write_text(V1.replace("lab.net", "lab.third"))
    before = shutil.copytree(repository, tmp_path / "before")
    shutil.rmtree(second)
    (found,) = s.breaking(repository, against=before)
    assert found.code == "NQX404" and "lab.second" in found.message
    shutil.rmtree(third)
    assert len(s.breaking(repository, against=before)) == 2


@pytest.mark.parametrize("path", [".", "net", "net/v1.yaml"])
@pytest.mark.parametrize("against", [".", "net", "net/v1.yaml", "git:main"])
def test_another_identity_is_not_compatible(repository, tmp_path, path, against):
    before = shutil.copytree(repository, tmp_path / "before")
    (repository / "net" / "v1.yaml").write_text(V1.replace("lab.net", "lab.nets"))
    reference = against if against.startswith("git:") else before / against
    (found,) = s.breaking(repository / path, against=reference)
    assert found.code == "NQX404" and "lab.nets" in found.message


def test_manifest_changes_are_a_category_of_their_own(repository, tmp_path):
    before = shutil.copytree(repository, tmp_path / "before")
    (repository / "net" / "v2.yaml").write_text(TAGLESS)
    assert s.breaking(repository, against=before) == []
    (found,) = s.breaking(repository, against=before, category="manifest")
    assert codes([found]) == [("NQX232", "error")] and found.line is not None
    with refused(ValueError, "breaking()", "'tree'"):
        s.breaking(repository, against=before, category="tree")
    with refused(s.SchemaError, "NQX010", "none, backward", "'sideways'"):
        s.breaking(repository, against=before, mode="sideways")


def test_a_promise_that_is_lowered_is_told(repository, tmp_path):
    before = shutil.copytree(repository, tmp_path / "before")
    (repository / "net" / "v2.yaml").write_text(
        V1.replace("version: 1", "version: 2\ncompatibility: none")
    )
    assert codes(s.breaking(repository, against=before)) == [("NQX292", "warning")]


def test_an_edited_old_version_is_named_and_nothing_else(repository):
    net = repository / "net"
    (net / "v2.yaml").write_text(V1.replace("version: 1", "version: 2"))
    text = V1.replace("version: 1", "version: 3").replace("w:", "kernel:")
    steps = "migrations: [{from: 2, steps: [{rename: {field: w, to: kernel}}]}]\n"
    (net / "v3.yaml").write_text(text + steps)
    assert s.breaking(net, against="git:main") == []
    (net / "v1.yaml").write_text(V1.replace("w:", "v:"))
    for mode in ("backward-transitive", "full-transitive", "forward-transitive"):
        (found,) = s.breaking(net, against="git:main", mode=mode)
        assert (found.code, found.file, found.line) == ("NQX290", str(net / "v1.yaml"), 3)
        assert "structs.Net.fields.w" in found.message
        assert "undo the edit, and give the changed schema the version 4" in found.hint


def test_hints_of_forward_findings_are_steps_of_the_newer_version(repository):
    net = repository / "net"
    (net / "v2.yaml").write_text(
        V1.replace("version: 1", "version: 2") + "      c: {type: int, default: 2}\n"
    )
    (found,) = s.breaking(net, against="git:main", mode="forward")
    assert (found.code, found.hint) == ("NQX415", "write `- add: {field: c, default: 2}`")
    text = (net / "v2.yaml").read_text()
    (net / "v2.yaml").write_text(
        text + "migrations: [{from: 1, steps: [{add: {field: c, default: 2}}]}]\n"
    )
    assert s.breaking(net, against="git:main", mode="full") == []
    nullable = V1.replace("version: 1", "version: 2").replace(
        "type: int, default: 0", "type: int | null"
    )
    (net / "v2.yaml").write_text(nullable + "migrations: [{from: 1, steps: []}]\n")
    (found,) = s.breaking(net, against="git:main", mode="forward")
    assert found.code == "NQX307" and "fill" not in found.hint


# ---------------------------------------------------------------------------------------------------------------------
# Waivers


@pytest.mark.parametrize(
    ("waiver", "expected"),
    [
        ({"code": "NQX415"}, [("NQX415", "info")]),
        (
            {"code": "NQX415", "schema": "lab.net", "path": "$.structs.Net.fields.b"},
            [("NQX415", "info")],
        ),
        (
            {"code": "NQX415", "path": "$.structs.Net.fields.c"},
            [("NQX415", "error"), ("NQX293", "warning")],
        ),
        ({"code": "NQX415", "schema": "lab.other"}, [("NQX415", "error"), ("NQX293", "warning")]),
        ({"code": "NQX202"}, [("NQX415", "error"), ("NQX293", "warning")]),
    ],
)
def test_waivers(repository, waiver, expected):
    (repository / "net" / "v2.yaml").write_text(V2)
    text = json.dumps({"waivers": [{**waiver, "reason": "never released"}]})
    (repository / "waivers.yaml").write_text(text)
    for path in (repository, repository / "net", repository / "net" / "v2.yaml"):
        found = s.breaking(path, against="git:main")
        assert codes(found) == expected
    assert ("never released" in found[0].message) is (expected[0][1] == "info")
    (repository / "mine.yaml").write_text('{"waivers": []}')
    assert codes(s.breaking(repository, against="git:main", waivers=repository / "mine.yaml")) == [
        ("NQX415", "error")
    ]


def test_waivers_are_no_schema_and_those_of_schemas_beside_are_left_alone(repository):
    (repository / "net" / "v2.yaml").write_text(V2)
    other = repository / "fresh"
    other.mkdir()
    (other / "v1.yaml").write_text(V1.replace("lab.net", "lab.fresh"))
    waivers = [
        {"code": "NQX415", "schema": f"lab.{name}", "reason": "x"} for name in ("net", "fresh")
    ]
    (repository / "waivers.yaml").write_text(json.dumps({"waivers": waivers}))
    assert codes(s.breaking(repository / "net", against="git:main")) == [("NQX415", "info")]
    assert codes(s.breaking(repository, against="git:main")) == [
        ("NQX415", "info"),
        ("NQX293", "warning"),
    ]
    assert not [d for d in lint(repository) if (d.file or "").endswith("waivers.yaml")]


def test_the_shipped_schemas_break_nothing():
    declared = {load_series(ROOT / "schemas" / name).head.compatibility for name in SHIPPED}
    assert declared == {"backward-transitive"}
    assert s.breaking(ROOT / "schemas", against=str(ROOT / "schemas")) == []


def test_a_waiver_needs_a_reason(repository):
    (repository / "waivers.yaml").write_text(
        "waivers:\n  - {code: NQX415}\n  - {code: 415, reason: x}\n"
    )
    with pytest.raises(s.SchemaError) as caught:
        s.breaking(repository, against="git:main")
    assert [(d.line, d.code) for d in caught.value.diagnostics] == [(2, "NQX010"), (3, "NQX010")]


def test_the_command(repository, monkeypatch):
    monkeypatch.chdir(repository.parent)
    result = invoke("breaking", "--against", "git:main")
    lines = [
        "schemas: compatible with git:main",
        "lab.net: version 1 reads version 1: structure proved, nothing tried: it is unchanged",
    ]
    assert (result.exit_code, result.stdout.splitlines()) == (0, lines)
    Path("schemas/net/v2.yaml").write_text(V2)
    result = invoke("breaking", "schemas", "--against", "git:main", "--format", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1 and not report["ok"] and report["against"] == "git:main"
    (compared,) = report["comparisons"]
    assert compared["structure"] == "differs" and compared["tried"] == 0 and compared["reason"]
    words = (
        "breaking",
        "schemas",
        "--against",
        "git:main",
        "--unknown",
        "drop",
        "--tries",
        "7",
        "--format",
        "json",
    )
    (compared,) = json.loads(invoke(*words).stdout)["comparisons"]
    assert compared == {
        "schema": "lab.net", "direction": "backward", "writer": 1, "reader": 2, "structure": "proved", "tried": 7, "reason": None,
    }  # fmt: skip
    (compared,) = json.loads(invoke("schema", "lint", "schemas", "--format", "json").stdout)[
        "comparisons"
    ]
    assert (compared["writer"], compared["reader"]) == (1, 2)
    assert invoke("breaking", "schemas", "--against", "git:main", "--tries", "0").exit_code == 2
    assert report["diagnostics"][0]["file"] == "schemas/net/v2.yaml"
    result = invoke("breaking", "schemas", "--against", "git:main", "--format", "github")
    assert result.stdout.startswith("::error file=schemas/net/v2.yaml,line=")
    assert invoke("breaking", "--against", "git:main", "--unknown", "drop").exit_code == 0
    assert invoke("breaking", "--against", "git:nope").exit_code == 2
    assert invoke("breaking", "--against", "nowhere").exit_code == 2


def git_in(folder, *words):
    names = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "protocol.file.allow=always",
    ]
    done = subprocess.run(["git", "-C", folder, *names, *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


EDITED = V1.replace("float32", "float64")
HOOK = f"#!/bin/sh\n{sys.executable} -m neuralqx_struct breaking schemas --against git:main\n"


@pytest.mark.parametrize("where", ["the work tree", "a linked work tree", "named by --git-dir"])
def test_a_hook_of_git_sees_the_edit(repository, tmp_path, where):
    """Git sets GIT_DIR, GIT_INDEX_FILE and others for its hooks, which are about its own repository."""
    top = repository.parent
    hook = top / ".git" / "hooks" / "pre-commit"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    words = []
    if where == "a linked work tree":
        git_in(top, "worktree", "add", "-b", "side", tmp_path / "linked")
        top = tmp_path / "linked"
    if where == "named by --git-dir":
        words = [f"--git-dir={top / '.git'}", f"--work-tree={top}"]
    (top / "schemas" / "net" / "v1.yaml").write_text(EDITED)
    code, said = git_in(top, *words, "commit", "-a", "-m", "edit")
    assert code == 1 and "NQX290" in said


def test_variables_of_git_name_no_other_repository(repository, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    git_in(other, "init", "-b", "main")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    (repository / "net" / "v1.yaml").write_text(EDITED)
    assert codes(s.breaking(repository, against="git:main"))[0] == ("NQX290", "error")


@pytest.mark.parametrize("path", ["models", "models/net", "models/net/v1.yaml"])
def test_a_schema_that_moved_is_found_by_its_identity(repository, path):
    git_in(repository.parent, "mv", "schemas", "models")
    moved = repository.parent / path
    found = s.breaking(moved, against="git:main")
    assert (found, [each.reader for each in found.comparisons]) == ([], [1])
    (repository.parent / "models" / "net" / "v1.yaml").write_text(EDITED)
    assert codes(s.breaking(moved, against="git:main")) == [("NQX290", "error")]


def test_schemas_in_other_repositories(repository, tmp_path):
    """A submodule has its own revisions; a shallow clone lacks old ones, and a bare clone's folder has no schemas."""
    top = repository.parent
    (repository / "net" / "v2.yaml").write_text(V2)
    git_in(top, "add", ".")
    git_in(top, "commit", "-m", "second")
    git_in(tmp_path, "clone", "--depth", "1", f"file://{top}", "shallow")
    shallow = tmp_path / "shallow" / "schemas"
    assert codes(s.breaking(shallow, against="git:HEAD")) == codes(
        s.breaking(repository, against="git:HEAD")
    )
    assert invoke("breaking", shallow, "--against", "git:HEAD~1").exit_code == 2
    outer = tmp_path / "outer"
    outer.mkdir()
    git_in(outer, "init", "-b", "main")
    git_in(outer, "submodule", "add", f"file://{top}", "inner")
    (outer / "inner" / "schemas" / "net" / "v1.yaml").write_text(EDITED)
    assert "NQX290" in {d.code for d in s.breaking(outer / "inner" / "schemas", against="git:HEAD")}
    git_in(tmp_path, "clone", "--bare", str(top), "bare.git")
    out = tmp_path / "bare.git" / "out"
    out.mkdir()
    shutil.copytree(repository, out / "schemas")
    assert invoke("breaking", out / "schemas", "--against", "git:main").exit_code == 2


def test_a_baseline_says_what_it_is():
    assert baseline("schemas", Path("schemas")).name == "schemas"


# ---------------------------------------------------------------------------------------------------------------------
# Soundness: the verdict is what loading does.

TYPES = [
    "int", "float", "str", "bool", "int | null", "float | null", "int | str", "int8[n]", "int16[n]", "float32[n]",
    "float64[n]", "float32[n, 2]", "complex64[n]", "list[int]", "dict[str, float]", "Mode", "Inner", "list[Inner]", "pytree",
    {"type": "int", "default": 3}, {"type": "float32[n] | null", "default": None}, {"type": "int8[n]", "aliases": ["c"]},
    {"type": "Mode", "default": "slow"},
]  # fmt: skip
FIELDS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(TYPES), min_size=1, max_size=3)
INNERS = st.sampled_from(
    [{"x": "int"}, {"x": "float"}, {"x": "int", "y": {"type": "int", "default": 1}}]
)
MODES = st.sampled_from(
    [["fast", "slow"], ["slow"], {"members": ["slow", "new"], "default": "slow"}]
)


def document(fields, inner, mode, version):
    structs = {"A": {"fields": fields}, "Inner": {"fields": inner}}
    data = {
        "language": "1",
        "schema": "lab.sound",
        "version": version,
        "root": "A",
        "structs": structs,
    }
    return document_from_data({**data, "enums": {"Mode": mode}}, "test")


def means_the_same(old, new):
    """Equal, but for exact promotion: a wider dtype holds the same numbers."""
    if isinstance(old, (np.ndarray, jax.Array)) and isinstance(new, (np.ndarray, jax.Array)):
        return np.array_equal(np.asarray(old).astype(np.asarray(new).dtype), np.asarray(new))
    if hasattr(type(old), "__nqx_fields__"):
        return all(
            means_the_same(getattr(old, n), getattr(new, n))
            for n in type(old).fields()
            if n in type(new).fields()
        )
    if isinstance(old, (list, tuple)):
        return len(old) == len(new) and all(map(means_the_same, old, new))
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(means_the_same(old[k], new[k]) for k in old)
    return old == new


@settings(max_examples=cases(250), deadline=None)
@given(
    FIELDS,
    INNERS,
    MODES,
    FIELDS,
    INNERS,
    MODES,
    st.sampled_from(["error", "drop"]),
    st.integers(0, 9),
)
def test_a_verdict_is_what_loading_does(  # noqa: PLR0917
    old_fields, old_inner, old_mode, new_fields, new_inner, new_mode, unknown, key
):
    """Where the checker says that old data can be read, an old payload loads and means the same; where loading fails, it had said so."""
    aliased = [n for n, t in new_fields.items() if isinstance(t, dict) and "aliases" in t]
    assume(len(aliased) <= 1 and "c" not in (new_fields if aliased else ()))
    old, new = (
        document(old_fields, old_inner, old_mode, 1),
        document(new_fields, new_inner, new_mode, 2),
    )
    found = verdict(old, new, "backward", unknown=unknown)
    series = series_of([old, new])
    before = s.example(classes_of(series, 1)["A"], key=key)
    cls = classes_of(series, 2, own=True)["A"]
    try:
        # As numpy: JAX may have no 64 bits.
        after = s.from_state_dict(
            before.to_state_dict(), load_cls=cls, unknown=unknown, as_numpy=True
        )
    except s.StructError as error:
        assert has_errors(found), (error, old_fields, new_fields)
    else:
        if not has_errors(found):
            renamed = {"c": name for name in aliased if name not in old_fields}
            for name in old_fields:
                now = renamed.get(name, name)
                if now in new_fields and (name == now or name not in new_fields):
                    was = getattr(before, name)
                    is_mode = "Mode" in str(old_fields[name]) and isinstance(was, str)
                    if is_mode and isinstance(new_mode, dict) and was not in new_mode["members"]:
                        was = new_mode["default"]
                    assert means_the_same(was, getattr(after, now)), (
                        name,
                        before,
                        after,
                    )


@pytest.mark.parametrize("steps", [True, False])
def test_members_that_become_the_default_are_reported_but_break_nothing(steps):
    def version(number, members):
        enum = {"members": members, "default": "x"}
        return doc({"e": "E"}, number, [] if steps and number > 1 else None, enums={"E": enum})

    old, new = version(1, ["x", "y"]), version(2, ["x"])
    (found,) = verdict(old, new, "backward", steps=steps)
    assert (found.code, found.severity) == ("NQX250", "warning")
    assert "y" in found.message and "'x'" in found.message
