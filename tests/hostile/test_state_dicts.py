"""State dicts in memory, which hold objects that no file can: they end in errors of this package, or in a value."""

import copy
import random
from collections import OrderedDict, UserDict
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

import neuralqx_struct as s
from tests.builders import cases

GOLDEN = Path("tests/golden/format-1/vmc_state_1")


class Word(str):
    __slots__ = ()


class Angry(str):
    __slots__ = ()

    def __eq__(self, other):
        raise RuntimeError

    def __hash__(self):
        raise RuntimeError


class Whole(int):
    pass


class Size(IntEnum):
    A = 1


class Items(list):
    pass


class Members(dict):
    pass


LOOP = []
LOOP.append(LOOP)
NODE = {"__kind__": "list", "items": []}
NODE["items"].append(NODE)
VALUES = [
    Word("list"),
    Angry("list"),
    Whole(2),
    Size.A,
    True,
    None,
    -1,
    10**5000,
    float("nan"),
    "\ud800",
    "x\n\x1b[31m",
    b"x",
    {1},
    (1, 2),
    object(),
    lambda: 0,
    np.int64(3),
    np.float32(1),
    np.str_("list"),
    np.zeros(2),
    Items([1]),
    Members({"a": 1}),
    OrderedDict(a=1),
    UserDict(a=1),
    {1: 2},
    {None: 1},
    LOOP,
    NODE,
    {Word("__kind__"): "list", "items": []},
    {"__kind__": Word("list"), "items": []},
    {"__kind__": "list", "items": (1, 2)},
    {"__kind__": "list", "items": Items([1])},
]


@pytest.fixture(scope="module")
def state(root):
    schema = s.load_schema(root / "schemas/vmc_state")
    held = {
        "vmc": schema.load(root / GOLDEN),
        (1, "k"): [b"x", 2**70, slice(1), {3}, 1j, np.float32(2)],
    }
    return s.to_state_dict(held)


def places(value, path=()):
    """The paths of everything inside a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield (*path, key)
        if isinstance(value[key], (dict, list)):
            yield from places(value[key], (*path, key))


def damaged(document, path, value):
    made = copy.deepcopy(document)
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return made


@pytest.mark.parametrize("seed", range(cases(3)))
def test_objects_that_no_file_holds_end_in_errors_of_this_package(state, seed):
    document = {name: value for name, value in state.items() if name != "array_data"}
    dice = random.Random(seed)
    outcomes = set()
    for path in dice.sample(list(places(document)), 25):
        for value in VALUES:
            made = damaged(document, path, value)
            try:
                s.from_state_dict({**made, "array_data": state["array_data"]})
                outcomes.add("value")
            except s.SerializationError as error:
                assert str(error)
                outcomes.add(error.code)
    assert len(outcomes) > 3
