r"""Rules of warm starts: which stored arrays a model starts from, and how arrays of another size are adapted.

A rule file is YAML or JSON, as schemas are. Beside the versions of the model's schema, in its folder ``warm``, it has a name
and is linted: each path against the declaration of the model and that of the bundle, without either.

    language: "1"
    warm_start: from_small
    of: lab.small@2
    into: lab.large@1
    paths: {encoder: backbone/encoder, head: null}
    sizes: {embed/words: pad}

Example:
    >>> rules, _ = read_rules({"paths": {"encoder": "backbone", "head": None}})
    >>> rules.source("encoder/w"), rules.source("head/w"), rules.source("norm/scale")
    ('backbone/w', None, 'norm/scale')
    >>> rules, source = read_rules({"paths": {"W_er": None}, "sizes": {"W_re": "pad"}, "of": "neuralqx.vmc_state@1"})
    >>> [(found.code, found.path, found.hint) for found in check_rules(rules, source, v1, v1)]
    [('NQX710', '$.paths.W_er', "did you mean 'W_re'?")]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, StrictStr, ValidationError

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.layouts import named_source
from neuralqx_struct.paths import match_glob
from neuralqx_struct.printing import listed
from neuralqx_struct.references import IDENTITY, SchemaRef
from neuralqx_struct.schema.language import tidy
from neuralqx_struct.schema.lint import comments_in, in_order, without_silenced
from neuralqx_struct.schema.migration import Declaration
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import all_of, structural
from neuralqx_struct.schema.series import Series, warm_files
from neuralqx_struct.schema.sizes.comparison import constant
from neuralqx_struct.schema.text import KeyPath, Source
from neuralqx_struct.schema.uses import beside
from neuralqx_struct.types import Extent, Type

WARM_SCHEMA_ID = "https://neuralqx.github.io/neuralqx-struct/schemas/warm-schema/1.json"

Resize = Literal["pad", "repeat", "cut"]
_REF = f"^{IDENTITY.pattern}@[1-9][0-9]{{0,8}}$"


class WarmRules(Declaration):
    """What a model takes from a bundle, beside the arrays of the same path, shape and family of dtypes."""

    language: Literal["1"] = "1"
    warm_start: StrictStr = Field("", description="The name; that of the file without .yaml.")
    doc: StrictStr = ""
    of: StrictStr | None = Field(
        None,
        pattern=_REF,
        description="The schema and version to which the bundle is brought first, such as lab.small@2.",
    )
    into: StrictStr | None = Field(
        None,
        pattern=_REF,
        description="The schema and version of the model, such as lab.large@1; by default the newest of the folder.",
    )
    paths: dict[StrictStr, StrictStr | None] = Field(
        default_factory=dict,
        description="The stored path of a part of the model, by its path there; null keeps the part fresh.",
    )
    sizes: dict[StrictStr, Resize] = Field(
        default_factory=dict,
        description=(
            "How a stored array of another size is adapted, by a glob of paths of the model: pad keeps the fresh values "
            "around it, repeat tiles it, cut takes its first part."
        ),
    )

    @property
    def ref(self) -> SchemaRef | None:
        """The version of the schema that the bundle is brought to."""
        return None if self.of is None else SchemaRef.parse(self.of)

    def rule_of(self, path: str) -> str | None:
        """The longest key of :attr:`paths` that a path of the model is at or below."""
        above = (key for key in self.paths if key in ("", path) or path.startswith(f"{key}/"))
        return max(above, key=len, default=None)

    def source(self, path: str) -> str | None:
        """The stored path for a path of the model; None to keep it fresh."""
        key = self.rule_of(path)
        if key is None:
            return path
        stored = self.paths[key]
        if stored is None:
            return None
        rest = path.removeprefix(key).removeprefix("/")
        return "/".join(filter(None, [stored, rest]))


@dataclass(frozen=True, slots=True)
class Resizing:
    """A way to adapt a stored array to another shape.

    Attributes:
        fits: Whether a size can become another one.
        adapt: Makes an array in the shape of a fresh one, both of numpy.
        keeps_fresh: Whether it takes values of the fresh array too.
    """

    fits: Callable[[int, int], bool]
    adapt: Callable[[Any, Any], Any]
    keeps_fresh: bool = False

    def cannot_fit(self, old: tuple[int | None, ...], new: tuple[int | None, ...]) -> bool:
        """True if an array of some shape cannot be adapted to another; a size of None is not known."""
        if len(old) != len(new):
            return True
        pairs = zip(old, new, strict=True)
        return not all(self.fits(a, b) for a, b in pairs if a is not None and b is not None)


def _corner(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[slice, ...]:
    """The part that two shapes share."""
    return tuple(slice(min(pair)) for pair in zip(one, other, strict=True))


def _padded(stored: Any, fresh: Any) -> Any:
    import numpy as np

    made = np.array(fresh)
    made[_corner(stored.shape, made.shape)] = stored
    return made


def _repeated(stored: Any, fresh: Any) -> Any:
    import numpy as np

    return np.tile(stored, [b // a for a, b in zip(stored.shape, fresh.shape, strict=True)])


def _cut(stored: Any, fresh: Any) -> Any:
    return stored[_corner(stored.shape, fresh.shape)]


RESIZINGS: Mapping[Resize, Resizing] = {
    "pad": Resizing(lambda old, new: old <= new, _padded, keeps_fresh=True),
    "repeat": Resizing(lambda old, new: old != 0 and new % old == 0, _repeated),
    "cut": Resizing(lambda old, new: old >= new, _cut),
}


def unfit(how: Resize, wanted: object, got: object) -> tuple[str, str]:
    """The message about an array that cannot be adapted, and its hint."""
    message = f"expected sizes that {how} can change to {wanted}, got {got}"
    return message, "pad to larger sizes, cut to smaller ones, repeat to multiples"


def read_rules(where: Any, folder: Path | None = None) -> tuple[WarmRules, Source]:
    """Reads rules.

    Args:
        where: A mapping of plain values, the path of a file, text (if it has a newline), or a name; None for no rules.
        folder: The folder of the model's schema, which has rules by name.

    Returns:
        The rules, and the file as read.

    Raises:
        SchemaError: Every error of the file; NQX708 if there are no rules of the name.
    """
    if isinstance(where, WarmRules):
        return where, Source("<rules>")
    source = named_source(
        {} if where is None else where, warm_files(folder), "rules", "warm/from_small.yaml"
    )
    try:
        return WarmRules.model_validate(source.data), source
    except ValidationError as error:
        raise all_of(structural(error, source, _model_at), source) from None


def _model_at(path: KeyPath) -> type[WarmRules] | None:
    return None if path else WarmRules


def warm_schema() -> dict[str, Any]:
    """The JSON Schema of rule files, published as ``schemas/warm-schema/1.json``."""
    schema = WarmRules.model_json_schema(by_alias=True, mode="validation")
    tidy(schema)
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "$id": WARM_SCHEMA_ID, **schema}


# ---------------------------------------------------------------------------------------------------------------------
# Lint.


def lint_rules(path: str | Path, series: Series) -> list[Diagnostic]:
    """Checks a file of a schema's folder ``warm``.

    Args:
        path: The file.
        series: The schema of the model.

    Returns:
        Every finding, by line; comments silence warnings as in schema files.
    """
    try:
        rules, source = read_rules(path)
    except SchemaError as error:
        return list(error.diagnostics)
    found = [*source.warnings]
    if rules.warm_start != Path(path).stem:
        message = f"expected warm_start: {Path(path).stem}, as the file is named, got {rules.warm_start!r}"
        found.append(source.diagnostic("NQX710", ("warm_start",), message, hint="name both alike"))
    model: Document | None = series.head
    if rules.into is not None:
        model = _version(rules.into, "into", series, source, found)
    stored = None
    if rules.of is not None:
        stored = _version(rules.of, "of", series, source, found)
    else:
        message = (
            "expected the schema and version of the bundles, to check the stored paths, got none"
        )
        found.append(
            source.diagnostic(
                "NQX710", (), message, hint="such as of: lab.small@2", severity="info"
            )
        )
    if model is not None:
        found += check_rules(rules, source, model, stored)
    return in_order(without_silenced(found, comments_in([source])))


def _version(
    text: str, member: str, series: Series, source: Source, found: list[Diagnostic]
) -> Document | None:
    """The version that a file names, of the schema itself or of one beside it."""
    ref = SchemaRef.parse(text)
    assert ref is not None  # by the pattern
    hint = f"known versions of {series.id}: {', '.join(map(str, series.versions))}"
    if ref.id == series.id:
        document = series.documents.get(ref.version)
    elif member == "into":
        document, hint = None, f"the folder is that of {series.id}"
    else:
        find = None if series.folder is None else beside(series.folder)
        document = None if find is None else find(ref.id, ref.version)
        hint = "put its folder beside this one"
    if document is None:
        message = f"expected a version of a schema that is known, got {text}"
        found.append(source.diagnostic("NQX404", (member,), message, hint=hint))
    return document


def check_rules(
    rules: WarmRules, source: Source, model: Document, stored: Document | None
) -> Iterator[Diagnostic]:
    """Yields each rule that matches nothing, and each size that cannot be adapted.

    Args:
        rules: The rules.
        source: The file, for positions.
        model: The declaration of the model.
        stored: That of the bundle, in the version that it is brought to; None if it is not known.
    """
    for key, kept in rules.paths.items():
        at = ("paths", key)
        yield from _unreached(key, _root(model, nodes=True), at, source, "the model")
        if kept is not None and stored is not None:
            yield from _unreached(kept, _root(stored), at, source, "the bundle")
    for glob in rules.sizes:
        at = ("sizes", glob)
        leaves = [
            leaf
            for leaf in _reached(_root(model, nodes=True), glob.split("/"), _globbed)
            if leaf.ends
        ]
        if not leaves:
            yield _finding(source, at, f"expected a path of an array of the model, got {glob!r}")
        elif stored is not None:
            yield from _misfits(rules, glob, leaves, stored, source)


def _unreached(
    path: str, root: _Spot, at: KeyPath, source: Source, where: str
) -> Iterator[Diagnostic]:
    """The finding about a path that no value of a declaration has."""
    spots, parts = [root], path.split("/") if path else []
    for number, part in enumerate(parts):
        inner = [each for spot in spots for each in spot.inside()]
        spots = [each for each in inner if _equal(part, each.at[-1])]
        if not spots:
            message = f"expected a path of {where}, got {path!r}"
            names = [each.at[-1] for each in inner if each.at[-1] not in (_NUMBER, _KEY)]
            hint = did_you_mean(part, names) or (f"its parts: {listed(names)}" if names else None)
            if number:
                hint = f"below {'/'.join(parts[:number])}: {hint or 'there are no parts'}"
            yield _finding(source, at, message, hint)
            return


def _misfits(
    rules: WarmRules, glob: str, leaves: list[_Spot], stored: Document, source: Source
) -> Iterator[Diagnostic]:
    """The findings about the leaves that a rule of sizes matches: none is stored, or an array cannot be adapted."""
    how, at = rules.sizes[glob], ("sizes", glob)
    any_stored = False
    for leaf in leaves:
        path = rules.source("/".join(leaf.at))
        if path is None:
            continue
        found = [held for held in _reached(_root(stored), path.split("/"), _equal) if held.ends]
        any_stored |= bool(found)
        if found and all(_cannot_become(held, leaf, how) for held in found):
            yield _finding(source, at, *unfit(how, leaf.text, found[0].text), code="NQX412")
            return
    if not any_stored:
        message = f"expected a path that has a stored array, got {glob!r}"
        yield _finding(source, at, message, "the bundle has no array to adapt; remove the rule")


def _cannot_become(held: _Spot, leaf: _Spot, how: Resize) -> bool:
    """True if a stored array surely cannot be adapted to one of the model."""
    return (
        held.shape is not None
        and leaf.shape is not None
        and RESIZINGS[how].cannot_fit(held.shape, leaf.shape)
    )


def _finding(
    source: Source, at: KeyPath, message: str, hint: str | None = None, code: str = "NQX710"
) -> Diagnostic:
    return source.diagnostic(code, at, message, hint=hint, key=True)


# ---------------------------------------------------------------------------------------------------------------------
# Places of values in a declaration.

#: Parts of paths that stand for every position of a list and every key of a dict.
_NUMBER, _KEY = "{i}", "{key}"
_DEEPEST, _MOST = 16, 5_000


@dataclass(frozen=True, slots=True)
class _Spot:
    """A value that a declaration has.

    Attributes:
        owner: The document with its type.
        declared: Its type; None for the root.
        at: Its path.
        nodes: Whether static values are left out, as JAX leaves them out of leaves.
        lead: The leading axes of its arrays.
    """

    owner: Document
    declared: Type | None
    at: tuple[str, ...] = ()
    nodes: bool = False
    lead: int = 0

    @property
    def ends(self) -> bool:
        """True if the value is a leaf, or may be."""
        return self.declared is not None and any(
            not self._fields(each)[1] and not each.parts for each in self.declared.solid
        )

    @property
    def text(self) -> str:
        """Its type."""
        return "" if self.declared is None else self.declared.format()

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """The declared sizes of an array; None if the value may be anything else, or an array of another rank."""
        solid = () if self.declared is None else self.declared.solid
        if len(solid) != 1 or solid[0].element not in DTYPES or self.lead:
            return None
        extents: tuple[Extent, ...] = solid[0].extents
        return None if ... in extents else tuple(map(constant, extents))

    def _fields(self, each: Type | None) -> tuple[Document, Mapping[str, Any]]:
        """The fields of a struct, and the document that declares it; none for other types."""
        name = self.owner.root if each is None else (each.parts[0] if each.stacks else each).refers
        owner, struct = self.owner.place_of(name)
        return owner, owner.structs[struct].stored if struct in owner.structs else {}

    def inside(self) -> Iterator[_Spot]:
        """Yields the values directly inside."""
        if len(self.at) >= _DEEPEST:
            return
        for each in (None,) if self.declared is None else self.declared.solid:
            owner, fields = self._fields(each)
            lead = self.lead + (each is not None and each.stacks)
            for name, declaration in fields.items():
                if declaration.kind == "node" or not self.nodes:
                    at = (*self.at, name)
                    yield _Spot(owner, declaration.declared, at, self.nodes, lead)
            if fields or each is None:
                continue
            if each.below is not None:
                yield _Spot(self.owner, each.below, (*self.at, _KEY), self.nodes, lead)
            elif each.parts_for(1) is not None and len(each.parts) == 1:
                yield _Spot(self.owner, each.parts[0], (*self.at, _NUMBER), self.nodes, lead)
            else:
                for number, part in enumerate(each.parts if each.item_at(0) is not None else ()):
                    yield _Spot(self.owner, part, (*self.at, str(number)), self.nodes, lead)


def _root(document: Document, *, nodes: bool = False) -> _Spot:
    return _Spot(document, None, nodes=nodes)


def _equal(one: str, other: str) -> bool:
    """True if two parts of paths are, or may be, the same."""
    if one == other or _KEY in (one, other):
        return True
    return _NUMBER in (one, other) and (one.isdecimal() or other.isdecimal())


def _globbed(glob: str, part: str) -> bool:
    wild = part in (_NUMBER, _KEY) and any(mark in glob for mark in "*?")
    return wild or _equal(glob, part) or match_glob(glob, (part,))


def _reached(root: _Spot, parts: list[str], matches: Callable[[str, str], bool]) -> Iterator[_Spot]:
    """Yields the values that a path or a glob may be of, those nearest to the root first: structs may hold themselves."""
    waiting = deque([(root, 0)])
    seen = set[tuple[tuple[str, ...], Type | None, int]]()
    while waiting and len(seen) < _MOST:
        spot, used = waiting.popleft()
        here = (spot.at, spot.declared, used)
        if here in seen:
            continue
        seen.add(here)
        if used == len(parts):
            yield spot
            continue
        anything = matches is _globbed and parts[used] == "**"
        if anything:
            waiting.append((spot, used + 1))
        waiting += [
            (inner, used if anything else used + 1)
            for inner in spot.inside()
            if anything or matches(parts[used], inner.at[-1])
        ]
