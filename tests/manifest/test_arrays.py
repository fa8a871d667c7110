"""Mappings of arrays: what is fetched, made and chosen, and when."""

import numpy as np
import pytest

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.manifest.lazy_reading import MigratedArrays
from neuralqx_struct.manifest.payload import HeldArrays, StoredArrays


def test_held_arrays_are_fetched_made_and_chosen_by_name():
    fetched = []
    arrays = HeldArrays(
        {"a": [1, 2], "b": [3]},
        lambda items: fetched.append(items) or np.array(items),
        made={"c": lambda: np.zeros(1), "b": lambda: np.ones(1)},
        names=["c", "a", "b"],
    )
    assert (
        list(arrays) == ["c", "a", "b"] and len(arrays) == 3 and "a" in arrays and "d" not in arrays
    )
    assert fetched == []
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "c": [0],
        "a": [1, 2],
        "b": [1],
    }
    assert fetched == [[1, 2]]
    assert arrays.original("a") == [1, 2] and arrays.original("c").tolist() == [0]
    assert arrays.verify("a") is arrays.verify("c") is None
    chosen = HeldArrays({"a": np.ones(1), "b": np.ones(1)}, names=["b"])
    for absent in ("a", "z"):
        with pytest.raises(KeyError):
            chosen[absent]
        with pytest.raises(KeyError):
            chosen.original(absent)


class Filed(StoredArrays):
    """Arrays that know how they were asked for."""

    def __init__(self, arrays):
        super().__init__(arrays)
        self.arrays, self.asked, self.expected = arrays, [], []

    def __getitem__(self, name):
        self.asked.append(name)
        return self.arrays[name]

    def expect(self, names):
        self.expected += names

    def verify(self, name):
        return Diagnostic("NQX407", "error", f"not {name}")

    def parts(self, name, regions):
        regions = list(regions)
        self.asked.append((name, len(regions)))
        return (self.arrays[name][region] for region in regions)


def test_parts_are_read_by_whoever_has_the_array():
    filed = Filed({"a": np.arange(4), "b": np.arange(3)})
    arrays = HeldArrays(
        filed, made={"b": lambda: np.arange(6), "c": lambda: np.arange(5)}, names=["a", "b", "c"]
    )
    halves = [(slice(0, 2),), (slice(2, 4),)]
    assert [part.tolist() for part in arrays.parts("a", halves)] == [[0, 1], [2, 3]]
    assert filed.asked == [("a", 2)]
    assert [part.tolist() for part in arrays.parts("b", halves)] == [[0, 1], [2, 3]]
    assert [part.tolist() for part in HeldArrays({"a": range(9)}, np.array).parts("a", halves)] == [
        [0, 1],
        [2, 3],
    ]
    assert filed.asked == [("a", 2)]
    assert arrays.verify("a").message == "not a" and arrays.verify("b") is None
    with pytest.raises(KeyError):
        list(HeldArrays(filed, names=["a"]).parts("b", halves))


def test_arrays_after_steps_ask_their_sources():
    filed = Filed({"a": np.arange(4), "b": np.arange(3), "c": np.arange(2)})
    before = MigratedArrays(filed)
    turned = before.lazy("a", "int64", (4,)).reshaped((2, 2))
    before.lazy("b", "int64", (3,))
    after = before.followed({"turned": turned}, ["turned", "b", "c"])
    after.expect(after)
    assert filed.expected == ["a", "b", "c"]
    assert not any(map(after.divisible, after)) and not filed.divisible("a")
    assert after["turned"].tolist() == [[0, 1], [2, 3]] and after["b"].tolist() == [0, 1, 2]
    assert after.order == "all"
    plain = MigratedArrays({"a": np.arange(4)})
    plain.expect(plain)  # in memory nothing has to be fetched
    HeldArrays({"a": np.arange(4)}).expect(plain)
    assert plain["a"].tolist() == [0, 1, 2, 3]
