"""Migrations: proofs, plans and resolution; the real schema all the way up and down."""

import copy
import cProfile
import pstats
import re

import numpy as np
import pytest

from neuralqx_struct.errors import MigrationError, SchemaError, SerializationError
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.suggestions import explained, suggest
from neuralqx_struct.manifest.payload import Payload, check
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series, series_of
from neuralqx_struct.schema.sizes.comparison import shown_sizes
from neuralqx_struct.schema.text.loader import read_text
from tests.builders import doc, every, first_vmc_state, payload, refused


def fields_of(held):
    return held.document["manifest"]["fields"]


# ---------------------------------------------------------------------------------------------------------------------
# The real schema.

SERIES = load_series("schemas/vmc_state")


def conforms(held):
    document = SERIES.at(held.document["schema"]["version"])
    return [*check(held), *conform(document, document.root, held.document["manifest"], see_node)]


def test_the_real_migrations_prove():
    (cast,) = prove(SERIES.at(1), SERIES.at(2))
    assert (cast.code, cast.path) == ("NQX320", "$.migrations[0].steps[4].cast.dtype")
    assert prove(SERIES.at(2), SERIES.at(3)) == []


def test_up_and_down_again_bit_by_bit():
    old = first_vmc_state()
    told = copy.deepcopy(old.document)
    second = resolve(old, SERIES, to=2)
    third = resolve(old, SERIES)
    again = resolve(third, SERIES, to=1)
    for held in (old, second, third, again):
        assert conforms(held) == []
    assert old.document == told
    assert fields_of(third)["sampler"]["fields"]["key"]["data"]["name"] == "rng"
    assert third.arrays["rng"] is old.arrays["rng"]
    kernel = third.arrays[fields_of(third)["kernel"]["name"]]
    assert kernel.real.tobytes() == old.arrays["W_re"].tobytes()
    assert kernel.imag.tobytes() == old.arrays["W_im"].tobytes()
    assert list(fields_of(again)) == list(fields_of(old))
    for name, node in fields_of(old).items():
        back = fields_of(again)[name]
        if isinstance(node, dict):
            a, b = old.arrays[node["name"]], again.arrays[back["name"]]
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name
        else:
            assert (type(back), back) == (type(node), node)


def test_two_hops_are_the_one_way():
    direct, stepwise = (
        resolve(first_vmc_state(), SERIES),
        resolve(resolve(first_vmc_state(), SERIES, to=2), SERIES, to=3),
    )
    assert direct.document["manifest"] == stepwise.document["manifest"]
    assert direct.document["schema"] == {
        "id": SERIES.id,
        "version": 3,
        "fingerprint": SERIES.fingerprints[3],
    }


def test_an_old_installation_downgrades_with_the_documents_that_travel():
    third = resolve(first_vmc_state(), SERIES)
    assert [d["version"] for d in third.document["schemas"]] == [1, 2, 3]
    old_installation = series_of([SERIES.at(1)])
    assert resolve(third, old_installation).document["schema"]["version"] == 1
    assert resolve(third, None, to=-2).document["schema"]["version"] == 1
    assert resolve(resolve(third, None, to=-1), None).document["schema"]["version"] == 3


def test_what_was_done_is_reported():
    report = []
    third = resolve(first_vmc_state(), SERIES, report=report)
    assert {(d.code, d.path) for d in report} == {
        ("NQX425", "$.samples"),
        ("NQX425", "$.exponent"),
        ("NQX425", "$.energy"),
    }
    fields_of(third)["energy"] = -3.5
    report = []
    resolve(third, SERIES, to=2, report=report)
    assert ["-3.5" in d.message for d in report if d.path == "$.energy"] == [True]


def test_a_plan_prints_its_steps_and_costs():
    way = plan(SERIES, 1, 3)
    assert [hop.direction for hop in way.hops] == ["upgrade", "upgrade"]
    assert (way.cost, way.hops[0].cost) == ("streaming", "streaming")
    assert "  - rename: {field: b_all, to: bias_all}" in str(way).splitlines()
    assert str(plan(SERIES, 2, 2)) == "neuralqx.vmc_state: version 2 as it is"
    assert plan(SERIES, 2, 2).cost == "manifest"
    assert [hop.direction for hop in plan(SERIES, 3, 1).hops] == ["downgrade", "downgrade"]


# ---------------------------------------------------------------------------------------------------------------------
# The proof.

PROOFS = {
    "a wrong step": (
        doc({"a": "int"}),
        doc({"b": "int"}, 2, [s.rename(field="x", to="b")]),
        [("NQX304", "$.migrations[0].steps[0].rename.field")],
    ),
    "two wrong steps": (
        doc({"a": "int", "b": "int"}),
        doc(
            {"c": "int"},
            2,
            [s.rename(field="x", to="c"), s.remove(field="b"), s.rename(field="a", to="c")],
        ),
        [
            ("NQX304", "$.migrations[0].steps[0].rename.field"),
            ("NQX308", "$.migrations[0].steps[1].remove.field"),
        ],
    ),
    "steps lead elsewhere": (
        doc({"a": "int", "c": "float32[n]"}),
        doc({"b": "int", "c": "float64[n]"}, 2, []),
        [
            ("NQX305", "$.structs.A.fields.b"),
            ("NQX305", "$.structs.A.fields.c"),
            ("NQX305", "$.structs.A.fields.a"),
        ],
    ),
    "a forgotten transpose": (
        doc({"w": "float32[n, m]", "x": "int8[n]", "y": "int8[m]"}),
        doc({"w": "float32[m, n]", "x": "int8[n]", "y": "int8[m]"}, 2, []),
        [("NQX305", "$.structs.A.fields.w")],
    ),
    "only two names swapped": (
        doc({"w": "int8[n, m]"}),
        doc({"w": "int8[m, n]"}, 2, []),
        [("NQX305", "$.structs.A.fields.w")],
    ),
    "a dim renamed everywhere": (
        doc({"w": "int8[n, m]", "x": "int8[n]"}),
        doc({"w": "int8[k, m]", "x": "int8[k]"}, 2, []),
        [],
    ),
    "a dim renamed in one place": (
        doc({"w": "int8[n, m]", "x": "int8[n]"}),
        doc({"w": "int8[k, m]", "x": "int8[n]"}, 2, []),
        [("NQX307", "$.structs.A.fields.w")],  # old payloads are read; new ones may differ
    ),
    "two dims made one": (
        doc({"w": "int8[n, m]"}),
        doc({"w": "int8[k, k]"}, 2, []),
        [("NQX305", "$.structs.A.fields.w")],
    ),
    "root": (
        doc({}, structs={"B": {}}),
        doc({}, 2, [], structs={"A": {}}, root="B"),
        [("NQX305", "$.root")],
    ),
    "params": (
        doc({"x": "B[2]"}, raw={"B": {"params": ["k"], "fields": {"y": "int8[k]"}}}),
        doc({"x": "B[2]"}, 2, [], raw={"B": {"params": ["j"], "fields": {"y": "int8[k]"}}}),
        [("NQX305", "$.structs.B.params")],
    ),
    "enum member gone": (
        doc({"e": "E"}, enums={"E": ["a", "b"]}),
        doc({"e": "E"}, 2, [], enums={"E": ["a"]}),
        [("NQX305", "$.enums.E")],
    ),
    "enum member added": (
        doc({"e": "E"}, enums={"E": ["a"]}),
        doc({"e": "E"}, 2, [], enums={"E": ["a", "b"]}),
        [("NQX307", "$.enums.E")],
    ),
    "no steps": (
        doc({"a": "int", "c": "float64[n]"}),
        doc({"b": "int", "c": "float32[n]"}, 2),
        [
            ("NQX301", "$.structs.A.fields.b"),
            ("NQX301", "$.structs.A.fields.c"),
            ("NQX301", "$.structs.A.fields.a"),
        ],
    ),
    "no steps needed": (
        doc({"a": "int", "c": "float32[n] | null"}),
        doc(
            {
                "b": {"type": "int", "aliases": ["a"]},
                "c": "float64[n] | null",
                "d": {"type": "int", "default": 0},
            },
            2,
        ),
        [],
    ),
    "a struct renamed with an alias": (
        doc({"x": "B"}, structs={"B": {"y": "int"}}),
        doc({"x": "C"}, 2, raw={"C": {"fields": {"y": "int"}, "aliases": ["B"]}}),
        [],
    ),
    "a default that does not fit": (
        doc({}),
        doc({"a": {"type": "int", "default": "x"}}, 2),
        [("NQX301", "$.structs.A.fields.a")],
    ),
    "another default": (
        doc({}),
        doc({"a": {"type": "int", "default": 1}}, 2, [s.add(field="a", default=2)]),
        [("NQX319", "$.migrations[0].steps[0].add.default")],
    ),
    "optional": (
        doc({"a": "int"}),
        doc({"a": "int | null"}, 2, []),
        [("NQX307", "$.structs.A.fields.a")],
    ),
    "required": (
        doc({"a": "int | null"}),
        doc({"a": "int"}, 2, []),
        [("NQX305", "$.structs.A.fields.a")],
    ),
    "no way back, and said so": (
        doc({"a": "int"}),
        doc({}, 2, [s.remove(field="a", lossy=True)]),
        [],
    ),
    "no way back": (
        doc({"a": "int8[...]"}),
        doc({"a": "int8[4]"}, 2, [s.reshape(field="a", shape=[4])]),
        [("NQX307", "$.migrations[0].steps[0].reshape.field")],
    ),
    "another schema": (doc({}), doc({}, 2, schema="lab.b"), [("NQX283", "$.schema")]),
    "no longer stored": (
        doc({"a": "int"}),
        doc({"a": {"type": "int", "derived": "1 + 1"}}, 2, []),
        [("NQX305", "$.structs.A.fields.a")],
    ),
}


@every("case", PROOFS.values())
def test_prove(case):
    old, new, expected = case
    found = prove(old, new)
    assert [(d.code, d.path) for d in found] == expected
    assert all(
        d.severity == ("warning" if d.code in ("NQX307", "NQX319") else "error") for d in found
    )


HINTS = [
    ("float32[n]", "float64[n]", "- cast: {field: a, dtype: float64}"),
    ("float32[n, m]", "float32[m, n]", "- transpose: {field: a, axes: [1, 0]}"),
    ("float32[n, 2]", "float32[2 * n]", '- reshape: {field: a, shape: ["2 * n"]}'),
    ("int | null", "int", "- fill: {field: a, value: 0}"),
    ("uint32[2]", "prng_key[threefry2x32]", "- wrap_key: {field: a, impl: threefry2x32}"),
    ("prng_key[rbg]", "uint32[4]", "- unwrap_key: {field: a}"),
    ("float32[n]", "complex64[n]", "- cast: {field: a, dtype: complex64}"),
    ("int", "str", "- convert: {field: a, to: str}"),
    ("float32[n]", "str", None),
]


@every(("old", "new", "step"), HINTS)
def test_proof_names_the_step_that_mends(old, new, step):
    extra = {"n": "int8[n]", "m": "int8[m]"}
    (found,) = prove(doc({"a": old, **extra}), doc({"a": new, **extra}, 2, []))
    words = "no step turns one into the other; give the new field another name, or write a `python` step."
    assert (f"`{step}`" if step else words) in found.hint
    if step is not None and "uint32[4]" not in new:
        import yaml

        data = doc({"a": new, **extra}, 2).to_data() | {
            "migrations": [{"from": 1, "steps": yaml.safe_load(step)}]
        }
        assert [
            d
            for d in prove(doc({"a": old, **extra}), document_from_data(data, "t"))
            if d.severity == "error"
        ] == []


def test_sizes_are_found_where_the_root_is_not_declared():
    document = doc({"a": "float32[n]"}).model_copy(update={"root": "B"})
    assert shown_sizes(document, "A") == {"n"}


def test_members_that_no_step_renames_are_to_be_kept():
    old, new = doc({"a": "E"}, enums={"E": ["p", "q"]}), doc({"a": "E"}, 2, enums={"E": ["r"]})
    (found,) = prove(old, new)
    assert found.hint.endswith("Keep the members, or give the enum a `default:` member.")


def test_an_enum_under_another_name_is_converted():
    old, new = doc({"a": "E"}, enums={"E": ["p"]}), doc({"a": "list[F]"}, 2, [], enums={"F": ["p"]})
    assert "convert" not in prove(old, new)[0].hint
    (found,) = prove(old, doc({"a": "F"}, 2, [], enums={"F": ["p", "q"]}))
    assert found.hint == "write `- convert: {field: a, to: F}`"
    (found,) = prove(old, doc({"a": "F"}, 2, [], enums={"F": ["q"]}))
    assert found.hint.endswith("rename those of E with `map_enum`, then `convert` the field to F.")


def test_proof_suggests_a_rename_on_both_sides():
    found = prove(doc({"learning_rate": "float"}), doc({"learning_rates": "float"}, 2, []))
    rename = "- rename: {field: learning_rate, to: learning_rates}"
    question = "learning_rate is gone and learning_rates is new, of type float: was it renamed?"
    apart = (
        "`- add: {field: learning_rates, default: 0.0}`, "
        "then `- remove: {field: learning_rate, undo_default: 0.0}`"
    )
    assert [d.hint for d in found] == [
        f"{question} see structs.A.fields.learning_rate",
        f"{question} yes: `{rename}`; no, lossy: {apart}",
    ]
    # No other array shows the size of the new one, so it is added before the old one is removed.
    found = prove(doc({"w": "float32[n]"}), doc({"v": "float32[n]"}, 2, []))
    assert found[1].hint.endswith(
        "no, lossy: `- add: {field: v, default: 0}`, then `- remove: {field: w, undo_default: 0}`"
    )
    found = prove(doc({"w": "float32[n, 2]"}), doc({"v": "int16[n]"}, 2, []))
    assert any("`- add: {field: v, default: 0}`" in d.hint for d in found)
    inner = [
        doc({"x": "B"}, v, [] if v == 2 else None, structs={"B": fields})
        for v, fields in ((1, {}), (2, {"y": "int"}))
    ]
    assert "in: B" in prove(*inner)[0].hint


def test_a_suggestion_is_shown_in_full_where_only_one_of_its_fields_is():
    versions = series_of([doc({"w": "float32[n]"}), doc({"v": "float32[n]"}, 2)])
    with pytest.raises(MigrationError) as caught:
        plan(versions, 1, 2, unknown="drop", explain=explained)
    (found,) = caught.value.diagnostics
    assert "`- rename: {field: w, to: v}`" in found.hint


def test_fields_of_a_struct_under_another_name_get_their_steps():
    old = doc({"x": "B"}, structs={"B": {"y": "int"}})
    new = doc({"x": "C"}, 2, [], structs={"C": {}})
    renamed, removed = suggest(old, new)
    assert renamed.question == "x was B and is C: was the struct renamed?"
    assert [step.name for step in renamed.answers[0].steps] == ["rename_struct"]
    assert removed.answers[0].steps == (s.remove(field="y", undo_default=0, within="C"),)


def pasted(found, *, renamed):
    """The steps that hints propose, as their text; of two that exclude each other the wanted one."""
    steps = []
    for hint in filter(None, (d.hint for d in found)):
        ways = re.split(r"; (?=[\w ,]+: `- )", hint)
        hint = ways[-1] if " yes: " in ways[0] and not renamed else ways[0]
        steps += [text for text in re.findall("`([^`]+)`", hint) if text.startswith("- ")]
    return "\n".join(steps)


def errors_after(old, new, text):
    data = new.to_data() | {
        "migrations": [{"from": old.version, "steps": read_text(f"a:\n{text}\n").data["a"] or []}]
    }
    return [str(d) for d in prove(old, document_from_data(data, "t")) if d.severity == "error"]


B = {"raw": {"B": {"fields": {"y": "int", "z": "int"}}}}
N = {"n": "int8[n]", "m": "int8[m]"}
TYPES = [
    *(
        "bool",
        "int",
        "float",
        "complex",
        "str",
        "path",
        "dtype",
        "E",
        "literal['b', 'a']",
        "literal[1, 2]",
        "list[int]",
    ),
    *(
        "tuple[int, str]",
        "tuple[str, ...]",
        "dict[str, int]",
        "int | null",
        "B | null",
        "prng_key | null",
        "E | int",
    ),
    *(
        "pytree",
        "bool[n]",
        "int8[n]",
        "float32[n, 2]",
        "complex64[]",
        "float32[n] | null",
        "float32[...] | null",
    ),
]


@every("migrated", [True, False])
@every("declared", TYPES)
def test_hints_about_fields_that_come_and_go_can_be_pasted(declared, migrated):
    members = {**B, "enums": {"E": ["no", "yes"]}}
    without, held = {"kept": "B", **N}, {"kept": "B", **N, "x": declared}
    other = {"kept": "B", **N, "quite_else": declared}
    for a, b, renamed in [
        (without, held, False),
        (held, without, False),
        (held, other, True),
        (held, other, False),
    ]:
        old, new = doc(a, **members), doc(b, 2, [] if migrated else None, **members)
        text = pasted(prove(old, new), renamed=renamed)
        assert (text == "- rename: {field: x, to: quite_else}") == renamed
        assert errors_after(old, new, text) == []


@pytest.mark.parametrize(
    "declared", ["prng_key", "float32[...]", "float32[k]", "bytes", "tuple[B, int]"]
)
def test_where_no_value_can_be_written_words_say_so(declared):
    have = doc({"b": "B", "e": "E"}, **B, enums={"E": ["a"]})
    want = doc({"b": "B", "e": "E", "x": declared}, 2, [], **B, enums={"E": ["a"]})
    (found,) = prove(have, want)
    assert " No value of " in found.hint and "- add" not in found.hint
    (back,) = prove(want.model_copy(update={"version": 1}), have.model_copy(update={"version": 2}))
    assert ", lossy: true}`" in back.hint or "undo_default: 0}`" in back.hint


def fields(names, declared="int"):
    return dict.fromkeys(names, declared)


CHANGES = {
    "two defaults": (
        doc({"lr": {"type": "float", "default": 0.1}}),
        doc({"eta": {"type": "float", "default": 0.1}}, 2),
        "- rename: {field: lr, to: eta}",
    ),
    "an alias": (
        doc({"a": "int", "b": "int"}),
        doc(
            {"c": {"type": "int", "aliases": ["b"]}, "d": {"type": "int", "aliases": ["a"]}}, 2, []
        ),
        "- rename: {field: a, to: d}\n- rename: {field: b, to: c}",
    ),
    "renamed and cast": (
        doc({"w": "float32[n]"}),
        doc({"kernel": "float64[n]"}, 2, []),
        "- rename: {field: w, to: kernel}\n- cast: {field: kernel, dtype: float64}",
    ),
    "in a nested struct": (
        doc({"b": "B"}, structs={"B": {"x": "str"}}),
        doc({"b": "B"}, 2, [], structs={"B": {"quite_else": "str"}}),
        "- rename: {in: B, field: x, to: quite_else}",
    ),
    "moved into a new struct": (
        doc(fields("xuv")),
        doc({"b": "B", "x": "int"}, 2, [], structs={"B": fields("uv")}),
        "- move: {fields: [u, v], into: b, struct: B}",
    ),
    "moved into a struct": (
        doc({"b": "B", **fields("xu")}, structs={"B": fields("z")}),
        doc({"b": "B"}, 2, [], structs={"B": fields("zxu")}),
        "- move: {fields: [x, u], into: b, struct: B}",
    ),
    "moved although it has a default": (
        doc({"b": "B", "x": "int"}, structs={"B": fields("z")}),
        doc({"b": "B"}, 2, structs={"B": {"z": "int", "x": {"type": "int", "default": 0}}}),
        "- move: {fields: [x], into: b, struct: B}",
    ),
    "moved, nested twice": (
        doc({"c": "C"}, structs={"C": fields("xu")}),
        doc({"c": "C"}, 2, [], structs={"C": {"b": "B"}, "B": fields("xu")}),
        "- move: {in: C, fields: [x, u], into: b, struct: B}",
    ),
    "moved under parameters": (
        doc({"w": "float32[n]", "x": "int8[n]"}),
        doc(
            {"b": "B[n]", "x": "int8[n]"},
            2,
            [],
            raw={"B": {"params": ["k"], "fields": {"w": "float32[k]"}}},
        ),
        "- move: {fields: [w], into: b, struct: B}",
    ),
    "inlined": (
        doc({"b": "B"}, structs={"B": fields("xu")}),
        doc(fields("xu"), 2, []),
        "- inline: {field: b, fields: [x, u]}",
    ),
    "inlined in part": (
        doc({"b": "B"}, structs={"B": fields("xuv")}),
        doc({"b": "B", "x": "int"}, 2, [], structs={"B": fields("uv")}),
        "- inline: {field: b, fields: [x]}",
    ),
    "inlined although there are defaults": (
        doc({"b": "B"}, structs={"B": fields("x")}),
        doc({"x": {"type": "int", "default": 0}}, 2),
        "- inline: {field: b, fields: [x]}",
    ),
    "another root": (
        doc({"x": "int"}),
        (new := doc({"x": "int"}, 2, [])).model_copy(
            update={"root": "C", "structs": {"C": new.structs["A"]}}
        ),
        "- rename_struct: {struct: A, to: C}",
    ),
    "a struct that two fields use renamed": (
        doc({"a": "B", "b": "B | null"}, structs={"B": fields("x")}),
        doc({"a": "C", "b": "C | null"}, 2, [], structs={"C": fields("x")}),
        "- rename_struct: {struct: B, to: C}",
    ),
    "an optional array of another dtype": (
        doc({"a": "float32[n] | null"}),
        doc({"a": "float16[n] | null"}, 2, []),
        "- cast: {field: a, dtype: float16}",
    ),
    "a str that was null": (
        doc({"a": "str | null"}),
        doc({"a": "str"}, 2, []),
        '- fill: {field: a, value: ""}',
    ),
    "a default that needs quotes": (
        doc({}),
        doc(
            {
                "a": {
                    "type": "dict[str, list[str]]",
                    "default": {"on": ["1", "x: y", "null", "y", "a b"]},
                }
            },
            2,
            [],
        ),
        '- add: {field: a, default: {"on": ["1", "x: y", "null", "y", a b]}}',
    ),
    "a default with an exponent": (
        doc({}),
        doc({"a": {"type": "float", "default": 1e-7}}, 2, []),
        "- add: {field: a, default: 1.0e-07}",
    ),
}


@every("case", CHANGES.values())
def test_the_proposed_steps_suffice(case):
    old, new, expected = case
    found = prove(old, new)
    text = pasted(found, renamed=True)
    assert text == expected
    assert errors_after(old, new, text) == []


def test_a_rename_is_asked_for_also_where_there_are_several_partners():
    old, new = doc(fields(["aa", "k"])), doc(fields(["xx", "yy", "k"]), 2, [])
    hints = {d.path.rpartition(".")[2]: d.hint for d in prove(old, new)}
    question = "aa is gone and xx and yy are new: which of them was renamed?"
    assert hints["aa"].startswith(f"{question} aa is xx now: `- rename: {{field: aa, to: xx}}`")
    assert "; aa is yy now: `- rename: {field: aa, to: yy}`" in hints["aa"]
    assert "; none of them, lossy: `- add: {field: xx, default: 0}`" in hints["aa"]
    assert hints["yy"] == f"{question} see structs.A.fields.aa"
    # A third that loses its partner to a better one is not told to be removed without a question either.
    hints = [d.hint for d in prove(doc(fields(["rate", "zz"])), doc(fields(["rates"]), 2, []))]
    assert "was it renamed? yes: `- rename: {field: rate, to: rates}`" in hints[1]
    assert hints[2].startswith("zz, int, is gone: may its values be lost?")


def test_no_step_is_proposed_for_shapes_of_different_sizes():
    (found,) = prove(doc({"w": "float32[n]", **N}), doc({"w": "float32[n, 2]", **N}, 2, []))
    assert "no step turns one shape into the other" in found.hint
    (found,) = prove(doc({"w": "int8[n, m]"}), doc({"w": "int8[m, n]"}, 2, []))
    assert "- transpose: {field: w, axes: [1, 0]}" in found.hint


def test_no_step_is_proposed_for_a_root_that_was_there_before():
    found = prove(
        doc({"b": "B"}, structs={"B": {}}), doc({}, 2, [], structs={"A": {"b": "B"}}, root="B")
    )
    assert "no step makes another struct the root" in found[0].hint


# ---------------------------------------------------------------------------------------------------------------------
# Planning and resolving.


def test_declared_steps_always_run_and_defaults_only_without_them():
    old, square = (
        doc({"w": "float32[2, 2]"}),
        doc({"w": "float32[2, 2]"}, 2, [s.transpose(field="w")]),
    )
    array = np.array([[1, 2], [3, 4]], "f4")
    after = resolve(payload(old, {"w": array}), series_of([old, square]))
    assert after.arrays["w"].tolist() == [[1, 3], [2, 4]]
    with refused(MigrationError, "NQX305"):  # a default does not complete declared steps
        plan(series_of([doc({}), doc({"a": {"type": "int", "default": 0}}, 2, [])]), 1, 2)


def test_a_hop_without_steps_resolves_by_alias_default_and_promotion():
    old = doc({"a": "float32[n]", "c": "int"}, structs={})
    new = doc(
        {
            "b": {"type": "float64[n]", "aliases": ["z", "a"]},
            "c": "int",
            "d": {"type": "float", "default": 1},
        },
        2,
    )
    way = plan(series_of([old, new]), 1, 2)
    assert [s.step_name(step) for step in way.hops[0].steps] == ["rename", "add", "cast"]
    assert not way.hops[0].declared
    assert "by aliases, defaults and exact promotion" in str(way)
    after = apply(payload(old, {"a": np.ones(2, "f4"), "c": 1}), way)
    assert (fields_of(after)["d"], after.arrays[fields_of(after)["b"]["name"]].dtype) == (
        1.0,
        np.float64,
    )


def test_a_downgrade_without_steps_is_direct():
    """The old declaration reads the payload by its own defaults, never by the inverse of the upgrade."""
    old = doc({"a": "float64[n]", "b": {"type": "int", "default": 7}})
    new = doc({"a": "float32[n]", "c": "int"}, 2)
    written = payload(new, {"a": np.full(2, 0.1, "f4"), "c": 5})
    with refused(MigrationError, "NQX415", "$.structs.A.fields.c"):
        plan(series_of([old, new]), 2, 1)
    report = []
    way = plan(series_of([old, new]), 2, 1, unknown="drop")
    back = apply(written, way, report=report)
    assert back.arrays[fields_of(back)["a"]["name"]].tolist() == [float(np.float32(0.1))] * 2
    assert fields_of(back)["b"] == 7 and "c" not in fields_of(back)
    assert {d.code for d in report} == {"NQX415", "NQX425"}
    with refused(MigrationError, "NQX301", "float32[n]", "float64[n]"):
        plan(series_of([doc({"a": "float32[n]"}), doc({"a": "float64[n]"}, 2)]), 2, 1)


REFUSED_PLANS = {
    "no default": ([doc({}), doc({"a": "int"}, 2)], 1, 2, {"NQX414"}),
    "default of no type": ([doc({}), doc({"a": {"type": "X", "default": 0}}, 2)], 1, 2, {"NQX414"}),
    "a field would be lost": ([doc({"a": "int"}), doc({}, 2)], 1, 2, {"NQX415"}),
    "not exact": ([doc({"a": "float64[n]"}), doc({"a": "float32[n]"}, 2)], 1, 2, {"NQX301"}),
    "everything at once": (
        [doc({"a": "int", "b": "int"}), doc({"a": "str", "c": "int"}, 2)],
        1,
        2,
        {"NQX301", "NQX414", "NQX415"},
    ),
    "wrong step": (
        [doc({"a": "int"}), doc({"b": "int"}, 2, [s.rename(field="c", to="b")])],
        1,
        2,
        {"NQX304"},
    ),
    "missing version": (
        [doc({"a": "int"}), doc({"b": "int"}, 3, [s.rename(field="a", to="b")])],
        1,
        3,
        {"NQX422"},
    ),
    "lossy, downgrade": (
        [doc({"a": "int"}), doc({}, 2, [s.remove(field="a", lossy=True)])],
        2,
        1,
        {"NQX423"},
    ),
    "unknown version": ([doc({})], 1, 4, {"NQX404"}),
}


@every("case", REFUSED_PLANS.values())
def test_plan_refuses(case):
    documents, start, end, codes = case
    with pytest.raises(SerializationError) as caught:
        plan(series_of(documents), start, end)
    assert {d.code for d in caught.value.diagnostics} == codes


def test_versions_may_be_left_out_where_a_later_one_says_how():
    shortcut = doc({"c": "int"}, 3, [s.rename(field="a", to="c")], source=1)
    assert len(plan(series_of([doc({"a": "int"}), shortcut]), 1, 3).hops) == 1
    known = series_of([doc({"a": "int"}), doc({"b": "int"}, 2), shortcut])
    assert len(plan(known, 1, 3).hops) == 1


@pytest.mark.parametrize("unknown", ["warn", "drop"])
def test_unknown_fields_are_dropped_as_told(unknown):
    old, new = doc({"a": "int", "b": {"type": "int", "default": 7}}), doc({"a": "int"}, 2)
    series, held = series_of([old, new]), payload(old, {"a": 1, "b": 2})
    with pytest.raises(MigrationError):
        resolve(held, series)
    report = []
    after = resolve(held, series, unknown=unknown, report=report)
    assert fields_of(after) == {"a": 1}
    assert [d.path for d in report] == ["$.b"]
    assert fields_of(apply(after, plan(series, 2, 1, unknown=unknown))) == {"a": 1, "b": 7}


def test_strays_that_no_version_declares():
    old, new = doc({"a": "int"}), doc({"b": "int"}, 2, [s.rename(field="a", to="b")])
    held = payload(old, {"a": 1, "stray": np.zeros(2, "f4")})
    with pytest.raises(MigrationError) as caught:
        resolve(held, series_of([old, new]))
    assert (caught.value.code, caught.value.diagnostics[0].path) == ("NQX415", "$.stray")
    report = []
    after = resolve(held, series_of([old, new]), unknown="warn", report=report)
    assert (fields_of(after), after.document["arrays"], list(after.arrays)) == ({"b": 1}, {}, [])
    assert [(d.code, d.severity) for d in report] == [("NQX415", "warning")]
    assert "stray" in fields_of(held)


def test_the_same_version_is_read_as_it_is():
    held = first_vmc_state()
    assert resolve(held, SERIES, to=1) is held
    assert resolve(held, None) is held


REFUSED = {
    "no schema": ({"schema": None}, {}, "NQX404"),
    "another schema": (
        {"schema": {"id": "lab.b", "version": 1, "fingerprint": "sha256:0"}},
        {},
        "NQX404",
    ),
    "another fingerprint": (
        {"schema": {"id": SERIES.id, "version": 1, "fingerprint": "sha256:" + "0" * 64}},
        {},
        "NQX405",
    ),
    "a newer version": (
        {"schema": {"id": SERIES.id, "version": 9, "fingerprint": "sha256:0"}},
        {},
        "NQX404",
    ),
    "nothing to read it by": ({"schemas": []}, {"series": None}, "NQX404"),
    "to a version that nobody knows": ({}, {"to": 9}, "NQX422"),
    "to too far back": ({}, {"to": -1}, "NQX422"),
    "to nonsense": ({}, {"to": "tail"}, "NQX422"),
    "to zero": ({}, {"to": 0}, "NQX422"),
}


@every("case", REFUSED.values())
def test_resolve_refuses(case):
    members, arguments, code = case
    held = first_vmc_state()
    held = Payload({**held.document, **members}, held.arrays)
    with refused(MigrationError, code) as caught:
        resolve(held, **{"series": SERIES, **arguments})
    assert caught.value.diagnostics[0].hint or code == "NQX422"


def test_to_may_be_text_from_a_command_line():
    third = resolve(first_vmc_state(), SERIES, to="3")
    assert resolve(third, SERIES, to="-2").document["schema"]["version"] == 1


def test_the_readers_documents_win_over_those_in_the_bundle():
    old = doc({"a": "int"})
    mine, theirs = (doc({"a": "int", "b": "int"}, 2, [s.add(field="b", default=n)]) for n in (1, 2))
    held = payload(old, {"a": 0}, [old, theirs])
    assert fields_of(resolve(held, series_of([old, mine])))["b"] == 1
    assert fields_of(resolve(held, None, to=2))["b"] == 2
    bad = Payload({**held.document, "schemas": [{"language": "1"}]}, held.arrays)
    with pytest.raises(SchemaError):
        resolve(bad, None)


def test_enum_members_that_an_older_version_lacks():
    old = doc(
        {"e": "list[E | null]", "f": "dict[str, E]"},
        enums={"E": {"members": ["a", "b"], "default": "b"}},
    )
    new = doc({"e": "list[E | null]", "f": "dict[str, E]"}, 2, [], enums={"E": ["a", "b", "c"]})
    tree = {
        "e": {"__kind__": "list", "items": ["a", "c", None]},
        "f": {"__kind__": "dict", "items": [["x", "c"]]},
    }
    report = []
    back = resolve(payload(new, tree), series_of([old, new]), to=1, report=report)
    assert fields_of(back)["e"]["items"] == ["a", "b", None]
    assert fields_of(back)["f"]["items"] == [["x", "b"]]
    assert [d.path for d in report] == ["$.e[1]", "$.f['x']"]
    strict = doc({"e": "list[E | null]", "f": "dict[str, E]"}, enums={"E": ["a", "b"]})
    with refused(MigrationError, "NQX421"):
        resolve(payload(new, tree), series_of([strict, new]), to=1)


def test_what_is_added_may_be_of_an_enum_or_a_struct_that_only_the_new_version_has():
    box = {"B": {"mode": {"type": "Mode", "default": "slow"}, "n": "int"}}
    steps = [s.add(field="mode", default="fast"), s.add(field="box", default={"n": 3})]
    old = doc({"x": "int"})
    new = doc(
        {"x": "int", "mode": "Mode", "box": "B"},
        2,
        steps,
        structs=box,
        enums={"Mode": ["slow", "fast"]},
    )
    series = series_of([old, new])
    assert prove(old, new) == []
    up = resolve(payload(old, {"x": 1}), series)
    assert fields_of(up)["mode"] == "fast"
    assert fields_of(up)["box"] == {
        "__kind__": "struct",
        "type": "lab.a@2:B",
        "fields": {"mode": "slow", "n": 3},
    }
    assert fields_of(resolve(up, series, to=1)) == {"x": 1}


def test_a_removed_field_of_an_enum_that_the_new_version_lacks_comes_back():
    old = doc({"x": "int", "mode": "Mode"}, enums={"Mode": ["slow", "fast"]})
    new = doc({"x": "int"}, 2, [s.remove(field="mode", undo_default="slow")])
    series = series_of([old, new])
    assert prove(old, new) == []
    up = resolve(payload(old, {"x": 1, "mode": "fast"}), series)
    assert fields_of(resolve(up, series, to=1)) == {"x": 1, "mode": "slow"}


def test_a_default_may_be_a_member_of_a_used_enum():
    used = document_from_data(
        {
            "language": "1",
            "schema": "lab.modes",
            "version": 1,
            "root": "R",
            "structs": {"R": {"fields": {}}},
            "enums": {"Mode": ["slow", "fast"]},
        },
        "t",
    )
    old = doc({"x": "int"})
    new = doc(
        {"x": "int", "mode": "lab.modes.Mode"},
        2,
        [s.add(field="mode", default="fast")],
        uses=["lab.modes@1"],
    ).linked({"lab.modes": used}, {})
    assert prove(old, new) == []
    assert fields_of(resolve(payload(old, {"x": 1}), series_of([old, new])))["mode"] == "fast"


def test_a_used_schema_goes_first():
    def used(version, name, steps=None):
        data = {"language": "1", "schema": "lab.layer", "version": version, "root": "Layer"}
        data["structs"] = {"Layer": {"fields": {name: "int"}}}
        if steps:
            data["migrations"] = [{"from": 1, "steps": steps}]
        return document_from_data(data, "t")

    layers = series_of([used(1, "x"), used(2, "y", [{"rename": {"field": "x", "to": "y"}}])])
    old, new = (
        doc({"a": "pytree"}, uses=["lab.layer@1"]),
        doc({"b": "pytree"}, 2, [s.rename(field="a", to="b")], uses=["lab.layer@2"]),
    )
    held = payload(
        old, {"a": {"__kind__": "struct", "type": "lab.layer@1:Layer", "fields": {"x": 1}}}
    )
    after = resolve(held, series_of([old, new]), others=[layers])
    assert fields_of(after)["b"] == {
        "__kind__": "struct",
        "type": "lab.layer@2:Layer",
        "fields": {"y": 1},
    }
    travelling = Payload(
        {**held.document, "schemas": [d.to_data() for d in (old, *layers.documents.values())]}, {}
    )
    after = resolve(travelling, series_of([old, new]))
    assert fields_of(after)["b"]["type"] == "lab.layer@2:Layer"
    assert {d["schema"] for d in after.document["schemas"]} == {"lab.a", "lab.layer"}
    with refused(MigrationError, "NQX404"):
        resolve(held, series_of([old, new]))


def test_a_cast_that_would_lose_is_found_when_the_array_is_read():
    held = first_vmc_state()
    held.arrays["samples"][1, 2] = 0.5
    after = resolve(held, SERIES)
    with refused(MigrationError, "NQX213", "$.samples", "[1, 2]", 0.5):
        after.arrays[fields_of(after)["sampler"]["fields"]["sigma"]["name"]]


# ---------------------------------------------------------------------------------------------------------------------
# Fields that come and go with their types.


GONE = [
    ("float32[n]", np.zeros(12, "f4"), "float32[12]"),
    (
        "float32[n]",
        {"__kind__": "full", "dtype": "float32", "shape": [12], "value": 0.0},
        "float32[12], all 0.0",
    ),
    ("int8[n]", {"__kind__": "full", "dtype": "int8", "shape": [2], "value": 7}, "int8[2], all 7"),
    ("B", {"__kind__": "struct", "type": "lab.a@1:B", "fields": {}}, "B"),
    ("list[int]", {"__kind__": "list", "items": [1, 2]}, "list of 2"),
    ("path", {"__kind__": "path", "value": "a/b"}, "'a/b'"),
    ("float", {"__kind__": "float", "value": "nan"}, "nan"),
    ("int", {"__kind__": "bigint", "value": "9" * 100}, "9" * 56 + "..."),
    ("bytes", {"__kind__": "bytes", "base64": ""}, "0 B"),
]


@every(("declared", "value", "shown"), GONE)
def test_what_was_dropped_is_told_in_words(declared, value, shown):
    old = doc({"a": declared}, structs={"B": {}})
    new = doc({}, 2, [s.remove(field="a", lossy=True)], structs={"B": {}})
    report = []
    resolve(payload(old, {"a": value}), series_of([old, new]), report=report)
    assert [d.message.endswith(f" {shown}") for d in report] == [True]


def test_a_field_may_come_with_its_enum_and_its_struct():
    old = doc({"a": "int", "m": "Mode"}, enums={"Mode": {"members": ["x"]}})
    structs = {"P": {"q": {"type": "Q"}}, "Q": {"kind": {"type": "Kind", "default": "u"}}}
    added = [
        s.add(field="k", default="u"),
        s.add(field="p", default={"q": {}}),
        s.add(field="n", default="y"),
    ]
    enums = {"Mode": {"members": ["x", "y"]}, "Kind": {"members": ["t", "u"]}}
    fields = {"a": "int", "m": "Mode", "k": "Kind", "p": "P | null", "n": "Mode"}
    new = doc(fields, 2, added, structs=structs, enums=enums)
    assert {d.code for d in prove(old, new)} == {"NQX307"}  # of y, which version 1 does not know
    held = resolve(payload(old, {"a": 1, "m": "x"}), series_of([old, new]))
    assert fields_of(held)["k"] == "u" and fields_of(held)["n"] == "y"
    assert fields_of(held)["p"]["fields"]["q"] == {
        "__kind__": "struct",
        "type": "lab.a@2:Q",
        "fields": {"kind": "u"},
    }
    assert conform(new, "A", held.document["manifest"], see_node) == []


def test_the_work_of_a_proof_grows_with_the_fields_not_with_their_square():
    def calls(count):
        names = [f"a{i}_kernel" for i in range(count)]
        old = doc(dict.fromkeys(names, "float32[n]"))
        renamed = [s.rename(field=name, to=name.replace("kernel", "w")) for name in names]
        new = doc({name.replace("kernel", "w"): "float32[n]" for name in names}, 2, renamed)
        profile = cProfile.Profile()
        assert profile.runcall(prove, old, new) == []
        return pstats.Stats(profile).total_calls

    assert calls(160) < 6 * calls(40)


@s.function("test_migrations.keep")
def keep(values):
    return values


@pytest.mark.parametrize(
    "enums", [{"F": ["p", "q"]}, {"E": ["p", "q"], "F": ["p"]}], ids=["renamed", "another"]
)
def test_a_python_step_writes_members_of_an_enum_that_only_the_new_version_has(enums):
    step = s.python(
        function="test_migrations.keep", reads=["a"], writes=["a"], inverse="test_migrations.keep"
    )
    old, new = doc({"a": "E"}, enums={"E": ["p", "q"]}), doc({"a": "F"}, 2, [step], enums=enums)
    assert [d for d in prove(old, new) if d.severity == "error"] == []
    up = resolve(payload(old, {"a": "p"}), series_of([old, new]))
    assert up.document["manifest"]["fields"] == {"a": "p"}
    down = resolve(up, series_of([old, new]), to=1)
    assert down.document["manifest"] == payload(old, {"a": "p"}).document["manifest"]
