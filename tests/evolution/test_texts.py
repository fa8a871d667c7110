"""The step convert for words: str, int, bool, enums and literals."""

import pytest

from neuralqx_struct.errors import MigrationError, SchemaError
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.manifest.kinds import BIGINT, ENUM, FULL, LIST, NUMPY_SCALAR
from neuralqx_struct.schema.series import series_of
from tests.builders import conforms, doc, every, payload, refused

ENUMS = {"E": ["x", "y"], "F": ["y", "x", "z"]}
LITERALS = "literal['x', 'y']"


def versions(old, new, to):
    step = steps.convert(field="a", to=to)
    return doc({"a": old}, enums=ENUMS), doc({"a": new}, 2, [step], enums=ENUMS)


def converted(old, new, to, node):
    first, second = versions(old, new, to)
    held = payload(first, {"a": node})
    after = apply(held, plan(series_of([first, second]), 1, 2))
    assert conforms(second, after) == []
    back = apply(after, plan(series_of([first, second]), 2, 1))
    assert conforms(first, back) == []
    return after.document["manifest"]["fields"]["a"], back.document["manifest"]["fields"]["a"]


BIG = BIGINT.node(value="1" + "0" * 30)
NUMPY = NUMPY_SCALAR.node(dtype="<U1", value="y")
MEMBER = ENUM.node(type="m:E", name="y")
FORMS = [
    ("str", "E", "E", "x", "x"),
    ("E", "str", "str", MEMBER, "y"),
    ("E", "F", "F", "y", "y"),
    ("E", LITERALS, LITERALS, MEMBER, "y"),
    (LITERALS, "E", "E", NUMPY, "y"),
    ("str | null", "E | null", "E", None, None),
    ("list[E]", "list[str]", "str", LIST.node(items=["x", MEMBER]), LIST.node(items=["x", "y"])),
]


@pytest.mark.parametrize(("old", "new", "to", "node", "made"), FORMS)
def test_texts_get_another_type_and_come_back(old, new, to, node, made):
    assert converted(old, new, to, node) == (made, made)
    first, second = versions(old, new, to)
    assert plan(series_of([first, second]), 1, 2).cost == "manifest"
    ((found,),) = [[*each.steps] for each in suggest(first, second)]
    assert (found.name, found.to) == ("convert", to)


@pytest.mark.parametrize(
    ("old", "new", "to", "stops"),
    [
        ("E", "F", "F", [2]),
        ("str", "E", "E", [1]),
        ("F", "E", "E", [1]),
        (LITERALS, "E", "E", []),
        ("E", "str", "str", [2]),
    ],
)
def test_lint_says_where_a_text_may_be_no_member(old, new, to, stops):
    """1: on the way up; 2: on the way back."""
    found = prove(*versions(old, new, to))
    assert {d.code for d in found} <= {"NQX320"}
    assert [2 if "downgrade" in d.message else 1 for d in found] == stops


def test_a_text_that_is_no_member_stops():
    first, second = versions("str", "E", "E")
    with refused(MigrationError, "NQX421", "$.a", "x, y", "'xx'"):
        apply(payload(first, {"a": "xx"}), plan(series_of([first, second]), 1, 2))


def test_a_value_that_is_no_text_stops():
    first, second = versions("str", "E", "E")
    for node in (3.5, LIST.node(items=[])):
        with refused(MigrationError, "NQX411", "$.a"):
            apply(payload(first, {"a": node}), plan(series_of([first, second]), 1, 2))


REFUSED = [
    ("int", {"to": "E"}, "NQX304", "value"),
    ("bool", {"to": "E"}, "NQX304", "value"),
    ("E", {"to": "int"}, "NQX304", "int"),
    ("float", {"to": "E"}, "NQX304", "text"),
    ("literal[1, '1']", {"to": "str"}, "NQX304", "text"),
    ("E", {"to": "E"}, "NQX306", "effect"),
    ("str", {"to": "E", "exact": False, "lossy": True}, "NQX306", "rounds"),
    ("str | E", {"to": "str"}, "NQX304", "words"),
]


@every(("old", "step", "code", "word"), REFUSED)
def test_declarations_that_are_refused(old, step, code, word):
    old, new = doc({"a": old}, enums=ENUMS), doc({}, 2, enums=ENUMS)
    with pytest.raises(SchemaError) as caught:
        steps.apply_to_document(old, steps.convert(field="a", **step), new)
    (found,) = caught.value.diagnostics
    assert (found.code, word in found.message) == (code, True)


def test_members_of_another_name_are_renamed_first():
    old = doc({"a": "literal['fast', 'slow']"})
    (found,) = suggest(old, doc({"a": "E"}, 2, enums={"E": ["quick", "slow"]}))
    assert [step.name for step in found.answers[0].steps] == ["map_enum", "convert"]
    assert "what becomes of the strings that are gone?" in found.question


#: The old type, the new one, the values before and after; one that is a node comes back as the plain value beside it.
WORDS = [
    ("int", "str", -7, "-7", -7),
    ("int", "str", BIG, "1" + "0" * 30, 10**30),
    ("int", "str", NUMPY_SCALAR.node(dtype="int8", value=3), "3", 3),
    ("int", "str", FULL.node(dtype="int32", shape=[], value=3), "3", 3),
    ("str", "int", "-7", -7, "-7"),
    ("bool", "str", True, "true", True),
    ("int", "literal[1, 2]", 2, 2, 2),
    ("bool", "literal['false', 'true']", False, "false", False),
    ("literal[1, true]", "str", True, "true", True),
]


@every(("old", "new", "node", "made", "back"), WORDS)
def test_numbers_and_booleans_become_words_and_come_back(old, new, node, made, back):
    assert [*map(repr, converted(old, new, new, node))] == [repr(made), repr(back)]
    ((found,),) = [[*each.steps] for each in suggest(*versions(old, new, new))]
    assert (found.name, found.to) == ("convert", steps.convert(field="a", to=new).to)


@pytest.mark.parametrize("text", ["01", "+1", "1.0", "", "1_0", "9" * 5000])
def test_text_that_is_no_integer_stops(text):
    first, second = versions("str", "int", "int")
    assert [d.code for d in prove(first, second)] == ["NQX320"]
    with refused(MigrationError, "NQX421", "$.a"):
        apply(payload(first, {"a": text}), plan(series_of([first, second]), 1, 2))


@pytest.mark.parametrize(
    ("old", "new", "names", "node", "made"),
    [
        ("bool", "E", ["convert", "map_enum", "convert"], True, "y"),
        ("E", "bool", ["convert", "map_enum", "convert"], "x", False),
        ("literal[1, 2]", "E", ["convert", "map_enum", "convert"], 1, "x"),
        ("bool | null", "literal['x', 'y'] | null", ["convert", "map_enum"], None, None),
    ],
)
def test_words_of_other_names_are_asked_about_and_come_back(old, new, names, node, made):
    first, second = doc({"a": old}, enums=ENUMS), doc({"a": new}, 2, enums=ENUMS)
    (found,) = suggest(first, second)
    answer, *unrelated = found.answers
    assert found.question and [step.name for step in answer.steps] == names
    assert len(unrelated) == 1 and not any(step.name == "convert" for step in unrelated[0].steps)
    second = doc({"a": new}, 2, answer.steps, enums=ENUMS)
    assert prove(first, second) == []
    series = series_of([first, second])
    after = apply(payload(first, {"a": node}), plan(series, 1, 2))
    assert after.document["manifest"]["fields"]["a"] == made
    back = apply(after, plan(series, 2, 1))
    assert back.document["manifest"]["fields"]["a"] == node
