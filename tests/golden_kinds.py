"""What `golden/format-1-kinds/values` holds, and the classes that it names; written once, see `golden/README.md`."""

import datetime as dt
import enum
import pathlib
import types
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

import flax.core
import jax
import numpy as np

import neuralqx_struct as s


@dataclass
class Point:
    x: float
    y: object


class State(s.Struct):
    w: object
    n: int = s.field(static=True)


class Couple(NamedTuple):
    a: int
    b: object


class Colour(enum.Enum):
    RED = "r"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Pair:
    """Registered with its static attribute beside its child: mode flatten."""

    def __init__(self, w, n):
        self.w, self.n = w, n

    def __eq__(self, other):
        return type(other) is Pair and bool((self.w == other.w).all()) and self.n == other.n


class Serialized:
    """Registered with a serializer that says everything: mode serializer."""

    def __init__(self, words):
        self.words = words

    def __eq__(self, other):
        return type(other) is Serialized and self.words == other.words


s.register_attrs_type(Pair, node_fields=("w",), static_fields=("n",))
s.register_pytree_type(
    Serialized,
    flatten=lambda value: ((), tuple(value.words)),
    unflatten=lambda aux, _: Serialized(list(aux)),
    serializer=lambda value: {"words": value.words},
    deserializer=lambda payload: Serialized(payload["words"]),
)


def values():
    """Each kind that the first golden bundles do not hold."""
    shared = np.arange(3)
    return {
        "defaultdict": defaultdict(list, {"b": [1], "a": []}),
        "counter": Counter("abracadabra"),
        "mapping-proxy": types.MappingProxyType({"k": 1.5}),
        "ordered-dict": OrderedDict([("z", 1), ("a", 2)]),
        "deque": deque([1, "two"], maxlen=3),
        "endless-deque": deque([None]),
        "range": range(2**70, 0, -3),
        "bytearray": bytearray(b"\x00\xff"),
        "reference": jax.nn.gelu,
        "reference-type": np.float32,
        "pure-paths": [pathlib.PurePosixPath("/a/b"), pathlib.PureWindowsPath("c:/d")],
        "moments": [dt.datetime(2026, 11, 21, 18, 30, tzinfo=dt.UTC), dt.time(1, 2, 3, 4)],
        "dataclass": Point(1.5, np.zeros(2, "int8")),
        "pair": Pair(np.arange(2.0), "n"),
        "serialized": Serialized(["a", 1]),
        "frozen-dict": flax.core.FrozenDict(
            {"kernel": np.ones((2, 1), "float16"), "bias": {"b": np.ones(1)}}
        ),
        "struct": State(np.ones(2), 3),
        "namedtuple": Couple(1, np.zeros(1)),
        "enums": [Colour.RED, Access.READ | Access.WRITE, Access(0)],
        "shared": [shared, shared],
        "keys": {(1, "a"): 1, None: 2, 2.5: 3, True: 4, b"b": 5, 7: 6},
    }
