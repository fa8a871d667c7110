"""The step convert, between the forms of numbers (int, float, list of numbers, array) and of words. It is its own inverse.

Text, integers and booleans become each other by the text that a file has for them, for which no array is read. The members of
an enum and literals are such words; `map_enum` gives literal strings other names on the way.

Example:
    >>> format_type(_changed_type(parse_type("list[float | null]"), parse_type("float32[]")))
    'list[float32[] | null]'
    >>> is_of_words(parse_type("literal['a', 1]"), v1), is_of_words(parse_type("literal[1.5]"), v1)
    (True, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from neuralqx_struct.dtypes import dtype_named, promotes, rounds
from neuralqx_struct.dtypes.casts import LOSES
from neuralqx_struct.dtypes.casts import cast as cast_array
from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.evolution.payload_tree import TAKES, Place, Thunk, computed
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    StepKind,
    builder,
    may_stop,
    refuse,
    require_admission,
    rounded,
    with_named,
)
from neuralqx_struct.fieldspec import MISSING
from neuralqx_struct.manifest.kinds import BIGINT, ENUM, LIST, NUMPY_SCALAR, elements_of, shown_node
from neuralqx_struct.paths import Path
from neuralqx_struct.printing import listed, read_decimal
from neuralqx_struct.schema.conformance import see_node
from neuralqx_struct.schema.migration import Convert, Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.comparison import same_type
from neuralqx_struct.schema.stacks import require_single
from neuralqx_struct.types import LiteralOf, Node, Type, walk_type
from neuralqx_struct.types.scalars import BOOL, INT, STR
from neuralqx_struct.types.text import format_type, number_node, number_value, parse_type, spelling

if TYPE_CHECKING:
    import numpy as np

#: The dtypes of arrays that hold Python's numbers, by their families.
_WIDEST = {
    "bool": "bool",
    "integer": "int64",
    "unsigned": "uint64",
    "floating": "float64",
    "complex": "complex128",
}
#: The hint about a step from several dtypes to one.
ONE_WAY = "fine if no payload goes back; a `python` step with `inverse:` can choose a dtype"
#: Numbers of an array that become a list: a manifest takes no more nodes.
_MOST = 1_000_000


# ---------------------------------------------------------------------------------------------------------------------
# Declarations


def _is_source(have: Type, to: Type) -> bool:
    """True if a type has numbers in as many axes as another."""
    return have.axes is not None and have.axes == to.axes


def _sources(declared: Type, to: Type) -> Iterator[Type]:
    """Yields the types inside a type that a conversion changes, and those that are the new one already."""
    return sole_types(declared, partial(_is_source, to=to), "a number, or `number | null`")


def _changed_type(declared: Type, to: Type) -> Type:
    if _is_source(declared, to):
        return to
    return declared.with_parts(tuple(_changed_type(part, to) for part in declared.parts))


def _to(step: Convert) -> Type:
    """The type in the step; raises SchemaError for text that is no type."""
    try:
        return parse_type(step.to)
    except SchemaError as error:
        found = error.diagnostics[0]
        return refuse(found.code, "to", found.message, found.hint)


def _of_words(step: Convert, declared: Type, *documents: Document) -> bool:
    """True if the step changes words, and no numbers among themselves."""
    to = _to(step)
    words = any(is_of_words(to, document) for document in documents)
    return words and (to.axes is None or not any(_sources(declared, to)))


def _wanted(step: Convert) -> Type:
    """The type that numbers get.

    Raises:
        SchemaError: The text is no type, or NQX304: a type of something else.
    """
    to = _to(step)
    if to.axes is None or (to.axes > 1):
        wanted = "a number, a list of numbers, an array of one dtype and at most one axis, or text"
        hint = "write a type such as float, list[int], float64[n], str or the name of an enum"
        refuse("NQX304", "to", f"expected {wanted}, got {step.to}", hint)
    if len(to.dtypes) > 1:
        refuse("NQX304", "to", f"expected one dtype, got {to.element}", "name one of its dtypes")
    return to


def _convert(step: Convert, scope: Scope) -> Document:
    require_admission(step)
    declared = scope.type(step.field)
    if _of_words(step, declared, scope.document, scope.target):
        return convert_text(step, _to(step), scope)
    to = _wanted(step)
    if to.element or scope.field(step.field).kind == "node":
        require_single(scope.document, scope.name, "field")
    sources = [*_sources(declared, to)]
    shown = format_type(declared)
    if not sources:
        wanted = "single numbers" if to.axes == 0 else "lists of numbers, or arrays of one axis"
        refuse("NQX304", "field", f"expected a field that holds {wanted}, got {shown}")
    if all(source == to for source in sources):
        message = f"expected a step with an effect, got one that leaves {shown} as it is"
        refuse("NQX306", "field", message)
    if to.element and any(source.element and source != to for source in sources):
        message = f"expected numbers that are no arrays, got {shown}"
        refuse("NQX306", "field", message, "`cast` changes the dtype of an array")
    _require_sizes(scope, to, "to", "NQX105")
    return scope.with_type(step.field, lambda have: _changed_type(have, to))


def _require_sizes(scope: Scope, declared: Type, member: str, code: str) -> None:
    """Checks that payloads show the sizes of a new array, as far as the array itself does not fix them."""
    sizes = [size for size in declared.extents if size is not ... and not size.text.isidentifier()]
    scope.require_sizes(sizes, member, code)


def _convert_back(step: Convert, scope: Scope, after: Document) -> list[Step]:
    declared = scope.type(step.field)
    words = _of_words(step, declared, scope.document, after)
    found = text_sources(declared, scope.document) if words else _sources(declared, _wanted(step))
    sources = dict.fromkeys(found)
    first, *others = sources
    if others or len(first.dtypes) > 1:
        shown = ", ".join(map(format_type, sources))
        message = f"expected one type to go back to, got {shown}"
        refuse("NQX307", "field", message, ONE_WAY)
    _require_sizes(scope.moved(after), first, "field", "NQX307")
    return [Convert(field=step.field, to=format_type(first))]


def _dtype(to: Type, have: Type) -> str:
    """The dtype that numbers get, if they become an array or not."""
    kind = have.families[0] if have.families[0] in to.families else to.families[0]
    return to.element or _WIDEST[kind]


def _holds_all(have: Type, to: Type) -> bool:
    """True if every number of one type is one of another; Python's int has no limit, and a float may be one."""
    made = _dtype(to, have)
    bounded = have.element or have.families == ("bool",)
    return bool(bounded) and all(promotes(each, made) for each in _stored(have))


def _stored(have: Type) -> tuple[str, ...]:
    """The dtypes that numbers have, or that hold all of them."""
    return have.dtypes or (_WIDEST[have.families[0]],)


def _review(step: Convert, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 where a value may not fit."""
    declared = scope.type(step.field)
    if _of_words(step, declared, scope.document, scope.target):
        yield from review_text(step, _to(step), scope)
        return
    to = _wanted(step)
    sources = [source for source in _sources(declared, to) if source != to]
    if step.exact and not all(_holds_all(source, to) for source in sources):
        where = f"with a number of {format_type(sources[0])} that {step.to} does not hold"
        yield may_stop(where, "to")


def _suggest(gap: Gap) -> Iterator[Step]:
    texts = text_difference(gap)
    if texts is not None:
        yield convert(field=gap.field, to=format_type(texts), within=gap.within)
    to = _difference(gap.have, gap.want, gap)
    if to is not None:
        step = convert(field=gap.field, to=format_type(to), within=gap.within)
        yield step
        sources = [each for each in walk_type(gap.have) if _is_source(each, to)]
        if any(rounds(dtype, _dtype(to, each)) for each in sources for dtype in _stored(each)):
            yield rounded(step)


def _difference(have: Type, want: Type, gap: Gap) -> Type | None:
    """The form that numbers have in one type, where they have another one in the other."""
    if have.axes is not None and have.axes == want.axes:
        same = (have.element and want.element) or same_type(have, want, gap.known)
        return None if same else want
    pairs = (have.parts, want.parts)
    if len(have.branches) > 1 or len(want.branches) > 1:
        pairs = (have.solid, want.solid)
    found = (_difference(a, b, gap) for a, b in zip(*pairs, strict=False))
    return next(filter(None, found), None)


# ---------------------------------------------------------------------------------------------------------------------
# Payloads


def _convert_payload(step: Convert, place: Place) -> Node:
    declared = place.before.structs[place.struct].fields[step.field].declared
    if _of_words(step, declared, place.before, place.after):
        return convert_text_nodes(step, _to(step), place)
    to = _wanted(step)

    def changed(node: Node, have: Type, at: Path) -> Node:
        if _is_source(have, to):
            return node if have == to else _converted(node, have, step, place, at)
        if len(have.branches) > 1:
            fits = node is not None and len(have.solid) == 1
            return changed(node, have.solid[0], at) if fits else node
        found = have.children(node)
        made = [changed(each, part, (*at, key)) for key, part, each in found]
        return have.with_children(node, made) if found else node

    return place.with_fields(
        {step.field: changed(place.field(step.field), declared, (step.field,))}
    )


def _converted(node: Node, have: Type, step: Convert, place: Place, at: Path) -> Node:
    """The node of the same numbers in another form."""
    to, exact = _wanted(step), step.exact
    where = place.note(f"was converted from {format_type(have)} to {format_type(to)}", *at)
    numbers = _numbers(node, have, place, at, exact=exact)
    dtype = _dtype(to, have)

    def compute() -> np.ndarray:
        return cast_array(numbers.read(), dtype, exact=exact, path=where)

    for size, found in zip(to.extents, numbers.shape, strict=False):
        known = None if size is ... else place.known_size(size)
        if known not in (None, found):
            message = f"expected {known} numbers for {format_type(to)}, got {found}"
            raise place.error("NQX412", message, *at, hint=TAKES)
    if not to.element:
        return _plain_node(compute().tolist())
    made_of = (Convert.name, exact, *numbers.made_of)
    return place.workspace.store(computed(dtype, numbers.shape, compute), made_of)


class _Numbers(NamedTuple):
    """The numbers of a node: their shape, their identity, and a function that reads them."""

    shape: list[int]
    made_of: tuple[Any, ...]
    read: Thunk


def _numbers(node: Node, have: Type, place: Place, at: Path, *, exact: bool) -> _Numbers:
    if not have.element:
        return _plain_numbers(node, have, place, at, exact=exact)
    shape = place.shape(node, *at)
    if len(shape) != have.axes or sum(shape) > _MOST:
        wanted = f"{format_type(have)} with at most {_MOST:,} numbers"
        hint = "a manifest takes no longer list: keep it an array" if sum(shape) > _MOST else None
        raise place.error("NQX412", f"expected {wanted}, got shape {shape}", *at, hint=hint)
    return _Numbers(shape, place.identity(node), place.load(node).read)


def _plain_numbers(node: Node, have: Type, place: Place, at: Path, *, exact: bool) -> _Numbers:
    """The numbers of a list, or a single one; an array without axes, as jit makes them, may be one."""
    if have.axes and not LIST.matches(node):
        raise place.error("NQX411", f"expected a list, got {shown_node(node)}", *at)
    items, single = (node["items"], have.parts[0]) if have.axes else ([node], have)
    for item in items:
        if not single.accepts(place.before, see_node(item)):
            message = f"expected {format_type(single)}, got {shown_node(item)}"
            raise place.error("NQX411", message, *at)
    shape = [len(items)] if have.axes else []
    made_of = [place.identity(item) if elements_of(item) else repr(item) for item in items]

    def read() -> np.ndarray:
        values = [place.load(i).read() if elements_of(i) else number_value(i) for i in items]
        try:
            made = _array(values, single.families)
        except OverflowError:
            message = "expected integers of at most 64 bits, got a larger one"
            raise place.error("NQX213", message, *at, hint=TAKES) from None
        if exact:
            _require_same(values, made, place, at)
        return made.reshape(shape)

    return _Numbers(shape, (*made_of,), read)


def _array(values: list[Any], families: Iterable[str]) -> np.ndarray:
    """An array of Python's numbers; raises OverflowError where one is too large."""
    import numpy as np

    first, *others = [dtype_named(_WIDEST[family]) for family in families]
    try:
        return np.array(values, first)
    except OverflowError:
        for other in others:
            return np.array(values, other)
        raise


def _require_same(values: list[Any], made: np.ndarray, place: Place, at: Path) -> None:
    """Checks that an array holds integers as they are: a field of type float may hold one that no float is."""
    for index, (value, number) in enumerate(zip(values, made.tolist(), strict=True)):
        if type(value) is int and value != number:
            wanted = f"{made.dtype.name} holds exactly at index [{index if made.ndim else ''}]"
            message = f"expected a value that {wanted}, got the integer {value}"
            raise place.error("NQX213", message, *at, hint=LOSES)


def _plain_node(value: Any) -> Node:
    from neuralqx_struct.codecs.nodes import Encoder
    from neuralqx_struct.codecs.plain import PLAIN_CODECS

    return Encoder(PLAIN_CODECS).encode(value)


convert = builder(Convert)
CONVERT = StepKind(
    model=Convert,
    declare=_convert,
    rewrite=_convert_payload,
    inverse=_convert_back,
    cost="streaming",
    spares_arrays=lambda step: _to(step).axes is None,
    suggest=_suggest,
    review=_review,
    answer="the same values in another form",
    checks_values=True,
    rounded=rounded,
)


# ---------------------------------------------------------------------------------------------------------------------
# Words

_WORDS = frozenset(record.meaning for record in (STR, INT, BOOL))
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,4000}")


def is_of_words(declared: Type, document: Document) -> bool:
    """True for a type whose values are text, integers or booleans, no two of one text: also for an enum and literals."""
    endless = declared in (STR, INT)
    found = declared.operands(document)
    return endless or (found <= _WORDS and declared.spelled(document) is not None)


def _is_number(declared: Type) -> bool:
    """True for int and bool, whose values convert as numbers do among themselves."""
    return declared.axes == 0


def _read(text: str, to: Type, document: Document) -> Any:
    """The value that a text means in a type; MISSING if it means none."""
    known = to.spelled(document)
    if known is not None:
        return known.get(text, MISSING)
    if not _is_number(to):
        return text
    return read_decimal(text) if _INTEGER.fullmatch(text) else MISSING


def _fits(have: Type, old: Document, to: Type, new: Document) -> bool:
    """True if every word of one type has a value in another."""
    words = have.spelled(old)
    if words is None:
        return to.spelled(new) is None and not _is_number(to)
    return all(_read(text, to, new) is not MISSING for text in words)


def _some_fit(have: Type, old: Document, to: Type, new: Document) -> bool:
    """True if a word of one type has a value in another."""
    words = have.spelled(old)
    if words is not None:
        return any(_read(text, to, new) is not MISSING for text in words)
    known = to.spelled(new)
    return known is None or any(_read(text, have, old) is not MISSING for text in known)


def convert_text(step: Convert, to: Type, scope: Scope) -> Document:
    """The declaration after texts got another type."""
    document = with_named(scope.document, to, scope.target)
    declared = scope.type(step.field)
    sources = [*text_sources(declared, document)]
    shown = format_type(declared)
    if not sources:
        refuse(
            "NQX304",
            "field",
            f"expected a field that holds text, integers or booleans, got {shown}",
        )
    if not any(_some_fit(source, document, to, document) for source in sources):
        message = f"expected a field that holds a value of {step.to}, got {shown}"
        hint = "`convert` it to literal strings first, and name them with `map_enum`"
        refuse("NQX304", "field", message, hint)
    if not step.exact:
        message = "expected a step with an effect, got exact: false for words, which nothing rounds"
        refuse("NQX306", "exact", message, "leave it out; `map_enum` gives members other names")
    if all(source == to for source in sources):
        message = f"expected a step with an effect, got one that leaves {shown} as it is"
        refuse("NQX306", "field", message)
    return scope.moved(document).with_type(step.field, lambda have: _changed(have, to, document))


def text_sources(declared: Type, document: Document) -> Iterator[Type]:
    """Yields the types inside a type that a conversion of words changes; NQX304 if one is among several options."""

    def holds_text(part: Type) -> bool:
        return len(part.branches) == 1 and is_of_words(part, document)

    return sole_types(declared, holds_text, "words of one type, or null")


def sole_types(declared: Type, wanted: Callable[[Type], bool], expected: str) -> Iterator[Type]:
    """Yields the outermost types inside a type that are wanted.

    Args:
        declared: The type.
        wanted: Returns True for them.
        expected: Where they may be, for messages.

    Raises:
        SchemaError: NQX304: one is among several options, which only values could tell apart.
    """
    if wanted(declared):
        yield declared
        return
    for part in declared.parts:
        found = [*sole_types(part, wanted, expected)]
        if found and len(declared.solid) > 1:
            message = f"expected {expected}, got {format_type(declared)}"
            refuse("NQX304", "field", message, "write a `python` step")
        yield from found


def _changed(declared: Type, to: Type, document: Document) -> Type:
    if len(declared.branches) == 1 and is_of_words(declared, document):
        return to
    return declared.with_parts(tuple(_changed(part, to, document) for part in declared.parts))


def review_text(step: Convert, to: Type, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320 where a word may have no value in the new type."""
    document = with_named(scope.document, to, scope.target)
    sources = text_sources(scope.type(step.field), document)
    if not all(_fits(source, document, to, document) for source in sources):
        yield may_stop(f"with a value that is none of {step.to}", "to")


def text_difference(gap: Gap) -> Type | None:
    """The type that words get first where they have another one in the wanted type.

    It is the wanted one, unless some words have other names there: they are literal strings before `map_enum` names them.
    """
    todo = [(gap.have, gap.want)]
    for have, want in todo:
        if len(have.solid) == len(want.solid) == 1 and len(have.branches) + len(want.branches) > 2:
            todo.append((have.solid[0], want.solid[0]))
        elif is_of_words(have, gap.old) and is_of_words(want, gap.new):
            if have == want or (_is_number(have) and _is_number(want)):
                continue
            kept, wanted = have.spelled(gap.old), want.spelled(gap.new)
            some = kept is None and _some_fit(have, gap.old, want, gap.new)
            if some or _fits(have, gap.old, want, gap.new):
                return want
            if (
                kept is not None
                and wanted is not None
                and not (have.texts(gap.old) and want.texts(gap.new))
            ):
                named = LiteralOf(tuple(kept))
                return None if named == have else named
        else:
            todo += zip(have.parts, want.parts, strict=False)
    return None


def convert_text_nodes(step: Convert, to: Type, place: Place) -> Node:
    """The instance with words as nodes of another type."""
    document = place.after

    def changed(node: Node, declared: Type, at: Path) -> Node:
        if len(declared.branches) > 1:
            fits = node is not None and len(declared.solid) == 1
            return changed(node, declared.solid[0], at) if fits else node
        if is_of_words(declared, place.before):
            return named(node, at)
        found = declared.children(node)
        made = [changed(each, part, (*at, key)) for key, part, each in found]
        return declared.with_children(node, made) if found else node

    def named(node: Node, at: Path) -> Node:
        text = _word(node, place, at)
        value = _read(text, to, document)
        if value is MISSING:
            known = to.spelled(document)
            shown = format_type(to) if known is None else f"one of {listed([*known])}"
            message = f"expected {shown}, got {shown_node(node)}"
            raise place.error("NQX421", message, *at, hint=did_you_mean(text, known or ()))
        return value if isinstance(value, str) else number_node(value)

    declared = place.before.structs[place.struct].fields[step.field].declared
    node = place.field(step.field)
    return place.with_fields({step.field: changed(node, declared, (step.field,))})


def _word(node: Node, place: Place, at: Path) -> str:
    """The text of a node that holds a word."""
    value: Any = node
    if ENUM.matches(node):  # a member of a Python class; schemas write its name
        value = node["name"]
    elif NUMPY_SCALAR.matches(node) and isinstance(node["value"], str):
        value = node["value"]
    elif elements_of(node) and not place.shape(node, *at):  # as jit makes it of a number
        value = place.load(node).read().item()
    elif BIGINT.matches(node):
        value = number_value(node)
    if not isinstance(value, (str, int)):
        raise place.error("NQX411", f"expected a word, got {shown_node(node)}", *at)
    return spelling(value)
