"""Programs in forks of one process that has imported the package: to start Python and to import takes longer than most of them.

For what needs a process of its own, but not one that imports by itself.
"""

import atexit
import functools
import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What most commands import.
COMMANDS = (
    "neuralqx_struct.cli.commands",
    "neuralqx_struct.tools.linting",
    "neuralqx_struct.bundle",
    "neuralqx_struct.evolution.refusals",
    "pydantic.type_adapter",
)
#: What programs with JAX import.
PROGRAMS = (*COMMANDS, "jax.numpy", "neuralqx_struct.checkpoint", "neuralqx_struct.classes.schemas")


class Python:
    """Stands for an interpreter that has imported modules.

    JAX may be one of them: no device is looked for before a program does so, and before that JAX has no threads.
    """

    def __init__(self, *modules):
        command = [sys.executable, __file__, *modules]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
        self.parent = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes
        )
        atexit.register(self.close)

    def close(self):
        """Ends the process, which ends with its input."""
        with self.parent:
            self.parent.stdin.close()

    def run(self, *words, cwd=".", env=None, stderr=None):
        """Runs ``-m MODULE`` or ``-c CODE`` with arguments; gives what `subprocess.run` gives.

        Args:
            words: As after ``python``.
            cwd: The folder to run in, from which modules are imported too.
            env: The environment; by default that of this process.
            stderr: ``subprocess.STDOUT`` to have both streams in one.
        """
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out")
            err = Path(folder, "err") if stderr is None else out
            out.touch()
            err.touch()
            job = {"words": words, "cwd": str(Path(cwd).resolve()), "env": dict(env or os.environ)}
            job["files"] = [os.devnull, str(out), str(err)]
            self.parent.stdin.write(json.dumps(job) + "\n")
            self.parent.stdin.flush()
            code = int(self.parent.stdout.readline())
            told = err.read_text(encoding="utf-8") if stderr is None else None
            return subprocess.CompletedProcess(words, code, out.read_text(encoding="utf-8"), told)


@functools.cache
def python(*modules):
    """The process that has imported these modules, by default what most commands import; it starts once."""
    return Python(*(modules or COMMANDS))


def check_jsonschema(*words):
    """What a tool says that knows only a published JSON Schema, `check-jsonschema`."""
    return python("check_jsonschema.cli").run("-m", "check_jsonschema", *map(str, words))


def _serve():
    """Reads jobs, runs each in a fork, and prints its exit code. In a fork, the job.

    What is imported is no garbage: a fork that looked through it, as each does at its end, would copy its memory.
    """
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def _become(job):
    """Runs the program of a job, as the interpreter does."""
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    for number, path in enumerate(job["files"]):
        opened = os.open(path, os.O_RDWR | (os.O_APPEND if number else 0))
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    how, program, *arguments = job["words"]
    sys.path[0] = job["cwd"]
    try:
        if how == "-m":
            sys.argv = [program, *arguments]
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        elif how == "-c":
            sys.argv = ["-c", *arguments]
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), vars(main))
        else:
            raise ValueError(how)
    except Exception:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    for name in sys.argv[1:]:
        __import__(name)
    if asked := _serve():
        _become(asked)
