"""Parts of arrays: each array of a file is read once for all of its parts, and no more than the parts that are asked for."""

import itertools
import random
import weakref

import jax
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.formats import ForeignArray
from neuralqx_struct.layouts import read_layout
from neuralqx_struct.layouts.lint import check_layout
from neuralqx_struct.layouts.payloads import adopted, released
from neuralqx_struct.layouts.table import Table
from neuralqx_struct.manifest import lazy_reading
from neuralqx_struct.manifest.lazy_arrays import reshaped_region
from neuralqx_struct.manifest.payload import HeldArrays, Payload, StoredArrays
from neuralqx_struct.schema.series import load_series
from tests.builders import every

HEAD = 'language: "1"\nlayout: hf\nof: lab.net@1\n'
SCHEMA = 'language: "1"\nschema: lab.net\nversion: 1\nroot: Net\n'


def f(*shape, dtype="float32"):
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


class File:
    """Arrays that list what is read of them, as those of a compressed file or, with ``slices``, behind a URL."""

    def __init__(self, *, slices=False, **arrays):
        self.read, self.elements, self.alive, self.most = [], 0, 0, 0
        self.arrays = {name: self.lazy(name, array, slices) for name, array in arrays.items()}

    def lazy(self, name, array, slices):
        def read():
            self.read.append(name)
            self.alive += 1
            self.most = max(self.most, self.alive)
            copy = array.copy()
            weakref.finalize(copy, self.gone)
            return copy

        def part(region):
            self.elements += array[region].size
            return array[region].copy()

        return ForeignArray(str(array.dtype), array.shape, read, part if slices else None)

    def gone(self):
        self.alive -= 1


LISTS = (
    SCHEMA
    + 'structs: {Layer: {fields: {a: "float32[n, m]", b: "float32[m]"}}, Net: {fields: {layers: "list[Layer]"}}}'
)
UNSTACKED = (
    HEAD + "structs: {Layer: {a: {transpose: true}}, Net: {layers: {name: h, unstack: 0}}}\n"
)
STACKED = {"h.a": f(6, 3, 2), "h.b": f(6, 3)}
FUSED = (
    SCHEMA
    + 'structs: {Net: {fields: {q: "float32[d, d]", k: "float32[d, d]", v: "float32[d, d]", w: "float32[d]"}}}'
)
SPLIT = (
    HEAD
    + "structs: {Net: {"
    + ", ".join(
        f"{name}: {{name: qkv, axis: 0, part: [{place}, 3]}}" for place, name in enumerate("qkv")
    )
    + "}}\n"
)
CASES = {
    "unstack": (LISTS, UNSTACKED, STACKED),
    "part": (FUSED, SPLIT, {"qkv": f(12, 4), "w": f(4)}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("slices", [False, True])
def test_each_array_is_read_once(case, slices):
    schema, layout, arrays = CASES[case]
    file = File(slices=slices, **arrays)
    model = s.load_schema(schema).from_layout(file.arrays, layout, as_numpy=True)
    assert sorted(file.read) == sorted(arrays)
    assert model == s.load_schema(schema).from_layout(arrays, layout, as_numpy=True)
    back = s.load_schema(schema).to_layout(model, layout)
    assert all(np.array_equal(back[name], array) for name, array in arrays.items())


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_is_written_with_one_array_in_memory(case, tmp_path):
    schema, layout, arrays = CASES[case]
    file = File(**arrays)
    found = adopted(load_series(schema), layout, file.arrays)
    for name in found.arrays:
        found.arrays[name].sum()
    assert sorted(file.read) == sorted(arrays)
    assert file.most == 1


def test_no_more_is_read_of_selected_layers_than_they_have():
    file = File(slices=True, **STACKED)
    schema = s.load_schema(LISTS)
    model = schema.from_layout(file.arrays, UNSTACKED, select="path:layers/4/**", as_numpy=True)
    assert np.array_equal(model.layers[4].a, STACKED["h.a"][4].T)
    assert model.layers[3].a is None
    assert (file.read, file.elements) == ([], 9)
    packed = File(**STACKED)
    schema.from_layout(packed.arrays, UNSTACKED, select="path:layers/4/**", as_numpy=True)
    assert sorted(packed.read) == ["h.a", "h.b"]


#: A type, a rule, other declarations, and the arrays of the file.
RULES = {
    "same": ("float32[6, 4]", "x", {"x": f(6, 4)}),
    "transpose": ("float32[4, 2, 6]", "{name: x, transpose: [1, 2, 0]}", {"x": f(6, 4, 2)}),
    "cast": ("float32[6, 4]", "{name: x, cast: int8}", {"x": f(6, 4, dtype="int8")}),
    "heads": ("float32[6, 2, 4]", "{name: x, reshape: [6, 2 * 4]}", {"x": f(6, 8)}),
    "joined": ("float32[12, 4]", "{name: x, reshape: [3, 4, 4]}", {"x": f(3, 4, 4)}),
    "part": ("float32[6, 4]", "{name: x, axis: 1, part: [0, 1], transpose: true}", {"x": f(4, 6)}),
    "one": ("float32[6, 4]", "{name: x, axis: 1, part: [0, 1], split: stack}", {"x": f(6, 1, 4)}),
    "blocks": ("float32[6, 4]", "{name: x, axis: 0, part: [0, 1], blocks: 2}", {"x": f(6, 4)}),
    "concat": ("float32[6, 4]", "{name: [x, y, z], axis: 0}", {n: f(2, 4) for n in "xyz"}),
    "stack": ("float32[4, 3, 6]", "{name: [x, y, z], axis: 1, merge: stack, transpose: [2, 1, 0]}",
              {n: f(6, 4) + i for i, n in enumerate("xyz")}),
    "fused heads": ("float32[4, 3, 2, 2]", "{name: [x, y, z], axis: 1, merge: concat, reshape: [4, 3 * 2 * 2]}",
                    {n: f(4, 4) + i for i, n in enumerate("xyz")}),
    "empty": ("float32[6, 0]", "x", {"x": f(6, 0)}),
}  # fmt: skip


@every("slices", [False, True])
@every("rule", RULES)
def test_a_part_is_that_of_the_whole_array(rule, slices):
    declared, text, arrays = RULES[rule]
    series = load_series(SCHEMA + f'structs: {{Net: {{fields: {{w: "{declared}"}}}}}}')
    file = File(slices=slices, **arrays)
    found = adopted(series, HEAD + f"structs: {{Net: {{w: {text}}}}}\n", file.arrays).arrays
    whole = found["w"]
    draw = random.Random(0)
    regions = [
        tuple(slice(*sorted((draw.randint(0, n), draw.randint(0, n)))) for n in whole.shape)
        for _ in range(12)
    ]
    del file.read[:]
    for region, part in zip(regions, found.parts("w", regions), strict=True):
        assert np.array_equal(part, whole[region])
        assert part.dtype == whole.dtype
    assert all(file.read.count(name) <= 2 for name in arrays)  # in parts, then once for all others
    stepped = tuple(slice(None, None, 2) for _ in whole.shape)
    assert np.array_equal(next(found.parts("w", [stepped])), whole[stepped])


@pytest.mark.parametrize(
    ("rule", "region", "elements"),
    [
        ("transpose", (slice(0, 1), slice(0, 2), slice(0, 3)), 6),
        ("heads", (slice(0, 6), slice(1, 2), slice(0, 4)), 24),
        ("concat", (slice(1, 3), slice(0, 2)), 4),
        ("stack", (slice(0, 4), slice(2, 3), slice(0, 6)), 24),
        ("cast", (slice(0, 1), slice(0, 4)), 4),
    ],
)
def test_no_more_is_read_than_a_part(rule, region, elements):
    declared, text, arrays = RULES[rule]
    series = load_series(SCHEMA + f'structs: {{Net: {{fields: {{w: "{declared}"}}}}}}')
    file = File(slices=True, **arrays)
    found = adopted(series, HEAD + f"structs: {{Net: {{w: {text}}}}}\n", file.arrays).arrays
    next(found.parts("w", [region]))
    assert (file.read, file.elements) == ([], elements)


@pytest.mark.parametrize("own", [True, False])
def test_parts_of_stacked_structs(own):
    """Whose layers have arrays of their own, or one together."""
    schema = (
        SCHEMA
        + 'structs: {Layer: {fields: {a: "float32[n, m]"}}, Net: {fields: {layers: "Layer[][5]"}}}'
    )
    arrays = {f"h.{i}.a": f(3, 2) + i for i in range(5)} if own else {"h.a": f(3, 5, 2)}
    rule = '"h.{i}"' if own else "{name: h, stack: 1}"
    layout = HEAD + f"structs: {{Net: {{layers: {rule}}}}}\n"
    file = File(slices=True, **arrays)
    found = adopted(load_series(schema), layout, file.arrays).arrays
    (name,) = found
    region = (slice(1, 3), slice(0, 2), slice(1, 2))
    (part,) = found.parts(name, [region])
    assert (file.read, file.elements) == ([], 4)
    assert np.array_equal(part, found[name][region])


class Read(StoredArrays):
    """The arrays of a payload in a file that lists what is read of it."""

    def __init__(self, file):
        super().__init__(file.arrays)
        self.file = file

    def __getitem__(self, name):
        return self.file.arrays[name].read()

    def verify(self, name):
        """No checksum."""


@pytest.mark.parametrize("held", [1 << 20, 10])
def test_stacked_arrays_are_read_once_for_all_layers(monkeypatch, held):
    """Small ones stay in memory: a file has the fields of one layer after those of the other."""
    monkeypatch.setattr(lazy_reading, "_MOST_EACH", held)
    fields = '{fields: {a: "float32[n]", b: "float32[n]"}}'
    series = load_series(
        f'{SCHEMA}structs: {{Layer: {fields}, Net: {{fields: {{layers: "Layer[][5]"}}}}}}'
    )
    layout = HEAD + 'structs: {Net: {layers: "h.{i}"}}\n'
    arrays = {f"h.{i}.{name}": f(3) + i for i in range(5) for name in "ab"}
    made = adopted(series, layout, arrays)
    file = File(**made.arrays)
    back = released(Payload(made.document, Read(file)), series, layout)
    assert [*back] == [*arrays]
    assert all(np.array_equal(back[name].read(), array) for name, array in arrays.items())
    assert (len(file.read), file.most) == (2, 1)


def test_fused_arrays_of_layers_are_read_once_for_all_stacked_arrays(monkeypatch):
    monkeypatch.setattr(lazy_reading, "_MOST_EACH", 50)
    fields = '{fields: {q: "float32[d, d]", k: "bfloat16[d]", v: "float32[d, d]"}}'
    series = load_series(
        f'{SCHEMA}structs: {{Layer: {fields}, Net: {{fields: {{layers: "Layer[][5]"}}}}}}'
    )
    parts = "q: {name: qv, part: [0, 2]}, k: {name: k, cast: float32}, v: {name: qv, part: [1, 2]}"
    layout = f'{HEAD}structs: {{Layer: {{{parts}}}, Net: {{layers: "h.{{i}}"}}}}\n'
    arrays = {f"h.{i}.qv": f(8, 4) + i for i in range(5)} | {f"h.{i}.k": f(4) for i in range(5)}
    file = File(**arrays)
    found = adopted(series, layout, file.arrays)
    made = {name: found.arrays[name] for name in found.arrays}
    assert sorted(file.read) == sorted(arrays) and file.most == 1
    assert np.array_equal(made["layers/v"][3], arrays["h.3.qv"][4:])
    back = released(Payload(found.document, HeldArrays(made)), series, layout)
    assert all(np.array_equal(back[name].read(), array) for name, array in arrays.items())


def test_shards_of_a_compressed_file_are_cut_from_one_read():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    file = File(**STACKED)
    model = s.load_schema(LISTS).from_layout(file.arrays, UNSTACKED, shardings=sharding)
    assert sorted(file.read) == sorted(STACKED)
    assert np.array_equal(model.layers[5].a, STACKED["h.a"][5].T)


def test_regions_of_reshaped_arrays():
    shapes = [(6,), (2, 3), (3, 2), (1, 6), (6, 1), (2, 1, 3), (12,), (2, 6), (4, 3), (2, 2, 3)]
    pairs = [(a, b) for a, b in itertools.product(shapes, shapes) if np.prod(a) == np.prod(b)]
    for shape, other in pairs:
        numbers = np.arange(np.prod(shape))
        axes = [[slice(a, b) for a in range(n) for b in range(a + 1, n + 1)] for n in shape]
        for region in itertools.product(*axes):
            found = reshaped_region(region, shape, other)
            wanted = numbers.reshape(shape)[region].ravel()
            if found is not None:
                assert np.array_equal(numbers.reshape(other)[found].ravel(), wanted)
            elif len(other) == 1:
                assert np.any(np.diff(wanted) != 1)


@pytest.mark.parametrize(
    ("layers", "rule"),
    [
        ("list[Layer]", "{name: h, unstack: 0}"),
        ("list[Layer]", "{name: h, unstack: 1}"),
        ("list[Layer]", "{name: h, unstack: 2}"),
        ("Layer[][2]", "{name: h, stack: 1}"),
        ("Layer[][2]", '"h.{i}"'),
    ],
)
def test_merged_arrays_of_several_sizes_below_layers(layers, rule):
    schema = s.load_schema(
        SCHEMA
        + f'structs: {{Layer: {{fields: {{w: "float32[3, 2]"}}}}, Net: {{fields: {{layers: "{layers}"}}}}}}'
    )
    layout = f"{HEAD}structs: {{Layer: {{w: {{name: [a, b], axis: 0, sizes: [2, 1]}}}}, Net: {{layers: {rule}}}}}\n"
    read, source = read_layout(layout, schema.series)
    found = check_layout(Table(schema.series.head, read), source)
    assert not found
    items = [schema.Layer(w=f(3, 2) + i) for i in range(2)]
    model = schema.Net(layers=s.stack(items) if "[]" in layers else items)
    arrays = dict(schema.to_layout(model, layout))
    apart = {"h.0.a", "h.0.b", "h.1.a", "h.1.b"}
    assert {*arrays} == (apart if "{i}" in rule else {"h.a", "h.b"})
    assert schema.from_layout(arrays, layout) == model
