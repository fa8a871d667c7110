"""Sizes that only nested structs show are known in steps and in proofs, as are those of lists of a length."""

import numpy as np
import pytest

from neuralqx_struct.errors import MigrationError
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.sizes.comparison import readable_as, shown_sizes
from neuralqx_struct.types.text import parse_type
from tests.builders import doc, every, refused, same, up, value

DENSE = {"Dense": {"params": ["a", "b"], "fields": {"w": "float32[a, b]"}}}
OUTER = {
    "first": "Dense[d, h]",
    "hidden": "list[Dense[h, h], n]",
    "table": "dict[str, Dense[q, q]]",
}


def dense(a, b):
    return ("Dense", {"w": np.ones((a, b), "float32")})


VALUES = {"first": dense(2, 3), "hidden": [dense(3, 3)] * 4, "table": {}}
FULL = {"__kind__": "full", "dtype": "float32"}


def added(declared, default, step_default=None):
    """The value that an added field gets, by a step or by its default alone."""
    new = {**OUTER, "x": {"type": declared, "default": default}}
    given = default if step_default is None else step_default
    found = []
    for steps in ([s.add(field="x", default=given)], None):
        old, target = doc(OUTER, raw=DENSE), doc(new, 2, steps, raw=DENSE)
        assert [d for d in prove(old, target) if d.severity == "error"] == []
        held = up(old, target, VALUES)
        found.append(value(held.document["manifest"], held.arrays)["x"])
        back = apply(held, plan(series_of([old, target]), 2, 1)) if steps else None
        if back is not None:
            assert "x" not in back.document["manifest"]["fields"]
    assert same(*found)
    return found[0]


def test_an_added_array_has_sizes_of_nested_structs():
    assert added("float32[h, d + n]", 0) == {**FULL, "shape": [3, 6], "value": 0.0}
    assert added("float32[2 * h]", {"fill": 0.5}) == {**FULL, "shape": [6], "value": 0.5}
    assert same(added("float32[h, h]", {"eye": "h"}), np.eye(3, dtype="float32"))
    assert same(added("int8[2, 2]", {"eye": 2}), np.eye(2, dtype="int8"))
    assert added("list[int, 2]", [1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("declared", "default", "code"),
    [
        ("float32[q]", 0, None),  # shown by dicts alone: found, or refused, per payload
        ("float32[z]", 0, "NQX105"),
        ("float32[z, z]", {"eye": "z"}, "NQX105"),
        ("float32[h, d]", {"eye": "h"}, "NQX107"),
        ("list[int, n]", [1, 2], "NQX107"),
        ("list[int, 3]", [1, 2], "NQX107"),
    ],
)
def test_an_added_value_needs_sizes_that_payloads_show(declared, default, code):
    new = {**OUTER, "x": {"type": declared}}
    old, target = doc(OUTER, raw=DENSE), doc(new, 2, [s.add(field="x", default=default)], raw=DENSE)
    errors = [d.code for d in prove(old, target) if d.severity == "error"]
    assert errors == ([] if code is None else [code])


def test_an_identity_matrix_that_is_too_large_is_refused():
    old = doc({"v": "int8[n]"})
    new = doc({"v": "int8[n]", "x": "float32[n, n]"}, 2, [s.add(field="x", default={"eye": "n"})])
    with refused(MigrationError, "NQX109"):
        up(old, new, {"v": np.zeros(100_000, "int8")})


def test_shown_sizes():
    document = doc(
        {**OUTER, "items": "list[float32[k], m]", "two": "list[float32[j], 2]"}, raw=DENSE
    )
    assert shown_sizes(document, "A") == {"d", "h", "n", "q", "m", "k", "j"}


@every(
    ("have", "want", "reads"),
    [
        ("list[int, n]", "list[int]", True),
        ("list[int, n]", "list[int, _]", True),
        ("list[int, 2 + 1]", "list[int, 3]", True),
        ("list[int]", "list[int, n]", False),
        ("list[int]", "list[int, _]", True),
        ("list[int, n]", "list[int, m]", False),
        ("L[d][n]", "L[d][n]", True),
        ("L[d][n]", "L[d][_]", True),
        ("L[d][n]", "L[d][m]", False),
        ("L[d][n]", "L[d]", False),
        ("L[d]", "L[d][n]", False),
        ("list[L[d], n]", "L[d][n]", False),
    ],
)
def test_which_types_read_which(have, want, reads):
    assert readable_as(parse_type(have), parse_type(want), {}) is reads


@every(
    ("old", "new", "codes"),
    [
        ("list[int]", "list[int, n]", {"NQX260"}),
        ("list[int, n]", "list[int]", {"NQX261"}),
        ("list[int, n]", "list[int, 2 * n]", {"NQX222"}),
        ("list[L, n]", "list[L | null, n]", {"NQX263"}),
        ("list[L, n]", "list[L, 3]", {"NQX222"}),
        ("L[][n]", "L[][3]", {"NQX222"}),
        ("L", "L[][n]", {"NQX210"}),
        ("list[L, n]", "L[][n]", {"NQX210"}),
    ],
)
def test_changes_of_lengths_and_of_stacks(old, new, codes):
    structs = {"L": {"w": "float32[d]"}}
    before = doc({"x": old, "v": "int8[n]"}, structs=structs)
    after = doc({"x": new, "v": "int8[n]"}, 2, structs=structs)
    assert {change.code for change in diff(before, after)} == codes
    assert prove(before, after) == [] or codes != {"NQX261"}
    assert any(d.severity == "error" for d in prove(before, after)) is (
        not readable_as(parse_type(old), parse_type(new), {})
    )
