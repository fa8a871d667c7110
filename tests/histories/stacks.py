"""Edits between lists of structs and stacked structs."""

import copy

import numpy as np

from tests.histories.declarations import FREE, Stack, evaluate, mapped, same, visible
from tests.histories.making import is_size, stackable
from tests.histories.steps import Edit, Open, Stop, on_instances, pick, seen_sizes, step


def outline(layer):
    """A layer with the dtypes and shapes of its arrays in place of them."""

    def shown(value):
        return f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else value

    return mapped(copy.deepcopy(layer), shown)


def stack(make, new):
    """A list of structs becomes one with a leading axis; its size is new, any, a number, or one that an array shows."""

    def wanted(held):
        lists = held.type[0] in ("list", "items") and held.type[1][0] == "struct"
        return lists and held.type[1][1] in new.structs and stackable(new, held.type[1][1])

    struct, key = pick(make, new, wanted)
    if struct is None or is_size(new, "q"):
        return None
    held = new.structs[struct].fields[key]
    types = {k: f.type for k, f in new.structs[struct].fields.items()}
    members = {}
    size = held.type[2] if held.type[0] == "items" else None
    if size is None:
        size = members["size"] = make.one([FREE, "q", 2, *visible(new, struct)])
    held.type = ("stack", held.type[1], size)

    def change(values, _):
        layers = values[key]
        sizes = {"q": len(layers)} | seen_sizes(types, values)
        fits = not members or size == FREE or evaluate(size, sizes) == len(layers)
        first, *others = map(outline, layers or [None])
        if not fits or not all(same(first, other) for other in others):
            raise Stop
        if not layers:
            raise Open
        values[key] = Stack(layers, len(layers))

    steps = step("stack", struct, new, field=key, **members)
    return Edit("stack", steps, on_instances(new, struct, change))


def unstack(make, new):
    """A stacked struct becomes a list."""
    struct, key = pick(make, new, lambda held: held.type[0] == "stack")
    if struct is None:
        return None
    held = new.structs[struct].fields[key]
    held.type = make.one([("list", held.type[1]), ("items", *held.type[1:])])

    def change(values, _):
        values[key] = values[key].layers[: values[key].count]

    steps = step("unstack", struct, new, field=key)
    return Edit("unstack", steps, on_instances(new, struct, change))
