"""Limits that refuse nothing, as the other declaration keeps them: by values that are tried, and in verdicts."""

import math
from itertools import permutations, product

import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.implied_limits import refuses
from neuralqx_struct.schema.bounds import length_misses, scalar_misses
from neuralqx_struct.schema.model import FieldDeclaration
from neuralqx_struct.schema.series import series_of
from tests.builders import doc

WHOLE = [*range(-9, 13), 300, -300, 2**70, -(10**301)]
PARTS = [-0.5, -0.0, 0.25, 0.5, 0.75, 1.5, 2.5, 5.25, 5.75, math.inf, -math.inf, math.nan]
NUMBERS = [
    *({"ge": 0}, {"gt": -1}, {"ge": 0.5}, {"gt": 0}, {"ge": 1}, {"le": 5}, {"lt": 6}, {"le": 5.5}),
    *({"ge": 0, "le": 2}, {"gt": 0, "lt": 3}, {"gt": 0.5, "lt": 1}, {"ge": -1e300}),
    *({"multiple_of": 1}, {"multiple_of": 2}, {"multiple_of": 4}, {"multiple_of": 0.5}),
    *({"choices": [0, 1, 2]}, {"choices": [1, 2]}, {"choices": [2, 4]}, {"finite": True}, {}),
    *({"ge": 3}, {"choices": [2, 4, 6], "ge": 3}),
]
TEXTS = [
    *({"min_length": 0}, {"min_length": 1}, {"max_length": 1}, {"max_length": 5}, {}),
    *({"pattern": "a*"}, {"choices": ["a"]}, {"choices": ["a", "b"]}, {"choices": ["", "aa"]}),
]
LISTS = [
    *({"min_length": 0}, {"min_length": 1}, {"min_length": 2, "max_length": 2}, {"max_length": 1}),
    *({"max_length": 0}, {"max_length": 2}, {}),
]
GROUPS = {
    "int": ([*NUMBERS, {"multiple_of": 3, "gt": 0}, {"lt": 9, "multiple_of": 4}], WHOLE),
    "bool | int": (NUMBERS, [*WHOLE, True, False]),
    "int | null": (NUMBERS, WHOLE),
    "int | str": (NUMBERS, [*WHOLE, "", "x"]),
    "float": (NUMBERS, [*WHOLE, *map(float, WHOLE), *PARTS]),
    "literal[1, 2, 4]": (NUMBERS, [1, 2, 4]),
    "literal[0.5, inf] | null": (NUMBERS, [0.5, math.inf]),
    "literal['a', 'ab']": (TEXTS, ["a", "ab"]),
    "complex": ([{"finite": True}, {}], [1, 1.5, 1j, math.inf, math.nan]),
    "str": (TEXTS, ["", "a", "b", "aa", "abab", "aaaaaa"]),
    "list[int]": (LISTS, [[], [0], [0, 0], [0, 0, 0]]),
    "list[int, 2]": (LISTS, [[0, 0]]),
    "list[int, n]": (LISTS, [[], [0], [0, 0], [0, 0, 0]]),
    "tuple[int, int]": (LISTS, [[0, 0]]),
    "tuple[int, ...]": (LISTS, [[], [0], [0, 0], [0, 0, 0]]),
    "list[int] | str": (LISTS, [[], [0], [0, 0], [0, 0, 0], "", "a", "aa", "aaa"]),
}


def declared(declared_type, limits):
    return FieldDeclaration.model_validate({"type": declared_type, **limits})


def is_refused(declaration, value):
    if isinstance(value, list):
        return bool(length_misses(declaration, len(value), "items"))
    return bool(scalar_misses(declaration, value))


@pytest.mark.parametrize("declared_type", GROUPS)
def test_a_limit_refuses_what_some_value_shows(declared_type):
    limits, values = GROUPS[declared_type]
    shown = set()
    for one, other in permutations(limits, 2):
        reader, writer = declared(declared_type, one), declared(declared_type, other)
        held = [value for value in values if not is_refused(writer, value)]
        for name in one if held else ():
            alone = declared(declared_type, {name: one[name]})
            expected = any(is_refused(alone, value) for value in held)
            assert refuses(name, reader, writer) is expected, (one, other, name)
            shown.add(expected)
    assert shown == ({True} if declared_type == "complex" else {True, False})


@pytest.mark.parametrize(
    ("name", "limits", "writer"),
    [
        ("validator", {"validator": "checks"}, {"choices": ["a"]}),
        ("pattern", {"pattern": "a|b"}, {"pattern": "[ab]"}),
        ("choices", {"choices": [*range(600)]}, {"ge": 0, "le": 500}),
        ("choices", {"choices": [7]}, {"choices": [*range(600)], "ge": 7, "le": 7}),
        ("ge", {"ge": 0}, {"ge": -(10**400)}),
        ("multiple_of", {"multiple_of": 0.75}, {"multiple_of": 10**400}),
        ("multiple_of", {"multiple_of": 0}, {"multiple_of": 2}),
    ],
)
def test_what_is_not_known_refuses(name, limits, writer):
    declared_type = "str" if name in ("validator", "pattern") else "int"
    assert refuses(name, declared(declared_type, limits), declared(declared_type, writer))


def test_many_choices_among_others():
    few, many = (declared("int", {"choices": [*range(count)]}) for count in (1000, 2000))
    assert not refuses("choices", many, few)
    assert refuses("choices", few, many)


@pytest.mark.parametrize(
    ("constraint", "limit", "tighter"),
    [
        ("a >= 0", {"ge": 0}, False),
        ("a >= -2 and a >= 0", {"ge": 0}, False),
        ("a <= 9 and a <= 5 and a > 0", {"ge": 1, "le": 5}, False),
        ("-1 < a and a < b", {"ge": 0}, False),
        ("abs(a) <= 3", {"ge": -3, "lt": 4}, False),
        ("a >= 0", {"ge": 1}, True),
        ("a >= 0 or b > 0", {"ge": 0}, True),
        ("a >= b", {"ge": 0}, True),
    ],
)
def test_constraints_keep_limits_too(constraint, limit, tighter):
    held, later = (
        {"B": {"fields": {"a": a, "b": "int"}, "constraints": [{"expr": constraint}]}}
        for a in ({"type": "int", "ge": -4, "le": 9}, {"type": "int", "ge": -4, "le": 9, **limit})
    )
    one, other = doc({"a": "B"}, raw=held), doc({"a": "B"}, 2, raw=later)
    found = verdict(one, series_of([one, other]), "backward")
    assert {each.code for each in found} == ({"NQX270"} if tighter else set())


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ({"ge": 0}, {"gt": -1}, {"NQX234"}),
        ({"choices": [2, 4]}, {"multiple_of": 2}, {"NQX234", "NQX271"}),
        ({"ge": 0, "le": 2}, {"choices": [0, 1, 2]}, {"NQX234"}),
        ({"ge": 0}, {"multiple_of": 2}, {"NQX270", "NQX271"}),
    ],
)
def test_verdicts_and_differences_name_limits_that_refuse(old, new, codes):
    one, other = doc({"a": {"type": "int", **old}}), doc({"a": {"type": "int", **new}}, 2)
    series = series_of([one, other])
    assert {each.code for each in s.diff(one, other)} == codes
    for mode, code in product(("backward", "forward"), ("NQX270", "NQX271")):
        found = {each.code for each in verdict(one, series, mode)}
        if (mode, code) in (("backward", "NQX270"), ("forward", "NQX271")):
            assert (code in found) is (code in codes)


@pytest.mark.parametrize(
    ("declared", "refuses"),
    [("float32[n]", False), ("uint8[n] | null", False), ("float32[]", True), ("float32[...]", True), ("int", True)],
)  # fmt: skip
def test_bounds_of_arrays_refuse_nothing(declared, refuses):
    one, other = doc({"a": declared}), doc({"a": {"type": declared, "ge": 0}}, 2)
    found = verdict(one, series_of([one, other]), "backward")
    assert [each.code for each in found] == ["NQX270"] * refuses


#: The type that holds a struct, the other fields, the constraint around it, and whether it keeps `ge: 0` of a field inside.
AROUND = {
    "a list": ("list[B]", {}, "all(b.x >= 0)", True),
    "a struct": ("B", {}, "b.x >= 0", True),
    "a weaker one": ("list[B]", {}, "all(b.x >= -1)", False),
    "one item": ("list[B, 2]", {}, "b[0].x >= 0", False),
    "a second place": ("list[B]", {"c": "B"}, "all(b.x >= 0)", False),
    "a pytree": ("list[B]", {"c": "pytree"}, "all(b.x >= 0)", False),
    "an entry": ("dict[str, B]", {}, "all(b.x >= 0)", False),
}


@pytest.mark.parametrize("name", AROUND)
def test_constraints_around_a_struct_keep_limits_inside(name):
    held, others, constraint, kept = AROUND[name]
    one, two = (
        doc(
            {},
            version,
            raw={
                "A": {"fields": {"b": held, **others}, "constraints": [{"expr": constraint}]},
                "B": {"fields": {"x": x}},
            },
        )
        for version, x in ((1, "int"), (2, {"type": "int", "ge": 0}))
    )
    assert [d.code for d in verdict(one, series_of([one, two]), "backward")] == ["NQX270"] * (
        not kept
    )
