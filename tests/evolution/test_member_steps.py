"""map_enum and defaults of enums, in unions and inside of collections, against a model of their own."""

import random

import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema.series import series_of
from tests.builders import doc, every, payload, refused, up, value

#: What an option of a union takes, where M has the members of the enum at that version.
OPTIONS = {
    "M": lambda text, members: text in members,
    "K": lambda text, members: text in ("k", "c"),
    "str": lambda text, members: True,
    'literal["l", "a"]': lambda text, members: text in ("l", "a"),
}
PLACES = {
    "alone": ("{}", lambda text: text),
    "list": ("list[{}]", lambda text: [text]),
    "list | null": ("list[{}] | null", lambda text: [text]),
    "dict": ("dict[str, {}]", lambda text: {"__kind__": "dict", "items": [["x", text]]}),
    "tuple": ("tuple[int, {}]", lambda text: {"__kind__": "tuple", "items": [1, text]}),
    "dict of lists": (
        "dict[str, list[{}] | null]",
        lambda text: {"__kind__": "dict", "items": [["x", {"__kind__": "list", "items": [text]}]]},
    ),
}


def reader(options, text, members):
    """The option that takes a text."""
    return next((option for option in options if OPTIONS[option](text, members)), None)


def texts(held):
    """The strings in a value."""
    if isinstance(held, str):
        return [held]
    if isinstance(held, dict):
        held = [inner for key, inner in held.items() if key != "__kind__"]
    inside = held if isinstance(held, list) else ()
    return [text for each in inside for text in texts(each)]


@every("seed", range(150))
def test_members_get_their_names_and_nothing_else_does(seed):
    choose = random.Random(seed)
    options = choose.sample([*OPTIONS], choose.randint(1, 3))
    options = ["M", *options] if "M" not in options else options
    declared, hold = PLACES[choose.choice([*PLACES])]
    declared = declared.format(" | ".join(options))
    members = ["a", "b"]
    old_name = choose.choice(members)
    new_name = choose.choice(["c", "d", "l", "b", "a"])
    if old_name == new_name:
        return
    mapped = {member: new_name if member == old_name else member for member in members}
    enums = [
        {"M": members, "K": ["k", "c"]},
        {"M": [*dict.fromkeys(mapped.values())], "K": ["k", "c"]},
    ]
    step = steps.map_enum(enum="M", values={old_name: new_name})
    old = doc({"f": declared}, enums=enums[0])
    new = doc({"f": declared}, 2, [step], enums=enums[1])
    stored = [text for text in "abcdlkz" if reader(options, text, members)]
    wanted = {
        text: mapped[text] if reader(options, text, members) == "M" else text for text in stored
    }
    # Names that two values get need the author's word; so does one that another option has.
    others = [option for option in options if option != "M"]
    merged = list(mapped.values()).count(new_name) > 1 or reader(others, new_name, [])
    errors = [d.code for d in prove(old, new) if d.severity == "error"]
    if merged:
        assert errors == ["NQX308"]
        new = doc({"f": declared}, 2, [step.model_copy(update={"lossy": True})], enums=enums[1])
        assert [d.code for d in prove(old, new) if d.severity == "error"] == []
    else:
        assert errors == []
    series = series_of([old, new])
    for text in stored:
        there = up(old, new, {"f": hold(text)})
        assert texts(value(there.document["manifest"], {})) == [wanted[text]]
        if merged:
            with refused(s.MigrationError, "NQX423"):
                plan(series, 2, 1)
        else:
            back = apply(there, plan(series, 2, 1))
            assert back.document["manifest"] == payload(old, {"f": hold(text)}).document["manifest"]


@pytest.mark.parametrize("undo", ["a", "c"])
def test_undo_says_what_a_name_was(undo):
    step = steps.map_enum(enum="M", values={"a": "c"}, undo={"c": undo})
    old = doc({"f": "M | str"}, enums={"M": ["a", "b"]})
    new = doc({"f": "M | str"}, 2, [step], enums={"M": ["c", "b"]})
    assert [d for d in prove(old, new) if d.severity == "error"] == []
    for text in "ac":
        there = up(old, new, {"f": text})
        assert there.document["manifest"]["fields"]["f"] == "c"
        back = apply(there, plan(series_of([old, new]), 2, 1))
        assert back.document["manifest"]["fields"]["f"] == undo


def test_literal_strings_of_a_field_that_takes_any_text():
    step = steps.map_enum(field="f", values={"a": "c"})
    old, new = doc({"f": 'literal["a"] | str'}), doc({"f": 'literal["c"] | str'}, 2, [step])
    assert [d.code for d in prove(old, new)] == ["NQX308"]


@every("place", PLACES)
@every("options", [["M"], ["M", "null"], ["M", "str"], ["str", "M"], ["M", "K"], ["K", "M", "int"]])
def test_a_removed_member_becomes_the_default_and_lint_says_so(options, place):
    declared, hold = PLACES[place]
    declared = declared.format(" | ".join(options))
    others = {"K": ["k"]}
    old = doc({"f": declared}, enums={"M": ["a", "b"], **others})
    new = doc({"f": declared}, 2, [], enums={"M": {"members": ["b"], "default": "b"}, **others})
    (found,) = prove(old, new)
    assert (found.code, found.severity, found.path) == ("NQX250", "warning", "$.enums.M")
    there = up(old, new, {"f": hold("a")})
    expected = "a" if "str" in options else "b"  # the text stays valid
    assert texts(value(there.document["manifest"], {})) == [expected]


@pytest.mark.parametrize("declared", ["M | K", "K | M"])
@pytest.mark.parametrize("text", "azc")
def test_the_enum_that_lost_a_member_gives_its_default(declared, text):
    enums = {"M": ["b", "a", "c"], "K": ["k", "z", "c"]}
    defaults = {name: {"members": [m[0]], "default": m[0]} for name, m in enums.items()}
    old, new = doc({"f": declared}, enums=enums), doc({"f": declared}, 2, enums=defaults)
    there = apply(payload(old, {"f": text}), plan(series_of([old, new]), 1, 2))
    wanted = {"a": "b", "z": "k", "c": enums[declared[0]][0]}  # the first one of both
    assert there.document["manifest"]["fields"]["f"] == wanted[text]


def test_a_removed_member_without_steps_is_named_too():
    enums = [{"M": ["a", "b"]}, {"M": {"members": ["b"], "default": "b"}}]
    found = prove(doc({"f": "M"}, enums=enums[0]), doc({"f": "M"}, 2, enums=enums[1]))
    assert [(d.code, d.severity) for d in found] == [("NQX250", "warning")]
    step = steps.map_enum(enum="M", values={"a": "b"}, undo={"b": "b"})  # as the hint says
    assert "- map_enum: {enum: M, values: {a: b}, undo: {b: b}}" in found[0].hint
    assert prove(doc({"f": "M"}, enums=enums[0]), doc({"f": "M"}, 2, [step], enums=enums[1])) == []
