"""The law of verdicts: `breaking` agrees with loads by readers that really have only the other version."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.classes.compiler import classes_of
from neuralqx_struct.errors import has_errors
from neuralqx_struct.evolution.changes import LIMITS
from neuralqx_struct.evolution.compatibility import skew_between, verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.evolution.steps import kind
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.schema.migration import MODES
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.uses import among, link
from tests.builders import bounded, cases, doc, every, payload


def loads(writer, reader, unknown, key=0, used=()):
    """Whether an installation with one version alone loads an example of the other; the bundle has the writer's series."""
    series = series_of([reader, writer] if writer.migrations else [writer])
    series = series_of([link(d, among(used)) for d in series.documents.values()])
    try:
        given = s.example(classes_of(series, writer.version)[writer.root], key=key).to_state_dict()
    except s.ValidationError:
        assume(False)
    cls = classes_of(series_of([reader]), reader.version, own=True)[reader.root]
    try:
        s.from_state_dict(given, load_cls=cls, unknown=unknown, as_numpy=True)
    except s.StructError as error:
        return error
    return None


CASES = {
    "a required field added": ({}, {"a": "int"}, False, True),
    "float32 to float64": ({"a": "float32[2]"}, {"a": "float64[2]"}, True, False),
    "float64 to float32": ({"a": "float64[2]"}, {"a": "float32[2]"}, False, True),
    "float32 to float16": ({"a": "float32[2]"}, {"a": "float16[2]"}, False, True),
    "int8 to float64": ({"a": "int8[2]"}, {"a": "float64[2]"}, True, False),
    "a limit added": ({"a": "int"}, {"a": {"type": "int", "ge": 0}}, False, True),
    "a limit removed": ({"a": {"type": "int", "ge": 0}}, {"a": "int"}, True, False),
    "a size given": ({"a": "int8[n]"}, {"a": "int8[2]"}, False, True),
    "an even size made twice another": ({"a": "int8[4]"}, {"a": "int8[2 * n]"}, True, False),
    "an odd size made twice another": ({"a": "int8[3]"}, {"a": "int8[2 * n]"}, False, False),
    "an even size that another one fixes": (
        {"a": "int8[4]", "b": "int8[1]"}, {"a": "int8[2 * n]", "b": "int8[n]"}, False, False,
    ),
    "one size made two": ({"a": "int8[n]", "b": "int8[n]"}, {"a": "int8[n]", "b": "int8[m]"}, True, False),
    "a renamed size": ({"a": "int8[n]", "b": "int8[n]"}, {"a": "int8[m]", "b": "int8[m]"}, True, True),
    "any sizes made one": ({"a": "int8[_]", "b": "int8[_]"}, {"a": "int8[n]", "b": "int8[n]"}, False, True),
}  # fmt: skip


@every("name", CASES)
def test_verdicts_of_single_changes(name):
    old, new, backward, forward = CASES[name]
    first, second = doc(old), doc(new, 2)
    for steps in (True, False):
        for mode, expected in (("backward", backward), ("forward", forward)):
            found = verdict(first, second, mode, unknown="drop", steps=steps)
            assert has_errors(found) is not expected, found


LIMITED = {
    "equals given": ({}, {"n": {"equals": "2 * m"}}, False, True),
    "min given": ({}, {"n": {"min": 3}}, False, True),
    "max given": ({"n": {}}, {"n": {"max": 3}}, False, True),
    "max raised": ({"n": {"max": 3}}, {"n": {"max": 4}}, True, False),
    "max kept": ({"n": {"max": 3}}, {"n": {"max": 3}}, True, True),
    "max removed": ({"n": {"max": 3}}, {}, True, False),
    "equals changed": ({"n": {"equals": "2 * m"}}, {"n": {"equals": "3 * m"}}, False, False),
    "one size for the tree": ({}, {"n": {}}, False, True),
}


@every("name", LIMITED)
def test_verdicts_of_dims(name):
    old, new, backward, forward = LIMITED[name]
    fields, inner = {"a": "int8[n]", "m": "int8[m]", "x": "B"}, {"B": {"fields": {"w": "int8[n]"}}}
    first, second = (
        doc(fields, version, dims=dims, raw=inner) for version, dims in ((1, old), (2, new))
    )
    for mode, expected in (("backward", backward), ("forward", forward)):
        found = verdict(first, second, mode)
        assert has_errors(found) is not expected, found
        assert {d.code for d in found} <= LIMITS


@pytest.mark.parametrize(("fields", "shared"), [({"x": "int"}, False), ({"x": "int8[s]"}, True)])
def test_a_dim_is_shared_by_the_structs_whose_payloads_show_it(fields, shared):
    inner = {"B": {"fields": {"w": "int8[n]"}}, "C": {"params": ["s"], "fields": fields}}
    for held in ({"x": "B", "y": "C[n]"}, {"y": "C[n]", "x": "B"}):
        first, second = doc(held, dims={"n": {}}, raw=inner), doc(held, 2, raw=inner)
        assert has_errors(verdict(first, second, "forward")) is shared
        assert not has_errors(verdict(first, second, "backward"))


@pytest.mark.parametrize(("least", "accepted"), [(2, True), (3, False)])
def test_a_minimum_holds_for_the_dims_that_are_computed_from_it(least, accepted):
    fields = {"a": "int8[k]", "b": "int8[n]"}
    dims = {"n": {"min": 0}, "p": {"min": 1, "equals": "n"}, "k": {"equals": "2 * p"}}
    first = doc(fields, dims=dims)
    second = doc(fields, 2, dims={**dims, "k": {"equals": "2 * p", "min": least}})
    assert has_errors(verdict(first, second, "backward")) is not accepted


def test_a_minimum_is_that_of_the_next_size_which_an_equation_gives():
    fields = {"a": "int8[k]", "b": "int8[n]"}
    first = doc(fields, dims={"n": {}, "k": {"min": 2, "equals": "3 * n + 1"}})
    for least, accepted in ((4, True), (5, False)):
        second = doc(fields, 2, dims={"n": {}, "k": {"min": least, "equals": "3 * n + 1"}})
        assert has_errors(verdict(first, second, "backward")) is not accepted


HIDDEN = {
    "no use": ({}, {"p": {"min": 3}}, True),
    "an equation for a dim without a use": ({"p": {}}, {"p": {"equals": "n + 1"}}, True),
    "with a minimum that it has": ({"p": {}}, {"p": {"equals": "n + 1", "min": 1}}, True),
    "with a minimum that it may miss": ({"p": {}}, {"p": {"equals": "n + 1", "min": 2}}, False),
    "with the same minimum as before": (
        {"p": {"equals": "n", "min": 2}},
        {"p": {"equals": "n", "min": 2}, "q": {"equals": "p"}},
        True,
    ),
    "with a minimum before the equation": ({"p": {"min": 2}}, {"p": {"equals": "n", "min": 2}}, False),
    "with a maximum": ({"p": {}}, {"p": {"equals": "n", "max": 2}}, False),
    "that may be negative": ({"p": {}}, {"p": {"equals": "n - 1"}}, False),
    "that may be a fraction": ({"p": {}}, {"p": {"equals": "n / 2"}}, False),
    "an equation that a dim without a use solves": ({"p": {}}, {"p": {}, "n": {"equals": "p"}}, True),
    "one that it does not solve": ({"p": {}}, {"p": {}, "n": {"equals": "2 * p"}}, False),
    "two for one": ({"p": {}}, {"p": {}, "n": {"equals": "p"}, "m": {"equals": "p"}}, False),
    "a chain": ({"p": {}, "q": {}}, {"p": {"equals": "q", "min": 9}, "q": {}}, True),
    "an argument that no shape uses": ({"k": {}}, {"k": {"min": 3}}, True),
    "an argument that may be negative": ({"l": {}}, {"l": {"min": 3}}, True),
    "an argument that a shape uses": ({"d": {}}, {"d": {"min": 3}}, False),
}  # fmt: skip


@every("name", HIDDEN)
def test_dims_that_no_payload_shows_refuse_none(name):
    old, new, expected = HIDDEN[name]
    fields = {
        "a": "int8[n]", "m": "int8[m]", "u": "Unused[2 * k]", "l": "Unused[l - 3]", "d": "Used[d]",
    }  # fmt: skip
    structs = {
        "Unused": {"params": ["s"], "fields": {"x": "int"}},
        "Used": {"params": ["s"], "fields": {"x": "dict[str, int8[s]]"}},
    }
    dims = {"n": {}, "m": {}, "k": {}, "l": {}, "d": {}}
    first, second = (
        doc(fields, version, dims={**dims, **given}, raw=structs)
        for version, given in ((1, old), (2, new))
    )
    assert has_errors(verdict(first, second, "backward")) is not expected


@pytest.mark.parametrize(
    "dims",
    [
        {"k": {"min": 1}},
        {"k": {"min": 3}},
        {"k": {"equals": "n"}},
        {"k": {}, "n": {"equals": "k"}},
    ],
)
def test_a_dim_that_no_payload_showed_is_no_other_size(dims):
    structs = {"Unused": {"params": ["s"], "fields": {"x": "int"}}}
    dims = {"n": {}, **dims}
    first, second = (
        doc({"a": f"int8[{size}]", "b": "int8[n]", "u": "Unused[k]"}, version, dims=dims, raw=structs)
        for version, size in ((1, 2), (2, "k"))
    )  # fmt: skip
    assert has_errors(verdict(first, second, "backward"))


def test_members_that_become_a_default_are_named_where_there_is_one():
    fields = {"a": "E"}
    first = doc(fields, enums={"E": {"members": ["x", "y"], "default": "x"}})
    second = doc(fields, 2, enums={"E": {"members": ["x", "z"], "default": "x"}})
    (backward,) = verdict(first, second, "backward")
    (forward,) = verdict(first, second, "forward")
    step = "`- map_enum: {enum: E, values: {y: x}, undo: {x: x}}`"
    assert (backward.code, forward.code) == ("NQX250", "NQX250")
    assert backward.hint.endswith(step)
    assert forward.hint == "fine if that is meant"
    without = doc(fields, enums={"E": ["x", "y"]})
    assert {d.code for d in verdict(without, second, "forward")} == {"NQX301"}


def test_a_struct_that_is_held_once_has_no_size_of_its_own():
    inner = {"B": {"fields": {"w": "int8[n]"}}}
    first, second = (
        doc({"x": "B"}, raw=inner),
        doc({"x": "B"}, 2, raw=inner, dims={"n": {}}),
    )
    assert verdict(first, second, "full") == []
    several = {"x": "B", "y": "B | null"}
    first, second = doc(several, raw=inner), doc(several, 2, raw=inner, dims={"n": {}})
    assert [d.code for d in verdict(first, second, "full")] == ["NQX270"]


@every(
    ("fields", "codes"),
    [
        ({"x": "B | C"}, []),
        ({"x": "B | C | null"}, []),
        ({"x": "B", "y": "C"}, ["NQX270"]),
        ({"x": "B | C", "y": "C"}, ["NQX270"]),
        ({"x": "list[B | C]"}, ["NQX270"]),
        ({"x": {"type": "list[B] | null", "max_length": 1}, "y": "int8[2]"}, []),
        ({"x": {"type": "list[list[B]]", "max_length": 1}}, ["NQX270"]),
        ({"x": "tuple[B, C]"}, ["NQX270"]),
    ],
)
def test_alternatives_of_one_field_have_one_size(fields, codes):
    inner = {"B": {"fields": {"w": "int8[n]"}}, "C": {"fields": {"v": "int8[n]"}}}
    first = doc(fields, raw=inner)
    second = doc(fields, 2, raw=inner, dims={"n": {}})
    assert [d.code for d in verdict(first, second, "full")] == codes
    assert [c.code for c in diff_documents(first, second) if c.code == "NQX270"] == codes


def test_a_size_becomes_a_dim_where_another_alternative_is_new():
    """Payloads of the first version have one B, whatever fields of the second one may hold."""
    inner = {"B": {"fields": {"w": "int8[n]"}}, "C": {"fields": {"v": "int8[]"}}}
    first = doc({"x": "B", "y": "C"}, raw=inner)
    second = doc({"x": "B", "y": "C | B"}, 2, raw=inner, dims={"n": {}})
    assert verdict(first, second, "backward") == []


def test_sizes_of_versions_in_between_are_not_checked():
    field = {"a": "int8[p]", "b": "int8[n]"}
    dims = [{"n": {"equals": "p + 1"}, "p": {}}, {"n": {}, "p": {}}, {"n": {"min": 1}, "p": {}}]
    versions = [doc(field, number, dims=held) for number, held in enumerate(dims, 1)]
    first, second, _ = versions
    series = series_of(versions)
    assert verdict([first], series, "backward") == []
    assert {d.code for d in verdict([second], series, "backward")} == {"NQX270"}
    assert verdict([second, first], series, "backward") != []


def test_types_of_a_version_in_between_are_not_checked():
    steps = [{"split": {"field": "a", "into": ["b"], "how": "list"}}]
    dims = {"m": {"equals": "n"}}
    first = doc({"a": "list[int, m]", "n": "int8[n]"})
    second = doc({"a": "list[int, m]", "n": "int8[n]"}, 2, dims={"n": {}, **dims})
    moves = [{"from": 2, "steps": steps}]
    third = doc({"b": "int", "n": "int8[n]"}, 3, dims={"n": {}, **dims}, migrations=moves)
    series = series_of([first, second, third])
    assert has_errors(verdict([second], series, "forward"))
    assert verdict([first], series, "forward") == []


def test_lengths_of_a_version_in_between_are_not_checked_before_steps_that_need_none():
    moves = [{"from": 2, "steps": [{"split": {"field": "a", "into": ["b"], "how": "list"}}]}]
    first = doc({"a": "list[int]", "n": "int8[n]"})
    second = doc({"a": "list[int, n]", "n": "int8[n]", "c": "int"}, 2, dims={"n": {}})
    third = doc({"b": "int", "n": "int8[n]", "c": "int"}, 3, dims={"n": {}}, migrations=moves)
    series = series_of([first, second, third])
    assert verdict([first], series, "forward", unknown="drop") == []
    sized = doc({"a": "list[int, n]", "n": "int8[n]"}, dims={"n": {}})
    (found,) = verdict([sized], series_of([sized, second, third]), "forward", unknown="drop")
    assert (found.code, found.path) == ("NQX307", "$.structs.A.fields.a")


def test_types_of_a_version_in_between_are_not_checked_before_renames():
    moves = [{"from": 1, "steps": [{"rename": {"field": "a", "to": "b"}}]}]
    first = doc({"a": "E", "n": "int"}, enums={"E": ["x"]})
    second = doc({"b": "E", "n": "int | null"}, 2, enums={"E": ["x", "y"]}, migrations=moves)
    third = doc({"b": "E", "n": "int"}, 3, enums={"E": ["x"]})
    assert verdict([first], series_of([first, second, third]), "forward") == []
    last = doc({"b": "E", "n": "int"}, 3, enums={"E": ["x", "y"]})
    (found,) = verdict([first], series_of([first, second, last]), "forward")
    assert found.path == "$.enums.E"


def test_a_wider_type_of_a_version_in_between_counts_before_steps_that_need_no_sizes():
    added = [{"from": 1, "steps": [{"add": {"field": "g", "default": None}}]}]
    filled = [{"from": 2, "steps": [{"fill": {"field": "g", "value": 7}}]}]
    first = doc({"a": "int"})
    second = doc({"a": "int", "g": "int | null"}, 2, migrations=added)
    third = doc({"a": "int", "g": "int"}, 3, migrations=filled)
    assert verdict([first], series_of([first, second, third]), "forward") == []


def test_members_of_enums_of_a_version_in_between_are_checked():
    moves = [{"from": 2, "steps": [{"add": {"field": "n", "default": 1}}]}]
    first = doc({"a": "E"}, enums={"E": ["x", "y"]})
    second = doc({"a": "E"}, 2, enums={"E": ["x"]})
    third = doc({"a": "E", "n": "int"}, 3, enums={"E": ["x", "y"]}, migrations=moves)
    (found,) = verdict([first], series_of([first, second, third]), "forward")
    assert found.path == "$.enums.E"


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (["x", "y"], []),
        ({"members": ["u", "y"], "default": "y"}, ["stored values x become 'y', the default"]),
        ({"members": ["z", "y"], "default": "y"}, ["stored values x become 'y', the default"]),
    ],
)
def test_members_that_became_a_default_are_no_longer_there(last, expected):
    middle = {"members": ["x", "y"], "default": "y"}
    versions = [
        doc({"a": "E"}, number, enums={"E": held})
        for number, held in enumerate([["x", "y", "z"], middle, last], 1)
    ]
    first, *others = verdict(versions[:1], series_of(versions), "backward")
    assert "z" in first.message and "'y'" in first.message
    assert [d.message.partition("\n")[2] for d in others] == expected
    assert not has_errors(others)
    for member in "xyz":
        loaded = resolve(payload(versions[0], {"a": member}), series_of(versions))
        kept = member == "x" and not expected
        assert loaded.document["manifest"]["fields"]["a"] == ("x" if kept else "y")


def test_sizes_are_not_checked_before_values_are_only_dropped():
    fields = {"a": "int8[p]", "b": "int8[n]"}
    old = doc(fields, dims={"p": {}, "n": {}})
    tied = doc(fields, 2, dims={"p": {}, "n": {"equals": "p"}})
    new = doc({"b": "int8[n]"}, 3, dims={"p": {}, "n": {"equals": "p"}})
    assert verdict(old, series_of([old, tied, new]), unknown="drop") == []
    assert has_errors(verdict(old, series_of([old, tied, new])))
    before = doc(fields | {"c": "int"}, dims={"p": {}, "n": {}})
    equal = {"p": {}, "n": {"equals": "p"}}
    kept = [before, doc(fields | {"c": "int"}, 2, dims=equal), doc(fields, 3, dims=equal)]
    assert [d.code for d in verdict(before, series_of(kept), unknown="drop")] == ["NQX270"]


WIDENED = {
    "a literal": ('literal["a"]', 'literal["a", "b"]', "map_enum", {"values": {"b": "c"}}, 'literal["a", "c"]'),
    "a member": ("M", "M", "map_enum", {"enum": "M", "values": {"b": "c"}}, "M"),
    "numbers": ("literal[1, 2]", "int", "convert", {"to": "float"}, "float"),
    "a family": ("float32[2]", "floating[2]", "cast", {"dtype": "float32"}, "float32[2]"),
}  # fmt: skip


@pytest.mark.parametrize("case", WIDENED)
def test_a_step_for_values_that_only_a_later_version_allows(case):
    had, allowed, name, members, made = WIDENED[case]
    step = {name: members if "enum" in members else {**members, "field": "a"}}
    enums = [{"enums": {"M": [*texts]}} for texts in ("a", "ab", "ac")]
    old, wide = doc({"a": had}, **enums[0]), doc({"a": allowed}, 2, **enums[1])
    new = doc({"a": made}, 3, migrations=[{"from": 2, "steps": [step]}], **enums[2])
    assert not has_errors(verdict(old, series_of([old, wide, new]), "backward-transitive"))
    state = s.to_state_dict(s.example(classes_of(series_of([old, wide]), 1)["A"]))
    s.from_state_dict(state, load_cls=classes_of(series_of([old, wide, new]), 3)["A"])


def test_a_size_given_by_a_renamed_field_is_checked_after_more_hops():
    def version(number, count, other, *steps):
        given = [{"from": number - 1, "steps": [*steps]}] if steps else []
        count = {count: {"type": "int", "kind": "static"}}
        fields = {"a": "int8[m] | null", **count, other: "int"}
        return doc(fields, number, migrations=given)

    first = version(1, "e", "x")
    second = version(2, "m", "x", {"rename": {"field": "e", "to": "m"}})
    third = version(3, "m", "y", {"rename": {"field": "x", "to": "y"}})
    assert [d.code for d in verdict(first, series_of([first, second, third]))] == ["NQX270"]


@pytest.mark.parametrize(
    ("to", "step", "codes"),
    [
        ({"c": "int8[3]"}, {"rename": {"field": "a", "to": "c"}}, []),
        ({"a": "int16[3]"}, {"cast": {"field": "a", "dtype": "int16"}}, []),
        ({"a": "list[int]"}, {"convert": {"field": "a", "to": "list[int]"}}, []),
        ({"a": "int8[3]", "c": "int8[n]"}, {"add": {"field": "c", "default": 1}}, []),
    ],
)
def test_sizes_are_not_checked_before_steps_that_none_refuses(to, step, codes):
    fields, sizes = {"a": "int8[3]", "b": "int8[p]", "d": "int8[n]"}, {"p": {}, "n": {}}
    old = doc(fields, dims=sizes)
    tied = doc(fields, 2, dims={"p": {}, "n": {"equals": "p"}})
    kept = {"b": "int8[p]", "d": "int8[n]"}
    new = doc({**to, **kept}, 3, dims=sizes, migrations=[{"from": 2, "steps": [step]}])
    assert [d.code for d in verdict(old, series_of([old, tied, new]))] == codes


def test_steps_on_words_that_the_writer_lacks_refuse_nothing():
    def version(number, words, *steps):
        migrations = [{"from": number - 1, "steps": [*steps]}] if steps else []
        return doc({"a": f"literal[{words}]"}, number, migrations=migrations)

    def renamed(old, new, **more):
        return {"map_enum": {"field": "a", "values": {old: new}, **more}}

    wider = version(2, '"x", "y"')
    series = [version(1, '"x"'), wider, version(3, '"x", "z"', renamed("y", "z"))]
    assert verdict(series[0], series_of(series), "backward-transitive") == []
    enums = [["x"], ["x", "y"], ["x", "z"]]
    named = [{"from": 2, "steps": [{"map_enum": {"enum": "E", "values": {"y": "z"}}}]}]
    series = [
        doc({"a": "E"}, number, enums={"E": members}, migrations=named if number == 3 else [])
        for number, members in enumerate(enums, 1)
    ]
    assert verdict(series[0], series_of(series), "backward-transitive") == []
    joined = version(3, '"x"', renamed("y", "x", undo={"x": "x"}))
    series = [version(1, '"x", "w"'), version(2, '"x", "y"', renamed("w", "y")), joined]
    assert verdict(series[0], series_of(series), "full-transitive") == []


def test_limits_follow_renames_by_steps():
    first = doc(
        {"a": "int"}, raw={"A": {"fields": {"a": "int"}, "constraints": [{"expr": "a > 0"}]}}
    )
    renamed = {"fields": {"b": "int"}, "constraints": [{"expr": "b > 0"}]}
    steps = [s.steps.migration(1, [s.steps.rename(field="a", to="b")])]
    second = doc({}, 2, raw={"A": renamed}).model_copy(update={"migrations": steps})
    assert verdict(first, second, "full") == []
    limited = {"fields": {"b": {"type": "int", "le": 5}}, "constraints": [{"expr": "b > 0"}]}
    second = doc({}, 2, raw={"A": limited}).model_copy(update={"migrations": steps})
    (found,) = verdict(first, second, "full")
    assert (found.code, found.path) == ("NQX270", "$.structs.A.fields.b")


def used(steps, fields):
    """Two versions of a schema that uses two versions of another one."""
    versions = []
    for version, declared in enumerate(fields, 1):
        structs = {"B": {"fields": declared}}
        data = {"language": "1", "schema": "lab.inner", "version": version, "root": "B"}
        migrations = {"migrations": [{"from": 1, "steps": steps}]} if steps and version == 2 else {}
        versions.append(document_from_data({**data, "structs": structs, **migrations}, "test"))
    users = [doc({"x": "lab.inner.B"}, v, uses=[f"lab.inner@{v}"]) for v in (1, 2)]
    return [link(user, among(versions)) for user in users]


@every("unknown", ["error", "warn", "drop"])
@every(
    ("steps", "fields", "backward", "forward"),
    [
        ([], ({"w": "int8[2]"}, {"w": "float64[2]"}), True, False),
        ([], ({"w": "float64[2]"}, {"w": "float32[2]"}), False, True),
        ([{"remove": {"field": "w", "lossy": True}}], ({"w": "int"}, {}), True, False),
        ([{"remove": {"field": "w", "undo_default": 1}}], ({"w": "int"}, {}), True, True),
    ],
)
def test_used_schemas_count(steps, fields, backward, forward, unknown):
    old, new = used(steps, fields)
    assert has_errors(verdict(old, new, "backward", unknown=unknown)) is not backward
    found = verdict(old, new, "forward", unknown=unknown)
    assert has_errors(found) is not forward
    assert all(d.path == "$.uses" and "lab.inner" in d.message for d in found)


@pytest.mark.parametrize(
    ("steps", "fields", "backward"),
    [
        ([], ({"w": "int8[2]"}, {"w": "int8[2]"}), True),
        ([], ({"w": "float64[2]"}, {"w": "float32[2]"}), False),
        ([], ({"w": "int8[n]", "v": "int8[m]"}, {"w": "int8[n]", "v": "int8[n]"}), False),
        ([], ({"w": "int"}, {}), False),
        ([{"rename": {"in": "C", "field": "w", "to": "v"}}], ({"w": "int"}, {"v": "int"}), True),
        ([{"rename": {"field": "k", "to": "j"}}], ({"w": "int"}, {"v": "int"}), False),
    ],
)
def test_structs_that_only_other_schemas_hold_are_judged(steps, fields, backward):
    versions = []
    for version, declared in enumerate(fields, 1):
        root = {"j" if steps and version == 2 and "in" not in steps[0]["rename"] else "k": "int"}
        data = {"language": "1", "schema": "lab.inner", "version": version, "root": "B"}
        data["structs"] = {"B": {"fields": root}, "C": {"fields": declared}}
        if steps and version == 2:
            data["migrations"] = [{"from": 1, "steps": steps}]
        versions.append(document_from_data(data, "test"))
    old, new = (
        link(doc({"x": "list[lab.inner.C]"}, v, uses=[f"lab.inner@{v}"]), among(versions))
        for v in (1, 2)
    )
    known = series_of([new])
    assert has_errors(verdict(old, known, "backward")) is not backward
    assert bool([*skew_between(old, new, lambda *_: None)]) is not backward


BOUNDED = ({"fields": {"w": "int"}}, {"fields": {"w": {"type": "int", "ge": 0}}})


@every(
    ("before", "after", "codes"),
    [
        ({"x": "B"}, {"x": "B"}, {"NQX270"}),
        ({"x": "int"}, {"x": "int"}, set()),
        ({"x": "pytree"}, {"x": "pytree"}, {"NQX270"}),
        ({"x": "int", "y": "B"}, {"x": "int"}, set()),
    ],
)
@every("is_used", [False, True])
def test_limits_count_where_payloads_hold_the_struct(before, after, codes, is_used):
    steps = [s.steps.remove(field="y", lossy=True)] if "y" in before else []
    inner = [
        document_from_data(
            {
                "language": "1",
                "schema": "lab.inner",
                "version": v,
                "root": "B",
                "structs": {"B": b},
            },
            "test",
        )
        for v, b in enumerate(BOUNDED, 1)
    ]
    versions = []
    for version, fields in enumerate((before, after), 1):
        if is_used:
            fields = {n: "lab.inner.B" if t == "B" else t for n, t in fields.items()}
            made = link(doc(fields, version, uses=[f"lab.inner@{version}"]), among(inner))
        else:
            made = doc(fields, version, raw={"B": BOUNDED[version - 1]})
        versions.append(made)
    old, new = versions
    if steps:
        new = new.model_copy(update={"migrations": [s.steps.migration(1, steps)]})
    assert {d.code for d in verdict(old, series_of([new]), "backward")} == codes


TYPES = [
    "int", "float", "str", "bool", "int | null", "int | str", "int8[n]", "int16[n]", "float32[n]", "float64[n]", "float32[m]",
    "float32[n, m]", "float16[3]", "complex64[n]", "list[int]", "list[int8[n]]", "dict[str, float]", "Mode", "In", "list[In]", "In | null",
    "float32[k]", "float32[n] | null", {"type": "int", "default": 3}, {"type": "int", "ge": 0}, {"type": "int", "ge": 2, "le": 9},
    {"type": "float32[n] | null", "default": None}, {"type": "int8[n]", "aliases": ["c"]}, {"type": "Mode", "default": "slow"},
]  # fmt: skip
FIELDS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(TYPES), min_size=1, max_size=4)
INNERS = st.dictionaries(
    st.sampled_from("nwx"),
    st.sampled_from(["int", "float32[n]", "int8[n]", "float64[n]", {"type": "int", "default": 1}]),
    min_size=1,
    max_size=2,
)
MEMBERS = st.sampled_from(
    [["fast", "slow"], ["slow"], {"members": ["slow", "new"], "default": "slow"}]
)
DIMS = st.sampled_from(
    [
        {},
        {"n": {}},
        {"n": {"min": 2}},
        {"n": {}, "m": {}, "k": {"equals": "n + m"}},
        {"m": {"max": 4}},
    ]
)
SIDE = st.tuples(FIELDS, INNERS, MEMBERS, DIMS)


def side(version, parts):
    fields, inner, members, dims = parts
    structs = {"In": {"fields": inner}}
    sizes = {"sizes": "int8[n, m]"} if dims else {}
    return doc({**fields, **sizes}, version, raw=structs, enums={"Mode": members}, dims=dims)


STOPS = {"NQX213", "NQX214", "NQX412"}


def check(old, new, unknown, key):
    """For each direction: compatible means that payloads load; incompatible without limits that none does."""
    found = {}
    for direction in ("backward", "forward"):
        judged = verdict(old, new, direction, unknown=unknown)
        found[direction] = has_errors(judged)
        writer, reader = (old, new) if direction == "backward" else (new, old)
        error = loads(writer, reader, unknown, key)
        errors = {d.code for d in judged if d.severity == "error"}
        depends = errors <= {*LIMITS, "NQX307", "NQX320"}  # of those, a payload may make no use
        steps = [item.step for migration in new.migrations for item in migration.steps]
        refused = {d.code for d in error.diagnostics} if error is not None else set()
        if refused & STOPS and any(kind(step).checks_values for step in steps):
            continue  # the data is refused by a step, as lint names it (NQX320)
        assert found[direction] or error is None, (direction, error)
        assert not found[direction] or depends or error is not None, (direction, judged)
    for name, mode in MODES.items():
        broken = has_errors(verdict(old, new, name, unknown=unknown))
        assert broken is any(found[direction] for direction in mode.directions)


@settings(max_examples=cases(40), deadline=None, derandomize=True)
@given(SIDE, SIDE, st.sampled_from(["error", "warn", "drop"]), st.integers(0, 9))
def test_a_verdict_without_steps_is_what_loading_does(before, after, unknown, key):
    aliased = [n for n, t in after[0].items() if isinstance(t, dict) and "aliases" in t]
    assume("c" not in aliased and len(aliased) < 2)
    check(side(1, before), side(2, after), unknown, key)


@settings(max_examples=cases(40), deadline=None, derandomize=True)
@given(SIDE, SIDE, st.sampled_from(["error", "warn", "drop"]), st.integers(0, 9))
def test_a_verdict_with_steps_is_what_loading_does(before, after, unknown, key):
    old, new = side(1, before), side(2, after)
    found = suggest(old, new)
    assume(all(each.answers for each in found))
    steps = [step for each in found for step in each.answers[0].steps]
    check(old, new.model_copy(update={"migrations": [s.steps.migration(1, steps)]}), unknown, key)


def test_hundreds_of_structs_that_have_other_names():
    def version(number, name, **members):
        fields = {f"f{i}": f"{name}{i}" for i in range(200)}
        structs = {f"{name}{i}": {"fields": {"x": f"int8[{i + 1}]"}} for i in range(200)}
        for i, struct in enumerate(structs.values()):
            struct |= {member: [f"{value}{i}"] for member, value in members.items()}
        return doc(fields, number, raw=structs)

    with bounded(10):
        found = verdict(version(1, "S"), version(2, "T", aliases="S"), "full")
    assert len(found) == 200
    assert found[0].hint == "write `- rename_struct: {struct: S0, to: T0}`"


def test_hops_behind_a_function_are_tried():
    """A function is not run, so payloads of the version behind it are drawn: here a copy lacks the new field inside."""
    run = s.steps.python(function="lab.f", reads=["a"], writes=["a"], lossy=True)
    copy = s.steps.add(field="g", like="n", default=1, within="C")
    before, after = {"n": "C | null"}, {"n": "C | null", "g": "C | null"}
    series = series_of(
        [
            doc({"a": "int", "c": "C"}, structs={"C": before}),
            doc({"a": "int", "c": "C"}, 2, [run], structs={"C": before}),
            doc({"a": "int", "c": "C"}, 3, [copy], structs={"C": after}),
        ]
    )
    for old in (1, 2):
        assert has_errors(verdict(series.at(old), series, "backward")), old
