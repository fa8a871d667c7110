"""Reports in a real browser: nothing is cut, loaded or run that is not of the page, and the search field filters.

Needs Debian's `chromium`: `pytest -m browser`.
"""

import itertools
import json
import os
import subprocess

import numpy as np
import pytest

import neuralqx_struct as s
from tests.builders import ROOT

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=document.title=1>\u202e"


class Browser:
    """A browser that is steered through two pipes by the DevTools protocol."""

    def __init__(self, folder):
        commands, self._write = os.pipe()
        self._read, events = os.pipe()
        shell = 'exec 3<&"$1" 4>&"$2"; shift 2; exec chromium "$@"'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={folder}"]
        words = ["bash", "-c", shell, "-", str(commands), str(events), *flags]
        self._process = subprocess.Popen(
            words, pass_fds=(commands, events), stderr=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(events)
        self._numbers = itertools.count(1)
        self._data = b""
        self.events = []
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        number = next(self._numbers)
        session = {} if self._session is None else {"sessionId": self._session}
        message = {"id": number, "method": method, "params": params, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("id") == number:
                assert "result" in found, found
                return found["result"]
            self.events.append(found)

    def _message(self):
        while b"\0" not in self._data:
            more = os.read(self._read, 1 << 16)
            assert more, "the browser ended"
            self._data += more
        line, _, self._data = self._data.partition(b"\0")
        return json.loads(line)

    def open(self, path, width, colours):
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": colours}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"][
            "value"
        ]

    def troubles(self):
        found = [
            e for e in self.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
        ]
        requests = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return found + requests[1:]  # the first is the page

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    layers = {
        f"layer{i}": {"kernel": rng.normal(size=(32, 64)), "bias": np.zeros(64)} for i in range(40)
    }
    state = {"params": layers, HOSTILE: np.full(9, np.nan), "step": 3}
    ckpt = s.export(state, folder / "ckpt", metadata={HOSTILE: HOSTILE})
    other = s.export(
        {**state, "params": {**layers, "layer0": {"bias": np.ones(64)}}}, folder / "other"
    )
    many = s.export({f"a{i}": np.full(4, i, "float32") for i in range(10_000)}, folder / "many")
    reports = {
        "checkpoint": s.report(ckpt),
        "schema": s.report(ROOT / "schemas" / "vmc_state"),
        "golden": s.report(ROOT / "tests" / "golden" / "format-1" / "vmc_state_1"),
        "two": s.report(ckpt, other),
        "many": s.report(many),
    }
    for name, page in reports.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("name", ["checkpoint", "schema", "golden", "two", "many"])
def test_nothing_is_cut_loaded_or_run(browser, pages, name, width, colours):
    browser.open(pages / f"{name}.html", width, colours)
    assert browser.troubles() == []
    assert browser.value("document.title") != "1"
    assert browser.value("document.documentElement.scrollWidth") <= width
    cut = """[...document.querySelectorAll('h1, h2, h3, p, li, .fact, svg, nav, input, pre')]
        .filter((each) => !each.closest('.wide'))  // which scrolls
        .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).length"""
    assert browser.value(cut) == 0
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[colours]


def test_the_search_field_filters_ten_thousand_rows(browser, pages):
    browser.open(pages / "many.html", 1300, "light")
    shown = """(() => {
        const field = document.querySelector('input[type=search]');
        field.value = 'A99'; field.dispatchEvent(new Event('input'));
        return [...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).length;
    })()"""
    assert browser.value(shown) == 111  # a99, a990 to a999, a9900 to a9999
