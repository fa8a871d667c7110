"""The record of a migration step, and the parts that several steps are made of.

Example:
    >>> from neuralqx_struct.evolution import steps
    >>> Scope.of(steps.rename(field="h", to="field"), v1, v2).name
    'VMCState'
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
)

from pydantic import ValidationError

from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.renamed_words import Words
from neuralqx_struct.printing import brief, listed
from neuralqx_struct.schema.field_paths import Places
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.migration import Add, Cast, Convert, Remove, RenamePath, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.sizes.comparison import equations, same_type, shown_sizes, substitute
from neuralqx_struct.types import Array, Extent, Node, Null, Type, map_type, walk_type
from neuralqx_struct.types.builders import NodeBuilder
from neuralqx_struct.types.text import format_type, read_value, union_of

if TYPE_CHECKING:
    from neuralqx_struct.evolution.payload_tree import Place

#: Bytes that a step moves: none but the manifest's; those of the arrays it names, one at a time; any that its function reads.
Cost = Literal["manifest", "streaming", "opaque"]

#: The keys of entries, one inside the other.
Keys = tuple[str, ...]
S = TypeVar("S", bound=Step)
C = TypeVar("C", Cast, Convert)

_NO_NAMES: frozenset[str] = frozenset()


class Stage(NamedTuple):
    """One step with its record, and the declarations before and after it."""

    step: Step
    record: StepKind[Any]
    before: Document
    after: Document


class Gap(NamedTuple):
    """A field whose type differs between two versions, for suggestions.

    Attributes:
        field: Its name.
        have: The type that is stored.
        want: The type that is wanted.
        old: The declaration that payloads conform to.
        new: The wanted one.
        known: Expressions that names of sizes are equal to.
        within: The ``in`` of a step on the field.
        values: Values that may replace null, the declared default first.
    """

    field: str
    have: Type
    want: Type
    old: Document
    new: Document
    known: Mapping[str, Expression]
    within: str | None
    values: tuple[Any, ...] = ()


class Scope(NamedTuple):
    """The struct that a step changes, in the declaration before the step.

    Attributes:
        document: The declaration.
        target: The version that the migration leads to.
        name: The struct's name.
        struct: The struct.
    """

    document: Document
    target: Document
    name: str
    struct: StructDeclaration

    @classmethod
    def of(cls, step: Step, document: Document, target: Document) -> Scope:
        """The scope of a step, which is the root struct without ``in``."""
        name = step.within or document.root
        return cls(document, target, name, find_struct(document, name, "in"))

    def within(self, name: str, struct: StructDeclaration | None = None) -> Scope:
        """The scope of another struct."""
        return self._replace(name=name, struct=struct or self.document.structs[name])

    def moved(self, document: Document) -> Scope:
        """The same struct in another declaration."""
        return self._replace(document=document, struct=document.structs[self.name])

    @property
    def known(self) -> dict[str, Expression]:
        """Expressions that names of sizes are equal to here."""
        return equations(self.document, struct=self.name)

    @property
    def wanted(self) -> Mapping[str, FieldDeclaration]:
        """The stored fields of the struct of the same name in the target."""
        struct = self.target.structs.get(self.name)
        return {} if struct is None else struct.stored

    def wanted_field(self, name: str) -> FieldDeclaration | None:
        """One of ``wanted``."""
        struct = self.target.structs.get(self.name)
        return None if struct is None else struct.held(name)

    def field(self, name: str, member: str = "field") -> FieldDeclaration:
        """A stored field of the struct.

        Raises:
            SchemaError: NQX304: no such field at this point of the migration; NQX306: payloads do not hold it.
        """
        found = self.struct.held(name)
        if found is not None:
            return found
        if name in self.struct.fields:
            message = f"expected a stored field, got {name!r}, which payloads do not hold"
            refuse("NQX306", member, message, "remove the step")
        stored = self.struct.stored
        hint = did_you_mean(name, stored) or "a step sees the names that the steps before it left"
        here = f"fields of {self.name} at this point: {listed(stored) or 'none'}"
        message = f"expected a field of {self.name}, got {name!r}\n{here}"
        return refuse("NQX304", member, message, hint)

    def type(self, name: str, member: str = "field") -> Type:
        """The type of a stored field; raises as :meth:`field`."""
        return self.field(name, member).declared

    def require_free(self, name: str, member: str, leaving: Iterable[str] = ()) -> None:
        """Checks that payloads hold no field of a name, except one that the same step removes (NQX304)."""
        if self.struct.held(name) is not None and name not in leaving:
            message = f"expected a name that is free, got {name!r}, which {self.name} has already"
            hint = f"rename or remove the field {name} in a step before this one"
            refuse("NQX304", member, message, hint)

    def require_sizes(self, sizes: Iterable[Extent], member: str, code: str = "NQX105") -> None:
        """Checks that payloads fix all names in some sizes; else raises ``code``."""
        wanted = {name for size in sizes if size is not ... for name in size.names}
        missing = wanted - shown_sizes(self.document, self.name) if wanted else wanted
        if missing:
            names = ", ".join(sorted(missing))
            message = f"expected sizes that payloads show, got {names}, which no array there fixes"
            hint = "write the size as a number, or a `python` step that finds it"
            refuse(code, member, message, hint)

    def check_value(
        self, value: Any, declared: Type, document: Document, member: str, *, sized: bool = True
    ) -> None:
        """Checks that a value in a step is of a type, and with ``sized`` that payloads show the sizes that it needs."""
        builder = _Sized(document, self) if sized else NodeBuilder(document)
        try:
            read_value(value, declared, builder)
        except SchemaError as error:
            found = error.diagnostics[0]
            refuse(found.code, found.path or member, found.message, found.hint)

    def adopt(
        self,
        name: str,
        declared: Type,
        source: FieldDeclaration | None = None,
        bind: Mapping[str, Expression] | None = None,
    ) -> FieldDeclaration:
        """The declaration of a field that a step makes.

        It is the target's own where its type is equal, with the target's spelling of sizes; else the source's with another
        type.

        Args:
            name: The field's name.
            declared: Its type as the step computes it.
            source: The declaration that it comes from.
            bind: Expressions that the struct's parameters are equal to in the target.
        """
        wanted = self.wanted_field(name)
        if wanted is not None:
            theirs = substitute(wanted.declared, bind) if bind else wanted.declared
            if same_type(declared, theirs, self.known):
                return wanted
        if source is None:
            return FieldDeclaration.of_type(declared)
        return source if source.declared == declared else source.with_type(declared)

    def with_fields(self, fields: Mapping[str, FieldDeclaration]) -> Document:
        """The declaration with other fields of the struct."""
        struct = self.struct.model_copy(update={"fields": dict(fields)})
        structs = {**self.document.structs, self.name: struct}
        return self.document.model_copy(update={"structs": structs})

    def replaced(self, leaving: Sequence[str], coming: Mapping[str, FieldDeclaration]) -> Document:
        """The declaration with some fields replaced by others, at the position of the first that leaves, else at the end."""
        # Copies without loops: a struct may have thousands of fields, and a step for each.
        if (*leaving,) == (*coming,):
            return self.with_fields({**self.struct.fields, **coming})
        fields = dict(self.struct.fields)
        place = [*fields].index(leaving[0]) if leaving and coming else 0
        front = dict(islice(fields.items(), place))
        for name in {*leaving, *coming}:
            # A field that payloads do not hold gives way to a stored one of its name.
            front.pop(name, None)
            fields.pop(name, None)
        return self.with_fields({**front, **coming, **fields} if leaving else {**fields, **coming})

    def with_type(self, name: str, change: Callable[[Type], Type]) -> Document:
        """The declaration with another type for a field."""
        source = self.field(name)
        return self.replaced((name,), {name: self.adopt(name, change(source.declared), source)})


class _Sized(NodeBuilder):
    """Checks a value of a step without a payload: its arrays need sizes that every payload shows.

    Args:
        document: Declares the structs and enums of the type.
        scope: The scope of the step.
        local: Names of sizes that no payload shows, as they are those of a struct in the value.
    """

    def __init__(self, document: Document, scope: Scope, local: frozenset[str] = _NO_NAMES) -> None:
        super().__init__(document)
        self.scope, self.local = scope, local

    def inside(self, struct: str) -> NodeBuilder:
        """A builder for the fields of a struct in the value."""
        declaration = self.document.structs[struct]
        local = _NO_NAMES.union(*declaration.sizes) - self.document.dims.keys()
        return _Sized(self.document, self.scope, local.union(declaration.params))

    def stacked(self, axes: tuple[Expression, ...]) -> NodeBuilder:
        """This builder, if every payload shows the axes."""
        self.scope.require_sizes(axes, "")
        return self

    def array(self, declared: Array, value: Any) -> Node:
        """Checks the sizes that a number fills."""
        made = super().array(declared, value)
        if isinstance(value, list):  # its sizes are numbers
            return made
        names = _NO_NAMES.union(*(size.names for size in declared.shape if size is not ...))
        if names & self.local:
            message = f"expected sizes that payloads show, got those of {format_type(declared)}"
            refuse("NQX105", "", message, "write the sizes as numbers in the type")
        self.scope.require_sizes(declared.shape, "")
        return made


# ---------------------------------------------------------------------------------------------------------------------
# Candidates: what may have become of fields that only one of two versions has. Each kind of step brings its own.
#
# A candidate is no more than a guess with steps: the search in ``evolution/suggestions`` applies the steps, and takes the
# candidates that lead to the declaration of the new version, those of the lowest cost first.

Fields = Mapping[str, FieldDeclaration]

#: The lowest score of two names of one field.
LIKELY = 0.6
#: Comparing names is slow: among more pairs of fields than this no likely ones are looked for.
MOST_PAIRS = 40_000
#: More fields that come or go at once in one struct than this are compared by their names alone.
MOST_FIELDS = 12


class Candidate(NamedTuple):
    """Steps by which fields that are gone may have become others.

    Attributes:
        gone: The fields that are gone.
        come: Those that they may have become.
        steps: The steps.
        cost: How unlikely it is, from 0 for an alias to 1.
        question: What only the author can know, behind the names of the fields; empty if the steps are sure.
    """

    gone: tuple[str, ...]
    come: tuple[str, ...]
    steps: tuple[Step, ...]
    cost: float = 0.0
    question: str = ""

    @property
    def asked(self) -> str:
        """The question with the names of the fields."""
        return f"{are(self.gone)} gone and {are(self.come)} new{self.question}"


@dataclass(slots=True, kw_only=True, eq=False)
class Edit:
    """The fields of one struct that only one of two versions has, as far as no step is known.

    Attributes:
        name: The struct.
        have: The declaration that payloads have, after the steps so far.
        want: The wanted one.
        gone: The fields that only ``have`` has, or has with a type that no steps turn into the wanted one.
        come: Those that only ``want`` has, likewise.
        known: Expressions that names of sizes are equal to.
        apply: Returns the declaration after some steps, or None if one of them is refused.
        change: Yields steps that give a field another declaration after some steps, the shortest first; none at all, an
            empty list, if it has it.
    """

    name: str
    have: Document
    want: Document
    gone: dict[str, FieldDeclaration]
    come: dict[str, FieldDeclaration]
    known: Mapping[str, Expression]
    apply: Callable[[Sequence[Step]], Document | None]
    change: Callable[[str, FieldDeclaration, Sequence[Step]], Iterator[list[Step]]]

    @property
    def place(self) -> dict[str, Any]:
        """The ``in`` of steps on the struct; the root needs none."""
        root = self.name == self.have.root == self.want.root
        return {"within": None if root else self.name}

    @property
    def is_small(self) -> bool:
        """True if fields are few enough to compare their types, and not their names alone."""
        return max(len(self.gone), len(self.come)) <= MOST_FIELDS


def likeness(a: str, old: FieldDeclaration, b: str, new: FieldDeclaration) -> float:
    """The probability, roughly, that two fields are one under two names: from 0 to 1."""
    score = SequenceMatcher(None, a.lower(), b.lower()).ratio()
    if old.tags and old.tags == new.tags:
        score += 0.1
    if old.doc and old.doc == new.doc:
        score += 0.4
    return min(1.0, score)


def are(names: Iterable[str]) -> str:
    """Returns names with ``is`` or ``are``."""
    names = [*names]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


# ---------------------------------------------------------------------------------------------------------------------
# The record.


def _none(*_: Any) -> Iterator[Any]:
    return iter(())


class Candidates(Protocol):
    """The type of :attr:`StepKind.candidates`."""

    def __call__(self, edit: Edit, *, named: bool) -> Iterator[Candidate]:
        """Yields candidates: those that the names of fields show, or the others."""


def _no_candidates(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    del edit, named
    return iter(())


class StepKind(NamedTuple, Generic[S]):
    """Everything that is known about one migration step.

    Attributes:
        model: Its arguments as a schema file has them; the name of the class is the name of the step.
        declare: Returns the declaration after the step, from the scope that it changes; ``Scope.target`` has the
            defaults, docs and tags of results.
        rewrite: Returns the node of one struct instance after the step.
        inverse: Returns the steps that undo it, from the scope that it changed and the declaration after it; their ``in``
            is that of the step. Raises SchemaError NQX307 or NQX308 where that is impossible.
        cost: The bytes that it moves.
        spares_arrays: Returns True for a step that moves those of the manifest alone all the same.
        structs: Returns the names of the structs whose instances it rewrites.
        functions: Returns the registered functions that it runs.
        suggest: Yields steps that may turn one type into another, or several that do so together; the caller tries them.
        candidates: Yields what may have become of fields that only one version has, with steps of this kind.
        is_undone: True if its candidates are looked for in the other direction, too, and undone: so split needs none.
        question: Returns the question to ask the author before the step is written for a field, or an empty string.
        answer: How the step reads as one of several answers.
        review: Yields findings about the step in its scope; their path is a member of the step.
        checks_values: True if a value of an array can refuse the step.
        rounded: Returns the same step with values changed that it would refuse, if it refuses some.
        drops_values: True if it removes stored values.
        carried: Returns the names of fields whose data goes on under another name or in another struct.
        writes: Returns the values that it writes into ``field``.
        copied: Returns the field whose values a new ``field`` has as well; None if it makes no copy.
        places: Returns the new places of fields whose values the step does not change.
        renames_field: True if ``field`` becomes ``to``.
        renames_struct: True if ``struct`` becomes ``to``.
        words: Yields the struct and name of each field whose strings the step renames, with the names.
        in_enum: Returns the same step for an enum as another schema names it, for steps on the members of an enum.
    """

    model: type[S]
    declare: Callable[[S, Scope], Document]
    rewrite: Callable[[S, Place], Node]
    inverse: Callable[[S, Scope, Document], list[Step]]
    cost: Cost
    spares_arrays: Callable[[S], bool] = lambda _: False
    structs: Callable[[S, Document], Iterable[str]] = lambda step, document: (
        step.within or document.root,
    )
    functions: Callable[[S], Iterable[str]] = _none
    suggest: Callable[[Gap], Iterator[Step | Sequence[Step]]] = _none
    candidates: Candidates = _no_candidates
    is_undone: bool = False
    question: Callable[[FieldDeclaration], str] = lambda _: ""
    answer: str = "this way"
    review: Callable[[S, Scope], Iterator[Diagnostic]] = _none
    checks_values: bool = False
    rounded: Callable[[S], S | None] = lambda _: None
    drops_values: bool = False
    carried: Callable[[S], Iterable[str]] = _none
    writes: Callable[[S], Sequence[Any]] = lambda _: ()
    copied: Callable[[S], str | None] = lambda _: None
    places: Callable[[S], Places] = lambda _: {}
    renames_field: bool = False
    renames_struct: bool = False
    words: Callable[[S, Document], Iterable[tuple[tuple[str, str], Words]]] = _none
    in_enum: Callable[[S, str], S | None] = lambda *_: None


# ---------------------------------------------------------------------------------------------------------------------
# Findings.


def refuse(code: str, member: str, message: str, hint: str | None = None) -> NoReturn:
    """Raises a finding about one member of a step; ``stages_of`` completes the path."""
    raise SchemaError(message, code=code, path=member, hint=hint)


def refuse_same(member: str, name: str, remedy: str = "remove the step") -> NoReturn:
    """Raises NQX306: a new name is the old one."""
    refuse("NQX306", member, f"expected another name than {name!r}, got the same", remedy)


def may_stop(where: str, member: str = "") -> Diagnostic:
    """NQX320: some payloads cannot be migrated."""
    message = f"expected a step for every payload, got one that stops at payloads {where}"
    hint = "fine if there are none; such a load raises an error and changes nothing"
    return Diagnostic("NQX320", "info", message, path=member, hint=hint)


def require_admission(step: Cast | Convert) -> None:
    """Checks that a step which may change values admits it (NQX308)."""
    if not step.exact and not step.lossy:
        message = "expected lossy: true beside exact: false, got nothing"
        refuse("NQX308", "exact", message, "it admits that values may change")


def rounded(step: C) -> C:
    """The step with values rounded that it would refuse."""
    return step.model_copy(update={"exact": False, "lossy": True})


def find_struct(document: Document, name: str, member: str) -> StructDeclaration:
    """A struct of a declaration; raises NQX304 if it has none of the name."""
    if name not in document.structs:
        known = f"structs here: {listed(document.structs)}"
        hint = did_you_mean(name, document.structs) or known
        refuse(
            "NQX304", member, f"expected a struct of version {document.version}, got {name!r}", hint
        )
    return document.structs[name]


def arrays_of(declared: Type) -> list[Any]:
    """The array types inside a type."""
    return [inner for inner in walk_type(declared) if inner.element]


def each_array(
    declared: Type, change: Callable[[Any], Type], step: str, *, moves: bool = False
) -> Type:
    """The type with every array in it changed; raises NQX304 without an array, NQX306 without an effect.

    With ``moves`` the step moves values, so the type may stay as it is.
    """
    arrays, shown = arrays_of(declared), format_type(declared)
    if not arrays:
        refuse("NQX304", "field", f"expected a field that holds an array to {step}, got {shown}")
    changed = map_type(declared, lambda inner: change(inner) if inner in arrays else inner)
    if changed == declared and not moves:
        message = f"expected a step with an effect, got one that leaves {shown} as it is"
        refuse("NQX306", "field", message)
    return changed


def keys_of(path: str | Sequence[str]) -> Keys:
    """The keys of a path: text with slashes between them, or a list of any names."""
    return tuple(path.split("/")) if isinstance(path, str) else tuple(path)


def type_inside(step: RenamePath | Add | Remove, scope: Scope, member: str) -> Type:
    """The type at a path inside of the field of a step; the path is a member of the step.

    Raises:
        SchemaError: NQX304: a key is empty; NQX306: the schema names the values there.
    """
    declared = scope.type(step.field)
    keys = keys_of(getattr(step, member))
    if not all(keys):
        message = "expected names between the slashes, got an empty one"
        refuse("NQX304", member, message, "a list takes any names")
    if step.of is not None and declared.below != declared:
        shown = format_type(declared)
        message = f"expected a pytree, which may hold instances of {step.of}, got {shown}"
        refuse("NQX306", "of", message, "for structs of the schema write `in: ...`")
    end = inside(declared, len(keys))
    if end is None:
        shown = format_type(declared)
        message = f"expected a pytree or a dict with {len(keys)} levels, got {shown}"
        refuse("NQX306", member, message, "`in:` names a struct, whose fields need no path")
    return end


def inside(declared: Type, depth: int) -> Type | None:
    """The type some keys below a type, or None where payloads cannot choose keys."""
    if len(declared.branches) > 1:
        return inside(declared.solid[0], depth) if len(declared.solid) == 1 else None
    below = declared.below
    if depth == 0 or below == declared:
        return declared
    return None if below is None else inside(below, depth - 1)


def instances_of(step: RenamePath | Add | Remove) -> str:
    """The words for payloads that lack the instances that a step reaches, before those for the entry."""
    return "" if step.of is None else f"instances of {step.of}, "


def only_branch(
    declared: Type, is_meant: Callable[[Type], Any], words: str, member: str = "field"
) -> tuple[Any, Callable[[Type], Type]]:
    """The one branch of ``T`` or ``T | null``, and a function that replaces it; raises NQX304 for other types."""
    found, nullable = declared.solid, declared.nullable
    if len(found) == 1 and is_meant(found[0]):
        return found[0], lambda other: union_of((other, Null())) if nullable else other
    return refuse("NQX304", member, f"expected {words}, got {format_type(declared)}")


def array_branch(declared: Type, member: str = "field") -> tuple[Array, Callable[[Type], Type]]:
    """As :func:`only_branch`, for arrays."""
    return only_branch(declared, lambda one: one.element, "an array field", member)


def with_named(document: Document, declared: Type, target: Document) -> Document:
    """The declaration with the structs and enums of a type that payloads lack, or that have more members now."""
    if not any(inner.refers for inner in walk_type(declared)):
        return document
    structs, enums = dict(document.structs), dict(document.enums)
    held_structs, held_enums = map(set, graph_of(document).reached())
    todo = [declared]
    while todo:
        for inner in walk_type(todo.pop()):
            name = inner.refers
            known = set(enums[name].members) if name in held_enums else set()
            if name in target.enums and known <= set(target.enums[name].members):
                enums[name] = target.enums[name]
            elif name in target.structs and name not in held_structs:
                held_structs.add(name)
                structs[name] = target.structs[name]
                todo += [field.declared for field in structs[name].stored.values()]
    return document.model_copy(update={"structs": structs, "enums": enums})


# ---------------------------------------------------------------------------------------------------------------------
# Functions that make steps in Python, with keywords, and with errors that name each wrong argument.

_P = ParamSpec("_P")


def builder(model: Callable[_P, S], **always: Any) -> Callable[_P, S]:
    """The function that makes a step in Python: it takes keywords and reports wrong ones as a TypeError.

    Args:
        model: The model of the step.
        always: Arguments that are written into the step where the caller leaves them out.
    """

    @functools.wraps(model, assigned=("__doc__",), updated=())
    def build(*args: _P.args, **given: _P.kwargs) -> S:
        return built(model, *args, **{**always, **given})

    build.__name__ = build.__qualname__ = cast("Any", model).name
    build.__module__ = "neuralqx_struct.evolution.steps"
    return build


def built(model: Callable[..., S], *args: Any, **given: Any) -> S:
    """The step.

    Raises:
        TypeError: Names each argument that is wrong.
    """
    try:
        return model(*args, **given)
    except ValidationError as error:
        step, found = cast("type[Step]", model), dict[str, list[str]]()
        for item in error.errors(include_url=False):
            name = "within" if item["loc"][0] == "in" else str(item["loc"][0])
            wanted = _WANTED.get(item["type"], item["msg"].removeprefix("Input should be "))
            found.setdefault(name, []).append(wanted)
        lines = [
            f"steps.{step.name}(): {name}=: {_wrong(name, wanted, step, given)}"
            for name, wanted in found.items()
        ]
        raise TypeError("\n".join(lines)) from None


def _wrong(name: str, wanted: list[str], step: type[Step], given: Mapping[str, Any]) -> str:
    if name not in step.model_fields:
        known = ", ".join(step.model_fields)
        return f"expected a known argument, got {name!r}; known are {known}"
    got = brief(given[name]) if name in given else "none"
    return f"expected {' or '.join(dict.fromkeys(wanted))}, got {got}"


#: The words for an argument by Pydantic's type of error.
_WANTED = {
    "string_type": "text",
    "string_pattern_mismatch": "a name (letters, digits, _, not starting with a digit)",
    "bool_type": "True or False",
    "int_type": "a whole number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "too_short": "more entries",
    "string_too_short": "text that is not empty",
    "missing": "an argument",
}
