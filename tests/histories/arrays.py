"""Edits of the axes of arrays, and between one array and several."""

import itertools
import string

import numpy as np

from tests.histories.declarations import FREE, Field, evaluate, mapped, names_in, visible
from tests.histories.steps import (
    HOLDERS,
    Edit,
    free_name,
    free_names,
    is_array,
    on_instances,
    pick,
    replaced,
    seen_sizes,
    step,
)

PARTS = {"complex64": "float32", "complex128": "float64"}
WHOLES = {part: whole for whole, part in PARTS.items()}


def spelled(make, axis, rank):
    """An axis as a step writes it: from the front, or from the back."""
    if axis == 0 and make.chance(0.5):
        return {}
    return {"axis": axis - rank if make.chance(0.3) else axis}


def transpose(make, new):
    """The axes of an array in another order, that from the back where a step names none."""
    struct, key = pick(make, new, lambda held: is_array(held) and len(held.type[2]) > 1)
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    _, dtype, extents = held.type
    rank = len(extents)
    order = [*reversed(range(rank))]
    members = {}
    if make.chance(0.6 if rank > 2 else 0.2):
        order = list(make.one([*itertools.permutations(range(rank))][1:]))
        members["axes"] = [axis - rank if make.chance(0.2) else axis for axis in order]
    held.type = ("array", dtype, tuple(extents[axis] for axis in order))

    def change(values, _):
        values[key] = np.ascontiguousarray(np.transpose(values[key], order))

    steps = step("transpose", struct, new, field=key, **members)
    return Edit("transpose", steps, on_instances(new, struct, change))


def array_in(kind):
    """The array that a type is, or that its values hold in a list, in a dict, or beside null; None for others."""
    while kind[0] in ("null", "list", "dict"):
        kind = kind[1]
    return kind if kind[0] == "array" else None


def flat(value):
    return value.reshape(-1) if isinstance(value, np.ndarray) else value


def reshape(make, new):
    def wanted(held):
        kind = array_in(held.type)
        return kind and len(kind[2]) > 1 and FREE not in kind[2]

    struct, key = pick(make, new, wanted)
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    have = array_in(held.type)
    extents = have[2]
    if all(isinstance(extent, int) for extent in extents):
        product = int(np.prod(extents))
    else:
        product = " * ".join(f"({extent})" for extent in extents)
    held.type = replaced(held.type, have, ("array", have[1], (product,)))
    after = visible(new, struct)
    inside = set().union(*map(names_in, extents))
    known = inside <= set(after) or inside <= set(new.structs[struct].params)
    if not known and not isinstance(product, int):  # the inverse could not know the axes
        return None

    def change(values, _):
        values[key] = mapped(values[key], flat)

    steps = step("reshape", struct, new, field=key, shape=[product])
    return Edit("reshape", steps, on_instances(new, struct, change))


def alike(make, new, form):
    """A struct and two or three arrays of it, or one too few, that `form` makes the same of; or (None, None)."""
    found = {}
    for name, struct in new.structs.items():
        for key, held in struct.fields.items():
            if is_array(held) and FREE not in held.type[2]:
                for each in form(held.type):
                    found.setdefault((name, each), []).append(key)
    found = {form: keys for form, keys in found.items() if len(keys) > 1}
    if not found:
        return None, None, None
    (struct, known), keys = make.one(found.items())
    return struct, known, make.rng.sample(keys, min(len(keys), make.one([2, 3, 4])))


def merge(make, new):
    """Arrays that agree in all axes but one become one along it."""

    def form(kind):
        _, dtype, extents = kind
        for axis in range(len(extents)):
            yield dtype, axis, extents[:axis], extents[axis + 1 :]

    struct, known, keys = alike(make, new, form)
    if struct is None:
        return None
    dtype, axis, before, behind = known
    fields = new.structs[struct].fields
    lengths = [fields[key].type[2][axis] for key in keys]
    numbers = all(isinstance(length, int) for length in lengths)
    total = sum(lengths) if numbers else " + ".join(map(str, lengths))
    to = free_name(make, new.structs[struct])
    position = list(fields).index(keys[0])
    items = [(k, v) for k, v in fields.items() if k not in keys]
    made = Field(("array", dtype, (*before, total, *behind)))
    items.insert(min(position, len(items)), (to, made))
    new.structs[struct].fields = dict(items)

    def change(values, _):
        values[to] = np.concatenate([values.pop(key) for key in keys], axis)

    place = spelled(make, axis, len(before) + 1 + len(behind))
    steps = step("merge", struct, new, fields=keys, into=to, how="concat", **place)
    return Edit("merge", steps, on_instances(new, struct, change))


def merge_stack(make, new):
    """Arrays of one shape become one: stacked along a new axis, or real and imaginary part."""
    struct, known, keys = alike(make, new, lambda kind: [kind[1:]])
    if struct is None:
        return None
    dtype, extents = known
    how = "complex" if dtype in WHOLES and make.chance(0.5) else "stack"
    keys = keys[:2] if how == "complex" else keys
    axis = make.one([0, make.rng.randint(0, len(extents))])
    fields = new.structs[struct].fields
    to = free_name(make, new.structs[struct])
    for key in keys:
        del fields[key]
    made = ("array", dtype, (*extents[:axis], len(keys), *extents[axis:]))
    if how == "complex":
        made = ("array", WHOLES[dtype], extents)
    fields[to] = Field(made)

    def change(values, _):
        parts = [values.pop(key) for key in keys]
        if how == "stack":
            values[to] = np.stack(parts, axis)
        else:
            values[to] = np.empty(parts[0].shape, made[1])
            values[to].real, values[to].imag = parts

    place = spelled(make, axis, len(extents) + 1) if how == "stack" else {}
    steps = step("merge", struct, new, fields=keys, into=to, how=how, **place)
    return Edit(f"merge {how}", steps, on_instances(new, struct, change))


def addends(extent):
    """The sizes of the parts of an axis, as many as the extent shows."""
    written = str(extent)
    if written in ("2", "3"):
        return [[1, int(written) - 1], [1] * int(written)]
    if written[:4] == "2 * " and written[4:].isidentifier():
        return [[written[4:]] * 2]
    parts = [int(x) if x.isdigit() else x for x in written.split(" + ")]
    if not 1 < len(parts) < 4 or "(" in written:
        return []
    return [parts]


def split(make, new):
    """An array becomes its parts along an axis."""
    struct, key = pick(make, new, lambda h: is_array(h) and any(map(addends, h.type[2])))
    if struct is None:
        return None
    fields = new.structs[struct].fields
    types = {k: f.type for k, f in fields.items()}
    _, dtype, extents = fields.pop(key).type
    axis, sizes = make.one(
        [(axis, sizes) for axis, extent in enumerate(extents) for sizes in addends(extent)]
    )
    names = free_names(new.structs[struct])[: len(sizes)]
    for name, size in zip(names, sizes, strict=True):
        fields[name] = Field(("array", dtype, (*extents[:axis], size, *extents[axis + 1 :])))
    shown = {e for kind in types.values() if kind[0] == "array" for e in kind[2]}
    shown &= {*string.ascii_letters}
    unknown = [size for size in sizes if isinstance(size, str) and size not in shown]
    if len({*unknown}) > 1:
        return None  # the model does not know the dims

    def change(values, _):
        seen = seen_sizes(types, values)
        whole = values.pop(key)
        lengths = [None if size in unknown else evaluate(size, seen) for size in sizes]
        rest = whole.shape[axis] - sum(length or 0 for length in lengths)
        start = 0
        for name, length in zip(names, lengths, strict=True):
            stop = start + (rest // len(unknown) if length is None else length)
            values[name] = np.take(whole, range(start, stop), axis)
            start = stop

    into = dict(zip(names, sizes, strict=True))
    place = spelled(make, axis, len(extents))
    steps = step("split", struct, new, field=key, into=into, **place)
    # The parts of an array of a family may get dtypes of their own later.
    return Edit("split", steps, on_instances(new, struct, change), lossless=dtype not in HOLDERS)


def split_stack(make, new):
    """An array becomes its entries along a short axis, or a complex one its parts."""

    def wanted(held):
        return is_array(held) and (held.type[1] in PARTS or {2, 3} & {*held.type[2]})

    struct, key = pick(make, new, wanted)
    if struct is None:
        return None
    fields = new.structs[struct].fields
    _, dtype, extents = fields.pop(key).type
    short = [axis for axis, extent in enumerate(extents) if extent in (2, 3)]
    how = "complex" if dtype in PARTS and (not short or make.chance(0.5)) else "stack"
    axis = make.one(short) if how == "stack" else 0
    count = extents[axis] if how == "stack" else 2
    names = make.rng.sample(free_names(new.structs[struct]), count)
    made = ("array", PARTS.get(dtype), extents)
    if how == "stack":
        made = ("array", dtype, (*extents[:axis], *extents[axis + 1 :]))
    fields |= {name: Field(made) for name in names}

    def change(values, _):
        whole = values.pop(key)
        parts = [whole.real, whole.imag]
        if how == "stack":
            parts = np.moveaxis(whole, axis, 0)
        values.update({name: np.array(part, order="C") for name, part in zip(names, parts)})

    place = spelled(make, axis, len(extents)) if how == "stack" else {}
    steps = step("split", struct, new, field=key, into=names, how=how, **place)
    lossless = dtype not in HOLDERS
    return Edit(f"split {how}", steps, on_instances(new, struct, change), lossless=lossless)


OF_ARRAYS = [transpose, reshape, merge, split, merge_stack, split_stack]
