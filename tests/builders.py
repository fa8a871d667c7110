"""Shared builders of the tests: manifests, payloads, schema documents, migrations, filters, and edits of bundles."""

import contextlib
import copy
import dataclasses
import functools
import inspect
import io
import itertools
import json
import operator
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from neuralqx_struct import bundle, cli
from neuralqx_struct.cli import command
from neuralqx_struct.cli.arguments import in_options
from neuralqx_struct.dtypes import ML_DTYPES, dtype_named
from neuralqx_struct.dtypes.casts import join_complex
from neuralqx_struct.errors import StructError
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.steps import step_name
from neuralqx_struct.fieldspec import field
from neuralqx_struct.filters import (
    All,
    Any,
    DType,
    Everything,
    Kind,
    Not,
    Nothing,
    PathGlob,
    TypeName,
    WithTag,
)
from neuralqx_struct.manifest import SCHEMA_URL
from neuralqx_struct.manifest.payload import Payload, check
from neuralqx_struct.manifest.text import format_manifest, parse_manifest
from neuralqx_struct.paths import FieldName
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series, series_of

#: The top of the repository.
ROOT = Path(__file__).resolve().parents[1]

#: The pages about diagnostics by code.
DIAGNOSTICS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs" / "diagnostics").glob("*.md"))
}


def yaml_blocks(page):
    """The examples of a page that are YAML."""
    return re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)


#: The names of the schemas that ship.
SHIPPED = sorted(path.parent.name for path in (ROOT / "schemas").glob("*/v1.yaml"))

#: The most seconds of this process for an input that its author made to take forever; a bound keeps it far below.
MOST_SECONDS = 30


@contextlib.contextmanager
def bounded(seconds=MOST_SECONDS):
    """Check that hostile work ends. A busy machine does not count: it is the time of this process, not of a clock.

    Work that grows by the square takes a ninth of the time for a third of the input; the bounds leave room for slow machines.
    """
    started = time.process_time()
    yield
    assert time.process_time() - started < seconds


def cases(by_night):
    """How many examples a slow law draws: a third by day, all by night, and four times as many for laws alone.

    `.ci/nightly` sets the profile of Hypothesis.
    """
    profile = os.environ.get("HYPOTHESIS_PROFILE", "ci")
    return {"ci": by_night // 3, "night": by_night, "thorough": 4 * by_night}[profile]


#: Where the package keeps what its users register, by module and name; each is undone after each test.
REGISTRIES = [
    ("references", "_CLASSES"),
    ("references", "_ALIASES"),
    ("schema.uses", "_LOADED"),
    ("references", "_BOUND"),
    ("classes.compiler", "_HOOKS"),
    ("classes.compiler", "_CLASSES"),
    ("evolution.steps.python", "_FUNCTIONS"),
    ("filters.records", "FILTERS"),
    ("manifest.kinds", "KINDS"),
    ("types.records", "TYPES"),
]


def registries():
    """The registries of the modules that are imported by now."""
    modules = [(sys.modules.get(f"neuralqx_struct.{module}"), name) for module, name in REGISTRIES]
    return [vars(module)[name] for module, name in modules if name in vars(module or object)]


def copied(registry):
    """A copy of a registry, and of the registries in it."""
    return {
        key: dict(value) if isinstance(value, dict) else value for key, value in registry.items()
    }


@contextlib.contextmanager
def registered_inside():
    """Undoes registrations inside: classes, documents, hooks, functions of steps and rows of tables."""
    held = registries()
    before = [copied(registry) for registry in held]
    try:
        yield
    finally:
        for registry, content in zip(held, before, strict=True):
            if copied(registry) != content:
                registry.clear()
                registry.update(content)


def every(names, cases):
    """As ``pytest.mark.parametrize``, with one test for the whole table: it runs all cases, and its error names those that fail.

    A test of its own costs pytest more than most cases do. What a case registers or patches is undone before the next, and its
    ``tmp_path`` is a folder of its own.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    table = [(case, _case_values(case, len(names))) for case in cases]
    assert table, "a table without cases tests nothing"

    def decorate(check):
        own = inspect.signature(check).parameters
        fixtures = [parameter for name, parameter in own.items() if name not in names]

        @functools.wraps(check)
        def all_cases(**given):
            failed = []
            for case, values in table:
                try:
                    with _of_the_case(given) as arguments:
                        check(**arguments, **dict(zip(names, values, strict=True)))
                except pytest.skip.Exception as left_out:
                    msg = f"a case of a table is not skipped: {_case_label(case, values)}"
                    raise AssertionError(msg) from left_out
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told below, with the others
                    failed.append((_case_label(case, values), error))
            if failed:
                shown = "".join(f"\n- {label}: {error}" for label, error in failed)
                msg = f"{len(failed)} of {len(table)} cases failed{shown}"
                raise AssertionError(msg) from failed[0][1]

        all_cases.__signature__ = inspect.Signature(fixtures)
        return all_cases

    return decorate


def _case_values(case, count):
    """The values of a case, such as `parametrize` takes."""
    if hasattr(case, "marks"):
        assert not case.marks, "a case of a table has no marks"
        return case.values
    return (case,) if count == 1 else tuple(case)


def _case_label(case, values):
    shown = ", ".join(value if isinstance(value, str) else brief(value) for value in values)
    return (case.id if hasattr(case, "marks") else None) or shown[:200]


@contextlib.contextmanager
def _of_the_case(fixtures):
    """The fixtures of a test as one case of its table gets them."""
    arguments = dict(fixtures)
    with contextlib.ExitStack() as undone:
        undone.enter_context(registered_inside())
        if "monkeypatch" in arguments:
            arguments["monkeypatch"] = undone.enter_context(arguments["monkeypatch"].context())
        if "tmp_path" in arguments:
            folder = arguments["tmp_path"] / str(sum(1 for _ in arguments["tmp_path"].iterdir()))
            folder.mkdir()
            arguments["tmp_path"] = folder
        yield arguments


@contextlib.contextmanager
def refused(error, *named):
    """As ``pytest.raises``, for what this package refuses: checks what programs read and the test has given, and no wording.

    Args:
        error: Its class, or classes.
        named: The code of its first problem, of all errors that have codes; then places, names and numbers that stand in its
            text as whole words, about whichever problem.
    """
    with pytest.raises(error) as caught:
        yield caught
    told = str(caught.value)
    if isinstance(caught.value, StructError):
        code, *named = named
        assert caught.value.code == code, told
    assert [each for each in map(str, named) if not stands_in(each, told)] == [], told


def stands_in(word, text):
    """Whether a name, a path or a number stands in a text, and not as a part of a longer word."""
    before, after = (r"\b" if end.isalnum() or end == "_" else "" for end in (word[0], word[-1]))
    return re.search(f"{before}{re.escape(word)}{after}", text) is not None


class Done(NamedTuple):
    """What a command printed, on each stream and on both as they came, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str
    output: str


class _Stream(io.StringIO):
    def __init__(self, both):
        super().__init__()
        self.both = both

    def write(self, text):
        self.both.write(text)
        return super().write(text)


def _of_command(keyword, arguments):
    """An option that a hint proposes, which the command that prints it must have."""
    assert any(each.name == keyword.name and each.flag for each in arguments), keyword
    return in_options(keyword, arguments)


def invoke(*words, input=b""):  # noqa: A002
    """Runs the command in this process."""
    both = io.StringIO()
    out, err = _Stream(both), _Stream(both)
    given = input.encode() if isinstance(input, str) else input or b""
    terminal, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(given))
    try:
        strict = mock.patch.object(command, "in_options", _of_command)
        with strict, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.call([str(word) for word in words])
    finally:
        sys.stdin = terminal
    return Done(code, out.getvalue(), err.getvalue(), both.getvalue())


_COMPLETED = {
    "bash": """
{script}
COMP_WORDS=(neuralqx-struct {words})
COMP_CWORD={last}
_shtab_neuralqx_struct
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "fish": """
{script}
complete -C 'neuralqx-struct {words}'
""",
}


def completed(shell, words, folder):
    """The words that a shell completes the last word of a call to."""
    script = invoke("--print-completion", shell).stdout
    given = {"script": script, "words": words, "last": len(words.split())}
    program = _COMPLETED[shell].format(**given)
    done = subprocess.run([shell, "-c", program], capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]  # fish adds the help


# --- the site ---

#: Words that users type into the search field.
SEARCHED = [
    "latest",
    "optax",
    "rename",
    "resume",
    "best",
    "bfloat16",
    "sharding",
    "pytree",
    "huggingface",
    "safetensors",
    "dtype",
    "enum",
    "default",
    "optional",
    "freeze",
    "downgrade",
    "S3",
    "async",
    "vmap",
    "pickle",
]


def build_site(folder):
    """The folder of the pages that Sphinx makes, without a warning.

    Garbage is seldom looked for: Sphinx has little, and to look at its trees takes a third of its time.
    """
    html, trees = folder / "html", folder / "doctrees"
    program = "import gc, runpy; gc.set_threshold(50_000); runpy.run_module('sphinx', run_name='__main__')"
    command = [sys.executable, "-c", program, "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-d", str(trees), str(ROOT / "docs"), str(html)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return html


# --- commands ---

POINT_V1 = """language: "1"
schema: lab.point
version: 1
root: Point
structs:
  Point:
    fields:
      x: {type: "float32[n]", tags: [trainable]}
      step: int
"""
POINT_V2 = (
    POINT_V1.replace("version: 1", "version: 2").replace(
        "step: int", "count: {type: int, default: 0}"
    )
    + "migrations:\n  - {from: 1, steps: [{rename: {field: step, to: count}}]}\n"
)


def report(*words):
    """The result of a command, and its JSON."""
    result = invoke(*words, "--format", "json")
    return result, json.loads(result.stdout)


# --- manifests and bundles ---

ARRAY = {"__kind__": "array", "name": "w", "dtype": "float32", "shape": [2, 3]}

EVERY_KIND = [
    None,
    True,
    -5,
    2**63,
    1.5,
    "text",
    ARRAY,
    {**ARRAY, "leaf": "jax", "weak_type": True},
    {"__kind__": "struct", "type": "pkg:State", "fields": {"x": 1, "two words": ARRAY}},
    {"__kind__": "dict", "items": [["a", 1], [ARRAY, None]]},
    {"__kind__": "ordered-dict", "items": []},
    {"__kind__": "defaultdict", "factory": "list", "items": [["a", 1]]},
    {"__kind__": "counter", "items": [["a", 1]]},
    {"__kind__": "mapping-proxy", "items": []},
    {"__kind__": "deque", "items": [1], "maxlen": None},
    {"__kind__": "range", "start": 0, "stop": {"__kind__": "bigint", "value": "99"}, "step": -1},
    {"__kind__": "bytearray", "base64": ""},
    {"__kind__": "reference", "name": "jax.nn:relu"},
    {"__kind__": "external", "name": "lab.model:activation"},
    {"__kind__": "path", "value": "a", "pure": "windows"},
    {"__kind__": "list", "items": [1, {"__kind__": "tuple", "items": []}]},
    {"__kind__": "set", "items": [1]},
    {"__kind__": "frozenset", "items": []},
    {"__kind__": "complex", "real": 1, "imag": {"__kind__": "float", "value": "nan"}},
    {"__kind__": "path", "value": "/a"},
    {"__kind__": "numpy-scalar", "dtype": "float32", "value": 1.5},
    {
        "__kind__": "numpy-scalar",
        "dtype": "complex64",
        "value": {"__kind__": "complex", "real": 0, "imag": 1.5},
    },
    {
        "__kind__": "registered-pytree",
        "type": "a:B",
        "mode": "flatten",
        "children": [1],
        "aux": None,
    },
    {
        "__kind__": "registered-pytree",
        "type": "a:B",
        "mode": "serializer",
        "payload": {"__kind__": "list", "items": []},
    },
    {"__kind__": "namedtuple", "type": "a:B", "fields": {"x": 1}},
    {"__kind__": "bytes", "base64": "AAE="},
    {"__kind__": "float", "value": "-inf"},
    {"__kind__": "bigint", "value": "-123"},
    {"__kind__": "enum", "type": "a:B", "name": "X"},
    {"__kind__": "dtype", "value": "bfloat16"},
    {"__kind__": "slice", "start": None, "stop": 5, "step": None},
    {"__kind__": "datetime", "type": "date", "value": "2024-01-01"},
    {"__kind__": "prng-key", "impl": "threefry2x32", "data": ARRAY},
    {"__kind__": "pytree-dataclass", "type": "a:B", "fields": {}},
    {"__kind__": "full", "dtype": "float32", "shape": [], "value": 0.5, "leaf": "numpy"},
]

RECORD = {"dtype": "float32", "shape": [2, 3], "crc32": 7, "offset": 64, "nbytes": 24}

GOOD = {
    "$schema": SCHEMA_URL,
    "version": 1,
    "schema": {"id": "a.b", "version": 3, "fingerprint": "sha256:00"},
    "schemas": [{"schema": "a.b", "anything": [1, None]}],
    "manifest": {"__kind__": "list", "items": EVERY_KIND},
    "arrays": {"w": RECORD, "old": {**RECORD, "file": "arrays-1.npz", "unused": True}},
    "metadata": {"free": {"deep": [1, 2.5, None]}},
    "writer": {"name": "neuralqx-struct", "version": "0.1.0"},
    "digest": "sha256:" + "0" * 64,
    "later": {"must_understand": False, "x": [1]},
}


def document(node=None, **more):
    return {"version": 1, "manifest": node, "arrays": {}, "writer": GOOD["writer"], **more}


BAD = [
    ({"version": 1}, {"NQX610"}, "$"),
    (document(version=2), {"NQX402"}, "$.version"),
    (document(version=0), {"NQX402"}, "$.version"),
    (document(version=True), {"NQX612"}, "$.version"),
    (document(version="1"), {"NQX612"}, "$.version"),
    (document(manifests=1), {"NQX611"}, "$.manifests"),
    (document(later={"must_understand": True}), {"NQX403"}, "$.later"),
    (document(arrays=[]), {"NQX612"}, "$.arrays"),
    (document(arrays={"w": 5}), {"NQX612"}, "$.arrays.w"),
    (document(arrays={"a/b": {**RECORD, "crc32": 2**32}}), {"NQX614"}, "$.arrays['a/b'].crc32"),
    (
        document(arrays={"w": {**RECORD, "chunk": [2], "chunk_crc32": [1, 2**32]}}),
        {"NQX614"},
        "$.arrays.w.chunk_crc32[1]",
    ),
    (document(arrays={"w": {**RECORD, "chunk": 2}}), {"NQX612"}, "$.arrays.w.chunk"),
    (document(arrays={"w": {**RECORD, "unused": False}}), {"NQX612"}, "$.arrays.w.unused"),
    (document(arrays={"w": {**RECORD, "file": "../x.npz"}}), {"NQX503"}, "$.arrays.w.file"),
    (document(arrays={"w": {**RECORD, "offfset": 1}}), {"NQX611"}, "$.arrays.w.offfset"),
    (document(schema={"id": "a", "version": 0, "fingerprint": ""}), {"NQX614"}, "$.schema.version"),
    (document(schema=5), {"NQX612"}, "$.schema"),
    (document(schemas=[1]), {"NQX612"}, "$.schemas[0]"),
    (document(metadata=[]), {"NQX612"}, "$.metadata"),
    (document(writer={"name": "x"}), {"NQX610"}, "$.writer"),
    (document(arrays={"__kind__": "x"}), {"NQX612"}, "$.arrays.__kind__"),
    (document(arrays={"[key]": 5}), {"NQX612"}, "$.arrays['[key]']"),
    (
        document({"__kind__": "struct", "type": "m:A", "fields": {"plain": []}}),
        {"NQX612"},
        "$.manifest.fields.plain",
    ),
    (document({"__kind__": "struct", "type": 5, "fields": {}}), {"NQX612"}, "$.manifest.type"),
    (document(digest="md5:0"), {"NQX614"}, "$.digest"),
    (document(digest="sha256:" + "0" * 64 + "\n"), {"NQX614"}, "$.digest"),
    (document({"__kind__": "bytes", "base64": "AAAA\n"}), {"NQX614"}, "$.manifest.base64"),
    (document({"__kind__": "bigint", "value": "1\n"}), {"NQX614"}, "$.manifest.value"),
    (document(arrays={"w": {**RECORD, "file": "x.npz\n"}}), {"NQX503"}, "$.arrays.w.file"),
    (document(arrays={"w": {**RECORD, "shape": [1] * 65}}), {"NQX614"}, "$.arrays.w.shape"),
    (document(arrays={"w": {**RECORD, "shape": [2**63]}}), {"NQX614"}, "$.arrays.w.shape[0]"),
    (document([1]), {"NQX612"}, "$.manifest"),
    (document({"a": 1}), {"NQX610"}, "$.manifest"),
    (document({"__kind__": ["array"]}), {"NQX612"}, "$.manifest.__kind__"),
    (document({"__kind__": "arry"}), {"NQX613"}, "$.manifest.__kind__"),
    (document({"__kind__": "null"}), {"NQX613"}, "$.manifest.__kind__"),
    (document({"__kind__": "registered-pytree/flatten"}), {"NQX613"}, "$.manifest.__kind__"),
    (document({**ARRAY, "shape": [2, -3]}), {"NQX614"}, "$.manifest.shape[1]"),
    (document({**ARRAY, "shape": ["2"]}), {"NQX612"}, "$.manifest.shape[0]"),
    (document({**ARRAY, "shape": [True]}), {"NQX612"}, "$.manifest.shape[0]"),
    (document({**ARRAY, "shape": 3}), {"NQX612"}, "$.manifest.shape"),
    (document({**ARRAY, "leaf": "torch"}), {"NQX614"}, "$.manifest.leaf"),
    (document({**ARRAY, "leaf": []}), {"NQX612"}, "$.manifest.leaf"),
    (document({**ARRAY, "name": 5}), {"NQX612"}, "$.manifest.name"),
    (document({**ARRAY, "later": {"must_understand": 0}}), {"NQX611"}, "$.manifest.later"),
    (document({"__kind__": "list", "items": {}}), {"NQX612"}, "$.manifest.items"),
    (document({"__kind__": "dict", "items": [[1]]}), {"NQX612"}, "$.manifest.items[0]"),
    (document({"__kind__": "dict", "items": [["k", [1]]]}), {"NQX612"}, "$.manifest.items[0][1]"),
    (
        document({"__kind__": "struct", "type": "a:B", "fields": []}),
        {"NQX612"},
        "$.manifest.fields",
    ),
    (document({"__kind__": "complex", "real": "1", "imag": 0}), {"NQX612"}, "$.manifest.real"),
    (document({"__kind__": "complex", "real": True, "imag": 0}), {"NQX612"}, "$.manifest.real"),
    (
        document({"__kind__": "numpy-scalar", "dtype": "x", "value": ARRAY}),
        {"NQX612"},
        "$.manifest.value",
    ),
    (document({"__kind__": "prng-key", "impl": "x", "data": 5}), {"NQX612"}, "$.manifest.data"),
    (document({"__kind__": "bytes", "base64": "?"}), {"NQX614"}, "$.manifest.base64"),
    (document({"__kind__": "bigint", "value": "1e5"}), {"NQX614"}, "$.manifest.value"),
    (
        document({"__kind__": "registered-pytree", "type": "a:B", "mode": "x"}),
        {"NQX614"},
        "$.manifest.mode",
    ),
    (document({"__kind__": "registered-pytree", "type": "a:B"}), {"NQX610"}, "$.manifest"),
    (
        document(
            {
                "__kind__": "registered-pytree",
                "type": "a:B",
                "mode": "serializer",
                "children": [],
                "aux": 1,
            }
        ),
        {"NQX610", "NQX611"},
        "$.manifest",
    ),
]


def mutated(sample, place, how, value, name):
    """A copy of plain JSON with one place replaced, removed, or a value inserted beside it."""
    made = copy.deepcopy(sample)
    parent = made
    for key in place[:-1]:
        parent = parent[key]
    if how == "replace":
        parent[place[-1]] = copy.deepcopy(value)
    elif how == "remove":
        del parent[place[-1]]
    elif isinstance(parent, dict):
        parent[name] = copy.deepcopy(value)
    else:
        parent.insert(0, copy.deepcopy(value))
    return made


FORMS = ["ckpt", "ckpt.zip"]


def payload_of(arrays, **more):
    records = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()}
    fields = {
        name: {"__kind__": "array", "name": name, **record} for name, record in records.items()
    }
    tree = {"__kind__": "struct", "type": "pkg:State", "fields": fields}
    return Payload({"version": 1, "manifest": tree, "arrays": records, **more}, arrays)


def simple(value=0.0, size=3):
    return payload_of({"w": np.full((2, size), value, np.float32), "b": np.arange(size)})


def write_linked(source, target, document, **options):
    """A bundle of the array files of another one."""
    with bundle.opened(source) as held:
        return bundle.write_linked(held, target, document, **options)


def everything(path, **options):
    """Read a bundle and touch every byte of every array."""
    held = bundle.read(path, **options)
    return held.document, {name: array.copy() for name, array in held.arrays.items()}


def edit(path, change):
    """Change the manifest of a folder bundle as a person would, then seal it."""
    file = path / "manifest.json"
    document = parse_manifest(file.read_bytes())
    document.pop("digest", None)
    change(document)
    file.write_bytes(format_manifest(document))
    bundle.seal(path)


def files(path):
    return [path] if path.is_file() else sorted(path.iterdir())


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


# --- arrays ---

NUMPY = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]

OTHERS = ["complex64", "complex128", ">f4", ">i8", "<U5", "|S3", "datetime64[ns]", "timedelta64[D]"]

EXOTIC = [name for name in sorted(ML_DTYPES) if hasattr(ml_dtypes, name)]

SHAPES = {
    "scalar": np.array(2.5),
    "empty": np.zeros((0,)),
    "hollow": np.zeros((3, 0, 2), np.int8),
    "fortran": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "strided": np.arange(100)[::7],
    "reversed": np.arange(10)[::-1],
    "broadcast": np.broadcast_to(np.float32(1), (4, 5)),
    "many": np.zeros((1,) * 32),
    "large": np.arange(300_000).reshape(2, -1),
    "large fortran": np.asfortranarray(np.arange(300_000.0).reshape(2, -1)),
    "no text": np.array([], "<U1"),
}


def random_array(name, shape=(3, 5)):
    dtype = dtype_named(name)
    count = int(np.prod(shape))
    bits = np.random.default_rng(0).integers(0, 256, count * dtype.itemsize, np.uint8)
    if name.startswith("bool"):
        bits &= 1
    if name.startswith(("<U", "|S")):
        return np.array(
            ["aé", "", "xyz"] * 5 if name[1] == "U" else [b"a", b"", b"xyz"] * 5, dtype
        ).reshape(shape)
    if name in (
        "int4",
        "uint4",
        "int2",
        "uint2",
        "int1",
        "uint1",
        "float4_e2m1fn",
        "float6_e2m3fn",
        "float6_e3m2fn",
    ):
        bits &= {"1": 1, "2": 3, "4": 15, "6": 63}[next(c for c in name if c.isdigit())]
    return bits.view(dtype).reshape(shape)


# --- schema documents, payloads and migration steps ---


def doc(
    fields=None, version=1, steps=None, structs=None, *, root="A", source=None, raw=None, **members
):
    """A document whose `root` has `fields`; with `steps` also a migration from the version `source`.

    `structs` are further structs by their fields, `raw` further structs as they are written.
    """
    others = {name: {"fields": inner} for name, inner in (structs or {}).items()}
    data = {
        "language": "1",
        "schema": "lab.a",
        "version": version,
        "root": root,
        "structs": {root: {"fields": fields or {}}, **others, **(raw or {})},
        **members,
    }
    if steps is not None:
        items = [{step_name(x): x.model_dump(by_alias=True, exclude_unset=True)} for x in steps]
        data["migrations"] = [{"from": source or version - 1, "steps": items}]
    return document_from_data(data, "test")


def node(value, arrays, name, document):
    """A value as a manifest node; numpy arrays go to `arrays`."""
    if isinstance(value, np.ndarray):
        arrays.setdefault(name, value)
        return {
            "__kind__": "array",
            "name": name,
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "leaf": "numpy",
        }
    if isinstance(value, list):
        items = [node(v, arrays, f"{name}/{i}", document) for i, v in enumerate(value)]
        return {"__kind__": "list", "items": items}
    if isinstance(value, tuple):  # an instance: its struct and its fields
        struct, fields = value
        inner = {k: node(v, arrays, f"{name}/{k}", document) for k, v in fields.items()}
        return {"__kind__": "struct", "type": document.ref(struct), "fields": inner}
    if isinstance(value, dict) and "__kind__" not in value:
        return {
            "__kind__": "dict",
            "items": [[k, node(v, arrays, f"{name}/{k}", document)] for k, v in value.items()],
        }
    return value


def payload(document, values, documents=None):
    arrays = {}
    tree = node((document.root, values), arrays, "", document)
    for name in list(arrays):
        arrays[name.removeprefix("/")] = arrays.pop(name)
    tree = json.loads(json.dumps(tree).replace('"name": "/', '"name": "'))
    held = {
        "version": 1,
        "schema": {
            "id": document.id,
            "version": document.version,
            "fingerprint": payload_fingerprint(document),
        },
        "schemas": [d.to_data() for d in documents or [document]],
        "manifest": tree,
        "arrays": {k: {"dtype": str(v.dtype), "shape": list(v.shape)} for k, v in arrays.items()},
        "writer": {"name": "test", "version": "1"},
    }
    return Payload(held, arrays)


def first_vmc_state():
    """A payload of the first version of `schemas/vmc_state`, with special numbers."""
    random = np.random.default_rng(1)
    n, m, chains = 4, 8, 3
    special = np.array([-0.0, np.nan, np.inf, 1e-45], "f4")
    couplings = {
        name: random.normal(size=(n, m)).astype("f4") for name in ("W_re", "W_im", "dW_re", "dW_im")
    }
    couplings["W_re"][:, 0], couplings["W_im"][:, 0] = special, special[::-1]
    biases = {
        name: (random.normal(size=n + m) + 1j * random.normal(size=n + m)).astype("c8")
        for name in ("b_all", "db_all")
    }
    rest = {
        "samples": random.choice([-1.0, 1.0], size=(chains, n)),
        "rng": np.array([3, 2**32 - 1], "u4"),
        "E_hist": random.normal(size=5),
    }
    plain = {
        "alpha": 2,
        "n_iter": 5,
        "h": 1.5,
        "lr": 0.01,
        "diag_shift": 0.01,
        "n_sweeps": 7,
        "mpi_rank": 0,
        "mpi_size": 1,
    }
    values = {**plain, **couplings, **biases, **rest}
    document = load_series(ROOT / "schemas" / "vmc_state").at(1)
    return payload(document, {name: values[name] for name in document.structs["VMCState"].fields})


def value(tree, arrays):
    """The inverse of `node`, as far as tests need it; a struct becomes a dict of its fields."""
    if not isinstance(tree, dict):
        return tree
    match tree["__kind__"]:
        case "array":
            return arrays[tree["name"]]
        case "struct":
            return {k: value(v, arrays) for k, v in tree["fields"].items()}
        case "list":
            return [value(v, arrays) for v in tree["items"]]
        case "dict":
            return {k: value(v, arrays) for k, v in tree["items"]}
        case "prng-key":
            return (tree["impl"], value(tree["data"], arrays))
        case _:
            return tree


def same(a, b):
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def conforms(document, held):
    assert check(held) == []
    return conform(document, document.root, held.document["manifest"], see_node)


def up(old, new, values):
    """Migrate, checking what must hold for every step: the result conforms, the input is as it was."""
    before = payload(old, values)
    told = json.dumps(before.document)
    assert conforms(old, before) == []
    after = apply(before, plan(series_of([old, new]), old.version, new.version))
    assert conforms(new, after) == []
    assert json.dumps(before.document) == told
    return after


F4 = np.array([[1, -0.0, np.nan], [np.inf, 2, 3]], "float32")

C8 = join_complex(F4, F4[::-1], "complex64")

WORDS = np.array([7, 9], "uint32")

STEPS = {
    "rename": (
        {"a": "int", "b": "str"},
        {"c": "int", "b": "str"},
        steps.rename(field="a", to="c"),
        {"a": 1, "b": ""},
        {"c": 1, "b": ""},
    ),
    "add a scalar": (
        {"a": "int"},
        {"a": "int", "b": "float"},
        steps.add(field="b", default=2),
        {"a": 1},
        {"a": 1, "b": 2.0},
    ),
    "add null": (
        {"a": "int"},
        {"a": "int", "b": "float | null"},
        steps.add(field="b", default=None),
        {"a": 1},
        {"a": 1, "b": None},
    ),
    "add an array": (
        {"a": "int8[n]"},
        {"a": "int8[n]", "b": "float32[2 * n]"},
        steps.add(field="b", default=0),
        {"a": np.zeros(3, "i1")},
        {
            "a": np.zeros(3, "i1"),
            "b": {"__kind__": "full", "dtype": "float32", "shape": [6], "value": 0.0},
        },
    ),
    "add a list": (
        {"a": "int"},
        {"a": "int", "b": "float32[2]"},
        steps.add(field="b", default=[1, 2]),
        {"a": 1},
        {"a": 1, "b": np.array([1, 2], "f4")},
    ),
    "add a copy": (
        {"a": "float32[n]"},
        {"a": "float32[n]", "b": "float32[n] | null"},
        steps.add(field="b", copy_of="a"),
        {"a": np.array([1, 2], "f4")},
        {"a": np.array([1, 2], "f4"), "b": np.array([1, 2], "f4")},
    ),
    "add a filled array": (
        {"a": "float32[n]"},
        {"a": "float32[n]", "b": "float32[n]"},
        steps.add(field="b", like="a", default=0.5),
        {"a": np.array([1, 2], "f4")},
        {
            "a": np.array([1, 2], "f4"),
            "b": {
                "__kind__": "full",
                "dtype": "float32",
                "shape": [2],
                "value": 0.5,
                "leaf": "numpy",
            },
        },
    ),
    "remove a copy": (
        {"a": "float32[n]", "b": "float32[n]"},
        {"a": "float32[n]"},
        steps.remove(field="b", undo_copy="a"),
        {"a": np.array([1, 2], "f4"), "b": np.array([1, 2], "f4")},
        {"a": np.array([1, 2], "f4")},
    ),
    "remove": (
        {"a": "int", "b": "int"},
        {"a": "int"},
        steps.remove(field="b", undo_default=3),
        {"a": 1, "b": 3},
        {"a": 1},
    ),
    "cast": (
        {"a": "float64[n] | null"},
        {"a": "int8[n] | null"},
        steps.cast(field="a", dtype="int8"),
        {"a": np.array([1.0, -1.0])},
        {"a": np.array([1, -1], "i1")},
    ),
    "merge a list": (
        {"a": "float32[n]", "b": "float32[n]", "c": "int"},
        {"x": "list[float32[n], 2]", "c": "int"},
        steps.merge(fields=["a", "b"], into="x", how="list"),
        {"a": np.zeros(2, "f4"), "b": np.ones(2, "f4"), "c": 1},
        {"x": [np.zeros(2, "f4"), np.ones(2, "f4")], "c": 1},
    ),
    "merge a dict": (
        {"a": "int | null", "b": "int | null"},
        {"x": "dict[str, int | null]"},
        steps.merge(fields=["b", "a"], into="x", how="dict"),
        {"a": 1, "b": None},
        {"x": {"b": None, "a": 1}},
    ),
    "split a list": (
        {"x": "list[float32[_], 2]", "c": "int"},
        {"a": "float32[_]", "b": "float32[_]", "c": "int"},
        steps.split(field="x", into=["a", "b"], how="list"),
        {"x": [np.zeros(2, "f4"), np.ones(3, "f4")], "c": 1},
        {"a": np.zeros(2, "f4"), "b": np.ones(3, "f4"), "c": 1},
    ),
    "split a dict": (
        {"x": "dict[str, int]"},
        {"b": "int", "a": "int"},
        steps.split(field="x", into=["b", "a"], how="dict"),
        {"x": {"b": 2, "a": 1}},
        {"b": 2, "a": 1},
    ),
    "split into one": (
        {"a": "float32[n, 2]"},
        {"b": "float32[n, 2]"},
        steps.split(field="a", into={"b": "n"}),
        {"a": np.ones((3, 2), "f4")},
        {"b": np.ones((3, 2), "f4")},
    ),
    "stack arrays": (
        {"a": "list[float32[d], n] | null"},
        {"a": "float32[n, d] | null"},
        steps.stack(field="a"),
        {"a": [np.zeros(2, "f4"), np.ones(2, "f4")]},
        {"a": np.array([[0, 0], [1, 1]], "f4")},
    ),
    "unstack arrays": (
        {"a": "complex64[n, 2]"},
        {"a": "list[complex64[2], n]"},
        steps.unstack(field="a"),
        {"a": np.array([[1, 2j], [3, 4]], "c8")},
        {"a": [np.array([1, 2j], "c8"), np.array([3, 4], "c8")]},
    ),
    "convert text": (
        {"a": "list[str | null]"},
        {"a": "list[literal['x', 'y'] | null]"},
        steps.convert(field="a", to="literal['x', 'y']"),
        {"a": ["x", None, "y"]},
        {"a": ["x", None, "y"]},
    ),
    "cast null": (
        {"a": "float64[n] | null"},
        {"a": "int8[n] | null"},
        steps.cast(field="a", dtype="int8"),
        {"a": None},
        {"a": None},
    ),
    "cast in a list": (
        {"a": "list[float32[2]]"},
        {"a": "list[float64[2]]"},
        steps.cast(field="a", dtype="float64"),
        {"a": [np.zeros(2, "f4"), np.ones(2, "f4")]},
        {"a": [np.zeros(2), np.ones(2)]},
    ),
    "cast in a dict": (
        {"a": "dict[str, float32[]]"},
        {"a": "dict[str, complex64[]]"},
        steps.cast(field="a", dtype="complex64"),
        {"a": {"x": np.float32(2)[...]}},
        {"a": {"x": np.array(2, "c8")}},
    ),
    "convert int to float": (
        {"a": "int"},
        {"a": "float"},
        steps.convert(field="a", to="float"),
        {"a": 7},
        {"a": 7.0},
    ),
    "convert float to int": (
        {"a": "float | null"},
        {"a": "int | null"},
        steps.convert(field="a", to="int"),
        {"a": -3.0},
        {"a": -3},
    ),
    "convert null": (
        {"a": "float | null"},
        {"a": "int | null"},
        steps.convert(field="a", to="int"),
        {"a": None},
        {"a": None},
    ),
    "convert a list": (
        {"a": "list[float]"},
        {"a": "float32[n]"},
        steps.convert(field="a", to="float32[n]"),
        {"a": [0.5, 2.0, -0.0]},
        {"a": np.array([0.5, 2.0, -0.0], "f4")},
    ),
    "convert to a list": (
        {"a": "int8[n]"},
        {"a": "list[float]"},
        steps.convert(field="a", to="list[float]"),
        {"a": np.array([1, -2], "i1")},
        {"a": [1.0, -2.0]},
    ),
    "convert in a list": (
        {"a": "dict[str, list[int | null]]"},
        {"a": "dict[str, list[float | null]]"},
        steps.convert(field="a", to="float"),
        {"a": {"x": [1, None]}},
        {"a": {"x": [1.0, None]}},
    ),
    "convert a number": (
        {"a": "complex"},
        {"a": "complex64[]"},
        steps.convert(field="a", to="complex64[]"),
        {"a": {"__kind__": "complex", "real": 1.0, "imag": -2.0}},
        {"a": np.array(1 - 2j, "c8")},
    ),
    "convert to a number": (
        {"a": "bfloat16[]"},
        {"a": "float"},
        steps.convert(field="a", to="float"),
        {"a": np.array(1.5, dtype_named("bfloat16"))},
        {"a": 1.5},
    ),
    "convert an empty list": (
        {"a": "list[int]", "b": "int8[n]"},
        {"a": "uint8[n]", "b": "int8[n]"},
        steps.convert(field="a", to="uint8[n]"),
        {"a": [], "b": np.zeros(0, "i1")},
        {"a": np.zeros(0, "u1"), "b": np.zeros(0, "i1")},
    ),
    "transpose": (
        {"a": "float32[n, m]"},
        {"a": "float32[m, n]"},
        steps.transpose(field="a"),
        {"a": F4},
        {"a": np.ascontiguousarray(F4.T)},
    ),
    "transpose a square": (
        {"a": "int8[2, 2]"},
        {"a": "int8[2, 2]"},
        steps.transpose(field="a"),
        {"a": np.array([[1, 2], [3, 4]], "i1")},
        {"a": np.array([[1, 3], [2, 4]], "i1")},
    ),
    "transpose by axes": (
        {"a": "int8[2, 3, 4]"},
        {"a": "int8[4, 2, 3]"},
        steps.transpose(field="a", axes=[-1, 0, 1]),
        {"a": np.arange(24, dtype="i1").reshape(2, 3, 4)},
        {"a": np.ascontiguousarray(np.arange(24, dtype="i1").reshape(2, 3, 4).transpose(2, 0, 1))},
    ),
    "reshape": (
        {"a": "float32[n, 3]"},
        {"a": "float32[3 * n]"},
        steps.reshape(field="a", shape=["3*n"]),
        {"a": F4},
        {"a": F4.reshape(6)},
    ),
    "split": (
        {"a": "float32[n, 3]", "b": "int8[n]"},
        {"x": "float32[n, 1]", "y": "float32[n, 2]", "b": "int8[n]"},
        steps.split(field="a", axis=-1, into={"x": 1, "y": 2}),
        {"a": F4, "b": np.zeros(2, "i1")},
        {"x": F4[:, :1].copy(), "y": F4[:, 1:].copy(), "b": np.zeros(2, "i1")},
    ),
    "split a stack": (
        {"a": "float32[2, n]"},
        {"x": "float32[n]", "y": "float32[n]"},
        steps.split(field="a", into=["x", "y"], how="stack"),
        {"a": F4},
        {"x": F4[0], "y": F4[1]},
    ),
    "split complex": (
        {"a": "complex64[n, 3]"},
        {"x": "float32[n, 3]", "a": "float32[n, 3]"},
        steps.split(field="a", into=["x", "a"], how="complex"),
        {"a": C8},
        {"x": F4, "a": np.ascontiguousarray(F4[::-1])},
    ),
    "merge": (
        {"a": "float32[n, 3]", "b": "float32[2, 3]"},
        {"c": "float32[2 + n, 3]"},
        steps.merge(fields=["a", "b"], into="c", how="concat"),
        {"a": F4[:1], "b": F4},
        {"c": np.concatenate([F4[:1], F4])},
    ),
    "merge a stack": (
        {"a": "float32[n, 3]", "b": "float32[n, 3]"},
        {"a": "float32[n, 3, 2]"},
        steps.merge(fields=["a", "b"], into="a", how="stack", axis=-1),
        {"a": F4, "b": F4[::-1].copy()},
        {"a": np.stack([F4, F4[::-1]], axis=-1)},
    ),
    "merge complex": (
        {"a": "float64[]", "b": "float64[]"},
        {"c": "complex128[]"},
        steps.merge(fields=["a", "b"], into="c", how="complex"),
        {"a": np.array(-0.0), "b": np.array(np.inf)},
        {"c": join_complex(np.array(-0.0), np.array(np.inf), "complex128")},
    ),
    "merge null": (
        {"a": "float32[n] | null", "b": "float32[n] | null"},
        {"c": "complex64[n] | null"},
        steps.merge(fields=["a", "b"], into="c", how="complex"),
        {"a": None, "b": None},
        {"c": None},
    ),
    "fill": (
        {"a": "int | null"},
        {"a": "int"},
        steps.fill(field="a", value=4),
        {"a": None},
        {"a": 4},
    ),
    "fill what is there": (
        {"a": "int | null"},
        {"a": "int"},
        steps.fill(field="a", value=4),
        {"a": 5},
        {"a": 5},
    ),
    "wrap_key": (
        {"a": "uint32[2]"},
        {"a": "prng_key[threefry2x32]"},
        steps.wrap_key(field="a", impl="threefry2x32"),
        {"a": WORDS},
        {"a": ("threefry2x32", WORDS)},
    ),
    "unwrap_key": (
        {"a": {"type": "prng_key", "impl": "rbg"}},
        {"a": "uint32[4]"},
        steps.unwrap_key(field="a"),
        {"a": {"__kind__": "prng-key", "impl": "rbg", "data": np.arange(4, dtype="u4")}},
        {"a": np.arange(4, dtype="u4")},
    ),
}


# --- filters ---


class Param:
    pass


class SpecialParam(Param):
    pass


class Stat:
    pass


@dataclasses.dataclass(frozen=True)
class Tagged(Param):
    tag: object = None


@dataclasses.dataclass(frozen=True)
class State:
    type: object = None


def _values():
    from flax import nnx  # slow to import, and most tests do without it

    own = [Param(), SpecialParam(), Stat(), Tagged("a"), Tagged("b"), Tagged()]
    theirs = [nnx.Param(1.0), nnx.BatchStat(True)]
    return st.sampled_from([*own, *theirs, 1, True, 2.5, "a", None, np.ones(2)])


VALUES = st.deferred(_values)


def named(name, **options):
    return FieldName(name, field(**options))


TRAINED = named("w", metadata={"tags": ["trainable", "big"]})

PLAIN = named("w")

STATIC = named("n", static=True)

OPAQUE = named("log", pytree=False)

UNKNOWN = FieldName("w")

FAMILIES = ["bool", "complexfloating", "floating", "integer", "prng_key"]

NAMES = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["a", "params/**/bias", "it's", "a b", "!", "\\", '"', ":", "x:y", "''"]),
)

ATOMS = st.one_of(
    st.builds(WithTag, NAMES),
    st.builds(PathGlob, NAMES),
    st.builds(TypeName, NAMES),
    st.sampled_from(["node", "static", "opaque"]).map(Kind),
    st.sampled_from([*FAMILIES, "float32", "bfloat16", "key<fry>", "datetime64[D]"]).map(DType),
    st.just(Everything()),
    st.just(Nothing()),
)

JOINS = st.sampled_from(
    [
        Any,
        All,
        lambda *f: functools.reduce(operator.and_, f),
        lambda *f: functools.reduce(operator.or_, f),
    ]
)

TEXT_FILTERS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.tuples(JOINS, st.lists(inner, min_size=2, max_size=3)).map(
            lambda made: made[0](*made[1])
        ),
    ),
    max_leaves=12,
)


# --- schema files ---


def positions_of(source):
    """Returns the line and column of every value of a schema file, by path, in the order of the file."""
    pending, found = [((), source.data)], {}
    while pending:
        path, value = pending.pop()
        found[path] = source.mark(path)
        inside = value.items() if isinstance(value, dict) else ()
        inside = enumerate(value) if isinstance(value, list) else inside
        pending += reversed([((*path, key), item) for key, item in inside])
    return found


class ReadPage(HTMLParser):
    """The elements with their attributes, and the texts, that a browser sees in a page."""

    def __init__(self, page):
        super().__init__()
        self.seen, self.texts = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def answered(text, pick=0):
    """The text with the answer of a number (or the last one) uncommented in place of every question."""
    out, answers = [], None
    for line in [*text.splitlines(), ""]:
        if answers is not None and re.match(r" *# .*:$", line):
            answers.append([])
        elif answers is not None and re.match(r" *# - ", line):
            answers[-1].append(line.replace("# - ", "- ", 1))
        else:
            out += answers[min(pick, len(answers) - 1)] if answers else []
            answers = [] if "# nqx: question:" in line else None
            out += [] if answers is not None else [line]
    return "\n".join(out)


def interruptions(path, names):
    """Yields a context for each instruction of some functions of a file, before which it raises KeyboardInterrupt."""
    previous, left = sys.gettrace(), 0

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != path or frame.f_code.co_name not in names:
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if not left:
            raise KeyboardInterrupt
        return trace

    class Interrupted:  # contextlib would keep the error, and so the frames that it was raised in
        def __enter__(self):
            sys.settrace(trace)

        def __exit__(self, kind, *_):
            sys.settrace(previous)
            return kind is KeyboardInterrupt

    for instruction in itertools.count(1):
        left = instruction
        yield Interrupted()
        if left > 0:
            return
