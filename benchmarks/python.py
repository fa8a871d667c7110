"""Costs of a Struct as a Python object, against its peers, side by side in one process.

The class has five fields that hold numbers and three statics; the one with hooks has two fields, each converted by `float`
and checked to be positive. Run it from the top of the repository with

    python -m benchmarks.python [--rounds N]

Ratios are against a frozen dataclass of the standard library. The table also goes to `benchmarks/results/python.json`.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import gc
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks import peers
from benchmarks.rounds import Job, Result, compiled, measure, report

CANDIDATES = {
    "neuralqx-struct": peers.ours,
    "dataclass": peers.dataclass,
    "dataclass, slots": peers.dataclass_slots,
    "attrs": peers.attrs,
    "attrs, slots": peers.attrs_slots,
    "flax.struct": peers.flax,
    "equinox.Module": peers.equinox,
    "chex.dataclass (no static)": peers.chex,
    "neuraLQX 1.1.2": peers.neuralqx,
}

JOBS = {
    "construct": "Inner({arguments})",
    "replace one": "replace(one, a=2)",
    "replace a static": "replace(one, size=4)",
    "read 5": "(read.a, read.b, read.c, read.d, read.e)",
    "==": "one == other",
    "hash": "hash(one)",
    "repr": "repr(one)",
    "copy": "copy(one)",
    "deepcopy": "deepcopy(one)",
    "pickle and back": "loads(dumps(one))",
}


def hooked_ours() -> type:
    import neuralqx_struct as s

    return _hooked(s)


def hooked_neuralqx() -> type:
    from tests.peers import neuralqx

    return _hooked(neuralqx.load())


def _hooked(s: Any) -> type:
    class Hooked(s.Struct):
        a: float = s.field(converter=float, validator=lambda a: a > 0)
        b: float = s.field(converter=float, validator=lambda b: b > 0)

    return Hooked


def hooked_dataclass() -> type:
    @dataclasses.dataclass(frozen=True)
    class Hooked:
        a: float
        b: float

        def __post_init__(self):
            for name in ("a", "b"):
                value = float(getattr(self, name))
                if not value > 0:
                    raise ValueError(name)
                object.__setattr__(self, name, value)

    return Hooked


def hooked_attrs() -> type:
    import attr

    @attr.s(auto_attribs=True, frozen=True)
    class Hooked:
        a: float = attr.ib(converter=float, validator=attr.validators.gt(0))
        b: float = attr.ib(converter=float, validator=attr.validators.gt(0))

    return Hooked


def hooked_equinox() -> type:
    import equinox

    class Hooked(equinox.Module):
        a: float = equinox.field(converter=float)
        b: float = equinox.field(converter=float)

        def __check_init__(self):
            if not (self.a > 0 and self.b > 0):
                raise ValueError

    return Hooked


HOOKED = {
    "neuralqx-struct": hooked_ours,
    "dataclass": hooked_dataclass,
    "attrs": hooked_attrs,
    "equinox.Module": hooked_equinox,
    "neuraLQX 1.1.2": hooked_neuralqx,
}


def jobs(Inner: type) -> dict[str, Job]:
    names = {
        "Inner": Inner,
        "replace": getattr(Inner, "replace", None) or replacing(Inner),
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "loads": pickle.loads,
        "dumps": pickle.dumps,
    }
    given = peers.arguments(Inner)
    make = compiled(f"Inner({given})", names)
    # Copying and pickling may change how CPython stores the attributes of an instance: another one is read.
    names |= {"one": make(), "other": make(), "read": make()}
    made = {
        job: compiled(expression.format(arguments=given), names) for job, expression in JOBS.items()
    }
    return {job: function for job, function in made.items() if works(function)}


def replacing(cls: type) -> Callable[..., Any]:
    """The library's own function where there is no method."""
    if hasattr(cls, "__attrs_attrs__"):
        import attr

        return attr.evolve
    return dataclasses.replace


def works(function: Job) -> bool:
    """False for an operation that a class lacks: chex has no statics to replace, neuraLQX no hash."""
    try:
        function()
    except (TypeError, AttributeError, ValueError):
        return False
    return True


def memory(make: Job, count: int = 2000) -> float:
    """Bytes of one instance, as a mean over many."""
    for _ in range(100):
        make()
    gc.collect()  # memory kept for reuse would hide new allocations
    tracemalloc.start()
    try:
        kept = [make() for _ in range(count)]
        total, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (total - kept.__sizeof__()) / count


def memories(made: dict[str, Job], against: str) -> Result:
    used = {name: memory(make) for name, make in made.items()}
    return {name: {"bytes": size, "ratio": size / used[against]} for name, size in used.items()}


def findable(Inner: type) -> type:
    """Give the class a name under which pickle finds it."""
    Inner.__qualname__ = f"Inner_{id(Inner)}"
    setattr(peers, Inner.__qualname__, Inner)
    return Inner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=301)
    rounds = parser.parse_args().rounds
    against = "dataclass"
    classes = {name: findable(made[0]) for name, made in peers.present(CANDIDATES).items()}
    table = {name: jobs(Inner) for name, Inner in classes.items()}
    results = {
        job: measure(
            {name: done[job] for name, done in table.items() if job in done}, against, rounds
        )
        for job in JOBS
    }
    hooked = {
        name: compiled("Hooked(1, 2)", {"Hooked": cls})
        for name, cls in peers.present(HOOKED).items()
    }
    results["construct with hooks"] = measure(hooked, against, rounds)
    definitions = {name: make for name, make in CANDIDATES.items() if name in classes}
    results["define two classes"] = measure(definitions, against, max(3, rounds // 10))
    built = {name: candidate["construct"] for name, candidate in table.items()}
    results["memory of an instance"] = memories(built, against)
    results["memory of an instance that was read"] = memories(
        {name: compiled("[x := make(), x.a][0]", {"make": make}) for name, make in built.items()},
        against,
    )
    report("python", results, against, peers.PACKAGES)


if __name__ == "__main__":
    main()
