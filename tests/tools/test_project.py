"""The project file: where it is looked for, its keys, and the position of each error."""

import os
from pathlib import Path

import pytest

from neuralqx_struct.errors import Keyword, SchemaError
from neuralqx_struct.tools import project
from neuralqx_struct.tools.project import OWN_FILE, SHARED_FILE, Project, find_project, parse
from tests.builders import bounded, refused

TEXT = """# the lab
[tool.other]
schemas = 1

[tool.neuralqx-struct]
schemas = "models"
trust = ["lab.migrations", "lab2"]
store = "safetensors"
mode = "full-transitive"
waivers = "models/waivers.yaml"
golden = true

[project]
name = "lab"
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_keys(here):
    (here / SHARED_FILE).write_text(TEXT)
    found = find_project()
    assert (found.file, found.folder) == (Path(SHARED_FILE), Path())
    assert found.schemas == Path("models") == found.own_schemas.folder
    assert found.trust == ("lab.migrations", "lab2")
    assert (found.store, found.mode, found.golden) == ("safetensors", "full-transitive", True)
    assert found.waivers == Path("models/waivers.yaml")


def test_without_a_file_there_are_defaults(here):
    (here / SHARED_FILE).write_text('[project]\nname = "neuralqx-struct"\n')
    assert find_project() == Project()
    assert (Project().schemas, Project().own_schemas) == (Path("schemas"), None)


def test_it_is_found_upwards_with_paths_relative_to_it(here, monkeypatch):
    (here / OWN_FILE).write_text('schemas = "models"\n')
    (here / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(here / "a" / "b")
    found = find_project()
    assert found.file == Path("../..") / OWN_FILE
    assert found.schemas == Path("../../models")
    (here / "a" / SHARED_FILE).write_text("[tool.other]\n")  # about other tools
    assert find_project() == found
    (here / "a" / SHARED_FILE).write_text("[tool.neuralqx-struct]\ngolden = true\n")
    assert find_project().file == Path("..") / SHARED_FILE
    (here / "a" / OWN_FILE).write_text("golden = false\n")
    assert find_project().file == Path("..") / OWN_FILE


def test_a_removed_working_directory_has_no_project(here, monkeypatch):
    def gone():
        raise FileNotFoundError

    monkeypatch.setattr(project.Path, "cwd", gone)
    assert find_project() == Project()


def test_pyproject_files_that_are_not_ours_may_be_anything(here):
    (here / SHARED_FILE).write_bytes(b"\xff neuralqx-struct [[[")
    assert find_project() == Project()
    (here / SHARED_FILE).write_bytes(b"# neuralqx-struct\n" + b"#" * (1 << 18))
    assert find_project() == Project()
    (here / SHARED_FILE).unlink()
    (here / SHARED_FILE).mkdir()
    (here / OWN_FILE).mkdir()
    assert find_project() == Project()


TABLES = [
    "[tool.neuralqx-struct]\ngolden = true",
    "  [ tool . neuralqx-struct ] # ours\ngolden = true",
    '["tool"."neuralqx-struct"]\ngolden = true',
    "[tool.'neuralqx-struct']\ngolden = true",
    "[tool]\nneuralqx-struct.golden = true",
    "[tool]\nneuralqx-struct = {golden = true}",
    "tool.neuralqx-struct.golden = true",
    "tool = {neuralqx-struct = {golden = true}}",
    "x = 1\r\n[tool.neuralqx-struct]\r\ngolden = true\r\n",
]


@pytest.mark.parametrize("text", TABLES)
def test_a_table_is_found_in_every_spelling_of_toml(here, text):
    (here / SHARED_FILE).write_bytes(text.encode())
    assert find_project().golden is True


BAD = [
    ("schmas = 1\n", ["1:1: NQX009", "'schmas'", "'schemas'"]),
    ("x = 1\n", ["1:1: NQX009", "schemas, trust, store, mode, waivers, golden"]),
    ("golden = true\n  schemas = 1\n", ["2:3: NQX010"]),
    ('schemas = ""\n', ["NQX010", "''"]),
    ('schemas = "a\\u0000"\n', ["NQX010"]),
    ('trust = "lab"\n', ["NQX010", 'trust = ["lab"]']),
    ('trust = ["a/b"]\n', ["NQX010", "a/b"]),
    ('trust = ["lab.py", 1]\n', ["NQX010", "lab.py"]),
    ('store = "npy"\n', ["NQX010", "'npy'", "'npz'"]),
    ("store = 3\n", ["NQX010", "npz"]),
    ('mode = "ful"\n', ["NQX010", "none, backward", "'full'"]),
    ('golden = "true"\n', ["NQX010", "'true'", "golden = true"]),
    ("waivers = [1]\n", ["NQX010", "[1]"]),
    ("[tool.neuralqx-struct]\ngolden = true\n", ["NQX009", "'tool'"]),
    ("[trust]\na = 1\n", ["1:1: NQX010"]),
    ("trust.a = 1\n", ["1:1: NQX010"]),
    ("a = \n", ["1:5: NQX001"]),
    ("a = 1\na = 2\n", ["NQX001"]),
    ("a = [", ["1:1: NQX001"]),
    ("a = " + "[" * 2000, ["NQX001"]),
    ("a = 1\n<<<<<<< HEAD\n", ["2:1: NQX017", "<<<<<<<"]),
    ("\n#" + "a" * 3000, ["2:1: NQX005", "3001"]),
]  # fmt: skip


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("text", "parts"), BAD, ids=[text[:24] for text, _ in BAD])
def test_errors_have_positions(here, text, parts, shared):
    if shared:
        if text.startswith(("[tool", "[trust")):
            return
        shown = [part.replace("1:1:", "3:1:").replace("2:1:", "4:1:") for part in parts]
        parts = [part.replace("2:3:", "4:3:").replace("1:5:", "3:5:") for part in shown]
        text = f"# mine\n[tool.neuralqx-struct]\n{text}"
    name = SHARED_FILE if shared else OWN_FILE
    (here / name).write_text(text)
    with pytest.raises(SchemaError) as caught:
        find_project()
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert {found.file for found in caught.value.diagnostics} == {name}
    assert {found.severity for found in caught.value.diagnostics} == {"error"}


def test_all_errors_come_at_once(here):
    (here / OWN_FILE).write_text("golden = 1\nscheams = 2\ntrust = 3\n")
    with pytest.raises(SchemaError) as caught:
        find_project()
    assert [(d.code, d.line) for d in caught.value.diagnostics] == [
        ("NQX010", 1),
        ("NQX009", 2),
        ("NQX010", 3),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[tool]\nneuralqx-struct = 5\n", 2),
        ("[tool]\n'neuralqx-struct' = {golden = 5}\n", 2),
        ("tool.neuralqx-struct.golden = 5\n", 1),
        ('["tool".neuralqx-struct]\ngolden = 5\n', 2),
        ("[tool.neuralqx-struct.golden]\na = 5\n", 1),
    ],
)
def test_other_spellings_of_the_table(here, text, line):
    with pytest.raises(SchemaError) as caught:
        parse(text, SHARED_FILE)
    assert caught.value.diagnostics[0].line == line


def test_a_file_that_is_too_large_or_no_text(here):
    (here / OWN_FILE).write_bytes(b"#" * (1 << 18))
    with refused(SchemaError, "NQX005", "128 KiB"):
        find_project()
    (here / OWN_FILE).write_bytes(b"# \xff")
    with refused(SchemaError, "NQX001", "UTF-8"):
        find_project()


def test_a_file_that_cannot_be_read(here, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    for name in (OWN_FILE, SHARED_FILE):
        (here / name).write_text(TEXT)
    monkeypatch.setattr(project.Path, "open", refuse)
    with refused(SchemaError, "NQX001", "Permission denied"):
        find_project()
    (here / OWN_FILE).unlink()
    assert find_project() == Project()


HOSTILE = {
    "dotted keys": "\n".join([".".join("a" * 1000) + f" = {n}" for n in range(60)]),
    "a long header": f"[{'.'.join('a' * 1000)}]\n" + "\n".join(f"k{n}=1" for n in range(12_000)),
    "tables": "\n".join(f"[a{n}]" for n in range(15_000)),
    "conflicts": "<<<<<<< a\n" * 12_000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_end(here, case):
    (here / OWN_FILE).write_text(HOSTILE[case])
    with bounded(), pytest.raises(SchemaError):
        find_project()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no owners of files")
def test_the_trust_of_a_file_of_another_user_is_not_used(here, monkeypatch):
    (here / OWN_FILE).write_text('trust = ["lab.evil"]\ngolden = true\n')
    if (here / OWN_FILE).stat().st_uid == 0:
        os.chown(here / OWN_FILE, 1234, -1)
    monkeypatch.setattr(project.os, "geteuid", lambda: 4321)
    found = find_project()
    assert (found.trust, found.golden) == ((), True)
    (warning,) = found.found
    assert (warning.code, warning.severity, warning.file) == ("NQX510", "warning", OWN_FILE)
    assert warning.hint.parts[1:] == (Keyword("trust", ["lab.evil"]),)
