"""The law of advice: every step that a message proposes, in the file that it names, is accepted and resolves something.

The messages are those of lint, `breaking` and loads about the random histories of `tests/histories/`. A step in a hint is
text between backticks that begins with "- ", as it is pasted into `steps:`. Where a hint has several answers, the first one
is the answer to the other messages, and each is tried. Other text with a colon between backticks is a line for the step or
field that the message is about.
"""

import itertools
import json
import random
import re
import shutil

import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import has_errors
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import STEPS as STEPS_BY_NAME
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.schema.lint.document import CHECKS
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series, series_of
from neuralqx_struct.schema.text import path_keys
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.tools.linting import lint, lint_series
from tests.builders import cases, doc
from tests.histories import history
from tests.histories.comparison import OF_TWO_VERSIONS, Comparison, loaded, outcome


def answers(hint):
    """The steps that a hint proposes: for each way through its questions, with the first answer to all but one."""
    questions = [re.split(r"; (?=[\w ,]+: `- )", part) for part in (hint or "").split("; then ")]
    questions = [[re.findall("`(- [^`]+)`", way) for way in ways] for ways in questions]
    firsts = [ways[0] for ways in questions]
    for place, ways in enumerate(questions):
        for way in ways if place == 0 else ways[1:]:
            steps = [*firsts[:place], way, *firsts[place + 1 :]]
            yield [step for each in steps for step in each]


def with_steps(folder, file, texts, out):
    """A copy of a schema folder with steps at the end of the migration in one file."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out / "h")
    place = out / "h" / file
    data = json.loads(place.read_text())
    lines = "\n".join(["steps:", *texts, ""])
    migration = (data.get("migrations") or [{"from": data["version"] - 1, "steps": []}])[0]
    migration["steps"] += read_text(lines).data["steps"]
    place.write_text(json.dumps({**data, "migrations": [migration]}))
    return out / "h"


def findings(folder, payloads):
    """What lint, `breaking` and loads of payloads report, by where it comes from."""
    series = load_series(folder)
    head = series.head.version
    found = {"lint": lint(folder)}
    for direction in ("backward", "forward"):
        for number in range(1, head):
            judged = verdict(series.at(number), series, direction)
            found[direction, number] = judged
    for path in payloads:
        got = outcome(lambda path=path: loaded(s.Schema(series, head), path))
        found[path.name] = [*got.diagnostics] if isinstance(got, s.StructError) else []
    return found


def _place(found):
    """The code, the place and the name of the file of a message; the folder is another for each answer."""
    return found.code, found.path, (found.file or "").rpartition("/")[2]


def check(seed, root, forget):
    """Returns how many proposals of one history were tried, and the bad ones.

    Args:
        seed: The seed of the history.
        root: A folder for files.
        forget: Which steps of the newest version are not declared, from which position on; None for none of them.
    """
    made = history(seed)
    newest = made.versions[-1]
    head = newest.number
    compared = Comparison(made, root)
    if head < 2 or newest.used or (forget is not None and not newest.steps):
        return 0, []
    if forget is not None:
        newest.steps = newest.steps[:forget]
    folder = compared.folder(head)
    payloads = [
        compared.stored(value, version, root / f"p{version.number}")
        for version in made.versions[:-1]
        for value in made.payloads[version.number][:1]
    ]
    for change in s.diff(compared.schema(1).document, folder):  # proposes nothing
        assert "`" not in change.message, (seed, change)
    before = findings(folder, payloads)
    if not {d.code for d in before["lint"] if d.severity == "error"} <= OF_TWO_VERSIONS:
        return 0, []
    tried, bad = {}, []
    for where, found in before.items():
        for each in found:
            for texts in filter(None, answers(each.hint)):
                proposal = f"{seed}: {where}: {each}: {texts}"
                if not each.file:
                    bad.append(f"{proposal}: the message names no file")
                    continue
                file = each.file.rpartition("/")[2]
                key = (file, *texts)
                if key not in tried:
                    tried[key] = findings(with_steps(folder, file, texts, root / "out"), payloads)
                after = tried[key]
                refused = [d for d in after["lint"] if d.severity == "error" and "steps" in d.path]
                if refused:
                    bad.append(f"{proposal}: refused, {refused[0]}")
                elif any(_place(d) == _place(each) for d in after[where]):
                    bad.append(f"{proposal}: the message stays")
    return len(tried), bad


@pytest.mark.parametrize("forget", [None, 0, 1])
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (20, 40))]
)
def test_every_proposed_step_resolves_what_its_message_is_about(tmp_path, first, forget):
    total = 0
    for seed in range(first, first + cases(20)):
        place = tmp_path / str(seed)
        place.mkdir()
        tried, bad = check(seed, place, forget)
        assert bad == []
        total += tried
    assert total or forget  # few histories have two steps


RENAMED = {
    "a field of the root": ({"kernel": "int"}, {"kernels": "int"}, {}, {}),
    "a field inside": ({"x": "B"}, {"x": "B"}, {"B": {"bias": "int"}}, {"B": {"bias_": "int"}}),
    "of many": ({"x": "list[B]"}, {"x": "list[B]"}, {"B": {"bias": "int"}}, {"B": {"bias_": "int"}}),
    "with a size": ({"kernel": "int8[n]", "n": "int8[n]"}, {"kernels": "int8[n]", "n": "int8[n]"}, {}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", RENAMED)
def test_a_rename_that_diff_asks_about_lints(name):
    old, new, inner, others = RENAMED[name]
    first, second = doc(old, structs=inner), doc(new, 2, structs=others)
    asked = [c for c in diff_documents(first, second) if c.code == "NQX204"]
    (change,) = asked
    struct = None if change.path.startswith("$.structs.A") else "B"
    step = steps.rename(field=change.old, to=change.new, within=struct)
    second = doc(new, 2, [step], structs=others)
    assert not has_errors(lint_series(series_of([first, second])))
    assert "NQX204" not in {c.code for c in diff_documents(first, second) if c.severity != "info"}


def amended(data, hint, path):
    """The content of a file with the line that a hint proposes, in the step or field at a path or under `dims`."""
    data = json.loads(json.dumps(data))
    line = next(text for text in re.findall("`([^`]+)`", hint) if ":" in text)
    where = data
    if "under dims" in hint:
        where = data.setdefault("dims", {})
    else:
        for key in path_keys(path):
            inner = where[key]
            if isinstance(inner, str):
                inner = where[key] = {"type": inner}
            where = inner
            if key in STEPS_BY_NAME or "type" in where:
                break
    where.update(read_text(line.replace("...", "0") + "\n").data)
    return data


def weight(found):
    return [d.severity for d in found].count("error"), len(found)


LINES = {
    "a removal without a value": ({"a": "int", "b": "int"}, {"a": "int"}, [{"remove": {"field": "b"}}]),
    "a split of the wrong axis": (
        {"a": "float32[2, n + m]", "n": "int8[n]", "m": "int8[m]"},
        {"b": "float32[2, n]", "c": "float32[2, m]", "n": "int8[n]", "m": "int8[m]"},
        [{"split": {"field": "a", "into": {"b": "n", "c": "m"}}}],
    ),
    "a split of an axis that nothing is known of": (
        {"a": "float32[k]", "n": "int8[n]", "m": "int8[m]"},
        {"b": "float32[n]", "c": "float32[m]", "n": "int8[n]", "m": "int8[m]"},
        [{"split": {"field": "a", "into": {"b": "n", "c": "m"}}}],
    ),
    "a field of another struct": (
        {"a": "int", "b": "B"},
        {"a": "int", "b": "B"},
        [{"add": {"field": "y", "default": 0}}],
    ),
    "a map of literals without a field": (
        {"a": "literal['x', 'y']"},
        {"a": "literal['x', 'z']"},
        [{"map_enum": {"enum": "a", "values": {"y": "z"}}}],
    ),
    "text that JAX cannot hold": ({"a": "str"}, {"a": "str"}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_lines_that_hints_propose_resolve_what_their_message_is_about(name, tmp_path):
    old, new, steps = LINES[name]
    inner = [{"B": {"fields": {"x": "int"}}}, {"B": {"fields": {"x": "int", "y": "int"}}}]
    structs = inner if "b" in old and old["b"] == "B" else [{}, {}]
    base = {"language": "1", "schema": "lab.h", "root": "A"}
    first, second = (
        {**base, "version": version, "structs": {"A": {"fields": fields}, **more}}
        for version, fields, more in ((1, old, structs[0]), (2, new, structs[1]))
    )
    second["structs"]["A"]["reserved"] = sorted(old.keys() - new.keys())
    second["migrations"] = [{"from": 1, "steps": steps}]

    def found(*contents):
        folder = tmp_path / "h"
        folder.mkdir(exist_ok=True)
        for content in contents:
            (folder / f"v{content['version']}.json").write_text(json.dumps(content))
        return [d for d in lint(folder) if d.severity != "info" and d.code != "NQX307"]

    told = next(d for d in found(first, second) if "`" in (d.hint or ""))
    contents = [first, second]
    if "under dims" in told.hint:  # both versions have the size
        contents = [amended(content, told.hint, told.path) for content in contents]
    else:
        number = int(re.search(r"v(\d)", told.file)[1])
        contents[number - 1] = amended(contents[number - 1], told.hint, told.path)
    after = found(*contents)
    assert told.code not in {d.code for d in after if (d.file, d.path) == (told.file, told.path)}
    assert weight(after) < weight(found(first, second))


# ---------------------------------------------------------------------------------------------------------------------
# Answers to the questions of a revision: each of them proves, with the first answer to every other question.

NUMBERS = [
    "int", "float", "str", "int | null", "E", "float32[n]", "float64[n]", "float32[n, m]", "float32[m, n]", "float32[2, n]", "complex64[n]",
    "float32[k]", "float32[n * m]", "float32[d]", "float32[d, d]", "float32[d, 3 * d]", "float32[n] | null", "uint32[2]", "prng_key[threefry2x32]",
    "list[float32[n]]", "bytes", 'literal["a", "b"]', 'literal["a", "c"]', {"type": "int", "default": 3}, {"type": "int", "ge": 1},
]  # fmt: skip
HELD = [
    "{P}", "{P}", "{P} | null", "list[{P}]", "list[{P}, 2]", "{P}[][2]", "dict[str, {P}]", "tuple[{P}, {P}]", "Q", "list[Q]",
]  # fmt: skip


def _fields(rng, names, most, types):
    return {name: rng.choice(types) for name in rng.sample(names, rng.randint(1, most))}


def _structs(rng):
    return {
        "A": _fields(rng, ["a", "b", "c", "a_re", "a_im", "w_0", "w_1", "ema"], 5, NUMBERS + HELD),
        "P": _fields(rng, ["a", "b", "w", "mu", "nu"], 3, NUMBERS),
        "Q": _fields(rng, ["b", "p", "x"], 2, [*NUMBERS, "{P}"]),
    }


def _edited(rng, structs):
    """The structs after a few fields of the root went, came or got another name, and often those of another struct."""
    fields, other = dict(structs["A"]), _structs(rng)
    for _ in range(rng.randint(1, 3)):
        if fields and rng.random() < 0.6:
            gone = fields.pop(rng.choice([*fields]))
            if rng.random() < 0.5:
                fields[rng.choice(["a", "b", "y", "z"])] = gone
        else:
            fields[rng.choice(["a", "b", "y", "q"])] = rng.choice(NUMBERS + HELD)
    return {
        "A": fields,
        **{name: rng.choice([structs, other])[name] for name in ("P", "Q")},
    }


def _version(number, structs, members, name):
    """A version of the structs, with a name for P."""

    def named(declared):
        if isinstance(declared, dict):
            return declared
        return declared.replace("{P}", name)

    data = {
        "language": "1",
        "schema": "lab.a",
        "version": number,
        "root": "A",
        "dims": {"k": {"equals": "n + m"}, "n": {}, "m": {}},
        "enums": {"E": members},
        "structs": {
            {"P": name}.get(struct, struct): {"fields": {n: named(d) for n, d in fields.items()}}
            for struct, fields in structs.items()
        },
    }
    data["structs"]["A"]["fields"]["sizes"] = "int8[n, m]"
    return document_from_data(data, "test")


def pair(seed):
    """Two versions, of which the second one is an edit of the first or another one."""
    rng = random.Random(seed)
    structs = _structs(rng)
    others = _edited(rng, structs) if rng.random() < 0.7 else _structs(rng)
    members = [rng.choice([["p", "q"], ["p", "r"], ["q"]]) for _ in range(2)]
    return (
        _version(1, structs, members[0], "P"),
        _version(2, others, members[1], rng.choice(["P", "P", "P", "Part"])),
    )


def refused_answers(old, new):
    """Returns how many answers were tried, and those with which the new version does not prove."""
    found = suggest(old, new)
    is_open = any(not each.answers for each in found)
    tried, bad = 0, []
    for place, question in enumerate(found):
        for answer in question.answers[1 if place else 0 :]:
            chosen = [
                answer if each is question else each.answers[0] for each in found if each.answers
            ]
            migration = steps.migration(old.version, [step for a in chosen for step in a.steps])
            migrated = new.model_copy(update={"migrations": [migration]})
            errors = [d for d in prove(old, migrated) if d.severity == "error"]
            if is_open:  # a question without an answer leaves its difference
                errors = [d for d in errors if "steps" in d.path]
            tried += 1
            bad += [f"{question.question} {answer.label}: {error}" for error in errors]
    return tried, bad


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_every_answer_between_random_versions_proves(first):
    total = 0
    for seed in range(first, first + 40):
        old, new = pair(seed)
        checks = [each for document in (old, new) for check in CHECKS for each in check(document)]
        if not has_errors(checks):
            tried, bad = refused_answers(old, new)
            assert bad == [], seed
            total += tried
    assert total > 40


def test_every_answer_between_versions_of_histories_proves(tmp_path):
    total = 0
    for seed in range(0, 75, 2):
        made = history(seed)
        folder = Comparison(made, tmp_path / str(seed)).folder(made.versions[-1].number)
        documents = load_series(folder).documents.values()
        for old, new in itertools.permutations(documents, 2):
            following = {"version": old.version + 1, "migrations": []}
            tried, bad = refused_answers(old, new.model_copy(update=following))
            assert bad == [], (seed, old.version, new.version)
            total += tried
    assert total > 40
