"""Servers of http that send other bytes than were asked for, or more: errors, and no memory is filled."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from neuralqx_struct import formats
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.places import http
from neuralqx_struct.places.urls import located
from tests.builders import bounded

pytest.importorskip("aiohttp")

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
        start, end = map(int, re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        end = min(end + 1, len(data))
        if fault == "endless":
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            while True:
                self.wfile.write(MIB)
                self.server.sent += len(MIB)
        if fault == "whole":
            self.send_response(200)
            start, end = 0, len(data)
        else:
            self.send_response(206)
            start -= 64 if fault == "shifted" and start else 0
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.wfile.write(data[start:end])


@pytest.fixture
def server(tmp_path):
    path = formats.write(tmp_path / "m.safetensors", "safetensors", {"w": DATA})
    held = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    held.handle_error = lambda *given: None  # the client closes the connection
    held.daemon_threads = True
    held.data, held.sent = path.read_bytes(), 0
    threading.Thread(target=held.serve_forever, daemon=True).start()
    yield held
    held.shutdown()
    held.server_close()


def url_of(server, fault):
    return f"http://127.0.0.1:{server.server_port}/{fault}/m.safetensors"


def test_ranges_are_read(server):
    with formats.opened(url_of(server, "sound")) as file:
        assert np.array_equal(file.arrays["w"].read(), DATA)
        assert np.array_equal(file.arrays["w"].part((slice(5, 8),)), DATA[5:8])


@pytest.mark.parametrize("fault", ["shifted", "whole", "endless"])
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
