"""Mutated manifests are judged alike by the readers, by jsonschema, and by jsonschema-rs, with documented exceptions.

The exceptions, each counted by a test of its own below:

- JSON Schema takes ``1.0`` for an integer, and ``1`` and ``1.0`` for equal; readers require an integer.
- Readers have limits of depth and of the number of nodes.
- Readers refuse numbers that JSON cannot express; in memory they are floats like any other.
- Readers refuse members that occur twice, and text that is half of a surrogate pair.
"""

import json

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.check import check_manifest
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.manifest.text import read_document
from tests.builders import ARRAY, BAD, EVERY_KIND, GOOD, ROOT, cases, document, every, mutated

SCHEMA = json.loads((ROOT / "schemas/manifest/1.json").read_text())
PYTHON = jsonschema.Draft202012Validator(SCHEMA)
RUST = jsonschema_rs.validator_for(SCHEMA)


def verdicts(value):
    """The verdicts of the reader of text, the reader of memory, and two validators of JSON Schema."""
    try:
        text = read_document(json.dumps(value).encode())[1] == []
    except SerializationError:
        text = False
    return text, check_manifest(value) == [], PYTHON.is_valid(value), RUST.is_valid(value)


@every("value", [GOOD, *(value for value, _, _ in BAD)])
def test_all_agree_on_known_manifests(value):
    assert len(set(verdicts(value))) == 1


WORDS = ["__kind__", "items", "fields", "shape", "value", "mode", "must_understand", "name", "x"]
TEXTS = [*WORDS, *KINDS, "nan", "jax", "lab.x@1:A", "lab.x@0:A", "sha256:", "9" * 30, "a\n"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**70),
    st.sampled_from([0.5, -1.25, 1e300, 2**63, 2**63 - 1, 2**32]),
    st.sampled_from(TEXTS),
)
VALUES = st.recursive(
    SCALARS | st.sampled_from(EVERY_KIND),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
        | st.builds(lambda node: {"__kind__": "list", "items": [node]}, inner)
    ),
    max_leaves=6,
)


def places(value, path=()):
    """Yields the path of every value."""
    yield path
    items = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, child in items:
        yield from places(child, (*path, key))


SAMPLES = [GOOD | {"manifest": None}, *(document(node) for node in EVERY_KIND)]
PLACES = [(sample, place) for sample in SAMPLES for place in places(sample) if place]


@seed(12)
@settings(max_examples=cases(600), deadline=None)
@given(
    st.sampled_from(PLACES),
    st.sampled_from(["replace", "remove", "insert"]),
    VALUES,
    st.sampled_from(WORDS),
)
def test_all_agree_on_mutated_manifests(chosen, how, value, name):
    sample, place = chosen
    assert len(set(verdicts(mutated(sample, place, how, value, name)))) == 1, (place, how, value)


# -- documented exceptions


@pytest.mark.parametrize(
    "value",
    [
        document(version=1.0),
        document({**ARRAY, "shape": [2.0]}),
        document(arrays={"w": {"dtype": "float32", "shape": [], "nbytes": 4.0}}),
    ],
)
def test_floats_are_no_integers(value):
    assert verdicts(value) == (False, False, True, True)


def test_limits_are_those_of_readers():
    node = 5
    for _ in range(120):
        node = {"__kind__": "list", "items": [node]}
    assert check_manifest(document(node)) == []
    assert PYTHON.is_valid(document({"__kind__": "list", "items": [1, 2]}))
    deep = {"__kind__": "list", "items": [{"__kind__": "list", "items": []}]}
    assert PYTHON.is_valid(document(deep))
    assert check_manifest(document(deep), limits=Limits(depth=1)) != []
    assert check_manifest(document(deep), limits=Limits(nodes=1)) != []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_cannot_express(value):
    assert check_manifest(document(value)) != []
    assert PYTHON.is_valid(document(value))


@pytest.mark.parametrize(
    "text", [b'{"version": 1, "version": 1, "manifest": 5, "arrays": {}}', b'{"\\ud800": 1}']
)
def test_texts_that_parsers_of_json_accept(text):
    json.loads(text)
    with pytest.raises(SerializationError):
        read_document(text)


@pytest.mark.parametrize("levels", [40, 90, 110, 199])
def test_deep_trees_are_read_by_either_parser(levels):
    node = 5
    for index in range(levels):
        node = (
            {"__kind__": "dict", "items": [["k", node]]}
            if index % 2
            else {"__kind__": "tuple", "items": [node]}
        )
    value = document(node)
    assert read_document(json.dumps(value).encode()) == (value, [])
    node["items"].append("wrong" if levels % 2 == 0 else [])
    value, found = read_document(json.dumps(value).encode())
    assert [d.code for d in found] == ["NQX612"]


@pytest.mark.parametrize(
    ("inner", "code"),
    [
        (b'{"__kind__": "list", "items": [], "items": []}', "NQX014"),
        (b'{"__kind__": "list", "items": ["\\ud800"]}', "NQX001"),
        (b'"\xff"', "NQX001"),
        (b"NaN", "NQX013"),
        (b"9" * 5000, "NQX612"),
    ],
)
def test_deep_texts_are_read_as_strictly(inner, code):
    before, after = json.dumps(document("?")).encode().split(b'"?"')
    nest = b'{"__kind__": "list", "items": [' * 150 + inner + b"]}" * 150
    with pytest.raises(SerializationError) as caught:
        read_document(before + nest + after)
    assert caught.value.diagnostics[0].code == code
