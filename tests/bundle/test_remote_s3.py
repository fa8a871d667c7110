"""Bundles and a series on an S3 server on this machine, which moto provides. Needs the extra ``slow``."""

import logging
import re

import fsspec
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s

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
    with pytest.raises(s.SerializationError, match="got an existing one"):
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


def test_a_series_and_two_writers(server):
    first, second = (
        s.Series("s3://bucket/series", keep_last=2, storage_options=server) for _ in range(2)
    )
    for step in range(4):
        (first, second)[step % 2].save(step, np.full(3, step), {"energy": -step})
    assert first.steps() == second.steps() == [2, 3]
    assert second.load()[0] == 3
    with pytest.raises(s.SerializationError, match="got an existing one"):
        first.save(3, np.zeros(3))


def test_errors_name_the_url_and_no_key(server):
    given = {"storage_options": {**server, "endpoint_url": "http://127.0.0.1:9"}}
    for work in (lambda: s.load(URL, **given), lambda: s.export(1, URL, **given)):
        with pytest.raises(s.SerializationError, match="s3://bucket/run/ckpt") as caught:
            work()
        assert "hunter2" not in str(caught.value) and "AKIDFORTESTS" not in str(caught.value)
    with pytest.raises(s.SerializationError, match="s3://nowhere/ckpt"):
        s.export(STATE, "s3://nowhere/ckpt", storage_options=server)
