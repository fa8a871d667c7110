"""Files of systems and editors: ignored wherever a folder is read, and gone with the folder that is replaced."""

import stat
import tempfile
from pathlib import Path

import fsspec
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import cli, formats
from neuralqx_struct.places.names import is_hidden
from tests.builders import refused

CLUTTER = ("._{}", ".#{}", "{}~", "#{}#", "Thumbs.db", "ehthumbs.db", "Desktop.ini", ".nfs00ab")
TEXT = """\
language: "1"
schema: lab.r
version: {}
root: R
structs: {{R: {{fields: {{x: int}}}}}}
"""


def litter(folder, name):
    """Fills a folder with files of systems and editors; returns their names."""
    made = [each.format(name) for each in (*CLUTTER, ".DS_Store")]
    for each in made:
        (folder / each).write_bytes(b"\x00\xff")
    return {*made}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_names():
    hidden = {each.format("v1.yaml") for each in CLUTTER}
    assert all(map(is_hidden, hidden))
    assert not any(map(is_hidden, ["v1.yaml", "thumbs.db.npz", "a~b", "#1", "c#", "arrays.npz"]))


@pytest.mark.parametrize("kind", ["bundle", "step", "background"])
def test_a_bundle_is_replaced_with_the_files_of_systems_in_it(tmp_path, kind):
    run = s.Series(tmp_path)
    path = run.save(1, {"w": np.zeros(2)})
    left = litter(path, "manifest.json")
    assert s.load(path)["w"].tolist() == [0, 0] and s.verify(path) == [] and run.steps() == [1]
    if kind == "bundle":
        s.export({"w": np.ones(2)}, path, overwrite=True)
    else:
        saved = run.save(1, {"w": np.ones(2)}, overwrite=True, asynchronous=kind == "background")
        assert kind == "step" or saved.wait() == path
    assert s.load(path)["w"].tolist() == [1, 1]
    assert left.isdisjoint(names(path)) and names(tmp_path) == ["1"]


def test_the_records_of_version_control_are_kept(tmp_path):
    path = s.export(1, tmp_path / "ckpt")
    (path / ".git").mkdir()
    with refused(FileExistsError, "NQX431", ".git"):
        s.export(2, path, overwrite=True)
    (tmp_path / "empty/.git").mkdir(parents=True)
    with refused(FileExistsError, "NQX431", "manifest.json"):
        s.export(2, tmp_path / "empty")


def test_behind_a_url(memory_files):
    s.export({"w": np.zeros(2)}, "memory://names/a")
    for each in CLUTTER:
        memory_files.pipe_file(f"/names/a/{each.format('manifest.json')}", b"\xff")
    assert s.verify("memory://names/a") == []
    s.export({"w": np.ones(2)}, "memory://names/a", overwrite=True)
    assert s.load("memory://names/a")["w"].tolist() == [1, 1]


@pytest.fixture
def memory_files():
    files = fsspec.filesystem("memory")
    yield files
    if files.exists("/names"):
        files.rm("/names", recursive=True)


def test_folders_of_schemas(tmp_path, capsys):
    for version in (1, 2):
        (tmp_path / "r").mkdir(exist_ok=True)
        text = TEXT.format(version)
        more = "migrations: [{from: 1, steps: []}]\n" if version == 2 else ""
        (tmp_path / f"r/v{version}.yaml").write_text(text + more)
    litter(tmp_path / "r", "v1.yaml")
    litter(tmp_path / "r", "v2.yaml")
    (tmp_path / "r/.#v3.yaml").symlink_to("me@host.1234")  # as Emacs makes
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints/v1.yaml").write_text("no schema")
    assert s.load_schema(tmp_path / "r").versions == (1, 2)
    assert cli.call(["schema", "lint", str(tmp_path)]) == 0
    assert cli.call(["breaking", str(tmp_path), "--against", str(tmp_path)]) == 0
    assert ".yaml" not in capsys.readouterr().err


def test_folders_of_foreign_files(tmp_path):
    formats.write(
        tmp_path / "m", "safetensors", {"w": np.ones(4), "v": np.ones(4)}, max_shard_size=40
    )
    left = litter(tmp_path / "m", "model.safetensors")
    with formats.opened(tmp_path / "m") as file:
        assert sorted(file.arrays) == ["v", "w"]
    formats.write(
        tmp_path / "m", "safetensors", {"w": np.ones(2)}, max_shard_size=40, overwrite=True
    )
    assert left.isdisjoint(names(tmp_path / "m"))


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("clutter", [False, True])
def test_an_empty_folder_is_a_free_place(overwrite, clutter):
    path = Path(tempfile.mkdtemp())
    if clutter:
        litter(path, "ckpt")
    s.export([1, 2], path, overwrite=overwrite)
    assert s.load(path) == [1, 2] and names(path.parent).count(path.name) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert not any(map(is_hidden, names(path)))
    with refused(FileExistsError, "NQX431"):
        s.export([3], path)


def test_commands_take_an_empty_folder(tmp_path):
    path = s.export([1, 2], tmp_path / "a")
    (tmp_path / "b").mkdir()
    assert cli.call(["convert", str(path), "--out", str(tmp_path / "b")]) == 0
    assert s.load(tmp_path / "b") == [1, 2]


def test_a_folder_in_use_is_no_free_place(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/notes").touch()
    for overwrite in (False, True):
        with pytest.raises(FileExistsError) as info:
            s.export(1, tmp_path / "a", overwrite=overwrite)
        assert "overwrite" not in info.value.diagnostics[0].hint
    (tmp_path / "b.zip").mkdir()
    with pytest.raises(FileExistsError):
        s.export(1, tmp_path / "b.zip")
    assert names(tmp_path) == ["a", "b.zip"]


def test_the_working_directory_cannot_be_replaced(tmp_path, monkeypatch):
    path = s.export(1, tmp_path / "ckpt")
    monkeypatch.chdir(path)
    for name in (".", "", "..", Path()):
        with refused(s.SerializationError, "NQX431") as info:
            s.export(2, name, overwrite=True)
        assert info.value.diagnostics[0].file == str(Path(name))
    assert s.load(".") == 1 and names(tmp_path) == ["ckpt"]


@pytest.mark.parametrize("path", ["~/ckpt", "~", "~me/ckpt", Path("~/ckpt")])
def test_a_tilde_is_refused_with_its_fix(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = (lambda: s.export(1, path), lambda: s.load(path), lambda: s.Series(path))
    for call in (*calls, lambda: s.load_schema(str(path))):
        with pytest.raises(s.StructError) as info:
            call()
        assert "expanduser" in info.value.diagnostics[0].hint
    assert names(tmp_path) == []
