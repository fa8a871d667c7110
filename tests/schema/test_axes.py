"""Names of axes in schema files: lint, fingerprints, dump_schema, classes, stubs, differences and corrections."""

import json

import jax
import jaxtyping
import jsonschema
import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.schema.language import language_schema
from neuralqx_struct.schema.lint.document import _STYLE_CHECKS as STYLE_CHECKS
from neuralqx_struct.schema.lint.document import CHECKS
from neuralqx_struct.schema.lock import (
    edit_since,
    full_fingerprint,
    lock_entry,
    meaning_fingerprint,
    payload_fingerprint,
)
from neuralqx_struct.schema.stubs import stub_module
from tests.builders import doc, every, refused

LAYER = {"Layer": {"w": {"type": "float32[d, f]", "axes": ["embed", "mlp"]}}}


def field(declared, *axes):
    return doc({"w": {"type": declared, "axes": list(axes)}}, structs=LAYER)


def found_in(document):
    return [each for check in CHECKS for each in check(document)]


@every(
    ("declared", "axes"),
    [
        ("float32[n, 3]", ["batch", "embed"]),
        ("float32[n] | null", ["batch"]),
        ("float32[]", []),
        ("floating[n]", ["batch"]),
        ("list[float32[n]]", ["batch"]),
        ("dict[str, float32[n, 2]]", ["batch", "embed"]),
        ("prng_key[threefry2x32, n]", ["batch"]),
        ("Layer[][n]", ["layers"]),
    ],
)
def test_a_name_for_each_axis(declared, axes):
    assert found_in(field(declared, *axes)) == []


@every(
    ("declared", "axes", "message"),
    [
        ("float32[n, 3]", ["batch"], "expected a name for each axis of float32[n, 3], got 1"),
        ("float32[n]", ["batch", "embed"], "expected a name for each axis"),
        ("float32[n]", [], "expected a name for each axis"),
        ("float32[...]", ["batch"], "expected a name for each axis"),
        ("Layer[][n]", ["layers", "embed"], "expected a name for each axis"),
        ("tuple[float32[n], float32[n, n]]", ["batch"], "expected a name for each axis"),
        ("float", ["batch"], "expected the type of an array, got float"),
        ("list[float, 3]", ["batch"], "expected the type of an array"),
        ("Layer", ["batch"], "expected the type of an array, got Layer"),
        ("pytree", ["batch"], "expected the type of an array, got pytree"),
        ("float32[n, n]", ["embed", "embed"], "expected different names, got 'embed' 2 times"),
    ],
)
def test_names_that_do_not_fit(declared, axes, message):
    (found,) = found_in(field(declared, *axes))
    assert found.code == "NQX138" and found.message.startswith(message) and found.hint


def test_a_name_that_looks_misspelt():
    fields = {name: {"type": "float32[n]", "axes": ["embed"]} for name in "ab"}
    document = doc({**fields, "c": {"type": "float32[n]", "axes": ["embedd"]}})
    found = [each for check in STYLE_CHECKS for each in check(document) if each.code == "NQX121"]
    assert [each.hint for each in found] == ["did you mean 'embed'?"]
    assert "'embedd'" in found[0].message


@pytest.mark.parametrize("axes", ["embed", [1], ["a b"], [None], {"a": 1}])
def test_axes_that_are_no_names(axes):
    code = "NQX118" if axes == ["a b"] else "NQX010"
    with refused(s.SchemaError, code, "$.structs.A.fields.w.axes"):
        doc({"w": {"type": "float32[n]", "axes": axes}})
    file = {"language": "1", "schema": "lab.a", "version": 1, "root": "A"}
    fields = {"w": {"type": "float32[n]", "axes": axes}}
    file["structs"] = {"A": {"fields": fields}}
    validator = jsonschema.Draft202012Validator(language_schema())
    assert not validator.is_valid(file)
    fields["w"]["axes"] = ["embed"]
    assert validator.is_valid(file)


NAMED = field("float32[n, 3]", "batch", "embed")
OTHER = field("float32[n, 3]", "batch", "mlp")
PLAIN = doc({"w": "float32[n, 3]"}, structs=LAYER)


def test_names_are_in_the_full_fingerprint_alone():
    for change, same in [
        (payload_fingerprint, True),
        (meaning_fingerprint, True),
        (full_fingerprint, False),
    ]:
        assert (change(NAMED) == change(OTHER)) == (change(NAMED) == change(PLAIN)) == same


@pytest.mark.parametrize("old", [PLAIN, OTHER])
def test_a_frozen_version_may_correct_them(old):
    edit = edit_since(NAMED, lock_entry(old))
    assert edit.corrects and edit.parts == ("axes",)


def test_changes_of_names_need_no_step():
    changes = diff_documents(OTHER, NAMED)
    assert [each.code for each in changes if each.path.endswith("w")] == ["NQX234"]


def test_the_way_through_a_file_and_classes():
    text = s.dump_schema(NAMED)
    assert 'w: {type: "float32[n, 3]", axes: [batch, embed]}' in text
    schema = s.load_schema(text)
    assert full_fingerprint(schema.document) == full_fingerprint(NAMED)
    assert s.dump_schema(schema) == s.dump_schema(schema.root) == text
    assert json.loads(json.dumps(NAMED.to_data()))["structs"]["A"]["fields"]["w"]["axes"]
    assert stub_module(NAMED, "x") == stub_module(PLAIN, "x")


def test_python_classes_have_names_in_their_metadata():
    class Net(s.Struct, schema="lab.axes", version=1):
        kernel: jaxtyping.Float32[jax.Array, "d f"] = s.field(metadata={"axes": ("embed", "mlp")})  # noqa: F722
        bare: jax.Array = s.field(metadata={"axes": ["embed"]})
        other: jaxtyping.Float32[jax.Array, "d"] = s.field(metadata={"axes": 3})  # noqa: F821

    assert s.dump_schema(Net).count("axes:") == 1
    assert "axes: [embed, mlp]" in s.dump_schema(Net)
