"""A trainer that replaces bundles in a loop; every number in one of them is that of its step.

Arguments: a path, a store, ``exchange`` or ``renames``, and the most seconds that it runs. It ends sooner
when its input ends.
"""

import functools
import os
import select
import sys
import time
from pathlib import Path

import numpy as np

from neuralqx_struct import bundle
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.places import atomic
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"w": 40_000, "b": 30, "c": 7}


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def document(version):
    """Version 2 renames a field, which changes no array; version 3 casts all arrays."""
    dtype = "complex128" if version == 3 else "float64"
    fields = {
        name: {"type": "array", "dtype": dtype, "shape": [size]} for name, size in SIZES.items()
    }
    fields["step" if version == 1 else "count"] = {"type": "int"}
    data = {
        "language": "1",
        "schema": "lab.run",
        "version": version,
        "root": "Run",
        "structs": {"Run": {"fields": fields}},
    }
    steps = {
        2: [{"rename": {"field": "step", "to": "count"}}],
        3: [{"cast": {"field": name, "dtype": "complex128"}} for name in SIZES],
    }
    if version in steps:
        data["migrations"] = [{"from": version - 1, "steps": steps[version]}]
    return document_from_data(data, "")


@functools.cache
def series():
    return series_of([document(version) for version in (1, 2, 3)])


def payload(step):
    """The bundle of one step."""
    written = series().at(1)
    records = {name: {"dtype": "float64", "shape": [size]} for name, size in SIZES.items()}
    fields = {
        name: {"__kind__": "array", "name": name, **record} for name, record in records.items()
    }
    node = {"__kind__": "struct", "type": written.ref("Run"), "fields": {"step": step, **fields}}
    identity = {"id": "lab.run", "version": 1, "fingerprint": payload_fingerprint(written)}
    manifest = {
        "version": 1,
        "schema": identity,
        "schemas": [written.to_data()],
        "manifest": node,
        "arrays": records,
    }
    return Payload(manifest, {name: np.full(size, float(step)) for name, size in SIZES.items()})


def main():
    _, path, store, how, seconds = sys.argv
    if how == "renames":
        atomic._CALLS = {}
    step = 0
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end and not select.select([sys.stdin], [], [], 0)[0]:
        step += 1
        bundle.write(Path(path), payload(step), overwrite=True, store=store)
        if step == 1:
            print("ready", flush=True)
    print(step)


if __name__ == "__main__":
    main()
