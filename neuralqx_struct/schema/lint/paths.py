"""Checks of the names in expressions: what each path reaches, whether a value is one or one for each item, and the nearest fix.

Every expression that a hint proposes passes the same checks.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

from neuralqx_struct.errors import SchemaError, Severity
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.operators import cut, format_tree
from neuralqx_struct.expressions.paths import (
    exchanged,
    head_of,
    names_in,
    path_of,
    replaced,
    steps_of,
)
from neuralqx_struct.schema.field_paths import PathError, Reached, paths_from, reach, single_types
from neuralqx_struct.schema.lint import Speller, unknown
from neuralqx_struct.schema.lint.operand_kinds import COUNT, Form, form_of
from neuralqx_struct.schema.lint.operands import EACH, Judgement, Operation, around
from neuralqx_struct.schema.model import Document

#: Code, message, hint and severity.
Problem = tuple[str, str, str | None, Severity]
_Hint = Callable[[], str | None]
_Found = tuple[str, str, _Hint, Severity]

MOST_TRIED = 8  # fixes of one path
_LONGEST = 200  # characters of an expression in a hint


@dataclass
class Names:
    """The names that the expressions of one struct may use.

    Attributes:
        document: The document.
        struct: The struct; its fields are names.
        sizes: Names of sizes.
        listed: Groups of names, for suggestions.
        label: The description of a name in messages.
        speller: Suggests corrections.
        whole: The function that makes one value of all items; empty where all of them are a value.
    """

    document: Document
    struct: str
    sizes: Container[str]
    listed: tuple[Iterable[str], ...]
    label: str
    speller: Speller
    whole: str = "all"
    _reached: dict[str, Reached | PathError] = field(default_factory=dict)
    _forms: dict[str, Form] = field(default_factory=dict)

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

    @staticmethod
    def is_path(text: str) -> bool:
        """True for the text of a path."""
        return "(" not in text

    def is_field(self, path: str) -> bool:
        """True if a path starts at a field."""
        return head_of(path) in self.document.structs[self.struct].fields

    def problems(self, expression: Expression) -> Iterator[Problem]:
        """Yields the problems of names and operands."""
        for code, message, hint, severity in self._found(expression):
            yield code, message, hint(), severity

    def _found(self, expression: Expression) -> list[_Found]:
        """The problems, with functions that look for their fixes."""
        fields = self.document.structs[self.struct].fields
        found: list[_Found] = []
        for head in unknown(expression.heads, fields, self.sizes):
            message = f"expected {self.label} of {self.struct}, got {head!r}"
            found.append(("NQX116", message, partial(self._near, expression, head), "error"))
        for path in sorted(expression.names):
            try:
                if self.is_field(path):
                    self.reach(path)
                elif steps_of(path) and head_of(path) in self.sizes:
                    size = head_of(path)
                    message = (
                        f"expected a field of {self.struct}, got the size {size!r} in `{cut(path)}`"
                    )
                    hint = partial("did you mean {!r}?".format, size)
                    found.append(("NQX116", message, hint, "error"))
            except PathError as error:
                code = "NQX116" if error.known else "NQX115"
                if isinstance(error.step, str) and not error.known:
                    code = "NQX114"  # as for attributes
                fix = partial(self._fix, expression, path, error)
                found.append((code, f"{error} in `{cut(path)}`", fix, "error"))
        return found or self._operands(expression)

    def _operands(self, expression: Expression) -> list[_Found]:
        """The problems of the operations, where all names reach something."""
        judgement = Judgement(self.form)
        if self.whole == "all":
            judgement.single(expression.tree, "one value")
        else:
            form = judgement.form(expression.tree)
            if form.many and self.whole and not judgement.found:
                tried = partial(around, self.whole, expression.tree)
                judgement.add(expression.tree, "one value", EACH, tried=tried)
        found: list[_Found] = []
        for each in judgement.found:
            hint = partial(self._meant, expression, each)
            found.append(("NQX115", each.message, hint, "warning" if each.unsure else "error"))
        return found

    def form(self, path: str) -> Form:
        """The form of a name that reaches something."""
        if path not in self._forms:
            self._forms[path] = form_of(self.reach(path)) if self.is_field(path) else COUNT
        return self._forms[path]

    def is_single(self, expression: Expression) -> bool:
        """True if an expression has one value, which is no collection."""
        judgement = Judgement(self.form)
        form = judgement.form(expression.tree)
        return not (form.many or form.is_collection or judgement.found)

    def _helps(self, expression: Expression, text: str | None) -> bool:
        """True if an expression has fewer problems than another one."""
        with contextlib.suppress(SchemaError):  # it may have grown too long
            return text is not None and len(self._found(parse(text))) < len(self._found(expression))
        return False

    def texts(self, path: str) -> list[str] | None:
        """The only strings that a path may reach; None if there are others, or it reaches nothing."""
        try:
            found = self.reach(path) if self.is_field(path) else None
        except PathError:
            return None
        known = (
            [option.texts(owner) for owner, option in single_types(found.options)] if found else []
        )
        if not known or None in known:
            return None
        return [text for texts in known for text in texts or ()]

    # --- hints -----------------------------------------------------------------------------------------------------

    def _near(self, expression: Expression, head: str) -> str | None:
        """The hint about an unknown name."""
        if self.speller.is_done:
            return None
        near = self.speller.closest(head, *self.listed)
        bad = sorted(name for name in expression.names if head_of(name) == head)
        meant = [{head: text} for text in self._constants(expression, head) if bad == [head]]
        if near is not None:
            meant.append({name: path_of(near, steps_of(name)) for name in bad})
        ends = [[*islice(self._ending((head, *steps_of(name))[-1]), MOST_TRIED)] for name in bad]
        meant += [dict(zip(bad, paths, strict=True)) for paths in zip(*ends, strict=False)]
        proposal = self._proposal(expression, meant)
        return proposal or self.speller.hint(head, *self.listed, label="fields", first=1)

    def _constants(self, expression: Expression, head: str) -> Iterator[str]:
        """Yields the constants that a name may mean: words of YAML, and text without its quotes."""
        if head.lower() in _WORDS:
            yield _WORDS[head.lower()]
        for node in ast.walk(expression.tree):
            parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            names = [part.id for part in parts if isinstance(part, ast.Name)]
            if head in names and any(head in (self.texts(name) or ()) for name in names):
                yield repr(head)

    def _proposal(self, expression: Expression, meant: Iterable[Mapping[str, str]]) -> str | None:
        """The hint with the first of some texts for paths that leaves fewer problems."""
        for others in islice(meant, MOST_TRIED):
            text = _exchanged(expression, others)
            if text is None:
                continue
            if self._helps(expression, text):
                (first, *more) = others.values()
                if more or "(" in first or not head_of(first).isidentifier():
                    return _write(text)
                return f"did you mean {first!r}?"
            if self.whole and self._helps(expression, f"{self.whole}({text})"):
                return _write(f"{self.whole}({text})")
        return None

    def _meant(self, expression: Expression, operation: Operation) -> str | None:
        """The hint about an operation that no values have."""
        if not self.speller.takes_one():
            return None
        for tree in islice(operation.tried(), MOST_TRIED):
            made = exchanged(expression.tree, operation.node, tree)
            if self._helps(expression, format_tree(made)):
                return _write(format_tree(made))
        inside = (
            {name.id: path} for name in names_in(operation.node) for path in self._around(name.id)
        )
        return self._proposal(expression, inside)

    def _around(self, path: str) -> Iterator[str]:
        """Yields the paths that may be meant by one that reaches something: to the whole of an item, or further."""
        head, steps = head_of(path), steps_of(path)
        if steps and isinstance(steps[-1], int):
            yield path_of(head, steps[:-1])
        whole = path_of(head, (step for step in steps if isinstance(step, str)))
        for further in self.paths:
            if further.startswith(f"{whole}."):
                yield path + further.removeprefix(whole)

    def _ending(self, name: str | int) -> Iterator[str]:
        """Yields the paths to fields of a name."""
        for path in self.paths:
            if f".{path}".endswith(f".{name}"):
                yield path

    def _fix(self, expression: Expression, path: str, error: PathError) -> str | None:
        """The hint about a path that reaches nothing."""
        if self.speller.is_done:
            return None
        near = self.speller.closest(str(error.step), error.known)
        meant = ({path: each} for each in self._candidates(path, error, near))
        proposal = self._proposal(expression, meant)
        if proposal is not None:
            return proposal
        listed = ", ".join(path_of(error.prefix, (name,)) for name in sorted(error.known)[:20])
        if all(option.takes_all for _, option in self.reach(error.prefix).options):
            return "nothing is known of the values in it; declare a struct with the field"
        return f"fields: {listed}" if listed else None

    def _candidates(self, path: str, error: PathError, near: str | None) -> Iterator[str]:
        """Yields expressions that may be meant by a path, the nearest first."""
        head, steps = head_of(path), steps_of(path)
        place = len(steps_of(error.prefix))
        rest = steps[place + 1 :]
        found = self.reach(error.prefix)
        if isinstance(error.step, str):
            if near is not None:
                yield path_of(head, (*steps[:place], near, *rest))
                yield path_of(head, (*steps[:place], near))
            if error.step in FUNCTIONS:
                yield path_of(f"{error.step}({error.prefix})", rest)
            if error.known:
                inside = f"{error.prefix}."
                ending = [*self._ending(error.step)]
                yield from sorted(ending, key=lambda path: not path.startswith(inside))
            if error.known or all(option.takes_all for _, option in found.options):
                return
        else:
            for before in range(place - 1, -1, -1):
                yield path_of(head, (*steps[:before], error.step, *steps[before:place], *rest))
            for _, option in found.options[:1]:
                last = len(option.fixed_parts) - 1
                if last >= 0:
                    end = last if error.step >= 0 else -last - 1
                    yield path_of(head, (*steps[:place], end, *rest))
                if len(option.extents) > abs(error.step):
                    yield f"shape({error.prefix})[{error.step}]"
            yield path_of(head, (*steps[:place], *rest))
        yield from (path for path in self.paths if path.startswith(f"{error.prefix}."))
        yield error.prefix
        yield f"{self.whole or 'sum'}({error.prefix})"
        yield f"len({error.prefix})"
        yield f"size({error.prefix})"


#: Words of YAML and Python, by the words that people write.
_WORDS = {"true": "True", "false": "False", "null": "None", "none": "None"}


def _write(text: str) -> str:
    """A hint with a whole expression."""
    return f"write `{text}`" if len(text) <= _LONGEST else "write all(...) around it"


def _exchanged(expression: Expression, others: Mapping[str, str]) -> str | None:
    """The text of an expression with others in place of paths; None if one cannot be there."""
    try:
        trees = {path: parse(other).tree for path, other in others.items()}
        return format_tree(replaced(expression.tree, trees))
    except SchemaError:
        return None
