"""Servers that send other bytes than were asked for, more, or to another host: errors, and no memory is filled."""

import re
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

import numpy as np
import pytest

from neuralqx_struct import formats
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.formats.orbax_remote import driver_of
from neuralqx_struct.places import http
from neuralqx_struct.places.urls import located
from tests.builders import bounded, refused
from tests.servers import Server

DATA = np.random.default_rng(0).integers(0, 2**31, 100_000, dtype="i4")
MIB = bytes(1 << 20)


class Handler(BaseHTTPRequestHandler):
    """Serves one file; the folder in the path names the fault."""

    protocol_version = "HTTP/1.1"
    sent = 0

    def log_message(self, *given):
        pass

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.data)))
        self.end_headers()

    def do_GET(self):
        data, fault = self.server.data, self.path.split("/")[1]
        self.server.asked.append((self.path, dict(self.headers)))
        if fault == "moved":
            self.send_response(302)
            self.send_header("Location", self.server.elsewhere)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if "Range" not in self.headers:
            self.page(fault)
            return
        start, end = map(int, re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        end = min(end + 1, len(data))
        if fault == "endless":
            self.endless(MIB)
        if fault == "whole":
            self.send_response(200)
            start, end = 0, len(data)
        else:
            self.send_response(206)
            start -= 64 if fault == "shifted" and start else 0
            if fault != "unnamed":
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.wfile.write(data[start:end])

    def endless(self, piece):
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        while True:
            self.wfile.write(piece)
            self.server.sent += len(piece)

    def page(self, fault):
        if fault == "endless":
            self.endless(b'<a href="x">' * 65_536)
        page = PAGES.get(fault, "").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


PAGES = {
    "folder": """<a href="../">up</a> <a class='x' HREF='arrays.npz'>a</a> <a href="d/">d</a>
        <a href="/folder/b?size=1#top">b</a> <a href="http://other/folder/c">c</a> <a href="../e">e</a> <a href="//[">f</a>""",
    "slow": "<a" + " " * 1_000_000 + '><a href="w">',
    "deep": '<a href="d1/">a</a><a href="d2/">b</a><a href="f">c</a>',
}


@pytest.fixture
def server(tmp_path):
    yield from serving(tmp_path)


@pytest.fixture
def another(tmp_path):
    yield from serving(tmp_path / "another")


def serving(folder):
    folder.mkdir(exist_ok=True)
    path = formats.write(folder / "m.safetensors", "safetensors", {"w": DATA})
    with Server(Handler) as held:
        held.data, held.sent, held.asked = path.read_bytes(), 0, []
        yield held


def url_of(server, fault):
    return f"{server.url}/{fault}/m.safetensors"


def test_ranges_are_read(server):
    with formats.opened(url_of(server, "sound")) as file:
        assert np.array_equal(file.arrays["w"].read(), DATA)
        assert np.array_equal(file.arrays["w"].part((slice(5, 8),)), DATA[5:8])


@pytest.mark.parametrize("fault", ["shifted", "unnamed", "whole", "endless"])
def test_other_bytes_are_refused(server, fault):
    with (
        bounded(),
        pytest.raises(SerializationError),
        formats.opened(url_of(server, fault)) as file,
    ):
        file.arrays["w"].read()


def test_no_more_than_was_asked_for_is_taken(server):
    place = located(url_of(server, "endless"))
    with bounded():
        assert place.opening(1000) == bytes(1000)
    assert server.sent < 64 << 20


def test_a_file_that_is_not_there(server, monkeypatch):
    def missing(self):
        self.send_error(404)

    monkeypatch.setattr(Handler, "do_GET", missing)
    place = located(url_of(server, "sound"))
    assert http.is_http(place.files)
    with pytest.raises(FileNotFoundError):
        place.opening(10)


class Auth(NamedTuple):
    """As aiohttp's BasicAuth, which its newest release gives up."""

    def encode(self):
        return "Basic dG9wc2VjcmV0OnRvcHNlY3JldA=="


AUTH = Auth()


def test_the_page_of_a_folder(server):
    place = located(f"{server.url}/folder")
    assert place.names() == {"arrays.npz", "d", "b"}
    assert {path.name for path in place.iterdir() if path.is_dir()} == {"d"}
    assert located(f"{server.url}/slow").names() == {"w"}


@pytest.mark.parametrize("call", ["names", "files_below"])
def test_pages_without_end_are_refused(server, call):
    place = located(f"{server.url}/endless")
    with bounded(), refused(SerializationError, "NQX401"):
        getattr(place, call)()
    assert server.sent < 128 << 20


def test_folders_without_end_are_refused(server, monkeypatch):
    monkeypatch.setattr(http, "_MOST_FOLDERS", 50)
    place = located(f"{server.url}/deep")
    with refused(SerializationError, "NQX401", "50"):
        place.files_below()
    assert len(server.asked) < 100


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"X-Token": "topsecret"}},
        {"client_kwargs": {"headers": {"X-Token": "topsecret"}}},
        {"client_kwargs": {"cookies": {"token": "topsecret"}}},
        {"client_kwargs": {"auth": AUTH}},
    ],
    ids=str,
)
@pytest.mark.parametrize("what", ["file", "folder"])
def test_another_host_gets_no_secrets(server, another, options, what):
    server.elsewhere = url_of(another, "folder")
    place = located(url_of(server, "moved"), options)
    if what == "file":
        assert place.opening(100) == another.data[:100]
        assert another.asked[0][1]["Range"] == "bytes=0-99"
    else:
        place.names()
    secret = re.compile("topsecret|dG9wc2VjcmV0")  # in base 64 too
    assert secret.search(str(server.asked)) and not secret.search(str(another.asked))


def test_the_same_host_gets_them_again(server):
    server.elsewhere = "/sound/m.safetensors"
    options = {"client_kwargs": {"headers": {"X-Token": "topsecret"}}}
    assert located(url_of(server, "moved"), options).opening(9) == server.data[:9]
    assert [headers.get("X-Token") for _, headers in server.asked] == ["topsecret"] * 2


def test_answers_of_other_file_systems_that_are_too_long(monkeypatch):
    """Their packages take an answer whole; one that is longer than was asked for is no data."""
    from fsspec.implementations.memory import MemoryFileSystem

    data = bytes(range(200))
    MemoryFileSystem().pipe_file("/long/w", data)
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *given, **options: data)
    place = located("memory://long/w")
    assert place.opening(10) == data[:10] and place.content(5) == data[:5]
    with refused(SerializationError, "NQX408"):
        place.fetched(10, 20)


def test_options_of_the_user_are_told_from_ours():
    """Tensorstore reads a folder behind http by itself, where nobody has given options that it does not know."""
    url = "http://127.0.0.1:9/folder"
    assert driver_of(located(url))["driver"] == "http"
    assert driver_of(located(url, {"headers": {"X-Token": "topsecret"}})) is None
