"""Fuzzing of the reader: bundles are damaged in ways that know their structure, then read in every way.

Only :class:`SerializationError` and its kin may come out, within two seconds and 256 MiB a case. ``tests/hostile/test_fuzz.py``
runs 4,000 cases; longer runs are made by hand, and print how to repeat each fault:

    python tests/programs/fuzz_reader.py --cases 1000000 --seed 7
"""

import argparse
import copy
import io
import json
import random
import struct
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections import Counter, namedtuple
from enum import Enum
from pathlib import Path

import numpy as np

import neuralqx_struct as s
from neuralqx_struct.filters import FilterError
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.manifest.text import reseal

MOST_SECONDS, MOST_BYTES = 2.0, 256 << 20


SCHEMA = s.load_schema(Path(__file__).parents[2] / "schemas/vmc_state")


class Colour(Enum):
    RED = 1


Pair = namedtuple("Pair", "a b")


class State(s.Struct):
    w: object
    n: object = s.field(static=True, default=1)


def everything():
    """One value of each kind, small."""
    import datetime as dt

    import jax
    import jax.numpy as jnp

    return {
        "struct": State(np.arange(3.0), n=(1, "x")),
        "jax": jnp.arange(4, dtype=jnp.bfloat16),
        "key": jax.random.key(0),
        "list": [1, 2.5, None, True, "é", float("nan"), 2**80, b"bytes", 1 + 2j],
        "sets": ({1, 2}, frozenset("ab"), slice(1, 2), np.dtype("int8"), np.float32(1.5)),
        "when": dt.datetime(2020, 1, 1),  # noqa: DTZ001
        (1, "k"): Pair(Colour.RED, np.zeros((0, 2), "<U3")),
        "empty": {},
    }


def sources(folder):
    """The bundles that are damaged, as (name of the manifest's file or None, files)."""
    value = everything()
    made = [
        s.export(value, folder / "a", metadata={"run": [1, {"x": 2}]}),
        s.export({"w": np.arange(20), "b": np.float16(1)}, folder / "b"),
        s.export({"w": np.arange(20), "v": np.zeros(5, bool)}, folder / "c", compress=True),
        s.export({"w": np.arange(20), "v": np.zeros(5, bool)}, folder / "d", store="safetensors"),
        s.export({"w": np.arange(20)}, folder / "e.zip"),
        s.export([np.arange(2)], folder / "f.zip", compress=True),
    ]
    golden = Path(__file__).parents[1] / "golden/format-1"
    made += [golden / "vmc_state_1", golden / "values.zip"]
    made.append(SCHEMA.load(golden / "vmc_state_1").export(folder / "h", store="npz"))
    foreign = folder / "g"
    foreign.mkdir()
    node = {"__kind__": "array", "name": "arr_000000", "dtype": "float64", "shape": [2, 2]}
    manifest = {"version": 1, "manifest": {"__kind__": "list", "items": [node, float("nan")]}}
    manifest["arrays"] = {"arr_000000": {"dtype": "float64", "shape": [2, 2]}}
    (foreign / "manifest.json").write_text(json.dumps(manifest))
    np.savez_compressed(foreign / "arrays.npz", arr_000000=np.eye(2))
    return [
        {"": path.read_bytes()}
        if path.is_file()
        else {f.name: f.read_bytes() for f in sorted(path.iterdir())}
        for path in [*made, foreign]
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Damage.

NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    2**16,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    0.5,
    1e300,
    -0.0,
]
WORDS = [
    *KINDS,
    *(
        "",
        "x",
        "w",
        "a:b",
        "os:system",
        "__main__:State",
        "tests.programs.fuzz_reader:State",
        "builtins:dict",
        "nan",
        "inf",
    ),
    *(
        "float32",
        "int4",
        "bfloat16",
        "<U3",
        "<U99999999",
        "|S9999999",
        "object",
        "O",
        "V8",
        ">f8",
        "datetime64[ns]",
        "int64",
    ),
    *(
        "jax",
        "numpy",
        "flatten",
        "serializer",
        "datetime",
        "timedelta",
        "0 0 0",
        "2020-01-01",
        "threefry2x32",
        "rbg",
    ),
    *(
        "../x",
        "arrays.npz",
        "manifest.json",
        "arrays.safetensors",
        "\0",
        "é",
        "A===",
        "9" * 50,
        "lab.x@1:State",
    ),
]
NAMES = [
    "__kind__",
    "type",
    "fields",
    "items",
    "name",
    "dtype",
    "shape",
    "value",
    "mode",
    "children",
    "aux",
    "payload",
]
NAMES += [
    "real",
    "imag",
    "leaf",
    "weak_type",
    "data",
    "impl",
    "base64",
    "crc32",
    "chunk",
    "chunk_crc32",
    "offset",
    "nbytes",
    "file",
    "unused",
]
NAMES += [
    "version",
    "manifest",
    "arrays",
    "schema",
    "schemas",
    "metadata",
    "writer",
    "id",
    "fingerprint",
    "$schema",
]


def values_of(dice, depth=0):
    """Some JSON."""
    pick = dice.randrange(10)
    if pick < 3:
        return dice.choice(NUMBERS)
    if pick < 6:
        return dice.choice(WORDS)
    if pick == 6:
        return dice.choice([None, True, False, {}, []])
    if depth > 2:
        return dice.choice(WORDS)
    if pick == 7:
        return [values_of(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice(NAMES): values_of(dice, depth + 1) for _ in range(dice.randrange(4))}


def places(value):
    """Every container with its keys."""
    stack, found = [value], []
    while stack:
        here = stack.pop()
        keys = here if isinstance(here, dict) else range(len(here))
        for key in keys:
            found.append((here, key))
            if isinstance(here[key], (dict, list)):
                stack.append(here[key])
    return found


def edit_json(dice, document):
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        found = places(document)
        if not found:
            return
        parent, key = dice.choice(found)
        other, other_key = dice.choice(found)
        how = dice.randrange(6)
        if how == 0:
            parent[key] = values_of(dice)
        elif how == 1:
            del parent[key]
        elif how == 2:
            parent[key] = copy.deepcopy(other[other_key])
        elif how == 3:
            parent[key], other[other_key] = (
                copy.deepcopy(other[other_key]),
                copy.deepcopy(parent[key]),
            )
        elif how == 4 and isinstance(parent, dict):
            parent[dice.choice(NAMES)] = values_of(dice)
        elif type(parent[key]) is int:
            parent[key] += dice.choice([-1, 1, 64, -64, 1 << 32])
        else:
            parent[key] = [copy.deepcopy(parent[key])] * dice.choice([1, 2, 20])


def edit_manifest(dice, data):
    """Another document, whose digest is right again."""
    document = json.loads(data)
    document.pop("digest", None)
    edit_json(dice, document)
    text = json.dumps(document, ensure_ascii=dice.random() < 0.5).encode("utf-8", "replace")
    return reseal(text) if "writer" in document and dice.random() < 0.95 else text


INTERESTING = [
    bytes(1),
    b"\xff",
    b"\0" * 4,
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    struct.pack("<I", 1 << 31),
    b"PK\1\2",
    b"PK\5\6",
]


def edit_bytes(dice, data):
    data = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(data) + 1)
        # The places that say where other things are: headers at the start, the directory at the end.
        at = dice.choice([at, min(at, len(data) // 8), max(at, len(data) - 120)])
        how = dice.randrange(8)
        if how == 0:
            del data[at:]
        elif how == 1:
            del data[at : at + dice.choice([1, 2, 8, 64])]
        elif how == 2:
            data[at:at] = bytes(dice.randrange(256) for _ in range(dice.choice([1, 4, 64])))
        elif how == 3:
            piece = dice.choice(INTERESTING)
            data[at : at + len(piece)] = piece
        elif how == 4:
            start = dice.randrange(len(data) + 1)
            data[at : at + 64] = data[start : start + 64]
        elif at < len(data):
            data[at] ^= 1 << dice.randrange(8)
    return bytes(data)


def edit_members(dice, data):
    """The members of a zip, some changed, written anew with checksums and sizes that are right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [[name, archive.read(name)] for name in archive.namelist()]
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
        zlib.error,
    ):
        return edit_bytes(dice, data)
    if not members:
        return edit_bytes(dice, data)
    chosen = dice.choice(members)
    how = dice.randrange(5)
    if how == 0:
        chosen[0] = dice.choice([*WORDS[-12:], dice.choice(members)[0], chosen[0] + "x"])
    elif how == 1:
        members.remove(chosen)
    elif how == 2:
        chosen[1] = dice.choice(members)[1]
    elif chosen[0] == "manifest.json":
        chosen[1] = edit_manifest(dice, chosen[1])
    else:
        chosen[1] = edit_bytes(dice, chosen[1][:128]) + chosen[1][128:]
    out = io.BytesIO()
    method = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    seen = set()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, body in members:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, method
            if name not in seen:
                archive.writestr(info, body)
            seen.add(name)
    return out.getvalue()


def damaged(dice, files, others):
    """The files of a bundle with something wrong; often more than one thing."""
    files = dict(files)
    for _ in range(dice.choice([1, 1, 1, 2])):
        name = dice.choice(list(files))
        data = files[name]
        how = dice.randrange(10)
        try:
            if how < 5 and name == "manifest.json":
                data = edit_manifest(dice, data)
            elif how < 8 and name != "manifest.json":
                data = edit_members(dice, data)
            elif how == 8:
                other = dice.choice(others)
                data = other.get(name, data)
            else:
                data = edit_bytes(dice, data)
        except (ValueError, s.SerializationError, RecursionError, AttributeError):
            data = edit_bytes(dice, data)
        files[name] = data
    return files


# ---------------------------------------------------------------------------------------------------------------------
# Reading.


def write_files(folder, files):
    if "" in files:
        path = folder / "case.zip"
        path.write_bytes(files[""])
        return path
    path = folder / "case"
    path.mkdir(exist_ok=True)
    for stale in path.iterdir():
        if stale.name not in files:
            stale.unlink()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def migrate(path):
    """Migrate a bundle by the steps that it carries, or by those of the shipped schema."""
    with tempfile.TemporaryDirectory() as folder:
        s.migrate(path, Path(folder, "out"), to="head", schema=SCHEMA)


class Anything(dict):
    """Arrays of all names."""

    def __missing__(self, name):
        return np.zeros(2, "float32")

    def __contains__(self, name):
        return True


ANY = Anything()


def load_in_memory(path):
    """Read the manifest as a state that never was a file; nobody has checked its text."""
    if path.is_file():
        return
    try:
        document = json.loads((path / "manifest.json").read_bytes())
    except (ValueError, RecursionError) as error:
        raise s.SerializationError("expected JSON") from error
    if isinstance(document, dict):
        s.from_state_dict({**document, "array_data": ANY})


WAYS = {
    "load": s.load,
    "load private": lambda path: s.load(path, mmap=False, as_numpy=True),
    "load unverified": lambda path: s.load(path, verify=False, unknown="drop"),
    "load abstract": lambda path: s.load(path, abstract=True),
    "load a part": lambda path: s.load(path, select="path:w"),
    "verify": s.verify,
    "validate": s.validate,
    "inspect": lambda path: str(s.inspect(path)),
    "load by schema": SCHEMA.load,
    "validate by schema": lambda path: s.validate(path, SCHEMA),
    "migrate": migrate,
    "from_state_dict": load_in_memory,
}


def read_all_ways(path, dice, outcomes):
    """Read in the usual way and in one other; gives back what must not have happened, or None."""
    for name in ("load", dice.choice(list(WAYS)[1:])):
        started = time.monotonic()
        try:
            WAYS[name](path)
            outcomes["value"] += 1
        except (
            s.SerializationError,
            FilterError,
        ) as error:  # a filter may choose nothing of what is left
            outcomes[error.code] += 1
            if not str(error):
                return f"{name}: an empty error"
        except Exception:  # noqa: BLE001 - what is being looked for
            return f"{name}: {traceback.format_exc()}"
        if (taken := time.monotonic() - started) > MOST_SECONDS:
            return f"{name}: took {taken:.1f} s"
    return None


def limit_memory():
    """From now on the process gets 256 MiB more, and MemoryError after that."""
    import resource

    with Path("/proc/self/statm").open() as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES,) * 2)


def fuzz(cases, seed, folder, first=0):
    """Run; gives back the outcomes by code, and what must not have happened with the case that led to it."""
    outcomes, wrong = Counter(), []
    (folder / "sources").mkdir()
    held = sources(folder / "sources")
    for case in range(first, first + cases):
        dice = random.Random(seed * 1_000_003 + case)
        path = write_files(folder, damaged(dice, dice.choice(held), held))
        problem = read_all_ways(path, dice, outcomes)
        if problem is not None:
            wrong.append({"seed": seed, "case": case, "problem": problem})
            if len(wrong) >= 20:
                break
    return outcomes, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first case, to repeat one"
    )
    chosen = parser.parse_args()
    memory = Path("/dev/shm")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        s.load(s.export(everything(), Path(folder) / "warm"))  # imports and JAX's own memory
        if sys.platform == "linux":
            limit_memory()
        outcomes, wrong = fuzz(chosen.cases, chosen.seed, Path(folder), chosen.first)
    print(
        json.dumps(
            {"outcomes": outcomes, "wrong": wrong, "seconds": round(time.monotonic() - started, 1)}
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.modules["tests.programs.fuzz_reader"] = sys.modules[
        "__main__"
    ]  # the classes of the bundles are found again
    sys.exit(main())
