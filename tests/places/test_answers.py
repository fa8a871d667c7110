"""S3 and Google Cloud Storage, on a server of this machine: requested bytes come, and endless answers end."""

import re
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.formats.orbax_remote import driver_of
from neuralqx_struct.places import answers
from neuralqx_struct.places.urls import located
from tests.builders import bounded, refused
from tests.servers import Answers, Server

MOST = 1 << 20


class Handler(Answers):
    """A store that can only be read; the name of the bucket is the fault."""

    def do_GET(self):
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        fault = "endless" if "/endless" in url.path else url.path.split("/")[1]
        if "list-type" in query or url.path.endswith("/o"):
            self.listing(fault, query)
        else:
            self.object(fault, url.path.split("/", 2)[2])

    def object(self, fault, key):
        if fault == "sound" and key not in self.server.objects:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        data = self.server.objects.get(key, bytes(5000))
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if fault == "endless":
            return self.endless(206 if asked else 200, {})
        if asked is None or fault == "whole":
            return self.answer(200, data)
        end = int(asked[2]) + 1 + (fault == "longer")
        return self.answer(206, data[int(asked[1]) : end])

    def listing(self, fault, query):
        if fault == "endless":
            return self.endless(200, {})
        self.server.pages += 1
        prefix = query["prefix"][0]
        names = [name for name in self.server.objects if name.startswith(prefix)]
        if fault == "pages":  # each names the next
            names = [f"{prefix}{self.server.pages}"]
        listed = "".join(f"<Contents><Key>{name}</Key>{FACTS}</Contents>" for name in names)
        more = f"<IsTruncated>{str(fault == 'pages').lower()}</IsTruncated>"
        token = f"<NextContinuationToken>{self.server.pages}</NextContinuationToken>"
        page = f"<ListBucketResult>{more}{token}{listed}</ListBucketResult>"
        return self.answer(200, page.encode())

    def answer(self, status, data, heads={}):
        super().answer(status, data, {"ETag": '"e"', **heads})


FACTS = '<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"e"</ETag><Size>5000</Size>'


@pytest.fixture
def server():
    with Server(Handler) as held:
        held.objects, held.pages = {}, 0
        yield held


@pytest.fixture
def s3(server):
    return {"endpoint_url": server.url, "key": "AKIDFORTESTS", "secret": "hunter2hunter2"}


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(answers, "_MOST_FACTS", MOST)


def test_a_bundle_of_s3_is_read(server, s3, tmp_path):
    state = {"w": np.arange(300_000.0), "b": np.arange(5), "n": 3}
    s.export(state, tmp_path / "ckpt")
    for path in (tmp_path / "ckpt").iterdir():
        server.objects[f"run/ckpt/{path.name}"] = path.read_bytes()
    loaded = s.load("s3://sound/run/ckpt", storage_options=s3)
    assert loaded["n"] == 3 and np.array_equal(loaded["w"], state["w"])
    part = s.load("s3://sound/run/ckpt", select="path:b", storage_options=s3)
    assert part["w"] is None and part["b"].tolist() == [0, 1, 2, 3, 4]
    names = set(located("s3://sound/run/ckpt", s3).files_below())
    assert names == {path.name for path in (tmp_path / "ckpt").iterdir()}


def test_the_options_of_the_package_are_none_of_the_user():
    assert driver_of(located("s3://sound/run"))["driver"] == "s3"
    assert driver_of(located("s3://sound/run", {"key": "AKIDFORTESTS"})) is None


@pytest.mark.parametrize("fault", ["longer", "whole", "endless"])
def test_no_more_of_an_object_than_was_asked_for_is_taken(s3, fault):
    place = located(f"s3://{fault}/m", s3)
    with bounded(), refused(s.SerializationError, "NQX401", "1000"):
        place.opening(1000)


@pytest.mark.parametrize("fault", ["endless", "pages"])
@pytest.mark.parametrize("work", ["listing", "files_below"])
def test_listings_of_s3_end(server, s3, little, fault, work):
    place = located(f"s3://{fault}/run", s3)
    with bounded(), refused(s.SerializationError, "NQX401", MOST):
        getattr(place, work)()
    assert server.pages <= MOST / (8 << 10)


def test_each_call_has_the_whole_bound(s3, server, little):
    server.objects |= {f"run/{number:0500}": b"" for number in range(1000)}
    place = located("s3://sound/run", s3)
    for _ in range(3):
        assert len(place.listing()) == 1000


def test_what_fsspec_itself_asks_of_a_server_is_bounded(server, little):
    files = located(f"{server.url}/endless/m").files
    with bounded(), refused(OSError, "1000"):
        files.cat_file(f"{server.url}/endless/m", start=0, end=1000)
    with bounded(), refused(OSError, MOST):
        files.cat_file(f"{server.url}/endless/m")


@pytest.mark.slow
def test_google_cloud_storage(server, little, monkeypatch):
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # asks another server
    place = located("gs://endless/m", {"endpoint_url": server.url, "token": "anon"})
    with bounded(), refused(s.SerializationError, "NQX401", 1000):
        place.opening(1000)
    for work in (place.listing, place.files_below):
        with bounded(), refused(s.SerializationError, "NQX401", MOST):
            work()


def test_options_of_the_user_take_the_place_of_the_bounds():
    own = {"config_kwargs": {"http_session_cls": object, "read_timeout": 1}}
    assert answers.bounded("s3://bucket/m", own) == own
