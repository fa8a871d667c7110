"""Edits without steps."""

from tests.histories.declarations import DTYPES, LIMITS, SIZES, Field, inner_types, names_in
from tests.histories.making import LITERALS, SCALARS
from tests.histories.steps import (
    DEFAULTS,
    UNSTORED,
    Edit,
    free_name,
    is_array,
    pick,
    uses_of,
)


def plain_add(make, new):
    struct = make.one(new.structs)
    key = free_name(make, new.structs[struct])
    kind = make.one(DEFAULTS)
    members = {"default": DEFAULTS[kind]} if make.chance(0.6) else {}
    new.structs[struct].fields[key] = Field((kind,), members)
    return Edit("plain add" + (" with a default" if members else ""))


def plain_remove(make, new):
    struct, key = pick(make, new, lambda held: True)
    if len(new.structs[struct].fields) < 2:
        return None
    del new.structs[struct].fields[key]
    return Edit("plain remove")


def plain_dtype(make, new):
    struct, key = pick(make, new, is_array)
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    held.type = ("array", make.dtype(new), held.type[2])
    return Edit("plain dtype")


def plain_choice(make, new):
    if not new.dtypes:
        return None
    members = new.dtypes[make.one(new.dtypes)]
    others = [dtype for dtype in DTYPES if dtype not in members]
    if make.chance(0.5):
        members.append(make.one(others))
    elif len(members) > 1:
        members.pop()
    return Edit("plain choice of dtypes")


def plain_alias(make, new):
    struct, key = pick(make, new, lambda held: True)
    fields = new.structs[struct].fields
    to = free_name(make, new.structs[struct])
    held = fields[key]
    if make.chance(0.7):
        held.members = {**held.members, "aliases": [key]}
    new.structs[struct].fields = {to if k == key else k: v for k, v in fields.items()}
    return Edit("plain rename")


def plain_null(make, new):
    simple = (*DEFAULTS, "array", "enum")
    struct, key = pick(make, new, lambda held: held.type[0] in simple or held.type[0] == "null")
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    held.type = held.type[1] if held.type[0] == "null" else ("null", held.type)
    return Edit("plain null")


def plain_enum(make, new):
    if not new.enums:
        return None
    members = new.enums["E"]
    if make.chance(0.2):
        new.defaults = {} if new.defaults else {"E": make.one(members)}
        return Edit("default of an enum")
    if make.chance(0.4):
        at = make.rng.randrange(len(members))
        to = f"{members[at]}2"
        if to in members:
            return None
        new.aliases[to] = [members[at]]
        members[at] = to
        return Edit("plain rename of a member")
    if make.chance(0.5):
        members.append("added")
    else:
        members.pop()
    return Edit("plain enum")


def plain_extent(make, new):
    struct, key = pick(make, new, lambda held: is_array(held) and held.type[2])
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    extents = list(held.type[2])
    extents[make.rng.randrange(len(extents))] = make.extent(new, struct)
    held.type = ("array", held.type[1], tuple(extents))
    return Edit("plain extent")


def plain_dims(make, new):
    name = make.one(SIZES)
    if name not in new.dims:
        new.dims[name] = {}
        return Edit("a name becomes a dim")
    dim = new.dims[name]
    roll = make.rng.random()
    if roll < 0.3:
        del new.dims[name]
        for other in new.dims.values():
            if name in names_in(other.get("equals", "")):
                del other["equals"]
        return Edit("a dim becomes a name")
    if roll < 0.4:
        dim["max"] = dim.get("max", 3) + make.one([1, -1])
        return Edit("maximum of a dim")
    if roll < 0.65:
        dim["min"] = (dim.get("min") or 0) + make.one([1, 1, -1]) if dim.get("min") else 1
        return Edit("minimum of a dim")
    others = [n for n in new.dims if n != name and "equals" not in new.dims[n]]
    if "equals" in dim and make.chance(0.5):
        del dim["equals"]
    elif others:
        dim["equals"] = make.one([f"2 * {make.one(others)}", make.one(others)])
    else:
        return None
    return Edit("equation of a dim")


def plain_bound(make, new):
    struct, key = pick(make, new, lambda held: held.type == ("int",))
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    members = held.members
    if members.get("kind") == "static":
        return None
    bounds = [name for name in ("ge", "gt") if name in members]
    for name in bounds:
        del members[name]
    if not bounds or make.chance(0.3):
        name, least = make.one(
            [("ge", 0), ("gt", -1), ("gt", 0), ("ge", -1), ("ge", -2), ("gt", -2)]
        )
        if any(each.refuses_below(held, name, least) for each in new.constraints):
            return None  # verdicts do not see what the structs around a field refuse
        members[name] = least
    return Edit("bound of a number")


def plain_limit(make, new):
    """A limit comes, goes, or becomes another one; those of bounds from below are another edit."""
    struct, key = pick(make, new, lambda held: {"ge", "gt", "kind"}.isdisjoint(held.members))
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    for name in LIMITS & held.members.keys():
        del held.members[name]
    if make.chance(0.7):
        held.members |= make.limit(held)
    return None if {"ge", "gt"} & held.members.keys() else Edit("limit of a field")


def plain_scalar(make, new):
    """A union gains or loses an option, a literal a value, or another scalar takes the place."""
    struct, key = pick(make, new, lambda held: held.type[0] in ("literal", "union", *SCALARS))
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    if held.members or any(t[0] == "struct" for t in inner_types(held.type)):
        return None
    kind, *options = held.type
    if kind not in ("literal", "union"):
        kind, options = "union", [held.type]
    if make.chance(0.5) and len(options) > 1:
        options.remove(make.one(options))
    else:
        known = LITERALS if kind == "literal" else [(name,) for name in SCALARS]
        options.append(make.one([each for each in known if each not in options]))
    held.type = options[0] if kind == "union" and len(options) == 1 else (kind, *options)
    return Edit(f"options of a {kind}")


def plain_union(make, new):
    struct, key = pick(make, new, lambda held: held.type[0] == "struct" and not held.type[2])
    plain = [n for n, s in new.structs.items() if not s.params and n != new.root]
    if struct is None or struct in plain:
        return None
    held = new.structs[struct].fields[key]
    others = [n for n in plain if n != held.type[1]]
    if not others:
        return None
    held.type = ("union", held.type, ("struct", make.one(others), ()))
    return Edit("a branch of a union")


def plain_params(make, new):
    """A size that a struct finds itself is handed to it, or the other way round."""
    found = [n for n in new.structs if n != new.root and uses_of(new, n)]
    if not found:
        return None
    name = make.one(found)
    declared = new.structs[name]
    adding = not declared.params
    declared.params = [make.one(SIZES)] if adding else []

    def changed(kind, struct):
        if kind[0] == "struct" and kind[1] == name:
            return ("struct", name, make.args(new, struct, 1) if adding else ())
        if kind[0] in ("items", "stack"):
            return (kind[0], changed(kind[1], struct), kind[2])
        if kind[0] in ("null", "list", "dict", "union", "tuple", "tuple*"):
            return (kind[0], *(changed(x, struct) for x in kind[1:]))
        return kind

    for struct, held_by in new.structs.items():
        for held in held_by.fields.values():
            held.type = changed(held.type, struct)
    return Edit("parameters of a struct")


def plain_length(make, new):
    """A list gets a length, another one, or none."""
    struct, key = pick(make, new, lambda h: h.type[0] in ("list", "items") and not h.members)
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    length = make.extent(new, struct)
    held.type = make.one([("list", held.type[1]), ("items", held.type[1], length)])
    return Edit("length of a list")


def plain_stack(make, new):
    """A list of structs, or a single one, becomes a stacked one, or the other way round."""
    found = ("struct", "stack")
    struct, key = pick(
        make,
        new,
        lambda held: (
            held.type[0] in found
            or (held.type[0] in ("list", "items") and held.type[1][0] in found)
        ),
    )
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    inner = held.type if held.type[0] == "struct" else held.type[1]
    size = make.extent(new, struct)
    held.type = make.one([inner, ("list", inner), ("items", inner, size), ("stack", inner, size)])
    return Edit("stacked or not")


def plain_kind(make, new):
    struct, key = pick(make, new, lambda held: held.type in (("int",), ("str",)))
    if struct is None:
        return None
    members = new.structs[struct].fields[key].members
    members["kind"] = "node" if members.get("kind") == "static" else "static"
    return Edit("kind of a field")


def plain_unstored(make, new):
    """A field that is not stored comes, goes, or takes the name of a stored one."""
    struct = new.structs[make.one(new.structs)]
    if struct.unstored and make.chance(0.4):
        struct.unstored.clear()
        return Edit("an unstored field less")
    struct.unstored["logger"] = make.one(UNSTORED)
    return Edit("unstored field")


def plain_converter(make, new):
    """A field gets a converter, which leaves its values as they are, or loses it."""
    struct, key = pick(make, new, lambda held: held.type in (("int",), ("float",), ("str",)))
    if struct is None:
        return None
    members = new.structs[struct].fields[key].members
    if members.pop("converter", None) is None:
        members["converter"] = "histories.same"
    return Edit("converter of a field")


UNSTEPPED = [
    plain_add,
    plain_remove,
    plain_dtype,
    plain_choice,
    plain_alias,
    plain_null,
    plain_enum,
    plain_extent,
    plain_dims,
    plain_bound,
    plain_union,
    plain_limit,
    plain_scalar,
    plain_params,
    plain_kind,
    plain_length,
    plain_stack,
    plain_unstored,
    plain_converter,
]
