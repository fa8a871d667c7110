"""neuralqx_struct.schema.export: diagrams that Mermaid's grammar takes, and outlines."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.schema.export import outline, struct_diagram, version_diagram
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.uses import among, link

# What Mermaid's class and flow diagrams are made of, as far as they are written here. Bodies of classes end at a brace,
# labels at a quote; a percent sign twice starts a comment, a tilde a generic, a semicolon ends a statement elsewhere.
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
TEXT = r"(?:[^#;{}()<>~%\"`\n]|#\d+;)*"
BODY = rf"(?:    (?:<<\w+>>|{TEXT})\n)+"
CLASS = rf'  class {NAME}(?:\["{TEXT}"\])?(?: \{{\n{BODY}  \}})?\n'
RELATION = rf'  {NAME} (?:\*--|\.\.>) (?:"(?:\*|0\.\.1)" )?{NAME} : {TEXT}\n'
CLASS_DIAGRAM = re.compile(f"classDiagram\n(?:{CLASS})*(?:{RELATION})*")
FLOW_CHART = re.compile(rf'flowchart LR\n(?:  v\d+\["{TEXT}"\]\n|  v\d+ -->\|"{TEXT}"\| v\d+\n)*')
RESERVED = {
    "class",
    "end",
    "note",
    "link",
    "style",
    "click",
    "default",
    "direction",
    "namespace",
    "title",
    "graph",
}


def document(**members):
    data = {
        "language": "1",
        "schema": "lab.a",
        "version": 1,
        "root": "A",
        "structs": {"A": {"fields": {}}},
    }
    return document_from_data({**data, **members}, "<test>")


def names_of(diagram):
    return set(re.findall(rf"^  class ({NAME})", diagram, re.MULTILINE))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_example_is_drawn(vmc_folder, version):
    series = load_series(vmc_folder)
    diagram = struct_diagram(series.at(version))
    assert CLASS_DIAGRAM.fullmatch(diagram + "\n")
    assert FLOW_CHART.fullmatch(version_diagram(series) + "\n")
    assert names_of(diagram) == set(series.at(version).structs)


def test_relations_say_what_holds_what_and_how_often():
    fields = {"a": "B", "b": "list[B]", "c": "B | null", "d": "E", "e": "dict[str, E]"}
    drawn = struct_diagram(
        document(enums={"E": ["x"]}, structs={"A": {"fields": fields}, "B": {"fields": {}}})
    )
    assert CLASS_DIAGRAM.fullmatch(drawn + "\n")
    assert drawn.splitlines()[-5:] == [
        "  A *-- B : a",
        '  A *-- "*" B : b',
        '  A *-- "0..1" B : c',
        "  A ..> E : d",
        '  A ..> "*" E : e',
    ]


def test_structs_of_other_schemas_have_their_whole_name():
    used = document(
        schema="lab.optim", root="Adam", structs={"Adam": {"fields": {"next": "Adam | null"}}}
    )
    user = document(uses=["lab.optim@1"], structs={"A": {"fields": {"state": "lab.optim.Adam"}}})
    drawn = struct_diagram(link(user, among([used])))
    assert CLASS_DIAGRAM.fullmatch(drawn + "\n")
    assert (
        'class lab_optim_1_Adam["lab.optim.Adam"] {' in drawn
        and "A *-- lab_optim_1_Adam : state" in drawn
    )


def test_words_of_mermaid_are_no_names_of_nodes():
    structs = {word: {"fields": {}} for word in RESERVED - {"class"}}
    drawn = struct_diagram(document(root="end", structs=structs))
    assert CLASS_DIAGRAM.fullmatch(drawn + "\n")
    assert not names_of(drawn) & RESERVED and 'class end_["end"]' in drawn


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_nothing_that_a_schema_says_leaves_its_place(text):
    # Text gets into a diagram through literals; expressions and names are of few characters.
    fields = {"x": f"literal[{text!r}]", "y": {"type": "int", "derived": "(1 + 2) * 3"}}
    drawn = struct_diagram(document(structs={"A": {"fields": fields}}))
    assert CLASS_DIAGRAM.fullmatch(drawn + "\n")
    assert len(drawn.splitlines()) == 6


def test_outlines_nest_fields_in_structs(vmc_folder):
    lines = outline(load_series(vmc_folder).head)
    assert "struct VMCState (root)" in lines and "  constraint 0 < alpha <= 8" in lines
    assert all(re.match(r"(  )?\S", line) for line in lines)


def test_docs_of_several_lines_stay_on_one():
    assert (
        outline(document(structs={"A": {"fields": {"x": {"type": "int", "doc": "a\nb"}}}}))[1]
        == "  x  int  a b"
    )
