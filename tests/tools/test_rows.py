"""Rows of inspections: folding at a depth, the depth that fits, and lists that are cut."""

from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.tools.rows import Row, cut, depth_within, folded

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


def test_rows_of_a_filter_stay():
    rows = [Row("$.a.w", 2, "int"), Row("$.ab.w", 2, "int"), Row("$.ab", 1, "int")]
    assert folded(rows, 1, foreign=False) == rows
    assert folded(rows[::-1], 1, foreign=False)[0].type == "int, 1 below"


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


def test_a_list_is_cut_in_the_middle():
    rows = [Row(str(number), 1, "int") for number in range(50)]
    shown = cut(rows, 20)
    assert (len(shown), shown[14].type) == (20, "31 more")
    assert cut(rows, 50) == rows
