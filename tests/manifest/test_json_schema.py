"""The published JSON Schema: generated from the models, valid, and with errors at the same places."""

import copy
import json

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.manifest.check import check_manifest
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.export import manifest_schema
from tests.builders import ARRAY, BAD, EVERY_KIND, GOOD, ROOT, cases, document, every, mutated
from tests.preloaded import check_jsonschema

PUBLISHED = ROOT / "schemas/manifest/1.json"
SCHEMA = json.loads(PUBLISHED.read_text())


VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


VALIDATOR_7 = jsonschema.Draft7Validator(SCHEMA)


def verdicts(value):
    return check_manifest(value) == [], VALIDATOR.is_valid(value)


def test_every_judge_takes_a_good_manifest():
    assert verdicts(GOOD) == (True,) * 2
    assert VALIDATOR_7.is_valid(GOOD)


@every("value", [value for value, _, _ in BAD])
def test_every_judge_refuses_bad_manifests(value):
    assert verdicts(value) == (False,) * 2
    assert not VALIDATOR_7.is_valid(value)


def test_the_published_schema_is_the_generated_one():
    assert manifest_schema() == SCHEMA
    assert PUBLISHED.read_text() == json.dumps(SCHEMA, indent=2) + "\n"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_the_schema_uses_the_keywords_of_both_drafts():
    shared = set(jsonschema.Draft7Validator.META_SCHEMA["properties"])
    stack, seen = [SCHEMA], 0
    while stack:
        schema = stack.pop()
        seen += 1
        assert set(schema) <= shared | {"$schema", "$id"}, schema
        assert "oneOf" not in schema
        assert "$ref" not in schema or len(schema) == 1
        for name in ("properties", "definitions"):
            stack.extend(schema.get(name, {}).values())
        below = (
            schema.get(name) for name in ("items", "additionalProperties", "if", "then", "else")
        )
        stack.extend(item for item in below if isinstance(item, dict))
        stack.extend(schema.get("allOf", []))
    assert seen > 100


def test_check_jsonschema_agrees(tmp_path):
    values = [GOOD, *(value for value, _, _ in BAD[::4])]
    files = [tmp_path / f"{index}.json" for index in range(len(values))]
    for file, value in zip(files, values, strict=True):
        file.write_text(json.dumps(value))
    good, *bad = map(str, files)
    assert check_jsonschema("--schemafile", PUBLISHED, good).returncode == 0
    refused = check_jsonschema("--schemafile", PUBLISHED, *bad, "--output-format", "json")
    assert refused.returncode == 1
    assert {error["filename"] for error in json.loads(refused.stdout)["errors"]} == set(bad)


def test_the_schema_refuses_what_the_tag_forbids_and_says_so_briefly():
    [error] = VALIDATOR.iter_errors(document({**ARRAY, "shape": "x"}))
    assert list(error.absolute_path) == ["manifest", "shape"]


WORDS = [
    "__kind__",
    "items",
    "fields",
    "shape",
    "value",
    "mode",
    "must_understand",
    "name",
    "x",
    "array",
    "float",
    "nan",
    "jax",
]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**40),
    st.sampled_from([0.5, -1.25]),
    st.sampled_from([*WORDS, *KINDS]),
)


VALUES = st.recursive(
    SCALARS | st.sampled_from(EVERY_KIND),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(WORDS), v, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in items:
        yield from places(child, (*path, key))


# One small document for each kind, and the good one for what stands around the tree: quick to judge.
SAMPLES = [GOOD | {"manifest": None}, *(document(node) for node in EVERY_KIND)]
PLACES = [(sample, place) for sample in SAMPLES for place in places(sample) if place]


@settings(max_examples=cases(400), deadline=None)
@given(
    chosen=st.sampled_from(PLACES),
    how=st.sampled_from(["replace", "remove", "insert"]),
    value=VALUES,
    name=st.sampled_from(WORDS),
)
def test_all_judges_agree_on_mutated_manifests(chosen, how, value, name):
    sample, place = chosen
    said = verdicts(mutated(sample, place, how, value, name))
    assert len(set(said)) == 1, (said, place, how, value)


# -- errors name the bad place, in every validator and in ours


@settings(max_examples=cases(150), deadline=None)
@given(chosen=st.sampled_from(PLACES), value=VALUES)
def test_errors_of_both_name_the_bad_place(chosen, value):
    """The place of a wrong value, or one above or below it: where a tag is wrong, the node is."""
    sample, place = chosen
    mutated = json.loads(json.dumps(sample))  # without lists that occur twice
    parent = mutated
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = copy.deepcopy(value)
    found = check_manifest(mutated)
    errors = list(VALIDATOR.iter_errors(mutated))
    assert bool(found) == bool(errors)
    # With another tag the whole node means something else.
    place = place[:-1] if place[-1] in ("__kind__", "mode") else place
    wanted = format_path([FieldName(key) if isinstance(key, str) else key for key in place])
    around = [
        format_path([FieldName(k) if isinstance(k, str) else k for k in place[:n]])
        for n in range(len(place))
    ]
    for diagnostic in found:
        assert diagnostic.path.startswith(wanted) or diagnostic.path in around[-2:], (
            diagnostic,
            wanted,
        )
    for error in errors:
        told = list(error.absolute_path)
        assert told[: len(place)] == list(place) or told in (list(place[:-1]), list(place[:-2])), (
            error,
            place,
        )


def test_the_schema_travels_in_the_wheel():
    import tomllib

    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    assert build["force-include"]["schemas"] == "neuralqx_struct/shipped/schemas"
    assert PUBLISHED.is_relative_to(ROOT / "schemas")
