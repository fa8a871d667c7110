"""Lint of layouts: every finding about a layout and its schema that needs no file.

Owns the checks of names, rules and values; ``coverage.py`` checks that each array of a file has one field. Against a
file, :class:`~neuralqx_struct.layouts.adoption.AdoptionPlan` finds everything else in its header.

Example:
    >>> layout = Layout(language="1", layout="hf", of="neuralqx.vmc_state@1", values={"n_site": 12})
    >>> [(found.code, found.hint) for found in check_layout(Table(v1, layout), Source("hf.yaml"))]
    [('NQX701', "did you mean 'n_sites'?")]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from neuralqx_struct.dtypes import DTYPES, KEY_WORDS
from neuralqx_struct.errors import Diagnostic, Hint, Keyword, SchemaError, Severity, did_you_mean
from neuralqx_struct.layouts import KEY, NUMBER, Layout, Rule, read_layout
from neuralqx_struct.layouts.coverage import claim_findings
from neuralqx_struct.layouts.forms import Form, Shape
from neuralqx_struct.layouts.table import Entry, PlainEntry, Table, settings_of
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.lint import comments_in, in_order, without_silenced
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.sizes.comparison import equations, extent, shown_sizes
from neuralqx_struct.schema.text import KeyPath, Source
from neuralqx_struct.types import Type, walk_type
from neuralqx_struct.types.text import Builder, read_value

#: Members of a rule that change one array.
_OPERATIONS = frozenset(
    ("merge", "part", "split", "axis", "sizes", "blocks", "reshape", "transpose", "cast", "exact")
)


def lint_layout(path: str | Path, series: Series) -> list[Diagnostic]:
    """Checks a file.

    Args:
        path: The layout.
        series: The schema that it is of.

    Returns:
        Every finding, by line; comments silence warnings as in schema files.
    """
    try:
        layout, source = read_layout(path, series)
    except SchemaError as error:
        return list(error.diagnostics)
    found = check_layout(Table(series.at(layout.ref.version), layout), source)
    return in_order(without_silenced([*source.warnings, *found], comments_in([source])))


def check_layout(table: Table, source: Source) -> list[Diagnostic]:
    """Checks a layout against the version of the schema that it is of.

    Args:
        table: The table of both.
        source: The file of the layout, for positions.

    Returns:
        Every finding.
    """
    lint = _Lint(table.layout, source, table.document)
    lint.rules()
    if not lint.found:
        lint.found += [source.located(each, key=True) for each in claim_findings(table)]
    lint.values(table)
    for name, declaration in table.missing_values.items():
        message = f"expected a value of type {declaration.text} for {name}, got none"
        hint = Hint("write it under `values:`, or pass ", Keyword("values"), " to each load")
        lint.report("NQX707", ("values",), message, hint, severity="info", key=True)
    return lint.found


class _Lint:
    """One check of one layout."""

    def __init__(self, layout: Layout, source: Source, document: Document) -> None:
        self.layout, self.source, self.document = layout, source, document
        self.found: list[Diagnostic] = []
        self.settings = settings_of(document)

    def report(
        self,
        code: str,
        path: KeyPath,
        message: str,
        hint: str | None = None,
        *,
        severity: Severity = "error",
        key: bool = False,
    ) -> None:
        """Adds a finding."""
        self.found.append(
            self.source.diagnostic(code, path, message, hint=hint, severity=severity, key=key)
        )

    # --- rules -----------------------------------------------------------------------------------------------------

    def rules(self) -> None:
        """Checks the names of structs and fields, and each rule."""
        stem = Path(self.source.name).stem
        if self.source.marks is not None and "<" not in stem and stem != self.layout.layout:
            message = f"expected layout: {stem}, as the file is named, got {self.layout.layout}"
            self.report("NQX701", ("layout",), message, "name both alike")
        known = {name: (self.document, name) for name in self.document.structs}
        for each in self.document.closure():
            if each is not self.document:
                known |= {f"{each.id}.{name}": (each, name) for name in each.structs}
        for name, rules in self.layout.structs.items():
            if name not in known:
                message = f"expected a struct of {self.layout.of}, got {name!r}"
                hint = did_you_mean(name, known) or f"known: {listed(known)}"
                self.report("NQX701", ("structs", name), message, hint, key=True)
                continue
            owner, struct = known[name]
            for field, rule in rules.items():
                self._rule(owner, struct, field, rule, ("structs", name, field))

    def _rule(self, owner: Document, struct: str, field: str, rule: Rule, path: KeyPath) -> None:
        declarations = owner.structs[struct].fields
        declaration = declarations.get(field)
        if declaration is None:
            message = f"expected a field of {struct}, got {field!r}"
            hint = did_you_mean(field, declarations) or f"known: {listed(declarations)}"
            self.report("NQX701", path, message, hint, key=True)
            return
        if not declaration.stored:
            message = f"expected a stored field, got {field!r}, which payloads do not hold"
            self.report("NQX701", path, message, "remove the rule", key=True)
            return
        before = len(self.found)
        self._names(declaration.declared, rule, path)
        if len(self.found) > before:
            return
        self._operations(owner, struct, declaration, rule, path)

    def _names(self, declared: Type, rule: Rule, path: KeyPath) -> None:
        """Checks that the names of a rule fit its type."""
        inner = [*walk_type(declared)]
        is_array = any(each.element or each.key_impl for each in inner)
        is_list = any(each.item_at(0) is not None for each in inner)
        is_dict = any(each.below is not None for each in inner)
        is_stacked = any(each.stacks for each in inner)
        lists = sum(bool(each.stacks) or each.item_at(0) is not None for each in inner)
        most = lists + is_array - sum(each is not None for each in (rule.stack, rule.unstack))
        here = (*path, "name")
        for name in rule.names(""):
            if any(character < " " for character in name):
                self.report("NQX702", here, "expected a name, got a control character")
            counted = name.count(NUMBER)
            if counted and not (is_list or is_stacked or is_array):
                message = f"expected a list, a stacked struct or an array for {NUMBER}, got {declared.format()}"
                self.report("NQX702", here, message)
            elif counted > most:
                message = f"expected {NUMBER} once for each list whose items are apart in the file, got {name!r}"
                hint = "with `unstack` or `stack` one array has all items, and no number"
                self.report("NQX702", here, message, hint)
            if name.count(KEY) > is_dict:
                message = f"expected a dict for {KEY}, got {declared.format()}"
                self.report("NQX702", here, message)
            if counted and is_array and not is_list and rule.merge != "stack":
                hint = "write `merge: stack` beside it, and the `axis`"
                message = f"expected `merge: stack` for the arrays of {NUMBER}, got {rule.merge}"
                self.report("NQX702", here, message, hint)
            if counted and is_array and rule.reshape is not None and not is_list:
                message = f"expected no `reshape` beside {NUMBER} in the name of an array, got one"
                self.report("NQX702", (*path, "reshape"), message)
        if isinstance(rule.name, list) and (is_list or is_dict or not is_array):
            message = f"expected one name for {declared.format()}, got a list"
            self.report("NQX702", here, message, "several arrays are merged into one array only")
        if rule.unstack is not None and not is_list:
            message = f"expected a list for `unstack`, got {declared.format()}"
            self.report("NQX702", (*path, "unstack"), message, "of a stacked struct, write `stack`")
        if rule.stack is not None and not is_stacked:
            message = f"expected a stacked struct for `stack`, got {declared.format()}"
            self.report("NQX702", (*path, "stack"), message, "of a list, write `unstack`")

    def _operations(
        self, owner: Document, struct: str, declaration: FieldDeclaration, rule: Rule, path: KeyPath
    ) -> None:
        """Checks that the operations of a rule fit its arrays, and that they can be undone."""
        given = sorted(rule.model_fields_set & _OPERATIONS)
        shapes = [*array_shapes(declaration.declared)]
        if not shapes:
            for member in given:
                message = f"expected an array for `{member}`, got {declaration.text}"
                hint = "write it in the rules of the struct that has the array"
                self.report("NQX702", (*path, member), message, hint)
            return
        several = isinstance(rule.name, list) or NUMBER in (rule.name or "")
        if rule.part is None and not several:
            for member in ("merge", "split", "axis", "sizes", "blocks"):
                if member in rule.model_fields_set:
                    message = f"expected `part` or several names beside `{member}`, got neither"
                    self.report("NQX702", (*path, member), message)
                    return
        count = None
        if several:
            count = len(rule.name) if isinstance(rule.name, list) else 1
        try:
            for shape in shapes:
                Form.of(rule, shape, count).check(equations(owner, struct=struct))
            self._inverse(owner, struct, rule, path)
        except SchemaError as error:
            for each in error.diagnostics:
                place = (*path, each.path) if each.path else path
                self.report(each.code, place, each.message, each.hint)
            return
        self._cast(declaration.declared, rule, path)

    def _cast(self, declared: Type, rule: Rule, path: KeyPath) -> None:
        if rule.cast is None:
            if "exact" in rule.model_fields_set:
                message = "expected `cast` beside `exact`, got none"
                self.report("NQX702", (*path, "exact"), message)
            return
        here = (*path, "cast")
        if rule.cast not in DTYPES:
            message = f"expected a dtype, got {rule.cast!r}"
            self.report("NQX102", here, message, did_you_mean(rule.cast, DTYPES))
            return
        ours = dict.fromkeys(d for each in walk_type(declared) for d in each.dtypes)
        if len(ours) != 1:
            message = (
                f"expected a field of one dtype beside `cast`, got {', '.join(ours) or 'none'}"
            )
            hint = (
                "leave `cast` out: the field takes the dtype of the file"
                if rule.cast in ours
                else None
            )
            self.report("NQX702", here, message, hint)
        elif not rule.exact:
            message = "expected a cast that can be undone, got one that rounds\na written file can differ from the one that was read"
            hint = "leave `exact: false` out to refuse such values"
            self.report("NQX704", here, message, hint, severity="info")

    def _inverse(self, owner: Document, struct: str, rule: Rule, path: KeyPath) -> None:
        """Reports sizes that payloads do not show, so that a file cannot be written."""
        if rule.part is None and rule.sizes is None and rule.reshape is None:
            return
        known = shown_sizes(owner, struct) | self.layout.values.keys() | self.settings
        for member in ("sizes", "blocks", "reshape"):
            written = getattr(rule, member)
            sizes = written if isinstance(written, list) else [written]
            factors = [extent(each) for each in sizes if each is not None]
            unknown = [each for each in factors if not each.names <= known]
            if len(unknown) > (member == "reshape"):
                names = sorted(frozenset[str]().union(*(each.names for each in unknown)) - known)
                message = f"expected sizes that payloads show, got {', '.join(names)}, which no array of {struct} fixes"
                hint = Hint("write them under `values:`, or pass ", Keyword("values"))
                self.report("NQX704", (*path, member), message, hint, severity="warning")

    # --- values ----------------------------------------------------------------------------------------------------

    def values(self, table: Table) -> None:
        """Checks the keys of values, and the values that are there."""
        fields, known = table.fields_by_path, table.value_names
        for key, value in self.layout.values.items():
            path = ("values", key)
            if key not in known:
                hint = did_you_mean(key, known) or "remove it"
                message = f"expected a field or a size of {self.layout.of}, got {key!r}"
                self.report("NQX701", path, message, hint, key=True)
            elif key in fields:
                self._value(fields[key], value, path)
            elif type(value) is not int or value < 0:
                message = f"expected a size, got {value!r}"
                self.report("NQX107", path, message, "a size is a whole number from 0 on")
        for name, wanted in self.layout.values_from.items():
            if Path(name).name != name or Path(name).suffix != ".json":
                message = f"expected the name of a JSON file beside the source, got {name!r}"
                hint = "such as config.json, without a folder"
                self.report("NQX503", ("values_from", name), message, hint, key=True)
            for key in wanted.keys() - known:
                hint = did_you_mean(key, known) or "remove it"
                message = f"expected a field or a size of {self.layout.of}, got {key!r}"
                self.report("NQX701", ("values_from", name, key), message, hint, key=True)

    def _value(
        self, fields: Sequence[tuple[FieldDeclaration, Entry]], value: Any, path: KeyPath
    ) -> None:
        for declaration, entry in fields:
            declared = declaration.declared
            if not isinstance(entry, PlainEntry):
                if value is not None or not declared.nullable:
                    message = (
                        f"expected a field without arrays, got one of type {declared.format()}"
                    )
                    self.report("NQX701", path, message, "arrays come from the file", key=True)
                continue
            try:
                read_value(value, declared, Builder(entry.row.owner))
            except SchemaError as error:
                for each in error.diagnostics:
                    self.report(each.code, path, each.message, each.hint)


def array_shapes(declared: Type) -> Iterator[Shape]:
    """Yields the shapes of the arrays directly inside a type, and of the words of random keys."""
    for inner in walk_type(declared):
        if inner.element:
            yield inner.extents
        elif inner.key_impl in KEY_WORDS:
            yield (*inner.extents, extent(KEY_WORDS[inner.key_impl]))
