"""A change of a schema by hand, as the programs beside this file make one."""

from pathlib import Path

import neuralqx_struct as s


def next_version(folder, edits, *steps):
    """Writes the next version of a schema: the newest file with edits, and the steps to it."""
    newest = max(Path(folder).glob("v*.yaml"), key=lambda path: int(path.stem[1:]))
    number = int(newest.stem[1:])
    text = newest.read_text().partition("\nmigrations:")[0]
    for old, new in {f"version: {number}": f"version: {number + 1}", **edits}.items():
        assert old in text, (old, text)
        text = text.replace(old, new)
    lines = "".join(f"\n      - {step}" for step in steps) or " []"
    text = f"{text}\nmigrations:\n  - from: {number}\n    steps:{lines}\n"
    newest.with_name(f"v{number + 1}.yaml").write_text(text)


def renamed(folder, old, new):
    """Writes the next version of a schema, in which a field has another name in each struct, as in the moments of optimisers."""
    structs = s.load_schema(folder).document.structs
    steps = (
        f"rename: {{in: {struct}, field: {old}, to: {new}}}"
        for struct, declared in structs.items()
        if old in declared.fields
    )
    next_version(folder, {f" {old}: ": f" {new}: "}, *steps)
