"""Arrays after migration steps: what is read of the stored ones, whole and in regions."""

import numpy as np
import pytest

from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.manifest.payload import Payload, StoredArrays
from neuralqx_struct.schema.series import series_of
from tests.builders import doc, payload, value

FIELDS = {"kernel": "float32[i, o]", "fused": "float32[6, m]", "bias": "float32[o]"}
STEPS = [
    steps.transpose(field="kernel"),
    steps.split(field="fused", axis=0, into={"query": 2, "key": 4}, how="concat"),
    steps.cast(field="bias", dtype="float64"),
]
FIRST_MADE = {
    "kernel": "float32[o, i]",
    "query": "float32[2, m]",
    "key": "float32[4, m]",
    "bias": "float64[o]",
}
SECOND_MADE = FIRST_MADE | {"key": "float64[4, m]", "kernel": "float64[o, i]"}
SECOND_STEPS = [
    steps.cast(field="key", dtype="float64"),
    steps.cast(field="kernel", dtype="float64"),
]


class Counted(StoredArrays):
    """Arrays of a store that is slow to read, with a log of what is read and announced."""

    def __init__(self, arrays, *, divided):
        super().__init__(arrays)
        self.arrays, self.divided = arrays, divided
        self.whole, self.elements, self.asked, self.expected = [], 0, [], []

    def __getitem__(self, name):
        self.whole.append(name)
        return self.arrays[name]

    def divisible(self, name):
        return self.divided

    def expect(self, names):
        self.expected += names

    def verify(self, name):
        return None

    def parts(self, name, regions):
        if not self.divided:
            yield from super().parts(name, regions)
            return
        self.asked.append(name)
        for region in regions:
            self.elements += self.arrays[name][region].size
            yield self.arrays[name][region]


@pytest.fixture
def migrated():
    """Two migrations of a payload whose store is counted: the payload, the log, and the values of the fields."""

    def made(*, divided):
        documents = [
            doc(FIELDS),
            doc(FIRST_MADE, 2, STEPS),
            doc(SECOND_MADE, 3, SECOND_STEPS),
        ]
        values = {
            "kernel": np.arange(32, dtype="f4").reshape(8, 4),
            "fused": np.arange(48, dtype="f4").reshape(6, 8),
            "bias": np.arange(4, dtype="f4"),
        }
        held = payload(documents[0], values)
        log = Counted(dict(held.arrays), divided=divided)
        after = apply(Payload(held.document, log), plan(series_of(documents), 1, 3))
        assert log.whole == [] and log.elements == 0
        return after, log, values

    return made


def names_of(after):
    return {name: node["name"] for name, node in after.document["manifest"]["fields"].items()}


def test_a_region_reads_its_elements_alone_through_two_migrations(migrated):
    after, log, values = migrated(divided=True)
    names = names_of(after)
    regions = [(slice(i, i + 2), slice(None)) for i in (0, 2)]
    parts = [*after.arrays.parts(names["kernel"], regions[:1])]
    assert np.array_equal(parts[0], values["kernel"].T[:2]) and parts[0].dtype == "f8"
    assert log.elements == 16
    for part, region in zip(after.arrays.parts(names["key"], regions), regions, strict=True):
        assert np.array_equal(part, values["fused"][2:][region])
    assert log.elements == 16 + 32
    assert log.asked == ["kernel", "fused"]  # one request for both regions
    assert log.whole == []


def test_a_compressed_source_is_read_once_for_all_arrays_made_of_it(migrated):
    after, log, values = migrated(divided=False)
    names = names_of(after)
    halves = [(slice(0, 2), slice(None)), (slice(2, 4), slice(None))]
    parts = [*after.arrays.parts(names["key"], halves)]
    assert np.array_equal(np.concatenate(parts), values["fused"][2:])
    assert np.array_equal(after.arrays[names["query"]], values["fused"][:2])
    assert log.whole == ["fused"]


@pytest.mark.parametrize("order", ["all", "file"])
def test_in_either_order_the_values_are_those_of_the_steps(migrated, order):
    after, log, values = migrated(divided=False)
    after.arrays.order = order
    fields = value(after.document["manifest"], after.arrays)
    assert np.array_equal(fields["kernel"], values["kernel"].T)
    assert np.array_equal(fields["bias"], values["bias"]) and fields["bias"].dtype == "f8"
    assert sorted(log.whole) == ["bias", "fused", "kernel"]


def test_what_a_migrated_array_is_made_of_is_announced(migrated):
    after, log, _ = migrated(divided=True)
    names = names_of(after)
    after.arrays.expect([names["key"], names["query"], names["bias"]])
    assert log.expected == ["fused", "bias"]
