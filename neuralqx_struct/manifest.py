"""The document ``manifest.json``: what it may hold, how it is parsed, written and sealed.

Owns one table of node kinds and record members. Three things are made from it: :func:`check_manifest` (one pass without
recursion, every problem at once), the strict Pydantic models (:func:`models`, built when first asked for, because most
processes only check) and the published JSON Schema (:func:`manifest_schema`, generated from the models). Does not look
at array bytes (``payload.py``) nor at files (``bundle.py``), and gives nodes no meaning (``nodes.py``).

Example:
    >>> data = format_manifest({"version": 1, "manifest": {"__kind__": "list", "items": [1, 2]}, "arrays": {}})
    >>> check_manifest(parse_manifest(data)), check_digest(data)
    ([], None)
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from json.encoder import encode_basestring
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.errors import Diagnostic, SerializationError, did_you_mean
from neuralqx_struct.paths import FieldName, format_path

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "DEFAULT_FILE",
    "DEFAULT_LIMITS",
    "FORMAT_VERSION",
    "NODE_KINDS",
    "SCHEMA_URL",
    "WRITER",
    "Limits",
    "check_digest",
    "check_manifest",
    "collector_paused",
    "format_manifest",
    "manifest_schema",
    "models",
    "node_children",
    "parse_manifest",
    "reseal",
]

FORMAT_VERSION: Final = 1
SCHEMA_URL: Final = "https://neuralqx.github.io/neuralqx-struct/schemas/manifest/1.json"
WRITER: Final[Mapping[str, str]] = {"name": "neuralqx-struct", "version": "0.1.0"}
DEFAULT_FILE: Final = "arrays.npz"
_MOST_FINDINGS = 1000
_MOST_PLANS = 500


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a reader takes in before it refuses; larger checkpoints pass a record of their own as ``limits=``.

    Attributes:
        manifest_bytes: Size of ``manifest.json``.
        depth: Nodes inside nodes.
        nodes: Nodes in all.
    """

    manifest_bytes: int = 256 << 20
    depth: int = 200
    nodes: int = 1_000_000


DEFAULT_LIMITS: Final = Limits()

# ---------------------------------------------------------------------------------------------------------------------
# The table. A member ending in "?" may be left out; the value names a row of _RULES or a structure of nodes.

NODE_KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "struct": {"type": "text", "fields": "fields"},
    "array": {"name": "text", "dtype": "text", "shape": "shape", "leaf?": "leaf", "weak_type?": "true"},
    "dict": {"items": "pairs"},
    "ordered-dict": {"items": "pairs"},
    "list": {"items": "nodes"},
    "tuple": {"items": "nodes"},
    "set": {"items": "nodes"},
    "frozenset": {"items": "nodes"},
    "complex": {"real": "part", "imag": "part"},
    "path": {"value": "text"},
    "numpy-scalar": {"dtype": "text", "value": "scalar"},
    "registered-pytree": {"type": "text", "mode": "mode"},  # and the members of its mode, below
    "namedtuple": {"type": "text", "fields": "fields"},
    "bytes": {"base64": "base64"},
    "float": {"value": "nonfinite"},
    "bigint": {"value": "decimal"},
    "enum": {"type": "text", "name": "text"},
    "dtype": {"value": "text"},
    "slice": {"start": "node", "stop": "node", "step": "node"},
    "datetime": {"type": "moment", "value": "text"},
    "prng-key": {"impl": "text", "data": "key-data"},
    "pytree-dataclass": {"type": "text", "fields": "fields"},
    "full": {"dtype": "text", "shape": "shape", "value": "node", "leaf?": "leaf", "weak_type?": "true"},
}
_MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "flatten": {"children": "nodes", "aux": "node"},
    "serializer": {"payload": "node"},
}
_RECORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Manifest": {
        "$schema?": "text",
        "version": "version",
        "schema?": "identity",
        "schemas?": "documents",
        "manifest": "node",
        "arrays": "records",
        "metadata?": "object",
        "writer?": "writer",
        "digest?": "sha256",
    },
    "ArrayRecord": {
        "dtype": "text",
        "shape": "shape",
        "crc32?": "crc32",
        "offset?": "count",
        "nbytes?": "count",
        "file?": "filename",
        "unused?": "true",
    },
    "SchemaIdentity": {"id": "text", "version": "ordinal", "fingerprint": "text"},
    "Writer": {"name": "text", "version": "text"},
}
_PLAIN: Final[Mapping[type, str]] = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string"}
# Which nodes may stand at a place; "node" takes all of them.
_PLACES: Final[Mapping[str, frozenset[str]]] = {
    "node": frozenset({*_PLAIN.values(), *NODE_KINDS}),
    "part": frozenset({"number", "float"}),
    "scalar": frozenset({*_PLAIN.values(), "bigint", "bytes", "complex", "float"}),
    "key-data": frozenset({"array"}),
}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "leaf": ("jax", "numpy"),
    "mode": tuple(_MODES),
    "nonfinite": ("nan", "inf", "-inf"),
    "moment": ("datetime", "date", "time", "timedelta"),
}
_PATTERNS: Final[Mapping[str, tuple[str, str]]] = {
    "base64": ("base64 text", r"^[A-Za-z0-9+/]*={0,2}$"),
    "decimal": ("an integer in decimal digits", r"^-?[0-9]+$"),
    "sha256": ("'sha256:' and 64 hexadecimal digits", r"^sha256:[0-9a-f]{64}$"),
    "filename": ("the plain name of a file beside the manifest", r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$"),
}
_RANGES: Final[Mapping[str, tuple[int, int | None]]] = {
    "count": (0, None),
    "ordinal": (1, None),
    "crc32": (0, 2**32 - 1),
}


def _range_rule(low: int, high: int | None) -> Callable[[Any], bool]:
    if high is None:
        return lambda value: type(value) is int and value >= low
    return lambda value: type(value) is int and low <= value <= high


def _choice_rule(known: tuple[str, ...]) -> Callable[[Any], bool]:
    return lambda value: type(value) is str and value in known


def _pattern_rule(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern[1:-1])
    return lambda value: type(value) is str and compiled.fullmatch(value) is not None


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_shape(value: Any) -> bool:
    if type(value) is not list:
        return False
    for size in value:  # noqa: SIM110 - twice as fast as all(), and this runs once an array
        if type(size) is not int or size < 0:
            return False
    return True


# What a member's value must be: the words of the message, and the test.
_RULES: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "text": ("a string", _is_text),
    "true": ("true", lambda value: value is True),
    "shape": ("a list of integers >= 0", _is_shape),
    "object": ("an object", lambda value: type(value) is dict),
    "documents": ("a list of objects", lambda v: type(v) is list and all(type(item) is dict for item in v)),
    **{name: (" or ".join(map(repr, known)), _choice_rule(known)) for name, known in _CHOICES.items()},
    **{name: (words, _pattern_rule(pattern)) for name, (words, pattern) in _PATTERNS.items()},
    **{
        name: (f"an integer >= {low}" if high is None else f"an integer from {low} to {high}", _range_rule(low, high))
        for name, (low, high) in _RANGES.items()
    },
}


class _Layout:
    """The members of one kind, sorted for the checking pass: rules to test, structures to descend into."""

    __slots__ = ("descent", "known", "places", "plans", "required", "rules")

    def __init__(self, members: Mapping[str, str], *, tagged: bool) -> None:
        names = {name.rstrip("?"): rule for name, rule in members.items()}
        self.rules = {name: _RULES[rule][1] for name, rule in names.items() if rule in _RULES}
        self.places = {name: rule for name, rule in names.items() if rule not in _RULES}
        self.descent = tuple(reversed(self.places.items()))  # onto a stack: the last member first
        self.plans: dict[tuple[Any, ...], tuple[Callable[[Any], bool] | None, ...]] = {}
        self.required = tuple(name for name in members if not name.endswith("?"))
        self.known = {**({"__kind__": "text"} if tagged else {}), **names}
        if tagged:
            self.rules["__kind__"] = _RULES["text"][1]


_LAYOUTS: Final = {
    **{kind: _Layout(members, tagged=True) for kind, members in NODE_KINDS.items()},
    **{
        f"registered-pytree/{mode}": _Layout({**NODE_KINDS["registered-pytree"], **members}, tagged=True)
        for mode, members in _MODES.items()
    },
    **{name: _Layout(members, tagged=False) for name, members in _RECORDS.items()},
}

# ---------------------------------------------------------------------------------------------------------------------
# Checking. A path is a chain (parent, key), turned into text only where something is wrong.

_Chain = Any


def _path(chain: _Chain) -> str:
    keys: list[Any] = []
    while chain:
        chain, key = chain
        keys.append(FieldName(key) if isinstance(key, str) else key)
    return format_path(reversed(keys))


def _shown(value: Any) -> str:
    if type(value) is dict:
        return "an object"
    if type(value) is list:
        return "a list"
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    text = f"{type(value).__name__}" if type(value) not in _PLAIN else repr(value)[:80]
    return text if len(text) < 80 else text[:77] + "..."


class _Findings(list[Diagnostic]):
    """The problems found so far, in the words of the manifest."""

    def add(self, code: str, chain: _Chain, message: str, hint: str | None = None) -> None:
        if len(self) < _MOST_FINDINGS:
            self.append(Diagnostic(code, "error", message, path=_path(chain), hint=hint))

    def members(self, value: dict[str, Any], chain: _Chain, layout: _Layout) -> None:
        """Explain what is wrong with the members of ``value`` that are missing, unknown or of a wrong type."""
        for name in layout.required:
            if name not in value:
                self.add("NQX610", chain, f"expected a member {name!r}, got none")
        for name, member in value.items():
            rule = layout.known.get(name)
            if rule is None:
                if type(name) is not str or not _ignorable(member):
                    self.unknown(name, member, chain, layout)
            elif rule == "shape" and type(member) is list:
                for index, size in enumerate(member):
                    if type(size) is not int or size < 0:
                        code = "NQX614" if type(size) is int else "NQX612"
                        self.add(code, ((chain, name), index), f"expected an integer >= 0, got {_shown(size)}")
            elif rule in _RULES and not layout.rules[name](member):
                same_type = type(member) is (int if rule in _RANGES else str) and rule != "text"
                code = "NQX503" if rule == "filename" else "NQX614" if same_type else "NQX612"
                self.add(code, (chain, name), f"expected {_RULES[rule][0]}, got {_shown(member)}")

    def unknown(self, name: Any, member: Any, chain: _Chain, layout: _Layout) -> None:
        if type(name) is not str:
            self.add("NQX006", chain, f"expected member names to be strings, got {_shown(name)}")
        elif type(member) is dict and member.get("must_understand") is True:
            hint = "a newer version wrote this; upgrade neuralqx-struct to read it"
            self.add("NQX403", (chain, name), f"expected members that this version knows, got {name!r}", hint)
        else:
            hint = did_you_mean(name, layout.known) or f"known members: {', '.join(layout.known)}"
            self.add("NQX611", (chain, name), f"expected no such member, got {name!r}", hint)


def _ignorable(member: Any) -> bool:
    return type(member) is dict and member.get("must_understand") is False


def _sound(value: dict[str, Any], layout: _Layout) -> bool:
    """True if the members are the known ones and satisfy their rules; places are not looked into."""
    names = tuple(value)
    plan = layout.plans.get(names)
    if plan is None:
        plan = _plan(names, layout)
        if plan is None:
            return False
        if len(layout.plans) < _MOST_PLANS:
            layout.plans[names] = plan
    for rule, member in zip(plan, value.values(), strict=True):
        if rule is _is_text:  # the most frequent one, without a call
            if type(member) is not str:
                return False
        elif rule is not None and not rule(member):
            return False
    return True


def _plan(names: tuple[Any, ...], layout: _Layout) -> tuple[Callable[[Any], bool] | None, ...] | None:
    """The rules for members in this order, None for a place; no plan at all if a required one is missing.

    The nodes of a large manifest have few different orders of members, so that plans are made once and found again.
    """
    if not set(layout.required) <= set(names):
        return None
    return tuple(
        None if name in layout.places else layout.rules.get(name, _ignorable if type(name) is str else _never)
        for name in names
    )


def _never(_: Any) -> bool:
    return False


def _layout_of(node: dict[str, Any]) -> _Layout | None:
    kind = node.get("__kind__")
    if kind == "registered-pytree":
        mode = node.get("mode")
        return _LAYOUTS[f"{kind}/{mode}" if type(mode) is str and mode in _MODES else kind]
    return _LAYOUTS[kind] if type(kind) is str and kind in NODE_KINDS else None


def node_children(node: Any) -> Iterator[tuple[str, Any, Any]]:
    """The nodes right below a sound node: member, key inside the member (None for a single node), child.

    Pairs of a dict give two children each, with keys ``(index, 0)`` and ``(index, 1)``.

    Example:
        >>> list(node_children({"__kind__": "list", "items": [7]}))
        [('items', 0, 7)]
    """
    layout = _layout_of(node) if type(node) is dict else None
    for member, place in layout.places.items() if layout is not None else ():
        value = node[member]
        if place == "fields":
            yield from ((member, key, child) for key, child in value.items())
        elif place == "nodes":
            yield from ((member, index, child) for index, child in enumerate(value))
        elif place == "pairs":
            yield from ((member, (index, side), pair[side]) for index, pair in enumerate(value) for side in (0, 1))
        else:
            yield member, None, value


def _check_tree(root: Any, found: _Findings, limits: Limits, *, foreign: bool) -> None:
    stack: list[tuple[Any, _Chain, frozenset[str], int]] = [(root, ((), "manifest"), _PLACES["node"], 1)]
    everywhere, most, deepest, count = _PLACES["node"], limits.nodes, limits.depth, 0
    while stack:
        node, chain, allowed, depth = stack.pop()
        count += 1
        if count > most:
            found.add("NQX005", chain, f"expected at most {most} nodes, got more", "pass limits= to read more")
            return
        if depth > deepest:
            found.add("NQX005", chain, f"expected nodes at most {deepest} deep, got more", "pass limits= to read more")
            continue
        if type(node) is not dict:
            plain = _PLAIN.get(type(node))
            if plain is None or plain not in allowed:
                found.add("NQX612", chain, f"expected {_wanted(allowed)}, got {_shown(node)}")
            elif not foreign and type(node) is float and not isfinite(node):
                hint = 'write {"__kind__": "float", "value": "nan"}, "inf" or "-inf"'
                found.add("NQX013", chain, f"expected a finite number, got {_shown(node)}", hint)
            continue
        layout = _layout_of(node)
        if layout is None:
            _explain_kind(node, chain, found)
            continue
        if allowed is not everywhere and node["__kind__"] not in allowed:
            found.add("NQX612", chain, f"expected {_wanted(allowed)}, got a node of kind {node['__kind__']!r}")
            continue
        if not _sound(node, layout):
            found.members(node, chain, layout)
        for member, place in layout.descent:
            if member in node:
                _descend(node[member], (chain, member), place, depth + 1, stack, found)


def _descend(  # noqa: PLR0917
    value: Any,
    chain: _Chain,
    place: str,
    depth: int,
    stack: list[tuple[Any, _Chain, frozenset[str], int]],
    found: _Findings,
) -> None:
    """Put the nodes at one place of a node on the stack, in an order that makes findings come from top to bottom."""
    allowed = _PLACES.get(place)
    if allowed is not None:
        stack.append((value, chain, allowed, depth))
        return
    allowed = _PLACES["node"]
    if place == "fields":
        if type(value) is not dict:
            found.add("NQX612", chain, f"expected an object of nodes, got {_shown(value)}")
            return
        for name in value:
            if type(name) is not str:
                found.add("NQX006", chain, f"expected member names to be strings, got {_shown(name)}")
        stack.extend([(child, (chain, name), allowed, depth) for name, child in value.items()][::-1])
    elif type(value) is not list:
        what = "nodes" if place == "nodes" else "pairs of nodes"
        found.add("NQX612", chain, f"expected a list of {what}, got {_shown(value)}")
    elif place == "nodes":
        stack.extend([(child, (chain, index), allowed, depth) for index, child in enumerate(value)][::-1])
    else:
        ahead = len(stack)
        for index, pair in enumerate(value):
            if type(pair) is not list or len(pair) != 2:
                found.add("NQX612", (chain, index), f"expected a pair [key, value] of nodes, got {_shown(pair)}")
            else:
                stack.extend((child, ((chain, index), side), allowed, depth) for side, child in enumerate(pair))
        stack[ahead:] = stack[ahead:][::-1]


def _wanted(allowed: frozenset[str]) -> str:
    return "a node" if allowed is _PLACES["node"] else f"a node of kind {' or '.join(sorted(allowed))}"


def _explain_kind(node: dict[str, Any], chain: _Chain, found: _Findings) -> None:
    if "__kind__" not in node:
        found.add("NQX610", chain, "expected a member '__kind__', got none", "dicts are nodes of kind 'dict'")
        return
    kind = node["__kind__"]
    if type(kind) is not str:
        found.add("NQX612", (chain, "__kind__"), f"expected a string, got {_shown(kind)}")
        return
    hint = did_you_mean(kind, NODE_KINDS) or f"known kinds: {', '.join(NODE_KINDS)}"
    found.add("NQX613", (chain, "__kind__"), f"expected a node kind that this version knows, got {_shown(kind)}", hint)


def _check_free(value: Any, chain: _Chain, found: _Findings, limits: Limits, *, foreign: bool) -> None:
    """Free JSON of the user: only that it is JSON, which a document made in memory need not be."""
    stack, count = [(value, chain, 1)], 0
    while stack:
        item, chain, depth = stack.pop()
        count += 1
        if count > limits.nodes or depth > 3 * limits.depth:
            found.add("NQX005", chain, f"expected at most {limits.nodes} values, {3 * limits.depth} deep, got more")
            return
        if type(item) is dict:
            for key, child in item.items():
                if type(key) is not str:
                    found.add("NQX006", chain, f"expected member names to be strings, got {_shown(key)}")
                stack.append((child, (chain, key), depth + 1))
        elif type(item) in (list, tuple):
            stack.extend((child, (chain, index), depth + 1) for index, child in enumerate(item))
        elif type(item) not in _PLAIN:
            found.add("NQX612", chain, f"expected a JSON value, got {_shown(item)}")
        elif not foreign and type(item) is float and not isfinite(item):
            found.add("NQX013", chain, f"expected a finite number, got {_shown(item)}", "JSON has no such number")


def check_manifest(document: Any, *, limits: Limits = DEFAULT_LIMITS) -> list[Diagnostic]:
    """Everything that is wrong with a manifest, without looking at the arrays.

    Args:
        document: The parsed document.
        limits: How large a tree is taken.

    Returns:
        All findings; an empty list says that every member is there and is what it must be.

    Example:
        >>> [d.code for d in check_manifest({"version": 2})]
        ['NQX402']
    """
    found = _Findings()
    if type(document) is not dict:
        found.add("NQX612", (), f"expected an object, got {_shown(document)}")
        return found
    version = document.get("version")
    if type(version) is int and version != FORMAT_VERSION:
        hint = f"this version of neuralqx-struct reads format version {FORMAT_VERSION}; upgrade it to read a newer one"
        found.add("NQX402", ((), "version"), f"expected format version {FORMAT_VERSION}, got {version}", hint)
        return found
    if "version" in document and type(version) is not int:
        found.add("NQX612", ((), "version"), f"expected the integer {FORMAT_VERSION}, got {_shown(version)}")
    foreign = "writer" not in document
    if not _sound(document, _LAYOUTS["Manifest"]):
        found.members(document, (), _LAYOUTS["Manifest"])
    for name, record in (("schema", "SchemaIdentity"), ("writer", "Writer")):
        if name in document:
            _check_record(document[name], ((), name), _LAYOUTS[record], found)
    if "manifest" in document:
        _check_tree(document["manifest"], found, limits, foreign=foreign)
    arrays = document.get("arrays", {})
    if type(arrays) is not dict:
        found.add("NQX612", ((), "arrays"), f"expected an object of array records, got {_shown(arrays)}")
    else:
        layout = _LAYOUTS["ArrayRecord"]
        for name, record in arrays.items():
            if type(name) is not str:
                found.add("NQX006", ((), "arrays"), f"expected array names to be strings, got {_shown(name)}")
            if type(record) is not dict or not _sound(record, layout):
                _check_record(record, (((), "arrays"), name), layout, found)
    for name in ("schemas", "metadata"):
        if name in document:
            _check_free(document[name], ((), name), found, limits, foreign=foreign)
    return found


def _check_record(value: Any, chain: _Chain, layout: _Layout, found: _Findings) -> None:
    if type(value) is not dict:
        found.add("NQX612", chain, f"expected an object, got {_shown(value)}")
    elif not _sound(value, layout):
        found.members(value, chain, layout)


# ---------------------------------------------------------------------------------------------------------------------
# Parsing and formatting, inverse to each other.


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking over a large document again and again while it is being built."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _DuplicateKeyError(Exception):
    pass


class _Pairs(list[tuple[str, Any]]):
    """An object with its duplicate members kept, for the message."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _DuplicateKeyError
    return made


_NOT_MARKS = bytes(set(range(256)) - set(b'"[]{}'))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")


def _nesting_exceeds(data: bytes, limit: int) -> bool:
    """True if brackets outside strings nest deeper than ``limit``: told without recursion, by C loops alone."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = data.translate(_ONE_KIND, _NOT_MARKS).replace(b'""', b"")
    if b'"' in marks:
        marks = b"".join(marks.split(b'"')[::2])
    straight = b"[" * (limit + 1)
    for _ in range(limit):
        before = len(marks)
        if straight in marks:
            return True
        marks = marks.replace(b"[]", b"")  # takes the innermost brackets away; no more than one level of any nest
        if len(marks) == before:
            break
    # What is left is too deep, or does not match: the parser says so, unless it would have to go too deep for that.
    return b"[]" in marks or marks.count(b"[") > limit


def parse_manifest(data: bytes, *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Read strict JSON: UTF-8, no duplicate members, no NaN, bounded size and depth.

    NaN and Infinity pass only where the document names no writer: neuraLQX wrote them.

    Args:
        data: The bytes of ``manifest.json``.
        limits: How much is taken.

    Returns:
        The document; :func:`check_manifest` tells whether it is a manifest.

    Raises:
        SerializationError: It is not strict JSON, not an object, or larger than the limits.
    """
    if len(data) > limits.manifest_bytes:
        message = f"expected a manifest of at most {limits.manifest_bytes} bytes, got {len(data)}"
        raise SerializationError(message, code="NQX005", hint="pass limits= to read more")
    if _nesting_exceeds(data, 3 * limits.depth + 8):
        message = f"expected a manifest whose nodes are at most {limits.depth} deep, got more"
        raise SerializationError(message, code="NQX005", hint="pass limits= to read more")
    constants: list[str] = []

    def constant(token: str) -> float:
        constants.append(token)
        return float(token)

    try:
        text = data.decode("utf-8")
        with collector_paused():
            document = json.loads(text, object_pairs_hook=_unique, parse_constant=constant)
        if b"\\u" in data:
            json.dumps(document, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair is no text
    except UnicodeDecodeError as error:
        message = f"expected UTF-8, got byte 0x{data[error.start]:02x} at byte {error.start}"
        raise SerializationError(message, code="NQX001") from error
    except UnicodeEncodeError as error:
        message = f"expected Unicode text, got half of a surrogate pair: {error.object[error.start : error.end]!r}"
        raise SerializationError(message, code="NQX001") from error
    except _DuplicateKeyError as error:
        raise SerializationError(_duplicates(text)) from error
    except RecursionError as error:
        message = "expected a manifest that fits the stack of this thread, got deeper nesting"
        raise SerializationError(message, code="NQX005", hint="raise sys.setrecursionlimit") from error
    except json.JSONDecodeError as error:
        found = Diagnostic("NQX001", "error", f"expected JSON, got: {error.msg}", line=error.lineno, column=error.colno)
        raise SerializationError(found) from error
    except ValueError as error:  # an integer of more digits than the interpreter converts
        raise SerializationError(f"expected numbers of a sensible length, got: {error}", code="NQX612") from error
    if type(document) is not dict:
        raise SerializationError(f"expected an object, got {_shown(document)}", code="NQX612", path="$")
    if constants and "writer" in document:
        hint = 'write {"__kind__": "float", "value": "nan"}, "inf" or "-inf"'
        raise SerializationError(f"expected strict JSON, got the token {constants[0]}", code="NQX013", hint=hint)
    return document


def _duplicates(text: str) -> list[Diagnostic]:
    found = _Findings()
    stack: list[tuple[Any, _Chain]] = [(json.loads(text, object_pairs_hook=_Pairs), ())]
    while stack:
        value, chain = stack.pop()
        if type(value) is _Pairs:
            seen: set[str] = set()
            for key, child in value:
                if key in seen:
                    found.add("NQX014", (chain, key), f"expected every member once, got {_shown(key)} again")
                seen.add(key)
                stack.append((child, (chain, key)))
        elif type(value) is list:
            stack.extend((child, (chain, index)) for index, child in enumerate(value))
    return found


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_ORDER: Final = tuple(name.rstrip("?") for name in _RECORDS["Manifest"])
_DIGEST_LINE: Final = re.compile(rb'\n(?P<line>[ \t]*"digest": "(?P<digest>sha256:[0-9a-f]{64})"\s*\}\s*)\Z')
_CONTAINERS = (dict, list, tuple)


def _one_line(value: Any) -> bool:
    """True if a value is printed on one line: a scalar, or a container of scalars and of lists of scalars."""
    if not isinstance(value, _CONTAINERS):
        return True
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, _CONTAINERS):
            if isinstance(item, dict):
                return not item and len(value) == 1
            for part in item:
                if isinstance(part, _CONTAINERS):
                    return False
    return True


def _print(value: Any, indent: str) -> str:
    """JSON for people: what fits is on one line, everything else is indented. Works on a stack, not by recursion."""
    out: list[str] = []
    stack: list[str | tuple[Any, str]] = [(value, indent)]
    encode = _ENCODER.encode
    while stack:
        task = stack.pop()
        if isinstance(task, str):
            out.append(task)
            continue
        item, pad = task
        if _one_line(item):
            out.append(encode(item))
            continue
        inner = pad + "  "
        tasks: list[str | tuple[Any, str]] = []
        if isinstance(item, dict):
            before = "{\n"
            for key, child in item.items():
                tasks += [f"{before}{inner}{encode_basestring(key)}: ", (child, inner)]
                before = ",\n"
            tasks.append(f"\n{pad}}}")
        else:
            before = "[\n"
            for child in item:
                tasks += [before + inner, (child, inner)]
                before = ",\n"
            tasks.append(f"\n{pad}]")
        stack.extend(reversed(tasks))
    return "".join(out)


def _print_arrays(records: Mapping[str, Any]) -> str:
    encode = _ENCODER.encode
    lines = [f"    {encode_basestring(name)}: {encode(record)}" for name, record in records.items()]
    return "{\n" + ",\n".join(lines) + "\n  }" if lines else "{}"


def format_manifest(document: Mapping[str, Any]) -> bytes:
    """The bytes of ``manifest.json``: the same for the same document, one record per line, the digest at the end.

    Args:
        document: A document that :func:`check_manifest` has nothing against; its ``digest`` is computed anew.

    Raises:
        SerializationError: It holds something that strict JSON cannot say.

    Example:
        >>> print(format_manifest({"version": 1, "manifest": 5, "arrays": {}}).decode()[:54])
        {
          "version": 1,
          "manifest": 5,
          "arrays": {},
          "
    """
    names = [*(name for name in _ORDER if name in document), *(name for name in document if name not in _ORDER)]
    try:
        with collector_paused():
            members = [
                f"  {_ENCODER.encode(name)}: "
                + (_print_arrays(document[name]) if name == "arrays" else _print(document[name], "  "))
                for name in names
                if name != "digest"
            ]
        body = ("{\n" + "".join(f"{member},\n" for member in members)).encode("utf-8")
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        findings = check_manifest(dict(document))
        raise SerializationError(findings or f"expected JSON values, got: {error}", code="NQX612") from error
    return body + _digest_line(body)


def _digest_line(body: bytes) -> bytes:
    return b'  "digest": "sha256:' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def reseal(data: bytes) -> bytes:
    """The same manifest with the digest of its present bytes; everything before the digest's line stays as it is.

    Raises:
        SerializationError: There is no digest line yet and the text is not strict JSON.
    """
    if found := _DIGEST_LINE.search(data, max(0, len(data) - 4096)):
        body = data[: found.start("line")]
        return body + _digest_line(body)
    return format_manifest(parse_manifest(data))


def check_digest(data: bytes) -> Diagnostic | None:
    """What is wrong with the digest of these bytes, or None.

    Args:
        data: The bytes of ``manifest.json``.
    """
    hint = "the file was changed after it was written; if that was you, run bundle.seal(path)"
    found = _DIGEST_LINE.search(data, max(0, len(data) - 4096))
    if found is None:
        message = "expected the digest as the last member, on a line of its own, got none there"
        return Diagnostic("NQX407", "error", message, path="$.digest", hint=hint)
    digest = "sha256:" + hashlib.sha256(data[: found.start("line")]).hexdigest()
    if found["digest"].decode() == digest:
        return None
    message = f"expected {digest}, got {found['digest'].decode()}"
    return Diagnostic("NQX407", "error", message, path="$.digest", hint=hint)


# ---------------------------------------------------------------------------------------------------------------------
# The same table as Pydantic models, and the JSON Schema that they generate.


@cache
def models() -> Mapping[str, type[BaseModel]]:
    """Strict Pydantic models: one a node kind (a union told apart by ``__kind__``), and ``Manifest`` for the document.

    Built when first asked for: importing Pydantic takes longer than checking a manifest.

    Example:
        >>> models()["Manifest"].model_validate({"version": 1, "manifest": None, "arrays": {}}).version_
        1
    """
    from typing import Annotated, Literal, Union

    from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, create_model
    from typing_extensions import TypeAliasType

    number = Union[Annotated[int, Field(strict=True)], Annotated[float, Field(allow_inf_nan=False)]]  # noqa: UP007
    count = Annotated[int, Field(ge=0)]

    def exactly(kind: type) -> Any:
        """Literals compare by equality, and True equals 1: ask for the type as well."""

        def judge(value: Any) -> Any:
            if type(value) is not kind:
                raise ValueError(f"expected {kind.__name__}")
            return value

        return BeforeValidator(judge)

    class Extension(BaseModel):
        """A member that a reader may pass over."""

        model_config = ConfigDict(extra="allow", strict=True)
        must_understand: Annotated[Literal[False], exactly(bool)]

    class Record(BaseModel):
        model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())
        __pydantic_extra__: dict[str, Extension] = Field(init=False)

    namespace: dict[str, Any] = {}

    def names(annotation: str) -> Any:
        return annotation

    annotations: dict[str, Any] = {
        "text": str,
        "true": Annotated[Literal[True], exactly(bool)],
        "shape": list[count],
        "object": dict[str, Any],
        "documents": list[dict[str, Any]],
        "version": Annotated[Literal[1], exactly(int)],
        "fields": names("dict[str, Node]"),
        "nodes": names("list[Node]"),
        "pairs": names("list[Pair]"),
        "node": names("Node"),
        "part": names("Part"),
        "scalar": names("Scalar"),
        "key-data": names("KeyData"),
        "identity": names("SchemaIdentity"),
        "writer": names("Writer"),
        "records": names("dict[str, ArrayRecord]"),
        **{name: Literal[known] for name, known in _CHOICES.items()},
        **{name: Annotated[str, Field(pattern=pattern)] for name, (_, pattern) in _PATTERNS.items()},
        **{name: Annotated[int, Field(ge=low, le=high)] for name, (low, high) in _RANGES.items()},
    }

    def model(name: str, members: Mapping[str, str], **tags: str) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for member, rule in members.items():
            key = member.rstrip("?")
            field = Field(None, alias=key) if member.endswith("?") else Field(alias=key)
            attribute = re.sub(r"\W", "", key) + "_"
            annotation = Literal[tags[key]] if key in tags else annotations[rule]
            fields["dollar_schema" if key == "$schema" else attribute] = (annotation, field)
        if "__kind__" in tags:
            fields["kind"] = (Literal[tags["__kind__"]], Field(alias="__kind__"))
        return create_model(name, __base__=Record, **fields)

    def titled(kind: str) -> str:
        return "".join(part.capitalize() for part in re.split(r"[-/]", kind)) + "Node"

    kinds = {
        kind: model(titled(kind), members, __kind__=kind)
        for kind, members in NODE_KINDS.items()
        if kind != "registered-pytree"
    }
    for mode, members in _MODES.items():
        tag = f"registered-pytree/{mode}"
        pytree = {**NODE_KINDS["registered-pytree"], **members}
        kinds[tag] = model(titled(tag), pytree, __kind__="registered-pytree", mode=mode)
    plain: dict[str, Any] = {"null": None, "boolean": bool, "number": number, "string": str}

    def tag_of(value: Any) -> str | None:
        if type(value) is not dict:
            return _PLAIN.get(type(value))
        kind = value.get("__kind__")
        if kind == "registered-pytree":
            return f"{kind}/{value.get('mode')}"
        return kind if type(kind) is str and kind not in plain else None

    def union(name: str, allowed: frozenset[str]) -> Any:
        choices = [Annotated[annotation, Tag(tag)] for tag, annotation in plain.items() if tag in allowed]
        choices += [Annotated[cls, Tag(tag)] for tag, cls in kinds.items() if tag.partition("/")[0] in allowed]
        return TypeAliasType(name, Annotated[Union[tuple(choices)], Discriminator(tag_of)])  # noqa: UP007

    records = {name: model(name, members) for name, members in _RECORDS.items()}
    for name, place in (("Node", "node"), ("Part", "part"), ("Scalar", "scalar"), ("KeyData", "key-data")):
        namespace[name] = union(name, _PLACES[place])
    namespace["Pair"] = TypeAliasType("Pair", Annotated[list["Node"], Field(min_length=2, max_length=2)])  # type: ignore[name-defined]  # noqa: F821
    namespace |= records
    for built in (*kinds.values(), *records.values()):
        built.model_rebuild(_types_namespace=namespace)
    return {**kinds, **records}


def manifest_schema() -> dict[str, Any]:
    """The published JSON Schema of ``manifest.json``, generated from :func:`models`.

    It uses only keywords that mean the same in draft-07 and in 2020-12. Nodes are dispatched on their tag by ``if`` and
    ``then``, so that a validator reports what is wrong with the one kind that was meant.
    """
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def tagged_union_schema(self, schema: Any) -> Any:
            types: list[str] = []
            branches: dict[str, Any] = {}
            for tag, choice in schema["choices"].items():
                if tag in NODE_KINDS or "/" in tag:
                    branches[tag] = self.generate_inner(choice)
                else:
                    types.append(tag)
            whole: dict[str, Any] = {"type": [*types, "object"] if branches else types}
            if branches:
                whole |= {"if": {"type": "object"}, "then": dispatch(branches)}
            return whole

    def dispatch(branches: dict[str, Any]) -> dict[str, Any]:
        kinds = list(dict.fromkeys(tag.partition("/")[0] for tag in branches))
        rules = []
        for tag, target in branches.items():
            kind, _, mode = tag.partition("/")
            tags: dict[str, Any] = {"__kind__": {"const": kind}} | ({"mode": {"const": mode}} if mode else {})
            rules.append({"if": {"required": list(tags), "properties": tags}, "then": target})
        modes = {"mode": {"enum": list(_MODES)}}
        if "registered-pytree" in kinds:
            pytree = {"__kind__": {"const": "registered-pytree"}}
            then = {"required": ["mode"], "properties": modes}
            rules.append({"if": {"required": ["__kind__"], "properties": pytree}, "then": then})
        return {"required": ["__kind__"], "properties": {"__kind__": {"enum": kinds}}, "allOf": rules}

    made = models()["Manifest"].model_json_schema(
        schema_generator=Generator, ref_template="#/definitions/{model}", mode="validation"
    )
    definitions = made.pop("$defs")
    for definition in (made, *definitions.values()):
        _tidy(definition)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_URL,
        "title": "neuralqx-struct manifest.json, format version 1",
        **made,
        "definitions": definitions,
    }


def _tidy(schema: Any) -> None:
    """Drop the titles and null defaults that Pydantic puts everywhere: an absent member is not a null."""
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            if isinstance(item.get("title"), str):
                del item["title"]
            if item.get("default", 0) is None:
                del item["default"]
            stack.extend(item.values())
