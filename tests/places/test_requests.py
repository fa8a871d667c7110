"""Downloads: they stay in their folder, and start only if the disk has room."""

import shutil
from collections import namedtuple

import pytest

from neuralqx_struct.errors import UntrustedError
from neuralqx_struct.places.disk import BundleReadError
from neuralqx_struct.places.requests import download_tree, downloaded
from neuralqx_struct.places.urls import located
from tests.builders import refused

Usage = namedtuple("Usage", "total used free")


def folder_of(**named):
    place = located("memory://requests/folder")
    for name, data in named.items():
        place.files.pipe_file(f"{place.place}/{name}", data)
    return place


@pytest.fixture(autouse=True)
def emptied():
    yield
    located("memory://requests").files.store.clear()


def test_a_folder_is_downloaded(tmp_path):
    download_tree(
        folder_of(**{"a": b"1", "d/b": b"22", "left/c": b"3"}), tmp_path / "out", {"left"}
    )
    found = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {"out/a", "out/d/b"} and (tmp_path / "out/d/b").read_bytes() == b"22"


@pytest.mark.parametrize("name", ["../evil", "d/../../evil", "./evil", "../out/evil"])
def test_a_name_that_leads_elsewhere_is_refused(name, tmp_path):
    with refused(UntrustedError, "NQX503"):
        download_tree(folder_of(**{"a": b"1", name: b"2"}), tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]


@pytest.mark.parametrize("folder", [True, False])
def test_nothing_is_downloaded_without_room_for_it(folder, tmp_path, monkeypatch):
    place = folder_of(a=bytes(600), b=bytes(600))
    free = 1100 if folder else 599
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10_000, 10_000 - free, free))
    monkeypatch.setattr(type(place), "fetched", None)
    with refused(BundleReadError, "NQX401", free):
        downloaded(place if folder else place / "a", folder=folder)
