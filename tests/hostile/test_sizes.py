"""Sizes made to hurt: equations that grow without end when they are written out, solved or printed."""

from unittest.mock import Mock

import numpy as np

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.evolution import differences as differences_module
from neuralqx_struct.evolution import steps
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.sizes.comparison import equations, shown_sizes
from neuralqx_struct.tools.linting import lint_series
from tests.builders import bounded, doc, every, payload

LEVELS = 15
TOWERS = {
    "sums": " + ",
    "differences": " - ",
    "products": " * ",
    "quotients": " // ",
    "powers": " ** ",
}


def tower(operation, leaf):
    """Fifteen dims that each combine eight of the next."""
    dims = {f"d{i}": {"equals": operation.join([f"d{i + 1}"] * 8)} for i in range(LEVELS)}
    return {**dims, f"d{LEVELS}": leaf}


def versions(dims, *, k):
    """Two versions whose shapes differ in spelling, and a payload of the first."""
    old = doc({"k": {"type": "int", "kind": "static"}, "x": "float32[d0]"}, dims=dims)
    fields = {"k": {"type": "int", "kind": "static"}, "y": "float32[d0 + 0]"}
    new = doc(fields, 2, [steps.rename(field="x", to="y")], dims=dims)
    return series_of([old, new]), payload(old, {"k": k, "x": np.zeros(1, "f4")})


@every("leaf", [{"equals": "k"}, {"equals": "k * 2 ** 62"}, {}])
@every("operation", TOWERS.values())
def test_every_command_ends(operation, leaf, tmp_path):
    for k in (0, 1, 3):
        with bounded():
            series, held = versions(tower(operation, leaf), k=k)
            found = [str(each) for each in lint_series(series)]
            found += [str(each) for each in s.diff(*series.documents.values())]
            path = bundle.write(tmp_path / f"b{k}", held)
            found += [str(each) for each in s.validate(path)]
            s.dump_schema(series.head)
            for read in (s.load, lambda path: s.migrate(path, tmp_path / f"m{k}", to=2)):
                try:
                    read(path)
                except s.StructError as error:
                    found.append(str(error))
            assert max(map(len, found), default=0) < 50_000


def test_parameters_that_become_too_long_when_they_are_bound():
    """An inlined struct, whose sizes are those of its holder written out."""
    inner = {"Inner": {"params": ["a"], "fields": {"x": f"float32[{' + '.join('a' * 200)}]"}}}
    old = doc({"i": f"Inner[{' + '.join('n' * 200)}]"}, raw=inner, dims={"n": {}})
    for steps_given in (
        None,
        [steps.inline(field="i", fields=["x"])],
        [steps.rename(field="i", to="j")],
    ):
        for fields in ({"x": "float32[n]"}, {"j": "Inner[n]"}):
            new = doc(fields, 2, steps_given, raw=inner, dims={"n": {}})
            with bounded():
                assert lint_series(series_of([old, new]))
                assert s.diff(old, new)


def test_equations_are_bound_once_for_all_structs(monkeypatch):
    """Four hundred structs, each with a size of four hundred dims that follow from each other."""
    bound = Mock(side_effect=equations)
    monkeypatch.setattr(differences_module, "equations", bound)
    dims = {f"d{i}": {"equals": f"d{i + 1} + 1"} for i in range(400)} | {"d400": {"min": 1}}
    held = {f"S{i}": {"fields": {"a": f"float32[d{i}]"}} for i in range(400)}
    fields = {f"s{i}": f"S{i}" for i in range(400)}
    old, new = (doc({**fields, name: "int"}, raw=held, dims=dims) for name in "pq")
    with bounded():
        assert len(differences_module.differences(old, new)) == 2
    assert bound.call_count == 2


def test_sizes_that_no_payload_shows():
    """Each field has sizes of other dims, and every one of them changed."""
    count = 300

    def version(number):
        shapes = (f"d{i} + d{(i + 1) % count}, d{i} * d{(i + 3) % count}" for i in range(count))
        fields = {f"f{i}": f"float32[{shape} + {number}]" for i, shape in enumerate(shapes)}
        return doc(fields, number, dims={f"d{i}": {} for i in range(count)})

    with bounded(8):
        found = lint_series(series_of([version(1), version(2)]))
    assert {each.code for each in found} == {"NQX301"}
    assert len(found) == count


def test_sizes_that_follow_from_each_other():
    """Each is known only when the next one is, from the last to the first."""
    count = 3000
    dims = {f"d{i}": {"equals": f"d{i + 1} + 1"} for i in range(count)}
    document = doc({"x": f"float32[d{count}]"}, dims={**dims, f"d{count}": {}})
    with bounded():
        assert len(shown_sizes(document, "A")) == count + 1
