"""What type checkers tell users: both read the files of tests/typing, where every line with an ignore comment must be flagged.

The checkers get copies without those comments, so that nothing is ignored, and what they say is compared line by line.
"""

import json
import re
import subprocess
import sys

import pytest

MARKS = {
    "mypy": re.compile(r"# type: ignore\[([\w, -]+)\]"),
    "basedpyright": re.compile(r"# pyright: ignore\[([\w, ]+)\]"),
}
ANY_MARK = re.compile(r"  # (type|pyright): ignore\[[\w, -]+\]")


def mypy(root, folder, files):
    command = [sys.executable, "-m", "mypy", "--output", "json", "--config-file", str(root / "pyproject.toml"), *files]
    out = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert out.returncode in (0, 1), out.stderr + out.stdout
    found = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    return {(e["file"], e["line"], e["code"], e["message"]) for e in found if e["severity"] == "error"}


def basedpyright(root, folder, files):
    options = {
        "include": ["."],
        "extraPaths": [str(root)],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportUnusedExpression": False,
        "reportUnusedCallResult": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    out = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert out.returncode in (0, 1), out.stderr + out.stdout
    found = json.loads(out.stdout)["generalDiagnostics"]
    return {(e["file"], e["range"]["start"]["line"] + 1, e.get("rule", "syntax"), e["message"]) for e in found}


@pytest.mark.parametrize("checker", [mypy, basedpyright])
def test_editors_flag_what_is_wrong_and_nothing_else(checker, root, tmp_path):
    expected, sources = {}, sorted((root / "tests/typing").glob("*.py"))
    for source in sources:
        text = source.read_text()
        (tmp_path / source.name).write_text(ANY_MARK.sub("", text))
        for number, line in enumerate(text.splitlines(), 1):
            if mark := MARKS[checker.__name__].search(line):
                expected[source.name, number] = set(mark[1].split(", "))
    said = checker(root, tmp_path, [str(tmp_path / source.name) for source in sources])
    found, messages = {}, []
    for file, line, code, message in sorted(said):
        name = file.replace("\\", "/").rsplit("/", 1)[-1]
        found.setdefault((name, line), set()).add(code)
        messages.append(f"{name}:{line}: {message}")
    assert len(expected) > 30
    assert found == expected, "\n".join(messages)


def test_the_package_says_that_it_is_typed(root):
    assert (root / "neuralqx_struct/py.typed").is_file()
