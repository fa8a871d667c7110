"""Structs that other schemas hold are judged as trees of their own: what the root says of their sizes does not count."""

import pytest

from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.uses import among, link
from tests.builders import doc

#: The field of the used root before and after, what the user holds, and whether every payload is read.
HELD = {
    "a list of as many as the size": ("list[B, n]", "list[B]", "lab.inner.R", True),
    "one beside such a list": ("list[B, n]", "list[B]", "lab.inner.B", False),
    "both": ("list[B, n]", "list[B]", "lab.inner.R | lab.inner.B", False),
    "one that the root does not have": ("int", "int", "dict[str, lab.inner.B]", False),
    "one without the size": ("int", "int", "lab.inner.C", True),
    "the root": ("B", "B", "lab.inner.R", False),
}


@pytest.mark.parametrize("name", HELD)
def test_minima_of_sizes_of_structs_that_other_schemas_hold(name):
    before, after, held, accepted = HELD[name]
    inner = []
    for version, (declared, dim) in enumerate(((before, {}), (after, {"min": 1})), 1):
        data = {"language": "1", "schema": "lab.inner", "version": version, "root": "R"}
        fields = {"R": {"x": declared}, "B": {"w": "int8[n]"}, "C": {"v": "int8[_]"}}
        structs = {struct: {"fields": each} for struct, each in fields.items()}
        inner.append(document_from_data({**data, "dims": {"n": dim}, "structs": structs}, "test"))
    old, new = (
        link(doc({"x": held}, version, uses=[f"lab.inner@{version}"]), among(inner))
        for version in (1, 2)
    )
    found = verdict(old, series_of([new]), "backward")
    assert {d.code for d in found} == (set() if accepted else {"NQX270"})
    assert len(found) <= 1
    assert "NQX271" not in {d.code for d in verdict(old, series_of([new]), "forward")}


def test_parameters_that_other_schemas_give():
    inner = [
        doc(
            {"x": "B[n]"},
            version,
            schema="lab.inner",
            raw={"B": {"params": ["m"], "fields": {"w": shape}}},
            dims={"n": {}},
        )
        for version, shape in ((1, "int8[1]"), (2, "int8[m]"))
    ]
    find = among(inner)
    old, new = (
        link(
            doc(
                {"y": "lab.inner.B[2]"}, version, schema="lab.outer", uses=[f"lab.inner@{version}"]
            ),
            find,
        )
        for version in (1, 2)
    )
    assert [found.code for found in verdict(old, series_of([new]), "backward")] == ["NQX301"]
