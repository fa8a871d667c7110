"""Edits that steps declare, and what each makes of a payload."""

import copy
import math
import warnings
from dataclasses import dataclass

import numpy as np

from neuralqx_struct.evolution.steps import function
from tests.histories.declarations import (
    FREE,
    LIMITS,
    WORDS,
    Field,
    Instance,
    Items,
    Key,
    Member,
    Stack,
    evaluate,
    inner_types,
    instances,
    mapped,
    names_in,
    text,
    visible,
)


def unchanged(root):
    """What an edit makes of a payload that changes declarations alone."""
    return root


@dataclass
class Edit:
    """What an edit did.

    Attributes:
        name: Its name, for reports.
        steps: The steps that declare it; None for an edit without steps.
        up: What it makes of a payload, in place: a function of the root that may return another root.
        lossless: Whether a downgrade gives every payload back.
    """

    name: str
    steps: list | None = None
    up: object = unchanged
    lossless: bool = True


def step(name, at, version, /, **members):
    """A step, with `in` where the struct is not the root."""
    inside = {} if at == version.root else {"in": at}
    return [{name: {**members, **inside}}]


def on_instances(version, struct, change):
    name = version.prefix + struct

    def up(root):
        for instance in instances(root):
            if instance.struct == name:
                change(instance.fields, instance)
        return root

    return up


def free_name(make, struct):
    return make.one(free_names(struct, "abcdefghnmkuvw"))


def free_names(struct, names="abcdefghuvw"):
    """Those of some names that no field of a struct has."""
    return [name for name in names if name not in struct.names]


def pick(make, version, wanted):
    """A struct and a field whose declaration `wanted` accepts, or (None, None)."""
    found = [
        (name, key)
        for name, struct in version.structs.items()
        for key, held in struct.fields.items()
        if wanted(held)
    ]
    return make.one(found) if found else (None, None)


def rename(make, new):
    struct, key = pick(make, new, lambda held: True)
    to = free_name(make, new.structs[struct])
    fields = new.structs[struct].fields
    new.structs[struct].fields = {to if k == key else k: v for k, v in fields.items()}

    def change(values, _):
        renamed = {to if k == key else k: v for k, v in values.items()}
        values.clear()
        values.update(renamed)

    return Edit(
        "rename", step("rename", struct, new, field=key, to=to), on_instances(new, struct, change)
    )


DEFAULTS = {"int": 7, "float": 0.5, "str": "new", "bool": True}


def add_scalar(make, new):
    struct = make.one(new.structs)
    key = free_name(make, new.structs[struct])
    kind = make.one(DEFAULTS)
    null = make.chance(0.3)
    value = None if null else DEFAULTS[kind]
    if kind == "float" and not null and make.chance(0.3):
        value = math.inf
    new.structs[struct].fields[key] = Field(("null", (kind,)) if null else (kind,))
    return Edit(
        "add a scalar",
        step("add", struct, new, field=key, default=".inf" if value == math.inf else value),
        on_instances(new, struct, lambda values, _: values.__setitem__(key, value)),
    )


def add_array(make, new):
    struct = make.one(new.structs)
    names = visible(new, struct)
    key = free_name(make, new.structs[struct])
    extents = tuple(
        make.one([*names, 2, *(f"2 * {n}" for n in names)]) for _ in range(make.one([1, 1, 2]))
    )
    dtype = make.one(["float32", "int8", "float64"])
    new.structs[struct].fields[key] = Field(("array", dtype, extents))
    types = {k: f.type for k, f in new.structs[struct].fields.items()}

    def change(values, instance):
        sizes = seen_sizes(types, values)
        shape = [evaluate(extent, sizes) for extent in extents]
        values[key] = np.full(shape, 1, dtype)

    return Edit(
        "add an array",
        step("add", struct, new, field=key, default=1),
        on_instances(new, struct, change),
    )


def seen_sizes(types, values):
    """The sizes by name that the arrays of one instance show."""
    found = {}
    for key, kind in types.items():
        if kind[0] == "array" and key in values:
            for extent, size in zip(kind[2], values[key].shape, strict=True):
                if isinstance(extent, str):
                    found.setdefault(extent, size)
    return found


def remove(make, new):
    struct, key = pick(make, new, lambda held: True)
    fields = new.structs[struct].fields
    if len(fields) < 2:
        return None
    kind = fields.pop(key).type
    members = {"lossy": True}
    if kind[0] in DEFAULTS and make.chance(0.5):
        members = {"undo_default": DEFAULTS[kind[0]]}
    return Edit(
        "remove",
        step("remove", struct, new, field=key, **members),
        on_instances(new, struct, lambda values, _: values.pop(key)),
        lossless=False,
    )


WIDER = {
    "int8": ["int32", "float32", "float64", "float16"],
    "uint8": ["int32", "float32"],
    "int32": ["float64"],
    "float16": ["float32", "float64", "complex64"],
    "float32": ["float64", "complex64", "complex128"],
    "float64": ["complex128"],
    "complex64": ["complex128"],
}


#: Dtypes that hold all values of a family.
HOLDERS = {
    "floating": ["float64"],
    "integer": ["float64", "int32"],
    "number": ["complex64", "complex128"],
}


def is_array(held):
    return held.type[0] == "array"


def cast(make, new):
    narrow = make.chance(0.4)
    pairs = {}
    for a, others in WIDER.items():
        for b in others:
            pairs.setdefault(b if narrow else a, []).append(a if narrow else b)
    pairs = {a: [b for b in bs if (a, b) != ("complex64", "float16")] for a, bs in pairs.items()}
    several = HOLDERS | {key: ["float64"] for key in new.dtypes}
    pairs |= several
    struct, key = pick(make, new, lambda held: is_array(held) and pairs.get(held.type[1]))
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    lossless = held.type[1] not in several
    dtype = make.one(pairs[held.type[1]])
    held.type = ("array", dtype, held.type[2])

    def change(values, _):
        values[key] = exactly(values[key], dtype)

    steps = step("cast", struct, new, field=key, dtype=dtype)
    return Edit("cast", steps, on_instances(new, struct, change), lossless=lossless)


class Stop(Exception):
    """Data that the steps refuse."""


class Open(Stop):
    """Data that the steps may refuse, as nothing in it may show the sizes that they need."""


def exactly(array, dtype):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = array.astype(dtype)
        back = made.astype(array.dtype)
    if not np.array_equal(back, array, equal_nan=True):
        raise Stop
    return made


def uses_of(new, name):
    return [
        (struct, key, held)
        for struct, declared in new.structs.items()
        for key, held in declared.fields.items()
        if any(t[0] == "struct" and t[1] == name for t in inner_types(held.type))
    ]


def move(make, new):
    """A field moves into a nested struct that exactly one field holds, once."""
    found = []
    for name, declared in new.structs.items():
        for key, held in declared.fields.items():
            own = held.type[0] == "struct" and held.type[1] in new.structs
            if own and len(uses_of(new, held.type[1])) == 1:
                for moved, other in declared.fields.items():
                    target = new.structs[held.type[1]]
                    if (
                        moved != key
                        and moved not in target.fields
                        and other.type[0] in (*DEFAULTS, "array", "enum")
                    ):
                        found.append((name, key, moved, held.type[1]))
    if not found:
        return None
    struct, key, moved, target = make.one(found)
    kind = new.structs[struct].fields[moved].type
    if kind[0] == "array":  # sizes keep their meaning only where both structs see the same ones
        names = set().union(*map(names_in, kind[2])) if kind[2] else set()
        hidden = {*new.structs[target].params, *new.structs[struct].params}
        if make.chance(0.8) and (not names <= set(new.dims) or names & hidden):
            return None
    new.structs[target].fields[moved] = new.structs[struct].fields.pop(moved)

    def change(values, _):
        values[key].fields[moved] = values.pop(moved)

    steps = step("move", struct, new, fields=[moved], into=key, struct=target)
    return Edit("move", steps, on_instances(new, struct, change))


def inline(make, new):
    """A field of a nested struct that one field holds moves up."""
    found = []
    for name, declared in new.structs.items():
        for key, held in declared.fields.items():
            inner = new.structs.get(held.type[1]) if held.type[0] == "struct" else None
            if inner is None or len(uses_of(new, held.type[1])) > 1 or len(inner.fields) < 2:
                continue
            found += [
                (name, key, moved, held.type[1])
                for moved, other in inner.fields.items()
                if moved not in declared.fields and other.type[0] in (*DEFAULTS, "array", "null")
            ]
    if not found:
        return None
    struct, key, moved, source = make.one(found)
    kind = new.structs[source].fields[moved].type
    names = set().union(
        *(names_in(e) for t in inner_types(kind) if t[0] == "array" for e in t[2]), []
    )
    hidden = {*new.structs[source].params, *new.structs[struct].params}
    if make.chance(0.8) and (not names <= set(new.dims) or names & hidden):
        return None  # a size that both structs name: lint has to see it
    new.structs[struct].fields[moved] = new.structs[source].fields.pop(moved)

    def change(values, _):
        values[moved] = values[key].fields.pop(moved)

    steps = step("inline", struct, new, field=key, fields=[moved])
    return Edit("inline", steps, on_instances(new, struct, change))


def fill(make, new):
    struct, key = pick(
        make, new, lambda held: held.type[0] == "null" and held.type[1][0] in DEFAULTS
    )
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    held.type = held.type[1]
    value = DEFAULTS[held.type[0]]

    def change(values, _):
        if values[key] is None:
            values[key] = value

    steps = step("fill", struct, new, field=key, value=value)
    return Edit("fill", steps, on_instances(new, struct, change), lossless=False)


def map_enum(make, new):
    """Members get other names, or become one; in a union another option may have the name."""
    if not new.enums:
        return None
    members = new.enums["E"]
    count = make.one([1, 1, 1, min(len(members), 2)])
    values = {old: make.one("rstuvw") for old in make.rng.sample(members, count)}
    if {*values.values()} & {*members}:
        return None
    shared = any(t[0] == "union" and ("enum", "E") in t for t in types_of(new))
    joined = len({*values.values()}) < len(values)
    lossy = joined or (shared and make.chance(0.9))
    new.enums["E"] = [*dict.fromkeys(values.get(m, m) for m in members)]
    new.defaults = {name: values.get(m, m) for name, m in new.defaults.items()}

    def change(value):
        return value.named(values) if isinstance(value, Member) else value

    loss = {"lossy": True} if lossy else {}
    steps = [{"map_enum": {"enum": "E", "values": values, **loss}}]
    return Edit("map_enum", steps, lambda root: mapped(root, change), lossless=not lossy)


def other_members(make, new):
    """A member goes, and the default takes its place; or one comes."""
    if not new.enums:
        return None
    members, default = new.enums["E"], new.defaults.get("E")
    gone = [m for m in members if m != default]
    if not gone or default not in members or make.chance(0.3):
        lossless = default in members  # no payload goes back to an enum without a default
        members.append(make.one("rstuvw"))
        known = len({*members}) < len(members)
        return None if known else Edit("a member more", [], lossless=lossless)
    members.remove(make.one(gone))
    kept = {*members}

    def change(value):
        known = not isinstance(value, Member) or value in kept
        if known or value.others is None or value in value.others:
            return value
        return Member(default, value.others)

    return Edit("a member less", [], lambda root: mapped(root, change), lossless=False)


def sole_inner(kind, wanted):
    """The part of an optional type, or the type itself, that is wanted; None if it is not."""
    kind = kind[1] if kind[0] == "null" else kind
    return kind if wanted(kind) else None


def wrap_key(make, new):
    """Words become a typed key, or a typed key its words."""

    def is_key(kind):
        return kind[0] == "key"

    def is_words(kind):
        last = kind[2][-1:] if kind[0] == "array" and kind[1] == "uint32" else ()
        return last in [(n,) for n in WORDS.values()]

    wrapping = make.chance(0.5)
    wanted = is_words if wrapping else is_key
    struct, key = pick(make, new, lambda held: sole_inner(held.type, wanted))
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    have = sole_inner(held.type, wanted)
    if wrapping:
        impl = next(name for name, n in WORDS.items() if n == have[2][-1])
        to = ("key", impl, have[2][:-1])
    else:
        to = ("array", "uint32", (*have[2], WORDS[have[1]]))
    held.type = replaced(held.type, have, to)

    def change(values, _):
        if values[key] is not None:
            values[key] = Key(impl, values[key]) if wrapping else values[key].words

    name, members = ("wrap_key", {"impl": impl}) if wrapping else ("unwrap_key", {})
    steps = step(name, struct, new, field=key, **members)
    return Edit(name.replace("_", " "), steps, on_instances(new, struct, change))


def cast_with_loss(make, new):
    """An array gets a dtype with fewer digits."""
    narrower = {"float64": "float32", "float32": "float16", "int32": "float32"}
    narrower["complex128"] = "complex64"
    struct, key = pick(make, new, lambda held: is_array(held) and held.type[1] in narrower)
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    dtype = narrower[held.type[1]]
    held.type = ("array", dtype, held.type[2])

    def change(values, _):
        with np.errstate(over="ignore"):  # numbers beyond the dtype are lost too
            values[key] = values[key].astype(dtype)

    steps = step("cast", struct, new, field=key, dtype=dtype, exact=False, lossy=True)
    return Edit("cast with a loss", steps, on_instances(new, struct, change), lossless=False)


def take_path(held, keys):
    """Removes the entry at a path, and returns it; the dicts on the way stay."""
    *way, last = keys
    for name in way:
        if not isinstance(held, dict) or name not in held:
            raise Stop
        held = held[name]
    if not isinstance(held, dict) or last not in held:
        raise Stop
    return held.pop(last)


def put_path(held, keys, value):
    """Adds an entry at a path, with the dicts on the way."""
    *way, last = keys
    for name in way:
        if not isinstance(held, dict):
            raise Stop
        held = held.setdefault(name, {})
    if not isinstance(held, dict) or last in held:
        raise Stop
    held[last] = value


def empty_below(held):
    """Whether a value is a dict that holds no more than dicts, one in another."""
    return isinstance(held, dict) and (not held or (len(held) == 1 and empty_below(*held.values())))


PATHS = ["x", "y", "z", "x/u", "x/v", "y/u", "x/u/x"]


def rename_path(make, new):
    """An entry gets another path; a value without it, or with one at the other path, is refused."""
    struct, key = pick(make, new, lambda held: held.type[0] in ("dict", "pytree"))
    if struct is None:
        return None
    deep = new.structs[struct].fields[key].type[0] == "pytree"
    old, to = make.rng.sample(PATHS if deep else PATHS[:3], 2)
    start, end = old.split("/"), to.split("/")

    def change(values, _):
        if values[key] is None:  # it has no entries, and stays
            return
        moved = take_path(values[key], start)
        if start[: len(end)] == end:  # it replaces the dicts around it, which are empty
            around = take_path(values[key], end)
            if not empty_below(around):
                raise Stop
        put_path(values[key], end, moved)

    steps = step("rename_path", struct, new, field=key, path=old, to=to)
    # A downgrade leaves the dicts that the step made.
    return Edit("rename path", steps, on_instances(new, struct, change), lossless="/" not in to)


def add_path(make, new):
    """An entry comes, or goes."""
    kinds = [("pytree",), ("dict", ("int",))]
    struct, key = pick(make, new, lambda held: held.type in kinds and not held.members)
    if struct is None:
        return None
    deep = new.structs[struct].fields[key].type == ("pytree",)
    path = make.one(PATHS if deep else PATHS[:3])
    keys = path.split("/")
    if make.chance(0.4):
        members = make.one([{"lossy": True}, {"undo_default": 7}])
        steps = step("remove", struct, new, field=key, path=path, **members)

        def less(values, _):
            if values[key] is not None:
                take_path(values[key], keys)

        return Edit("remove path", steps, on_instances(new, struct, less), lossless=False)

    def more(values, _):
        if values[key] is not None:
            put_path(values[key], keys, 7)

    steps = step("add", struct, new, field=key, path=path, default=7)
    return Edit("add path", steps, on_instances(new, struct, more), lossless=len(keys) == 1)


def copy_field(make, new):
    """A field comes with the value of another one, or with its structure and a number in its arrays; or such a one goes."""

    def wanted(held):
        return not {"kind", "aliases", "default"} & held.members.keys()

    struct, key = pick(make, new, wanted)
    if struct is None:
        return None
    fields = new.structs[struct].fields
    held = fields[key]
    twins = [
        n
        for n, f in fields.items()
        if n != key and (f.type, f.members) == (held.type, held.members)
    ]
    filling = is_filled(new, held.type) and make.chance(0.4)
    if twins and make.chance(0.4):
        gone = make.one(twins)
        del fields[gone]
        undone = {"like": key, "undo_default": 1} if filling else {"undo_copy": key}
        steps = step("remove", struct, new, field=gone, **undone)
        change = on_instances(new, struct, lambda values, _: values.pop(gone))
        return Edit("remove a copy", steps, change, lossless=False)
    to = free_name(make, new.structs[struct])
    fields[to] = Field(held.type, dict(held.members))

    def more(values, _):
        made = copy.deepcopy(values[key])
        values[to] = mapped(made, ones) if filling else made

    made_of = {"like": key, "default": 1} if filling else {"copy": key}
    steps = step("add", struct, new, field=to, **made_of)
    return Edit("add like" if filling else "add a copy", steps, on_instances(new, struct, more))


def is_filled(version, kind):
    """Whether the values of a type may hold arrays, and neither keys, whose words stay, nor bools, which 1 is not."""
    kinds = [(version, each) for each in inner_types(kind)]
    for here, each in kinds:
        if each[0] == "struct":
            owner, inside = here.holder(each[1])
            fields = owner.structs[inside].fields.values()
            held = [(owner, t) for field in fields for t in inner_types(field.type)]
            kinds += [pair for pair in held if pair not in kinds]
    found = {each[0] for _, each in kinds}
    flags = any(each[:2] == ("array", "bool") for _, each in kinds)
    return "array" in found and "key" not in found and not flags


def ones(value):
    return np.ones_like(value) if isinstance(value, np.ndarray) else value


@function("histories.flip")
def flip(values):
    """The function of python steps: all arrays and lists from behind, also those in dicts and structs."""
    return {name: flipped(value) for name, value in values.items()}


def flipped(value):
    match value:
        case np.ndarray():
            return np.ascontiguousarray(np.flip(value)).reshape(value.shape)
        case Stack():
            return Stack(flipped(value.layers) if value.count else value.layers, value.count)
        case Instance():
            return Instance(value.struct, flip(value.fields), value.sizes)
        case Items():
            return Items([*map(flipped, value.items)])
        case list():
            return [*map(flipped, reversed(value))]
        case tuple():
            return (*map(flipped, value),)
        case dict():
            return flip(value)
    return value


def python(make, new):
    """A function of the user changes one or two fields."""
    struct = make.one(new.structs)
    names = [*new.structs[struct].fields]
    keys = make.rng.sample(names, min(len(names), make.one([1, 1, 2])))

    def change(values, _):
        values |= flip({key: values[key] for key in keys})

    name = "histories.flip"
    steps = step("python", struct, new, function=name, inverse=name, reads=keys, writes=keys)
    return Edit("python", steps, on_instances(new, struct, change))


# ---------------------------------------------------------------------------------------------------------------------
# Fields that payloads do not hold.


UNSTORED = [
    {"kind": "opaque", "default": None},
    {"type": "int", "serialize": False, "default": 3},
    {"kind": "opaque"},
    {"type": "str", "serialize": False},
]


def unstored(make, new):
    """A field that is not stored comes, goes, or gets another declaration."""
    struct = new.structs[make.one(new.structs)]
    if struct.unstored and make.chance(0.4):
        struct.unstored.clear()
        return Edit("an unstored field less", [])
    struct.unstored["logger"] = make.one(UNSTORED)
    return Edit("unstored field", [])


def stored_or_not(make, new):
    """A stored field is not stored any longer, or the other way round."""
    found = [(n, k) for n, s in new.structs.items() for k in s.unstored]
    if found and make.chance(0.5):
        struct, key = make.one(found)
        del new.structs[struct].unstored[key]
        new.structs[struct].fields[key] = Field(("int",))
        steps = step("add", struct, new, field=key, default=7)
        change = on_instances(new, struct, lambda values, _: values.__setitem__(key, 7))
        return Edit("a field is stored", steps, change)
    struct, key = pick(make, new, lambda held: held.type[0] in DEFAULTS)
    if struct is None or len(new.structs[struct].fields) < 2:
        return None
    kind = new.structs[struct].fields.pop(key).type
    value = {"default": DEFAULTS[kind[0]]} if make.chance(0.6) else {}
    new.structs[struct].unstored[key] = {"type": text(kind), "serialize": False, **value}
    steps = step("remove", struct, new, field=key, undo_default=DEFAULTS[kind[0]])
    change = on_instances(new, struct, lambda values, _: values.pop(key))
    return Edit("a field is not stored", steps, change, lossless=False)


def types_of(new):
    """All types in a version."""
    return [t for s in new.structs.values() for f in s.fields.values() for t in inner_types(f.type)]


def rename_struct(make, new):
    if new.prefix:  # another schema names it
        return None
    name = make.one(new.structs)
    to = make.one(n for n in "BCDGHXR" if n not in new.structs)
    if name == new.root:
        new.root = to
    new.structs = {to if key == name else key: held for key, held in new.structs.items()}

    def renamed(kind):
        if kind[0] == "struct":
            return ("struct", to if kind[1] == name else kind[1], kind[2])
        if kind[0] in ("items", "stack"):
            return (kind[0], renamed(kind[1]), kind[2])
        if kind[0] in ("null", "list", "dict", "union", "tuple", "tuple*"):
            return (kind[0], *map(renamed, kind[1:]))
        return kind

    for struct in new.structs.values():
        for held in struct.fields.values():
            held.type = renamed(held.type)

    def up(root):
        for instance in instances(root):
            if instance.struct == name:
                instance.struct = to
        return root

    return Edit("rename_struct", [{"rename_struct": {"struct": name, "to": to}}], up)


def numeric(kind):
    """The first part of a type that is a number, a list of numbers, or an array of at most one axis."""
    match kind:
        case ("int",) | ("float",) | ("list", ("int",)) | ("list", ("float",)):
            return kind
        case ("array", dtype, extents):
            return kind if len(extents) < 2 and "complex" not in dtype else None
        case ("null" | "list" | "dict", inner):
            return numeric(inner)
    return None


def replaced(kind, old, new):
    return new if kind == old else (kind[0], replaced(kind[1], old, new))


def new_form(make, new, struct, have):
    """Another type for the numbers of a type, and a function that makes them of a value and the sizes seen."""
    single = make.one([kind for kind in (("int",), ("float",)) if kind != have])

    def number(value, kind=single):
        if value.imag or (kind == ("int",) and not math.isfinite(value.real)):
            raise Stop
        value = value.real
        made = int(value) if kind == ("int",) else float(value)
        if made != value and not math.isnan(made):
            raise Stop
        return made

    if have[0] == "array":
        if have[1] == "bool":
            single = ("bool",)
        made = ("list", single) if have[2] else single
        change = (lambda x: x) if single == ("bool",) else number

        def unpacked(value, _):
            return [change(x.item()) for x in value] if have[2] else change(value.item())

        return made, unpacked
    if have[0] == "list" and make.chance(0.3):
        return ("list", single), lambda value, _: [number(x) for x in value]
    if have[0] != "list" and make.chance(0.5):
        return single, lambda value, _: number(value)
    dtype = make.one(["int8", "int32", "float16", "float32", "float64"])
    extent = make.one([FREE, "q", 2, *visible(new, struct)])

    def packed(value, sizes):
        if (
            have[0] == "list"
            and extent != FREE
            and len(value) != evaluate(extent, {"q": len(value)} | sizes)
        ):
            raise Stop
        return exactly(
            np.array(value, "float64" if have[-1] in ("float", ("float",)) else "int64"), dtype
        )

    return ("array", dtype, (extent,) if have[0] == "list" else ()), packed


def convert(make, new):
    def wanted(held):
        return LIMITS.isdisjoint(held.members) and numeric(held.type)

    struct, key = pick(make, new, wanted)
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    have = numeric(held.type)
    to, change = new_form(make, new, struct, have)
    if any("q" in names_in(e) for t in types_of(new) if t[0] == "array" for e in t[2]):
        return None
    types = {k: f.type for k, f in new.structs[struct].fields.items()}
    held.type = replaced(held.type, have, to)

    def changed(kind, value, sizes):
        if kind == have:
            return change(value, sizes)
        if value is None:
            return None
        if kind[0] == "list":
            return [changed(kind[1], x, sizes) for x in value]
        if kind[0] == "dict":
            return {k: changed(kind[1], x, sizes) for k, x in value.items()}
        return changed(kind[1], value, sizes)

    def up(values, _):
        values[key] = changed(types[key], values[key], seen_sizes(types, values))

    steps = step("convert", struct, new, field=key, to=text(to))
    return Edit("convert", steps, on_instances(new, struct, up))


STEPPED = [
    rename,
    add_scalar,
    add_array,
    remove,
    cast,
    convert,
    move,
    inline,
    fill,
    map_enum,
    other_members,
    wrap_key,
    cast_with_loss,
    rename_path,
    add_path,
    add_path,
    rename_struct,
    copy_field,
    copy_field,
    python,
    python,
    unstored,
    stored_or_not,
]
