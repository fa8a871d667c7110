"""A plain tree under a schema: all ways in agree whether it conforms, to which version, and what the newest one makes of it."""

import random

import numpy as np

import neuralqx_struct as s
from neuralqx_struct.errors import has_errors
from neuralqx_struct.manifest.text import parse_manifest
from tests.builders import every

NAMES = ("a", "b", "c", "d")
TYPES = (
    "int",
    "float",
    "str",
    '"float32[_]"',
    "list[Part]",
    "Part | null",
    '"dict[str, int32[k]]"',
)


def text_of(version, fields, steps):
    lines = [f'language: "1"\nschema: lab.tree\nversion: {version}\nroot: Tree\nstructs:']
    lines += ["  Part: {fields: {w: 'float32[i, j]', m: int}}", "  Tree:\n    fields:"]
    lines += [f"      {name}: {declared}" for name, declared in fields.items()]
    if steps:
        lines += [f"migrations:\n  - from: {version - 1}\n    steps:"]
        lines += [f"      - {step}" for step in steps]
    return "\n".join(lines) + "\n"


def history(chance):
    """The fields of some versions, and the steps to each from the one before."""
    fields = {name: chance.choice(TYPES) for name in chance.sample(NAMES, 3)}
    found = [(dict(fields), [])]
    for version in range(2, chance.choice([2, 3, 4])):
        steps = []
        name = chance.choice([*fields])
        match chance.choice(["rename", "add", "remove", "none"]):
            case "rename":
                new = f"{name}{version}"
                steps.append(f"rename: {{field: {name}, to: {new}}}")
                fields = {new if each == name else each: type_ for each, type_ in fields.items()}
            case "add":
                fields[f"e{version}"] = "int"
                steps.append(f"add: {{field: e{version}, default: 7}}")
            case "remove":
                del fields[name]
                steps.append(f"remove: {{field: {name}, lossy: true}}")
        found.append((dict(fields), steps))
    return found


def value(declared, chance):
    def part():
        shape = chance.choice([(1, 2), (3, 1)])
        return {"w": np.full(shape, chance.random(), "float32"), "m": chance.randrange(5)}

    match declared:
        case "int":
            return chance.randrange(9)
        case "float":
            return chance.random()
        case "str":
            return chance.choice(["", "x"])
        case '"float32[_]"':
            return np.arange(chance.choice([0, 2]), dtype="float32")
        case "Part | null":
            return chance.choice([None, part()])
        case "list[Part]":
            parts = [part() for _ in range(chance.randrange(3))]
            form = chance.choice([list, tuple, "numbers", "texts"])
            if form in (list, tuple) or not parts:
                return parts if form is not tuple else tuple(parts)
            keys = range(len(parts)) if form == "numbers" else map(str, range(len(parts)))
            return dict(zip(keys, parts, strict=True))
    return {key: np.zeros(2, "int32") for key in chance.sample(["x", "y"], chance.randrange(3))}


def damaged(tree, chance):
    """A tree that has another field, lacks one, or has another value in one; mostly no version takes it."""
    name = chance.choice([*tree])
    match chance.choice(["lacks", "has", "other", "dtype"]):
        case "lacks":
            return {key: held for key, held in tree.items() if key != name}
        case "has":
            return tree | {"zz": 1}
        case "other":
            return tree | {name: {"q": object}} | {name: [None, 1.5]}
    return tree | {name: np.zeros(2, "float64")}


def outcome(call):
    """The result of a call, or the places of its findings."""
    try:
        return call(), None
    except s.StructError as error:
        return None, {(each.code, each.path) for each in error.diagnostics}


@every("seed", range(40))
def test_all_ways_in_agree(seed, tmp_path):
    chance = random.Random(seed)
    versions = history(chance)
    folder = tmp_path / "tree"
    folder.mkdir()
    for number, (fields, steps) in enumerate(versions, 1):
        (folder / f"v{number}.yaml").write_text(text_of(number, fields, steps))
    schema = s.load_schema(folder)
    made_for = chance.randrange(len(versions))
    tree = {name: value(declared, chance) for name, declared in versions[made_for][0].items()}
    is_sound = chance.random() < 0.7
    if not is_sound:
        tree = damaged(tree, chance)
    path = s.export(tree, tmp_path / "runs" / "plain")

    report = []
    loaded, refused = outcome(lambda: schema.load(path, report=report))
    valid = not has_errors(s.validate(path, folder))
    _, not_migrated = outcome(lambda: s.migrate(path, tmp_path / "new", schema=folder))
    _, not_typed = outcome(lambda: s.convert(path, tmp_path / "typed", schema=folder))
    [item] = s.migrate_all(tmp_path / "runs", tmp_path / "all", schema=folder).items

    assert is_sound <= (refused is None)
    assert valid == (refused is None)
    assert not_migrated == refused == not_typed
    assert (item.state in ("migrated", "skipped")) == valid
    if not valid:
        assert not (tmp_path / "typed").exists() and not (tmp_path / "new").exists()
        assert {(each.code, each.path) for each in s.validate(path, folder)} >= refused
        return
    written = parse_manifest((tmp_path / "typed" / "manifest.json").read_bytes())
    version = written["schema"]["version"]
    assert is_sound <= (version >= made_for + 1)
    assert f"read as lab.tree@{version}:Tree" in report[0].message
    for other in ("typed", "new", "all/plain"):
        assert not has_errors([*s.validate(tmp_path / other, folder), *s.verify(tmp_path / other)])
        assert schema.load(tmp_path / other) == loaded
