"""Constraints of random histories: conditions on an int of a struct, or of the structs that a field of it holds.

A constraint keeps the declarations on its path, so that it follows renames; an edit that takes one of them away is not made.
"""

from dataclasses import dataclass

from tests.histories.declarations import Instance, instances

LEAST = -1


@dataclass
class Constraint:
    """A condition on the int at the end of a path.

    Attributes:
        struct: The struct.
        path: The fields on the way.
    """

    struct: object
    path: list

    def names(self, version):
        """The names on the path, and whether it goes through a list or a dict; None where it is broken."""
        struct, names, many = self.struct, [], False
        if not any(struct is each for each in version.structs.values()):
            return None
        for held in self.path:
            key = next((k for k, v in struct.fields.items() if v is held), None)
            if key is None:
                return None
            names.append(key)
            if held is not self.path[-1]:
                found = inside(held.type)
                struct = found and version.structs.get(found[0])
                if struct is None:
                    return None
                many = many or found[1]
        return (names, many) if self.path[-1].type == ("int",) else None

    def text(self, version):
        """The constraint as schema files write it."""
        names, many = self.names(version)
        condition = f"{'.'.join(names)} >= {LEAST}"
        return f"all({condition})" if many else condition

    def refuses_below(self, held, bound, number):
        """Whether it refuses, from another struct, all that a bound of the int refuses."""
        refused = number if bound == "gt" else number - 1
        return len(self.path) > 1 and self.path[-1] is held and refused < LEAST

    def holds(self, version, value):
        """True if all instances in a value keep it."""
        name = next(k for k, v in version.structs.items() if v is self.struct)
        names, _ = self.names(version)
        found = [each for each in instances(value) if each.struct == version.prefix + name]
        return all(number >= LEAST for each in found for number in reached(each, names))


def inside(kind):
    """The struct that a type holds, and whether it holds several; None for other types."""
    many = False
    while kind[0] in ("null", "list", "dict"):
        many = many or kind[0] != "null"
        kind = kind[1]
    return (kind[1], many) if kind[0] == "struct" else None


def reached(value, names):
    """The ints at the end of a path."""
    if not names:
        return [value]
    held = value.fields[names[0]]
    if isinstance(held, dict):
        held = list(held.values())
    held = held if isinstance(held, list) else [held]
    single = [each for each in held if isinstance(each, Instance) or len(names) == 1]
    return [number for each in single for number in reached_in(each, names[1:])]


def reached_in(value, names):
    return reached(value, names) if names else [value]


def paths_of(version):
    """The paths to ints in the structs of a version, long ones several times."""
    for struct in version.structs.values():
        for held in struct.fields.values():
            if held.type == ("int",):
                yield Constraint(struct, [held])
            found = inside(held.type)
            inner = found and version.structs.get(found[0])
            for leaf in inner.fields.values() if inner else ():
                if leaf.type == ("int",):
                    yield from [Constraint(struct, [held, leaf])] * 3


def intact(version):
    """True if every constraint still has its path."""
    return all(each.names(version) for each in version.constraints)
