"""Bundles behind URLs: which requests each operation makes, and that faults leave the old bundle or the new one."""

import functools
import threading

import fsspec
import jax.numpy as jnp
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import neuralqx_struct as s

STATE = {"w": jnp.arange(4000.0), "b": np.arange(5), "e": np.zeros((0, 2)), "n": 3}
URL = "memory://bucket/run/ckpt"
REQUESTS = ("cat_file", "pipe_file", "put_file", "cp_file", "rm_file", "ls", "info")


class Server:
    """The file system in memory: lists requests; ``fault`` may answer them."""

    def __init__(self, monkeypatch):
        self.files = fsspec.filesystem("memory")
        self.files.store.clear()
        self.asked = []
        self.fault = None
        self._local = threading.local()
        for name in REQUESTS:
            monkeypatch.setattr(MemoryFileSystem, name, self.counted(name))

    def counted(self, name):
        real = getattr(MemoryFileSystem, name)

        @functools.wraps(real)
        def request(files, *given, **options):
            if getattr(self._local, "busy", False):  # one request makes another
                return real(files, *given, **options)
            target = given[1] if name in ("put_file", "cp_file") else given[0]
            self.asked.append((name, target.rpartition("/")[2]))
            self._local.busy = True
            try:
                answer = functools.partial(real, files, *given, **options)
                return answer() if self.fault is None else self.fault(name, answer, given)
            finally:
                self._local.busy = False

        return request

    def during(self, work):
        """The requests of some work, array files by one name; and its result."""
        del self.asked[:]
        result = work()
        names = [(name, "A" if file.startswith("arrays") else file) for name, file in self.asked]
        return names, result

    def names(self):
        return sorted(self.files.store)


@pytest.fixture
def server(monkeypatch):
    yield Server(monkeypatch)
    fsspec.filesystem("memory").store.clear()


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert np.array_equal(a[name], b[name]), name


NEW = [
    ("ls", "ckpt"),
    ("put_file", "A"),
    ("info", "A"),
    ("cat_file", "manifest.json"),
    ("pipe_file", "manifest.json"),
]
MANIFEST = ("cat_file", "manifest.json")
ARRAYS = ("cat_file", "A")


def test_the_requests_of_each_operation(server):
    asked, place = server.during(lambda: s.export(STATE, URL))
    assert (asked, str(place)) == (NEW, URL)
    asked, back = server.during(lambda: s.load(URL))
    assert asked == [MANIFEST, ARRAYS]
    same(back, STATE)
    asked, one = server.during(lambda: s.load(URL, select="path:b"))
    assert asked == [MANIFEST, ARRAYS]
    assert one["w"] is None and one["b"].tolist() == [0, 1, 2, 3, 4]
    asked, shapes = server.during(lambda: s.load(URL, abstract=True))
    assert asked == [MANIFEST] and shapes["w"].shape == (4000,)
    asked, found = server.during(lambda: s.validate(URL))
    assert (asked, found) == ([MANIFEST, ("ls", "ckpt")], [])
    looked = ("info", "manifest.json")
    asked, found = server.during(lambda: s.verify(URL))
    assert (asked, found) == ([looked, MANIFEST, ("ls", "ckpt"), ARRAYS], [])
    asked, found = server.during(lambda: s.inspect(URL))
    assert asked == [looked, MANIFEST] and found.arrays == 3
    asked, _ = server.during(lambda: s.export({"w": np.ones(2)}, URL, overwrite=True))
    assert asked == [*NEW, ("rm_file", "A")]
    assert len(server.names()) == 2
    asked, _ = server.during(lambda: s.export(3, URL, overwrite=True))
    assert asked == [NEW[0], *NEW[3:], ("rm_file", "A")]
    assert server.names() == ["/bucket/run/ckpt/manifest.json"]
