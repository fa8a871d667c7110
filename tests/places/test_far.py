"""Servers whose packages have no bounds, on this machine: requested bytes come, endless answers end, no process is left."""

import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import fsspec
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.places import far, far_process
from neuralqx_struct.places.requests import in_order
from neuralqx_struct.places.urls import located
from tests.builders import bounded, refused
from tests.servers import Answers, Server

#: Options by the protocol of its URLs.
KINDS = ["webhdfs", "simplecache", pytest.param("az", marks=pytest.mark.slow)]
every = pytest.mark.parametrize


class Handler(Answers):
    """Files that can only be read, for the packages of WebHDFS, Azure and http; below ``endless`` no answer ends."""

    def do_GET(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = unquote(url.path)
        if "OPEN" in url.query and self.server.meeting:
            self.server.meeting.wait(20)
        if "/slow" in path:
            time.sleep(60)
        if "/endless" in path or "endless" in query.get("prefix", ""):
            return self.without_end()
        if path.startswith("/webhdfs/v1"):
            return self.webhdfs(path.removeprefix("/webhdfs/v1"), query)
        if path.startswith("/account/"):
            return self.azure(path.removeprefix("/account/bucket"), query)
        data = self.server.objects.get(path)
        return self.answer(404, b"") if data is None else self.part(data, self.headers["Range"])

    def webhdfs(self, path, query):
        data = self.server.objects.get(path)
        if query["op"] == "OPEN":
            start, size = int(query["offset"]), int(query["length"])
            return self.answer(200, data[start : start + size])
        if query["op"] == "GETFILESTATUS":
            if data is None:
                error = {"exception": "FileNotFoundException", "message": path}
                return self.answer(404, json.dumps({"RemoteException": error}).encode())
            return self.answer(200, json.dumps({"FileStatus": facts("", data)}).encode())
        held = [facts(name, data) for name, data in self.server.below(path)]
        return self.answer(200, json.dumps({"FileStatuses": {"FileStatus": held}}).encode())

    def azure(self, path, query):
        if query.get("comp") != "list":
            data = self.server.objects.get(path)
            return (
                self.answer(404, b"")
                if data is None
                else self.part(data, self.headers["x-ms-range"])
            )
        prefix = query.get("prefix", "").strip("/")
        made = "".join(
            f"<Blob><Name>{prefix}/{name}</Name><Properties><Content-Length>{len(data)}</Content-Length>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name, data in self.server.below(f"/{prefix}")
        )
        page = f'<EnumerationResults ContainerName="bucket"><Blobs>{made}</Blobs><NextMarker/></EnumerationResults>'
        return self.answer(200, page.encode(), {"Content-Type": "application/xml"})

    def part(self, data, asked):
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
        if found is None:
            return self.answer(200, data)
        start, end = int(found[1]), min(int(found[2]) + 1, len(data))
        head = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        return self.answer(206, data[start:end], head)

    def without_end(self):
        if self.command == "HEAD":
            return self.answer(404, b"")
        asked = self.headers["x-ms-range"]
        heads = {"Content-Range": f"bytes {asked.removeprefix('bytes=')}/5000"} if asked else {}
        return self.endless(206 if asked else 200, heads)

    def answer(self, status, data, heads={}):
        super().answer(status, data, {"x-ms-blob-type": "BlockBlob", **heads})


def facts(name, data):
    return {"pathSuffix": name, "type": "FILE", "length": len(data)}


class Store(Server):
    def __init__(self):
        super().__init__(Handler)
        self.objects, self.meeting = {}, None

    def below(self, path):
        folder = f"{path.rstrip('/')}/"
        found = {n: d for n, d in self.objects.items() if n.startswith(folder)}
        return [(name.removeprefix(folder), data) for name, data in found.items()]

    def url_of(self, kind, path):
        """The URL and the options of a place."""
        if kind == "az":
            secret = "aHVudGVyMmh1bnRlcjI="
            text = f"AccountName=account;AccountKey={secret};BlobEndpoint=http://127.0.0.1:{self.server_port}/account"
            return f"az://bucket{path}", {"connection_string": text}
        if kind == "webhdfs":
            return f"webhdfs://127.0.0.1:{self.server_port}{path}", {}
        return f"simplecache::{self.url}{path}", {}

    def at(self, kind, path):
        return located(*self.url_of(kind, path))


@pytest.fixture
def server():
    with Store() as held:
        yield held


@every("kind", KINDS)
def test_a_bundle_is_read(server, tmp_path, kind):
    state = {"w": np.arange(300_000.0), "b": np.arange(5), "n": 3}
    s.export(state, tmp_path / "ckpt")
    for path in (tmp_path / "ckpt").iterdir():
        server.objects[f"/run/ckpt/{path.name}"] = path.read_bytes()
    url, options = server.url_of(kind, "/run/ckpt")
    loaded = s.load(url, storage_options=options)
    assert loaded["n"] == 3 and np.array_equal(loaded["w"], state["w"])
    part = s.load(url, select="path:b", storage_options=options)
    assert part["w"] is None and part["b"].tolist() == [0, 1, 2, 3, 4]
    place = located(url, options)
    if kind != "simplecache":  # of which old releases of fsspec make one for each URL
        assert place.files is located(f"{url}/x", options).files  # which a copy on the server needs
    with refused(s.SerializationError, "NQX401", place / "missing"):
        (place / "missing").opening(10)
    if kind != "simplecache":  # the pages of http have no such listing here
        assert set(place.files_below()) == {path.name for path in (tmp_path / "ckpt").iterdir()}


@pytest.fixture
def small_files():
    """No program that starts now may write files of more than 16 MiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def little_memory(tmp_path, monkeypatch):
    """The process that asks servers has an eighth of its memory: endless answers end sooner."""
    program = tmp_path / "far_process.py"
    text = Path(far_process.__file__).read_text(encoding="utf-8")
    assert "\nMEMORY = 1 << 30\n" in text
    program.write_text(
        text.replace("\nMEMORY = 1 << 30\n", "\nMEMORY = 1 << 27\n"), encoding="utf-8"
    )
    far._close()
    monkeypatch.setattr(far_process, "__file__", str(program))
    monkeypatch.setattr(far_process, "MEMORY", 1 << 27)
    yield
    far._close()


@every("kind", KINDS)
@every("work", ["opening", "listing", "files_below"])
def test_an_endless_answer_ends_and_the_next_request_is_answered(
    server, small_files, little_memory, kind, work
):
    server.objects["/run/m"] = bytes(5000)
    place = server.at(kind, "/endless/m")
    limit = "File too large" if kind + work == "simplecacheopening" else "128 MiB"
    with bounded(), refused(s.SerializationError, "NQX401", limit):
        getattr(place, work)(*[1000] * (work == "opening"))
    assert bytes(server.at(kind, "/run/m").opening(1000)) == bytes(1000)


def test_bundles_are_written(tmp_path):
    fsspec.register_implementation("shelf", "tests.places.shelf.Shelf")
    url, state = f"shelf://{tmp_path}/run", {"w": np.arange(1000.0), "n": 3}
    s.export(state, url)
    with refused(s.SerializationError, "NQX431", url):
        s.export(state, url)
    with pytest.raises(FileExistsError):
        located(url).files.pipe_file(f"{tmp_path}/run/manifest.json", b"", mode="create")
    s.export({**state, "n": 4}, url, overwrite=True)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        located(url).names()
    )
    for out in (f"shelf://{tmp_path}/copy", f"shelf://{tmp_path}/copy.zip"):
        s.convert(url, out)
        loaded = s.load(out)
        assert loaded["n"] == 4 and np.array_equal(loaded["w"], state["w"])
        assert s.verify(out) == []
    assert (
        located(url).files.protocol == "shelf" and "shelf" not in fsspec.registry
    )  # not imported here


def test_requests_run_at_the_same_time(server):
    server.objects["/run/m"] = bytes(range(200)) * 100
    place = server.at("webhdfs", "/run/m")
    server.meeting = threading.Barrier(4)  # none is answered before all have come
    reads = [(start, start + 100) for start in range(0, 400, 100)]
    found = [bytes(each) for each in in_order(place.fetched, reads)]
    assert found == [server.objects["/run/m"][start:end] for start, end in reads]


def test_what_needs_no_server_stays_in_this_process(tmp_path):
    class Own(fsspec.AbstractFileSystem):
        protocol = "own"

        def cat_file(self, path, start=None, end=None):
            return b"held"

    fsspec.register_implementation("own", Own)
    fsspec.filesystem("memory").pipe_file("/far/m", b"held")
    for url in ("memory://far/m", "simplecache::memory://far/m", "own://far/m"):
        assert located(url).opening(9) == b"held", url
    (tmp_path / "m").write_bytes(b"held")
    assert located(f"simplecache::file://{tmp_path}/m").opening(9) == b"held"


class Key:
    """An object of this program, which another one cannot unpickle."""

    def __reduce__(self):
        return getattr, (sys.modules[__name__], "Key")


def test_options_that_no_other_process_can_read_are_for_classes_of_the_program(server):
    url, _ = server.url_of("webhdfs", "/run/m")
    server.objects["/run/m"] = bytes(9)
    for value in (lambda url: url, Key()):
        with refused(s.SerializationError, "NQX401", "register_implementation"):
            located(url, {"data_proxy": value})
    assert isinstance(located(url).files, far.FarFileSystem)

    class Own(fsspec.get_filesystem_class("webhdfs")):
        pass

    fsspec.register_implementation("webhdfs", Own, clobber=True)
    place = located(url, {"data_proxy": lambda url: url})
    assert isinstance(place.files, Own) and place.opening(9) == bytes(9)


PROGRAM = """
import os, sys
from neuralqx_struct.places import far
from neuralqx_struct.places.requests import in_order
from neuralqx_struct.places.urls import located
place = located(sys.argv[1])
assert place.opening(9) == bytes(9)
print(far._held[0]._process.pid, flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
if sys.argv[2] == "waits":
    import threading, time
    threading.Thread(target=located(sys.argv[1].replace("/run/", "/slow/")).opening, args=[9], daemon=True).start()
    time.sleep(0.5)
if sys.argv[2] == "forks":
    child = os.fork()
    assert place.opening(9) == bytes(9)
    print(far._held[0]._process.pid, flush=True)
    if child:
        os.waitpid(child, 0)
"""


@every("end", ["ends", "killed", "waits", "forks"])
def test_no_process_is_left(server, end):
    server.objects["/run/m"] = bytes(5000)
    url, _ = server.url_of("webhdfs", "/run/m")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, end], stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == (-9 if end == "killed" else 0)
    pids = {int(each) for each in done.stdout.split()}
    assert len(pids) == (2 if end == "forks" else 1)
    for _ in range(200):
        if not any(map(running, pids)):
            return
        time.sleep(0.05)
    raise AssertionError(pids)


def running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
