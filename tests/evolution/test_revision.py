"""Revisions: the next version's file from an edited schema, questions, and that every answer leads to a schema that lints."""

import errno
import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError, has_errors
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.revision import revise
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.schema.reading import document_from_data, parse_document
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.tools.linting import lint
from tests import builders
from tests.builders import DIAGNOSTICS, answered, cases, refused, yaml_blocks

V1 = """\
# yaml-language-server: $schema=../struct-schema/1.json
# What it is for.
language: "1"
schema: lab.net
version: 1
root: Net
dims: {n: {min: 1}, m: {min: 1}, k: {equals: n + m}}
enums:
  Mode: [fast, slow]
structs:
  Layer:
    fields: {w: "float32[n]"}  # weights
  Net:
    # all of it
    fields:
      weight: "float32[n]"  # the one
      bias: "float32[k]"
      mode: {type: Mode, kind: static}
      layer: Layer
"""


def test_answers_of_the_helper():
    text = "a\n  # nqx: question: x?\n  # yes:\n  # - one\n  # no:\n  # - two\n  # - three\n  # nqx: question: y?\n  # z:\n  # - w\n"
    assert answered(
        "a\n  # nqx: question: x?\n  # yes:\n  # - one\n  # no:\n  # - two\nb"
    ).split() == [
        "a",
        "-",
        "one",
        "b",
    ]
    assert "three" in answered(text.replace("  # nqx: question: y?\n  # z:\n  # - w\n", ""), 9)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A repository with version 1 of a schema."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "v1.yaml").write_text(V1)
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True)
    return tmp_path / "net"


# what is replaced in version 1, the steps that are inferred, the questions
EDITS = {
    "a default says what is added": ("      mode: {type: Mode, kind: static}", "      mode: {type: Mode, kind: static}\n      lr: {type: float, default: 0.5}", ["- add: {field: lr, default: 0.5}"], []),
    "no default": ("      mode: {type: Mode, kind: static}", "      mode: {type: Mode, kind: static}\n      lr: float", [], ["lr, float, is new: what do old payloads get?"]),
    "an alias says what is renamed": ('weight: "float32[n]"', 'w: {type: "float32[n]", aliases: [weight]}', ["- rename: {field: weight, to: w}"], []),
    "renamed or another": ('weight: "float32[n]"', 'weights: "float32[n]"', [], ["weight is gone and weights is new, of type float32[n]: was it renamed?"]),
    "renamed and cast": ('weight: "float32[n]"', 'kernel: "float64[n]"', [], ["weight is gone and kernel is new, of type float32[n], now float64[n]: was it renamed?"]),
    "removed": ('      weight: "float32[n]"  # the one\n', "", [], ["weight, float32[n], is gone: may its values be lost?"]),
    "widened": ('weight: "float32[n]"', 'weight: "float64[n]"', ["- cast: {field: weight, dtype: float64}"], []),
    "split": ('bias: "float32[k]"', 'b_n: "float32[n]"\n      b_m: "float32[m]"', [], ["bias is gone and b_n and b_m are new: is bias joined from b_n and then b_m, along axis 0?"]),
    "merged": ('weight: "float32[n]"  # the one\n      bias: "float32[k]"', 'both: "float32[n + k]"', [], ["weight and bias are gone and both is new: is both joined from weight and then bias, along axis 0?"]),
    "split into three": ('bias: "float32[k]"', 'a: "float32[1]"\n      b_n: "float32[n]"\n      b_m: "float32[m - 1]"', [], ["bias is gone and a and b_n and b_m are new: is bias joined from a and then b_n and then b_m, along axis 0?"]),
    "a member of an enum": ("[fast, slow]", "[quick, slow]", [], ["fast is no longer in Mode: what do old payloads mean by it?"]),
    "a struct": ("Layer", "Block", [], ["Layer is gone and Block is new: was it renamed?"]),
    "moved": ('    fields: {w: "float32[n]"}  # weights\n', '    fields: {w: "float32[n]", mode: {type: Mode, kind: static}}\n', ["- move: {fields: [mode], into: layer, struct: Layer}"], []),
    "nothing that payloads hold": ("      mode: {type: Mode, kind: static}", "      mode: {type: Mode, kind: static, doc: How.}", [], []),
    "another sort": ("      mode: {type: Mode, kind: static}", "      mode: int", [], ["mode was Mode and is int: no step turns one into the other; give the new field another name, or write a `python` step."]),
}  # fmt: skip


def edit(case):
    old, new, steps, questions = EDITS[case]
    assert old in V1
    text = V1.replace(old, new)
    return (
        (text.replace("      mode: {type: Mode, kind: static}\n", "") if case == "moved" else text),
        steps,
        questions,
    )


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_becomes_a_version(case, folder):
    text, steps, questions = edit(case)
    (folder / "v1.yaml").write_text(text)
    made = revise(folder)
    assert ([*made.steps], [*made.questions]) == (steps, questions)
    assert made.write() == folder / "v2.yaml"
    assert (folder / "v1.yaml").read_text() == V1  # the published version is what it was
    found = [d.code for d in lint(folder) if d.severity == "error"]
    assert found == ["NQX318"] * len(questions)
    if case == "another sort":
        return
    for pick in (0, 9):
        (folder / "v2.yaml").write_text(answered(made.text, pick))
        assert not has_errors(lint(folder)), "\n".join(map(str, lint(folder)))
        schema = s.load_schema(folder)
        old = s.example(schema.at(1).Net, dims={"n": 2, "m": 1})
        old.export(folder.parent / "ckpt", overwrite=True)
        assert isinstance(schema.load(folder.parent / "ckpt", as_numpy=True), schema.Net)


def test_the_authors_text_is_kept(folder):
    (folder / "v1.yaml").write_text(
        V1.replace("      bias", "      bias_of").replace("# all of it", "# all of it, still")
    )
    made = revise(folder)
    kept = [line for line in made.text.splitlines() if "#" in line and "nqx" not in line][:5]
    assert kept[0].startswith("# yaml-language-server") and kept[1:] == [
        "# What it is for.",
        '    fields: {w: "float32[n]"}  # weights',
        "    # all of it, still",
        '      weight: "float32[n]"  # the one',
    ]
    assert made.text.splitlines()[4] == "version: 2"
    assert "    reserved: [bias]\n    fields:" in made.text


RESERVED = {
    "in a line": ("    reserved: [a, b]\n", "    reserved: [a, b, weight]\n"),
    "none": ("    reserved: []\n", "    reserved: [weight]\n"),
    "over lines": ("    reserved: [\n      a,\n      b,\n    ]\n", "    reserved: [\n      a,\n      b, weight,\n    ]\n"),
    "one below the other": ("    reserved:\n      - a  # once\n      - b\n", "    reserved:\n      - a  # once\n      - b\n      - weight\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", RESERVED)
def test_removed_names_are_reserved_where_others_are(case, folder):
    before, after = RESERVED[case]
    text = V1.replace("    # all of it\n", before).replace(
        '      weight: "float32[n]"  # the one\n', ""
    )
    (folder / "v1.yaml").write_text(text)
    assert after in revise(folder).text


def test_a_struct_in_braces_and_an_earlier_migration(folder):
    (folder / "v1.yaml").write_text(V1.replace('{w: "float32[n]"}', '{v: "float32[n]"}'))
    made = revise(folder)
    assert '    reserved: [w]\n    fields: {v: "float32[n]"}  # weights\n' in made.text
    made.write()
    (folder / "v2.yaml").write_text(answered(made.text) + "\n# The end.\n")
    braces = (
        (folder / "v2.yaml")
        .read_text()
        .replace('    reserved: [w]\n    fields: {v: "float32[n]"}  # weights', "")
        .replace("  Layer:\n", '  Layer: {reserved: [w], fields: {v: "float32[n]"}}\n')
    )
    (folder / "edited.yaml.txt").write_text("")
    other = folder.parent / "edited.yaml"
    other.write_text(braces.replace('{v: "float32[n]"}', '{u: "float32[n]"}'))
    again = revise(folder, edited=other)
    assert again.version == 3
    assert '  Layer: {reserved: [w, v], fields: {u: "float32[n]"}}\n' in again.text
    assert "# The end." in again.text
    assert (
        again.text.count("migrations:") == 1
        and "- from: 2\n" in again.text
        and "- from: 1\n" not in again.text
    )
    assert again.write() == folder / "v3.yaml"


def test_a_new_file_beside_the_others_is_completed_in_place(folder):
    (folder / "v2.yaml").write_text(
        V1.replace("version: 1", "version: 2").replace("weight:", "weights:")
    )
    for made in (revise(folder), revise(folder, edited=folder / "v2.yaml")):
        assert (made.version, made.file, made.published) == (2, folder / "v2.yaml", None)
    made.write()
    assert [d.code for d in lint(folder)] == ["NQX318"]
    (folder / "v2.yaml").write_text(answered((folder / "v2.yaml").read_text()))
    assert not has_errors(lint(folder))


def test_on_a_full_disk_the_edited_file_is_kept(folder, monkeypatch):
    edited = V1.replace("version: 1", "version: 2").replace("weight:", "weights:")
    (folder / "v2.yaml").write_text(edited)
    revision = revise(folder)

    def full(path, text, **_):
        path.write_bytes(text[:5].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with refused(OSError, "NQX406", "v2.yaml", "No space left"):
        revision.write()
    assert (folder / "v2.yaml").read_text() == edited
    assert len([*folder.iterdir()]) == 2


def test_without_a_repository_the_edited_file_is_named(tmp_path):
    (tmp_path / "v1.yaml").write_text(V1)
    with refused(SchemaError, "NQX400"):
        revise(tmp_path)
    (tmp_path / "v2.yaml").write_text(
        V1.replace("version: 1", "version: 2").replace("weight:", "weights:")
    )
    assert revise(tmp_path, edited=tmp_path / "v2.yaml").version == 2
    other = tmp_path / "was"
    other.mkdir()
    (other / "v1.yaml").write_text(V1)
    (tmp_path / "v2.yaml").unlink()
    (tmp_path / "v1.yaml").write_text(V1.replace("weight:", "weights:"))
    made = revise(tmp_path, against=str(other))
    assert made.published == V1


def test_a_schema_in_json_is_revised_in_yaml(folder):
    data = parse_document(read_text(V1)).to_data()
    data["structs"]["Net"]["fields"]["lr"] = {"type": "float", "default": 0.5}
    edited = folder.parent / "edited.json"
    edited.write_text(json.dumps(data))
    made = revise(folder, edited=edited)
    assert made.text.startswith("# yaml-language-server: $schema=https://")
    made.write()
    assert lint(folder) == []
    (folder / "v3.json").write_text(json.dumps({**data, "version": 3}))
    with refused(SchemaError, "NQX400"):
        revise(folder)


def test_a_python_class(folder, tmp_path):
    schema = s.load_schema(folder)

    class Net(schema.Net):
        lr: float = 0.5

    made = s.revise(folder, edited=s.schema_of(Net, schema="lab.net", version=2))
    assert made.steps[-1] == "- add: {field: lr, default: 0.5}"
    assert made.file == folder / "v2.yaml"


def test_what_cannot_be_revised(folder):
    with refused(SchemaError, "NQX400", "1"):
        revise(folder)
    (folder / "v1.yaml").write_text(V1.replace("lab.net", "lab.other"))
    with refused(SchemaError, "NQX400"):
        revise(folder)
    other = folder.parent / "e.yaml"
    other.write_text(V1.replace("lab.net", "lab.other"))
    (folder / "v1.yaml").write_text(V1)
    with refused(SchemaError, "NQX283", "lab.net", "lab.other"):
        revise(folder, edited=other)
    other.write_text(V1.replace("type: Mode", "type: Mod"))
    with refused(SchemaError, "NQX101", "'Mod'"):
        revise(folder, edited=other)
    (folder / "v2.yaml").write_text(V1.replace("version: 1", "version: 2"))
    with refused(SchemaError, "NQX400"):
        revise(folder, edited=folder / "v1.yaml")


def test_no_file_is_written_over(folder):
    (folder / "v1.yaml").write_text(V1.replace("weight:", "weights:"))
    made = revise(folder)
    out = folder.parent / "out.yaml"
    assert made.write(out) == out
    assert "weights:" in (folder / "v1.yaml").read_text()  # only the file that was asked for
    with refused(SchemaError, "NQX400", out):
        made.write(out)


def test_a_question_is_told_where_it_stands():
    text = (
        V1
        + "migrations:\n  - from: 0\n    steps:\n      # nqx: question: is a now b?\n      # nqx: question\n"
    )
    with pytest.raises(SchemaError) as caught:
        read_text(text, "v2.yaml")
    assert [str(d).split(" ", 1)[0] for d in caught.value.diagnostics] == [
        "v2.yaml:23:7:",
        "v2.yaml:24:7:",
    ]
    assert {d.code for d in caught.value.diagnostics} == {"NQX318"}
    assert "is a now b?" in str(caught.value)
    assert read_text(V1 + 'doc: "# nqx: question: no"\n').data["doc"] == "# nqx: question: no"


def test_parts_that_are_named_alike_are_asked_about_first():
    vmc = load_series("schemas/vmc_state")
    found = suggest(vmc.at(1), vmc.at(2))
    asked = [step for each in found for step in each.answers[0].steps if hasattr(step, "how")]
    assert [(step.fields, step.into) for step in asked] == [
        (["W_re", "W_im"], "kernel"),
        (["dW_re", "dW_im"], "kernel_update"),
    ]


def test_an_answer_that_leaves_a_field_without_a_value_is_not_offered():
    old = document(1, {"b": "prng_key[threefry2x32]"}, {"w": "int"}, ["p"])
    (question,) = suggest(old, document(2, {"a": "prng_key[threefry2x32]"}, {"w": "int"}, ["p"]))
    assert [answer.words for answer in question.answers] == ["yes"]
    assert "If not, write a step that gives a a value" in question.question


# ---------------------------------------------------------------------------------------------------------------------
# The law: whatever was edited, inferred steps with any answers prove; questions without answers say that no step is known.

TYPES = [
    "int", "float", "str", "int | null", "float32[n]", "float64[n]", "float32[m]", "float32[n, m]", "float32[m, n]", "complex64[n]",
    "float32[k]", "float32[n * m]", "uint32[2]", "prng_key[threefry2x32]", "E", "In", 'literal["a", "b"]', 'literal["a", "c"]',
    "list[float32[n]]", "list[float64[n]]", "float32[n] | null", {"type": "int", "default": 3}, {"type": "float32[n]", "default": 0},
]  # fmt: skip
FIELDS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "a_re", "a_im", "z"]), st.sampled_from(TYPES), max_size=5
)
INNER = st.dictionaries(
    st.sampled_from(["a", "w", "v"]), st.sampled_from(TYPES[:6]), min_size=1, max_size=2
)
MEMBERS = st.sampled_from([["p", "q"], ["p", "r"], ["q"], {"members": ["p", "s"], "default": "p"}])


def document(version, fields, inner, members, name="In"):
    typed = {k: name if v == "In" else v for k, v in fields.items()}
    return document_from_data(
        {
            "language": "1",
            "schema": "lab.a",
            "version": version,
            "root": "A",
            "dims": {"k": {"equals": "n + m"}, "n": {}, "m": {}},
            "enums": {"E": members},
            "structs": {"A": {"fields": {"sizes": "int8[n, m]", **typed}}, name: {"fields": inner}},
        },
        "test",
    )


@settings(deadline=None)
@given(
    FIELDS,
    INNER,
    MEMBERS,
    FIELDS,
    INNER,
    MEMBERS,
    st.sampled_from(["In", "Part"]),
    st.integers(0, 2),
)
def test_every_answer_proves(  # noqa: PLR0917 - two versions
    old_fields, old_inner, old_members, fields, inner, members, name, pick
):
    old = document(1, old_fields, old_inner, old_members)
    new = document(2, fields, inner, members, name)
    found = suggest(old, new)
    steps = []
    for each in found:
        steps += each.answers[min(pick, len(each.answers) - 1)].steps if each.answers else ()
    open_ends = [each for each in found if not each.answers]
    migrated = new.model_copy(update={"migrations": [s.steps.migration(1, steps)]})
    problems = [d for d in prove(old, migrated) if d.severity == "error"]
    assume(not open_ends)
    assert problems == []


def first_answers(hint):
    """The steps of a hint, of several ways the first ones."""
    lines = []
    for part in hint.split("; then "):
        way = re.split(r"; (?=[\w ,]+: `- )", part)[0]
        lines += [text for text in re.findall("`([^`]+)`", way) if text.startswith("- ")]
    return "\n".join(lines)


def errors(old, new, text):
    """The errors with some steps as the whole migration; None for none at all."""
    data = new.to_data()
    if text is not None:
        steps = read_text(f"steps:\n{text}\n").data["steps"] if text else []
        data["migrations"] = [{"from": 1, "steps": steps}]
    found = prove(old, document_from_data(data, "test"))
    return [d for d in found if d.severity == "error"]


@settings(max_examples=cases(60), deadline=None)
@given(FIELDS, INNER, MEMBERS, FIELDS, INNER, MEMBERS, st.sampled_from(["In", "Part"]))
def test_every_hint_resolves_something(  # noqa: PLR0917 - two versions
    old_fields, old_inner, old_members, fields, inner, members, name
):
    old = document(1, old_fields, old_inner, old_members)
    new = document(2, fields, inner, members, name)
    for before in (None, ""):
        found = errors(old, new, before)
        for each in found:
            text = first_answers(each.hint or "")
            if text:
                left = errors(old, new, text)
                assert len(left) < len(found), (each.hint, [*map(str, left)])
        together = "\n".join(filter(None, (first_answers(each.hint or "") for each in found)))
        hints = [each.hint or "" for each in found]
        stuck = [h for h in hints if re.search("no step|No value|Keep the members|^$", h)]
        assert stuck or not found or errors(old, new, together) == [], together


def test_lossless_steps_come_first():
    def hints(old, new):
        first, second = (
            {"language": "1", "schema": "lab.a", "root": "A", "version": v} for v in (1, 2)
        )
        structs = [{name: {"fields": f} for name, f in each.items()} for each in (old, new)]
        first["structs"], second["structs"] = structs
        found = prove(document_from_data(first, "t"), document_from_data(second, "t"))
        return first_answers("; then ".join(d.hint for d in found))

    parts = dict.fromkeys("qkv", "float32[n, 2]")
    assert hints({"A": {"w": "float32[n, 6]"}}, {"A": parts}) == (
        "- split: {field: w, axis: 1, into: {q: 2, k: 2, v: 2}, how: concat}"
    )
    assert hints({"A": parts}, {"A": {"w": "float32[n, 6]"}}) == (
        "- merge: {fields: [q, k, v], into: w, how: concat, axis: 1}"
    )
    slices = dict.fromkeys("qkv", "float32[n]")
    assert hints({"A": {"w": "float32[3, n]"}}, {"A": slices}) == (
        "- split: {field: w, axis: 0, into: [q, k, v], how: stack}"
    )
    moved = hints({"A": {"x": "int"}}, {"A": {"b": "B"}, "B": {"x": "int", "z": "str"}})
    assert (
        moved == '- move: {fields: [x], into: b, struct: B}\n- add: {in: B, field: z, default: ""}'
    )


def test_values_of_steps_keep_the_limits_of_their_field():
    first, second = (
        {"language": "1", "schema": "lab.a", "root": "A", "version": v} for v in (1, 2)
    )
    fields = {
        "a": {"type": "int", "ge": 2},
        "b": {"type": "str", "choices": ["x", "y"]},
        "c": {"type": "int", "gt": 0},
    }
    first["structs"], second["structs"] = {"A": {"fields": {}}}, {"A": {"fields": fields}}
    documents = [document_from_data(data, "t") for data in (first, second)]
    asked = [
        [step.default for a in each.answers for step in a.steps] for each in suggest(*documents)
    ]
    assert asked == [[2], ["x"], []]


def test_the_documentation_shows_a_question_as_it_is_asked(folder):
    old, new, _ = yaml_blocks(DIAGNOSTICS["NQX318"])
    header = 'language: "1"\nschema: lab.q\nversion: 1\nroot: Net\n'
    other = folder.parent / "q"
    other.mkdir()
    (other / "v1.yaml").write_text(header + old)
    edited = folder.parent / "edited.yaml"
    edited.write_text(header + old.replace("weight:", "weights:"))
    assert new in revise(other, edited=edited).text


# ---------------------------------------------------------------------------------------------------------------------
# The command.


def invoke(*words):
    return builders.invoke("schema", "revision", *words)


def test_the_command_writes_the_file_and_tells_the_questions(folder):
    (folder / "v1.yaml").write_text(V1.replace("weight:", "weights:"))
    shown = invoke(folder, "--dry-run")
    assert (shown.exit_code, (folder / "v2.yaml").exists()) == (1, False)
    assert shown.stdout.startswith("# yaml-language-server") and "NQX318" in shown.stderr
    done = invoke(folder, "--format", "json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["out"], told["schema_version"]) == (1, str(folder / "v2.yaml"), 2)
    (question,) = told["diagnostics"]
    assert (question["code"], question["file"]) == ("NQX318", str(folder / "v2.yaml"))
    assert told["questions"][0] in question["message"]
    assert (folder / "v2.yaml").read_text() == told["text"]
    (folder / "v2.yaml").write_text(answered(told["text"]))
    assert not has_errors(lint(folder))


def test_the_command_takes_a_file_and_a_class(folder, tmp_path, monkeypatch):
    edited = tmp_path / "edited.yaml"
    edited.write_text(
        V1.replace("kind: static}\n", "kind: static}\n      lr: {type: float, default: 0.5}\n", 1)
    )
    done = invoke(folder, "--edited", edited, "--out", tmp_path / "out.yaml")
    assert (done.exit_code, done.stdout) == (0, f"written to {tmp_path / 'out.yaml'}\n")
    module = (
        "import neuralqx_struct as s\nclass Net(s.load_schema('net').Net):\n    lr: float = 0.5\n"
    )
    (tmp_path / "lab_revised.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    done = invoke("net", "--from", "lab_revised:Net", "--dry-run")
    assert "add: {field: lr, default: 0.5}" in done.stdout
    both = invoke(folder, "--edited", edited, "--from", "lab_revised:Net")
    assert (both.exit_code, "got both" in both.stderr) == (2, True)
