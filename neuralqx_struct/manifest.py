"""The check of a manifest: one pass over ``manifest.json`` without recursion, every problem at once.

Owns :func:`check_manifest`, the limits of readers and the constants of the format. What a manifest may hold stands in the
tables of ``manifest_grammar.py``, and whether members are that is told by ``manifest_rules.py``; ``manifest_schema.py`` publishes
the tables as a JSON Schema, and ``manifest_text.py`` turns documents into bytes and back. Does not look at array bytes (``payload.py``) nor at files
(``bundle/``), and gives nodes no meaning (``nodes.py``).

Example:
    >>> problem, = check_manifest({"version": 1, "manifest": {"__kind__": "lst", "items": []}, "arrays": {}})
    >>> problem.path, problem.hint
    ('$.manifest.__kind__', "did you mean 'list'?")
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.manifest_grammar import (
    MOST_DIMS,
    NODE_KINDS,
    PLACES,
    PLAIN,
    RANGES,
)
from neuralqx_struct.manifest_rules import (
    LAYOUTS,
    RULES,
    Layout,
    ignorable,
    is_size,
    layout_of,
    sound,
    sound_all,
    sound_arrays,
)
from neuralqx_struct.paths import FieldName, format_path

__all__ = [
    "DEFAULT_FILE",
    "DEFAULT_LIMITS",
    "FORMAT_VERSION",
    "MOST_FINDINGS",
    "SCHEMA_URL",
    "WRITER",
    "Chain",
    "Findings",
    "Limits",
    "check_manifest",
    "collector_paused",
    "shown",
]

FORMAT_VERSION: Final = 1
SCHEMA_URL: Final = "https://neuralqx.github.io/neuralqx-struct/schemas/manifest/1.json"
WRITER: Final[Mapping[str, str]] = {"name": "neuralqx-struct", "version": "0.1.0"}
DEFAULT_FILE: Final = "arrays.npz"
MOST_FINDINGS: Final = 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a reader takes in before it refuses; larger checkpoints pass a record of their own as ``limits=``.

    Attributes:
        manifest_bytes: Size of ``manifest.json``.
        depth: Nodes inside nodes.
        nodes: Nodes in all.
        full_bytes: Size of all arrays and scalars that nodes describe without storing them, together.
    """

    manifest_bytes: int = 256 << 20
    depth: int = 200
    nodes: int = 1_000_000
    full_bytes: int = 1 << 30


DEFAULT_LIMITS: Final = Limits()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking over a large document again and again while it is being built or checked."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ---------------------------------------------------------------------------------------------------------------------
# Checking. A path is a chain (parent, key), turned into text only where something is wrong.

Chain = Any


def _path(chain: Chain) -> str:
    keys: list[Any] = []
    while chain:
        chain, key = chain
        keys.append(FieldName(key) if isinstance(key, str) else key)
    return format_path(reversed(keys))


def shown(value: Any) -> str:
    """A JSON value in the words of a message."""
    if type(value) is dict:
        return "an object"
    if type(value) is list:
        return "a list"
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    text = f"{type(value).__name__}" if type(value) not in PLAIN else repr(value)[:80]
    return text if len(text) < 80 else text[:77] + "..."


class Findings(list[Diagnostic]):
    """The problems found so far, in the words of the manifest."""

    @property
    def full(self) -> bool:
        """True if there are so many that no more are taken: to find the words for them would take long."""
        return len(self) >= MOST_FINDINGS

    def add(self, code: str, chain: Chain, message: str, hint: str | None = None) -> None:
        """Note an error, unless there are very many already."""
        if not self.full:
            self.append(Diagnostic(code, "error", message, path=_path(chain), hint=hint))

    def members(self, value: dict[str, Any], chain: Chain, layout: Layout) -> None:
        """Explain what is wrong with the members of ``value`` that are missing, unknown or of a wrong type."""
        if self.full:
            return
        for name in layout.required:
            if name not in value:
                self.add("NQX610", chain, f"expected a member {name!r}, got none")
        for name, member in value.items():
            rule = layout.known.get(name)
            if rule is None:
                if type(name) is not str or not ignorable(member):
                    self.unknown(name, member, chain, layout)
            elif rule == "shape" and type(member) is list:
                if len(member) > MOST_DIMS:
                    self.add("NQX614", (chain, name), f"expected at most {MOST_DIMS} dimensions, got {len(member)}")
                for index, size in enumerate(member):
                    if not is_size(size):
                        code = "NQX614" if type(size) is int else "NQX612"
                        expected = "an integer >= 0" if code == "NQX612" or size < 0 else "an integer < 2**63"
                        self.add(code, ((chain, name), index), f"expected {expected}, got {shown(size)}")
            elif rule in RULES and not layout.rules[name](member):
                same_type = type(member) is (int if rule in RANGES else str) and rule != "text"
                code = "NQX503" if rule == "filename" else "NQX614" if same_type else "NQX612"
                self.add(code, (chain, name), f"expected {RULES[rule][0]}, got {shown(member)}")

    def unknown(self, name: Any, member: Any, chain: Chain, layout: Layout) -> None:
        """Explain a member that the table does not know and that must not be passed over."""
        if self.full:
            return
        if type(name) is not str:
            self.add("NQX006", chain, f"expected member names to be strings, got {shown(name)}")
        elif type(member) is dict and member.get("must_understand") is True:
            hint = "a newer version wrote this; upgrade neuralqx-struct to read it"
            self.add("NQX403", (chain, name), f"expected members that this version knows, got {name!r}", hint)
        else:
            hint = did_you_mean(name, layout.known) or f"known members: {', '.join(layout.known)}"
            self.add("NQX611", (chain, name), f"expected no such member, got {name!r}", hint)


def _check_tree(root: Any, found: Findings, limits: Limits, *, foreign: bool) -> None:
    stack: list[tuple[Any, Chain, frozenset[str], int]] = [(root, ((), "manifest"), PLACES["node"], 1)]
    everywhere, most, deepest, count = PLACES["node"], limits.nodes, limits.depth, 0
    while stack:
        node, chain, allowed, depth = stack.pop()
        count += 1
        if depth > deepest:
            found.add("NQX005", chain, f"expected nodes at most {deepest} deep, got more", "pass limits= to read more")
            continue
        if type(node) is not dict:
            plain = PLAIN.get(type(node))
            if plain is None or plain not in allowed:
                found.add("NQX612", chain, f"expected {_wanted(allowed)}, got {shown(node)}")
            elif not foreign and type(node) is float and not isfinite(node):
                hint = 'write {"__kind__": "float", "value": "nan"}, "inf" or "-inf"'
                found.add("NQX013", chain, f"expected a finite number, got {shown(node)}", hint)
            continue
        layout = layout_of(node)
        if layout is None:
            _explain_kind(node, chain, found)
            continue
        if allowed is not everywhere and node["__kind__"] not in allowed:
            found.add("NQX612", chain, f"expected {_wanted(allowed)}, got a node of kind {node['__kind__']!r}")
            continue
        if not sound(node, layout):
            found.members(node, chain, layout)
        for member, place in layout.descent:
            if member in node:
                count += _descend(node[member], (chain, member), place, depth + 1, stack, found, quiet=depth < deepest)
        if count + len(stack) > most:
            found.add("NQX005", chain, f"expected at most {most} nodes, got more", "pass limits= to read more")
            return


# Nothing is wrong with values of these types wherever any node may stand; floats may be no numbers.
_PLAIN: Final = frozenset({int, str, bool, type(None)})
_NOTHING: Final[frozenset[type]] = frozenset()


def _descend(  # noqa: PLR0917
    value: Any,
    chain: Chain,
    place: str,
    depth: int,
    stack: list[tuple[Any, Chain, frozenset[str], int]],
    found: Findings,
    *,
    quiet: bool,
) -> int:
    """Put the nodes at one place of a node on the stack, in an order that makes findings come from top to bottom.

    Returns:
        How many were left out because they are plain values, of which nothing can be said: most of a large container.
        None are where ``quiet`` is false.
    """
    allowed = PLACES.get(place)
    if allowed is not None:
        stack.append((value, chain, allowed, depth))
        return 0
    allowed, plain = PLACES["node"], _PLAIN if quiet else _NOTHING

    def sure(child: Any) -> bool:
        """Nothing can be wrong with this node, or has been found to be."""
        kind = type(child)
        if kind is dict:
            return known > 0 and child.get("__kind__") == "array"
        return kind in plain or (quiet and kind is float and isfinite(child))

    if place == "fields":
        if type(value) is not dict:
            found.add("NQX612", chain, f"expected an object of nodes, got {shown(value)}")
            return 0
        for name in value:
            if type(name) is not str:
                found.add("NQX006", chain, f"expected member names to be strings, got {shown(name)}")
        known = sound_arrays(value.values()) if quiet else 0
        below = [(child, (chain, name), allowed, depth) for name, child in value.items() if not sure(child)]
        total = len(value)
    elif type(value) is not list:
        what = "nodes" if place == "nodes" else "pairs of nodes"
        found.add("NQX612", chain, f"expected a list of {what}, got {shown(value)}")
        return 0
    elif place == "nodes":
        known = sound_arrays(value) if quiet else 0
        below = [(c, (chain, i), allowed, depth) for i, c in enumerate(value) if type(c) not in plain and not sure(c)]
        total = len(value)
    else:
        known = sound_arrays(p[1] for p in value if type(p) is list and len(p) == 2) if quiet else 0
        below, total = [], 2 * len(value)
        if known == len(value) and known and plain.issuperset(type(key) for key, _ in value):
            return total  # nothing but array nodes, which is what large containers hold
        for index, pair in enumerate(value):
            if type(pair) is not list or len(pair) != 2:
                found.add("NQX612", (chain, index), f"expected a pair [key, value] of nodes, got {shown(pair)}")
                total -= 2
            elif type(pair[0]) not in plain or (type(pair[1]) not in plain and not sure(pair[1])):
                below += ((child, ((chain, index), side), allowed, depth) for side, child in enumerate(pair))
    stack.extend(below[::-1])
    return total - len(below)


def _wanted(allowed: frozenset[str]) -> str:
    return "a node" if allowed is PLACES["node"] else f"a node of kind {' or '.join(sorted(allowed))}"


def _explain_kind(node: dict[str, Any], chain: Chain, found: Findings) -> None:
    if found.full:
        return
    if "__kind__" not in node:
        found.add("NQX610", chain, "expected a member '__kind__', got none", "dicts are nodes of kind 'dict'")
        return
    kind = node["__kind__"]
    if type(kind) is not str:
        found.add("NQX612", (chain, "__kind__"), f"expected a string, got {shown(kind)}")
        return
    hint = did_you_mean(kind, NODE_KINDS) or f"known kinds: {', '.join(NODE_KINDS)}"
    found.add("NQX613", (chain, "__kind__"), f"expected a node kind that this version knows, got {shown(kind)}", hint)


def _check_free(value: Any, chain: Chain, found: Findings, limits: Limits, *, foreign: bool) -> None:
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
                    found.add("NQX006", chain, f"expected member names to be strings, got {shown(key)}")
                stack.append((child, (chain, key), depth + 1))
        elif type(item) in (list, tuple):
            stack.extend((child, (chain, index), depth + 1) for index, child in enumerate(item))
        elif type(item) not in PLAIN:
            found.add("NQX612", chain, f"expected a JSON value, got {shown(item)}")
        elif not foreign and type(item) is float and not isfinite(item):
            found.add("NQX013", chain, f"expected a finite number, got {shown(item)}", "JSON has no such number")


@collector_paused()
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
    found = Findings()
    if type(document) is not dict:
        found.add("NQX612", (), f"expected an object, got {shown(document)}")
        return found
    version = document.get("version")
    if type(version) is int and version != FORMAT_VERSION:
        hint = f"this version of neuralqx-struct reads format version {FORMAT_VERSION}; upgrade it to read a newer one"
        found.add("NQX402", ((), "version"), f"expected format version {FORMAT_VERSION}, got {version}", hint)
        return found
    if "version" in document and type(version) is not int:
        found.add("NQX612", ((), "version"), f"expected the integer {FORMAT_VERSION}, got {shown(version)}")
    foreign = "writer" not in document
    if not sound(document, LAYOUTS["Manifest"]):
        found.members(document, (), LAYOUTS["Manifest"])
    for name, record in (("schema", "SchemaIdentity"), ("writer", "Writer")):
        if name in document:
            _check_record(document[name], ((), name), LAYOUTS[record], found)
    if "manifest" in document:
        _check_tree(document["manifest"], found, limits, foreign=foreign)
    arrays = document.get("arrays", {})
    if type(arrays) is not dict:
        found.add("NQX612", ((), "arrays"), f"expected an object of array records, got {shown(arrays)}")
    else:
        layout, records = LAYOUTS["ArrayRecord"], arrays.values()
        known = set(map(type, arrays)) == {str} and set(map(type, records)) == {dict} and sound_all(records, layout)
        for name, record in () if known else arrays.items():
            if type(name) is not str:
                found.add("NQX006", ((), "arrays"), f"expected array names to be strings, got {shown(name)}")
            if type(record) is not dict or not sound(record, layout):
                _check_record(record, (((), "arrays"), name), layout, found)
    for name in ("schemas", "metadata"):
        if name in document:
            _check_free(document[name], ((), name), found, limits, foreign=foreign)
    return found


def _check_record(value: Any, chain: Chain, layout: Layout, found: Findings) -> None:
    if type(value) is not dict:
        found.add("NQX612", chain, f"expected an object, got {shown(value)}")
    elif not sound(value, layout):
        found.members(value, chain, layout)
