"""A filter that the package does not have, added as one record: every operation with filters knows it."""

from dataclasses import dataclass

import jax.numpy as jnp
import pytest

import neuralqx_struct as s
from neuralqx_struct.filters import FilterError, Matcher, PathGlob, parse, to_predicate
from neuralqx_struct.filters.records import FILTERS, FilterKind, Literal, TextForm
from neuralqx_struct.filters.table import unmatched_parts
from tests.builders import invoke, refused


@dataclass(frozen=True, slots=True, repr=False)
class DeeperThan(Matcher):
    """Matches leaves whose path has more than some number of keys; the literal is a range up to it."""

    keys: int

    def __post_init__(self):
        object.__setattr__(self, "keys", int(self.keys))

    def __call__(self, path, _value, /):
        """True if a leaf at ``path`` matches."""
        return len(path) > self.keys


def report(toy, leaves):
    deepest = max(len(path) for path, _ in leaves)
    return f"a leaf deeper than {toy.keys}", f"the deepest has {deepest} keys"


TOY = FilterKind(
    cls=DeeperThan,
    text=TextForm("term", "deeper"),
    literal=Literal(
        lambda given: isinstance(given, range), lambda given, _: DeeperThan(given.stop)
    ),
    flax=False,
    unmatched=report,
)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(FILTERS, DeeperThan, TOY)


class Net(s.Struct):
    w: object
    layers: object


@pytest.fixture
def net():
    return Net(w=jnp.ones(2), layers={"a": jnp.zeros(3)})


def test_the_literal():
    assert to_predicate(range(1)) == DeeperThan(1)
    assert DeeperThan(2) | range(3) == s.filters.Any(DeeperThan(2), DeeperThan(3))


def test_the_text():
    assert parse("deeper:1 & !path:w") == DeeperThan(1) & ~PathGlob("w")
    assert str(~DeeperThan(2) | "a") == "!deeper:2 | tag:a"
    assert repr(DeeperThan(2)) == "DeeperThan(2)"
    with refused(FilterError, "NQX010", "deeper:", "deeper"):
        parse("deepr:1")
    with refused(TypeError, "filter", "deeper:1"):
        to_predicate("deeper:1")


def test_split_and_its_inverse(net):
    definition, deep, rest = s.split(net, range(1), ...)
    assert list(deep) == [("layers", "a")] and list(rest) == [("w",)]
    assert s.merge(definition, deep, rest) == net
    assert s.filters.axes(net, {DeeperThan(1): 0, ...: None}).layers == {"a": 0}


def test_select_and_inspect(net, tmp_path):
    path = net.export(tmp_path / "ckpt")
    assert Net.load(path, select="deeper:1").w is None
    assert Net.load(path, select=range(1)).layers["a"].shape == (3,)
    assert [row.path for row in s.inspect(path, "deeper:1").rows] == ["$.layers['a']"]
    shown = invoke("inspect", path, "--filter", "deeper:1")
    assert shown.exit_code == 0 and "layers" in shown.stdout
    missed = invoke("inspect", path, "--filter", "deeper:5")
    assert (missed.exit_code, "the deepest has 2 keys" in missed.stdout) == (1, True)


def test_the_report_of_unmatched_parts():
    leaves = [(("w",), 1.0)]
    assert [part.expected for part in unmatched_parts(DeeperThan(3), leaves)] == [
        "a leaf deeper than 3"
    ]


def test_a_missing_member_is_an_error_at_import():
    with pytest.raises(TypeError, match="unmatched"):
        FilterKind(cls=DeeperThan, text=None, literal=None, flax=False)
