"""Trials of payloads: what they decide, what they refuse, and what they leave undecided."""

import pytest

from neuralqx_struct.errors import MigrationError, has_errors
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.plans import plan
from neuralqx_struct.evolution.trial import IN_VERDICTS, try_payloads
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.uses import among, link
from neuralqx_struct.tools.linting import lint_series
from tests.builders import bounded, doc, every

HELD = {
    "B": {"fields": {"w": "int8[n]"}},
    "C": {"params": ["k"], "fields": {"x": "int"}},
}
SIZES = {"a": "int8[k]", "b": "int8[n]"}


def tried(old, new):
    """The codes of a payload of the first version that the second one refuses; None if nothing is decided."""
    series = series_of([old, new])
    try:
        way = plan(series, 1, 2)
    except MigrationError as error:
        return {error.code}
    trial = try_payloads(series, way, "error", IN_VERDICTS.in_doubt)
    if trial.refused is not None:
        return {trial.refused.code}
    return set() if trial.decides else None


#: Fields and dims before and after, and the codes of a payload that is refused; None where nothing is decided.
CASES = {
    "the same size by another name": ({"a": "int8[n]"}, {}, {"a": "int8[m]"}, {}, set()),
    "a size for any": ({"a": "int8[n]", "b": "int8[n]"}, {}, {"a": "int8[_]", "b": "int8[_]"}, {}, set()),
    "one size for each of a list": ({"a": "list[B]"}, {}, {"a": "list[B]"}, {"n": {}}, {"NQX413"}),
    "one size for the only one": ({"a": "B"}, {}, {"a": "B"}, {"n": {}}, set()),
    "equal polynomials": (SIZES, {"n": {}, "k": {"equals": "(n + 1) * (n + 1)"}},
                          SIZES, {"n": {}, "k": {"equals": "n * n + 2 * n + 1"}}, set()),
    "polynomials that are equal below three": (
        SIZES, {"n": {}, "k": {"equals": "n * n * n + 2 * n"}},
        SIZES, {"n": {}, "k": {"equals": "3 * n * n"}}, {"NQX413"},
    ),
    "halves of odd sizes": (
        {"a": "int8[n]"}, {"n": {}}, {"a": "int8[n]"}, {"n": {"equals": "2 * k"}, "k": {}}, {"NQX413"},
    ),
    "a minimum that equations keep": (
        SIZES, {"n": {}, "k": {"equals": "n * n + 2"}},
        SIZES, {"n": {}, "k": {"equals": "n * n + 2", "min": 2}}, set(),
    ),
    "a maximum": ({"a": "int8[n]"}, {"n": {}}, {"a": "int8[n]"}, {"n": {"max": 12}}, {"NQX413"}),
    "a maximum of a list": (
        {"a": "list[int, n]"}, {"n": {}}, {"a": "list[int, n]"}, {"n": {"max": 12}}, {"NQX413"},
    ),
    "a maximum far off": ({"a": "int8[n]"}, {"n": {}}, {"a": "int8[n]"}, {"n": {"max": 1000}}, {"NQX413"}),
    "no polynomials": ({"a": "int8[n // 2]"}, {}, {"a": "int8[n]"}, {}, {"NQX301"}),
    "a pytree": ({"a": "pytree", "b": "int8[n]"}, {}, {"a": "pytree", "b": "int8[m]"}, {}, None),
    "a struct that is not there": ({"a": "No", "b": "int8[n]"}, {}, {"a": "No", "b": "int8[m]"}, {}, None),
    "an argument that nothing shows": ({"a": "C[2 * n]"}, {}, {"a": "C[n + 3]"}, {}, {"NQX301"}),
    "text for a pattern": (
        {"a": "int8[n]", "b": {"type": "str", "pattern": "x+"}}, {},
        {"a": "int8[m]", "b": {"type": "str", "pattern": "x+"}}, {}, set(),
    ),
    "text for a pattern that is hard": (
        {"a": "int8[n]", "b": {"type": "str", "pattern": "\\p{Greek}+"}}, {},
        {"a": "int8[m]", "b": {"type": "str", "pattern": "\\p{Greek}+"}}, {}, None,
    ),
    "text that is very long": (
        {"a": "int8[n]", "b": {"type": "str", "min_length": 10**9}}, {},
        {"a": "int8[m]", "b": {"type": "str", "min_length": 10**9}}, {}, None,
    ),
    "an equation that names its dim": (
        SIZES, {"n": {"equals": "2 * n - 4"}}, {"a": "int8[_]", "b": "int8[n]"}, {"n": {"equals": "2 * n - 4"}}, None,
    ),
    "many dims that follow from each other": (
        {"a": "int8[n0]"}, {f"n{i}": {"equals": f"n{i + 1} + 1"} for i in range(2000)} | {"n2000": {}},
        {"a": "int8[m]"}, {}, None,
    ),
    "bounds that are very large": (
        {"a": "int8[n]", "b": {"type": "int", "ge": 10**30}}, {},
        {"a": "int8[m]", "b": {"type": "int", "ge": 10**30}}, {}, None,
    ),
    "very large arrays": ({"a": "int8[n * n * n * n * n, 4194305]"}, {}, {"a": "int8[_, _]"}, {}, None),
    "lengths that exclude each other": (
        {"a": "int8[n]", "b": {"type": "str", "min_length": 5, "max_length": 3}}, {},
        {"a": "int8[m]", "b": {"type": "str", "min_length": 5, "max_length": 3}}, {}, None,
    ),
    "a field that is gone": (SIZES, {}, {"a": "int8[k]"}, {}, {"NQX415"}),
}  # fmt: skip


@every("name", CASES)
def test_payloads_of_random_sizes_decide(name):
    before, had, after, dims, codes = CASES[name]
    old, new = doc(before, dims=had, raw=HELD), doc(after, 2, dims=dims, raw=HELD)
    assert tried(old, new) == codes


def test_every_kind_of_value_is_drawn():
    fields = {
        "a": "complex64[n, 2 * n]", "b": "floating[..., n] | null", "c": "list[tuple[E, path, bytes]]",
        "d": 'dict[str, literal["x", 2]]', "e": "prng_key[threefry2x32, n]", "f": "B[n][m]", "g": "list[B[n], m]",
        "h": {"type": "int", "ge": 2, "le": 9, "multiple_of": 3}, "i": {"type": "float", "gt": 0, "lt": 1},
        "j": {"type": "str", "min_length": 2, "max_length": 3}, "k": {"type": "list[int]", "min_length": 4},
        "l": {"type": "int | null", "kind": "static"}, "o": "int8[l] | null", "p": "dtype | complex | bool",
        "q": {"type": "float", "multiple_of": 0.5}, "r": {"type": "int", "choices": [4, 7]}, "s": "B[_] | A | null",
        "t": {"type": "str", "pattern": "x+", "default": "xx"}, "u": {"type": "int", "le": -20},
    }  # fmt: skip
    raw = {"B": {"params": ["k"], "fields": {"w": "int8[k]", "v": "S[k]"}}}
    more = {"enums": {"E": ["x", "y"]}, "dtypes": {"S": ["int8", "float32"]}, "dims": {"n": {}}}
    old, new = (doc(fields, version, raw=raw, **more) for version in (1, 2))
    assert tried(old, new) == set()


def test_payloads_settle_doubts():
    """Nothing in a payload shows the parameter of C, so it has no value on the way back."""
    inner = {"D": {"fields": {"f": "bool[m]", "a": "C[2 * m] | null"}}, **HELD}
    outer = {"D": {"fields": {"f": "bool[m]"}}, **HELD}
    steps = [{"inline": {"field": "i", "fields": ["a"]}}]
    old = doc({"i": "D"}, raw=inner)
    new = doc(
        {"i": "D", "a": "C[2 * m] | null"}, 2, raw=outer, migrations=[{"from": 1, "steps": steps}]
    )
    assert verdict(old, series_of([old, new]), "full") == []


def test_a_doubt_that_a_payload_confirms_shows_it():
    old = doc({"a": "list[B]"}, raw=HELD)
    new = doc({"a": "list[B]"}, 2, raw=HELD, dims={"n": {}})
    (found,) = verdict(old, new, "backward")
    assert (found.code, found.severity, found.path) == ("NQX270", "error", "$.dims.n")
    assert "\n$.a[1].w: " in found.message


#: Fields before and after, and steps that need sizes which an empty dict or list does not show.
EMPTY = {
    "a dict": ({"a": "dict[str, int8[n]]"}, {"a": "dict[str, int8[n]]", "b": "bool[n]"}, s.add(field="b", default=True)),
    "a list of structs": ({"a": "list[B]"}, {"a": "B[][m]"}, s.stack(field="a", size="m")),
}  # fmt: skip
#: Steps that do to nothing what they do to everything.
NOTHING = {
    "a list of arrays": ({"a": "list[int8[2, n]]"}, {"a": "list[int8[1, 2, n]]"}, s.reshape(field="a", shape=[1, 2, "n"])),
    "an axis": ({"a": "int8[n, 3]"}, {"a": "list[int8[3], n]"}, s.unstack(field="a")),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_steps_over_nothing(name):
    before, after, step = EMPTY[name]
    old, new = doc(before, raw=HELD), doc(after, 2, [step], raw=HELD)
    series = series_of([old, new])
    # Items of a list of structs may have other sizes, too: those are not empty.
    severity = "error" if name == "a list of structs" else "warning"
    (found,) = verdict(old, series, "backward")
    assert (found.code, found.severity) == ("NQX320", severity)
    assert ("NQX320", "warning") in {(each.code, each.severity) for each in lint_series(series)}


@pytest.mark.parametrize("name", NOTHING)
def test_steps_that_take_nothing(name):
    before, after, step = NOTHING[name]
    old, new = doc(before, raw=HELD), doc(after, 2, [step], raw=HELD)
    found = verdict(old, series_of([old, new]), "backward")
    assert found == [] and found.comparisons[0].tried >= 25


UNSAVED = {
    "opaque": ({"type": "int", "kind": "opaque"}, {"NQX414"}),
    "not serialized": ({"type": "int", "serialize": False}, {"NQX414"}),
    "with a default": ({"type": "int", "kind": "opaque", "default": 1}, set()),
    "with null": ({"kind": "opaque", "serialize": False, "default": None}, set()),
    "derived": ({"type": "int", "derived": "y + 1"}, set()),
}


@every("unknown", ["error", "warn", "drop"])
@every("was", ["new", "there before", "static before"])
@every("name", UNSAVED)
def test_a_field_that_no_payload_holds_needs_a_default(name, was, unknown):
    field, codes = UNSAVED[name]
    steps = [s.remove(field="x", undo_default=0, within="B")] if was == "static before" else []
    before = {
        "new": {},
        "there before": {"x": field},
        "static before": {"x": {"type": "int", "kind": "static"}},
    }
    old, new = (
        doc({"b": "list[B]"}, at, steps if at == 2 else None, structs={"B": {"y": "int", **inner}})
        for at, inner in ((1, before[was]), (2, {"x": field}))
    )
    series = series_of([old, new])
    found = verdict(old, series, "backward", unknown=unknown)
    assert {each.code for each in found} == codes
    assert has_errors(found) is bool(codes)
    warned = {(each.code, each.severity) for each in lint_series(series_of([new]))}
    assert warned == {(code, "warning") for code in codes}


def test_a_field_that_no_payload_of_a_used_schema_holds():
    inner = doc({"x": {"type": "int", "kind": "opaque"}}, schema="lab.inner")
    old, new = (
        link(doc({"y": "lab.inner.A", **more}, at, uses=["lab.inner@1"]), among([inner]))
        for at, more in ((1, {}), (2, {"z": {"type": "int", "default": 0}}))
    )
    (found,) = verdict(old, series_of([new]), "backward")
    assert (found.code, found.severity, found.path) == ("NQX414", "error", "$.uses")


def reasons(old, new, **options):
    """How two versions were compared, in both directions."""
    compared = verdict(old, series_of([old, new]), "full", **options).comparisons
    return [(each.direction, each.proved, each.tried, each.reason) for each in compared]


def test_a_verdict_says_what_it_tried():
    old, new = doc({"a": "int"}), doc({"a": "int", "b": {"type": "int", "default": 0}}, 2)
    (back, forward) = reasons(old, new, unknown="drop", steps=False)
    assert back == ("backward", True, 25, None) and forward == ("forward", True, 25, None)
    assert reasons(old, new, unknown="drop", tries=3)[0] == ("backward", True, 3, None)
    differs = reasons(old, doc({"a": "str"}, 2))[0]
    assert differs[1:3] == (False, 0) and differs[3]
    same = reasons(old, doc({"a": "int"}, 2))[0]
    assert same[:3] == ("backward", True, 0) and same[3]
    hard = {"b": {"type": "str", "pattern": "\\p{Greek}+"}}
    undrawn = reasons(doc({"a": "int", **hard}), doc({"a": "int | null", **hard}, 2))[0]
    assert undrawn[:3] == ("backward", True, 0) and "pattern" in undrawn[3]
    step = s.python(function="lab.up", inverse="lab.down", reads=["a"], writes=["a"])
    ran = reasons(old, doc({"a": "int"}, 2, [step]))[0]
    assert ran[:3] == ("backward", True, 0) and "lab.up" in ran[3]


def test_a_refused_payload_counts():
    old, new = (
        doc({"a": "list[B]"}, at, raw=HELD, dims=dims) for at, dims in ((1, {}), (2, {"n": {}}))
    )
    found = verdict(old, new, "backward")
    (compared,) = found.comparisons
    assert has_errors(found) and compared.tried > 0


def test_the_work_is_bounded():
    structs = {f"S{i}": {"fields": {"a": f"tuple[S{i + 1}, S{i + 1}]"}} for i in range(22)}
    structs["S22"] = {"fields": {"a": "int8[n]"}}
    old = doc({"x": "S0", "b": "int8[n]"}, raw=structs)
    new = doc({"x": "S0", "b": "int8[m]"}, 2, raw=structs)
    with bounded():
        assert tried(old, new) is None


RESULTS = {
    "half of an int as a float": ("int", "float", "y / 2", set()),
    "half of an int as an int": ("int", "int", "y / 2", {"NQX411"}),
    "half of an even int as an int": ({"type": "int", "multiple_of": 2}, "int", "y / 2", set()),
    "the sum of whole numbers": ("int32[3]", {"type": "int", "kind": "static"}, "sum(y)", set()),
    "the sum of other numbers": (
        "float32[3]",
        {"type": "int", "kind": "static"},
        "sum(y)",
        {"NQX411"},
    ),
    "lists of numbers": ("list[P]", "list[float]", "y.z", set()),
    "lists of other numbers": ("list[P]", "list[int]", "y.z", {"NQX411"}),
}


@every("name", RESULTS)
def test_a_derived_field_needs_a_value_of_its_type(name):
    held, made, expression, codes = RESULTS[name]
    field = {"type": made} if isinstance(made, str) else made
    structs = {"P": {"z": "float"}}
    before = doc({"y": held}, structs=structs)
    after = doc({"y": held, "x": {**field, "derived": expression}}, 2, structs=structs)
    series = series_of([before, after])
    assert {each.code for each in verdict(before, series, "backward")} == codes
    promised = {"NQX301"} if codes else set()
    assert {each.code for each in lint_series(series) if each.severity == "error"} == promised
