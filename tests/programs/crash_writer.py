"""A process that writes bundles and is killed, or refused, at a chosen call to the system; driven by test_crash.py.

Every call of the package by which something reaches the disk goes through :class:`Calls`: each write of a file, and each
fsync, rename, exchange, link, mkdir, unlink and rmdir. The n-th of them kills the process, before it is made or, for
writes, half made; or it fails as on a full disk; or an interrupt comes right before or after it.
"""

import errno
import functools
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from neuralqx_struct import bundle
from neuralqx_struct.errors import StructError
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.places import atomic as replacement
from neuralqx_struct.tools.validation import validate

SIZE = 3000


def payload(value):
    arrays = {name: np.full(SIZE, float(value)) for name in ("w", "b")}
    records = {name: {"dtype": "float64", "shape": [SIZE]} for name in arrays}
    fields = {
        name: {"__kind__": "array", "name": name, **record} for name, record in records.items()
    }
    tree = {"__kind__": "struct", "type": "pkg:State", "fields": {**fields, "value": value}}
    return Payload({"version": 1, "manifest": tree, "arrays": records}, arrays)


def value_of(path):
    """What the bundle at the path holds, every byte of it compared; an error if it is no whole bundle."""
    held = bundle.read(path)
    value = held.document["manifest"]["fields"]["value"]
    for array in held.arrays.values():
        assert (array == value).all(), "arrays of another bundle"
    if os.path.lexists(path):
        assert [d for d in bundle.verify(path) if d.severity == "error"] == []
    return value


# What is done to the bundle, and the value that it has afterwards. Sources and targets of links lie beside each other.
def write(path):
    bundle.write(path, payload(2), overwrite=True)


def compress(path):
    bundle.write(path, payload(2), overwrite=True, compress=True)


def other_store(path):
    bundle.write(path, payload(2), overwrite=True, store="safetensors")


def link(path):
    source = path.parent / "sources" / path.name
    with bundle.opened(source) as held:
        bundle.write_linked(held, path, held.document, overwrite=True)


def first_write(path):
    bundle.write(path, payload(2))


ACTIONS = {
    "write": write,
    "compress": compress,
    "store": other_store,
    "link": link,
    "first": first_write,
}


class Calls:
    """Counts the calls; at the n-th, something happens."""

    def __init__(self):
        self.names, self.at, self.how = [], None, None

    def reset(self, at=None, how=None):
        self.names, self.at, self.how = [], at, how

    def note(self, name, half=None):
        self.names.append(name)
        if len(self.names) - 1 == self.at:
            if half is not None and self.how in ("half", "full half"):
                half()
            if self.how in ("kill", "half"):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "interrupt":
                raise KeyboardInterrupt
            if self.how != "interrupt after":
                raise OSError(errno.ENOSPC, "No space left on device")

    def done(self):
        if len(self.names) - 1 == self.at and self.how == "interrupt after":
            self.how = None
            raise KeyboardInterrupt


CALLS = Calls()


class CountingFile(io.FileIO):
    def write(self, data):
        CALLS.note("write", lambda: super(CountingFile, self).write(bytes(data)[: len(data) // 2]))
        written = super().write(data)
        CALLS.done()
        return written


def install(*, exchange):
    real_open = io.open

    def counting_open(file, mode="r", buffering=-1, *rest, **more):
        if buffering == 0 and ("x" in mode or "+" in mode):
            return CountingFile(file, mode.replace("b", ""))
        return real_open(file, mode, buffering, *rest, **more)

    io.open = counting_open

    def counted(name, real):
        def call(*arguments, **more):
            CALLS.note(name)
            result = real(*arguments, **more)
            CALLS.done()
            return result

        return call

    for name in ("fsync", "rename", "replace", "link", "mkdir", "unlink", "rmdir"):
        setattr(os, name, counted(name, getattr(os, name)))
    if exchange:
        replacement._rename = counted("exchange", replacement._rename)
    else:
        replacement._CALLS = {}


def fresh(path, action):
    import shutil

    for entry in path.parent.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if action != "first":
        bundle.write(path, payload(1))
    if action == "link":
        bundle.write(path.parent / "sources" / path.name, payload(2))


def left(path):
    return sorted(e.name for e in path.parent.iterdir() if e.name not in (path.name, "sources"))


def state(path):
    """What stands at the path and beside it, and what the next export makes of that."""
    try:
        value = value_of(path)
    except bundle.BundleMissingError:
        value = None
    beside = left(path)
    bundle.write(path, payload(3), overwrite=True)
    return {"value": value, "left": beside, "next": value_of(path), "after": left(path)}


def in_child(work):
    """Run in a fork; gives back the signal that ended it, or None."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - a fork must not return
            print("child:", repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def at_each_call(path, action, how):
    """One killed or refused writer for each call that a whole export makes."""
    fresh(path, action)
    CALLS.reset()
    ACTIONS[action](path)
    names = CALLS.names
    for at, name in enumerate(names):
        if "half" in how and name != "write":
            continue
        CALLS.reset()
        fresh(path, action)
        row = {"at": at, "call": name, "how": how}
        if how in ("kill", "half"):

            def work(at=at):
                CALLS.reset(at, how)
                ACTIONS[action](path)

            row["signal"] = in_child(work)
        else:
            CALLS.reset(at, how)
            try:
                ACTIONS[action](path)
                row["error"] = None
            except KeyboardInterrupt:
                row["error"] = "interrupted"
            except StructError as error:
                row |= {
                    "error": str(error),
                    "errno": getattr(error, "errno", None),
                    "code": error.code,
                }
        CALLS.reset()
        yield {**row, **state(path), "calls": names}


def at_random_moments(path, count):
    """Writers that overwrite one path for ever, killed after some milliseconds."""
    fresh(path, "write")
    moments = random.Random(count)
    for _ in range(count):
        child = os.fork()
        if not child:
            value = 1
            while True:
                value += 1
                bundle.write(path, payload(value), overwrite=True)
        time.sleep(moments.uniform(0, 0.012))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        yield {"value": value_of(path), "left": left(path)}
    yield state(path)


def started(works):
    """Runs each in a fork that goes on when all are there; their numbers."""
    gate, opened = os.pipe()
    children = []
    for work in works:
        child = os.fork()
        if not child:
            os.close(opened)
            os.read(gate, 1)  # ends when nobody can write any more
            os._exit(work())
        children.append(child)
    os.close(gate)
    os.close(opened)
    return children


def ended(children):
    """Their exit codes."""
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def beside_writers(path, values, looks):
    """What a reader sees of one path that writers overwrite, each with its value, for as long as it looks."""

    def writes(value):
        told = []
        signal.signal(signal.SIGTERM, lambda *_: told.append(True))
        while not told:
            bundle.write(path, payload(value), overwrite=True)
        return 0

    bundle.write(path, payload(values[0]))
    writers = started([functools.partial(writes, value) for value in values])
    try:
        for _ in range(looks):
            yield {
                "value": value_of(path),
                "found": [found.code for found in validate(path)],
                "version": bundle.read_manifest(path)["version"],
            }
    finally:
        for writer in writers:
            os.kill(writer, signal.SIGTERM)
    yield {"codes": ended(writers), "value": value_of(path), "left": left(path)}


def first_writers(path, count):
    """Exit codes of writers that start at the same moment: 0 for the one that wrote, 1 for those whose path is taken."""

    def writes(value):
        try:
            bundle.write(path, payload(value))
        except FileExistsError as error:
            return 1 if error.code == "NQX431" else 2
        return 0

    writers = started([functools.partial(writes, value) for value in range(count)])
    yield {"codes": ended(writers), "value": value_of(path), "left": left(path)}


def above_a_limit(path):
    """What a writer is told whose files may have some kilobytes; the limit ends with the fork of the job."""
    bundle.write(path, payload(1))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
    try:
        bundle.write(path, payload(2), overwrite=True)
    except StructError as error:
        told = {"code": error.code, "errno": getattr(error, "errno", None), "error": str(error)}
        yield {**told, "value": value_of(path), "left": left(path)}


OTHERS = {
    "random": lambda path, how: at_random_moments(path, int(how)),
    "beside": lambda path, how: beside_writers(path, [*map(int, how.split(","))], 12),
    "firsts": lambda path, how: first_writers(path, int(how)),
    "limit": lambda path, how: above_a_limit(path),
}


def run(path, *, exchange, action, how):
    """Prints a row for each writer of a job."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if action in OTHERS:
        if not exchange:
            replacement._CALLS = {}
        found = OTHERS[action](path, how)
    else:
        install(exchange=exchange)
        found = (row for each in how.split(",") for row in at_each_call(path, action, each))
    for row in found:
        print(json.dumps(row), flush=True)


def imported_before_forks():
    """Does each thing once, as most of the package is imported when it is needed: each fork would import it again."""
    with tempfile.TemporaryDirectory() as folder:
        for action in ACTIONS:
            path = Path(folder) / action / "ckpt"
            path.parent.mkdir()
            fresh(path, action)
            ACTIONS[action](path)
            state(path)
            validate(path)


def main():
    """Runs the jobs that are lines of JSON on stdin, each in a fork; `end` follows the rows of each."""
    imported_before_forks()
    for line in sys.stdin:
        in_child(lambda job=json.loads(line): run(**job))
        print("end", flush=True)


if __name__ == "__main__":
    main()
