"""Costs of migrations: of the manifest alone, of streamed arrays, of chains and of many arrays; and of a proof.

The reference is what users do by hand: `np.load`, rename, `np.savez`. Peaks of memory are those of child processes, above what the imports take. Run it with

    python -m benchmarks.evolution [--gib 1] [--rounds 5] [--arrays 10000] [--folder DIR]

The figures also go to `benchmarks/results/evolution.json`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.rounds import measure, written
from neuralqx_struct import bundle
from neuralqx_struct.classes.schemas import Schema
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.migration import migrate

ROOT = Path(__file__).parent.parent
COUNT = 20
BY_HAND = "np.savez load-rename-save"
PACKAGES = ("neuralqx-struct", "jax", "numpy")


def versions(names, last=2, step=None):
    """A schema in which every version renames one field, or does ``step``."""
    documents = []
    for version in range(1, last + 1):
        fields = {
            f"{name}{'' if name != names[0] else f'_{version}'}": "float32[...]" for name in names
        }
        if version > 1 and step is not None:
            fields[names[1]] = step[1]
        data = {"language": "1", "schema": "lab.big", "version": version, "root": "Big"}
        data["structs"] = {"Big": {"fields": fields}}
        if version > 1:
            rename = {
                "rename": {"field": f"{names[0]}_{version - 1}", "to": f"{names[0]}_{version}"}
            }
            data["migrations"] = [
                {"from": version - 1, "steps": [rename, *([step[0]] if step else [])]}
            ]
        documents.append(document_from_data(data, f"v{version}"))
    return documents


def payload(documents, arrays):
    first = documents[0]
    records = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()}
    fields = zip(first.structs["Big"].fields, records.items(), strict=True)
    nodes = {
        field: {"__kind__": "array", "name": name, **record} for field, (name, record) in fields
    }
    document = {
        "version": 1,
        "schema": {"id": first.id, "version": 1, "fingerprint": payload_fingerprint(first)},
        "schemas": [d.to_data() for d in documents],
        "manifest": {"__kind__": "struct", "type": first.ref("Big"), "fields": nodes},
        "arrays": records,
    }
    return Payload(document, arrays)


def clear(path):
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def by_hand(source, target):
    """Loads, renames and saves: the work without a schema."""
    with np.load(source) as held:
        arrays = {("renamed" if i == 0 else name): held[name] for i, name in enumerate(held.files)}
    np.savez(target, **arrays)


def migrated(source, target, to=2):
    """A job that migrates a bundle and removes the new one."""

    def run():
        migrate(source, target, to=to)
        clear(target)

    return run


_PEAK = """
import sys
from benchmarks.memory import peak
from neuralqx_struct.tools.migration import migrate
print(peak(lambda: migrate(sys.argv[1], sys.argv[2], to=2)))
"""


def peak(source, target):
    """Private memory that a migration takes at its height, in bytes; mapped files do not count."""
    command = [sys.executable, "-c", _PEAK, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    clear(target)
    return int(done.stdout)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--gib", type=float, default=1.0)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--arrays", type=int, default=10_000)
    options.add_argument("--folder", type=Path)
    given = options.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        work = Path(name)
        results |= renames(work, given.gib, given.rounds)
        results |= streams(work, given.gib, given.rounds)
        results |= chains(work, given.rounds)
        results |= many(work, given.arrays, given.rounds)
    results |= proofs(given.rounds)
    for title, rows in results.items():
        print(f"\n{title}")
        for row, figures in rows.items():
            shown = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
            print(f"    {row:34} {shown}")
    written("evolution", {"gib": given.gib, "results": results}, PACKAGES)


def renames(work, gib, rounds):
    """A rename in bundles of a GiB, of a tenth and of a hundredth of it, by hand and here."""
    found = {}
    names = [f"layer{i}" for i in range(COUNT)]
    for share in (1, 0.1, 0.01):
        size = max(int(gib * share * (1 << 30)) // COUNT // 4, 1)
        arrays = {name: np.random.default_rng(0).random(size, np.float32) for name in names}
        held = payload(versions(names), arrays)
        folder, archive, npz = work / "ckpt", work / "ckpt.zip", work / "hand.npz"
        bundle.write(folder, held)
        bundle.write(archive, held)
        np.savez(npz, **arrays)
        del arrays, held
        jobs = {
            BY_HAND: partial(by_hand, npz, work / "by-hand.npz"),
            "migrate a folder": migrated(folder, work / "new"),
            "migrate a zip": migrated(archive, work / "new.zip"),
        }
        found[f"rename, {gib * share:g} GiB"] = measure(jobs, BY_HAND, rounds)
        for path in (folder, archive, npz):
            clear(path)
    return found


def streams(work, gib, rounds):
    """A cast of one array of twenty, and of all: time, and the memory that they take, in arrays."""
    names = [f"layer{i}" for i in range(COUNT)]
    size = max(int(gib * (1 << 30)) // COUNT // 4, 1)
    arrays = {name: np.random.default_rng(0).random(size, np.float32) for name in names}
    one = versions(names, step=({"cast": {"field": names[1], "dtype": "float64"}}, "float64[...]"))
    fields = {f"{names[0]}_1": "float32[...]", **dict.fromkeys(names[1:], "float32[...]")}
    data = {"language": "1", "schema": "lab.big", "root": "Big"}
    casts = [{"cast": {"field": field, "dtype": "float64"}} for field in fields]
    every = [
        document_from_data({**data, "version": 1, "structs": {"Big": {"fields": fields}}}, "v1"),
        document_from_data(
            {
                **data,
                "version": 2,
                "structs": {"Big": {"fields": dict.fromkeys(fields, "float64[...]")}},
                "migrations": [{"from": 1, "steps": casts}],
            },
            "v2",
        ),
    ]
    bundle.write(work / "one", payload(one, arrays))
    bundle.write(work / "one.zip", payload(one, arrays))
    bundle.write(work / "every", payload(every, arrays))
    np.savez(work / "hand.npz", **arrays)
    del arrays
    jobs = {
        BY_HAND: partial(by_hand, work / "hand.npz", work / "by-hand.npz"),
        "cast one of 20, folder": migrated(work / "one", work / "new"),
        "cast one of 20, zip": migrated(work / "one.zip", work / "new.zip"),
        "cast all": migrated(work / "every", work / "all"),
    }
    rows = measure(jobs, BY_HAND, rounds)
    for row, (source, target) in {
        "cast one of 20, folder": ("one", "new"),
        "cast one of 20, zip": ("one.zip", "new.zip"),
        "cast all": ("every", "all"),
    }.items():
        rows[row]["peak_in_cast_arrays"] = peak(work / source, work / target) / (8 * size)
    rows |= loads(work / "one", rounds)
    for path in ("one", "one.zip", "every", "hand.npz"):
        clear(work / path)
    return {f"streams, {gib:g} GiB": rows}


def loads(path, rounds):
    """Loading as the version that wrote it, and as the next one, without reading the arrays."""
    documents = [document_from_data(data, "v") for data in bundle.read_manifest(path)["schemas"]]
    schema = Schema(series_of(documents), 2)
    jobs = {
        f"load as version {version}": partial(schema.at(version).load, path, verify=False)
        for version in (1, 2)
    }
    return measure(jobs, "load as version 1", rounds)


def chains(work, rounds):
    """Fifty versions in a row."""
    names = ["a", "b", "c"]
    held = payload(versions(names, 50), {name: np.zeros(100, "f4") for name in names})
    bundle.write(work / "chain", held)
    jobs = {f"{to - 1} hops": migrated(work / "chain", work / "new", to) for to in (2, 11, 50)}
    return {"chains": measure(jobs, "1 hops", rounds)}


def many(work, count, rounds):
    """A bundle of many small arrays."""
    names = [f"x{i}" for i in range(count)]
    arrays = {name: np.zeros(256, "f4") for name in names}
    bundle.write(work / "many", payload(versions(names), arrays))
    np.savez(work / "many.npz", **arrays)
    jobs = {
        BY_HAND: partial(by_hand, work / "many.npz", work / "by-hand.npz"),
        "migrate a folder": migrated(work / "many", work / "new"),
    }
    return {f"rename among {count} arrays": measure(jobs, BY_HAND, rounds)}


def proofs(rounds):
    """The proof of a migration that renames every field."""
    jobs = {}
    for count in (75, 300, 1200):
        data = {"language": "1", "schema": "lab.wide", "version": 1, "root": "Wide"}
        fields = dict.fromkeys([f"layer{i}_kernel" for i in range(count)], "float32[n]")
        old = document_from_data({**data, "structs": {"Wide": {"fields": fields}}}, "v1")
        renamed = {name.replace("kernel", "w"): declared for name, declared in fields.items()}
        steps = [{"rename": {"field": a, "to": b}} for a, b in zip(fields, renamed, strict=True)]
        later = {**data, "version": 2, "structs": {"Wide": {"fields": renamed}}}
        new = document_from_data({**later, "migrations": [{"from": 1, "steps": steps}]}, "v2")
        assert prove(old, new) == []
        jobs[f"{count} renamed fields"] = partial(prove, old, new)
    return {"proofs": measure(jobs, "75 renamed fields", rounds)}


if __name__ == "__main__":
    main()
