"""Checks of the names in expressions: what each path reaches, whether a value is one or one for each item, and the nearest fix.

Every expression that a hint proposes passes the same checks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.operators import (
    OPERATORS,
    cut,
    format_tree,
    operator_of,
    shown,
    spine,
)
from neuralqx_struct.expressions.paths import head_of, path_of, replaced, steps_of
from neuralqx_struct.schema.field_paths import PathError, Reached, paths_from, reach, single_types
from neuralqx_struct.schema.lint import Speller, unknown
from neuralqx_struct.schema.model import Document

#: Code, message and hint.
Problem = tuple[str, str, str | None]
_Hint = Callable[[], str | None]

MOST_TRIED = 8  # fixes of one path
_LONGEST = 200  # characters of an expression in a hint

# A value, one for each item, or a collection, of which operators take the items.
ONE, _ITEMS, _COLLECTION = "one", "items", "collection"


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
        """Yields the problems of names and items."""
        for code, message, hint in self._found(expression):
            yield code, message, hint()

    def _found(self, expression: Expression) -> list[tuple[str, str, _Hint]]:
        """The problems, with functions that look for their fixes."""
        fields = self.document.structs[self.struct].fields
        found: list[tuple[str, str, _Hint]] = []
        for head in unknown(expression.heads, fields, self.sizes):
            message = f"expected {self.label} of {self.struct}, got {head!r}"
            found.append(("NQX116", message, partial(self._near, expression, head)))
        for path in sorted(expression.names):
            try:
                if self.is_field(path):
                    self.reach(path)
                elif steps_of(path) and head_of(path) in self.sizes:
                    size = head_of(path)
                    message = (
                        f"expected a field of {self.struct}, got the size {size!r} in `{cut(path)}`"
                    )
                    found.append(("NQX116", message, partial("did you mean {!r}?".format, size)))
            except PathError as error:
                code = "NQX116" if error.known else "NQX115"
                if isinstance(error.step, str) and not error.known:
                    code = "NQX114"  # as for attributes
                hint = partial(self._fix, expression, path, error)
                found.append((code, f"{error} in `{cut(path)}`", hint))
        return found or Judgement(self).problems(expression)

    def _helps(self, expression: Expression, text: str | None) -> bool:
        """True if an expression has fewer problems than another one."""
        return text is not None and len(self._found(parse(text))) < len(self._found(expression))

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
        if near is not None:
            return f"did you mean {near!r}?"
        bad = sorted(name for name in expression.names if head_of(name) == head)
        ends = [[*islice(self._ending((head, *steps_of(name))[-1]), MOST_TRIED)] for name in bad]
        for paths in zip(*ends, strict=False):
            text = _exchanged(expression, dict(zip(bad, paths, strict=True)))
            if self._helps(expression, text):
                return f"did you mean {paths[0]!r}?" if len(bad) == 1 else _write(f"{text}")
        return self.speller.hint(head, *self.listed, label="fields", first=1)

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
        for candidate in islice(self._candidates(path, error, near), MOST_TRIED):
            text = _exchanged(expression, {path: candidate})
            if self._helps(expression, text):
                if "(" not in candidate:
                    return f"did you mean {candidate!r}?"
                return _write(f"{text}")
            if text and self.whole and self._helps(expression, f"{self.whole}({text})"):
                return _write(f"{self.whole}({text})")
        listed = ", ".join(path_of(error.prefix, (name,)) for name in sorted(error.known)[:20])
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
            yield from self._ending(error.step)
            if error.known:
                return
        else:
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


class Judgement:
    """Finds values for each item where one value is needed.

    Args:
        names: The names of the expression, all of which reach something.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.found: list[tuple[str, str, _Hint]] = []

    def problems(self, expression: Expression) -> list[tuple[str, str, _Hint]]:
        """The problems of an expression."""
        whole = self.names.whole
        sort = self.sort(expression.tree)
        if sort == _ITEMS and whole and not self.found:
            hint = _write(f"{whole}({expression.text})")
            self.add(expression.tree, "one value", hint)
        return self.found

    def add(self, node: ast.expr, wanted: str, hint: str) -> None:
        """Adds a problem of a part that has a value for each item."""
        message = f"expected {wanted}, got one for each item in `{shown(node)}`"
        self.found.append(("NQX115", message, lambda: hint))

    def sort(self, node: ast.expr) -> str:
        """Whether a part has one value, one for each item, or is a collection."""
        match node:
            case ast.Name(id=path):
                return self.of_path(path)
            case ast.BinOp():
                first, steps = spine(node)
                found, before = self.sort(first), first
                for step in steps:
                    found = self.paired(before, found, step.right, self.sort(step.right))
                    before = step
                return found
            case ast.UnaryOp() if operator_of(node).negates:
                self.single(node.operand)
                return ONE
            case ast.UnaryOp():
                return self.mapped(self.sort(node.operand))
            case ast.BoolOp():
                for value in node.values:
                    self.single(value)
                return ONE
            case ast.Compare():
                return self.compared(node)
            case ast.IfExp():
                self.single(node.test)
                sorts = {self.sort(node.body), self.sort(node.orelse)}
                return _ITEMS if _ITEMS in sorts else ONE
            case ast.Call():
                return self.called(node)
            case ast.Subscript():
                return self.sort(node.value)
            case ast.Tuple() | ast.List():
                return _COLLECTION
        return ONE

    def of_path(self, path: str) -> str:
        """The same for a name."""
        if not self.names.is_field(path):
            return ONE
        found = self.names.reach(path)
        if found.many:
            return _ITEMS
        return _COLLECTION if found.is_collection else ONE

    @staticmethod
    def mapped(sort: str) -> str:
        """The same for an operation on one value."""
        return ONE if sort == ONE else _ITEMS

    @staticmethod
    def paired(one: ast.expr, first: str, other: ast.expr, second: str) -> str:
        """The same for an operation on two: a collection is taken item by item beside a single value."""
        sorts = {first, second}
        if _ITEMS in sorts:
            return _ITEMS
        spread = [
            isinstance(node, ast.Name) and sort == _COLLECTION
            for node, sort in ((one, first), (other, second))
        ]
        alone = [getattr(node, "value", ...) is not None for node in (one, other)]
        return _ITEMS if ONE in sorts and any(spread) and all(alone) else ONE

    def compared(self, node: ast.Compare) -> str:
        """The same for a comparison, or a chain of them."""
        before, sort = node.left, self.sort(node.left)
        sorts = set()
        for relation, right in zip(node.ops, node.comparators, strict=True):
            after = ONE if OPERATORS[type(relation)].member else self.sort(right)
            sorts.add(self.paired(before, sort, right, after))
            before, sort = right, after
        return _ITEMS if _ITEMS in sorts else ONE

    def called(self, node: ast.Call) -> str:
        """The same for a function."""
        name = node.func.id  # type: ignore[attr-defined]
        record = FUNCTIONS[name]
        sorts = [self.sort(argument) for argument in node.args]
        if record.folds:
            for argument, sort in zip(node.args, sorts, strict=True):
                if len(sorts) > 1 and sort == _ITEMS:
                    self.add(argument, "one value", _write(f"{name}({format_tree(argument)})"))
            return ONE
        if record.measures:
            return _ITEMS if _ITEMS in sorts else ONE
        return _ITEMS if {*sorts} != {ONE} else ONE

    def single(self, node: ast.expr) -> None:
        """Checks that a part has one truth value."""
        if self.sort(node) == _ITEMS:
            self.add(node, "one truth value", _write(f"all({format_tree(node)})"))
