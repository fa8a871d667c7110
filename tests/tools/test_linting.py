"""Lint: one row per mistake, with the line that must be named."""

import json
from collections import Counter
from pathlib import Path

import pytest

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.lock import format_lock, lock_entry, read_lock
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.text.loader import dump_yaml, read_file, read_text
from neuralqx_struct.tools.linting import lint, lint_document, lint_series
from tests.builders import ROOT, SHIPPED, bounded, every, refused

SCHEMAS = ROOT / "schemas"
HEAD = 'language: "1"\nschema: lab.x\nversion: {version}\nroot: A\n'


def text(body, version=1):
    """A document whose body starts on line 5."""
    return HEAD.format(version=version) + body


def found(body):
    source = read_text(text(body))
    return lint_document(parse_document(source), source)


def fields(*lines):
    """A struct A: its fields start on line 8."""
    return "structs:\n  A:\n    fields:\n" + "".join(f"      {line}\n" for line in lines)


# code, severity, line, part of the message or hint, body
CASES = [
    ("NQX107", "warning", 8, "expected >= 0, got -inf", fields("x: {type: float, ge: 0, default: -.inf}")),
    ("NQX107", "warning", 8, "nan", fields("x: {type: float, finite: true, default: .nan}")),
    ("NQX107", "warning", 8, "3 bytes", fields("x: {type: bytes, min_length: 3, default: {base64: /wA=}}")),
    ("NQX107", "warning", 8, "'2j'", fields("x: {type: complex, choices: [2j], default: 1j}")),
    ("NQX107", "error", 8, "1+2j", fields("x: {type: complex, choices: [2i]}")),
    ("NQX107", "warning", 8, "1 items", fields('x: {type: "list[int]", min_length: 1, default: []}')),
    ("NQX107", "warning", 8, "1 entries", fields('x: {type: "dict[str, int]", max_length: 1, default: {a: 1, b: 2}}')),
    ("NQX107", "warning", 8, "'a'", fields("x: {type: int, examples: [1, a]}")),
    ("NQX107", "warning", 8, "| null", fields("x: {type: int, examples: [null]}")),
    ("NQX107", "warning", 8, "expected >= 0, got -1", fields("x: {type: int, ge: 0, examples: [1, -1]}")),
    ("NQX107", "warning", 8, "'[a-z]'", fields('x: {type: str, pattern: "[a-z]", examples: [A]}')),
    ("NQX107", "warning", 8, "1, 2", fields("x: {type: int, choices: [1, 2], examples: [3]}")),
    ("NQX107", "warning", 8, "1 items", fields('x: {type: "list[int]", max_length: 1, examples: [[1, 2]]}')),
    ("NQX107", "warning", 8, "[[1, 2]]", fields('x: {type: "int8[2, n]", examples: [[[1, 2]]]}')),
    ("NQX107", "warning", 8, "[[1, 2]]", fields('x: {type: "int8[n]", examples: [[[1, 2]]]}')),
    ("NQX107", "warning", 8, "[1, [2]]", fields('x: {type: "int8[...]", examples: [[1, [2]]]}')),
    ("NQX107", "warning", 8, "300", fields('x: {type: "int8[]", examples: [300]}')),
    ("NQX108", "error", 8, "float32[n]", fields('x: {type: "float32[n]", default: .inf}')),
    ("NQX101", "error", 4, "structs: B", "structs: {B: {fields: {}}}\n"),
    ("NQX101", "error", 8, "'str'", fields("x: strr")),
    ("NQX101", "error", 8, "'Layer'", fields("x: list[Layr]") + "  Layer: {fields: {}}\n"),
    ("NQX101", "error", 9, "E[n]", "enums: {E: [a]}\n" + fields("x: E[n]")),
    ("NQX102", "error", 8, "'float32'", fields("x: {type: array, dtype: flaot32, shape: [n]}")),
    ("NQX102", "error", 8, "'complex64'", fields('x: "complx64[n]"')),
    ("NQX103", "error", 5, "a value of any type in `o`", "dims: {n: {equals: o + 1}}\n" + fields("o: {kind: opaque, default: null}", 'x: "int8[n]"')),
    ("NQX103", "error", 6, "'n_sites'", "dims:\n  m: {equals: 2 * n_site}\n  n_sites: {}\n" + fields('x: "int8[m, n_sites]"')),
    ("NQX103", "error", 8, "Dense[d, ff]", fields("x: Dense") + '  Dense: {params: [d, ff], fields: {w: "int8[d, ff]"}}\n'),
    ("NQX103", "warning", 9, "'n_site'", "dims: {n_sites: {}}\n" + fields("x: Dense[n_site]", 'y: "int8[n_sites]"') + '  Dense: {params: [d], fields: {w: "int8[d]"}}\n'),
    ("NQX103", "warning", 9, "'n_sites'", "dims: {n_sites: {}}\n" + fields('x: "int8[n_site]"', 'y: "int8[n_sites]"')),
    ("NQX104", "warning", 6, "got 'n'", "dims:\n  n: {}\n" + fields("x: int")),
    ("NQX104", "warning", 9, "got 'd'", fields("x: int") + "  B: {params: [d], fields: {y: int}}\n"),
    ("NQX105", "error", 6, "min 4, max 2", "dims:\n  n: {min: 4, max: 2}\n" + fields('x: "int8[n]"')),
    ("NQX105", "error", 6, "a -> b -> a", "dims:\n  a: {equals: b}\n  b: {equals: a}\n" + fields('x: "int8[a, b]"')),
    ("NQX105", "error", 6, "itself", "dims:\n  n: {equals: n + 1}\n" + fields('x: "int8[n]"')),
    ("NQX105", "warning", 8, "p * q", fields('x: "int8[p * q]"')),
    ("NQX105", "error", 8, "-3", fields('x: "int8[n, -3]"')),
    ("NQX105", "error", 8, "-3", fields("x: {type: array, dtype: int8, shape: [n, -3]}")),
    ("NQX105", "error", 8, "2 - 3", fields('x: "prng_key[rbg, 2 - 3]"')),
    ("NQX106", "error", 8, '"A | null"', fields("x: A")),
    ("NQX106", "error", 9, "B | null", fields("x: int", "y: B") + "  B: {fields: {z: A}}\n"),
    ("NQX107", "error", 8, "got 0.5", fields("x: {type: int, default: 0.5}")),
    ("NQX107", "error", 8, "int | null", fields("x: {type: int, default: null}")),
    ("NQX107", "error", 8, "true", fields("x: {type: int, default: true}")),
    ("NQX107", "error", 8, "got 300", fields('x: {type: "int8[]", default: 300}')),
    ("NQX107", "error", 8, "got -1", fields('x: {type: "uint8[]", default: -1}')),
    ("NQX107", "error", 8, '["a"]', fields("x: {type: 'list[int]', default: [a]}")),
    ("NQX107", "error", 8, "got [1, 2]", fields("x: {type: 'tuple[int]', default: [1, 2]}")),
    ("NQX107", "warning", 8, "expected >= 1, got 0", fields("x: {type: int, default: 0, ge: 1}")),
    ("NQX107", "error", 8, "'fast'", fields("x: {type: 'literal[\"fast\", 3] | null', kind: static, default: fasst}")),
    ("NQX107", "error", 10, "'zzz'", "enums: {E: [a, b]}\n" + fields("y: int", "x: {type: E, kind: static, default: zzz}")),
    ("NQX107", "warning", 8, "1 characters", fields("x: {type: str, default: ab, max_length: 1}")),
    ("NQX107", "warning", 8, "'a', 'b'", fields("x: {type: str | null, default: c, choices: [a, b]}")),
    ("NQX107", "error", 8, "'b'", fields("x: {type: int, choices: [1, b]}")),
    ("NQX107", "error", 5, "'up'", "enums: {E: {members: [up, down], default: upp}}\n" + fields("x: E")),
    ("NQX108", "error", 8, "float32[n]", fields('x: {type: "float32[n]", default: 0}')),
    ("NQX108", "error", 8, "shape [2]", fields('x: {type: "float32[3]", default: [0, 1]}')),
    ("NQX108", "error", 8, "float32[2, 2]", fields('x: {type: "float32[2, 2]", default: [[0, 1], [1]]}')),
    ("NQX109", "warning", 8, "1000", fields(f'x: {{type: "int8[1001]", default: {[0] * 1001}}}')),
    ("NQX110", "error", 8, "float32[n]", fields('x: {type: "float32[n]", kind: static}')),
    ("NQX110", "error", 8, "list[int]", fields('x: {type: "list[int]", kind: static}')),
    ("NQX110", "error", 8, "int8[]", fields("x: {type: B, kind: static}") + '  B: {fields: {y: "int8[]"}}\n'),
    ("NQX111", "error", 8, "remove `kind: node`", fields("x: {type: int, kind: node, derived: 1 + 1}")),
    ("NQX112", "error", 8, "a -> b -> a", fields("a: {type: int, derived: b + 1}", "b: {type: int, derived: a + 1}")),
    ("NQX113", "error", 8, "`serialize:`", fields("x: {type: int, derived: 1 + 1, serialize: true}")),
    ("NQX113", "error", 8, "`default:`", fields("x: {type: int, derived: 1 + 1, default: 3}")),
    ("NQX115", "error", 8, "str", fields("x: {type: str, ge: 0}")),
    ("NQX115", "error", 8, "int", fields("x: {type: int, pattern: a}")),
    ("NQX115", "error", 8, "positive", fields("x: {type: int, multiple_of: 0}")),
    ("NQX115", "error", 8, "3 to 2", fields("x: {type: int, ge: 3, le: 2}")),
    ("NQX114", "error", 8, "'[a'", fields('x: {type: str, pattern: "[a"}')),
    ("NQX117", "error", 8, "'(a{1000}){1000}b'", fields('x: {type: str, pattern: "(a{1000}){1000}b"}')),
    ("NQX116", "error", 8, "'y'", fields("x: {type: int, derived: yy + 1}", "y: int")),
    ("NQX116", "error", 9, "'n'", "dims: {n: {}}\n" + fields("x: {type: int, derived: n + 1}") + "  B: {fields: {a: A, x: 'int8[n]'}}\n"),
    ("NQX116", "error", 10, "'alpha'", fields("alpha: int") + "    constraints:\n      - {expr: alhpa > 0}\n"),
    ("NQX115", "error", 11, "'slow'", "enums: {E: [slow, fast]}\n" + fields("x: E") + "    constraints:\n      - {expr: x != 'slo'}\n"),
    ("NQX115", "error", 8, "3 to 2", fields('x: {type: "list[int]", min_length: 3, max_length: 2}')),
    ("NQX117", "error", 10, "9 ** 9 ** 9", fields("x: int") + "    constraints:\n      - {expr: x < 9**9**9}\n"),
    ("NQX115", "error", 10, "`k / 0`", fields("k: int") + "    constraints:\n      - expr: k / 0 > 1\n"),
    ("NQX115", "error", 10, "`k % (2 - 2)`", fields("k: int") + "    constraints:\n      - expr: 1 < k % (2 - 2)\n"),
    ("NQX115", "error", 8, "`n // 0`", fields('k: "int8[n, n // 0]"')),
    ("NQX109", "error", 8, "4 GiB", fields("k: {type: 'float32[99999999999]', default: zeros}")),
    ("NQX109", "error", 8, "4 GiB", fields("k: {type: 'int8[2 ** 20, 2 ** 20] | null', default: 1}")),
    ("NQX105", "error", 8, "4 // 0", fields('x: "int8[4 // 0]"')),
    ("NQX101", "error", 8, "'lab.y'", fields("x: lab.y.B")),
    ("NQX118", "error", 8, "'class'", fields("class: int")),
    ("NQX118", "error", 8, "'replace'", fields("replace: int")),
    ("NQX118", "error", 8, "Struct's own", fields("__slots__: int")),
    ("NQX118", "error", 9, "a built-in type", fields("x: int") + "  int: {fields: {}}\n"),
    ("NQX118", "error", 5, "'A'", "enums: {A: [a]}\n" + fields("x: int")),
    ("NQX118", "error", 6, "'if'", "dims:\n  if: {}\n" + fields("x: int")),
    ("NQX118", "error", 9, "'in'", fields("x: int") + "  B: {params: [in], fields: {}}\n"),
    ("NQX119", "warning", 9, "'w' and 'W'", fields("w: int", "W: int")),
    ("NQX002", "error", 5, "'a' again", "enums: {E: [a, b, a]}\n" + fields("x: E")),
    ("NQX123", "error", 9, "'old'", fields("x: {type: int, aliases: [old]}", "y: {type: int, aliases: [old]}")),
    ("NQX124", "error", 8, "'y'", fields("x: {type: int, aliases: [y]}", "y: int")),
    ("NQX125", "error", 8, "got 'x'", fields("x: int") + "    reserved: [x]\n"),
    ("NQX126", "warning", 8, "prng_key[threefry2x32]", fields("key: prng_key")),
    ("NQX129", "warning", 8, "serialize: true", fields("x: {type: int, kind: opaque, serialize: true}")),
    ("NQX130", "warning", 8, "step", fields("step: {type: int, kind: static}")),
    ("NQX131", "warning", 8, "float32[n]", fields('x: {type: "float32[n]", ge: 0}')),
    ("NQX132", "error", 8, "list[int] and list[str]", fields('x: "list[int] | list[str]"')),
    ("NQX132", "error", 8, "float32[m]", fields('x: "float32[n] | float32[m]"')),
    ("NQX133", "warning", 6, "E", "compatibility: full\nenums: {E: [a]}\n" + fields("x: E")),
    ("NQX136", "warning", 8, "got str in 'x'", fields("x: str | null")),
    ("NQX136", "warning", 8, "got path in 'x'", fields("x: path")),
    ("NQX136", "warning", 8, "write `kind: opaque` and `serialize: true`", fields("x: 'dict[str, str | int]'")),
    ("NQX136", "warning", 8, "bytes", fields("x: list[bytes]")),
    ("NQX136", "warning", 8, "got literal['a'] in 'x'", fields("x: literal['a'] | int")),
    ("NQX136", "warning", 10, "got E in 'x'", "enums: {E: [a]}\n" + fields("y: {type: E, kind: static}", "x: E")),
    ("NQX140", "info", 8, "got list[float]", fields("history: list[float]")),
    ("NQX140", "info", 8, "got list[int]", fields('counts: {type: "list[int] | null", default: []}')),
    ("NQX301", "error", 10, "version 4", fields("x: int") + "migrations:\n  - {from: 2, steps: []}\n"),
    ("NQX302", "error", 10, "from 7", fields("x: int") + "migrations:\n  - {from: 7, steps: []}\n"),
    ("NQX303", "error", 11, "join", fields("x: int") + "migrations:\n  - {from: 4, steps: []}\n  - {from: 4, steps: []}\n"),
    ("NQX007", "warning", 8, "YAML 1.1", fields("x: {type: str, default: no}")),
]  # fmt: skip


@every(("code", "severity", "line", "part", "body"), CASES)
def test_each_mistake_is_found_at_its_place(code, severity, line, part, body):
    source = read_text(text(body, version=5 if "migrations" in body else 1))
    findings = lint_document(parse_document(source), source)
    mine = [d for d in findings if (d.code, d.severity, d.line) == (code, severity, line)]
    assert mine, "\n".join(map(str, findings))
    assert any(part in f"{d.message}\n{d.hint}" for d in mine), "\n".join(map(str, mine))
    others = [d for d in findings if d.severity == "error" and d.code != code]
    assert not others, "\n".join(map(str, others))


SOUND = [
    fields("x: 'A | null'"),
    fields("x: list[A]"),
    fields("x: 'tuple[A, ...]'"),
    fields('x: "int8[2 * n + 1]"'),
    fields('x: "int8[n]"', 'y: "int8[n * m]"'),
    fields("logger: {kind: opaque, default: null}"),
    fields("o: {kind: opaque, default: null}", "n: {type: int, kind: static, derived: o + 1}"),
    fields("x: {type: float, default: 0, ge: 0, le: 0}"),
    fields('x: {type: "float32[2, 2]", default: [[0, 1], [1, 0]]}'),
    fields('x: {type: "complex64[...]", default: 0}'),
    fields("x: {type: 'tuple[int, str]', kind: static, default: [1, a]}"),
    fields("x: {type: 'dict[str, int]', default: {a: 1}}"),
    fields("x: {type: 'literal[\"a\", 1]', kind: static, default: 1}"),
    fields("x: {type: path, kind: static, default: out}"),
    fields("x: {type: pytree, default: [1, a]}"),
    fields('x: "int8[_]"', 'y: "int8[...]"'),
    fields(
        "x: {type: 'dict[str, str]', kind: opaque, serialize: true}",
        'y: "tuple[str, float32[]]"',
        "z: 'A | str'",
        "l: {kind: opaque, type: str, default: x}",
    ),
    "enums: {E: [a, b]}\n" + fields("x: {type: E, kind: static, default: a}"),
    "dims: {n: {equals: 2 * k}}\n" + fields("k: {type: int, kind: static}", 'x: "int8[n]"'),
    fields("x: 'Dense[d, 4 * d]'", 'y: "int8[d]"')
    + '  Dense: {params: [a, b], fields: {w: "int8[a, b]"}}\n',
    fields("a: int", "b: {type: int, derived: a + 1}", "c: {type: int, derived: b + a}"),
]


@every("body", SOUND)
def test_sound_documents_have_no_findings(body):
    assert found(body) == []


def test_all_findings_of_a_document_come_at_once_and_in_order():
    findings = found(fields("x: strr", 'y: "flaot32[n]"', "class: int"))
    assert [(d.code, d.line) for d in findings] == [("NQX101", 8), ("NQX102", 9), ("NQX118", 10)]


def test_a_comment_silences_a_warning_of_its_line_and_code_only():
    assert found("dims:\n  n: {}  # nqx: ignore[NQX104]\n" + fields("x: int")) == []
    assert [
        d.code for d in found("dims:\n  n: {}  # nqx: ignore[NQX105]\n" + fields("x: int"))
    ] == ["NQX104"]


def test_a_comment_does_not_silence_an_error():
    (finding,) = found(fields("x: strr  # nqx: ignore[NQX101]"))
    assert finding.severity == "error"
    assert "errors cannot be ignored" in finding.hint


def test_documents_without_a_file_are_named_by_identity():
    document = parse_document(read_text(text(fields("x: strr"))))
    (finding,) = lint_document(document)
    assert (finding.file, finding.line, finding.path) == (
        "lab.x@1",
        None,
        "$.structs.A.fields.x.type",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Series.

V1 = text(fields("x: int", "y: int"))


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(content)
    return folder


SERIES = [
    ("NQX301", "error", 3, "version 2", {"v3": text(fields("x: int", "y: int"), 3)}),
    ("NQX301", "error", 8, "z", {"v2": text(fields("x: int", "z: str"), 2)}),
    ("NQX304", "error", 11, "no_such", {"v2": text(fields("x: int", "y: int") + "migrations:\n  - {from: 1, steps: [{rename: {field: no_such, to: z}}]}\n", 2)}),
    ("NQX305", "error", 8, "x", {"v2": text(fields("x: str", "y: int") + "migrations:\n  - {from: 1, steps: []}\n", 2)}),
    ("NQX201", "warning", 6, "add y to `reserved:`", {"v2": text(fields("x: int") + "migrations:\n  - {from: 1, steps: [{remove: {field: y, undo_default: 0}}]}\n", 2)}),
]  # fmt: skip


@pytest.mark.parametrize("case", SERIES, ids=lambda case: case[0])
def test_versions_are_held_to_the_one_before(tmp_path, case):
    code, severity, line, part, files = case
    findings = lint(write(tmp_path, v1=V1, **files))
    mine = [d for d in findings if (d.code, d.severity) == (code, severity)]
    assert mine, "\n".join(map(str, findings))
    assert {d.file for d in mine} == {str(tmp_path / f"{next(iter(files))}.yaml")}
    assert line in [d.line for d in mine]
    assert any(part in f"{d.message}\n{d.hint}" for d in mine)


def test_reserved_names_do_not_come_back_and_are_not_forgotten(tmp_path):
    reserving = text(fields("x: int") + "    reserved: [old, older]\n")
    v2 = text(fields("x: int", "old: {type: int, default: 0}"), 2)
    findings = lint(write(tmp_path, v1=reserving, v2=v2))
    assert [(d.code, d.line) for d in findings if d.severity == "error"] == [
        ("NQX206", 6),
        ("NQX205", 9),
    ]


def test_renamed_and_moved_fields_need_no_reservation():
    assert [d.code for d in lint(SCHEMAS / "vmc_state") if d.code == "NQX201"] == []


def test_a_malformed_field_brings_no_findings_about_expressions_on_it(tmp_path):
    found = lint(
        write(
            tmp_path,
            v1=text(
                fields('x: {type: "float32[n]", colour: red}')
                + "    constraints: [{expr: all(x > 0)}]\n"
            ),
        )
    )
    assert [d.code for d in found] == ["NQX009"]


def test_a_wrong_default_of_an_array_is_answered_with_the_forms_there_are(tmp_path):
    [found] = lint(
        write(tmp_path, v1=text(fields('x: {type: "float32[3]", default: {filled: 1}}')))
    )
    assert (found.code, found.hint and found.hint[:17]) == ("NQX107", "write zeros, ones")


@pytest.mark.parametrize(
    "known", ["", "".join(f"  Abcdefghik{i}: {{fields: {{}}}}\n" for i in range(3000))]
)
def test_thousands_of_findings_are_cut_short(tmp_path, known):
    wrong = text(fields(*(f"x{i}: Abcdefghij{i}" for i in range(3000)))) + known
    with bounded():
        codes = [d.code for d in lint(write(tmp_path, v1=wrong)) if d.severity == "error"]
        assert (len(codes), codes.count("NQX005")) == (1001, 1)


def test_thousands_of_different_types_are_too_many(tmp_path):
    many = text(fields(*(f'x{i}: "float32[n + {i}]"' for i in range(5000))))
    with bounded():
        assert [d.code for d in lint(write(tmp_path, v1=many))] == ["NQX005"]


def test_thousands_of_warnings_hide_no_error(tmp_path):
    found = lint(
        write(tmp_path, v1=text(fields(*(f"x{i}: {{type: str}}" for i in range(1500)), "y: strr")))
    )
    assert [d.code for d in found if d.severity == "error"] == ["NQX101"]
    assert sum(d.code == "NQX136" for d in found) == 1000
    [more] = [d for d in found if d.code == "NQX005"]
    assert more.severity == "warning" and "1000" in more.message and "1500" in more.message


def test_a_large_malformed_file_is_looked_at_once(tmp_path, monkeypatch):
    wrong = [f"x{i}: int" for i in range(30_000)]
    files = write(tmp_path, v1=text(fields(*wrong, "y: {tpe: int}")), v2=text(fields("x: strr"), 2))
    reads = []
    monkeypatch.setattr(
        "neuralqx_struct.tools.linting.read_file",
        lambda file: reads.append(file.name) or read_file(file),
    )
    assert {(Path(d.file).name, d.code) for d in lint(files)} == {
        ("v1.yaml", "NQX009"),
        ("v2.yaml", "NQX101"),
    }
    assert reads == ["v2.yaml"]


def test_powers_and_quotients_that_can_be_computed_are_fine(tmp_path):
    exprs = [
        "k ** 2 > 1",
        "2 ** k > 1",
        "2 ** k ** 2 > 1",
        "k / 2 > 1",
        "k / (k - 1) > 1",
        "k % 3 == 0",
        "(k ** k) ** 2 > 0",
    ]
    lines = "".join(f"      - expr: {expr}\n" for expr in exprs)
    assert lint(write(tmp_path, v1=text(fields("k: int") + "    constraints:\n" + lines))) == []
    dims = "dims:\n  a: {equals: 2 * b}\n  b: {equals: 2 * c}\n  c: {}\n"
    assert lint(write(tmp_path, v1=text(dims + fields('x: "int8[a, b, c, 2 ** c, a // 2]"')))) == []


def test_nothing_is_to_be_said_of_the_shipped_schemas():
    assert {(d.severity, d.code) for d in lint(SCHEMAS)} == {("info", "NQX320")}


@every("name", SHIPPED)
def test_every_version_of_the_shipped_schemas_is_frozen(name):
    series = load_series(SCHEMAS / name)
    assert read_lock(SCHEMAS / name) == {
        version: lock_entry(series.at(version)) for version in series.versions
    }


def test_unreadable_files_are_findings_and_hide_no_others(tmp_path):
    findings = lint(
        write(
            tmp_path, v1="a: [", v2=text(fields("x: strr"), 2), v3='language: "1"\nlanguage: "1"\n'
        )
    )
    assert {(Path(d.file).name, d.code) for d in findings} == {
        ("v1.yaml", "NQX001"),
        ("v2.yaml", "NQX101"),
        ("v3.yaml", "NQX002"),
    }


def test_a_file_named_after_another_version_is_pointed_out(tmp_path):
    (finding,) = lint(write(tmp_path, v7=V1))
    assert (finding.code, finding.severity, finding.line) == ("NQX303", "warning", 3)


def test_two_identities_in_one_folder(tmp_path):
    findings = lint(
        write(tmp_path, v1=V1, v2=text(fields("x: int", "y: int"), 2).replace("lab.x", "lab.y"))
    )
    assert [d.code for d in findings] == ["NQX283"]


def test_a_folder_of_schema_folders_skips_published_json_schemas(tmp_path):
    write(tmp_path / "a", v1=text(fields("x: strr")))
    write(tmp_path / "b", v1=text(fields("x: strr")))
    (tmp_path / "manifest").mkdir()
    (tmp_path / "manifest" / "1.json").write_text("{}")
    assert [Path(d.file).parent.name for d in lint(tmp_path)] == ["a", "b"]


def test_files_of_other_programs_beside_a_schema_are_no_schemas(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "x", "version": "1.0.0", "scripts": {}}')
    (tmp_path / "openapi.yaml").write_text("paths:\n  get:\n    schema: {}\n")
    assert [d.code for d in lint(tmp_path)] == ["NQX404"]  # as in an empty folder
    write(tmp_path, v1=text(fields("x: int")))
    assert lint(tmp_path) == []
    assert {Path(d.file).name for d in lint(tmp_path / "package.json")} == {"package.json"}


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("two.yaml", "language: '1'\nschema: lab.x\nversion: 2\nstructs: ["),
        ("two.yaml", "shema: lab.x\nstructs: {}\n"),
        ("two.json", '{"language": "1", "schema": "lab.x"'),
        ("two.json", '{\n  "structs": {}\n}'),
        ("v2.yaml", "nothing: here"),
        ("v2.json", ""),
    ],
)
def test_a_broken_schema_is_no_file_of_another_program(tmp_path, name, broken):
    write(tmp_path, v1=text(fields("x: int")))
    (tmp_path / name).write_text(broken)
    assert {Path(d.file).name for d in lint(tmp_path)} == {name}


def test_an_empty_folder_is_a_finding(tmp_path):
    assert [d.code for d in lint(tmp_path)] == ["NQX404"]


def test_a_missing_path_is_raised_not_reported(tmp_path):
    with refused(SchemaError, "NQX404") as caught:
        lint(tmp_path / "nothing")
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("name", ["", "manifest.json", "ckpt.zip"])
def test_a_bundle_is_one_finding_that_says_what_checks_it(tmp_path, name):
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "ckpt.zip").write_bytes(b"PK")
    (finding,) = lint(tmp_path / name)
    assert (finding.message, finding.file) == (
        "expected a schema, got a bundle",
        str(tmp_path / name),
    )
    assert finding.hint == f"`neuralqx-struct validate {tmp_path / name}` checks it"


@pytest.fixture
def locked(tmp_path):
    write(tmp_path, v1=V1)
    series = load_series(tmp_path)
    (tmp_path / "schema.lock").write_text(format_lock("lab.x", {1: lock_entry(series.head)}))
    return tmp_path


def test_a_locked_version_stays_as_it_is(locked):
    assert lint(locked) == []


@pytest.mark.parametrize("edit", ["y: bool", "y: {type: int, ge: 0}"])
def test_an_edit_of_a_locked_version_is_an_error(locked, edit):
    write(locked, v1=V1.replace("y: int", edit))
    (finding,) = lint(locked)
    assert (finding.code, finding.line, "version 2" in finding.hint) == ("NQX291", 3, True)


def test_a_locked_version_may_not_go_away(locked):
    (locked / "v1.yaml").unlink()
    findings = lint(write(locked, v2=text(fields("x: int"), 2)))
    assert [d.code for d in findings] == ["NQX291"]
    assert findings[0].file == str(locked / "schema.lock")


def test_a_broken_lock_file_is_a_finding(locked):
    for broken in ("{}", '{"versions": {"1": {"payload": "x"}}}', '{"versions": {"1": 3}}', "["):
        (locked / "schema.lock").write_text(broken)
        assert [d.code for d in lint(locked)] == ["NQX291"]


def test_a_series_from_text_has_no_lock_and_no_file():
    assert [d.file for d in lint_series(load_series(text(fields("x: strr"))))] == ["<text>"]


def test_malformed_fields_do_not_hide_what_the_others_mean(tmp_path):
    path = tmp_path / "v1.yaml"
    lines = (
        "a: {type: int, defualt: 1}",
        "b: {type: int, default: x}",
        'c: "float32[)"',
        "d: Layr",
        'e: {type: "list[int]", kind: static}',
    )
    path.write_text(text(fields(*lines) + "  Layer: {fields: {x: int}}\nmisspelt: 1\n"))
    assert [(d.code, d.line) for d in lint(path)] == [
        ("NQX009", 8), ("NQX107", 9), ("NQX101", 10), ("NQX101", 11), ("NQX110", 12), ("NQX009", 14),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("foreign", "hint"),
    [
        ("Optional[float]", "write `T | null`"),
        ("float | None", None),
        ("ndarray", "write the dtype and the shape"),
        ("PRNGKey", "write prng_key[threefry2x32]"),
        ("Any", "write pytree"),
    ],
)
def test_types_of_other_languages_are_answered_with_ours(foreign, hint):
    text = f'language: "1"\nschema: a\nversion: 1\nroot: A\nstructs:\n  A: {{fields: {{x: "{foreign}"}}}}\n'
    found = lint_series(load_series(text))
    assert (
        (found[0].code, found[0].hint.startswith(hint)) == ("NQX101", True) if hint else found == []
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_json_files_give_the_findings_of_yaml_files(version):
    data = read_file(Path(f"schemas/vmc_state/v{version}.yaml")).data
    assert {
        d.code for d in lint_document(parse_document(read_text(json.dumps(data, indent=1))))
    } == set()
    data["structs"]["VMCState"]["fields"]["wrong"] = {"type": "Nope", "tags": ["a"]}
    data["structs"]["VMCState"]["fields"]["other"] = {"type": "flaot32[n]"}
    data["dims"]["unused"] = {"min": 3, "max": 2}
    both = []
    for text, form in ((json.dumps(data, indent=1), "json"), (dump_yaml(data), "yaml")):
        source = read_text(text, format=form)
        both.append(
            sorted(
                (d.code, d.path, d.message, d.hint or "")
                for d in lint_document(parse_document(source), source)
            )
        )
    assert both[0] == both[1] and {"NQX101", "NQX102", "NQX104", "NQX105"} <= {
        code for code, *_ in both[0]
    }


@every(
    ("code", "wrong"),
    [
        ("NQX009", "rooot: A\n"),
        ("NQX118", 'dims: {"1n": {}}\n'),
        ("NQX009", "dims: {n: {mni: 1}}\n"),
        ("NQX010", "migrations:\n  - {from: -1, steps: []}\n"),
        ("NQX009", "migrations:\n  - {from: 1, steps: [{renam: {}}]}\n"),
        ("NQX118", "structs: {A-B: {fields: {x: int}}, MORE\n"),
        ("NQX114", "structs: {C: {fields: {x: int}, constraints: [{expr: x >}]}, MORE\n"),
        (
            "NQX010",
            'dtypes: {real: [float32], other: 3}\nstructs: {C: {fields: {x: "other[2]"}}, MORE\n',
        ),
        ("NQX118", 'dtypes: {"1x": [float32]}\nstructs: {MORE\n'),
        ("NQX010", "structs: {C: {fields: {x: int}, constraints: [x > 1]}, MORE\n"),
        ("NQX010", "structs: {C: {fields: {x: [int]}}, MORE\n"),
        (
            "NQX010",
            "enums: {Mode: 3}\nstructs: {C: {fields: {x: Mode, y: {type: Mode, default: a}}}, MORE\n",
        ),
        ("NQX010", "enums: {Mode: {doc: one}}\nstructs: {C: {fields: {x: Mode}}, MORE\n"),
        ("NQX118", "enums: {A-B: [a]}\n"),
    ],
)
def test_what_is_malformed_elsewhere_hides_no_unknown_type(code, wrong, tmp_path):
    body = "A: {fields: {a: strr, b: Bb}}, B: {fields: {x: int}}}"
    body = wrong.replace("MORE", body) if "MORE" in wrong else f"{wrong}structs: {{{body}\n"
    (tmp_path / "v1.yaml").write_text(text(body))
    codes = Counter(d.code for d in lint(tmp_path / "v1.yaml"))
    assert codes == {code: 1, "NQX101": 2}


@pytest.mark.parametrize(
    "field",
    [
        "layers: list[A2]",
        "betas: list[float]",
        "history: 'list[float, 3]'",
        "history: 'float32[n]'",
        "history: {type: 'list[float]', min_length: 2, max_length: 2}",
        "history: {type: 'list[float]', kind: opaque}",
        "log: list[str]",
    ],
)
def test_lists_that_do_not_grow_are_no_histories(field):
    source = read_text(text(fields(field) + "  A2: {fields: {x: int}}\n"))
    found = lint_document(parse_document(source), source)
    assert "NQX140" not in {d.code for d in found}
