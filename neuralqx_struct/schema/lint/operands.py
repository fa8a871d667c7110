"""Checks of the operands in expressions: what each part of an expression may be, and the operations that no value of it has.

A part is known by the types that the document declares. Parts of which nothing is known, such as a `pytree`, pass.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.grammar import head_of, names_in, path_of, steps_of
from neuralqx_struct.expressions.operators import (
    ALIKE,
    COMPARED,
    OPERATORS,
    TRUE_OR_FALSE,
    format_tree,
    operator_of,
    shown,
    spine,
)
from neuralqx_struct.schema.lint.operand_fixes import (
    around,
    call,
    in_chain,
    nearer,
    null_check,
    shapes_of,
)
from neuralqx_struct.schema.lint.operand_kinds import (
    BOOL,
    COLLECTIONS,
    INT,
    MOST,
    UNKNOWN,
    WHOLE,
    Form,
    Value,
    axes_of,
    fit_together,
    fits,
    has_elements,
    joined,
    joins,
    listed_kinds,
    lists_items,
    made_by,
    singles_of,
)


class Operation(NamedTuple):
    """One operation that has no value.

    Attributes:
        node: The operation.
        wanted: The description of the expected operands.
        got: The description of those that are there.
        unsure: True if it has a value for arrays of one element.
        tried: Trees that may be meant in its place, the nearest first; they are judged like any other.
        takes: The kinds of operands that it takes; empty where others do not help.
        chain: The chain of comparisons that it is one of; ``tried`` has trees for the whole chain.
    """

    node: ast.expr
    wanted: str
    got: str
    unsure: bool = False
    tried: Callable[[], Iterator[ast.expr]] = lambda: iter(())
    takes: frozenset[str] = frozenset()
    chain: ast.expr | None = None

    @property
    def message(self) -> str:
        """The message."""
        return f"expected {self.wanted}, got {self.got} in `{shown(self.node)}`"


EACH = "one for each item"


#: A part with its form.
_Operand = tuple[ast.expr, Form]


class Judgement:
    """Finds the operations of an expression that no values have.

    Args:
        reach: The form of a name or a path.
        alike: Whether values that are never equal cannot be compared: proposals compare no others.
    """

    def __init__(self, reach: Callable[[str], Form], *, alike: bool = False) -> None:
        self.reach, self.alike = reach, alike
        self.found: list[Operation] = []

    def add(self, node: ast.expr, wanted: str, got: str, **more: Any) -> Form:
        """Adds a problem; nothing is known of the part then."""
        self.found.append(Operation(node, wanted, got, **more))
        return UNKNOWN

    def form(self, node: ast.expr) -> Form:
        """The form of a part, whose problems are added."""
        if not any(True for _ in names_in(node)) and not isinstance(node, _LEAVES):
            return UNKNOWN  # lint computes parts without names
        match node:
            case ast.Constant(value=value):
                return Form((Value(_CONSTANTS[type(value)]),))
            case ast.Name(id=path):
                return self.reach(path)
            case ast.BinOp():
                first, steps = spine(node)
                found = self.form(first)
                for step in steps:
                    found = self.calculated(step, first, found)
                    first = step
                return found
            case ast.UnaryOp() if operator_of(node).negates:
                self.single(node.operand)
                return Form((BOOL,))
            case ast.UnaryOp():
                return self.mapped(node, self.form(node.operand).spread(), operator_of(node).takes)
            case ast.BoolOp():
                for each in node.values:
                    self.single(each)
                return Form((BOOL,))
            case ast.Compare():
                return self.compared(node)
            case ast.IfExp():
                self.single(node.test)
                forms = [self.form(node.body), self.form(node.orelse)]
                values = tuple(dict.fromkeys(value for each in forms for value in each.values))
                return Form(values[:MOST], any(each.many for each in forms))
            case ast.Call():
                return self.called(node)
            case ast.Subscript():
                return self.axis(node)
            case ast.Tuple() | ast.List():
                kind = "tuple" if isinstance(node, ast.Tuple) else "list"
                held = [value for each in node.elts for value in self.form(each).values]
                return Form((Value(kind, (), tuple(dict.fromkeys(held))),))
        return UNKNOWN

    def mapped(self, node: Any, form: Form, takes: frozenset[str], makes: str = "") -> Form:
        """The form of an operation on one value."""
        fitting = [value for value in singles_of(form) if fits(value, takes)]
        if not fitting:
            tried = partial(nearer, node, [form])
            return self.add(node, listed_kinds(takes), form.text, tried=tried, takes=takes)
        return Form(tuple(dict.fromkeys(made_by(value, makes) for value in fitting)), form.many)

    def calculated(self, node: ast.BinOp, first: ast.expr, left: Form) -> Form:
        """The form of an operation on two values."""
        record, right = operator_of(node), self.form(node.right)
        if record.joins and joins(left, right):
            return left._replace(is_path=False)
        return self.paired(node, (first, left), (node.right, right), record.takes)

    def paired(
        self,
        node: ast.expr,
        one: _Operand,
        other: _Operand,
        takes: frozenset[str],
        made: Value | None = None,
    ) -> Form:
        """The form of an operation on two values, of which a collection is taken item by item beside a single value."""
        (first, left), (second, right) = one, other
        if not right.is_collection and not _is_null(second):
            left = left.spread()
        if not left.is_collection and not _is_null(first):
            right = right.spread()
        many = left.many or right.many
        ones = [*singles_of(left)] if many else left.values
        others = [*singles_of(right)] if many else right.values
        pairs = [(a, b) for a in ones[:MOST] for b in others[:MOST] if self.fit(a, b, takes)]
        if not pairs:
            got = f"{left.text} and {right.text}"
            wanted = f"two operands that fit together, of {listed_kinds(takes)}"
            tried = partial(nearer, node, [left, right])
            known = {ALIKE[v.operand] for v in (*ones, *others) if v.kind and v.operand in takes}
            likely = frozenset(kind for kind in takes if ALIKE[kind] in known)
            return self.add(node, wanted, got, tried=tried, takes=likely or takes)
        results = [joined(a, b, made) for a, b in pairs]
        shaped = [value for value in results if value is not None]
        if not shaped:
            got = " and ".join(str([*(value.axes or ())]) for value in pairs[0])
            tried = partial(shapes_of, node)
            return self.add(node, "arrays of shapes that fit together", got, tried=tried)
        return Form(tuple(dict.fromkeys(shaped)), many)

    def fit(self, one: Value, other: Value, takes: frozenset[str]) -> bool:
        """True if an operator takes two values together."""
        return fit_together(one, other, takes, alike=self.alike)

    def compared(self, node: ast.Compare) -> Form:
        """The form of a comparison, or a chain of them."""
        before, left = node.left, self.form(node.left)
        made: list[Form] = []
        for place, (relation, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            record, after = OPERATORS[type(relation)], self.form(right)
            one, known = node, len(self.found)
            if len(node.ops) > 1:
                one = ast.Compare(before, [relation], [right])
            if record.member:
                made.append(self.member(node, left, after))
            elif _is_null(before) or _is_null(right):
                if "null" not in record.takes:
                    self.add(one, "two values to order", "None", tried=partial(null_check, one))
                made.append(Form((BOOL,), left.many or after.many))
            elif lists_items(left, right):
                tried = partial(_one_by_one, one)
                made.append(self.add(one, "one value", EACH, tried=tried))
            else:
                made.append(self.paired(one, (before, left), (right, after), record.takes, BOOL))
            if one is not node:
                self.found[known:] = [
                    each._replace(chain=node, tried=partial(in_chain, node, place, each.tried))
                    for each in self.found[known:]
                ]
            before, left = right, after
        values = tuple(dict.fromkeys(value for each in made for value in each.values))
        return Form(values[:MOST], any(each.many for each in made))

    def member(self, node: ast.Compare, left: Form, choices: Form) -> Form:
        """The form of ``x in (...)``."""
        pairs = ((a, b) for a in singles_of(left.spread()) for b in choices.values[0].items)
        if choices.values[0].items and not any(self.fit(a, b, COMPARED) for a, b in pairs):
            got = f"{left.text} and {choices.text}"
            self.add(node, "two values to compare", got, takes=COMPARED - {"array"})
        return Form((BOOL,), left.spread().many)

    def called(self, node: ast.Call) -> Form:
        """The form of a function."""
        name = node.func.id  # type: ignore[attr-defined]
        record, forms = FUNCTIONS[name], [self.form(argument) for argument in node.args]
        if record.folds and len(forms) > 1:
            return self.folded(node, name, forms)
        (form,) = forms
        if record.measures:
            return self.measured(node, form, record.takes, shape=name == "shape")
        form = form.spread()
        if not record.folds:
            return self.mapped(node, form, record.takes, record.makes)
        held = [value for value in form.values if form.many or value.operand in WHOLE]
        inside = [value for each in held for value in each.singles() if fits(value, record.takes)]
        empty = any(not value.items and value.kind in COLLECTIONS for value in held)
        if not inside and not (held and empty):
            wanted = f"items of {listed_kinds(record.takes)}"
            tried = partial(nearer, node, [form])
            return self.add(node, wanted, form.text, tried=tried, takes=record.takes)
        made = [Value("array") if value.kind == "array" else value for value in inside]
        return Form(tuple(dict.fromkeys(made_by(value, record.makes) for value in made)) or (INT,))

    def folded(self, node: ast.Call, name: str, forms: list[Form]) -> Form:
        """The form of the least or the largest of several values."""
        for argument, form in zip(node.args, forms, strict=True):
            if form.many:
                self.add(argument, "one value", EACH, tried=partial(around, name, argument))
            elif form.values and all(value.kind == "array" for value in form.values):
                self.one_element(argument, form, "one value", partial(around, name, argument))
        takes = FUNCTIONS[name].takes
        values = [value for form in forms for value in form.values]
        for place, form in enumerate(forms):
            others = [v for other in (*forms[:place], *forms[place + 1 :]) for v in other.values]
            pairs = (self.fit(a, b, takes) for a in form.values for b in others)
            if not form.many and not any(pairs):
                got = " and ".join(each.text for each in forms)
                tried = partial(nearer, node, forms)
                return self.add(node, "values to order", got, tried=tried, takes=takes)
        return Form(tuple(dict.fromkeys(v for v in values if fits(v, takes))))

    def measured(self, node: ast.Call, form: Form, takes: frozenset[str], *, shape: bool) -> Form:
        """The form of a function of shapes."""
        fitting = [value for value in form.values if fits(value, takes)]
        if not fitting:
            tried = partial(nearer, node, [form])
            return self.add(node, listed_kinds(takes), form.text, tried=tried, takes=takes)
        if not shape:
            return Form((INT,), form.many)
        made = [Value("tuple", axes_of(value), (INT,)) for value in fitting]
        return Form(tuple(dict.fromkeys(made)), form.many)

    def axis(self, node: ast.Subscript) -> Form:
        """The form of one axis of a shape."""
        form = self.form(node.value)
        index = int(format_tree(node.slice))
        counts = [None if value.axes is None else len(value.axes) for value in form.values]
        if all(count is not None and not -count <= index < count for count in counts):
            most = max(count or 0 for count in counts)
            got = f"{most} axes" if most else "no axes"
            last = most - 1 if index >= 0 else -most
            tried = [ast.Subscript(node.value, ast.Constant(last), ast.Load())]
            if not most:
                tried = [*getattr(node.value, "args", ())]
            return self.add(node, f"an axis {index}", got, tried=lambda: iter(tried))
        return Form((INT,), form.many)

    def single(self, node: ast.expr, wanted: str = "one truth value") -> None:
        """Checks that a part has one truth value."""
        form = self.form(node)
        whole = partial(around, "all", node)
        if form.many:
            self.add(node, wanted, EACH, tried=whole)
            return
        if any(value.is_unknown for value in form.values):
            return
        if not any(value.operand in TRUE_OR_FALSE for value in form.values):
            null = ast.Compare(node, [ast.NotEq()], [ast.Constant(None)])
            self.add(node, "one truth value", form.text, tried=lambda: iter([null]))
            return
        if all(value.kind == "array" for value in form.values):
            self.one_element(node, form, wanted, whole)

    def one_element(
        self, node: ast.expr, form: Form, wanted: str, tried: Callable[[], Iterator[ast.expr]]
    ) -> None:
        """Adds a problem if arrays have several elements, unless all sizes with names are 1."""
        if all(map(has_elements, form.values)):
            sizes = [value.axes or () for value in form.values]
            sure = all(any(size not in (None, 1) for size in axes) for axes in sizes)
            self.add(node, wanted, "one for each element", unsure=not sure, tried=tried)


_LEAVES = (ast.Constant, ast.Tuple, ast.List)


_CONSTANTS = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    type(None): "null",
}


def _is_null(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _one_by_one(node: ast.expr) -> Iterator[ast.expr]:
    """Yields the comparison of each item with its place in a list."""
    if not isinstance(node, ast.Compare) or not isinstance(node.left, ast.Name):
        return
    head, steps = head_of(node.left.id), steps_of(node.left.id)
    items = node.comparators[0].elts  # type: ignore[attr-defined]
    count = ast.Compare(call("len", ast.Name(head)), [ast.Eq()], [ast.Constant(len(items))])
    each = [
        ast.Compare(ast.Name(path_of(head, (place, *steps))), node.ops, [item])
        for place, item in enumerate(items)
    ]
    yield ast.BoolOp(ast.And(), [count, *each])
