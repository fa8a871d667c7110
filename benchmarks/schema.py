"""How fast schemas are: reading a long file, compiling many structs, and instances beside hand-written ones.

Ratios are taken side by side in one run, from the best of several rounds. Run it from the root of the repository:

    JAX_PLATFORMS=cpu python benchmarks/schema.py

On two busy cores of a server, Python 3.11 and jax 0.10.2, in November 2026, it took to construct, in ns of CPU time:

                                              schema   Struct, same checks   Struct, bare   dataclass, same checks   bare
    4 scalars, 3 of them static                  890                  1400            800                     1000    810
    3 arrays with dims                          1180                  5500            700                     2800    700
    a struct, and a list of 4                   3450                 15000            680                    11300    570
    an array, 2 numbers with a constraint       1040                  4300            690                     1500    690
    an array, an int, 3 derived fields         15500                 14800          14700                     2900   1900
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import time
from collections.abc import Callable
from typing import Any

import yaml

import neuralqx_struct as s
from neuralqx_struct.classes.compiler import classes_of
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.tools.linting import lint_series

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


SCHEMA = """\
language: "1"
schema: bench.instances
version: 1
root: Dense
structs:
  Options:
    fields:
      width: {type: int, kind: static}
      name: {type: str, kind: static}
      rate: {type: float}
      deep: {type: bool, kind: static}
  Dense:
    fields:
      kernel: "float32[d, n]"
      bias: "float32[n]"
      gain: "float32[d]"
  Model:
    fields:
      head: {type: Dense}
      layers: {type: "list[Dense]"}
  Interval:
    fields:
      low: {type: float}
      high: {type: float}
      values: "float32[n]"
    constraints: [{expr: low < high}]
  Grid:
    fields:
      points: "float32[d, n]"
      alpha: {type: int, kind: static}
      width: {type: int, derived: 4 * alpha + 1}
      count: {type: int, derived: size(points) + alpha if alpha > 0 else 0}
      rows: {type: int, derived: "shape(points)[0] * width"}
"""

#: The derived fields of the schema, in Python.
DERIVED: dict[str, dict[str, Callable[[Any], Any]]] = {
    "Grid": {
        "width": lambda self: 4 * self.alpha + 1,
        "count": lambda self: self.points.size + self.alpha if self.alpha > 0 else 0,
        "rows": lambda self: self.points.shape[0] * self.width,
    }
}


def checks() -> dict[str, Callable[[Any], None]]:
    """Returns the checks of the schema above as written by hand: one function for each class, as ``__post_init__``.

    Structs whose fields are independent have validators in its place, which are faster.
    """
    import jax
    import numpy as np

    float32 = np.dtype("float32")

    def is_array(value: Any, ndim: int) -> bool:
        return isinstance(value, jax.Array) and value.dtype == float32 and value.ndim == ndim

    def options(self: Any) -> None:
        good = type(self.width) is int and type(self.name) is str and type(self.deep) is bool
        if not (good and type(self.rate) in (int, float)):
            raise TypeError("fields of wrong types")

    def dense(self: Any) -> None:
        kernel, bias, gain = self.kernel, self.bias, self.gain
        if not (is_array(kernel, 2) and is_array(bias, 1) and is_array(gain, 1)):
            raise TypeError("no arrays of the right types")
        if kernel.shape != (gain.shape[0], bias.shape[0]):
            raise TypeError("sizes that disagree")

    def model(self: Any) -> None:
        if not (
            type(self.layers) is list
            and all(type(each).__name__ == "Dense" for each in (self.head, *self.layers))
        ):
            raise TypeError("no layers")
        for layer in (self.head, *self.layers):  # JAX can build them of any values
            dense(layer)

    def interval(self: Any) -> None:
        if not (type(self.low) is float and type(self.high) is float and is_array(self.values, 1)):
            raise TypeError("fields of wrong types")
        if not self.low < self.high:
            raise TypeError("an empty interval")

    def grid(self: Any) -> None:
        if not (is_array(self.points, 2) and type(self.alpha) is int):
            raise TypeError("fields of wrong types")

    return {"Options": options, "Dense": dense, "Model": model, "Interval": interval, "Grid": grid}


FIELDS = {
    "Options": ("width", "name", "rate", "deep"),
    "Dense": ("kernel", "bias", "gain"),
    "Model": ("head", "layers"),
    "Interval": ("low", "high", "values"),
    "Grid": ("points", "alpha"),
}
STATIC = ("width", "name", "deep", "alpha")
VALIDATORS = {
    "width": lambda value: type(value) is int,
    "name": lambda value: type(value) is str,
    "deep": lambda value: type(value) is bool,
    "rate": lambda value: type(value) in (float, int),
}
ROWS = {
    "Options": "4 scalars, 3 of them static",
    "Dense": "3 arrays with dims",
    "Model": "a struct, and a list of 4",
    "Interval": "an array, 2 numbers with a constraint",
    "Grid": "an array, an int, 3 derived fields",
}
COLUMNS = (
    "schema",
    "Struct, same checks",
    "Struct, bare",
    "dataclass, same checks",
    "dataclass, bare",
)


def families() -> list[Any]:
    """The classes of each column, by name."""

    def struct(name: str, more: dict[str, Any]) -> Any:
        alone = VALIDATORS if more and name == "Options" else {}
        more = {} if alone else more
        statics = {
            each: s.field(static=each in STATIC, validator=alone.get(each, ()))
            for each in FIELDS[name]
        }
        derived = {
            each: s.field(static=True, derived=compute)
            for each, compute in DERIVED.get(name, {}).items()
        }
        annotations = {"__annotations__": dict.fromkeys([*FIELDS[name], *derived], Any)}
        return type(s.Struct)(
            name, (s.Struct,), {**annotations, **statics, **derived, **more}, kw_only=True
        )

    def frozen(name: str, more: dict[str, Any]) -> Any:
        fields = [(field, Any) for field in FIELDS[name]]
        check = more.get("__post_init__")

        def derive(self: Any) -> None:
            for each, compute in DERIVED[name].items():
                object.__setattr__(self, each, compute(self))
            if check is not None:
                check(self)

        more = {"__post_init__": derive} if name in DERIVED else more
        return dataclasses.make_dataclass(name, fields, namespace=more, frozen=True, kw_only=True)

    checked = {name: {"__post_init__": check} for name, check in checks().items()}
    bare: dict[str, dict[str, Any]] = {name: {} for name in checked}
    kinds = [
        {name: make(name, more[name]) for name in ROWS}
        for make in (struct, frozen)
        for more in (checked, bare)
    ]
    return [s.load_schema(SCHEMA), *kinds]


def side_by_side(works: list[Callable[[], Any]], count: int = 300, rounds: int = 40) -> list[float]:
    """Nanoseconds of each, from the best of many short rounds that take turns, in CPU time."""
    found = [float("inf")] * len(works)
    for _ in range(rounds):
        for place, work in enumerate(works):
            start = time.process_time_ns()
            for _ in range(count):
                work()
            found[place] = min(found[place], (time.process_time_ns() - start) / count)
    return found


def instances() -> dict[str, list[float]]:
    """Instances of a schema's classes, which check types, sizes and constraints, beside those of others, in ns."""
    import jax
    import jax.numpy as jnp

    kinds = families()
    table: dict[str, list[float]] = {}
    for name, what in ROWS.items():

        def given(classes: Any, name: str = name) -> dict[str, Any]:
            dense = {"kernel": jnp.zeros((4, 3)), "bias": jnp.zeros(3), "gain": jnp.zeros(4)}
            return {
                "Options": {"width": 3, "name": "a", "rate": 0.5, "deep": True},
                "Dense": dense,
                "Model": {
                    "head": classes["Dense"](**dense),
                    "layers": [classes["Dense"](**dense)] * 4,
                },
                "Interval": {"low": 0.0, "high": 1.0, "values": jnp.zeros(3)},
                "Grid": {"points": jnp.zeros((4, 3)), "alpha": 2},
            }[name]

        makers = [(classes[name], given(classes)) for classes in kinds]
        for work, measured in measures(makers, FIELDS[name][-1]).items():
            table[f"{what}: {work}"] = measured
        if name in ("Dense", "Model"):  # of the others there is nothing to trace
            jax.jit(functools.partial(traced, makers[:3], table, what))(
                [values for _, values in makers[:3]]
            )
    return table


def measures(makers: list[tuple[Any, dict[str, Any]]], field: str) -> dict[str, list[float]]:
    """Measures frequent operations on instances; dataclasses are leaves to JAX."""
    import jax

    partial = functools.partial
    made = [cls(**values) for cls, values in makers]
    changes = [{field: values[field]} for _, values in makers]
    replace: list[Any] = [
        partial(each.replace, **change) for each, change in zip(made[:3], changes, strict=False)
    ]
    replace += [partial(dataclasses.replace, made[place], **changes[place]) for place in (3, 4)]
    return {
        "construct": side_by_side([partial(cls, **values) for cls, values in makers]),
        "replace": side_by_side(replace),
        "read": side_by_side([partial(operator.attrgetter(field), each) for each in made]),
        "flatten": side_by_side([partial(jax.tree_util.tree_flatten, each) for each in made[:3]]),
    }


def traced(makers: list[Any], table: dict[str, list[float]], what: str, given: list[Any]) -> int:
    """Measure construction while jit traces."""
    works = [
        functools.partial(cls, **values) for (cls, _), values in zip(makers, given, strict=True)
    ]
    table[f"{what}: construct under jit"] = side_by_side(works)
    return 0


if __name__ == "__main__":
    for measure in (reading, compiling):
        print((measure.__doc__ or "").partition("\n")[0])
        for what, value in measure().items():
            print(f"  {what:<40} {value:8.2f}")
    print(
        (instances.__doc__ or "").partition("\n")[0],
        "In brackets: how much of it the schema's takes.",
    )
    print(f"  {'':<58}" + "".join(f"{column:>24}" for column in COLUMNS))
    for what, times in instances().items():
        cells = [f"{value:.0f} ({times[0] / value:.2f})" for value in times]
        print(f"  {what:<58}" + "".join(f"{cell:>24}" for cell in cells))
