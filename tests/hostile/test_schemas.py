"""Schema files made to hurt: each ends in diagnostics, within seconds and 256 MiB of a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import ROOT

SECONDS = 4
MEMORY = 256 << 20
HEAD = 'language: "1"\nschema: lab.x\nversion: 1\nroot: A\n'
STRUCTS = "structs:\n  A: {fields: {x: int}}\n"

# Imports once, all that a file with an error needs; then forks one child for each path it is told: the child limits all of its
# memory and its processor time.
PARENT = """
import json, os, resource, sys, time
from neuralqx_struct.tools.linting import lint
import neuralqx_struct.evolution.migrations
lint(sys.argv[1])
for path in sys.stdin:
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        started = time.process_time()
        found = lint(path.strip())
        told = {
            "codes": sorted({d.code for d in found if d.severity == "error"}),
            "seconds": time.process_time() - started,
            "longest": max((len(str(d)) for d in found), default=0),
        }
        print(json.dumps(told), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(json.dumps({"codes": [f"status {status}"], "seconds": 0, "longest": 0}), flush=True)
""".replace("MEMORY", str(MEMORY))


def field(text):
    return f"{HEAD}structs:\n  A: {{fields: {{x: {text}}}}}\n"


def constraint(text):
    return f"{HEAD}structs:\n  A: {{fields: {{x: int}}, constraints: [{{expr: {json.dumps(text)}}}]}}\n"


def laughs(levels=30):
    lines = ["a0: &a0 [lol, lol]"] + [
        f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, levels)
    ]
    return HEAD + "\n".join(lines) + "\n" + STRUCTS


def chain(count):
    """Structs that each hold two of the next: 2**count values in an instance, and as many ways for a careless walk."""
    structs = "".join(f"  S{i}: {{fields: {{a: S{i + 1}, b: S{i + 1}}}}}\n" for i in range(count))
    return (
        HEAD.replace("root: A", "root: S0")
        + f"structs:\n{structs}  S{count}: {{fields: {{x: itn}}}}\n"
    )


def fields(declared, count, more=""):
    lines = "".join(f"      f{i}: {declared(i)}\n" for i in range(count))
    return f"{HEAD}structs:\n  A:\n    fields:\n{lines}{more}"


def many(what, text, count):
    return f"{what}:\n" + "".join(f"  {text(i)}\n" for i in range(count))


CASES = {
    "a billion laughs": (laughs(), {"NQX003"}),
    "a quadratic bomb": (
        f"{HEAD}a: &a [{'x, ' * 5000}]\nb: [{'*a, ' * 5000}]\n",
        {"NQX003", "NQX005"},
    ),
    "an alias to itself": (f"{HEAD}a: &a [*a]\n{STRUCTS}", {"NQX003"}),
    "200,000 brackets": (HEAD + "a: " + "[" * 200_000, {"NQX005"}),
    "200,000 braces": (HEAD + "a: " + "{a: " * 200_000, {"NQX005"}),
    "200,000 closed brackets": (HEAD + "a: " + "[" * 200_000 + "]" * 200_000, {"NQX005"}),
    "200,000 dashes": (HEAD + "a:\n" + "- " * 200_000, {"NQX005"}),
    "200,000 question marks": ("? " * 200_000, {"NQX005", "NQX006"}),
    "200,000 indentations": (HEAD + "\n".join(" " * i + "a:" for i in range(2000)), {"NQX005"}),
    "a huge scalar": (field('"' + "x" * 8_000_000 + '"'), {"NQX005"}),
    "a huge plain scalar": (field("x" * 8_000_000), {"NQX005"}),
    "a huge block": (field("int") + "doc: |\n" + "  x\n" * 2_000_000, {"NQX005"}),
    "a huge number": (field("{type: int, default: " + "9" * 1_000_000 + "}"), {"NQX005"}),
    "a huge exponent": (field("{type: float, default: 1e" + "9" * 100_000 + "}"), {"NQX005"}),
    "a huge key": (HEAD + "x" * 2_000_000 + ": 1\n" + STRUCTS, {"NQX001", "NQX005"}),
    "a file beyond the limit": (HEAD + "#" * (17 << 20), {"NQX005"}),
    "too many values": (HEAD + "a: [" + "1, " * 1_100_000 + "]\n", {"NQX005"}),
    "too many problems": (
        HEAD + "".join(f"k{i}: &a x\n" for i in range(20_000)),
        {"NQX003", "NQX005"},
    ),
    "many unknown members": (
        HEAD + "".join(f"k{i}: x\n" for i in range(5_000)) + STRUCTS,
        {"NQX005", "NQX009"},
    ),
    "a duplicate key, many times": (HEAD + "a: 1\n" * 50_000, {"NQX002", "NQX005"}),
    "a tag of Python": (field('!!python/object/apply:os.system ["true"]'), {"NQX004"}),
    "a tag of its own": (field("!x int"), {"NQX004"}),
    "a tag directive": ("%TAG ! tag:x,2000:\n---\n" + field("int"), {"NQX004"}),
    "a set and an ordered map": (field("!!set {a}"), {"NQX004"}),
    "a merge key": (HEAD + "a: {<<: {b: 1}}\n" + STRUCTS, {"NQX006", "NQX009"}),
    "binary rubbish": ("\x00\x01\x02" * 1000, {"NQX001"}),
    "many documents": ("---\n" * 100_000, {"NQX001"}),
    "many directives": ("%YAML 1.1\n" * 100_000, {"NQX001"}),
    "a comment without end": (
        HEAD + "# nqx: ignore[" + "NQX104," * 200_000 + "\n" + field("itn").removeprefix(HEAD),
        {"NQX101"},
    ),
    "a remote reference": (HEAD + '$ref: "https://example.com/x.yaml"\n' + STRUCTS, {"NQX009"}),
    "a remote schema in uses": (HEAD + 'uses: ["https://example.com/x@1"]\n' + STRUCTS, {"NQX010"}),
    "a path in uses": (HEAD + 'uses: ["../../../../etc/passwd@1"]\n' + STRUCTS, {"NQX010"}),
    "dots in uses": (HEAD + 'uses: ["..@1"]\n' + STRUCTS, {"NQX010"}),
    "an absolute path in uses": (HEAD + 'uses: ["/etc/passwd@1"]\n' + STRUCTS, {"NQX010"}),
    "a path as identity": (field("int").replace("lab.x", "../x"), {"NQX118"}),
    "a deep type": (field('"' + "list[" * 190 + "int" + "]" * 190 + '"'), {"NQX101"}),
    "a very deep type": (field('"' + "list[" * 20_000 + "int" + "]" * 20_000 + '"'), {"NQX101"}),
    "an open type": (field('"' + "list[" * 100 + '"'), {"NQX101"}),
    "a long union": (field('"' + " | ".join(f"A{i}" for i in range(150)) + '"'), {"NQX101"}),
    "minus signs in a size": (field('"int8[' + "-" * 900 + '1]"'), {"NQX101", "NQX117"}),
    "a tower in a size": (field('"int8[9**9**9]"'), {"NQX105", "NQX117"}),
    "a tower in a constraint": (constraint("9**9**9 > x"), {"NQX115", "NQX117", "NQX507"}),
    "a deep constraint": (constraint("(" * 50_000 + "x" + ")" * 50_000), {"NQX117"}),
    "an escape in a constraint": (constraint("x.__class__.__mro__"), {"NQX114"}),
    "a pattern that is too large": (field("{type: str, pattern: '(a{1000}){1000}b'}"), {"NQX117"}),
    "a pattern of repeats": (field("{type: str, pattern: '((a{99}){99}){99}b'}"), {"NQX117"}),
    "a pattern of groups": (
        field("{type: str, pattern: '" + "(" * 5000 + ")" * 5000 + "'}"),
        {"NQX114", "NQX115", "NQX117"},
    ),
    "structs that double": (chain(60), {"NQX101"}),
    "structs in a chain": (
        HEAD.replace("root: A", "root: S0")
        + "structs:\n"
        + "".join(f"  S{i}: {{fields: {{x: S{i + 1}}}}}\n" for i in range(1000))
        + "  S1000: {fields: {x: itn}}\n",
        {"NQX101"},
    ),
    "a ring of structs": (
        HEAD.replace("root: A", "root: S0")
        + "structs:\n"
        + "".join(f"  S{i}: {{fields: {{x: S{(i + 1) % 1000}}}}}\n" for i in range(1000)),
        {"NQX005", "NQX106"},
    ),
    "a ring of dims": (
        HEAD
        + "dims:\n"
        + "".join(f"  d{i}: {{equals: d{(i + 1) % 500} + 1}}\n" for i in range(500))
        + "structs:\n  A: {fields: {x: 'itn', y: 'int8[d0]'}}\n",
        {"NQX101", "NQX105"},
    ),
    "a ring of derived fields": (
        HEAD
        + "structs:\n  A:\n    fields:\n"
        + "".join(
            f"      f{i}: {{type: int, kind: static, derived: f{(i + 1) % 500} + 1}}\n"
            for i in range(500)
        ),
        {"NQX112"},
    ),
    "10,000 wrong names": (fields(lambda i: f"nameofnothing{i}", 10_000), {"NQX101", "NQX005"}),
    "10,000 malformed types": (fields(lambda i: f"int8[n{i}", 10_000), {"NQX101", "NQX005"}),
    "a malformed field among 10,000": (
        fields(lambda i: "int", 10_000, "      e: {tpe: int}\n"),
        {"NQX009"},
    ),
    "3,000 near names": (
        fields(
            lambda i: f"Structx{i}",
            3000,
            "".join(f"  Struct{i}: {{fields: {{x: int}}}}\n" for i in range(3000)),
        ),
        {"NQX101", "NQX005"},
    ),
    "3,000 near names with sizes": (
        fields(
            lambda i: f"Structx{i}[3]",
            3000,
            "".join(f"  Struct{i}: {{fields: {{x: int}}}}\n" for i in range(3000)),
        ),
        {"NQX101", "NQX005"},
    ),
    "3,000 near sizes": (
        fields(
            lambda i: f"'int8[dimensionx{i}]'",
            3000,
            "      e: itn\n" + many("dims", "dimension{}: {{}}".format, 3000),
        ),
        {"NQX101"},
    ),
    "10,000 near members": (
        fields(lambda i: "{type: int, defualt: 3}", 10_000),
        {"NQX009", "NQX005"},
    ),
    "4,000 near tags": (
        fields(
            lambda i: f"{{type: int, tags: [trainabl{i}, trainable{i // 2}]}}",
            4000,
            "      e: itn\n",
        ),
        {"NQX101"},
    ),
    "2,000 near fields in constraints": (
        fields(
            lambda i: "int",
            3000,
            "    constraints:\n" + "".join(f"      - f{i}x > 0\n" for i in range(10)),
        ).replace("- ", "- expr: ")
        + "".join(f"      - {{expr: g{i} > 0}}\n" for i in range(2000)),
        {"NQX116", "NQX005"},
    ),
    "2,000 near fields in derived ones": (
        fields(lambda i: f"{{type: int, derived: fieldx{i} + 1}}", 2_000),
        {"NQX116", "NQX005"},
    ),
    "many misspelt paths": (
        f"{HEAD}structs:\n  B:\n    fields:\n"
        + "".join(f"      step{i}: int\n" for i in range(300))
        + "  A:\n    fields: {b: B}\n    constraints:\n"
        + "".join(
            f"      - {{expr: {' + '.join(f'b.stp{i}' for i in range(120))} > {n}}}\n"
            for n in range(50)
        ),
        {"NQX116", "NQX005"},
    ),
    "long paths through structs that hold themselves": (
        f'{HEAD}structs:\n  B: {{fields: {{x: "list[B]", y: "dict[str, B]"}}}}\n'
        '  A:\n    fields: {b: "list[B]"}\n    constraints:\n'
        + "".join(f"      - {{expr: b{'.x.y' * 23}.z > {n}}}\n" for n in range(1500)),
        {"NQX116", "NQX005"},
    ),
    "many equations of fields": (
        f'{HEAD}structs:\n  A: {{fields: {{x: "int8[d0]", y: "list[int]"}}}}\ndims:\n'
        + "".join(f'  d{n}: {{equals: "y[{n}] + y.z + size(x.t) + {n}"}}\n' for n in range(2000)),
        {"NQX103", "NQX114", "NQX005"},
    ),
    "a chain of 2,000 derived fields": (
        fields(lambda i: f"{{derived: f{i + 1} + 1}}", 2_000, "      f2000: itn\n"),
        {"NQX101", "NQX115"},
    ),
    "a chain of 2,000 dims": (
        field("'int8[d0]'").replace("int8", "itn8")
        + "dims:\n  d0: {}\n"
        + "".join(f"  d{i + 1}: {{equals: d{i} * d{i}}}\n" for i in range(2_000)),
        {"NQX101", "NQX102"},
    ),
    "a chain of 2,000 sizes": (
        fields(lambda i: f"'int8[n{i} + n{i + 1}]'", 2000, "      e: itn\n"),
        {"NQX101"},
    ),
    "10,000 different sizes": (fields(lambda i: f"'int8[n{i} + n{i + 1}]'", 10_000), {"NQX005"}),
    "3,000 structs beside 3,000 dims": (
        HEAD
        + many("dims", "d{}: {{}}".format, 3000)
        + many("structs", "S{}: {{fields: {{x: 'D[e]'}}}}".format, 3000)
        + "  D: {params: [n], fields: {x: 'int8[n]'}}\n",
        {"NQX101", "NQX103", "NQX005"},
    ),
    "60,000 structs": (
        HEAD + many("structs", "S{}: {{fields: {{x: int}}}}".format, 60_000),
        {"NQX005"},
    ),
    "1,500 dims in a circle": (
        field("'int8[d0]'")
        + "dims:\n"
        + "".join(f"  d{i}: {{equals: d{(i + 1) % 1500}}}\n" for i in range(1500)),
        {"NQX105"},
    ),
    "a division by zero": (constraint("x / 0 > 1"), {"NQX115"}),
    "a huge default": (field("{type: 'float32[99999999999]', default: zeros}"), {"NQX109"}),
    "a huge JSON number": ("1" * 5_000_000, {"NQX010", "NQX005"}),
}


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """Lint one file in a process of its own, which may not use more than the limits."""
    wrong = tmp_path_factory.mktemp("judge") / "v1.yaml"
    wrong.write_text(f"{HEAD}structs:\n  A: {{fields: {{x: itn, y: 'int8[n + m]'}}}}\n")
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(wrong)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as parent:

        def ask(path: Path) -> dict:
            parent.stdin.write(f"{path}\n")
            parent.stdin.flush()
            return json.loads(parent.stdout.readline())

        yield ask
        parent.stdin.close()


@pytest.mark.parametrize("case", CASES)
def test_hostile_files_are_answered_within_limits(case, tmp_path, judge):
    text, codes = CASES[case]
    path = tmp_path / "v1.yaml"
    path.write_text(text, encoding="utf-8")
    told = judge(path)
    assert told["codes"]
    assert {*told["codes"]} <= codes
    assert told["seconds"] < SECONDS
    assert told["longest"] < 2000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"a": 1' + "0" * 1_000_000 + "}",
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
    ],
    ids=["brackets", "braces", "digits", "nan", "duplicate"],
)
def test_hostile_json_likewise(text, tmp_path, judge):
    path = tmp_path / "v1.json"
    path.write_text(text, encoding="utf-8")
    told = judge(path)
    assert told["codes"]
    assert told["seconds"] < SECONDS
