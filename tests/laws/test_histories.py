"""The law of evolution: what lint accepts loads, as an independent model of the steps expects, up and down, on disk too.

The model and the random histories are in `tests/histories/`. `python -m tests.programs.try_histories 1000000 1020000`
tries seeds for which nothing was fixed, as many as you like.
"""

import math
import os

import numpy as np
import pytest

from tests.histories import history
from tests.histories.comparison import Comparison
from tests.histories.declarations import Field, Instance, Struct, Version
from tests.histories.making import Maker
from tests.histories.steps import cast_with_loss


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """Nothing here outlives the test, so no file has to reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def check(folder, seeds):
    loads = 0
    for seed in seeds:
        made = history(seed)
        place = folder / str(seed)
        place.mkdir()
        compared = Comparison(made, place).run()
        assert compared.wrong == [], made
        loads += compared.loads
    assert loads > len(seeds)  # lint refuses some histories, not all


def test_probes_have_items_inside_four_structs():
    structs = {"B": ("list", ("bool",))} | {
        struct: ("struct", within, ()) for struct, within in ("CB", "DC", "RD")
    }
    version = Version(structs={n: Struct([], {"f": Field(kind)}) for n, kind in structs.items()})
    lengths = set()
    for seed in range(60):
        value = Maker(seed, bold=True).payload(version)
        for _ in structs:
            value = value.fields["f"]
        lengths.add(len(value))
    assert lengths > {0, 1, 2}


def test_probes_have_numbers_beyond_the_bounds_of_histories():
    fields = {"f": Field(("float",))}
    drawn = {
        Maker(seed, bold=True).payload(Version(structs={"R": Struct([], fields)})).fields["f"]
        for seed in range(60)
    }
    numbers = {number for number in drawn if math.isfinite(number)}
    assert drawn > numbers
    assert min(numbers) < -2
    assert max(numbers) > 5


def test_the_model_of_a_lossy_cast_takes_numbers_beyond_the_dtype():
    version = Version(structs={"R": Struct([], {"a": Field(("array", "float64", ()))})})
    made = cast_with_loss(Maker(0), version).up(Instance("R", {"a": np.array(1e300)}))
    assert made.fields["a"] == np.inf


#: Histories that have every kind of edit that the first 200 have, with steps and without, and that are compared soon.
SEEDS = [
    1, 11, 13, 20, 35, 42, 43, 44, 47, 50, 58, 59, 63, 65, 67, 87, 97, 102, 103,
    107, 109, 115, 116, 118, 119, 121, 125, 129, 134, 139, 155, 160, 165, 171, 173, 185,
    188, 190, 100, 672,
]  # fmt: skip


@pytest.mark.sampled("part", parts=3)
@pytest.mark.parametrize("part", range(3))
def test_what_lint_accepts_loads_as_the_model_expects(tmp_path, part):
    check(tmp_path, SEEDS[part::3])


def kinds(seeds):
    """The kinds of edits in histories, each with whether its version has steps."""
    hops = [hop for seed in seeds for hop in history(seed).hops]
    return {(edit.name, hop.stepped) for hop in hops for edit in hop.all_edits}


@pytest.mark.slow
def test_the_seeds_have_every_kind_of_edit():
    assert kinds(SEEDS) == kinds(range(200))


@pytest.mark.slow
@pytest.mark.timeout(3600)  # minutes each, and more on a busy machine
@pytest.mark.parametrize("first", [*range(0, 300, 100), *range(1000, 3000, 100)])
def test_thousands_of_histories(tmp_path, first):
    check(tmp_path, range(first, first + 100))
