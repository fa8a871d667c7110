"""Who holds whom in a document: from the root on, in pytrees, stacked, once, and across documents."""

import pytest

from neuralqx_struct.schema.graph import graph_of, structs_across, types_across
from neuralqx_struct.schema.lock import payload_form
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.uses import among, link


def document(structs, identity="lab.a", used=(), root="A", **others):
    made = {name: {"fields": fields} for name, fields in structs.items()}
    data = {"language": "1", "schema": identity, "version": 1, "root": root, "structs": made}
    uses = {"uses": [f"{each.id}@1" for each in used]} if used else {}
    return link(document_from_data({**data, **others, **uses}, "a"), among(used))


CHAIN = {
    "A": {"x": "list[B]"},
    "B": {"e": "E", "a": "A | null"},
    "C": {"f": "F", "p": "pytree"},
}
ENUMS = {"enums": {"E": ["a"], "F": ["b"]}}


def test_what_payloads_can_hold():
    doc = document(CHAIN, **ENUMS)
    graph = graph_of(doc)
    assert (graph.structs, graph.enums) == (["A", "B"], ["E"])
    assert sorted(payload_form(doc)["structs"]) == ["A", "B"]
    assert graph.reached(["C"]) == (["A", "B", "C"], ["E", "F"])
    assert graph.reached(["C"], pytrees=False) == (["C"], ["F"])
    assert graph.reached([]) == ([], [])
    assert graph_of(doc) is graph


def test_holders_come_first():
    doc = document({"Z": {"y": "Y", "m": "M"}, "M": {"n": "int"}, "Y": {"m": "M"}}, root="Z")
    assert graph_of(doc).outside_in() == ["Z", "Y", "M"]


def test_fields_that_payloads_lack_count_inside_alone():
    hidden = {"type": "B", "kind": "static", "serialize": False}
    doc = document({"A": {"b": hidden}, "B": {"x": "int"}})
    graph = graph_of(doc)
    assert (graph.structs, graph.inside("A")) == (["A"], ["A", "B"])
    assert [use.field for use in graph.uses["B"]] == ["b"] and graph.users("B") == []


@pytest.mark.parametrize(
    ("fields", "single"),
    [
        ({"b": "B"}, {"A", "B"}),
        ({"b": "B", "c": "B"}, {"A"}),
        ({"b": "list[B]"}, {"A"}),
        ({"b": {"type": "list[B]", "max_length": 1}}, {"A", "B"}),
        ({"b": "B | C"}, {"A", "B", "C"}),
        ({"b": "B | C", "p": "pytree"}, set()),
    ],
)
def test_what_payloads_hold_once(fields, single):
    doc = document({"A": fields, "B": {"x": "int"}, "C": {"y": "int"}})
    assert graph_of(doc).single == single


def test_alternatives_of_one_field_are_held_once():
    others = {"B": {"x": "int"}, "C": {"y": "int"}}
    assert graph_of(document({"A": {"b": "B | C"}, **others})).holds_once({"B", "C"})
    assert not graph_of(document({"A": {"b": "B", "c": "C"}, **others})).holds_once({"B", "C"})


def test_structs_inside_stacked_ones_are_stacked():
    layer = {"w": "float32[2]", "inner": "I", "s": {"type": "S", "kind": "static"}}
    others = {"I": {"v": "float32[2]"}, "S": {"n": "int"}}
    doc = document({"A": {"x": "L[][3]", "s": "S"}, "L": layer, **others})
    assert graph_of(doc).stacked == {"L", "I"}


def test_structs_of_used_documents_come_once_with_their_document():
    used = document({"U": {"v": "V", "w": "V"}, "V": {"x": "float32[2]"}}, "lab.u", root="U")
    doc = document({"A": {"u": "lab.u.U", "a": "A | null"}}, used=[used])
    found = [(owner.id, name) for owner, name in structs_across(doc, ["A", "nothing"])]
    assert found == [("lab.a", "A"), ("lab.u", "U"), ("lab.u", "V")]
    declared = doc.structs["A"].fields["u"].declared
    assert [(d.id, t.format()) for d, t in types_across(doc, declared)] == [
        ("lab.a", "lab.u.U"),
        ("lab.u", "V"),
        ("lab.u", "V"),
        ("lab.u", "float32[2]"),
    ]
