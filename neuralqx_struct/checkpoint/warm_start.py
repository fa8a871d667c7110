"""Warm starts: a fresh model takes from a bundle what fits, and a receipt has a line for everything else.

A load wants the whole object, and a migration knows every change. A warm start is for the rest: a new head, a larger
vocabulary, another model that shares an encoder. Arrays are matched by their paths, whatever the classes.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.checkpoint import export
    >>> path = export({"w": np.ones(2), "old": np.ones(1)}, f"{tempfile.mkdtemp()}/ckpt")
    >>> model, receipt = warm_start(path, {"w": np.zeros(2), "head": np.zeros(3)})
    >>> model["w"], receipt.kept, receipt.dropped
    (array([1., 1.]), ('head',), ('old',))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import takewhile
from pathlib import Path as FilePath
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct import bundle
from neuralqx_struct.checkpoint.options import ReadOptions, decode_options
from neuralqx_struct.codecs.jax import NAMED_CODECS, StructDecoder, explicit_transfers, weakened
from neuralqx_struct.documents.bound import document_of, series_of_class
from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.dtypes.casts import cast
from neuralqx_struct.errors import (
    Diagnostic,
    SchemaError,
    SerializationError,
    StructError,
    did_you_mean,
    printable,
)
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.layouts.warm_rules import RESIZINGS, Resize, WarmRules, read_rules, unfit
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.matching import Form, compared, match
from neuralqx_struct.paths import Path, match_glob
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.printing import brief, brief_leaf, padded
from neuralqx_struct.references import SchemaRef
from neuralqx_struct.schema.catalogue import schemas_given, series_for
from neuralqx_struct.schema.series import Series, series_of
from neuralqx_struct.schema.uses import beside
from neuralqx_struct.struct import Struct
from neuralqx_struct.struct.equality import is_key_array
from neuralqx_struct.trees import children_of, flattened, leaves_with_paths

__all__ = ["Receipt", "ReceiptLine", "WarmStart", "warm_start"]

Outcome = Literal["loaded", "resized", "kept", "dropped"]


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """What became of one leaf.

    Attributes:
        path: Its path in the model; of a dropped one, in the bundle.
        outcome: ``loaded``; ``resized``, to the size of the model; ``kept`` as the model has it; or ``dropped`` from the
            bundle.
        wanted: Dtype and shape in the model, empty for a dropped one.
        stored: Dtype and shape in the bundle, empty if it lacks the leaf.
        note: The reason, or the stored path where that is another.
    """

    path: str
    outcome: Outcome
    wanted: str = ""
    stored: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a warm start did with every leaf of the model and of the bundle; ``str()`` is a table.

    Attributes:
        lines: The leaves of the model in their order, then those of the bundle that the model lacks.
    """

    lines: tuple[ReceiptLine, ...]

    def _paths(self, outcome: Outcome) -> tuple[str, ...]:
        return tuple(line.path for line in self.lines if line.outcome == outcome)

    @property
    def loaded(self) -> tuple[str, ...]:
        """The paths of the model that have the stored values."""
        return self._paths("loaded")

    @property
    def resized(self) -> tuple[str, ...]:
        """The paths of the model that have stored values in another size."""
        return self._paths("resized")

    @property
    def kept(self) -> tuple[str, ...]:
        """The paths of the model that have their fresh values."""
        return self._paths("kept")

    @property
    def dropped(self) -> tuple[str, ...]:
        """The paths of the bundle that the model took nothing from."""
        return self._paths("dropped")

    def __str__(self) -> str:
        rows = [("", "path", "model", "bundle", "note")]
        rows += [
            (line.outcome, line.path, line.wanted, line.stored, line.note) for line in self.lines
        ]
        shown = [tuple(map(printable, row)) for row in rows]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        return "\n".join("  ".join(map(padded, row, widths)).rstrip() for row in shown)


class WarmStart(NamedTuple):
    """The result of :func:`warm_start`."""

    value: Any
    receipt: Receipt


@bundle.read_again
def warm_start(
    path: str | Place,
    like: Any,
    rules: Any = None,
    *,
    schema: Any = None,
    verify: bool = True,
    limits: Limits | None = None,
    storage_options: Options | None = None,
) -> WarmStart:
    """A model with the arrays of a bundle that fit it, and a receipt.

    An array fits if the bundle has one of the same path and shape, and of the same family of dtypes; it gets the dtype and
    the sharding of the model's. Nothing is adapted, dropped or left out without a line in the receipt.

    Args:
        path: The bundle, a path or a URL. One of the same schema as the model is migrated first.
        like: The fresh model: any tree of arrays. Its static values and its code stay.
        rules: Stored paths and sizes that differ: a mapping with ``paths``, ``sizes`` and ``of``, a file or its text, or the
            name of a file in the folder ``warm`` of the model's schema. See
            :class:`~neuralqx_struct.layouts.warm_rules.WarmRules`.
        schema: The schema of the bundle, for ``of``, where the bundle lacks the steps that lead there, and no folder beside
            that of the model's schema has them.
        verify: Check every byte that is read against its checksum.
        limits: Sizes above which the bundle is refused.
        storage_options: Options of fsspec for a URL, such as keys.

    Returns:
        The model and the receipt.

    Raises:
        SerializationError: The path is no sound bundle; or a rule matches nothing, or cannot be followed; or a leaf that is
            kept is a ``jax.ShapeDtypeStruct``.
        SchemaError: The rules have errors.
    """
    series = series_of_class(type(like))
    read, _ = read_rules(rules, None if series is None else series.folder)
    _require_model(read, like)
    place = place_of(path, storage_options)
    try:
        payload = bundle.read(place, verify=verify, limits=limits)
        payload = _brought(payload, read, like, schema)
        return _Start(like, read, _stored_leaves(payload)).result()
    except StructError as error:
        raise error.in_file(str(place)) from error.__cause__


def _require_model(rules: WarmRules, like: Any) -> None:
    """Refuses rules of a model of another schema.

    Raises:
        SchemaError: NQX404: they are.
    """
    document = document_of(type(like))
    if rules.into is None or document is None:
        return
    got = f"{document.id}@{document.version}"
    if rules.into != got:
        message = f"expected a model of {rules.into}, as into: of the rules has it, got {got}"
        raise SchemaError(
            message, code="NQX404", path="$.into", hint="pass the rules of its schema"
        )


def _brought(payload: Payload, rules: WarmRules, like: Any, schema: Any) -> Payload:
    """The payload in the version that the rules name, or in that of the model if both are of one schema."""
    stored = payload.document.get("schema")
    series = series_of_class(type(like))
    ref = rules.ref
    if ref is not None:
        if stored is not None and stored["id"] != ref.id:
            got = f"{stored['id']}@{stored['version']}"
            message = f"expected a bundle of {rules.of}, as the rules have it, got one of {got}"
            hint = "pass rules for bundles of its schema, or leave of: out"
            raise SchemaError(message, code="NQX404", path="$.of", hint=hint)
        known = series_for(payload.document, schemas_given(schema))
        if known is None and series is not None and series.folder is not None:
            written = ref.version if stored is None else stored["version"]
            known = _beside(series.folder, ref, written)
        return resolve(payload, known, to=ref.version)
    if stored is None or series is None or series.id != stored["id"]:
        return payload
    return resolve(payload, series)


def _beside(folder: FilePath, ref: SchemaRef, written: int) -> Series | None:
    """The versions from the one of the rules to that of the bundle, as the folders beside the model's schema have them."""
    find, step = beside(folder), 1 if written > ref.version else -1
    versions = range(ref.version, written + step, step)
    found = [*takewhile(bool, (find(ref.id, version) for version in versions))]
    return series_of(filter(None, found)) if found else None


class _Stored(NamedTuple):
    """A stored array or number, and its path."""

    path: Path
    leaf: Any


def _stored_leaves(payload: Payload) -> dict[str, _Stored]:
    """The arrays and numbers of a payload by their paths, as numpy arrays that are mapped or read when they are used."""
    options = decode_options(ReadOptions(as_numpy=True, raw=True))
    decoder = StructDecoder(payload.arrays, options)
    decoder.codecs = NAMED_CODECS
    with explicit_transfers():
        tree = decoder.decode(payload.document["manifest"])
    decoder.finish()
    return {_text(path): _Stored(path, leaf) for path, leaf in _leaves(tree, ()) if _form(leaf)}


def _leaves(value: Any, at: Path) -> Iterator[tuple[Path, Any]]:
    """The leaves of nested dicts and lists; JAX would have to sort the keys."""
    items: Any = None
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    if items is None:
        yield at, value
        return
    for key, each in items:
        yield from _leaves(each, (*at, key))


def _text(path: Path) -> str:
    return "/".join(map(str, path))


def _form(leaf: Any) -> Form | None:
    """The dtype and shape of an array or a number; None for other values."""
    if isinstance(leaf, (bool, int, float, complex)):
        return Form(type(leaf).__name__, ())
    return Form.of(leaf)


class _Start:
    """One warm start: the fresh leaves, the rules and the stored leaves."""

    def __init__(self, like: Any, rules: WarmRules, stored: dict[str, _Stored]) -> None:
        self.like = like
        self.rules = rules
        self.stored = stored
        self.lines: list[ReceiptLine] = []
        self.problems: list[Diagnostic] = []

    def result(self) -> WarmStart:
        """The model and the receipt."""
        found = [(_named(self.like, path), each) for path, each in leaves_with_paths(self.like)]
        self.check_rules([path for path, _ in found])
        sources = {
            path: self.rules.source(_text(path))
            for path, fresh in found
            if _form(fresh) is not None  # text and code are no data of a model
        }
        leaves = [self.leaf(path, each) if path in sources else each for path, each in found]
        for source in match(self.stored, filter(None, sources.values())).having("extra"):
            self.left_over(source, *self.stored[source])
        if self.problems:
            raise SerializationError(self.problems)
        made = jax.tree.unflatten(flattened(self.like)[1], leaves)
        return WarmStart(made, Receipt(tuple(self.lines)))

    def leaf(self, path: Path, fresh: Any) -> Any:
        """The value of a leaf of the model, with its line."""
        text = _text(path)
        source = self.rules.source(text)
        if source is None or source not in self.stored:
            return self.keep(text, fresh, "by a rule" if source is None else "not in the bundle")
        held = stored = self.stored[source].leaf
        note = "" if source == text else f"from {source}"
        verdict = compared(_form(held), _form(fresh), lambda form: _family(form.dtype))
        if verdict == "mistyped":
            return self.keep(text, fresh, "another kind of value", brief_leaf(stored))
        outcome: Outcome = "loaded"
        if verdict == "misshapen":
            globs = self.rules.sizes.items()
            how = next((how for glob, how in globs if match_glob(glob, path)), None)
            if how is None:
                return self.keep(text, fresh, "another shape", brief_leaf(stored))
            if RESIZINGS[how].keeps_fresh and isinstance(fresh, jax.ShapeDtypeStruct):
                return self.keep(text, fresh, "no values to pad with", brief_leaf(stored))
            held, outcome = self.resized(text, stored, fresh, how), "resized"
            note = "; ".join(filter(None, [how, note]))
        self.lines.append(ReceiptLine(text, outcome, brief_leaf(fresh), brief_leaf(stored), note))
        return _placed(held, fresh, text)

    def keep(self, text: str, fresh: Any, note: str, stored: str = "") -> Any:
        """The fresh value of a leaf, with its line."""
        if isinstance(fresh, jax.ShapeDtypeStruct):
            message = f"expected a fresh value for what the bundle does not give, got {brief_leaf(fresh)} without one"
            hint = "pass a model with arrays as like="
            self.problems.append(Diagnostic("NQX414", "error", message, text, hint=hint))
        self.lines.append(ReceiptLine(text, "kept", brief_leaf(fresh), stored, note))
        return fresh

    def resized(self, text: str, held: Any, fresh: Any, how: Resize) -> Any:
        """A stored array in the shape of a fresh one."""
        old, new = np.shape(held), np.shape(fresh)
        if RESIZINGS[how].cannot_fit(old, new):
            message, hint = unfit(how, list(new), list(old))
            self.problems.append(Diagnostic("NQX412", "error", message, text, hint=hint))
            return fresh
        return RESIZINGS[how].adapt(held, fresh)

    def left_over(self, source: str, path: Path, leaf: Any) -> None:
        """The line of a stored value that no leaf took; a number that is static in the model, and the same, has none."""
        note = ""
        if isinstance(leaf, (bool, int, float, complex)):
            held = _static_at(self.like, path)
            if type(held) is type(leaf) and held == leaf:
                return
            note = "" if held is None else f"static: {brief(leaf)} here, {brief(held)} in the model"
        self.lines.append(ReceiptLine(source, "dropped", "", brief_leaf(leaf), note))

    def check_rules(self, paths: list[Path]) -> None:
        """Notes rules that no path of the model, or no stored path, matches."""
        texts = [_text(path) for path in paths]
        used = {self.rules.rule_of(text) for text in texts}
        for key in self.rules.paths.keys() - used:
            self.problems.append(_unused("paths", key, texts))
        for glob in self.rules.sizes:
            if not any(match_glob(glob, path) for path in paths):
                self.problems.append(_unused("sizes", glob, texts))
        for stored in filter(None, self.rules.paths.values()):
            if not any(each == stored or each.startswith(f"{stored}/") for each in self.stored):
                self.problems.append(_unused("paths", stored, self.stored, "the bundle"))


def _static_at(value: Any, path: Path) -> Any:
    """The attribute of an object at a path; None if there is none."""
    for part in path:
        try:
            value = _inside(value, part)
        except (AttributeError, LookupError, TypeError):
            return None
    return value


def _inside(value: Any, part: Any) -> Any:
    is_item = isinstance(part, int) or isinstance(value, Mapping)
    return value[part] if is_item else getattr(value, str(part))


def _named(value: Any, path: Path) -> Path:
    """A path with names in place of the numbers that JAX gives the fields of some dataclasses: a bundle has their names."""
    found: list[Any] = []
    for part in path:
        name = part
        try:
            if is_dataclass(value) and isinstance(part, int):
                child = (children_of(value) or {})[part,]
                names = (each.name for each in fields(value))
                name = next((n for n in names if getattr(value, n, None) is child), part)
                value = child
            elif is_dataclass(value) or isinstance(value, (Mapping, list, tuple, Struct)):
                value = _inside(value, part)
            else:  # attributes of other classes may do anything
                value = None
        except (AttributeError, LookupError, TypeError):
            value = None
        found.append(name)
    return tuple(found)


def _unused(member: str, key: str, known: Any, where: str = "the model") -> Diagnostic:
    message = f"{member}: expected a path of {where}, got {key!r}"
    hint = did_you_mean(key, known) or "paths are such as layers/0/kernel"
    return Diagnostic("NQX710", "error", message, "$", hint=hint)


_FAMILIES = {"bool": "bool", "int": "integer", "float": "floating", "complex": "complex"}


def _family(name: str) -> str:
    """The family of a dtype or of a type of Python numbers; the dtype itself if it has none, as those of keys."""
    return _FAMILIES.get(name) or (DTYPES[name].family if name in DTYPES else name)


def _placed(held: Any, fresh: Any, path: str) -> Any:
    """A stored value with the dtype of a fresh one, where that lies.

    Raises:
        MigrationError: A whole number does not fit.
    """
    if isinstance(fresh, (bool, int, float, complex)) and not isinstance(fresh, np.generic):
        return type(fresh)(np.asarray(held).item())
    array = held
    if not is_key_array(held):
        rounds = _family(str(fresh.dtype)) in ("floating", "complex")
        array = cast(np.asarray(held), str(fresh.dtype), exact=not rounds, path=path)
    if isinstance(fresh, np.ndarray):
        return np.array(array)
    if isinstance(fresh, np.generic):
        return array[()]
    committed = isinstance(fresh, jax.ShapeDtypeStruct) or fresh.committed
    with explicit_transfers():
        array = weakened(array) if getattr(fresh, "weak_type", False) else array
        if fresh.sharding is not None and committed:
            return jax.device_put(array, fresh.sharding)
        return jnp.asarray(array)
