"""Trials: payloads of one version that are brought to another one, and checked, as a load does; and how many by default.

The payloads have shapes, but no bytes. A comparison of declarations finds everything else; of sizes it finds what two versions
declare otherwise, and only payloads tell whether that refuses any. A load compares sizes that are polynomials of the free sizes
of a payload. Two that differ have the same value at few points (Schwartz, J. ACM 27 (1980), lemma 1), so random sizes far from
zero show it, and bounds are met by small ones.

Example:
    >>> from neuralqx_struct.evolution.plans import plan
    >>> trial = try_payloads(series, plan(series, 1, 3), "error", IN_LINT)
    >>> trial.read, trial.refused
    (12, None)
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from neuralqx_struct.errors import Diagnostic, StructError
from neuralqx_struct.evolution.payload_tree import EntryError
from neuralqx_struct.evolution.plans import Plan, Unknown, apply, without_unknown
from neuralqx_struct.expressions.polynomials import polynomial
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.schema.conformance import conform_node
from neuralqx_struct.schema.field_paths import PathError, reach
from neuralqx_struct.schema.model import DimDeclaration, Document, once
from neuralqx_struct.schema.samples import Place, places_of, samples_of
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types import walk_type


class Effort(NamedTuple):
    """How much is tried.

    Attributes:
        payloads: How many payloads have to be read.
        work: The structs and arrays in all of them; more are left out.
        each: The payloads that have to show each size.
    """

    payloads: int
    work: int
    each: int = 0

    @classmethod
    def of(cls, payloads: int) -> Effort:
        """The effort for a number of payloads; those of a model with hundreds of arrays are fewer, as each shows many sizes."""
        return cls(payloads, 160 * payloads)

    @property
    def in_doubt(self) -> Effort:
        """The effort where sizes are declared otherwise, which only payloads decide."""
        return Effort(max(100, self.payloads), max(32_000, self.work), each=5)


IN_LINT = Effort(12, 1_000)  # it runs at every load of a schema
IN_VERDICTS = Effort.of(25)
SMALLEST = Effort(1, 1_000)
_SMALLER = 12  # payloads that are looked at for a smaller one, once one was refused
_DRAWS = 4  # for each payload that is read: not all that are drawn are valid
#: The codes of values that the declaration of the reader does not allow.
_CONFORMANCE = frozenset(f"NQX{number}" for number in range(410, 420))
_MISSING = "NQX414"  # a field without a value, which nothing empty explains
#: A step, or a derived field without a value; an entry that a step names; the declaration of the reader.
_Cause = Literal["step", "entry", "declaration"]
_HIGHEST = 12  # bound of a dim that random sizes are sure to pass


class Trial(NamedTuple):
    """The result of a trial.

    Attributes:
        read: How many payloads were read.
        refused: The first problem of the smallest payload that is not read, if there is one.
        by_step: Whether a step refuses it, or a derived field has no value; else the declaration of the reader does.
        decides: Whether the payloads that were read show all sizes, so that none refuses others.
        stop: The first problem of a step with payloads that it need not take: those that hold something empty, where all
            others are read, and those without an entry that no version declares.
        reason: The reason why no payload was read, or fewer than asked for.
    """

    read: int
    refused: Diagnostic | None = None
    by_step: bool = False
    decides: bool = False
    stop: Diagnostic | None = None
    reason: str | None = None

    @property
    def tried(self) -> int:
        """How many payloads were tried."""
        return self.read + (self.refused is not None)


def try_payloads(known: Series, way: Plan, unknown: Unknown, effort: Effort) -> Trial:
    """Brings random payloads of one version to another one, small ones first.

    A step may stop at what is empty, as an empty list shows no size of its items. So a payload that a step refuses and that
    holds something empty is no reason against others, as long as payloads that hold nothing empty are read. Nor is one without
    an entry of a ``pytree`` or a dict that a step names: the payloads that the step was written for hold it.

    Args:
        known: The versions with their steps.
        way: The hops from the version whose payloads are drawn to the one that reads them.
        unknown: The load policy for stored fields that the reader lacks.
        effort: How much is tried.
    """
    writer, reader = known.at(way.from_version), known.at(way.to_version)
    samples, places = samples_of(writer, reader), places_of(writer)
    shown: Counter[Place] = Counter()
    read = full = work = 0
    stop = reason = None
    worst: tuple[int, Diagnostic, _Cause] | None = None
    last = effort.payloads * _DRAWS
    for number in range(last):
        if number > last:
            break
        sample = samples.at(number)
        work += sample.size
        if work > effort.work:
            reason = "more would be large"
            break
        if sample.payload is None:
            reason = reason or sample.reason
            continue
        is_full = not _holds_empty(sample.payload.document["manifest"])
        refused = _refused(sample.payload, known, reader, way, unknown)
        if refused is not None:
            problem, cause = refused
            hides = cause == "step" and not is_full and problem.code != _MISSING
            if cause != "entry" and not hides:
                last = number + _SMALLER if worst is None else last
                if worst is None or sample.size < worst[0]:
                    worst = sample.size, problem, cause
                continue
            stop, full = stop or problem, full + (cause == "entry")
            continue
        read, full = read + 1, full + is_full
        shown.update(sample.places)
        if (
            worst is None
            and read >= effort.payloads
            and all(shown[place] >= effort.each for place in places)
        ):
            return Trial(read, decides=_is_decidable(known, writer, reader), stop=stop)
    if worst is not None:
        return Trial(read, worst[1], by_step=worst[2] == "step")
    if stop is not None and not full:
        return Trial(read, stop, by_step=True)
    return Trial(read, stop=stop, reason=reason)


def _holds_empty(node: Any) -> bool:
    """True if a payload holds an empty list or dict, an array without elements, or the number 0."""
    if isinstance(node, dict):
        inside = [node["shape"]] if "shape" in node else node.values()
        return node.get("items") == [] or any(map(_holds_empty, inside))
    if isinstance(node, list):
        return any(map(_holds_empty, node))
    return node == 0 and node is not False


def _refused(
    payload: Payload, known: Series, reader: Document, way: Plan, unknown: Unknown
) -> tuple[Diagnostic, _Cause] | None:
    """The first problem of a payload, and what refuses it; None if it is read."""
    try:
        result = apply(payload, way, others=known.others)
        result = without_unknown(result, reader, unknown, [])
        problems = conform_node(reader, result.document["manifest"], result.arrays)
    except EntryError as error:
        return error.diagnostics[0], "entry"
    except StructError as error:
        return error.diagnostics[0], "step"
    for found in problems:
        if found.severity == "error":
            return found, "declaration" if found.code in _CONFORMANCE else "step"
    return None


def place_in(document: Document, problem: Diagnostic) -> str:
    """The path in a schema of the field that a problem of a payload is about, as far as one is known."""
    with suppress(KeyError, PathError, ValueError):
        owner, struct, name = reach(
            document, document.root, problem.path.removeprefix("$.")
        ).owners[-1]
        if owner is document:
            return path_text(("structs", struct, "fields", name))
    return "$.structs"


def _is_decidable(known: Series, writer: Document, reader: Document) -> bool:
    """True if random payloads tell the sizes of all versions apart."""
    others = (each for series in known.others.values() for each in series.documents.values())
    free = DimDeclaration()
    for name, dim in reader.dims.items():
        before = writer.dims.get(name, free)
        if max(dim.min or 0, dim.max or 0) > _HIGHEST and (dim.min, dim.max) != (
            before.min,
            before.max,
        ):
            return False
    return all(map(_is_polynomial, [*known.documents.values(), *others]))


@once
def _is_polynomial(document: Document) -> bool:
    """True if payloads have only sizes that random ones tell apart."""
    sizes = [dim.equation for dim in document.dims.values() if dim.equation is not None]
    for struct in document.structs.values():
        for declaration in struct.stored.values():
            for part in walk_type(declaration.declared):
                named = not part.refers or document.is_struct(part.refers)
                if part.takes_all or not (named or document.members_of(part.refers)):
                    return False
                sizes += [size for size in (*part.extents, *part.arguments) if size is not ...]
    forms = (polynomial(size, {}) for size in sizes)
    return all(atom.isidentifier() for form in forms for atoms in form for atom in atoms)
