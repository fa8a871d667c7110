"""Differences between documents: one row per kind of change."""

import json
import re

import yaml

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.changes import RULES
from neuralqx_struct.evolution.diff import Change, diff, diff_documents, probable_renames
from neuralqx_struct.schema.model import (
    Constraint,
    DimDeclaration,
    Document,
    EnumDeclaration,
    FieldDeclaration,
    StructDeclaration,
)
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series
from tests.builders import DIAGNOSTICS, ROOT, doc, every, refused, yaml_blocks


def f(declared, **members):
    return {"x": {"type": declared, **members}}


LISTED = {
    "raw": {"A": {"fields": {"x": "list[B]"}}, "B": {"fields": {"w": "int8[n]"}}},
}


def structs(**members):
    return {"raw": {"A": {"fields": {"x": "int"}, **members}}}


# old, new, then code and direction of the one change that is expected
FIELDS = {
    "added without a default": ({}, f("int"), "NQX202", "backward"),
    "added with a default": ({}, f("int", default=1), "NQX208", "none"),
    "an opaque field": ({}, {"x": {"kind": "opaque", "default": None}}, "NQX208", "none"),
    "no more opaque field": ({"x": {"kind": "opaque", "default": None}}, {}, "NQX208", "none"),
    "dtype inside a list": (f("list[int8[n]]"), f("list[int16[n]]"), "NQX211", "forward"),
    "dtype inside a tuple": (
        f("tuple[int, int16[n]]"),
        f("tuple[int, int8[n]]"),
        "NQX212",
        "backward",
    ),
    "null inside a dict": (f("dict[str, int]"), f("dict[str, int | null]"), "NQX263", "forward"),
    "a longer tuple": (f("tuple[int]"), f("tuple[int, int]"), "NQX210", "both"),
    "default given": (f("int"), f("int", default=3), "NQX208", "none"),
    "alias added": (f("int"), f("int", aliases=["y"]), "NQX234", "none"),
    "examples": (f("int"), f("int", examples=[1]), "NQX234", "none"),
    "derived otherwise": (f("int", derived="1 + 1"), f("int", derived="2 + 1"), "NQX234", "none"),
    "derived of another type": (
        f("int", derived="1 + 1"),
        f("float", derived="1 + 1"),
        "NQX234",
        "none",
    ),
    "dtype widened": (f("int8[n]"), f("int16[n]"), "NQX211", "forward"),
    "dtype narrowed": (f("float64[n]"), f("float32[n]"), "NQX212", "backward"),
    "dtype lossy both ways": (f("int64[n]"), f("float64[n]"), "NQX213", "both"),
    "complex to real": (f("complex64[n]"), f("float32[n]"), "NQX214", "both"),
    "real to complex": (f("float32[n]"), f("complex64[n]"), "NQX211", "forward"),
    "bool to numbers": (f("bool[n]"), f("int8[n]"), "NQX213", "both"),
    "key implementation": (f("prng_key[rbg]"), f("prng_key[threefry2x32]"), "NQX215", "both"),
    "any key implementation": (f("prng_key[rbg]"), f("prng_key"), "NQX215", "forward"),
    "rank": (f("int8[n]"), f("int8[n, n]"), "NQX220", "both"),
    "a dim renamed": (f("int8[n]"), f("int8[m]"), "NQX221", "none"),
    "a dim made concrete": (f("int8[n]"), f("int8[3]"), "NQX222", "backward"),
    "a dim made symbolic": (f("int8[3]"), f("int8[n]"), "NQX222", "forward"),
    "any shape": (f("int8[3]"), f("int8[...]"), "NQX222", "forward"),
    "any shape before": (f("int8[...]"), f("int8[3]"), "NQX220", "both"),
    "other axes first": (f("int8[..., 3]"), f("int8[3, ...]"), "NQX220", "both"),
    "size spelled otherwise": (f("int8[2 * n]"), f("int8[n + n]"), "NQX221", "none"),
    "type kind": (f("int"), f("str"), "NQX210", "both"),
    "array to scalar": (f("float32[]"), f("float"), "NQX210", "both"),
    "kind": (f("int"), f("int", kind="static"), "NQX230", "none"),
    "tag removed": (f("int", tags=["a"]), f("int"), "NQX232", "none"),
    "tag added": (f("int"), f("int", tags=["a"]), "NQX234", "none"),
    "doc": (f("int"), f("int", doc="What it is."), "NQX234", "none"),
    "unit": (f("int", unit="m"), f("int", unit="s"), "NQX234", "none"),
    "alias removed": (f("int", aliases=["y"]), f("int"), "NQX207", "backward"),
    "default changed": (f("int", default=1), f("int", default=2), "NQX240", "none"),
    "default of another type": (f("int", default=1), f("int", default=True), "NQX240", "none"),
    "default removed": (f("int", default=1), f("int"), "NQX241", "backward"),
    "optional": (f("int"), f("int | null"), "NQX263", "forward"),
    "required": (f("int | null"), f("int"), "NQX262", "backward"),
    "union branch removed": (f("int | str | null"), f("int | null"), "NQX260", "backward"),
    "union branch added": (f("int"), f("int | str"), "NQX261", "forward"),
    "literal widened": (f('literal["a"]'), f('literal["a", "b"]'), "NQX261", "forward"),
    "literal narrowed": (f('literal["a", "b"]'), f('literal["a"]'), "NQX260", "backward"),
    "anything": (f("int"), f("pytree"), "NQX261", "forward"),
    "list item": (f("list[int]"), f("list[str]"), "NQX210", "both"),
    "bound tightened": (f("int"), f("int", ge=0), "NQX270", "backward"),
    "bound raised": (f("int", ge=0), f("int", ge=1), "NQX270", "backward"),
    "bound lowered": (f("int", ge=1), f("int", ge=0), "NQX271", "forward"),
    "upper bound raised": (f("int", le=1), f("int", le=2), "NQX271", "forward"),
    "bound removed": (f("int", lt=1), f("int"), "NQX271", "forward"),
    "finite": (f("float"), f("float", finite=True), "NQX270", "backward"),
    "choices widened": (f("int", choices=[1]), f("int", choices=[1, 2]), "NQX271", "forward"),
    "choices narrowed": (f("int", choices=[1, 2]), f("int", choices=[1]), "NQX270", "backward"),
    "pattern": (f("str", pattern="a"), f("str", pattern="b"), "NQX270", "both"),
    "pattern given": (f("str"), f("str", pattern="b"), "NQX270", "backward"),
    "validator": (f("int"), f("int", validator="v"), "NQX270", "backward"),
    "multiple of a divisor": (
        f("int", multiple_of=4),
        f("int", multiple_of=2),
        "NQX271",
        "forward",
    ),
    "multiple of more": (f("int", multiple_of=2), f("int", multiple_of=4), "NQX270", "backward"),
    "multiple of another": (f("int", multiple_of=2), f("int", multiple_of=3), "NQX270", "both"),
    "other choices": (f("int", choices=[1, 2]), f("int", choices=[2, 3]), "NQX270", "both"),
    "no longer stored": (f("int"), f("int", derived="1 + 1"), "NQX203", "forward"),
    "stored now": (f("int", derived="1 + 1"), f("int"), "NQX202", "backward"),
    "nothing": (f("int"), f("int"), None, None),
}


@every("case", FIELDS.values())
def test_field_changes(case):
    old, new, code, direction = case
    found = diff_documents(doc(old), doc(new, 2))
    if code is None:
        assert found == []
        return
    (change,) = found
    assert (change.code, change.direction, change.path) == (code, direction, "$.structs.A.fields.x")


DOCUMENTS = {
    "removed, reserved, with a default": (
        doc(f("int", default=1)),
        doc(version=2, raw={"A": {"fields": {}, "reserved": ["x"]}}),
        [("NQX208", "$.structs.A.fields.x")],
    ),
    "removed without a default": (
        doc(f("int")),
        doc(version=2),
        [("NQX203", "$.structs.A.fields.x"), ("NQX201", "$.structs.A.fields.x")],
    ),
    "reserved name used": (
        doc(raw={"A": {"fields": {}, "reserved": ["x"]}}),
        doc(f("int", default=0), 2),
        [("NQX205", "$.structs.A.fields.x"), ("NQX208", "$.structs.A.fields.x")],
    ),
    "reserved name freed": (
        doc(raw={"A": {"fields": {}, "reserved": ["x"]}}),
        doc({}, 2),
        [("NQX206", "$.structs.A.reserved")],
    ),
    "renamed with an alias": (
        doc(f("int")),
        doc({"y": {"type": "int", "aliases": ["x"]}}, 2),
        [("NQX208", "$.structs.A.fields.y")],
    ),
    "renamed, most likely": (
        doc({"learning_rate": "float"}),
        doc({"learning_rates": "float"}, 2),
        [("NQX204", "$.structs.A.fields.learning_rates")],
    ),
    "renamed by a step": (
        doc({"learning_rate": "float"}),
        doc(
            {"eta": "float"},
            2,
            migrations=[
                {"from": 1, "steps": [{"rename": {"field": "learning_rate", "to": "eta"}}]}
            ],
        ),
        [("NQX208", "$.structs.A.fields.eta")],
    ),
    "order": (
        doc({"a": "int", "b": "str"}),
        doc({"b": "str", "a": "int"}, 2),
        [("NQX231", "$.structs.A.fields")],
    ),
    "struct added": (
        doc(),
        doc(version=2, raw={"A": {"fields": {}}, "B": {"fields": {}}}),
        [("NQX284", "$.structs.B")],
    ),
    "struct removed": (
        doc(raw={"A": {"fields": {}}, "B": {"fields": {}}}),
        doc({}, 2),
        [("NQX280", "$.structs.B")],
    ),
    "struct renamed": (
        doc(raw={"A": {"fields": {}}, "B": {"fields": {"z": "int"}}}),
        doc(version=2, raw={"A": {"fields": {}}, "C": {"fields": {"z": "int"}}}),
        [("NQX281", "$.structs.C")],
    ),
    "struct renamed with an alias": (
        doc(raw={"A": {"fields": {}}, "B": {"fields": {"z": "int"}}}),
        doc(
            version=2,
            raw={"A": {"fields": {}}, "C": {"fields": {"z": "str"}, "aliases": ["B"]}},
        ),
        [("NQX210", "$.structs.C.fields.z"), ("NQX284", "$.structs.C")],
    ),
    "root": (
        doc(raw={"A": {"fields": {}}, "B": {"fields": {"q": "int"}}}),
        doc({"q": "int"}, 2, structs={"A": {}}, root="B"),
        [("NQX280", "$.root")],
    ),
    "params": (
        doc(**structs(params=["a"])),
        doc(version=2, **structs(params=["b"])),
        [("NQX210", "$.structs.A.params")],
    ),
    "arguments": (
        doc(
            raw={
                "A": {"fields": {"x": "B[n]", "y": "int8[n]"}},
                "B": {"params": ["k"], "fields": {}},
            }
        ),
        doc(
            version=2,
            raw={
                "A": {"fields": {"x": "B[2 * n]", "y": "int8[n]"}},
                "B": {"params": ["k"], "fields": {}},
            },
        ),
        [("NQX222", "$.structs.A.fields.x")],
    ),
    "constraint added": (
        doc(**structs()),
        doc(version=2, **structs(constraints=[{"expr": "x > 0"}])),
        [("NQX270", "$.structs.A.constraints")],
    ),
    "constraint removed": (
        doc(**structs(constraints=[{"expr": "x>0"}])),
        doc(version=2, **structs()),
        [("NQX271", "$.structs.A.constraints")],
    ),
    "constraint spelled otherwise": (
        doc(**structs(constraints=[{"expr": "x>0"}])),
        doc(version=2, **structs(constraints=[{"expr": "x > 0"}])),
        [],
    ),
    "enum member removed": (
        doc(enums={"E": ["a", "b"]}),
        doc(version=2, enums={"E": ["a"]}),
        [("NQX250", "$.enums.E")],
    ),
    "enum member added": (
        doc(enums={"E": ["a"]}),
        doc(version=2, enums={"E": ["a", "b"]}),
        [("NQX251", "$.enums.E")],
    ),
    "enum added": (doc(), doc(version=2, enums={"E": ["a"]}), [("NQX284", "$.enums.E")]),
    "enum removed": (doc(enums={"E": ["a"]}), doc(version=2), [("NQX280", "$.enums.E")]),
    "dim equation changed": (
        doc(dims={"n": {"equals": "2 * m"}}),
        doc(version=2, dims={"n": {"equals": "3 * m"}}),
        [("NQX223", "$.dims.n")],
    ),
    "dim equation spelled otherwise": (
        doc(dims={"n": {"equals": "2 * m"}}),
        doc(version=2, dims={"n": {"equals": "m + m"}}),
        [],
    ),
    "dim equation added": (
        doc(dims={"n": {}}),
        doc(version=2, dims={"n": {"equals": 3}}),
        [("NQX223", "$.dims.n")],
    ),
    "dim bound": (
        doc(dims={"n": {"min": 1}}),
        doc(version=2, dims={"n": {"min": 2}}),
        [("NQX270", "$.dims.n")],
    ),
    "document doc": (doc(doc="a"), doc(version=2, doc="b"), [("NQX234", "$.doc")]),
    "struct doc": (
        doc(**structs(doc="a")),
        doc(version=2, **structs(doc="b")),
        [("NQX234", "$.structs.A.doc")],
    ),
    "other schema": (doc(), doc(version=2, schema="lab.b"), [("NQX283", "$.schema")]),
    "compatibility lowered": (
        doc(compatibility="full"),
        doc(version=2, compatibility="none"),
        [("NQX292", "$.compatibility")],
    ),
    "compatibility raised": (
        doc(compatibility="backward"),
        doc(version=2, compatibility="full"),
        [("NQX234", "$.compatibility")],
    ),
    "the message of a constraint": (
        doc(**structs(constraints=[{"expr": "x>0"}])),
        doc(version=2, **structs(constraints=[{"expr": "x > 0", "message": "too small"}])),
        [("NQX234", "$.structs.A.constraints")],
    ),
    "a name reserved": (
        doc(),
        doc(version=2, raw={"A": {"fields": {}, "reserved": ["x"]}}),
        [("NQX234", "$.structs.A.reserved")],
    ),
    "alias of a struct removed": (
        doc(raw={"A": {"fields": {}, "aliases": ["Z"]}}),
        doc(version=2),
        [("NQX207", "$.structs.A")],
    ),
    "doc of an enum": (
        doc(enums={"E": ["a"]}),
        doc(version=2, enums={"E": {"members": ["a"], "doc": "d"}}),
        [("NQX234", "$.enums.E")],
    ),
    "default of an enum given": (
        doc(enums={"E": ["a"]}),
        doc(version=2, enums={"E": {"members": ["a"], "default": "a"}}),
        [("NQX284", "$.enums.E")],
    ),
    "default of an enum removed": (
        doc(enums={"E": {"members": ["a"], "default": "a"}}),
        doc(version=2, enums={"E": ["a"]}),
        [("NQX241", "$.enums.E")],
    ),
    "default of an enum changed": (
        doc(enums={"E": {"members": ["a", "b"], "default": "a"}}),
        doc(version=2, enums={"E": {"members": ["a", "b"], "default": "b"}}),
        [("NQX240", "$.enums.E")],
    ),
    "members in another order": (
        doc(enums={"E": ["a", "b"]}),
        doc(version=2, enums={"E": ["b", "a"]}),
        [("NQX234", "$.enums.E")],
    ),
    "doc of a dim": (
        doc(dims={"n": {}}),
        doc(version=2, dims={"n": {"doc": "d"}}),
        [("NQX234", "$.dims.n")],
    ),
    "dim declared": (
        doc(f("int8[n]")),
        doc(f("int8[n]"), 2, dims={"n": {}}),
        [("NQX284", "$.dims.n")],
    ),
    "dim no longer declared": (
        doc(f("int8[n]"), dims={"n": {}}),
        doc(f("int8[n]"), 2),
        [("NQX284", "$.dims.n")],
    ),
    "dim declared for all instances": (
        doc(**LISTED),
        doc(version=2, **LISTED, dims={"n": {}}),
        [("NQX270", "$.dims.n")],
    ),
    "dim left to each instance": (
        doc(**LISTED, dims={"n": {}}),
        doc(version=2, **LISTED),
        [("NQX271", "$.dims.n")],
    ),
    "a dim that nothing uses any more": (
        doc(f("int8[n]"), dims={"n": {"equals": 3}}),
        doc(f("int8[3]"), 2),
        [("NQX221", "$.structs.A.fields.x"), ("NQX284", "$.dims.n")],
    ),
    "use added": (doc(), doc(version=2, uses=["lab.b@1"]), [("NQX284", "$.uses")]),
    "use removed": (doc(uses=["lab.b@1"]), doc(version=2), [("NQX284", "$.uses")]),
    "use moved": (doc(uses=["lab.b@1"]), doc(version=2, uses=["lab.b@2"]), [("NQX285", "$.uses")]),
    "use moved back": (
        doc(uses=["lab.b@2"]),
        doc(version=2, uses=["lab.b@1"]),
        [("NQX285", "$.uses")],
    ),
    "number not raised": (
        doc(f("int")),
        doc(f("str")),
        [("NQX290", "$.version"), ("NQX210", "$.structs.A.fields.x")],
    ),
    "edited in place": (doc(doc="a"), doc(doc="b"), [("NQX291", "$.version"), ("NQX234", "$.doc")]),
}


@every("case", DOCUMENTS.values())
def test_document_changes(case):
    old, new, expected = case
    assert [(change.code, change.path) for change in diff_documents(old, new)] == expected


#: A document that says everything, and for each member of each part another value.
FULL = {
    "language": "1",
    "schema": "lab.a",
    "version": 1,
    "doc": "d",
    "root": "A",
    "compatibility": "backward",
    "uses": ["lab.b@1"],
    "dims": {"n": {"min": 1, "max": 9, "equals": "2 * m", "doc": "d"}},
    "enums": {"E": {"members": ["a", "b"], "default": "a", "doc": "d", "aliases": {"a": ["z"]}}},
    "dtypes": {"c": {"members": ["int8"], "doc": "d"}},
    "structs": {
        "A": {
            "doc": "d",
            "params": ["p"],
            "reserved": ["r"],
            "aliases": ["Z"],
            "constraints": [{"expr": "x > 0", "message": "m"}],
            "fields": {
                "x": {
                    "type": "int", "kind": "node", "default": 1, "serialize": True, "doc": "d", "unit": "m", "tags": ["t"],
                    "aliases": ["y"], "deprecated": "yes", "examples": [1], "converter": "c", "validator": "v", "ge": 0, "gt": -1,
                    "le": 9, "lt": 10, "multiple_of": 1, "choices": [1, 2],
                },
                "w": {"type": "array", "dtype": "int8", "shape": ["n"], "axes": ["a"], "finite": True},
                "k": {"type": "prng_key", "impl": "rbg", "shape": ["n"]},
                "s": {"type": "str", "pattern": "a", "min_length": 1, "max_length": 2},
                "d": {"type": "int", "derived": "1 + 1"},
                "o": {"type": "int | null", "kind": "opaque", "reset": True, "default": None},
            },
        },
        "B": {"fields": {}},
    },
}  # fmt: skip
OTHER = {
    "doc": "e",
    "root": "B",
    "compatibility": "full",
    "uses": ["lab.b@2"],
    "schema": "lab.c",
    "min": 2,
    "max": 8,
    "equals": "3 * m",
    "members": ["b", "a"],
    "params": ["q"],
    "reserved": ["s"],
    "aliases": ["X"],
    "a": ["y"],
    "expr": "x > 1",
    "message": "n",
    "type": "float",
    "dtype": "int16",
    "shape": ["n", "n"],
    "impl": "threefry2x32",
    "kind": "static",
    "derived": "2 + 1",
    "serialize": False,
    "reset": False,
    "unit": "s",
    "axes": ["b"],
    "tags": ["u"],
    "examples": [2],
    "deprecated": True,
    "converter": "e",
    "validator": "e",
    "ge": -1,
    "gt": 0,
    "le": 8,
    "lt": 9,
    "multiple_of": 2,
    "min_length": 2,
    "max_length": 3,
    "pattern": "b",
    "choices": [1],
    "finite": False,
}


def members(data=FULL, at=()):
    """The path of every member of the document that says everything."""
    for name, inside in data.items():
        path = (*at, name)
        if isinstance(inside, dict):
            yield from members(inside, path)
        elif name == "constraints":
            yield from members(inside[0], (*path, 0))
        elif name not in ("language", "version"):
            yield path


def changed(path):
    """The next version, with one member otherwise."""
    data = json.loads(json.dumps({**FULL, "version": 2}))
    *to, last = path
    holder = data
    for part in to:
        holder = holder[part]
    holder[last] = {1: 2, None: 3, "a": "b"}[holder[last]] if last == "default" else OTHER[last]
    return data


@every("path", [p for p in members() if p[-1] != "fields"])
def test_no_member_of_a_document_changes_unseen(path):
    new = changed(path)
    if path[-1] == "type" and path[-2] in ("w", "k"):
        new = json.loads(json.dumps({**FULL, "version": 2}))
        new["structs"]["A"]["fields"][path[-2]] = "str"
    found = diff_documents(document_from_data(FULL, "old"), document_from_data(new, "new"))
    assert found, path


def test_every_member_that_the_language_has_is_asked_about():
    def names(model):
        return {f.alias or n for n, f in model.model_fields.items()}

    known = (
        names(Document)
        | names(StructDeclaration)
        | names(FieldDeclaration)
        | names(EnumDeclaration)
    )
    known |= names(DimDeclaration) | names(Constraint)
    asked = {part for path in members() for part in path if isinstance(part, str)}
    assert known - asked == {"language", "version", "migrations"}


def test_an_enum_default_takes_the_sting_out():
    old, new = (
        doc(enums={"E": {"members": ["a", "b"], "default": "a"}}),
        doc(version=2, enums={"E": {"members": ["a", "c"], "default": "a"}}),
    )
    assert [(c.code, c.direction) for c in diff_documents(old, new)] == [
        ("NQX250", "none"),
        ("NQX251", "none"),
    ]


def test_steps_turn_errors_into_information():
    step = s.cast(field="x", dtype="int8")
    old, new = doc(f("float64[n]")), doc(f("int8[n]"), 2)
    (change,) = diff_documents(old, new)
    assert change.severity == "error"
    (change,) = diff_documents(old, new.model_copy(update={"migrations": [s.migration(1, [step])]}))
    assert (change.severity, change.direction) == ("info", "backward")
    assert "by a step" in change.message


def test_breaking_changes_come_first():
    series = load_series("schemas/vmc_state")
    found = diff_documents(series.at(1), series.at(3))  # without the steps of version 2
    ranks = [{"error": 0, "warning": 1, "info": 2}[change.severity] for change in found]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0


def test_a_change_prints_in_one_line_and_as_json():
    (change,) = diff_documents(doc(f("int8[n]")), doc(f("int16[n]"), 2))
    assert (
        str(change)
        == "$.structs.A.fields.x: dtype int8 became int16, which holds all its values (breaks forward) [NQX211]"
    )
    assert json.loads(json.dumps(change.to_json())) == change.to_json()
    assert (change.old, change.new) == ("int8", "int16")
    assert (
        str(change.to_diagnostic())
        == "$.structs.A.fields.x: dtype int8 became int16, which holds all its values [NQX211]"
    )
    assert (
        str(Change("NQX1", "both", "payload", "$", "m")) == "$: m (breaks both directions) [NQX1]"
    )


def test_renames_are_paired_one_to_one_by_name_type_and_doc():
    old = doc(
        {
            "bias_all": "float32[n]",
            "b": "float32[n]",
            "count": "int",
            "h": {"type": "float", "doc": "field"},
        }
    ).structs["A"]
    new = doc(
        {
            "bias": "float32[n]",
            "bias_alls": "float32[n]",
            "counts": "str",
            "field": {"type": "float", "doc": "field"},
        }
    ).structs["A"]
    found = {a: b for a, b, _ in probable_renames(old, new, {})}
    assert found == {"bias_all": "bias_alls"}


def test_diff_takes_series_documents_folders_and_bundles(tmp_path):
    series = load_series("schemas/vmc_state")
    expected = diff(series.at(1), series)
    assert diff("schemas/vmc_state/v1.yaml", "schemas/vmc_state") == expected
    document = series.at(1)
    manifest = {
        "version": 1,
        "schema": {"id": document.id, "version": 1, "fingerprint": "sha256:" + "0" * 64},
        "schemas": [document.to_data()],
        "manifest": None,
        "arrays": {},
    }
    from neuralqx_struct import bundle
    from neuralqx_struct.manifest.payload import Payload

    held = Payload({**manifest, "writer": {"name": "x", "version": "1"}}, {})
    for name in ("ckpt", "ckpt.zip"):
        bundle.write(tmp_path / name, held)
        assert diff(tmp_path / name, series) == expected
    assert diff(tmp_path / "ckpt" / "manifest.json", series) == expected

    class Schema:
        """What users hold; the real one stands below this module."""

        document = series.head

    Schema.series = series
    assert diff(series.at(1), Schema()) == expected
    del Schema.series  # a document alone: the steps of version 2 are not known
    assert [c.code for c in diff(series.at(1), Schema()) if c.severity == "error"]


def test_the_steps_of_the_versions_between_are_composed(tmp_path):
    series = load_series("schemas/vmc_state")
    found = diff(series.at(1), series)
    assert not [change for change in found if change.severity == "error"]
    assert diff("schemas/vmc_state/v1.yaml", "schemas/vmc_state/v3.yaml") == found
    old = doc({"a": "float32[n]"})
    middle = doc({"b": "float32[n]"}, 2, [s.rename(field="a", to="b")])
    steps = [
        s.rename_struct(struct="A", to="B"),
        s.rename(field="b", to="c"),
        s.cast(field="c", dtype="float64"),
    ]
    new = doc({"c": "float64[n]"}, 3, steps, root="B")
    found = {c.code: c for c in diff_documents(old, new, [middle])}
    assert found.keys() == {"NQX280", "NQX281", "NQX208", "NQX211"}
    assert (found["NQX211"].path, found["NQX211"].old_path) == (
        "$.structs.B.fields.c",
        "$.structs.A.fields.a",
    )
    assert found["NQX281"].severity == "info"
    again = doc({"a": "int"}, 3, [s.remove(field="b", lossy=True), s.add(field="a", default=1)])
    assert {c.code: c.severity for c in diff_documents(old, again, [middle])} == {"NQX210": "info"}


def test_a_bundle_without_a_schema_has_no_document(tmp_path):
    from neuralqx_struct import bundle
    from neuralqx_struct.manifest.payload import Payload

    bundle.write(
        tmp_path / "b",
        Payload(
            {"version": 1, "manifest": 1, "arrays": {}, "writer": {"name": "x", "version": "1"}}, {}
        ),
    )
    with refused(SchemaError, "NQX404"):
        diff(tmp_path / "b", tmp_path / "b")


# ---------------------------------------------------------------------------------------------------------------------
# Positions, and the suite: for each code two files that differ by it, and what must be said.

SUITE = ROOT / "tests" / "suite" / "diff"
CODES = sorted(path.name for path in SUITE.iterdir())


@every("code", CODES)
def test_each_code_is_given_at_its_places_in_both_files(code):
    old, new = SUITE / code / "old.yaml", SUITE / code / "new.yaml"
    expected = yaml.safe_load((SUITE / code / "expected.yaml").read_text())
    (change,) = (change for change in diff(old, new) if change.code == code)
    places = {"old": (old, change.old_at), "new": (new, change.new_at)}
    for which, (file, place) in places.items():
        assert str(place) == f"{file}:{expected.pop(which)}"
    assert {name: getattr(change, name) for name in expected} == expected
    found = change.to_diagnostic()
    assert (found.file, found.line, found.column) == (
        str(new),
        change.new_at.line,
        change.new_at.column,
    )


def test_the_suite_has_every_code_of_changes():
    told = {code for text in map(str, FIELDS.values()) for code in re.findall(r"NQX2\d\d", text)}
    assert told <= set(CODES) == set(RULES)


@every("code", CODES)
def test_the_documentation_shows_the_suite(code):
    header = re.compile(r'(?:language: "1"|schema: lab\.net|version: [12]|root: Net)\n')
    examples = yaml_blocks(DIAGNOSTICS[code])[:2]
    for name, shown in zip(("old", "new"), examples, strict=True):
        assert header.sub("", shown) == header.sub("", (SUITE / code / f"{name}.yaml").read_text())


NAMED = """\
language: "1"
schema: lab.net
version: 1
root: Net
structs:
  Net:
    fields:
      inner: Part
  Part:
    fields:
      weight: "float64[n]"
"""
RENAMED = NAMED.replace("version: 1", "version: 2").replace("Part", "Piece")
RENAMED = RENAMED.replace(
    "    fields:\n      weight", "    aliases: [Part]\n    fields:\n      weight"
)
RENAMED = RENAMED.replace('weight: "float64[n]"', 'w: {type: "float32[n]", aliases: [weight]}')


def test_what_has_another_name_has_a_path_in_each_version(tmp_path):
    old, new = tmp_path / "v1.yaml", tmp_path / "v2.yaml"
    old.write_text(NAMED)
    new.write_text(RENAMED)
    found = {change.code: change for change in diff(old, new)}
    assert found.keys() == {"NQX284", "NQX208", "NQX212", "NQX210"}
    narrowed = found["NQX212"]
    assert (narrowed.path, narrowed.old_path) == (
        "$.structs.Piece.fields.w",
        "$.structs.Part.fields.weight",
    )
    assert (str(narrowed.old_at), str(narrowed.new_at)) == (f"{old}:11:7", f"{new}:12:7")
    assert (found["NQX284"].old_path, found["NQX284"].old_at.line) == ("$.structs.Part", 9)


def test_documents_without_a_file_have_no_places():
    (change,) = diff(doc(f("int8[n]")), doc(f("int16[n]"), 2))
    assert (change.old_at, change.new_at) == (None, None)
    assert change.to_diagnostic().line is None
