"""Sizes that only one of two versions names: verdicts about them, also where a struct is given them as parameters."""

import pytest

from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.differences import doubts
from tests.builders import doc, every

#: The fields of the root before and after, those of a struct C with the parameter m, the dims, and the codes of findings.
GIVEN = {
    "a number": ("C[2]", "C[2]", "int8[2]", "int8[m]", {}, []),
    "a dim by its name": ("C[p]", "C[p]", "int8[p]", "int8[m]", {"p": {}}, []),
    "a parameter by the name of a dim": ("C[p]", "C[p]", "int8[m]", "int8[p]", {"p": {}}, []),
    "a parameter that hides a dim": ("C[2]", "C[2]", "int8[m]", "int8[2]", {"m": {}}, []),
    "a name that hides a dim": ("C[m]", "C[m]", "int8[m]", "int8[2]", {"m": {}}, ["NQX301"]),
    "any size": ("list[C[_]]", "list[C[_]]", "int8[1]", "int8[m]", {}, []),
    "a number becomes a name": ("C[2]", "C[q]", "int8[m]", "int8[m]", {}, []),
    "any size becomes a name": ("C[_]", "C[q]", "int8[m]", "int8[m]", {}, []),
    "a name becomes another": ("C[k]", "C[q]", "int8[m]", "int8[m]", {}, []),
    "any sizes become one name": (
        "list[C[_]]", "list[C[q]]", "int8[m]", "int8[m]", {}, ["NQX301"],
    ),
    "half of an odd number": (
        "C[2 * p]", "C[2 * p]", "int8[3]", "int8[m]", {"p": {}}, ["NQX301"],
    ),
    "a size of each instance": (
        "list[C[p]]", "list[C[p]]", "int8[k]", "int8[m]", {"p": {}}, ["NQX301"],
    ),
    "another parameter in another use": (
        "tuple[C[p], C[2]]", "tuple[C[p], C[2]]", "int8[1]", "int8[m]", {"p": {}}, ["NQX301"],
    ),
    "a pytree may hold others": (
        "tuple[C[p], pytree]", "tuple[C[p], pytree]", "int8[1]", "int8[m]", {"p": {}}, ["NQX301"],
    ),
}  # fmt: skip


@every("name", GIVEN)
def test_parameters_are_the_sizes_that_all_payloads_give_them(name):
    before, after, inner, other, dims, codes = GIVEN[name]
    old, new = (
        doc({"x": kind}, at, raw={"C": {"params": ["m"], "fields": {"a": inside}}}, dims=dims)
        for at, kind, inside in ((1, before, inner), (2, after, other))
    )
    assert [found.code for found in verdict(old, new, "backward")] == codes


def test_a_dim_that_an_array_shows_is_no_other_size():
    old, new = (
        doc(
            {"x": "C[p]", "y": "int8[p]"},
            at,
            raw={"C": {"params": ["m"], "fields": {"a": inside}}},
            dims={"p": {}},
        )
        for at, inside in ((1, "int8[1]"), (2, "int8[m]"))
    )
    assert [found.code for found in verdict(old, new, "backward")] == ["NQX301"]


def test_a_size_of_each_instance_is_no_dim_of_its_name():
    old, new = (
        doc(
            {"x": "tuple[C[p], C[p]]"},
            at,
            raw={"C": {"params": ["m"], "fields": {"a": inside}}},
            dims=dims,
        )
        for at, inside, dims in ((1, "int8[p]", {}), (2, "int8[m]", {"p": {}}))
    )
    assert [found.code for found in verdict(old, new, "backward")] == ["NQX301"]


def test_a_name_in_several_shapes_is_renamed():
    old, new = (
        doc({"x": "int8[n]", "y": "int8[2 * n]"}),
        doc({"x": "int8[q]", "y": "int8[2 * q]"}, 2),
    )
    assert verdict(old, new, "full") == []


@pytest.mark.parametrize(
    ("before", "after", "readable"),
    [("2 * m", "2 * p", True), ("2 * m", "4 * p", True), ("4 * m", "2 * p", False)],
)
def test_a_hidden_size_has_the_number_that_another_one_had(before, after, readable):
    """Payloads have k = 2 * p, so it is twice an m that nothing shows: p."""
    old, new = (
        doc({"a": "int8[k]", "b": "int8[p]"}, at, dims={"m": {}, "p": {}, "k": {"equals": k}})
        for at, k in ((1, before), (2, after))
    )
    assert (verdict(old, new, "forward") == []) is readable


@pytest.mark.parametrize(
    ("argument", "other", "codes"),
    [("k", "k", ["NQX301"]), ("n", "n", ["NQX301"]), ("n", "2 * n", ["NQX301"])],
)
def test_a_parameter_that_is_always_the_dim_of_its_name_hides_none(argument, other, codes):
    raw = [{"C": {"params": ["n"], "fields": {"a": inner}}} for inner in ("int8[1]", "int8[n]")]
    fields = {"x": f"C[{argument}]", "y": f"int8[{other}]"}
    old, new = (doc(fields, at, raw=raw[at - 1], dims={"n": {}, "k": {}}) for at in (1, 2))
    assert [found.code for found in verdict(old, new, "backward")] == codes


@pytest.mark.parametrize(
    ("root", "inside", "codes"),
    [
        (("list[C, 1]", "list[C, n]"), ("int8[n]", "int8[n]"), []),
        (("list[C[2], 1]", "list[C[2], n]"), ("int8[n]", "int8[n]"), []),
        (("list[int, 1]", "list[int, n]"), ("int8[1]", "int8[n]"), []),
        (("list[C[n], 1]", "list[C[n], n]"), ("int8[n]", "int8[n]"), ["NQX301"]),
        (("list[C[_]]", "list[C[_]]"), ("list[int, 2]", "list[int, n]"), []),
    ],
)
def test_a_parameter_by_the_name_of_a_dim_is_another_size(root, inside, codes):
    old, new = (
        doc(
            {"x": field.replace("C,", "C[_],"), "y": "C[_]"},
            at,
            raw={"C": {"params": ["n"], "fields": {"a": inner}}},
            dims={"n": {}},
        )
        for at, field, inner in zip((1, 2), root, inside, strict=True)
    )
    assert [found.code for found in verdict(old, new, "backward")] == codes


def test_a_hidden_dim_is_the_size_that_others_lead_to():
    """The new m is n, which is p, which payloads show; the old m and n are other sizes."""
    least = {"min": 1, "equals": "n"}
    first, second = (
        doc({"b": "int8[2 * p] | null"}, version, dims={"n": {}, "p": given, "m": least})
        for version, given in ((1, {}), (2, {"equals": "n"}))
    )
    assert [fact.path for fact in doubts(first, second)] == [("dims", "p")]
    assert [found.code for found in verdict(first, second, "backward")] == ["NQX270"]
