"""Bundles and a series on an S3 server on this machine, which moto provides. Needs the extra ``slow``."""

import http.client
import logging
import re
import time
from http.server import BaseHTTPRequestHandler

import fsspec
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from tests.builders import refused
from tests.servers import Server

pytestmark = pytest.mark.slow

STATE = {"w": jnp.arange(300_000.0), "b": np.arange(5), "n": 3}
URL = "s3://bucket/run/ckpt"


class Requests(logging.Handler):
    """The requests that the server has answered: methods and paths."""

    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        found = re.search(r"(GET|PUT|HEAD|POST|DELETE) (\S+) HTTP", record.getMessage())
        if found:
            self.found.append(found.groups())


@pytest.fixture(scope="module")
def server():
    from moto import server as moto_server
    from s3fs import S3FileSystem

    logging.getLogger("werkzeug").setLevel(logging.INFO)
    held = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    held.start()
    host, port = held.get_host_and_port()
    options = {
        "key": "AKIDFORTESTS",
        "secret": "hunter2hunter2",
        "endpoint_url": f"http://{host}:{port}",
        "config_kwargs": {"retries": {"max_attempts": 0}},
    }
    S3FileSystem(**options).mkdir("bucket")
    yield options
    held.stop()


@pytest.fixture
def requests(server):
    handler = Requests()
    logging.getLogger("werkzeug").addHandler(handler)
    yield handler.found
    logging.getLogger("werkzeug").removeHandler(handler)


def same(a, b):
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)


def test_bundles(server, requests):
    given = {"storage_options": server}
    assert str(s.export(STATE, URL, **given)) == URL
    del requests[:]
    one = s.load(URL, select="path:b", **given)
    assert one["w"] is None and one["b"].tolist() == [0, 1, 2, 3, 4]
    assert [method for method, _ in requests] == ["GET", "GET"]
    same(s.load(URL, **given), STATE)
    assert s.load(URL, abstract=True, **given)["w"].shape == (300_000,)
    with refused(s.SerializationError, "NQX431"):
        s.export(STATE, URL, **given)
    s.export({**STATE, "n": 4}, URL, overwrite=True, **given)
    assert s.load(URL, **given)["n"] == 4
    files = fsspec.filesystem("s3", **server).ls("bucket/run/ckpt", refresh=True)
    assert len(files) == 2
    assert s.verify(URL, **given) == s.validate(URL, **given) == []
    assert s.inspect(URL, **given).arrays == 2
    for out in ("s3://bucket/run/copy", "s3://bucket/run/ckpt.zip"):
        s.convert(URL, out, **given)
        assert s.verify(out, **given) == [] and s.diff_values(URL, out, **given).equal


def test_migrations(server, tmp_path):
    given = {"storage_options": server}
    schema = s.load_schema("schemas/vmc_state")
    s.convert("tests/golden/format-1/vmc_state_1", "s3://bucket/v/one", **given)
    assert type(schema.load("s3://bucket/v/one", **given)) is schema.VMCState
    for out in ("s3://bucket/v/two", tmp_path / "two"):
        s.migrate("s3://bucket/v/one", out, schema=schema, **given)
        assert s.validate(out, schema, **given) == s.verify(out, **given) == []


def test_a_manager_of_orbax_that_was_copied(server, requests, tmp_path):
    """Tensorstore does not take keys, so each file of an item is fetched once. The folder migrates with metrics and best step."""
    import orbax.checkpoint as ocp

    from neuralqx_struct.integrations.orbax import StructSave

    schema = s.load_schema("schemas/vmc_state")
    old = schema.at(1).load("tests/golden/format-1/vmc_state_1")
    options = ocp.CheckpointManagerOptions(best_fn=lambda found: found["energy"], best_mode="min")
    with ocp.CheckpointManager(tmp_path / "m", options=options) as manager:
        for step, energy in enumerate([-2.0, -1.0]):
            items = {"state": StructSave(old), "big": StructSave(STATE)}
            args = ocp.args.Composite(**items)
            manager.save(step, args=args, metrics={"energy": energy})
    given = {"storage_options": server}
    files = fsspec.filesystem("s3", **server)
    files.put(str(tmp_path / "m"), "bucket/m", recursive=True)
    same(s.load("s3://bucket/m/1/big", **given), STATE)
    del requests[:]
    assert s.load("s3://bucket/m/1/big", select="path:b", **given)["b"].tolist() == [0, 1, 2, 3, 4]
    asked = [path for method, path in requests if method == "GET"]
    assert len(asked) == len(requests)
    fetched = sorted(path for path in asked if "?" not in path)
    assert len(asked) == len(fetched) + 1  # and one listing
    arrays = files.find("bucket/m/1/big/arrays.orbax")
    assert fetched == sorted(f"/{path}" for path in [*arrays, "bucket/m/1/big/manifest.json"])
    schema.load("s3://bucket/m/1/state", **given)
    files.rm("bucket/m/0/big", recursive=True)
    files.rm("bucket/m/1/big", recursive=True)
    for out in ("s3://bucket/m2", tmp_path / "m2"):
        done = s.migrate_all("s3://bucket/m", out, schema=schema, **given)
        assert {item.state for item in done.items} == {"migrated"}, str(done.diagnostics)
    files.get("bucket/m2/", str(tmp_path / "m3"), recursive=True)
    for place in ("m2", "m3"):
        with ocp.CheckpointManager(tmp_path / place, options=options) as manager:
            assert (manager.best_step(), manager.latest_step()) == (0, 1)
        assert schema.load(tmp_path / place / "1/state") == schema.load(tmp_path / "m/1/state")


def test_a_series_and_two_writers(server):
    first, second = (
        s.Series("s3://bucket/series", keep_last=2, storage_options=server) for _ in range(2)
    )
    for step in range(4):
        (first, second)[step % 2].save(step, np.full(3, step), {"energy": -step})
    assert first.steps() == second.steps() == [2, 3]
    assert second.load()[0] == 3
    with refused(s.SerializationError, "NQX431"):
        first.save(3, np.zeros(3))


def test_errors_name_the_url_and_no_key(server):
    given = {"storage_options": {**server, "endpoint_url": "http://127.0.0.1:9"}}
    for work in (lambda: s.load(URL, **given), lambda: s.export(1, URL, **given)):
        with pytest.raises(s.SerializationError, match="s3://bucket/run/ckpt") as caught:
            work()
        assert "hunter2" not in str(caught.value) and "AKIDFORTESTS" not in str(caught.value)
    with pytest.raises(s.SerializationError, match="s3://nowhere/ckpt"):
        s.export(STATE, "s3://nowhere/ckpt", storage_options=server)


# Faults


class Proxy:
    """A server between the client and the S3 server; request number ``at`` has the fault."""

    def __init__(self, host, port):
        self.at, self.fault, self.count, self.hit = -1, "", 0, None
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                at, proxy.count = proxy.count, proxy.count + 1
                key = self.command, self.path, self.headers.get("Range")
                proxy.hit = key if at == proxy.at else proxy.hit
                # Clients ask again where a connection was lost; a PUT arrives the second time.
                again = key == proxy.hit and self.command != "PUT"
                fault = proxy.fault if at == proxy.at or again else ""
                if fault == "half" and self.command == "PUT":
                    self.rfile.read(size // 2)
                    return self.stop()
                body = self.rfile.read(size)
                if fault == "timeout":
                    time.sleep(1)
                    return self.stop()
                if fault == "refused":
                    return self.reply(500, {}, b"<Error><Code>InternalError</Code></Error>")
                there = http.client.HTTPConnection(host, port)
                there.request(self.command, self.path, body, dict(self.headers))
                found = there.getresponse()
                data = found.read()
                if fault == "lost":
                    return self.stop()
                return self.reply(found.status, dict(found.headers), data, half=fault == "half")

            def reply(self, status, headers, data, half=False):
                size = headers.pop("Content-Length", len(data))
                self.send_response(status)
                for name, text in {**headers, "Content-Length": size}.items():
                    if name.lower() not in ("connection", "transfer-encoding", "server", "date"):
                        self.send_header(name, text)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data[: len(data) // 2] if half else data)
                if half:
                    self.stop()

            def stop(self):
                self.close_connection = True

            def log_message(self, *_):
                pass

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

        self.server = Server(Handler)
        self.url = self.server.url


@pytest.fixture(scope="module")
def proxy(server):
    from s3fs import S3FileSystem

    host, port = server["endpoint_url"].removeprefix("http://").split(":")
    made = Proxy(host, int(port))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(S3FileSystem, "retries", 1)
        with made.server:
            yield made


BEFORE = {"w": np.arange(50.0), "n": 1}
AFTER = {"w": np.arange(60.0), "n": 2}
OTHER, TARGET, ROOT = "s3://bucket/f/other", "s3://bucket/f/target", "s3://bucket/f/series"
SCHEMA = s.load_schema("schemas/vmc_state")


def raised(found):
    if found:
        raise s.SerializationError(found)


def stepped(given):
    s.Series(ROOT, keep_last=2, **given).save(3, AFTER)


WORKS = {
    "export": lambda given: s.export(AFTER, URL, overwrite=True, **given),
    "new": lambda given: s.export(AFTER, TARGET, **given),
    "load": lambda given: same(s.load(URL, **given), BEFORE),
    "select": lambda given: s.load(URL, select="path:w", **given),
    "verify": lambda given: raised(s.verify(URL, **given)),
    "convert": lambda given: s.convert(OTHER, URL, overwrite=True, store="safetensors", **given),
    "copy": lambda given: s.convert(OTHER, URL, overwrite=True, **given),
    "migrate": lambda given: s.migrate("s3://bucket/f/v1", TARGET, schema=SCHEMA, **given),
    "series": stepped,
}


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("fault", ["timeout", "refused", "half", "lost"])
def test_a_fault_at_any_request_leaves_the_old_bundle_or_the_new_one(server, proxy, work, fault):
    sound = {"storage_options": server}
    config = {"retries": {"max_attempts": 0}, "read_timeout": 0.4}
    faulty = {**server, "endpoint_url": proxy.url, "config_kwargs": config}
    files = fsspec.filesystem("s3", **server)
    s.export(AFTER, OTHER, overwrite=True, **sound)
    if not files.exists("bucket/f/v1"):
        s.convert("tests/golden/format-1/vmc_state_1", "s3://bucket/f/v1", **sound)
    failed = 0
    for at in range(40):
        proxy.at = -1
        files.invalidate_cache()
        for place in ("bucket/run", "bucket/f/target", "bucket/f/series"):
            if files.exists(place):  # array files stay where the end of a commit is not known
                files.rm(place, recursive=True)
        s.export(BEFORE, URL, **sound)
        for step in (1, 2) if work == "series" else ():
            s.Series(ROOT, **sound).save(step, BEFORE)
        proxy.count, proxy.at, proxy.fault, proxy.hit = 0, at, fault, None
        try:
            WORKS[work]({"storage_options": faulty})
        except s.SerializationError as error:
            failed += 1
            assert len(error.diagnostics) == 1, str(error)
            assert "hunter2" not in str(error)
        proxy.at, proxy.hit = -1, None
        found = s.load(URL, **sound)
        same(found, AFTER if found["n"] == 2 else BEFORE)
        assert not [d for d in s.verify(URL, **sound) if d.severity == "error"]
        files.invalidate_cache()
        if files.exists("bucket/f/target/manifest.json"):
            assert s.verify(TARGET, **sound) == []
        if work == "series":
            series = s.Series(ROOT, **sound)
            assert series.steps() in ([1, 2], [1, 2, 3], [2, 3])
            for step in series.steps():
                same(series.load(step), AFTER if step == 3 else BEFORE)
        if proxy.count <= at:
            break
    assert proxy.count <= at and failed
