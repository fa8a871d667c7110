"""Checks of a manifest: the models, then the limits and free JSON that models cannot express; every problem at once.

Arrays and their agreement with nodes are checked by ``payload.py``, files by ``bundle/``.

Example:
    >>> problem, = check_manifest({"version": 1, "manifest": {"__kind__": "lst", "items": []}, "arrays": {}})
    >>> problem.path, problem.hint
    ('$.manifest.__kind__', "did you mean 'list'?")
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Any, Final, NamedTuple, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

from neuralqx_struct.errors import READ_MORE, Diagnostic, closest, did_you_mean
from neuralqx_struct.manifest import (
    DEFAULT_LIMITS,
    FORMAT_VERSION,
    Findings,
    Keys,
    Limits,
    collector_paused,
)
from neuralqx_struct.manifest.constraints import (
    LABEL,
    NODE_MODELS,
    PLAIN,
    mode_of,
    valid_json,
    validator,
)
from neuralqx_struct.manifest.kinds import KINDS, children, nodes_below
from neuralqx_struct.manifest.models import (
    MOST_DIMS,
    ArrayRecord,
    Manifest,
    Node,
    PartialManifest,
)
from neuralqx_struct.printing import brief_plain, is_unicode

FINITE_HINT: Final = 'write {"__kind__": "float", "value": "nan"}, "inf" or "-inf"'


_PARSER_DEPTH: Final = 200  # JSON levels that Pydantic's parser reads
# Older versions of Pydantic use the first for both.
_TOO_DEEP: Final = ("recursion_loop", "recursion_depth_exceeded")
_PAIR: Final = "a pair [key, value] of nodes"
_WORDS: Final = {"string_type": "a string", "int_type": "an integer", "list_type": "a list"}


@cache
def _members(model: Any) -> Mapping[str, Any]:
    """The types of the members of a model."""
    return get_type_hints(model)


class _Place(NamedTuple):
    """The place of an error: its path, and the model of the object around it.

    Attributes:
        keys: The path.
        model: The model of the innermost object.
        unknown: Whether that model lacks the last member.
        label: The last step of the location, if Pydantic added it.
    """

    keys: Keys
    model: Any
    unknown: bool = False
    label: str | None = None


def _place_of(location: Keys, model: Any) -> _Place:
    """Removes the labels of unions from a location, and finds the model of the innermost object around it."""
    keys: list[Any] = []
    steps = list(reversed(location))
    label = None
    in_object = model is Manifest  # the next step is a member of the model
    while steps:
        step = steps.pop()
        if in_object:
            keys.append(step)
            member = _members(model).get(step)
            if member is None:
                return _Place(tuple(keys), model, unknown=True)
            if get_origin(member) is dict:
                keys += [steps.pop()] if steps else []
                member = get_args(member)[1]
            in_object = is_typeddict(member)
            model = member if in_object else model
        elif step == LABEL and steps:
            models = NODE_MODELS[steps.pop()]
            mode = steps.pop() if len(models) > 1 and steps else None
            model = next(m for m in models if mode is None or mode_of(m) == mode)
            in_object = True
        elif step in (LABEL, PLAIN):
            label = step if not steps else None
        else:
            keys.append(step)
    return _Place(tuple(keys), model, label=label)


def _explain(problem: Mapping[str, Any], start: Keys, found: Findings) -> None:
    """Adds an error of Pydantic as a finding, unless another error of the same value explains more."""
    kind, location, value = problem["type"], problem["loc"], problem["input"]
    context = problem.get("ctx", {})
    place = _place_of(location, None if start else Manifest)
    keys = start + place.keys
    label = place.label
    if kind == "string_type" and location[-1] == "[key]":
        found.add(
            "NQX006", keys[:-2], f"expected member names to be strings, got {brief_plain(value)}"
        )
    elif place.unknown:
        newer = kind == "NQX612" and value is True
        found.add_unknown(keys, tuple(_members(place.model)), newer=newer)
    elif kind == "missing":
        found.add("NQX610", keys[:-1], f"expected a member {keys[-1]!r}, got none")
    elif kind.startswith("union_tag"):
        _explain_tag(value, context, keys, found)
    elif kind == "list_type" and type(keys[-1]) is int:
        found.add("NQX612", keys, f"expected {_PAIR}, got {brief_plain(value)}")
    elif label == PLAIN and _tag_of(value) in KINDS.keys() - context["tags"].split():
        message = f"expected {problem['msg']}, got a node of kind {_tag_of(value)!r}"
        found.add("NQX612", keys, message)
    elif label == LABEL or (label == PLAIN and type(value) is dict):
        return  # the other choice of the union explains it
    elif type(value) is float and not isfinite(value) and label == PLAIN:
        message = f"expected a finite number, got {brief_plain(value)}"
        found.add("NQX013", keys, message, FINITE_HINT)
    elif context.get("max_length", context.get("min_length")) == MOST_DIMS:
        message = f"expected at most {MOST_DIMS} dimensions, got {context['actual_length']}"
        found.add("NQX614", keys, message)
    else:
        code, expected = _expectation(kind, context, problem["msg"], value)
        found.add(code, keys, f"expected {expected}, got {brief_plain(value)}")


def _tag_of(value: Any) -> str | None:
    tag = value.get(LABEL) if type(value) is dict else None
    return tag if type(tag) is str else None


def _expectation(kind: str, context: Mapping[str, Any], words: str, value: Any) -> tuple[str, str]:
    """The code of an error about one value, and a description of the values that are allowed."""
    in_text = "NQX614" if type(value) is str else "NQX612"
    match kind:
        case "greater_than_equal":
            return "NQX614", f"an integer >= {context['ge']}"
        case "less_than_equal":
            return "NQX614", f"an integer <= {context['le']}"
        case "literal_error":
            return in_text, context["expected"]
        case "too_long" | "too_short":
            return "NQX612", _PAIR
        case "NQX614" | "NQX501" if type(value) is not str:
            return "NQX612", "a string"
        case "NQX501" | "NQX503" | "NQX612" | "NQX614":
            return kind, words
    return "NQX612", _WORDS.get(kind, "an object")


def _explain_tag(
    node: dict[str, Any], context: Mapping[str, Any], keys: Keys, found: Findings
) -> None:
    """Adds a finding about the member that chooses the model of a node."""
    name = context["discriminator"].strip("'")
    if name not in node:
        meant = closest(name, map(str, node), cutoff=0.75)
        hint = f"rename the member {meant!r}" if meant is not None else None
        if name == LABEL and hint is None:
            hint = "dicts are nodes of kind 'dict'"
        found.add("NQX610", keys, f"expected a member {name!r}, got none", hint)
        return
    tag = node[name]
    expected = " or ".join(context["expected_tags"].rsplit(", ", 1))
    if type(tag) is not str:
        found.add("NQX612", (*keys, name), f"expected a string, got {brief_plain(tag)}")
    elif name != LABEL:
        found.add("NQX614", (*keys, name), f"expected {expected}, got {brief_plain(tag)}")
    elif tag not in KINDS:  # the other choice of the union explains those
        hint = did_you_mean(tag, KINDS) or f"known kinds: {', '.join(KINDS)}"
        message = f"expected a node kind that this version knows, got {brief_plain(tag)}"
        found.add("NQX613", (*keys, name), message, hint)


def _check_models(document: Any, found: Findings) -> None:
    """Adds all errors of the models; a part that is too deep for Pydantic is validated by itself."""
    from pydantic import ValidationError

    pending: list[tuple[Keys, Any]] = [((), document)]
    postponed: set[int] = set()
    for keys, checked in pending:
        try:
            validator(Node if keys else Manifest).validate_python(checked, strict=True)
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                if found.full:
                    break
                if problem["type"] in _TOO_DEEP:
                    part = problem["input"]
                    below = _place_of(problem["loc"], None if keys else Manifest).keys
                    if id(part) not in postponed:
                        pending.append((keys + below, part))
                    elif problem["type"] == "recursion_loop":
                        message = "expected a node, got one that is inside itself"
                        found.add("NQX005", keys + below, message)
                    postponed.add(id(part))
                else:
                    _explain(problem, keys, found)


# What models cannot express.


_MOST_DIGITS: Final = 4300  # that Python reads and writes unless it is asked to
_LARGEST: Final = 10**_MOST_DIGITS


def _plain_values(value: Any, keys: Keys, most: int, deepest: int, found: Findings) -> int:
    """Checks that a value consists of JSON values, and returns how many members its objects have."""
    stack: list[tuple[Any, Keys]] = [(value, keys)]
    count = members = 0
    depth = len(keys) + deepest
    while stack:
        item, place = stack.pop()
        count += 1
        if count > most or len(place) >= depth:
            expected = f"at most {most} values, {deepest} deep"
            found.add("NQX005", place, f"expected {expected}, got more", READ_MORE)
            break
        if type(item) is dict:
            members += len(item)
            for key, child in item.items():
                stack.append((child, (*place, key)))
                if type(key) is not str:
                    message = f"expected member names to be strings, got {brief_plain(key)}"
                    found.add("NQX006", place, message)
                else:
                    _check_scalar(key, place, found)
        elif type(item) in (list, tuple):
            stack += ((child, (*place, index)) for index, child in enumerate(item))
        else:
            _check_scalar(item, place, found)
    return members


def _check_scalar(item: Any, place: Keys, found: Findings) -> None:
    kind = type(item)
    if kind is str:
        if not item.isascii() and not is_unicode(item):
            message = f"expected Unicode text, got half of a surrogate pair in {brief_plain(item)}"
            found.add("NQX001", place, message)
    elif kind is float:
        if not isfinite(item):
            message = f"expected a finite number, got {brief_plain(item)}"
            found.add("NQX013", place, message, "JSON has no such number")
    elif kind is int:
        if not -_LARGEST < item < _LARGEST:
            message = f"expected at most {_MOST_DIGITS} digits, got {brief_plain(item)}"
            found.add("NQX612", place, message)
    elif item is not None and kind is not bool:
        found.add("NQX612", place, f"expected a JSON value, got {brief_plain(item)}")


@collector_paused()
def check_values(document: Any, *, limits: Limits = DEFAULT_LIMITS) -> list[Diagnostic]:
    """Checks that a document in memory consists of JSON values, as any that was parsed does.

    Example:
        >>> class Text(str): ...
        >>> [str(d) for d in check_values({"version": Text()})]
        ['$.version: expected a JSON value, got Text [NQX612]...']
    """
    found = _findings_of(document)
    _plain_values(document, (), 16 * limits.nodes, 3 * limits.depth, found)
    return found


def _findings_of(document: Any) -> Findings:
    """An empty list for the findings of a document; neuraLQX, which writes no ``writer``, writes NaN."""
    foreign = type(document) is dict and "writer" not in document
    return Findings("NQX013" if foreign else None)


def _nodes_at(depth: int, root: Any) -> list[tuple[Keys, Any]]:
    """The nodes that are inside ``depth`` others, with their paths."""
    level: list[tuple[Keys, Any]] = [(("manifest",), root)]
    for _ in range(depth):
        below = []
        for keys, node in level:
            below += [((*keys, *inside), child) for inside, child in children(node)]
        level = below
    return level


def _count_nodes(root: Any, limits: Limits, found: Findings) -> int:
    """Checks the number and depth of the nodes of a valid tree, and returns how many members they have."""
    level = [root]
    nodes = members = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if depth > limits.depth:
            message = f"expected nodes at most {limits.depth} deep, got more"
            for keys, _node in _nodes_at(limits.depth, root):
                found.add("NQX005", keys, message, READ_MORE)
            break
        if nodes > limits.nodes:
            message = f"expected at most {limits.nodes} nodes, got more"
            found.add("NQX005", ("manifest",), message, READ_MORE)
            break
        level, more = nodes_below(level)
        members += more
    return members


def _beyond_models(document: dict[str, Any], limits: Limits, found: Findings) -> int:
    """Checks limits and free JSON of a manifest that the models accept.

    Returns:
        How many members all its objects have, extensions apart.
    """
    records = document["arrays"]
    members = len(document) + len(records) + sum(map(len, records.values()))
    members += _count_nodes(document["manifest"], limits, found)
    deepest = 3 * limits.depth
    for name in ("schemas", "metadata"):
        if name in document:
            members += _plain_values(document[name], (name,), limits.nodes, deepest, found)
    for name in ("schema", "writer"):
        members += len(document.get(name, ()))
    return members


@collector_paused()
def check_manifest(document: Any, *, limits: Limits = DEFAULT_LIMITS) -> list[Diagnostic]:
    """Checks a manifest in memory, without the arrays.

    Args:
        document: The parsed document.
        limits: Largest tree that is accepted.

    Returns:
        All findings; an empty list if the manifest is valid.

    Example:
        >>> [d.code for d in check_manifest({"version": 2})]
        ['NQX402']
    """
    found = _findings_of(document)
    version = document.get("version") if type(document) is dict else None
    if type(version) is int and version != FORMAT_VERSION:
        message = f"expected format version {FORMAT_VERSION}, got {version}"
        hint = (
            "this version of neuralqx-struct reads format version 1; upgrade it to read a newer one"
        )
        found.add("NQX402", ("version",), message, hint)
        return found
    _check_models(document, found)
    if not found:
        _beyond_models(document, limits, found)
    return found


def validated_json(
    data: bytes, members: int, *, limits: Limits, part: bool = False
) -> dict[str, Any] | None:
    """Parses and validates the text of a manifest in one step, several times as fast as one after the other.

    Args:
        data: The text, without NaN.
        members: How many members its objects have: of members with one name the parser keeps the last.
        limits: Largest manifest that is accepted.
        part: Leave the records of arrays to :func:`is_record`.

    Returns:
        The manifest, or None if anything is unusual.
    """
    model = PartialManifest if part else Manifest
    document = valid_json(data, model) if limits.depth >= _PARSER_DEPTH else None
    if document is None or (part and not all(map(_is_usual, document["arrays"].values()))):
        return None
    found = _findings_of(document)
    unique = _beyond_models(document, limits, found)
    return None if found or unique != members else document


def _is_usual(record: Any) -> bool:
    """True for a record that can be compared with nodes before it is validated."""
    if type(record) is not dict or ("file" in record and not is_record(record)):
        return False
    return type(record.get("dtype")) is str and type(record.get("shape")) is list


def is_record(value: Any) -> bool:
    """True for the valid record of an array."""
    return bool(validator(ArrayRecord).isinstance_python(value, strict=True))
