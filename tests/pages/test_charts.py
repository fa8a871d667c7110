"""Charts: areas fill the picture and do not overlap, whatever the sizes; bars have the heights of counts."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.pages.charts import areas, bars
from neuralqx_struct.tools.rows import Row

RECT = re.compile(r"left:([\d.]+)%;top:([\d.]+)%;width:([\d.]+)%;height:([\d.]+)%")


def rects(drawn):
    """The areas in pixels of a wide window."""
    scales = (10, 4.2, 10, 4.2)
    return [
        tuple(float(share) * scale for share, scale in zip(each, scales, strict=True))
        for each in RECT.findall(drawn)
    ]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 10**9)), min_size=1, max_size=40))
def test_areas_fill_the_picture_and_do_not_overlap(nodes):
    rows = [Row("$", 0, "dict")]
    for number, (depth, size) in enumerate(nodes):
        rows.append(Row(f"$.n{number}", min(depth, rows[-1].depth + 1), "array", nbytes=size))
    for row, below in itertools.pairwise(rows):
        if below.depth > row.depth:  # arrays are leaves
            rows[rows.index(row)] = Row(row.path, row.depth, "dict")
    drawn = rects(areas(rows))
    total = sum(row.nbytes for row in rows)
    if not total:
        assert drawn == []
        return
    assert abs(sum(w * h for _, _, w, h in drawn) - 420_000) < 4200
    for x, y, w, h in drawn:
        assert -0.1 <= x <= x + w <= 1000.3
        assert -0.1 <= y <= y + h <= 420.3
    for at, (x, y, w, h) in enumerate(drawn):
        for a, b, c, d in drawn[:at]:
            across = min(x + w, a + c) - max(x, a)
            down = min(y + h, b + d) - max(y, b)
            assert min(across, down) <= 0.31  # of rounding


def test_equal_sizes_are_nearly_square():
    rows = [Row("$", 0, "dict"), *(Row(f"$.n{i}", 1, "array", nbytes=7) for i in range(24))]
    assert all(0.4 < w / h < 2.5 for _, _, w, h in rects(areas(rows)))


def test_parts_of_the_largest_part_have_colours_of_their_own():
    sizes = {"$": 0, "$.net": 0, "$.net.a": 60, "$.net.a.w": 60, "$.net.b": 30, "$.step": 10}
    rows = [Row(path, path.count("."), "x", nbytes=size) for path, size in sizes.items()]
    rows[2] = Row("$.net.a", 2, "dict")
    assert len(set(re.findall("background:(#[0-9a-f]+)", areas(rows)))) == 3


def test_an_array_whose_name_is_that_of_what_is_around_an_empty_one():
    """As in files of other programs, where `a` and `a.b` are arrays."""
    drawn = areas([Row("a", 1, "float32[2]", nbytes=8), Row("a.b", 2, "float32[0]")])
    assert rects(drawn) == [(0, 0, 1000, 420)]
    assert "background:#" in drawn


def test_ten_thousand_arrays_are_drawn_once_each():
    rows = [Row("$", 0, "dict"), *(Row(f"$.n{i}", 1, "array", nbytes=7) for i in range(10_000))]
    assert len(rects(areas(rows))) == 10_000


def test_bars():
    assert bars(()) == ""
    assert 'viewBox="0 0 3 1"' in bars((4, 0, 1))
    assert bars((4, 0, 1)).count("M") == 2
    assert "v-0.5" in bars((4, 0, 1))  # the root of a quarter
