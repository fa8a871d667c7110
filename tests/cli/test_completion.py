"""The completion of shells, made from the table of commands; where a shell is installed, it completes real words."""

import re
import shutil
import subprocess

import pytest

from neuralqx_struct.cli.commands import COMMANDS
from neuralqx_struct.cli.parser import SHELLS
from tests.builders import completed, every, invoke

WORDS = {
    "schema li": ["lint", "list"],
    "validate --format j": ["json"],
    "validate --json-s": ["--json-schema"],
    "validate ck": ["ckpt/"],
    "schema lint ck": ["ckpt/"],
    "diff ckpt ck": ["ckpt/"],
    "validate ckpt --schema ck": ["ckpt/"],
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_every_command_and_option(shell):
    done = invoke("--print-completion", shell)
    assert (done.exit_code, done.stderr) == (0, "")
    for command in COMMANDS.values():
        assert re.search(rf"\b{re.escape(command.word)}\b", done.stdout), command.name
        for argument in command.all_arguments:
            for flag in argument.flags:
                assert re.search(rf"\b{flag.removeprefix('--')}\b", done.stdout), flag


@pytest.mark.parametrize("shell", [each for each in SHELLS if shutil.which(each)])
def test_a_shell_reads_its_script(shell, tmp_path):
    (tmp_path / "script").write_text(invoke("--print-completion", shell).stdout)
    done = subprocess.run([shell, "-n", "script"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@every("words", WORDS)
@every("shell", [each for each in ("bash", "fish") if shutil.which(each)])
def test_a_shell_completes_commands_options_values_and_paths(shell, words, tmp_path):
    (tmp_path / "ckpt").mkdir()
    found = completed(shell, words, tmp_path)
    assert [word.rstrip("/") for word in found] == [word.rstrip("/") for word in WORDS[words]]


def test_fish_offers_the_options_of_one_command_only():
    script = invoke("--print-completion", "fish").stdout
    for command in COMMANDS.values():
        using = f"_shtab_neuralqx_struct_using {command.name}"
        own = [line for line in script.splitlines() if f"'{using}'" in line]
        flags = {word for line in own for word in re.findall(r" -l (\S+)", line)}
        known = {flag for each in command.all_arguments for flag in each.flags}
        assert {f"--{flag}" for flag in flags} == known | {"--help"}, command.name


def test_an_unknown_shell_is_named():
    done = invoke("--print-completion", "ksh")
    assert done.exit_code == 2
    assert "ksh" in done.stderr and all(shell in done.stderr for shell in SHELLS)
