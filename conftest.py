"""Examples in README.md and docs/ are run as tests: what a reader would paste must do what the page says.

One test for each page. Its blocks run from top to bottom in one namespace and one temporary folder; neither survives the
page. The folder is empty, except for pages that readers are asked to follow in the repository: theirs has a copy of ``schemas/``.

- ``python`` blocks are executed.
- ``yaml`` blocks that are schema files (they say ``language:``) are parsed and checked. A first line
  ``# schemas/net/v1.yaml`` saves the block under that name, for the blocks below it.
- A page whose first line is a comment ``% slow: ...`` is run with the slow tests.
- ``console`` and ``bash`` blocks: each ``neuralqx-struct`` command and its options must exist. Where a ``console`` block
  shows what a command prints, the command is run and its output compared (``...`` stands for anything).
"""

from __future__ import annotations

import doctest
import gc
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import types
import zlib
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from sybil import Example, Sybil
from sybil.example import SybilFailure
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = Path(__file__).resolve().parent
#: A folder in memory, where systems have one: files there take a tenth of the time of those on a disk.
MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a private folder in it
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
#: What is compiled serves all processes that run tests and that tests start; `.ci/environments` chooses other folders.
COMPILED = ROOT / ".pytest_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # imports take half the time
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(COMPILED / "modules"))
FLAGS = ["--xla_force_host_platform_device_count=4"]
if "HYPOTHESIS_PROFILE" not in os.environ:
    # By day functions are compiled in a hurry, as most run once; by night as users have them.
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    if version("jaxlib").startswith("0.10."):  # XLA ends a process for a flag that it does not know
        FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
COMMAND = "neuralqx-struct"
#: The tests whose results may depend on the version of Python, JAX and other packages.
BY_VERSION = (
    *("struct", "documents", "checkpoint", "codecs", "classes", "formats", "places", "bundle"),
    *("integrations", "cli", "laws", "test_without_jax.py"),
)
#: Files in these folders that depend on none: files after a crash, texts of the command line, and the laws of hints; and the
#: demonstration, which `.ci/environments` runs in each environment.
OF_THE_REST = (
    "bundle/test_crash.py",
    "cli/test_command_hints.py",
    "cli/test_demo.py",
    "cli/test_manual.py",
    "laws/test_advice.py",
)
#: Files with tests that take a tenth of a minute or more each: the site, checkers in processes, killed writers.
LONG = ("tests/test_docs.py", "tests/test_typing.py", "tests/bundle/test_crash.py")
#: The tests that run once: texts, links, types, the site, and a reader in another language.
ONCE = ("reader_js", "typing", "test_docs.py", "test_layout.py", "test_tools.py", "test_typing.py")
_SAVED_AS = re.compile(r"# (\S+\.ya?ml)\n")
_SHOWN = re.compile(r"^\$ (?P<command>.*)\n(?P<output>(?:(?!\$ ).*\n?)*)", re.MULTILINE)


def run_yaml(example: Example) -> str | None:
    """Check a block that is a schema file or a layout; save it if its first line names a file."""
    text = str(example.parsed)
    if not re.search(r"^language:", text, re.MULTILINE):
        return None
    from neuralqx_struct.errors import StructError
    from neuralqx_struct.schema.reading import parse_document
    from neuralqx_struct.schema.text.loader import read_text
    from neuralqx_struct.tools.linting import lint, lint_document

    if saved := _SAVED_AS.match(text):
        Path(saved[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(saved[1]).write_text(text, encoding="utf-8")
    if re.search(r"^layout:", text, re.MULTILINE):
        return "\n".join(map(str, lint(saved[1]))) if saved else None
    try:
        source = read_text(text)
        found = lint_document(parse_document(source), source)
    except StructError as error:
        return str(error)
    return "\n".join(map(str, found)) or None


def run_shell(example: Example) -> str | None:
    """Check the commands of a block; run those whose output is shown."""
    text = str(example.parsed)
    text = text if text.endswith("\n") else f"{text}\n"
    shown = [(found["command"], found["output"]) for found in _SHOWN.finditer(text)]
    for command, output in shown or [(line, "") for line in text.splitlines()]:
        arguments = shlex.split(command, comments=True)
        if arguments[:1] != [COMMAND]:
            continue
        if problem := misused(arguments[1:]):
            return f"{command}: {problem}"
        if output.strip() and (problem := misprinted(arguments[1:], output)):
            return f"{command}\n{problem}"
    return None


def misused(arguments: list[str]) -> str | None:
    """Returns the error in the arguments of a command, according to the table of commands."""
    from neuralqx_struct.cli.commands import COMMANDS, GROUPS

    rest = [word.partition("=")[0] for word in arguments]
    known = {"-h", "--help", "-V", "--version", "--print-completion"}
    name = " ".join(rest[: 2 if rest[:1] and rest[0] in GROUPS else 1])
    if name and not name.startswith("-"):
        if name not in COMMANDS:
            return f"there is no command {name!r}"
        known = {"-h", "--help"}
        known |= {flag for each in COMMANDS[name].all_arguments for flag in (each.flag, each.short)}
    unknown = {word for word in rest if re.match(r"--?[a-z]", word)} - known
    return f"there is no option {', '.join(sorted(unknown))}" if unknown else None


def misprinted(arguments: list[str], expected: str) -> str | None:
    """How the output of a command differs from what the page shows."""
    from tests.preloaded import python

    done = python().run(
        *("-m", "neuralqx_struct", *arguments),
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"},
        stderr=subprocess.STDOUT,
    )
    wanted, flags = expected.strip(), doctest.ELLIPSIS | doctest.REPORT_NDIFF
    wanted += "" if wanted.endswith("...") else "\n"
    got = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines()) + "\n"
    checker = doctest.OutputChecker()
    if checker.check_output(wanted, got, flags):
        return None
    return checker.output_difference(doctest.Example("", wanted), got, flags)


PAGES = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser("yaml", run_yaml),
        CodeBlockParser("console", run_shell),
        CodeBlockParser("bash", run_shell),
    ],
    # Those of docs/diagnostics/ are wrong on purpose: tests/test_docs.py checks which codes they give.
    patterns=["README.md", "docs/*.md"],
    excludes=["docs/diagnostics/*.md"],
    path=str(ROOT),
)


@contextmanager
def page_world(name: str, text: str) -> Iterator[dict[str, Any]]:
    """A namespace that is a module's, as classes need to be found again, and a folder to write in.

    Handlers of SIGTERM that the page sets are gone after it, or nothing could end the tests.
    """
    module = types.ModuleType(name)
    sys.modules[name] = module
    before = signal.getsignal(signal.SIGTERM)
    try:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            if "run from the root of the repository" in text:
                shutil.copytree(ROOT / "schemas", "schemas")
            yield vars(module)
    finally:
        signal.signal(signal.SIGTERM, before)
        del sys.modules[name]


class Page(pytest.Item):
    """All examples of one page, in order: the later ones build on the earlier ones."""

    def runtest(self) -> None:
        """Evaluate them."""
        document = PAGES.parse(self.path)
        with page_world(f"page_{self.path.stem.replace('-', '_')}", document.text) as namespace:
            document.namespace = namespace
            for example in document.examples():
                try:
                    example.evaluate()
                except SybilFailure:
                    raise
                except Exception as error:
                    error.add_note(f"in the example at {self.path}:{example.line}")
                    raise

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ARG002
        """The difference alone where an example did something else than shown."""
        if isinstance(excinfo.value, SybilFailure):
            return str(excinfo.value)
        own = [
            index
            for index, entry in enumerate(excinfo.traceback)
            if str(entry.path) == str(self.path)
        ]
        excinfo.traceback = excinfo.traceback[own[0] if own else 0 :]
        return super().repr_failure(excinfo, style="short")

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the test is, for pytest's listings."""
        return self.path, 0, f"examples of {self.path.name}"


class PageFile(pytest.File):
    """A page as a file of tests: one."""

    def collect(self) -> Iterator[Page]:
        """The one test."""
        item = Page.from_parent(self, name="examples")
        if self.path.read_text(encoding="utf-8").startswith("% slow"):
            item.add_marker("slow")
        yield item


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PageFile | None:
    """Pages are files of tests."""
    return PageFile.from_parent(parent, path=file_path) if PAGES.should_parse(file_path) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of .ci/run for environments beside the first."""
    parser.addoption(
        "--tenth",
        type=int,
        metavar="N",
        help="run the tests that depend on versions, and of the others tenth N (0 to 9)",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Which tests are left out."""
    tenth = config.getoption("--tenth")
    return None if tenth is None else f"tests of versions, and tenth {tenth} of the others"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what ``--tenth`` does not name, and starts with single tests that take very long.

    A process that starts one of these last leaves the others waiting for it.
    """
    items.sort(key=lambda item: item.nodeid.partition("::")[0] not in LONG)
    tenth = config.getoption("--tenth")
    if tenth is None:
        return
    kept, left = [], []
    for item in items:
        (kept if _is_run(item, tenth) else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_collection() -> None:
    """Nothing that is imported and collected becomes garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leaves the thousands of tests out of every later collection of garbage, which would look at all of them.

    The others come less often: a tenth of the time of all tests was theirs. No garbage is looked for before: little is there,
    and to look costs a second.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Likewise leaves out what earlier files of tests made."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def _is_run(item: pytest.Item, tenth: int) -> bool:
    folder, *rest = item.path.relative_to(ROOT).parts
    if folder != "tests" or rest[0] in ONCE:
        return False
    sampled = item.get_closest_marker("sampled")
    if sampled is not None:
        (name,) = sampled.args
        return item.callspec.indices[name] == tenth % sampled.kwargs["parts"]  # type: ignore[attr-defined]
    is_of_versions = rest[0] in BY_VERSION and "/".join(rest) not in OF_THE_REST
    return is_of_versions or zlib.crc32(item.nodeid.encode()) % 10 == tenth
