"""Derived fields of random histories: an expression of fields of the struct, which payloads do not hold.

A derived field keeps the declarations that it names, as a constraint does.
"""

import math
from dataclasses import dataclass

import numpy as np

from tests.histories.declarations import Field, Instance, Items, instances
from tests.histories.steps import Edit, pick


def half(number):
    """Half of a number as an int, which odd numbers do not have."""
    return number // 2 if number % 2 == 0 else 1 // 0


#: The expressions by the type of the field in them: the text, and what it is of a value.
FORMS = {
    "int": [
        ("int", "{} + 1", lambda x: x + 1),
        ("int", "6 // {}", lambda x: 6 // x),
        ("float", "1 / {}", lambda x: 1 / x),
        ("int", "{} / 2", half),
        ("bool", "{} > 0", lambda x: x > 0),
        ("int", "6 // {0} if {0} != 0 else 0", lambda x: 6 // x if x else 0),
    ],
    "float": [("float", "2 * {}", lambda x: 2 * x), ("bool", "isfinite({})", math.isfinite)],
    "null": [("bool", "{} == None", lambda x: x is None)],
    "str": [("int", "len({})", len)],
    "list": [("int", "len({})", len)],
    "dict": [("int", "len({}) + 1", lambda x: len(x) + 1)],
    "array": [("int", "size({})", np.size), ("int", "ndim({})", np.ndim)],
}


@dataclass
class Derived:
    """A derived field.

    Attributes:
        struct: The struct.
        name: Its name.
        held: The declaration of the field in its expression.
        kind: The first part of the type of that field.
        form: The position of the expression among those for the type.
    """

    struct: object
    name: str
    held: Field
    kind: str
    form: int

    def of(self, version):
        """The name of the field in the expression; None if the field is gone or has another type."""
        known = any(self.struct is each for each in version.structs.values())
        fields = self.struct.fields.items() if known and self.held.type[0] == self.kind else ()
        return next((key for key, held in fields if held is self.held), None)

    def data(self, version):
        """Its declaration."""
        made, expression, _ = FORMS[self.kind][self.form]
        return {"type": made, "derived": expression.format(self.of(version))}

    def value(self, version, instance):
        """The value in an instance; ZeroDivisionError if it has none of the type."""
        return FORMS[self.kind][self.form][2](instance.fields[self.of(version)])

    def holds(self, version, value):
        """True if it has a value in all instances in a value."""
        name = next(version.prefix + k for k, v in version.structs.items() if v is self.struct)
        try:
            for instance in instances(value):
                if instance.struct == name:
                    self.value(version, instance)
        except ZeroDivisionError:
            return False
        return True


def derived_of(version):
    """The derived fields that a version may get."""
    for struct in version.structs.values():
        for held in struct.fields.values():
            for form in range(len(FORMS.get(held.type[0], ()))):
                yield Derived(struct, "made", held, held.type[0], form)


def sound(version):
    """True if every derived field still has its operand, and a name of its own."""
    return all(each.of(version) and each.name not in each.struct.fields for each in version.derived)


def misses(version, value, made):
    """Yields what is wrong with the derived fields of an object."""
    match value:
        case Instance():
            owner, name = version.holder(value.struct)
            for each in owner.derived:
                if each.struct is owner.structs[name]:
                    expected, got = each.value(owner, value), getattr(made, each.name)
                    if repr(got) != repr(expected):
                        yield f"{name}.{each.name}: derived {got}, expected {expected}"
            for key, inner in value.fields.items():
                yield from misses(version, inner, getattr(made, key))
        case list() | Items():
            for pair in zip(value if isinstance(value, list) else value.items, made, strict=True):
                yield from misses(version, *pair)
        case dict():
            for key, inner in value.items():
                yield from misses(version, inner, made[key])


def other_derived(make, new):
    """A derived field comes, gets another expression, or goes."""
    found = [*derived_of(new)]
    if new.derived and make.chance(0.3):
        gone = make.one(new.derived)
        new.derived = [each for each in new.derived if each is not gone]
        return Edit("a derived field less", [])
    if not found:
        return None
    made = make.one(found)
    new.derived = [each for each in new.derived if each.struct is not made.struct] + [made]
    return Edit("derived field", [])


def stored_to_derived(make, new):
    """A stored number is derived from another field, under its name."""
    struct, key = pick(make, new, lambda held: held.type in (("int",), ("bool",), ("float",)))
    if struct is None or any(each.struct is new.structs[struct] for each in new.derived):
        return None
    del new.structs[struct].fields[key]
    found = [each for each in derived_of(new) if each.struct is new.structs[struct]]
    if not found:
        return None
    made = make.one(found)
    made.name = key
    new.derived.append(made)
    return Edit("a stored field is derived")
