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
from neuralqx_struct.expressions.grammar import (
    exchanged,
    head_of,
    names_in,
    path_of,
    steps_of,
)
from neuralqx_struct.expressions.operators import cut, format_tree
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.field_paths import PathError, Reached, paths_from, reach, single_types
from neuralqx_struct.schema.lint import Speller, unknown
from neuralqx_struct.schema.lint.operand_fixes import (
    WORDS,
    Fix,
    around,
    fold_of,
    size_elsewhere,
    with_texts,
    written,
)
from neuralqx_struct.schema.lint.operand_kinds import COUNT, Form, fits, form_of, listed_kinds
from neuralqx_struct.schema.lint.operands import EACH, Judgement, Operation
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import Type

#: Code, message, hint and severity.
Problem = tuple[str, str, str | None, Severity]


_Found = tuple[str, str, Callable[[], Fix], Severity]

MOST_TRIED = 8  # fixes of one path
_MOST_ROUNDS = 4  # problems of one expression that are fixed one after the other


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
            yield code, message, hint().hint, severity

    def repaired(self, expression: Expression) -> str | None:
        """The text of the nearest expression without a problem; None if none was found."""
        for _ in range(_MOST_ROUNDS):
            found = self._found(expression, alike=True)
            if not found:
                return expression.text
            fix = found[0][2]()
            if not fix.text:
                break
            expression = parse(fix.text)
        return None

    def _found(self, expression: Expression, *, alike: bool = False) -> list[_Found]:
        """The problems, with functions that look for their fixes; with ``alike`` as for proposals."""
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
                    fix = partial(self._whole_size, expression, path)
                    found.append(("NQX116", message, fix, "error"))
            except PathError as error:
                code = "NQX116" if error.known else "NQX115"
                if isinstance(error.step, str) and not error.known:
                    code = "NQX114"  # as for attributes
                fix = partial(self._fix, expression, path, error)
                found.append((code, f"{error} in `{cut(path)}`", fix, "error"))
        return found or self._operands(expression, alike=alike)

    def _operands(self, expression: Expression, *, alike: bool) -> list[_Found]:
        """The problems of the operations, where all names reach something."""
        judgement = Judgement(self.form, alike=alike)
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

    def form_of(self, expression: Expression) -> Form:
        """The form of the value of an expression without problems."""
        return Judgement(self.form).form(expression.tree)

    def is_fine(self, text: str) -> bool:
        """True for an expression without problems."""
        with contextlib.suppress(SchemaError):
            return not self._found(parse(text), alike=True)
        return False

    def is_single(self, expression: Expression) -> bool:
        """True if an expression has one value, which is no collection."""
        judgement = Judgement(self.form)
        form = judgement.form(expression.tree)
        return not (form.many or form.is_collection or judgement.found)

    def _helps(self, expression: Expression, text: str | None) -> bool:
        """True if an expression has fewer problems than another one."""
        with contextlib.suppress(SchemaError):  # it may have grown too long
            if text is not None:
                left = self._found(parse(text), alike=True)
                return len(left) < len(self._found(expression, alike=True))
        return False

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

    # --- hints -----------------------------------------------------------------------------------------------------

    def _near(self, expression: Expression, head: str) -> Fix:
        """The hint about an unknown name."""
        if self.speller.is_done:
            return Fix(None)
        bad = sorted(name for name in expression.names if head_of(name) == head)
        meant = [{head: text} for text in self._constants(expression, head) if bad == [head]]
        members = self.document.enums[head].members if head in self.document.enums else ()
        if all(steps_of(name)[:1] and steps_of(name)[0] in members for name in bad):
            meant.append({name: repr(steps_of(name)[0]) for name in bad})
        near = self.speller.near(head, *self.listed)
        meant += [{name: path_of(each, steps_of(name)) for name in bad} for each in near]
        if all(steps_of(name) and steps_of(name)[-1] in self.sizes for name in bad):
            meant.append({name: str(steps_of(name)[-1]) for name in bad})  # dims.n
        ends = [[*islice(self._ending((head, *steps_of(name))[-1]), MOST_TRIED)] for name in bad]
        meant += [dict(zip(bad, paths, strict=True)) for paths in zip(*ends, strict=False)]
        found = self._proposal(expression, meant)
        return found or Fix(size_elsewhere(self.document, head) or self.known_names())

    def known_names(self) -> str:
        """The names that are possible."""
        labels = ("fields", "sizes")
        groups = [sorted(map(str, group)) for group in self.listed]
        shown = zip(labels, groups, strict=False)
        return "; ".join(f"{label}: {listed(names)}" for label, names in shown if names)

    def _whole_size(self, expression: Expression, path: str) -> Fix:
        """The hint about a path behind a size."""
        size = head_of(path)
        return self._proposal(expression, [{path: size}]) or Fix(
            f"write {size} alone: it is a number"
        )

    def _constants(self, expression: Expression, head: str) -> Iterator[str]:
        """Yields the constants that a name may mean: words of YAML, and text without its quotes."""
        if head.lower() in WORDS:
            yield WORDS[head.lower()]
        for node in ast.walk(expression.tree):
            parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            names = [part.id for part in parts if isinstance(part, ast.Name)]
            if head in names and any(head in (self.texts(name) or ()) for name in names):
                yield repr(head)

    def _proposal(self, expression: Expression, meant: Iterable[Mapping[str, str]]) -> Fix | None:
        """The hint with the first of some texts for paths that leaves fewer problems."""
        for others in islice(meant, MOST_TRIED):
            text = with_texts(expression, others)
            if text is None:
                continue
            if self._helps(expression, text):
                (first, *more) = others.values()
                if more or "(" in first or not head_of(first).isidentifier():
                    return written(text)
                return Fix(f"did you mean {first!r}?", text)
            if self.whole and self._helps(expression, f"{self.whole}({text})"):
                return written(f"{self.whole}({text})")
        return None

    def _meant(self, expression: Expression, operation: Operation) -> Fix:
        """The hint about an operation that no values have."""
        if not self.speller.takes_one():
            return Fix(None)
        node = operation.chain or operation.node
        for tree in islice(operation.tried(), MOST_TRIED):
            text = format_tree(exchanged(expression.tree, node, tree))
            folding = fold_of(expression.tree, node)  # all(a == b) for one truth value
            meant = [text, f"{self.whole}({text})" if self.whole else text]
            if folding is not None:
                meant.append(format_tree(exchanged(expression.tree, folding, tree)))
            for each in meant:
                if self._helps(expression, each):
                    return written(each)
        inside = (
            {name.id: path} for name in names_in(operation.node) for path in self._around(name.id)
        )
        return self._proposal(expression, inside) or Fix(self._possible(operation))

    def _possible(self, operation: Operation) -> str | None:
        """The names and functions that are possible in an operation."""
        if not operation.takes:
            return None
        names = [*self._taken(operation.takes)]
        shown = [f"names of {listed_kinds(operation.takes)}: {listed(names)}"] if names else []
        node = operation.node
        if isinstance(node, ast.Call) and len(node.args) == 1:
            form = Judgement(self.form).form(node.args[0])
            kinds = [
                name
                for name, record in FUNCTIONS.items()
                if any(fits(value, record.takes) for value in form.values)
            ]
            shown.append(f"functions of {form.text}: {listed(kinds)}" if kinds else "")
        return "; ".join(filter(None, shown)) or None

    def _taken(self, takes: frozenset[str]) -> Iterator[str]:
        """Yields the names of values that an operator takes."""
        for path in self.paths:
            with contextlib.suppress(PathError):
                form = self.form(path)
                singles = [single for value in form.values for single in value.singles()]
                inside = all(single.operand in takes for single in singles)
                if not form.many and inside and all(v.operand in takes for v in form.values):
                    yield path
        if "int" in takes:
            yield from sorted({str(size) for group in self.listed[1:] for size in group})

    def _around(self, path: str) -> Iterator[str]:
        """Yields the paths that may be meant by one that reaches something: to the whole of an item, or further."""
        head, steps = head_of(path), steps_of(path)
        if steps and isinstance(steps[-1], int):
            yield path_of(head, steps[:-1])
        whole = path_of(head, (step for step in steps if isinstance(step, str)))
        for further in self.paths:
            if further.startswith((f"{whole}.", f"{whole}[")):
                yield path + further.removeprefix(whole)

    def _ending(self, name: str | int) -> Iterator[str]:
        """Yields the paths to fields of a name."""
        for path in self.paths:
            if f".{path}".endswith(f".{name}"):
                yield path

    def _fix(self, expression: Expression, path: str, error: PathError) -> Fix:
        """The hint about a path that reaches nothing."""
        if self.speller.is_done:
            return Fix(None)
        near = self.speller.closest(str(error.step), error.known)
        meant = ({path: each} for each in self._candidates(path, error, near))
        proposal = self._proposal(expression, meant)
        if proposal is not None:
            return proposal
        known = [path_of(error.prefix, (name,)) for name in sorted(error.known)]
        if known:
            return Fix(f"fields: {listed(known)}")
        found = self.reach(error.prefix)
        if all(option.takes_all for _, option in found.options):
            return Fix("nothing is known of the values in it; declare a struct with the field")
        form = self.form(error.prefix)
        names = [
            name for name, r in FUNCTIONS.items() if any(fits(v, r.takes) for v in form.values)
        ]
        return Fix(f"functions of {cut(error.prefix)}: {listed(names)}" if names else None)

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
