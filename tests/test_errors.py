import copy
import pickle
import subprocess

import pytest

from neuralqx_struct import errors
from neuralqx_struct.cli.arguments import in_options
from neuralqx_struct.cli.commands import COMMANDS
from neuralqx_struct.errors import (
    READ_MORE,
    Diagnostic,
    Hint,
    Keyword,
    StructError,
    did_you_mean,
    has_errors,
    printable,
    shell_word,
)
from tests.builders import bounded

FORMS = [
    (Diagnostic("NQX1", "error", "m"), "m [NQX1]"),
    (Diagnostic("NQX1", "error", "m", path="$.a"), "$.a: m [NQX1]"),
    (
        Diagnostic("NQX1", "error", "m\nwhy", path="$.a", file="f", hint="do"),
        "f: $.a: m [NQX1]\n  why\n  do",
    ),
    (Diagnostic("NQX1", "error", "m", file="f", line=2, column=3), "f:2:3: NQX1 m"),
    (
        Diagnostic("NQX1", "warning", "m", file="f", line=2, column=3, hint="do"),
        "f:2:3: NQX1 warning: m\n  do",
    ),
]


@pytest.mark.parametrize(("diagnostic", "text"), FORMS)
def test_text_form(diagnostic, text):
    assert str(diagnostic) == text


def test_json_form_has_the_documented_members():
    assert list(Diagnostic("NQX1", "error", "m").to_json()) == [
        "code", "severity", "message", "path", "file", "line", "column", "hint",
    ]  # fmt: skip


def test_in_file_keeps_a_file_that_is_known():
    assert Diagnostic("N", "error", "m").in_file("a").in_file("b").file == "a"
    error = errors.SchemaError("m").in_file("x")
    assert type(error) is errors.SchemaError and error.diagnostics[0].file == "x"


BUILTINS = {
    "FrozenStructError": AttributeError,
    "ValidationError": TypeError,
    "SerializationError": Exception,
}


@pytest.mark.parametrize(
    "name",
    [
        "FrozenStructError",
        "ValidationError",
        "SerializationError",
        "SchemaError",
        "MigrationError",
        "IntegrityError",
        "UntrustedError",
    ],
)
def test_tree_of_errors(name):
    cls = getattr(errors, name)
    assert issubclass(cls, StructError) and issubclass(
        cls, BUILTINS.get(name, errors.SerializationError)
    )
    error = cls("expected a, got b", hint="do c")
    assert (
        error.code == cls.default_code
        and "expected a, got b" in str(error)
        and "do c" in str(error)
    )


def test_an_error_carries_all_problems_and_pickles():
    error = StructError([Diagnostic("N1", "error", "first"), Diagnostic("N2", "error", "second")])
    again = pickle.loads(pickle.dumps(error))
    assert again.diagnostics == error.diagnostics and str(again) == "first [N1]\nsecond [N2]"
    assert StructError().code == "NQX000"


def test_codes_that_always_call_for_the_same_say_it():
    assert "restore" in str(Diagnostic("NQX408", "error", "cut"))
    assert Diagnostic("NQX408", "error", "cut").to_json()["hint"] == errors.REMEDIES["NQX408"]
    assert str(Diagnostic("NQX408", "error", "cut", hint="do this")).endswith("do this")


def test_has_errors():
    assert not has_errors([Diagnostic("N", "warning", "m")])
    assert has_errors([Diagnostic("N", "warning", "m"), Diagnostic("N", "error", "m")])


@pytest.mark.parametrize(
    ("word", "hint"),
    [("kernal", "did you mean 'kernel'?"), ("BIAS", "did you mean 'bias'?"), ("zzz", None)],
)
def test_did_you_mean(word, hint):
    assert did_you_mean(word, ["kernel", "bias"]) == hint


def test_suggestions_take_bounded_time():
    long = "a" * 100_000
    names = [f"a{'b' * 1000}{n}" for n in range(20_000)]
    with bounded():
        assert did_you_mean(long, [long[1:], *names]) is None
        assert did_you_mean(long, [*names, long]) is not None
        assert did_you_mean("a" * 200, names) is None
        assert did_you_mean("a" * 199 + "b", ["a" * 200] * 20_000) is not None


@pytest.mark.parametrize("path", ["plain/v1.yaml", "a b", "it's", "a\nb'c", "\x1b[2J", "\u202ex"])
def test_paths_in_proposed_commands_are_one_word_of_a_shell(path):
    word = shell_word(path)
    assert printable(word) == word
    shown = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert shown.stdout.decode() == path


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_hint_keeps_its_arguments(way):
    hint = Hint("look, then pass ", Keyword("trust", ["lab"]), "; ", READ_MORE)
    found = way(Diagnostic("NQX1", "error", "m", hint=hint))
    assert found.hint == "look, then pass trust=['lab']; pass limits= to read more"
    assert (
        found.hint.written(lambda each: each.name)
        == "look, then pass trust; pass limits to read more"
    )
    assert found.to_json()["hint"] == found.hint


@pytest.mark.parametrize(
    ("keyword", "python", "option"),
    [
        (Keyword("limits"), "limits=", "--limits NAME=N"),
        (Keyword("overwrite", True), "overwrite=True", "--overwrite"),
        (Keyword("trust", ["a", "b c"]), "trust=['a', 'b c']", "--trust a --trust 'b c'"),
        (Keyword("values", {"n": 12}), "values={'n': 12}", "--value n=12"),
        (Keyword("values", {"n": ...}), "values={'n': ...}", "--value n=..."),
        (Keyword("store", "npz"), "store='npz'", "--store npz"),
        (Keyword("unknown", "drop"), "unknown='drop'", "unknown='drop'"),
    ],
)
def test_an_argument_is_written_for_python_and_for_the_command_line(keyword, python, option):
    assert str(keyword) == python
    assert in_options(keyword, COMMANDS["convert"].arguments) == option
