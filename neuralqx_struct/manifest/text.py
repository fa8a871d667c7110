"""The text of ``manifest.json``: strict parsing, readable formatting, and the digest on the last line.

Example:
    >>> data = format_manifest({"version": 1, "manifest": {"__kind__": "list", "items": [1, 2]}, "arrays": {}})
    >>> parse_manifest(data)["manifest"]["items"], check_digest(data)
    ([1, 2], None)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any, Final

from neuralqx_struct.errors import READ_MORE, Diagnostic, Hint, SerializationError
from neuralqx_struct.manifest import DEFAULT_LIMITS, Findings, Limits, collector_paused
from neuralqx_struct.manifest.check import FINITE_HINT, check_manifest, validated_json
from neuralqx_struct.manifest.models import Manifest
from neuralqx_struct.printing import brief_plain


class _Pairs(list[tuple[str, Any]]):
    """An object with its duplicate members."""


_NOT_MARKS = bytes(set(range(256)) - set(b'":NI'))


def _count_members(data: bytes) -> int | None:
    """The colons outside strings, without a parser: loops in C alone; None for text with NaN or Infinity."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = data.translate(None, _NOT_MARKS).replace(b'""', b"")
    outside = b"".join(marks.split(b'"')[::2])
    colons = outside.count(b":")
    return colons if colons == len(outside) else None


def _require_small(data: bytes, most: int) -> None:
    if len(data) > most:
        message = f"expected a manifest of at most {most} bytes, got {len(data)}"
        raise SerializationError(message, code="NQX005", hint=READ_MORE)


@collector_paused()
def read_document(
    data: bytes, *, limits: Limits = DEFAULT_LIMITS, part: bool = False
) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Parses and checks a manifest.

    Args:
        data: The bytes of ``manifest.json``.
        limits: Largest manifest that is accepted.
        part: Leave the records of arrays unchecked, if nothing else is wrong.

    Returns:
        The document, and all findings of :func:`~.check.check_manifest`.

    Raises:
        SerializationError: It is not strict JSON, not an object, or larger than the limits.
    """
    _require_small(data, limits.manifest_bytes)
    members = _count_members(data)
    found = None if members is None else validated_json(data, members, limits=limits, part=part)
    if found is not None:
        return found, []
    document = parse_manifest(data, limits=limits)
    return document, check_manifest(document, limits=limits)


def parse_manifest(data: bytes, *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Parses strict JSON: UTF-8, no duplicate members, no NaN, limited size and depth.

    NaN and Infinity are read only in a document without writer: neuraLQX wrote them.

    Args:
        data: The bytes of ``manifest.json``.
        limits: Largest manifest that is accepted.

    Returns:
        The document; :func:`check_manifest` checks whether it is a manifest.

    Raises:
        SerializationError: It is not strict JSON, not an object, or larger than the limits.
    """
    _require_small(data, limits.manifest_bytes)
    constants: list[str] = []
    repeated: list[dict[str, Any]] = []

    def constant(token: str) -> float:
        constants.append(token)
        return float(token)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            repeated.append(made)
        return made

    try:
        text = data.decode("utf-8")
        with collector_paused():
            document = json.loads(text, object_pairs_hook=unique, parse_constant=constant)
        if repeated:
            raise SerializationError(_duplicates(json.loads(text, object_pairs_hook=_Pairs)))
        if b"\\u" in data:  # half of a surrogate pair is no text
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        message = f"expected UTF-8, got byte 0x{data[error.start]:02x} at byte {error.start}"
        raise SerializationError(
            message, code="NQX001", hint="restore the file from a copy, or save it as UTF-8"
        ) from error
    except UnicodeEncodeError as error:
        message = f"expected Unicode text, got half of a surrogate pair: {error.object[error.start : error.end]!r}"
        raise SerializationError(message, code="NQX001") from error
    except RecursionError as error:
        message = (
            f"expected a manifest whose nodes are at most {limits.depth} deep, got deeper nesting"
        )
        hint: str = Hint(READ_MORE, ", and raise sys.setrecursionlimit if it is too low for that")
        raise SerializationError(message, code="NQX005", hint=hint) from error
    except json.JSONDecodeError as error:
        hint = "restore the file from a copy; if it was edited by hand, fix it at this place"
        message = f"expected JSON, got: {error.msg}"
        found = Diagnostic(
            "NQX001", "error", message, line=error.lineno, column=error.colno, hint=hint
        )
        raise SerializationError(found) from error
    except ValueError as error:  # an integer of more digits than the interpreter converts
        raise SerializationError(
            f"expected numbers of a sensible length, got: {error}", code="NQX612"
        ) from error
    if type(document) is not dict:
        raise SerializationError(
            f"expected an object, got {brief_plain(document)}", code="NQX612", path="$"
        )
    if constants and "writer" in document:
        message = f"expected strict JSON, got the token {constants[0]}"
        raise SerializationError(message, code="NQX013", hint=FINITE_HINT)
    return document


def _duplicates(document: Any) -> list[Diagnostic]:
    """A finding for every member whose name its object already has."""
    found = Findings()
    stack: list[tuple[Any, tuple[Any, ...]]] = [(document, ())]
    while stack:
        value, keys = stack.pop()
        if type(value) is list:
            stack += ((child, (*keys, index)) for index, child in enumerate(value))
        if type(value) is not _Pairs:
            continue
        seen: set[str] = set()
        for key, child in value:
            if key in seen:
                message = f"expected every member once, got {brief_plain(key)} again"
                found.add("NQX014", (*keys, key), message)
            seen.add(key)
            stack.append((child, (*keys, key)))
    return found


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_ORDER: Final = tuple(Manifest.__annotations__)
_DIGEST_LINE: Final = re.compile(
    rb'\n(?P<line>[ \t]*"digest": "(?P<digest>sha256:[0-9a-f]{64})"\s*\}\s*)\Z'
)
_CONTAINERS = (dict, list, tuple)
_INDENTS: Final = 40  # spaces: those of a deep nest would grow with the square of its depth


def _one_line(value: Any) -> bool:
    """Returns whether a value is printed on one line.

    A scalar, a container of scalars and of lists of scalars, or a pair of a scalar and such a container.
    """
    if not isinstance(value, _CONTAINERS):
        return True
    if isinstance(value, list) and len(value) == 2 and not isinstance(value[0], _CONTAINERS):
        value = value[1]
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
    """Returns readable JSON: short values on one line, all others indented. Uses a stack, no recursion."""
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
        inner = pad if len(pad) >= _INDENTS else pad + "  "
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


def format_manifest(document: Mapping[str, Any], shared: dict[str, str] | None = None) -> bytes:
    """The bytes of ``manifest.json``: the same for the same document, one record per line, the digest at the end.

    Args:
        document: A valid document; its ``digest`` is computed anew.
        shared: The texts of members that many documents share, all but ``arrays``; filled by the first of these.

    Raises:
        SerializationError: Strict JSON cannot express it.

    Example:
        >>> print(format_manifest({"version": 1, "manifest": 5, "arrays": {}}).decode()[:54])
        {
          "version": 1,
          "manifest": 5,
          "arrays": {},
          "
    """
    names = [
        *(name for name in _ORDER if name in document),
        *(name for name in document if name not in _ORDER),
    ]
    texts = {} if shared is None else shared
    members = []
    try:
        with collector_paused():
            for name in names:
                if name == "digest":
                    continue
                text = _print_arrays(document[name]) if name == "arrays" else texts.get(name)
                if text is None:
                    text = texts[name] = _print(document[name], "  ")
                members.append(f"  {_ENCODER.encode(name)}: {text},\n")
        body = ("{\n" + "".join(members)).encode("utf-8")
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        findings = check_manifest(dict(document))
        raise SerializationError(
            findings or f"expected JSON values, got: {error}", code="NQX612"
        ) from error
    return body + _digest_line(body)


def _digest_line(body: bytes) -> bytes:
    return b'  "digest": "sha256:' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def reseal(data: bytes) -> bytes:
    """The manifest with the digest of its present bytes; everything before the line of the digest stays the same.

    Raises:
        SerializationError: There is no digest line yet and the text is not strict JSON.
    """
    if found := _DIGEST_LINE.search(data, max(0, len(data) - 4096)):
        body = data[: found.start("line")]
        return body + _digest_line(body)
    return format_manifest(parse_manifest(data))


def check_digest(data: bytes) -> Diagnostic | None:
    """The problem of the digest of a manifest, or None.

    Args:
        data: The bytes of ``manifest.json``.
    """
    hint = "the file was changed after it was written; if that was you, call neuralqx_struct.bundle.seal(path)"
    found = _DIGEST_LINE.search(data, max(0, len(data) - 4096))
    if found is None:
        message = "expected the digest as the last member, on a line of its own, got none there"
        return Diagnostic("NQX407", "error", message, path="$.digest", hint=hint)
    digest = "sha256:" + hashlib.sha256(data[: found.start("line")]).hexdigest()
    if found["digest"].decode() == digest:
        return None
    message = f"expected {digest}, got {found['digest'].decode()}"
    return Diagnostic("NQX407", "error", message, path="$.digest", hint=hint)
