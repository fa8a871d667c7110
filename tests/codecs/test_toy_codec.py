"""A codec of one more value is one record: every operation works with it, and without it again afterwards."""

from fractions import Fraction
from typing import Literal

import pytest

import neuralqx_struct as s
from neuralqx_struct.codecs import jax as all_codecs
from neuralqx_struct.codecs.nodes import Codec
from neuralqx_struct.manifest.kinds import NodeKind, Shown, register_kind, unregister_kind
from neuralqx_struct.manifest.models import Decimal, Record
from tests.builders import refused

FIRST = """
language: "1"
schema: lab.toy
version: 1
root: State
structs:
  State:
    fields:
      ratio: pytree
      step: int
"""
SECOND = FIRST.replace("version: 1", "version: 2").replace("step: int", "steps: int")
STEP = "migrations:\n  - from: 1\n    steps:\n      - rename: {field: step, to: steps}\n"


class FractionNode(Record):
    """A fraction."""

    __kind__: Literal["fraction"]
    numerator: Decimal
    denominator: Decimal


FRACTION = Codec(
    NodeKind(
        FractionNode,
        lambda node: Shown("Fraction", f"{node['numerator']}/{node['denominator']}"),
        leaf=True,
    ),
    (Fraction,),
    lambda value, _: {
        "numerator": str(value.numerator),
        "denominator": str(value.denominator),
    },
    lambda node, _: Fraction(int(node["numerator"]), int(node["denominator"])),
)
HALF = Fraction(1, 2)


@pytest.fixture
def fractions(monkeypatch):
    """The codec in the table, for one test."""
    register_kind(FRACTION.kind)
    monkeypatch.setattr(all_codecs, "CODECS", all_codecs.CODECS.extended([FRACTION]))
    yield
    unregister_kind(FRACTION.kind)


@pytest.fixture
def schema(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "v1.yaml").write_text(FIRST)
    (folder / "v2.yaml").write_text(SECOND + STEP)
    return s.load_schema(folder)


@pytest.mark.usefixtures("fractions")
def test_every_operation_takes_the_new_value(tmp_path, schema):
    value = {"a": [HALF, (HALF, 1)], HALF: "key"}
    path = s.export(value, tmp_path / "ckpt")
    assert s.validate(path) == s.verify(path) == []
    assert s.load(path) == value
    rows = {row.path: f"{row.type} {row.value}" for row in s.inspect(path).rows}
    assert rows["$['a'][0]"] == "Fraction 1/2"
    assert s.from_state_dict(s.to_state_dict(value)) == value

    old = s.export(schema.at(1).State(ratio=HALF, step=3), tmp_path / "old")
    assert s.validate(old) == []
    new = s.migrate(old, tmp_path / "new", schema=schema)
    assert s.validate(tmp_path / "new") == []
    assert schema.load(tmp_path / "new").ratio == schema.load(old).ratio == HALF
    assert "steps" in str(s.diff(old, tmp_path / "new"))
    assert "Fraction" in str(s.inspect(tmp_path / "new")) and new is not None


@pytest.mark.usefixtures("fractions")
def test_its_node_is_validated(tmp_path):
    path = s.export([HALF], tmp_path / "ckpt")
    file = path / "manifest.json"
    file.write_text(file.read_text().replace('"denominator": "2"', '"denominator": "two"'))
    assert "NQX614" in {d.code for d in s.validate(path)}


def test_without_the_codec_the_value_is_refused(tmp_path):
    with refused(s.SerializationError, "NQX430", "$[0]", "Fraction"):
        s.export([HALF], tmp_path / "ckpt")


def test_a_file_of_an_unknown_kind_is_refused(tmp_path, fractions):
    path = s.export([HALF], tmp_path / "ckpt")
    unregister_kind(FRACTION.kind)
    assert [d.code for d in s.validate(path)] == ["NQX613"]
    with refused(s.SerializationError, "NQX613", "$.manifest.items[0].__kind__"):
        s.inspect(path)
    register_kind(FRACTION.kind)


@pytest.mark.parametrize("missing", ["kind", "types", "encode", "decode"])
def test_a_record_that_lacks_a_member_is_an_error_at_once(missing):
    members = {name: getattr(FRACTION, name) for name in ("kind", "types", "encode", "decode")}
    del members[missing]
    with pytest.raises(TypeError, match=missing):
        Codec(**members)


def test_a_kind_without_a_codec_is_an_error():
    with refused(TypeError, "fraction"):
        all_codecs.CODECS.require(["list", "fraction"])
