"""How fast schemas are: reading a long file, compiling many structs, and instances beside hand-written ones.

Ratios are taken side by side in one run, from the best of several rounds. Run it from the root of the repository:

    JAX_PLATFORMS=cpu python benchmarks/schema.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import yaml

import neuralqx_struct as s
from neuralqx_struct.compiler import classes_of
from neuralqx_struct.lint import lint_series
from neuralqx_struct.schema.loader import read_text
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import load_series

HEAD = 'language: "1"\nschema: bench.{name}\nversion: 1\nroot: S0\n'
STRUCTS = 500


def text(name: str, structs: int) -> str:
    """A schema with ten lines for each struct: a 5,000-line file has 500."""
    lines = [HEAD.format(name=name) + "dims:\n  d: {min: 1}\nstructs:\n"]
    for i in range(structs):
        inner = f"S{i + 1} | null" if i + 1 < structs else "int | null"
        lines.append(
            f"  S{i}:\n    doc: Struct number {i}.\n    fields:\n"
            f"      kernel: {{type: array, dtype: float32, shape: [d, n], tags: [trainable], doc: Weights.}}\n"
            f'      bias: "float32[n]"\n'
            f"      next: {{type: {inner}, default: null}}\n"
            f"      step: {{type: int, default: 0, ge: 0}}\n"
            f"      rate:\n        type: float\n        default: 0.5\n"
        )
    return "".join(lines)


def best(function: Callable[[], Any], rounds: int = 5) -> float:
    """Seconds of the fastest round."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return min(found)


def reading() -> dict[str, float]:
    """Reading a 5,000-line file, beside PyYAML's parser in C on it."""
    long = text("long", STRUCTS)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    theirs = best(lambda: yaml.load(long, loader))
    parsed = best(lambda: read_text(long))
    source = read_text(long)
    return {
        "lines": long.count("\n"),
        "PyYAML in C, ms": theirs * 1e3,
        "of these its events alone": best(lambda: list(yaml.parse(long, loader))) / theirs,
        "read_text / PyYAML": parsed / theirs,
        "validating the document / PyYAML": best(lambda: parse_document(source)) / theirs,
        "load_series / PyYAML": best(lambda: load_series(long)) / theirs,
        "lint_series / PyYAML": best(lambda: lint_series(load_series(long)), 3) / theirs,
    }


def compiling() -> dict[str, float]:
    """Making the classes of 500 structs, each round of another schema: classes are made once."""
    seconds = []
    for i in range(3):
        series = load_series(text(f"compile{i}", STRUCTS))
        start = time.process_time()
        classes_of(series, 1, own=True)
        seconds.append(time.process_time() - start)
    return {"500 structs, s of CPU": min(seconds)}


class Hand(s.Struct):
    """What the schema below says, by hand."""

    kernel: Any
    bias: Any
    step: int = 0


def instances() -> dict[str, float]:
    """Instances of a schema's class beside a class written by hand; construction of the former checks types and sizes."""
    import jax
    import jax.numpy as jnp

    schema = s.load_schema(
        HEAD.format(name="instances").replace("S0", "Net")
        + 'structs:\n  Net: {fields: {kernel: "float32[d, n]", bias: "float32[n]", step: {type: int, default: 0}}}\n'
    )
    values = {"kernel": jnp.zeros((4, 3)), "bias": jnp.zeros(3)}
    made, hand = schema.Net(**values), Hand(**values)
    many = range(2000)

    def ratio(work: Callable[[Any], Any]) -> float:
        pairs = [(best(lambda: [work(made) for _ in many], 3), best(lambda: [work(hand) for _ in many], 3))]
        pairs += [(best(lambda: [work(made) for _ in many], 3), best(lambda: [work(hand) for _ in many], 3))]
        return min(a for a, _ in pairs) / min(b for _, b in pairs)

    jitted = jax.jit(lambda x: x)
    return {
        "attribute": ratio(lambda x: x.kernel),
        "flatten": ratio(jax.tree_util.tree_leaves),
        "tree.map": ratio(lambda x: jax.tree_util.tree_map(lambda leaf: leaf, x)),
        "jit dispatch": ratio(jitted),
        "==": ratio(lambda x: x == x),  # noqa: PLR0124
        "construct (checked / unchecked)": ratio(lambda x: type(x)(**values)),
        "replace (checked / unchecked)": ratio(lambda x: x.replace(step=1)),
    }


if __name__ == "__main__":
    for measure in (reading, compiling, instances):
        print((measure.__doc__ or "").partition("\n")[0])
        for what, value in measure().items():
            print(f"  {what:<40} {value:8.2f}")
