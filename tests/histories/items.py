"""Edits between fields and the values of a list, tuple or dict, between lists of arrays and arrays, and of text."""

import numpy as np

from tests.histories.declarations import (
    FREE,
    LIMITS,
    Field,
    Items,
    Member,
    evaluate,
    visible,
)
from tests.histories.making import is_size
from tests.histories.steps import (
    Edit,
    Open,
    Stop,
    free_name,
    free_names,
    on_instances,
    pick,
    seen_sizes,
    step,
)


def merge_items(make, new):
    """Two or more fields become the values of a list, tuple or dict."""
    how = make.one(["list", "list", "dict", "tuple"])
    found = {}
    for name, struct in new.structs.items():
        for key, held in struct.fields.items():
            found.setdefault((name, how == "tuple" or held.type), []).append(key)
    groups = [(name, keys) for (name, _), keys in found.items() if len(keys) > 1]
    if not groups:
        return None
    struct, keys = make.one(groups)
    keys = make.rng.sample(keys, min(len(keys), make.one([2, 2, 3, 4])))
    fields = new.structs[struct].fields
    types = [fields[key].type for key in keys]
    one = types[0]
    to = free_name(make, new.structs[struct])
    listed = make.one([("items", one, len(keys)), ("list", one)])
    made = {"list": listed, "dict": ("dict", one), "tuple": ("tuple", *types)}[how]
    for key in keys:
        del fields[key]
    fields[to] = Field(made)

    def change(values, _):
        held = {key: values.pop(key) for key in keys}
        collected = {"dict": held, "tuple": Items([*held.values()])}
        values[to] = collected.get(how, [*held.values()])

    steps = step("merge", struct, new, fields=keys, into=to, how=how)
    return Edit(f"merge {how}", steps, on_instances(new, struct, change))


def split_items(make, new):
    """The values of a list, tuple or dict become fields; other lengths and keys are refused."""

    def parts(held):
        kind = held.type
        if kind[0] == "tuple":
            return kind[1:]
        if kind[0] == "items" and isinstance(kind[2], int):
            return [kind[1]] * kind[2]
        several = kind[0] in ("list", "items", "dict", "tuple*")
        return [kind[1]] * make.one([1, 2, 3]) if several else ()

    struct, key = pick(make, new, parts)
    if struct is None:
        return None
    fields = new.structs[struct].fields
    kind, types = fields[key].type, parts(fields[key])
    how = {"items": "list", "tuple*": "tuple"}.get(kind[0], kind[0])
    names = free_names(new.structs[struct], "abcdefghuvwxyz")[: len(types)]
    del fields[key]
    fields |= {name: Field(each) for name, each in zip(names, types, strict=True)}

    def change(values, _):
        whole = values.pop(key)
        held = whole.items if isinstance(whole, Items) else whole
        if isinstance(held, dict):
            if held.keys() != {*names}:
                raise Stop
            held = [held[name] for name in names]
        if len(held) != len(names):
            raise Stop
        values.update(zip(names, held, strict=True))

    steps = step("split", struct, new, field=key, into=names, how=how)
    return Edit(f"split {how}", steps, on_instances(new, struct, change))


def stack_arrays(make, new):
    """A list of arrays becomes one array."""

    def wanted(held):
        return held.type[0] in ("list", "items") and held.type[1][0] == "array"

    struct, key = pick(make, new, wanted)
    if struct is None or is_size(new, "q"):
        return None
    held = new.structs[struct].fields[key]
    types = {k: f.type for k, f in new.structs[struct].fields.items()}
    members = {}
    size = held.type[2] if held.type[0] == "items" else None
    if size is None:
        size = members["size"] = make.one([FREE, "q", 2, *visible(new, struct)])
    _, dtype, extents = held.type[1]
    held.type = ("array", dtype, (size, *extents))

    def change(values, _):
        layers = values[key]
        sizes = {"q": len(layers)} | seen_sizes(types, values)
        fits = not members or size == FREE or evaluate(size, sizes) == len(layers)
        if not fits or len({(x.dtype, x.shape) for x in layers}) > 1:
            raise Stop
        if not layers:
            raise Open
        values[key] = np.stack(layers)

    steps = step("stack", struct, new, field=key, **members)
    return Edit("stack arrays", steps, on_instances(new, struct, change))


def unstack_array(make, new):
    """An array becomes a list."""
    struct, key = pick(make, new, lambda held: held.type[0] == "array" and held.type[2])
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    _, dtype, (size, *extents) = held.type
    inner = ("array", dtype, tuple(extents))
    held.type = (
        ("list", inner) if size == FREE else make.one([("list", inner), ("items", inner, size)])
    )

    def change(values, _):
        values[key] = [np.array(x) for x in values[key]]

    steps = step("unstack", struct, new, field=key)
    return Edit("unstack array", steps, on_instances(new, struct, change))


def convert_text(make, new):
    """Text becomes a member of the enum, or a member becomes text."""
    kinds = [("str",), *([("enum", "E")] if new.enums else [])]
    struct, key = pick(make, new, lambda h: h.type in kinds and LIMITS.isdisjoint(h.members))
    if struct is None or len(kinds) < 2:
        return None
    held = new.structs[struct].fields[key]
    (to,) = [kind for kind in kinds if kind != held.type]
    held.type = to
    members = [*new.enums["E"]]

    def change(values, _):
        text = str(values[key])
        if to == ("enum", "E") and text not in members:
            raise Stop
        values[key] = Member(text) if to == ("enum", "E") else text

    steps = step("convert", struct, new, field=key, to=to[-1])
    return Edit("convert text", steps, on_instances(new, struct, change))


COLLECTED = [merge_items, split_items, stack_arrays, unstack_array, convert_text]
