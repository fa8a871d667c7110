"""Deprecated names: each says since when and until when, and none outlives the version that removes it."""

import ast
import re

import pytest
from typing_extensions import deprecated

import neuralqx_struct
from neuralqx_struct.errors import warn_deprecated
from tests.builders import ROOT, every

FORM = re.compile(r".+ is deprecated since (\d+\.\d+) and removed in (\d+\.\d+); use .+")


def numbers(version):
    return tuple(map(int, version.split(".")[:2]))


def problems(text, version):
    """The deprecations in a module that have no such form, or that a version should not have any more."""
    found = []
    if "deprecated" not in text:
        return found
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        if called == "deprecated":
            message = ast.literal_eval(node.args[0])
        elif called == "warn_deprecated":
            given = {word.arg: ast.unparse(word.value).strip("'") for word in node.keywords}
            message = f"x is deprecated since {given['since']} and removed in {given['removed_in']}; use x"
        else:
            continue
        form = FORM.fullmatch(message)
        if form is None:
            found.append(f"expected a message of the form {FORM.pattern}, got {message}")
        elif not numbers(form[1]) < numbers(form[2]):
            found.append(f"expected a version after {form[1]} that removes it, got {message}")
        elif numbers(version) >= numbers(form[2]):
            found.append(f"expected it to be removed in {version}, got {message}")
    return found


@every("path", sorted((ROOT / "neuralqx_struct").rglob("*.py")))
def test_no_name_outlives_the_version_that_removes_it(path):
    assert problems(path.read_text(encoding="utf-8"), neuralqx_struct.__version__) == []


MARKED = '@deprecated("f is deprecated since 0.2 and removed in 0.4; use g")\ndef f(): ...'
CALLED = 'warn_deprecated("f(x=)", since="0.2", removed_in="0.4", instead="y=")'


@pytest.mark.parametrize("text", [MARKED, CALLED])
@pytest.mark.parametrize(("version", "count"), [("0.3.9", 0), ("0.4.0", 1), ("1.0", 1)])
def test_names_that_are_due_are_found(text, version, count):
    assert len(problems(text, version)) == count


@pytest.mark.parametrize(
    "text", [MARKED.replace("removed", "gone"), CALLED.replace("0.4", "0.2"), MARKED[:13] + 'soon")\ndef f(): ...']
)  # fmt: skip
def test_messages_without_their_versions_are_found(text):
    assert len(problems(text, "0.1.0")) == 1


def test_both_ways_warn_where_the_name_is_used():
    @deprecated("f is deprecated since 0.2 and removed in 0.4; use g")
    def f():
        return 1

    def g():
        warn_deprecated("f", since="0.2", removed_in="0.4", instead="g")

    for call in (f, g):
        with pytest.warns(DeprecationWarning, match="f .* 0.2 .* 0.4") as seen:
            call()
        assert seen[0].filename == __file__
        assert FORM.fullmatch(str(seen[0].message))
