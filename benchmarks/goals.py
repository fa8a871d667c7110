"""The cases that have a goal: what is measured, against what, and the ratio to reach.

Each row of `GOALS` makes its jobs in a folder of its own; the first job is ours, the second the reference. `python -m benchmarks` measures them all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

import neuralqx_struct as s
from benchmarks import foreign, peers, pytree, scale
from benchmarks.curves import arrays
from benchmarks.formats import PACKAGES, npz
from benchmarks.many import LIMITS, payload
from benchmarks.rounds import Job, compiled, measure, written
from neuralqx_struct import bundle
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.manifest.text import read_document

ROOT = Path(__file__).parents[1]
Jobs = Mapping[str, Job]


@dataclass(frozen=True)
class Goal:
    """A case of the table of goals.

    Attributes:
        name: What is measured.
        against: The reference.
        limit: The ratio to reach, of the first job to the second.
        jobs: Makes both jobs in a folder.
        rounds: How many rounds a run takes.
        in_memory: Whether the folder is on a disk in memory.
    """

    name: str
    against: str
    limit: float
    jobs: Callable[[Path], Jobs]
    rounds: int = 15
    in_memory: bool = False

    def measured(self, folder: Path, rounds: int) -> dict[str, float]:
        """The figures of the first job against the second."""
        jobs = self.jobs(folder)
        ours, reference = jobs
        return measure(jobs, reference, rounds)[ours]


def of_trees(job: str) -> Callable[[Path], Jobs]:
    """A job of `pytree.JOBS` on four nested structs of five nodes and three statics each."""

    def make(_: Path) -> Jobs:
        candidates = {"neuralqx-struct": peers.ours, "register_dataclass": peers.register_dataclass}
        return {name: pytree.jobs(*classes())[job] for name, classes in candidates.items()}

    return make


class Ours(s.Struct):
    a: object
    b: object
    c: object
    d: object
    e: object
    name: str = s.field(static=True, default="n")
    size: int = s.field(static=True, default=3)
    rate: float = s.field(static=True, default=0.5)


@dataclass(frozen=True)
class Theirs:
    a: object
    b: object
    c: object
    d: object
    e: object
    name: str = "n"
    size: int = 3
    rate: float = 0.5


def construction(_: Path) -> Jobs:
    """Five nodes and three statics with defaults, one of them a float."""
    classes = {"neuralqx-struct": Ours, "frozen dataclass": Theirs}
    return {name: compiled("cls(1, 2, 3, 4, 5)", {"cls": cls}) for name, cls in classes.items()}


LIST = """\
language: "1"
schema: bench.list
version: 1
root: Model
structs:
  Dense: {fields: {kernel: "float32[d, n]", bias: "float32[n]"}}
  Model: {fields: {layers: "list[Dense]", step: int}}
"""


class Dense(s.Struct):
    kernel: jax.Array
    bias: jax.Array


class Model(s.Struct):
    layers: list[Dense]
    step: int


def schema_made(_: Path) -> Jobs:
    """A struct that holds twelve structs, checked against its schema and not."""
    schema = s.load_schema(LIST)
    arrays = {"kernel": jnp.zeros((4, 3)), "bias": jnp.zeros(3)}

    def job(model: Any, dense: Any) -> Job:
        layers = [dense(**arrays) for _ in range(12)]
        return lambda: model(layers=layers, step=1)

    return {"of a schema": job(schema.Model, schema.Dense), "without checks": job(Model, Dense)}


def expression(
    text: str, convert: Callable[[Any], Any], reference: Callable[[Any], Any]
) -> Callable[[Path], Jobs]:
    """An expression of the arrays `i` of int32 and `f` of float32, against numpy's own operations on them."""

    def make(_: Path) -> Jobs:
        numbers = np.random.default_rng(0).integers(0, 1000, 10**6)
        held = {"i": numbers.astype(np.int32), "f": (numbers / 1000).astype(np.float32)}
        parsed, names = parse(text), {name: convert(array) for name, array in held.items()}
        return {
            "neuralqx-struct": lambda: evaluate(parsed, names),
            "numpy": lambda: reference(held),
        }

    return make


#: Expressions, and the same by numpy.
EXPRESSIONS: Mapping[str, Callable[[Any], Any]] = {
    "all(i < 50257)": lambda held: (held["i"] < 50257).all(),
    "sum(i)": lambda held: held["i"].sum(),
    "sum(f)": lambda held: held["f"].sum(),
    "all(i + i + 1 > 0)": lambda held: (held["i"] + held["i"] + 1 > 0).all(),
}


def text_of(tree: Any, folder: Path) -> bytes:
    return (s.export(tree, folder / "bundle") / "manifest.json").read_bytes()


def ten_thousand() -> dict[str, np.ndarray]:
    """Arrays of 1 KiB."""
    data = np.random.default_rng(0).random((10_000, 256), np.float32)
    return {f"x{i}": data[i] for i in range(10_000)}


def manifest_of_arrays(folder: Path) -> Jobs:
    text = text_of(ten_thousand(), folder)
    return {"read_document": lambda: read_document(text), "json.loads": lambda: json.loads(text)}


def manifest_of_structs(folder: Path) -> Jobs:
    data = np.zeros((10_000, 4), np.float32)
    structs = [Dense(kernel=data[2 * i], bias=data[2 * i + 1]) for i in range(5_000)]
    text = text_of(structs, folder)
    return {"read_document": lambda: read_document(text), "json.loads": lambda: json.loads(text)}


def touch(arrays: Mapping[str, np.ndarray]) -> int:
    """Read one number of each page."""
    return sum(int(a.reshape(-1).view(np.uint8)[::4096].max()) for a in arrays.values())


def many_against_npz(folder: Path) -> Jobs:
    arrays, path = ten_thousand(), folder / "arrays.npz"
    ours = s.export(arrays, folder / "bundle")
    np.savez(path, **arrays)
    return {"load": lambda: touch(s.load(ours)), "np.load": lambda: touch(npz(path))}


def saved(arrays: dict[str, np.ndarray], folder: Path) -> tuple[Path, Path]:
    """The same arrays as a bundle, and by safetensors."""
    path = folder / "arrays.safetensors"
    safetensors.numpy.save_file(arrays, path)
    return s.export(arrays, folder / "bundle"), path


def many_against_safetensors(folder: Path) -> Jobs:
    ours, path = saved(ten_thousand(), folder)
    load_file = safetensors.numpy.load_file
    return {"load": lambda: touch(s.load(ours)), "load_file": lambda: touch(load_file(path))}


def one_of(ours: Path, path: Path, name: str) -> Jobs:
    def theirs() -> int:
        with safetensors.safe_open(path, "numpy") as file:
            return touch({name: file.get_tensor(name)})

    select = s.filters.PathIn((name,))
    return {
        "load, select=": lambda: touch({name: s.load(ours, select=select)[name]}),
        "safe_open": theirs,
    }


def one_of_many(folder: Path) -> Jobs:
    return one_of(*saved(ten_thousand(), folder), "x5000")


def large(total: int) -> dict[str, np.ndarray]:
    """Twenty arrays of this many bytes in all."""
    rng = np.random.default_rng(0)
    return {f"layer{i}": rng.random(total // 80, np.float32) for i in range(20)}


def one_of_twenty(folder: Path) -> Jobs:
    return one_of(*saved(large(1 << 30), folder), "layer10")


def gibibyte(**how: Any) -> Callable[[Path], Jobs]:
    def make(folder: Path) -> Jobs:
        ours, path = saved(large(1 << 30), folder)
        load_file = safetensors.numpy.load_file
        return {
            "load": lambda: touch(s.load(ours, **how)),
            "load_file": lambda: touch(load_file(path)),
        }

    return make


def saving_raw(folder: Path) -> Jobs:
    arrays, path = large(128 << 20), folder / "raw"

    def raw() -> None:
        with path.open("wb", buffering=0) as file:
            for array in arrays.values():
                file.write(array.view(np.uint8))
            os.fsync(file.fileno())

    return {
        "export": lambda: s.export(arrays, folder / "bundle", overwrite=True),
        "write and fsync": raw,
    }


def saving_npz(folder: Path) -> Jobs:
    arrays = large(128 << 20)
    return {
        "export": lambda: s.export(arrays, folder / "bundle", overwrite=True),
        "np.savez": lambda: np.savez(folder / "arrays.npz", **arrays),
    }


class Block(s.Struct):
    kernel: jax.Array
    bias: jax.Array


class Small(s.Struct):
    first: Block
    second: Block
    third: Block
    fourth: Block
    step: int = s.field(static=True, default=0)


def small() -> Small:
    """Eight arrays of 256 bytes in five structs."""
    blocks = [Block(kernel=jnp.full((8, 8), i), bias=jnp.full(64, i)) for i in range(4)]
    return Small(*blocks)


def flat(state: Small) -> dict[str, np.ndarray]:
    return {f"a{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}


def small_export(folder: Path) -> Jobs:
    state = small()
    return {
        "export": lambda: s.export(state, folder / "bundle", overwrite=True),
        "np.savez": lambda: np.savez(folder / "arrays.npz", **flat(state)),
    }


def small_load(folder: Path) -> Jobs:
    state, path = small(), folder / "arrays.npz"
    ours = s.export(state, folder / "bundle")
    np.savez(path, **flat(state))
    return {
        "load": lambda: Small.load(ours),
        "np.load and jnp.asarray": lambda: {k: jnp.asarray(v) for k, v in npz(path).items()},
    }


def renaming(folder: Path) -> Jobs:
    """A field renamed in a bundle of 20 arrays, beside the same by hand."""
    old, new = folder / "old", folder / "new"
    bundle.write(old, payload(20, (1 << 30) // 80))
    source, target = folder / "hand.npz", folder / "by-hand.npz"
    np.savez(source, **large(1 << 30))

    def migrated() -> None:
        s.migrate(old, new)
        shutil.rmtree(new)

    def by_hand() -> None:
        np.savez(target, **{f"y{name}": array for name, array in npz(source).items()})

    return {"migrate": migrated, "np.load and np.savez": by_hand}


def process(folder: Path, *words: str) -> Job:
    """A whole process of this Python, with compiled modules in a folder, as installed packages have them."""
    given = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **given, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}

    def run() -> None:
        subprocess.run([sys.executable, *words], env=environment, check=True, capture_output=True)

    return run


def processes(*words: str) -> Callable[[Path], Jobs]:
    """A command, beside `import jax` alone."""

    def make(folder: Path) -> Jobs:
        made = {"PLAIN": s.export({"x": np.ones(3), "step": 1}, folder / "plain")}
        if "BUNDLE" in words:
            schema = s.load_schema(SCHEMA)
            made["BUNDLE"] = s.export(s.example(schema.root), folder / "bundle")
        given = [str(made.get(word, word)) for word in words]
        return {
            " ".join(words): process(folder, "-m", "neuralqx_struct", *given),
            "import jax": process(folder, "-c", "import jax"),
        }

    return make


def meshed(folder: Path) -> Jobs:
    """A load that places arrays on a mesh of one device, beside one without."""
    path = s.export({f"a{n}": jnp.ones(256) for n in range(4_000)}, folder / "bundle")
    mesh = jax.make_mesh((1,), ("x",))
    return {
        "on a mesh": lambda: jax.block_until_ready(s.load(path, mesh=mesh)),
        "load": lambda: jax.block_until_ready(s.load(path)),
    }


def tenfold(folder: Path, job: Callable[[Path], Job]) -> Jobs:
    """A job on a bundle of 100,000 arrays, beside ten times the same on one of 10,000."""
    small = job(s.export(arrays(10_000), folder / "small", limits=LIMITS))
    large = job(s.export(arrays(100_000), folder / "large", limits=LIMITS))

    def ten() -> None:
        for _ in range(10):
            small()

    return {"100,000": large, "10,000, ten times": ten}


def loading_tenfold(folder: Path) -> Jobs:
    return tenfold(folder, lambda path: lambda: s.load(path, limits=LIMITS))


def saving_tenfold(folder: Path) -> Jobs:
    def job(path: Path) -> Job:
        held = s.load(path, limits=LIMITS, mmap=False)
        return lambda: s.export(held, path, overwrite=True, limits=LIMITS)

    return tenfold(folder, job)


def managers(_: Path) -> Jobs:
    """Nothing by itself: `scale` measures the parts of one save and restore together."""
    return {}


@dataclass(frozen=True)
class OfOrbax(Goal):
    """A part of a save and a restore of 256 MiB by Orbax's manager."""

    part: str = ""

    def measured(self, folder: Path, rounds: int) -> dict[str, float]:
        return scale.compared(256, rounds, folder.parent)[self.part]["ours"]


def adoption(folder: Path) -> Jobs:
    numpy, _ = foreign.jobs(folder)
    return {"from_layout": numpy["layout"], "by hand": numpy["by hand"]}


SCHEMAS = str(ROOT / "schemas")
SCHEMA = str(ROOT / "schemas" / "vmc_state")

GOALS = (
    Goal("flatten four nested structs", "register_dataclass", 1.1, of_trees("flatten"), 101),
    Goal("unflatten them", "register_dataclass", 0.25, of_trees("unflatten"), 101),
    Goal("jit dispatch", "register_dataclass", 0.90, of_trees("jit identity"), 101),
    Goal("tree.map", "register_dataclass", 0.5, of_trees("tree.map"), 101),
    Goal(
        "construct, a static float among 8 fields",
        "frozen dataclass",
        0.8,
        construction,
        101,
    ),
    Goal("construct a schema's struct that holds 12", "without checks", 3.0, schema_made, 101),
    *(
        Goal(
            f"{text} of a million, {library}", "numpy", 2.0, expression(text, convert, by_numpy), 51
        )
        for text, by_numpy in EXPRESSIONS.items()
        for library, convert in (("numpy", np.asarray), ("JAX", jnp.asarray))
    ),
    Goal("check the manifest of 10,000 arrays", "json.loads", 1.3, manifest_of_arrays),
    Goal("check the manifest of 5,000 structs", "json.loads", 3.0, manifest_of_structs),
    Goal("load 10,000 arrays of 1 KiB", "np.load", 0.25, many_against_npz),
    Goal("load 10,000 arrays of 1 KiB", "load_file", 2.5, many_against_safetensors),
    Goal("one of 10,000 arrays", "safe_open", 8.0, one_of_many),
    Goal("one of 20 arrays of 1 GiB", "safe_open", 0.35, one_of_twenty),
    Goal("export eight arrays of 256 bytes", "np.savez", 3.0, small_export, 51, in_memory=True),
    Goal("load them", "np.load and jnp.asarray", 1.2, small_load, 51, in_memory=True),
    Goal("load 1 GiB, verified", "load_file", 0.35, gibibyte(), 9),
    Goal("load 1 GiB, mapped", "load_file", 0.2, gibibyte(verify=False), 9),
    Goal("save 128 MiB", "write and fsync", 1.3, saving_raw, 9),
    Goal("save 128 MiB", "np.savez", 0.9, saving_npz, 9),
    Goal("rename in 1 GiB", "np.load and np.savez", 0.015, renaming, 5),
    Goal("validate a plain tree, a process", "import jax", 0.25, processes("validate", "PLAIN"), 9),
    Goal("validate, a process", "import jax", 0.3, processes("validate", "BUNDLE"), 9),
    Goal("schema lint, a process", "import jax", 0.45, processes("schema", "lint", SCHEMA), 9),
    Goal(
        "breaking of the shipped schemas, a process",
        "import jax",
        3.0,
        processes("breaking", SCHEMAS, "--against", SCHEMAS),
        9,
    ),
    Goal("load 4,000 arrays on a mesh", "load", 1.3, meshed, in_memory=True),
    Goal("adopt 90 MB of safetensors", "by hand", 1.5, adoption, 9),
    Goal("load each of 100,000 arrays", "of 10,000", 1.3, loading_tenfold, 3, in_memory=True),
    Goal("save each of 100,000 arrays", "of 10,000", 1.3, saving_tenfold, 3, in_memory=True),
    *(
        OfOrbax(name, against, limit, managers, 9, in_memory=True, part=part)
        for name, against, limit, part in (
            ("block while Orbax's manager saves 256 MiB", "StandardSave", 1.5, "blocking"),
            ("save them in all", "StandardSave", 1.1, "total"),
            ("restore them, verified", "StandardRestore", 1.1, "restore"),
        )
    ),
)


def measured(goal: Goal, share: float = 1.0) -> dict[str, float]:
    """The ratio of ours to the reference, in a temporary folder of its own."""
    where = "/dev/shm" if goal.in_memory and Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        found = goal.measured(Path(folder), max(3, round(goal.rounds * share)))
    return {**found, "goal": goal.limit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of cases")
    parser.add_argument("--share", type=float, default=1.0, help="of the rounds of each case")
    given = parser.parse_args()
    results = {}
    for goal in GOALS:
        if not any(part in goal.name for part in given.only):
            continue
        row = results[f"{goal.name} / {goal.against}"] = measured(goal, given.share)
        missed = "  missed" if row["ratio"] > goal.limit else ""
        shown = f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        print(f"{goal.name:44} {goal.against:28} {shown:24} {goal.limit}{missed}", flush=True)
    written("goals", {"goals": results}, PACKAGES)


if __name__ == "__main__":
    main()
