"""Declarations and values of random histories, and values as manifest nodes and back."""

import base64
import json
import math
import string
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np

IDENTITY = "lab.h"
SIZES = "nmkp"
FIELDS = "abcdefnm"
DTYPES = [
    *("int8", "int32", "uint8", "float16", "float32", "float64", "complex64", "complex128", "bool"),
]
FAMILIES = {
    "floating": ["float16", "float32", "float64"],
    "integer": ["int8", "int32", "uint8"],
    "number": ["int8", "float32", "complex64", "complex128"],
}
#: The members of a field that limit its values.
LIMITS = {
    *("ge", "gt", "le", "lt", "multiple_of", "finite", "choices", "min_length", "max_length"),
    "pattern",
}
LOCAL, FREE = "local", "_"


@dataclass
class Field:
    """A field: its type as a tuple, and the members beside the type."""

    type: tuple
    members: dict = field(default_factory=dict)


@dataclass
class Struct:
    """A struct.

    Attributes:
        unstored: The declarations of fields that payloads do not hold, by name; derived fields are elsewhere.
    """

    params: list = field(default_factory=list)
    fields: dict = field(default_factory=dict)
    aliases: list = field(default_factory=list)
    unstored: dict = field(default_factory=dict)

    @property
    def names(self):
        """The names that are taken."""
        return {*self.fields, *self.unstored}

    @property
    def unfilled(self):
        """The fields that no payload and no default gives a value."""
        return [name for name, members in self.unstored.items() if "default" not in members]


@dataclass
class Version:
    """One version of the schema."""

    number: int = 1
    dims: dict = field(default_factory=dict)
    enums: dict = field(default_factory=dict)
    aliases: dict = field(default_factory=dict)  # former names of members, by member
    defaults: dict = field(default_factory=dict)  # what unknown members become, by enum
    dtypes: dict = field(default_factory=dict)
    structs: dict = field(default_factory=dict)
    root: str = "R"
    steps: list | None = None
    compatibility: str = "backward"
    identity: str = IDENTITY
    used: object = None
    constraints: list = field(default_factory=list)
    derived: list = field(default_factory=list)

    @property
    def prefix(self):
        """What the names of its structs begin with in another schema, and in values."""
        return "" if self.identity == IDENTITY else f"{self.identity}."

    def enum(self, name):
        """An enum, with the former names of members that it has, and its default."""
        members = self.enums[name]
        former = {m: [a for a in self.aliases.get(m, []) if a not in members] for m in members}
        former = {member: names for member, names in former.items() if names}
        default = self.defaults.get(name)
        others = ({"aliases": former} if former else {}) | (
            {"default": default} if default in members else {}
        )
        return {"members": members, **others} if others else members

    def holder(self, name):
        """The version that declares a struct, and its name there."""
        used = self.used is not None and name.startswith(self.used.prefix)
        return (self.used, name.removeprefix(self.used.prefix)) if used else (self, name)

    def conditions(self, struct):
        """The member `constraints` of a struct."""
        found = [each.text(self) for each in self.constraints if each.struct is struct]
        return {"constraints": [{"expr": text} for text in found]} if found else {}

    def data(self):
        """The version as the content of a schema file."""
        found = {
            "language": "1",
            "schema": self.identity,
            "uses": [f"{self.used.identity}@{self.used.number}"] if self.used else [],
            "version": self.number,
            "root": self.root,
            "compatibility": self.compatibility,
            "dims": self.dims,
            "enums": {name: self.enum(name) for name in self.enums},
            "dtypes": self.dtypes,
            "structs": {
                name: {
                    **({"params": struct.params} if struct.params else {}),
                    **({"aliases": struct.aliases} if struct.aliases else {}),
                    "fields": {
                        key: {"type": text(held.type), **held.members}
                        for key, held in struct.fields.items()
                    }
                    | struct.unstored
                    | {
                        each.name: each.data(self) for each in self.derived if each.struct is struct
                    },
                    **self.conditions(struct),
                }
                for name, struct in self.structs.items()
            },
        }
        if self.steps:
            found["migrations"] = [{"from": self.number - 1, "steps": self.steps}]
        return {key: value for key, value in found.items() if value not in ({}, [])}


def text(kind):
    """A type as schema files write it."""
    match kind:
        case ("array", dtype, extents):
            return f"{dtype}[{', '.join(map(str, extents))}]"
        case ("key", impl, extents):
            return f"prng_key[{', '.join(map(str, (impl, *extents)))}]"
        case ("null", inner):
            return f"{text(inner)} | null"
        case ("union", *branches):
            return " | ".join(map(text, branches))
        case ("list", inner):
            return f"list[{text(inner)}]"
        case ("items", inner, length):
            return f"list[{text(inner)}, {length}]"
        case ("stack", ("struct", name, args), size):
            return f"{name}[{', '.join(map(str, args))}][{size}]"
        case ("dict", inner):
            return f"dict[str, {text(inner)}]"
        case ("tuple*", inner):
            return f"tuple[{text(inner)}, ...]"
        case ("tuple", *inner):
            return f"tuple[{', '.join(map(text, inner))}]"
        case ("struct", name, args):
            return f"{name}[{', '.join(map(str, args))}]" if args else name
        case ("literal", *values):
            return f"literal[{', '.join(map(json.dumps, values))}]"
        case ("enum", name) | (name,):
            return name
    raise AssertionError(kind)


#: How many words a key has, by the name of its algorithm.
WORDS = {"threefry2x32": 2, "rbg": 4}


def inner_types(kind):
    """The types inside a type, and itself."""
    yield kind
    for part in kind[1:] if kind[0] not in ("array", "key", "struct") else ():
        if isinstance(part, tuple):
            yield from inner_types(part)


def shows_members(version):
    """True if the root holds a member by itself: beside other options, a text that is gone from the enum may be theirs."""
    types = [held.type for s in version.structs.values() for held in s.fields.values()]
    inner = [each for kind in types for each in inner_types(kind)]
    shared = any(each[0] == "union" and ("enum", "E") in each for each in inner)
    alone = [("enum", "E"), ("null", ("enum", "E"))]
    root = version.structs[version.root].fields.values()
    return not shared or any(held.type in alone for held in root)


def arrays_of(kind):
    return [t for t in inner_types(kind) if t[0] == "array"]


def extents_of(version):
    """Every array type of a version, with its struct."""
    for name, struct in version.structs.items():
        for held in struct.fields.values():
            for kind in arrays_of(held.type):
                yield name, kind


def names_in(extent):
    if isinstance(extent, int):
        return set()
    return {c for c in str(extent) if c in string.ascii_letters}


@dataclass
class Instance:
    """An instance of a struct; `sizes` are the sizes that its shapes see, by name."""

    struct: str
    fields: dict
    sizes: dict = field(default_factory=dict)


class Member(str):
    """A member of the enum; in a payload it is a text.

    Attributes:
        others: The texts that later options of a union take where the enum does not; None for all.
    """

    __slots__ = ("others",)

    def __new__(cls, text, others=()):
        made = super().__new__(cls, text)
        made.others = others
        return made

    def named(self, names):
        """The member under the name that it gets, if any."""
        return Member(names.get(self, self), self.others)


def in_union(text, branches):
    """A text of a union: a member where the enum may take it before other options, now or in a later version."""
    for position, branch in enumerate(branches):
        if branch[0] == "enum":
            after = branches[position + 1 :]
            literals = [x for b in after if b[0] == "literal" for x in b[1:]]
            return Member(text, None if ("str",) in after else literals)
        if branch == ("str",) or (branch[0] == "literal" and text in branch[1:]):
            return str(text)
    return text


@dataclass
class Items:
    """A tuple of fixed length."""

    items: list


@dataclass
class Key:
    """A typed random key, or an array of them; the last axis of the words are those of one key."""

    impl: str
    words: np.ndarray


@dataclass
class Stack:
    """Instances of a struct that a payload holds stacked: the first `count` of them, as there may be none."""

    layers: list
    count: int

    def whole(self):
        """The one instance with stacked arrays."""
        return stacked(self.layers, self.count)


def stacked(values, count):
    """Values of one structure as one value."""
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.stack(values)[:count]
    if isinstance(first, Key):
        return Key(first.impl, stacked([value.words for value in values], count))
    if isinstance(first, Instance):
        fields = {key: stacked([v.fields[key] for v in values], count) for key in first.fields}
        return Instance(first.struct, fields)
    if isinstance(first, Stack):
        return stacked([value.whole() for value in values], count)
    if isinstance(first, list):
        return [stacked(each, count) for each in zip(*values, strict=True)]
    if isinstance(first, Items):
        return Items(stacked([value.items for value in values], count))
    if isinstance(first, dict):
        return {key: stacked([v[key] for v in values], count) for key in first}
    return first


def instances(value):
    """The instances in a value, the outermost first."""
    if isinstance(value, Instance):
        yield value
        for inner in list(value.fields.values()):
            yield from instances(inner)
    elif isinstance(value, Stack):
        yield from instances(value.layers)
    elif isinstance(value, list):
        for inner in value:
            yield from instances(inner)
    elif isinstance(value, Items):
        yield from instances(value.items)
    elif isinstance(value, dict):
        yield from instances(list(value.values()))


def mapped(value, change):
    """A value with `change` applied to everything in it, innermost first."""
    if isinstance(value, Instance):
        value.fields = {key: mapped(inner, change) for key, inner in value.fields.items()}
    elif isinstance(value, Stack):
        value.layers = mapped(value.layers, change)
    elif isinstance(value, Key):
        value.words = mapped(value.words, change)
    elif isinstance(value, list):
        value = [mapped(inner, change) for inner in value]
    elif isinstance(value, Items):
        value = Items([mapped(inner, change) for inner in value.items])
    elif isinstance(value, dict):
        value = {key: mapped(inner, change) for key, inner in value.items()}
    return change(value)


def same(a, b):
    """Whether two values are the same, bit by bit; stacked instances by their stacked arrays."""
    a, b = (x.whole() if isinstance(x, Stack) else x for x in (a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, str) and isinstance(b, str):
        return str(a) == str(b)
    if type(a) is not type(b):
        return False
    match a:
        case Instance():
            return a.struct == b.struct and same(a.fields, b.fields)
        case Items():
            return same(a.items, b.items)
        case Key():
            return a.impl == b.impl and same(a.words, b.words)
        case dict():
            return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
        case list():
            return len(a) == len(b) and all(map(same, a, b))
        case float() | complex():
            return repr(a) == repr(b)
    return a == b


def to_node(value, version, arrays, path=""):
    """A value as a manifest node; its arrays go to `arrays`."""
    match value:
        case np.ndarray():
            arrays[path] = value
            shape = list(value.shape)
            record = {"name": path, "dtype": str(value.dtype), "shape": shape, "leaf": "numpy"}
            return {"__kind__": "array", **record}
        case Stack():
            return to_node(value.whole(), version, arrays, path)
        case Instance():
            inner = {
                key: to_node(item, version, arrays, f"{path}/{key}".lstrip("/"))
                for key, item in value.fields.items()
            }
            owner, name = version.holder(value.struct)
            ref = f"{owner.identity}@{owner.number}:{name}"
            return {"__kind__": "struct", "type": ref, "fields": inner}
        case Key():
            words = to_node(value.words, version, arrays, path)
            return {"__kind__": "prng-key", "impl": value.impl, "data": words}
        case Member():
            return str(value)
        case bytes():
            return {"__kind__": "bytes", "base64": base64.b64encode(value).decode()}
        case PurePosixPath():
            return {"__kind__": "path", "value": str(value)}
        case np.dtype():
            return {"__kind__": "dtype", "value": str(value)}
        case complex():
            return {"__kind__": "complex", "real": value.real, "imag": value.imag}
        case float() if not math.isfinite(value):
            return {"__kind__": "float", "value": str(value)}
        case list() | Items():
            items = value if isinstance(value, list) else value.items
            inner = [to_node(x, version, arrays, f"{path}/{i}") for i, x in enumerate(items)]
            return {"__kind__": "list" if isinstance(value, list) else "tuple", "items": inner}
        case dict():
            pairs = [[k, to_node(x, version, arrays, f"{path}/{k}")] for k, x in value.items()]
            return {"__kind__": "dict", "items": pairs}
    return value


def from_node(node, arrays):
    """The inverse of `to_node`."""
    if not isinstance(node, dict):
        return node
    match node["__kind__"]:
        case "array":
            return np.asarray(arrays[node["name"]])
        case "full":
            return np.full(node["shape"], from_node(node["value"], arrays), node["dtype"])
        case "complex":
            return complex(from_node(node["real"], arrays), from_node(node["imag"], arrays))
        case "float":
            return float(node["value"])
        case "prng-key":
            return Key(node["impl"], from_node(node["data"], arrays))
        case "bytes":
            return base64.b64decode(node["base64"])
        case "path":
            return PurePosixPath(node["value"])
        case "dtype":
            return np.dtype(node["value"])
        case "struct":
            inner = {key: from_node(x, arrays) for key, x in node["fields"].items()}
            identity, _, name = node["type"].partition("@")
            prefix = "" if identity == IDENTITY else f"{identity}."
            return Instance(prefix + name.partition(":")[2], inner)
        case "list":
            return [from_node(x, arrays) for x in node["items"]]
        case "tuple":
            return Items([from_node(x, arrays) for x in node["items"]])
        case "dict":
            return {key: from_node(x, arrays) for key, x in node["items"]}
        case "numpy-scalar":
            return np.asarray(node["value"], node["dtype"])[()]
    raise AssertionError(node)


def evaluate(extent, sizes):
    """The value of an extent; names are looked up in the sizes that the instance sees."""
    return extent if isinstance(extent, int) else eval(str(extent), {}, sizes)


def visible(new, struct):
    """The sizes that every instance of a struct shows: its parameters aside, plain extents of its arrays."""
    found = set()
    for held in new.structs[struct].fields.values():
        if held.type[0] == "array":
            found |= {e for e in held.type[2] if isinstance(e, str) and e in string.ascii_letters}
    return sorted(found)
