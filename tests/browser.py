"""A real browser, for tests that are marked `browser`: Debian's `chromium`."""

import itertools
import json
import os
import subprocess

import pytest

#: Windows as narrow as a phone and as wide as a screen; colours move nothing.
in_windows = pytest.mark.parametrize(("width", "colours"), [(390, "light"), (1300, "dark")])


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

    def open(self, address, width, colours):
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
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def value(self, expression, **options):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, **options)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

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
