"""Checks of the names in the expressions of one struct: what each path reaches, and whether operations on it have a value."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.grammar import ADVICE, ATTRIBUTES, head_of, path_of, steps_of
from neuralqx_struct.printing import cut, listed
from neuralqx_struct.schema.field_paths import PathError, Reached, paths_from, reach, single_types
from neuralqx_struct.schema.lint import Problem, Speller, unknown
from neuralqx_struct.schema.lint.samples import SampleEvaluation
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import Type


@dataclass(eq=False)
class Names:
    """The names that the expressions of one struct may use.

    Attributes:
        document: The document.
        struct: The struct; its fields are names.
        sizes: Names of sizes.
        listed: Groups of names, for suggestions.
        label: The description of a name in messages.
        speller: Suggests corrections.
    """

    document: Document
    struct: str
    sizes: Container[str]
    listed: tuple[Iterable[str], ...]
    label: str
    speller: Speller
    _reached: dict[str, Reached | PathError] = field(default_factory=dict)

    @cached_property
    def samples(self) -> SampleEvaluation:
        """Evaluates expressions of the struct on sample values."""
        return SampleEvaluation(self.document, self.struct, self.sizes)

    @cached_property
    def paths(self) -> list[str]:
        """The paths that may be meant."""
        return paths_from(self.document, self.struct)

    def reach(self, path: str) -> Reached:
        """As :func:`~neuralqx_struct.schema.field_paths.reach`."""
        if path not in self._reached:
            try:
                self._reached[path] = reach(self.document, self.struct, path)
            except PathError as error:
                self._reached[path] = error
        found = self._reached[path]
        if isinstance(found, PathError):
            raise found
        return found

    def is_field(self, path: str) -> bool:
        """True if a path starts at a field."""
        return head_of(path) in self.document.structs[self.struct].fields

    def problems(self, expression: Expression, *, single: bool) -> Iterator[Problem]:
        """Yields the problems of names, or else those of operations.

        Args:
            expression: The expression.
            single: Whether its value has to be one truth value.
        """
        found = [*self._of_names(expression)]
        yield from found
        if not found:
            yield from self.samples.problems(expression, single=single)

    def _of_names(self, expression: Expression) -> Iterator[Problem]:
        fields = self.document.structs[self.struct].fields
        for head in unknown(expression.heads, fields, self.sizes):
            message = f"expected {self.label} of {self.struct}, got {head!r}"
            paths = [path for path in sorted(expression.names) if head_of(path) == head]
            yield Problem("NQX116", message, self._near(head, paths))
        for path in sorted(expression.names):
            size = head_of(path)
            try:
                if self.is_field(path):
                    self.reach(path)
                elif size in self.sizes and steps_of(path):
                    got = f"got the size {size!r} in `{cut(path)}`"
                    hint = f"write {size} alone: it is a number"
                    yield Problem("NQX116", f"expected a field of {self.struct}, {got}", hint)
            except PathError as error:
                code = "NQX116" if error.known else "NQX115"
                if isinstance(error.step, str) and not error.known:
                    code = "NQX114"  # as for attributes
                yield Problem(code, f"{error} in `{cut(path)}`", self._fix(error))

    # --- hints -----------------------------------------------------------------------------------------------------

    def _near(self, head: str, paths: list[str]) -> str | None:
        """The hint about an unknown name, with which some paths of an expression start."""
        if head in ADVICE:
            return ADVICE[head]
        members = {name for enum in self.document.enums.values() for name in enum.members}
        if head in members:
            return f"write {head!r} in quotes"
        hint = self.speller.hint(head, *self.listed)
        meant = [self.elsewhere(path) for path in paths]
        inside = f"did you mean {', '.join(map(repr, meant))}?" if all(meant) else None
        return hint or inside or self.known_names()

    def known_names(self) -> str:
        """The names that are possible."""
        labels = ("fields", "sizes")
        groups = [sorted(map(str, group)) for group in self.listed]
        shown = zip(labels, groups, strict=False)
        return "; ".join(f"{label}: {listed(names)}" for label, names in shown if names)

    def _fix(self, error: PathError) -> str | None:
        """The hint about a path that reaches nothing."""
        prefix, step = error.prefix, error.step
        if isinstance(step, int):
            return self._fix_of_item(prefix)
        near = self.speller.closest(step, error.known)
        if near is not None:
            return f"did you mean {path_of(prefix, (near,))!r}?"
        if error.known:
            return f"fields: {listed([path_of(prefix, (name,)) for name in sorted(error.known)])}"
        if step in FUNCTIONS:
            return f"write {step}({prefix})"
        found = self.reach(prefix)
        if found.is_collection:
            return f"operators take all items together, as in all({prefix} > 0)"
        known = any(not option.takes_all for _, option in found.options)
        return ATTRIBUTES if known else "declare a struct with the field"

    def _fix_of_item(self, prefix: str) -> str | None:
        """The hint about a path to an item that is not there."""
        found = self.reach(prefix)
        counts = {len(option.fixed_parts) for _, option in found.options}
        if any(option.extents for _, option in found.options):
            return f"the size of an axis is shape({prefix})[0]"
        if counts == {0} and found.is_collection:
            return f"operators take all items together, as in all({prefix} > 0)"
        if found.many:
            return "write the item before its fields, as in layers[0].width"
        return f"the last item is {prefix}[{max(counts) - 1}]" if any(counts) else None

    def elsewhere(self, path: str) -> str | None:
        """A path to a field of the same name in another place, such as where steps moved it."""
        names = [step for step in (head_of(path), *steps_of(path)) if isinstance(step, str)]
        same = (each for each in self.paths if each.rpartition(".")[2] == names[-1])
        return next(same, None)

    # --- texts -----------------------------------------------------------------------------------------------------

    def texts(self, path: str) -> list[str] | None:
        """The only strings that a path may reach; None if there are others, or it reaches nothing."""
        known = [option.texts(owner) for owner, option in self._types(path)]
        if not known or None in known:
            return None
        return [text for texts in known for text in texts or ()]

    def meant(self, path: str, text: str) -> str | None:
        """A hint with the string that a text means, or is most like, of those that a path may reach."""
        if not self.speller.takes_one():
            return None
        hints = (option.meant(text, owner) for owner, option in self._types(path))
        return next(filter(None, hints), None)

    def _types(self, path: str) -> list[tuple[Document, Type]]:
        """The types of the values that a path reaches, with their documents; none for another path."""
        try:
            found = self.reach(path) if self.is_field(path) else None
        except PathError:
            return []
        return [*single_types(found.options)] if found else []
