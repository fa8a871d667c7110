"""The proof that steps lead from one version to the next, which lint shows. Reads no payload.

Example:
    >>> prove(v2, v3)
    []
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution.differences import Difference, defaulted, differences
from neuralqx_struct.evolution.plans import Hop, hop_between
from neuralqx_struct.evolution.steps import migration_path, placed
from neuralqx_struct.evolution.steps.operations import Scope
from neuralqx_struct.paths import format_path
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.model import Document


def prove(old: Document, new: Document) -> list[Diagnostic]:
    """Checks that the declared steps lead from one version to the next, and back.

    Args:
        old: The version that the steps start from.
        new: The version that declares them.

    Returns:
        Empty if every payload of ``old`` becomes one of ``new``. Otherwise NQX301 (no steps, and aliases, defaults and
        exact promotion do not suffice), NQX305 (the steps lead elsewhere), one diagnostic for each difference, and the
        errors of single steps. NQX307 (no downgrade) and NQX319 are warnings.

    Example:
        >>> prove(v2, v3)
        []
    """
    if old.id != new.id:
        message = f"expected two versions of {new.id}, got one of {old.id}"
        return [Diagnostic("NQX283", "error", message, path="$.schema")]
    try:
        return _proved(old, new)
    except SchemaError as error:
        return list(error.diagnostics)


def _proved(old: Document, new: Document) -> list[Diagnostic]:
    hop = hop_between(old, new)
    left = [*hop.left]
    if left:
        from neuralqx_struct.evolution.suggestions import explained  # sound steps need none of it

        left = explained(hop.result if hop.declared else old, new, left)
    found = [each.to_diagnostic("NQX305" if hop.declared else "NQX301") for each in left]
    if not hop.declared:
        versions = f"from version {old.version} to {new.version}"
        why = f"no migration {versions} is declared; aliases, defaults and exact promotion do not suffice"
        found = [replace(each, message=f"{each.message}\n{why}") for each in found]
    for position, stage in enumerate(hop.stages if hop.declared else ()):
        scope = Scope.of(stage.step, stage.before, new)
        review = stage.record.review(stage.step, scope)
        found += placed(review, stage.step, position, old.version, new)
    if left:
        return found
    found += [*defaulted(hop.result, new), *_stops(hop.result, new)]
    return [*found, *_no_downgrade(hop)] if hop.declared else found


def _stops(have: Document, want: Document) -> Iterator[Diagnostic]:
    """Yields NQX320 for structs that only a pytree may hold, and that are gone."""
    for name in graph_of(have).structs:
        if name not in want.structs:
            message = f"expected the struct {name}, which a pytree may hold, got none"
            hint = f"keep {name} if payloads hold it in a pytree: those are refused without it"
            stop = Difference(("structs", name), message, hint)
            yield stop.to_diagnostic("NQX320", "info")


def _no_downgrade(hop: Hop) -> list[Diagnostic]:
    """Returns warnings about downgrades, except for steps whose ``lossy: true`` gives them up."""
    old, new = hop.old, hop.new
    try:
        back = hop.back
    except SchemaError as error:
        why = f"no downgrade to version {old.version}: the step cannot be undone"
        return [
            replace(each, code="NQX307", severity="warning", message=f"{each.message}\n{why}")
            for each in error.diagnostics
            if each.code != "NQX423"
        ]
    found = []
    place = format_path(migration_path(new, old.version))
    for stage in back:
        review = stage.record.review(stage.step, Scope.of(stage.step, stage.before, old))
        for each in review:
            if each.code == "NQX320":
                message = f"{each.message}\non a downgrade to version {old.version}"
                found.append(replace(each, message=message, path=place))
    result = back[-1].after if back else new
    why = f"a downgrade to version {old.version} is refused where a payload makes use of the difference"
    for problem in differences(result, old):
        refused = problem._replace(message=f"{problem.message}\n{why}", hint=None)
        found.append(refused.to_diagnostic("NQX307", "warning"))
    return found
