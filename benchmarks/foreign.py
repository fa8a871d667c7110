"""How fast a layout adopts a foreign file, beside `load_file` and the same transposes by hand.

The file has the names and sizes of all-MiniLM-L6-v2, a BERT of 6 layers: 101 arrays, 90 MB. Run it from the root of the repository:

    JAX_PLATFORMS=cpu python -m benchmarks.foreign [--rounds N]

The candidates take turns in one process; the ratios are those of the rounds. The results go to `benchmarks/results/foreign.json`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

import neuralqx_struct as s
from benchmarks.rounds import Job, measure, report

MODEL = Path(__file__).parents[1] / "tests/models/minilm"
WIDTH, INNER, LAYERS = 384, 1536, 6
TRANSPOSED = ("query.weight", "key.weight", "value.weight", "dense.weight")


def weights() -> dict[str, np.ndarray]:
    """The arrays of the file."""
    rng = np.random.default_rng(0)
    found = {}

    def add(name, *shape):
        found[name] = rng.standard_normal(shape, np.float32)

    def norm(name):
        add(f"{name}.weight", WIDTH)
        add(f"{name}.bias", WIDTH)

    def dense(name, inputs, outputs):
        add(f"{name}.weight", outputs, inputs)
        add(f"{name}.bias", outputs)

    for name, size in {"word": 30522, "position": 512, "token_type": 2}.items():
        add(f"embeddings.{name}_embeddings.weight", size, WIDTH)
    norm("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{i}" for i in range(LAYERS)):
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            dense(f"{layer}.attention.{part}", WIDTH, WIDTH)
        norm(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", WIDTH, INNER)
        dense(f"{layer}.output.dense", INNER, WIDTH)
        norm(f"{layer}.output.LayerNorm")
    dense("pooler.dense", WIDTH, WIDTH)
    return found


def by_hand(source: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, matrices in JAX's order."""
    found = load_file(source)
    for name in found:
        if name.endswith(TRANSPOSED):
            found[name] = np.ascontiguousarray(found[name].T)
    return found


def jobs(folder: Path) -> tuple[dict[str, Job], dict[str, Job]]:
    """Both ways, to numpy arrays and to arrays of the device, for a file in a folder."""
    schema = s.load_schema(MODEL)
    values = {"n_heads": 12, "eps": 1e-12}
    source = folder / "model.safetensors"
    save_file(weights(), source, {"format": "pt"})

    def adopted(**options):
        return schema.from_layout(source, "hf", values, **options)

    numpy = {
        "by hand": lambda: by_hand(source),
        "layout": lambda: adopted(as_numpy=True),
        "load_file alone": lambda: load_file(source),
    }
    device = {
        "by hand": lambda: jax.block_until_ready(jax.tree.map(jnp.asarray, by_hand(source))),
        "layout": lambda: jax.block_until_ready(jax.tree.leaves(adopted())),
    }
    return numpy, device


def main(rounds: int) -> None:
    """Measures both, as numpy arrays and on the device."""
    with tempfile.TemporaryDirectory() as folder:
        numpy, device = jobs(Path(folder))
        results = {
            "numpy arrays": measure(numpy, "by hand", rounds),
            "JAX arrays": measure(device, "by hand", rounds),
        }
    report("foreign", results, "by hand", ["jax", "numpy", "safetensors"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    main(parser.parse_args().rounds)
