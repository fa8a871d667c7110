"""Limits on the lengths of collections whose items are fields before or after a step, and on strings that a step renames."""

import json

import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.limits import is_tighter
from neuralqx_struct.schema.bounds import scalar_misses
from neuralqx_struct.schema.model import FieldDeclaration
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import doc, every, payload, refused

#: How the fields become a collection, its type and limits, which two items miss.
WHOLES = {
    "a list": ("list", {"type": "list[str]", "min_length": 3}),
    "a dict": ("dict", {"type": "dict[str, str]", "max_length": 1}),
}


@pytest.mark.parametrize("name", WHOLES)
def test_limits_on_a_collection_that_a_step_makes_or_takes_apart(name):
    how, limited = WHOLES[name]
    merge = steps.merge(fields=["a", "b"], into="c", how=how)
    split = steps.split(field="c", into=["a", "b"], how=how)
    apart, whole = {"a": "str", "b": "str"}, {"c": limited}
    merged = series_of([doc(apart), doc(whole, 2, [merge])])
    parted = series_of([doc(whole), doc(apart, 2, [split])])
    assert [found.code for found in verdict(merged.at(1), merged, "backward")] == ["NQX270"]
    assert [found.code for found in verdict(parted.at(1), parted, "forward")] == ["NQX271"]


@pytest.mark.parametrize("how", ["list", "tuple", "dict"])
def test_the_lengths_of_fields_are_not_those_of_the_collection_that_holds_them(how):
    merge = steps.merge(fields=["a", "b"], into="c", how=how)
    item = "list[str]"
    wholes = {
        "list": f"list[{item}]",
        "tuple": f"tuple[{item}, {item}]",
        "dict": f"dict[str, {item}]",
    }
    old = doc({"a": {"type": item, "min_length": 1}, "b": item})
    series = series_of([old, doc({"c": wholes[how]}, 2, [merge])])
    assert "NQX271" in {found.code for found in verdict(old, series, "forward")}


INT, FEW = "int", {"type": "int", "le": 5}
#: By a value: the fields of three versions, the steps to the last two, and the finding if it is beyond the limits of one.
VALUES = {
    "added": lambda v: ({}, {"a": INT}, {"a": FEW}, [steps.add(field="a", default=v)], None, "NQX270"),
    "added, opaque before": lambda v: ({"a": {"kind": "opaque", "default": None}}, {"a": INT}, {"a": FEW}, [steps.add(field="a", default=v)], None, "NQX270"),
    "added, renamed": lambda v: ({}, {"b": INT}, {"a": FEW}, [steps.add(field="b", default=v)], [steps.rename(field="b", to="a")], "NQX270"),
    "added by its default": lambda v: ({}, {"a": {"type": "int", "default": v}}, {"a": FEW}, None, None, "NQX270"),
    "filled": lambda v: ({"a": {"type": "int | null", "le": 5}}, {"a": INT}, {"a": FEW}, [steps.fill(field="a", value=v)], None, "NQX270"),
    "put back": lambda v: ({"a": FEW}, {"a": INT}, {}, None, [steps.remove(field="a", undo_default=v)], "NQX271"),
    "put back, renamed": lambda v: ({"a": FEW}, {"b": INT}, {}, [steps.rename(field="a", to="b")], [steps.remove(field="b", undo_default=v)], "NQX271"),
}  # fmt: skip


@every("name", VALUES)
@every("value", [7, 3])
def test_values_of_steps_keep_the_limits_of_later_and_earlier_versions(name, value):
    *fields, first, second, code = VALUES[name](value)
    one, two, three = ({"n": "int", **each} for each in fields)
    series = series_of([doc(one), doc(two, 2, first), doc(three, 3, second)])
    way = "backward" if code == "NQX270" else "forward"
    found = verdict([series.at(1)], series, way)
    assert [each.code for each in found] == ([code] if value == 7 else [])


def test_limits_of_a_value_whose_parts_are_joined_later():
    parted = [steps.split(field="m", into=["a", "b"], how="dict")]
    merged = [steps.merge(fields=["a", "b"], into="c", how="list")]
    first = doc({"m": {"type": "dict[str, int]", "max_length": 1}})
    series = series_of(
        [first, doc({"a": INT, "b": INT}, 2, parted), doc({"c": "list[int, 2]"}, 3, merged)]
    )
    assert "NQX271" in {found.code for found in verdict([first], series, "forward")}


def test_limits_of_a_part_that_is_converted_later():
    parted = [steps.split(field="m", into=["a", "b"], how="list")]
    converted = [steps.convert(field="a", to="float")]
    first, second = doc({"m": "list[int, 2]"}), doc({"a": INT, "b": INT}, 2, parted)
    third = doc({"a": {"type": "float", "le": 5}, "b": INT}, 3, converted)
    series = series_of([first, second, third])
    assert [found.code for found in verdict([first], series, "backward")] == ["NQX270"]


SWAP = {"a": "b", "b": "a"}
ANEW = {"a": "c"}
MERGED = {"a": "b"}
A, C = {"choices": ["a"]}, {"choices": ["c"]}
#: New names of a and b, limits before and after (of the field, or a constraint), and whether each direction reads.
RENAMED = {
    "swapped, equal": (SWAP, "x == 'a'", "x == 'a'", False, False),
    "swapped, choices": (SWAP, A, A, False, False),
    "swapped, followed": (SWAP, "x == 'a'", "x == 'b'", True, True),
    "swapped, choices that follow": (SWAP, A, {"choices": ["b"]}, True, True),
    "swapped, given up": (SWAP, A, {}, True, False),
    "swapped, new": (SWAP, {}, A, False, True),
    "renamed": (ANEW, "x == 'a'", "x == 'c'", True, True),
    "renamed, unlike": (ANEW, "not x != 'a' or n > 1", "not x != 'c' or n > 1", True, True),
    "renamed, in a list": (ANEW, "x in ['a', 'z']", "x in ['c', 'z']", True, True),
    "renamed, the others": (ANEW, "x in ['b', 'z']", "x in ['b', 'z']", True, True),
    "renamed, choices": (ANEW, A, C, True, True),
    "renamed, fewer choices": (ANEW, {"choices": ["a", "b"]}, C, False, True),
    "renamed, in order": (ANEW, "x <= y", "x <= y", False, False),
    "renamed, by its length": ({"a": "long"}, "len(x) == 1", "len(x) == 1", False, False),
    "renamed, length of all": (ANEW, "len(z) == 1", "len(z) == 1", False, False),
    "renamed, all": (ANEW, "all(z != 'a')", "all(z != 'c')", True, True),
    "renamed, another field": (ANEW, "n > 0", "n > 0", True, True),
    "renamed, compared with text": (ANEW, "x == t", "x == t", False, False),
    "merged, choices": (MERGED, {"choices": ["a", "b"]}, {"choices": ["b"]}, True, True),
    "merged, one of two": (MERGED, "x != 'b'", "x != 'b'", False, True),
    "merged, another": (MERGED, "x == 'z'", "x == 'z'", True, True),
}


def renamed_words(kind, name, more=()):
    values, before, after, *_ = RENAMED[name]
    old = ["a", "b", "z"]
    new = [*dict.fromkeys(values.get(each, each) for each in old)]
    given = {"values": values, "undo": {"b": "b"} if values is MERGED else {}}
    fields = [{"field": each} for each in "xyz"] if kind == "field" else [{"enum": "M"}]
    made = [steps.map_enum(**each, **given) for each in fields]
    sides = [(1, old, before, None), (2, new, after, [*made, *more])]
    versions = []
    for number, members, limit, migration in sides:
        text = "M" if kind == "enum" else f"literal{json.dumps(members)}"
        limits, texts = (limit, []) if isinstance(limit, dict) else ({}, [limit])
        x = {"type": text, **limits}
        fields = {"x": x, "y": text, "z": f"list[{text}]", "n": "int", "t": "str"}
        root = {"fields": fields, "constraints": [{"expr": each} for each in texts]}
        enums = {"enums": {"M": members}} if kind == "enum" else {}
        versions.append(doc(fields, number, migration, raw={"A": root}, **enums))
    return series_of(versions)


AWAY_AND_BACK = [steps.rename(field="x", to="m"), steps.rename(field="m", to="x")]


@every("name", RENAMED)
@every("kind", ["enum", "field"])
@every("more", [[], AWAY_AND_BACK])
def test_limits_follow_renamed_strings(kind, name, more):
    series = renamed_words(kind, name, more)
    *_, backward, forward = RENAMED[name]
    found = [verdict(series.at(1), series, way) for way in ("backward", "forward")]
    assert [not each for each in found] == [backward, forward]
    codes = {d.code for each in found for d in each}
    assert codes == {*["NQX270"][backward:], *["NQX271"][forward:]}
    assert {d.code for d in lint_series(series)} & {"NQX270"} == codes & {"NQX270"}


@pytest.mark.parametrize("kind", ["enum", "field"])
@pytest.mark.parametrize("name", ["swapped, equal", "swapped, followed", "renamed, choices"])
def test_loads_agree_with_limits_on_renamed_strings(tmp_path, kind, name):
    series = renamed_words(kind, name)
    held = {"x": "a", "y": "b", "z": ["a"], "n": 1, "t": ""}
    path = bundle.write(tmp_path / "old", payload(series.at(1), held))
    if RENAMED[name][3]:
        assert s.Schema(series, 2).load(path).x == RENAMED[name][0]["a"]
    else:
        with refused(s.StructError, "NQX416"):
            s.Schema(series, 2).load(path)


BOUNDS = [{}, *({name: limit} for name in ("ge", "gt", "le", "lt") for limit in (-1, 0, 1))]


@every("writer", BOUNDS)
def test_bounds_are_tighter_if_a_number_between_them_is_refused(writer):
    """Of floats, which have a number between any two."""
    numbers = [number / 2 for number in range(-6, 7)]
    before = FieldDeclaration.model_validate({"type": "float", **writer})
    for reader in BOUNDS:
        after = FieldDeclaration.model_validate({"type": "float", **reader})
        kept = [number for number in numbers if not scalar_misses(before, number)]
        refused = any(scalar_misses(after, number) for number in kept)
        assert any(is_tighter(name, after, before) for name in reader) is refused, reader
