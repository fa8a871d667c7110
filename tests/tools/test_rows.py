"""Rows of inspections: folding at a depth, the depth that fits, and lists that are cut."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from neuralqx_struct.tools import rows
from neuralqx_struct.tools.rows import (
    Row,
    cut,
    depth_within,
    folded,
    lines_of,
    places_around,
    size_text,
    statistics_of,
    with_content,
)

NAMES = ["a.w", "a.b", "m.0.k", "m.1.k", "m.1.q.z", "step"]
FOREIGN = [Row(name, name.count(".") + 1, "int8[4]", nbytes=4) for name in NAMES]


def test_names_of_foreign_files_are_grouped():
    shown = [(row.path, row.type, row.nbytes) for row in folded(FOREIGN, 1, foreign=True)]
    assert shown == [
        ("a", "names, 2 below", 8),
        ("m", "names, 3 below", 12),
        ("step", "int8[4]", 4),
    ]
    assert [row.path for row in folded(FOREIGN, 2, foreign=True)][2:5] == ["m.0", "m.1", "step"]
    assert folded(FOREIGN, 4, foreign=True) == FOREIGN


def test_sizes_have_the_largest_unit_that_fits():
    assert size_text(1023) == "1023 B"
    sizes = [size_text(3 * 1024**power // 2) for power in range(1, 6)]
    assert sizes == ["1.5 KiB", "1.5 MiB", "1.5 GiB", "1.5 TiB", "1536.0 TiB"]


def test_rows_of_a_filter_stay():
    rows = [Row("$.a.w", 2, "int"), Row("$.ab.w", 2, "int"), Row("$.ab", 1, "int")]
    assert folded(rows, 1, foreign=False) == rows
    assert folded(rows[::-1], 1, foreign=False)[0].type == "int, 1 below"


def test_tables_fit_a_terminal():
    array = Row("$.layers[0].attention.weight", 3, "float32[512, 512]", nbytes=2**20)
    array = replace(array, statistics=statistics_of(np.arange(4)))
    narrow = lines_of([array])
    assert narrow[0].split() == [
        "$.layers[0].attention.weight",
        *["float32[512,", "512]", "1.0", "MiB"],
    ]
    assert narrow[1].strip() == "0 to 3, mean 1.5 ± 1.12, zeros: 1"
    assert lines_of([array], width=120) == [f"{narrow[0]}  {narrow[1].strip()}"]
    tagged = replace(array, path=array.path * 3, tags=("trainable", "decay"))
    assert tagged.path in lines_of([tagged])[0]
    cut_line = lines_of([tagged], whole=False)[0]
    assert len(cut_line) == 80 and "..." in cut_line and cut_line.endswith("trainable, decay")


def test_columns_of_wide_names_are_aligned():
    names = ["$.w", "$.重み", "$.🧠", "$.e\u0301"]
    lines = lines_of([Row(name, 1, "int", "1") for name in names])
    assert lines == [
        "  $.w     int = 1",
        "  $.重み  int = 1",
        "  $.🧠    int = 1",
        "  $.e\u0301     int = 1",
    ]
    assert rows.shortened("重" * 60) == "重" * 23 + "..." + "重" * 25


@st.composite
def trees(draw):
    """The rows of a random tree, from top to bottom."""
    rows = [Row("$", 0, "root")]
    for number in range(draw(st.integers(0, 30))):
        above = draw(st.sampled_from(rows))
        row = Row(f"{above.path}.f{number}", above.depth + 1, "int", nbytes=number)
        rows.insert(rows.index(above) + 1, row)
    return rows


@given(trees(), st.integers(1, 12))
def test_nothing_is_lost_and_what_is_shown_fits(rows, most):
    depth = depth_within(rows, most, foreign=False)
    shown = folded(rows, depth, foreign=False)
    counted = [int(row.type.split()[1]) if "," in row.type else 0 for row in shown]
    assert len(shown) + sum(counted) == len(rows)
    assert sum(row.nbytes for row in shown) == sum(row.nbytes for row in rows)
    assert len(shown) <= most or depth == 1
    deeper = folded(rows, depth + 1, foreign=False)
    assert len(deeper) > most or len(deeper) == len(rows)
    names = [Row(row.path[2:], row.depth, "int") for row in rows[1:]]
    grouped = folded(names, depth_within(names, most, foreign=True), foreign=True)
    assert len(grouped) <= max(most, len({row.path.split(".")[0] for row in names}))


@given(trees())
def test_rows_have_the_content_of_all_in_them(bare):
    rows = [replace(row, statistics=statistics_of(np.full(2, row.nbytes))) for row in bare]
    around = places_around(rows)
    assert [rows[place].path for place in around[1:]] == [
        row.path.rpartition(".")[0] for row in rows[1:]
    ]
    made = with_content(rows, around)
    for row, full in zip(rows, made, strict=True):
        inside = [each.nbytes for each in rows if f"{each.path}.".startswith(f"{row.path}.")]
        assert full.nbytes == sum(inside)
        found, wanted = full.statistics, statistics_of(np.repeat(inside, 2))
        exact = ("size", "zeros", "nan", "minimum", "maximum")
        assert [getattr(found, name) for name in exact] == [getattr(wanted, name) for name in exact]
        assert found.mean == pytest.approx(wanted.mean)
        assert found.deviation == pytest.approx(wanted.deviation, abs=1e-9)
    [whole] = folded(rows, 0, foreign=False)
    assert (whole.nbytes, whole.statistics.size) == (made[0].nbytes, 2 * len(rows))


@pytest.mark.parametrize("turned", [False, True])
def test_integers_are_no_part_of_the_statistics_of_floats(turned):
    floats, step = statistics_of(np.array([0.0, 2.0])), statistics_of(np.array([10**6]))
    found = step.plus(floats) if turned else floats.plus(step)
    assert found == replace(floats, counts=())


def test_a_list_is_cut_in_the_middle():
    rows = [Row(str(number), 1, "int") for number in range(50)]
    shown = cut(rows, 20)
    assert (len(shown), shown[14].type) == (20, "31 more")
    assert cut(rows, 50) == rows


FLOATS = st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0])


@given(arrays("float64", array_shapes(min_side=0, max_side=5), elements=FLOATS), st.integers(1, 9))
def test_statistics_are_those_of_numpy_whatever_the_pieces(array, piece):
    whole = statistics_of(array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_PIECE", piece)
        found = statistics_of(array)
    finite = array[np.isfinite(array)]
    assert (found.size, found.nan) == (array.size, np.isnan(array).sum())
    assert found.infinite == np.isinf(array).sum()
    assert found.zeros == (array == 0).sum()
    assert found.counts == whole.counts
    if finite.size:
        assert (found.minimum, found.maximum) == (finite.min(), finite.max())
        assert found.mean == pytest.approx(finite.mean(), abs=1e-6)
        assert found.deviation == pytest.approx(finite.std(), rel=1e-6, abs=1e-6)
        assert sum(found.counts) == finite.size
    else:
        assert (found.mean, found.counts) == (None, ())


DTYPES = {
    "bool": (np.array([True, False, True]), 0.0, 1.0),
    "uint64": (np.array([2**64 - 1, 0], "uint64"), 0.0, 2.0**64),
    "int8": (np.array([-128, 127], "int8"), -128.0, 127.0),
    "float64": (np.array([-1.7e308, 1.7e308]), -1.7e308, 1.7e308),
    "bfloat16": (np.array([1.5, -2.0], ml_dtypes.bfloat16), -2.0, 1.5),
    "int4": (np.array([-8, 7], ml_dtypes.int4), -8.0, 7.0),
    "complex64": (np.array([3 + 4j, 0], "complex64"), 0.0, 5.0),
}


@pytest.mark.parametrize("name", DTYPES)
def test_every_family_of_dtypes(name):
    array, low, high = DTYPES[name]
    found = statistics_of(array)
    assert (found.minimum, found.maximum) == (low, high)
    assert (found.counts[0], found.counts[-1], sum(found.counts)) == (
        (array == array.min()).sum() if name != "complex64" else 1,
        (array == array.max()).sum() if name != "complex64" else 1,
        array.size,
    )


def test_the_largest_floats_overflow_into_infinity(monkeypatch):
    monkeypatch.setattr(rows, "_PIECE", 1)
    assert statistics_of(np.array([1.7e308])).deviation == 0
    assert statistics_of(np.array([-1.7e308, 1.7e308])).deviation == np.inf


def test_values_without_numbers_have_none():
    assert statistics_of(np.array(["a"])) is None
    assert statistics_of(np.array(["2020-01-01"], "datetime64[D]")) is None
    assert str(statistics_of(np.zeros(0))) == ""
    assert str(statistics_of(np.array([np.nan, np.inf]))) == "NaN: 1, infinite: 1"
