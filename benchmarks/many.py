"""Costs per array and per node of large bundles, at 10,000 arrays and at ten times as many.

    python benchmarks/many.py [--arrays 10000] [--times 10] [--rounds 5] [--where DIR]

Each round runs both sizes in turns. Times are those on the processors, which another load of the machine changes least; printed are
medians in microseconds per array, and the median over the rounds of the cost at the larger size by that at the smaller one.
"""

import argparse
import gc
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.reading import document_from_data

#: Those of a manifest of any size that is measured here.
LIMITS = Limits(manifest_bytes=16 << 30, nodes=1 << 40)


class State(s.Struct):
    params: dict[str, dict[str, np.ndarray]]
    step: int


def layers(count):
    """Layers of ten arrays of four floats each."""
    data = np.arange(count * 4, dtype=np.float32).reshape(count, 4)
    names = range(count // 10)
    return {f"layer{i}": {f"w{j}": data[10 * i + j] for j in range(10)} for i in names}


def versions(size=4):
    """A schema of two versions, of which the second renames the field that holds all arrays."""
    documents = []
    for version, name in enumerate(("params", "weights"), 1):
        structs = {"Many": {"fields": {name: f"dict[str, float32[{size}]]"}}}
        data = {"language": "1", "schema": "lab.many", "version": version, "root": "Many"}
        data["structs"] = structs
        if version == 2:
            steps = [{"rename": {"field": "params", "to": "weights"}}]
            data["migrations"] = [{"from": 1, "steps": steps}]
        documents.append(document_from_data(data, f"v{version}"))
    return documents


def payload(count, size=4):
    """A payload of the first version, with this many arrays of so many floats."""
    first, second = versions(size)
    data = np.arange(count * size, dtype=np.float32).reshape(count, size)
    arrays = {f"params.layer{i}.weight": data[i] for i in range(count)}
    record = {"dtype": "float32", "shape": [size]}
    items = [[name[7:], {"__kind__": "array", "name": name, **record}] for name in arrays]
    fields = {"params": {"__kind__": "dict", "items": items}}
    document = {
        "version": 1,
        "schema": {"id": first.id, "version": 1, "fingerprint": payload_fingerprint(first)},
        "schemas": [first.to_data(), second.to_data()],
        "manifest": {"__kind__": "struct", "type": first.ref("Many"), "fields": fields},
        "arrays": {name: dict(record) for name in arrays},
    }
    return Payload(document, arrays)


def sound(found):
    assert found == []


def measured(count, root):
    """Seconds on the processors of each job, for this many arrays; and for as many nodes without arrays."""
    taken = {}

    def run(name, job):
        gc.collect()
        start = time.process_time()
        result = job()
        taken[name] = time.process_time() - start
        return result

    state = State(params=layers(count), step=1)
    path = root / "arrays"
    run("export", lambda: s.export(state, path, limits=LIMITS))
    run("load", lambda: s.load(path, load_cls=State, limits=LIMITS))
    run("validate", lambda: sound(s.validate(path, limits=LIMITS)))
    run("verify", lambda: sound(s.verify(path, limits=LIMITS)))
    sizes = {"manifest": (path / "manifest.json").stat().st_size}
    sizes["arrays.npz"] = (path / "arrays.npz").stat().st_size
    old, new = root / "old", root / "new"
    bundle.write(old, payload(count), limits=LIMITS)
    run("validate by a schema", lambda: sound(s.validate(old, limits=LIMITS)))
    run("migrate", lambda: s.migrate(old, new, limits=LIMITS))
    run("load and migrate", lambda: s.load(old, limits=LIMITS))
    # Ten nodes for each array: keys and numbers of dicts.
    numbers = [{"energy": i, "error": -i} for i in range(2 * count)]
    path = root / "nodes"
    run("export of nodes", lambda: s.export(numbers, path, limits=LIMITS))
    run("load of nodes", lambda: s.load(path, limits=LIMITS))
    run("validate of nodes", lambda: sound(s.validate(path, limits=LIMITS)))
    sizes["manifest of nodes"] = (path / "manifest.json").stat().st_size
    return taken, sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrays", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--where", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    counts = (options.arrays, options.arrays * options.times)
    found = {count: [] for count in counts}
    sizes = {}
    with tempfile.TemporaryDirectory(dir=options.where) as folder:
        measured(100, Path(folder, "warm"))
        for _ in range(options.rounds):
            for count in counts:
                root = Path(folder, str(count))
                taken, sizes[count] = measured(count, root)
                found[count].append(taken)
                shutil.rmtree(root)
    small, large = counts
    print(f"microseconds per array at {small} and {large} arrays, {options.rounds} rounds")
    record = {"bytes": sizes}
    for name in found[small][0]:
        costs = {c: [1e6 * row[name] / c for row in rows] for c, rows in found.items()}
        ratios = [b / a for a, b in zip(costs[small], costs[large], strict=True)]
        medians = {c: statistics.median(row) for c, row in costs.items()}
        ratio = statistics.median(ratios)
        record[name] = {"cost": medians, "ratio": ratio}
        print(
            f"{name:22} {medians[small]:7.1f} {medians[large]:7.1f}  ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    for name, size in sizes[large].items():
        print(f"{name:22} {size / large:7.1f} bytes per array ({sizes[small][name] / small:.1f})")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "many.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
