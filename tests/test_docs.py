"""The documentation says what the code does: codes, commands, names, examples, and pages that build."""

import ast
import doctest
import importlib
import re
import subprocess
import sys

import pytest

import neuralqx_struct
from neuralqx_struct.cli.commands import COMMON
from neuralqx_struct.cli.table import COMMANDS
from neuralqx_struct.errors import Diagnostic, StructError
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import load_series, series_of
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.schema.uses import among, link
from neuralqx_struct.tools.linting import lint, lint_series
from tests.builders import DIAGNOSTICS, ROOT, yaml_blocks

DOCS = ROOT / "docs"
SOURCES = sorted((ROOT / "neuralqx_struct").rglob("*.py"))
HEADER = {"language": '"1"', "schema": "lab.net", "version": "{}", "root": "Net"}

#: Codes whose pages have no example.
WITHOUT_EXAMPLE = {
    "NQX000",
    "NQX005",
    "NQX014",
    "NQX016",
    "NQX109",
    "NQX134",
    "NQX293",
    "NQX294",
    "NQX295",
    "NQX311",
    "NQX312",
    "NQX313",
    "NQX314",
    "NQX315",
    "NQX316",
    "NQX321",
    "NQX400",
    "NQX401",
    "NQX402",
    "NQX403",
    "NQX404",
    "NQX405",
    "NQX406",
    "NQX407",
    "NQX408",
    "NQX409",
    "NQX410",
    "NQX411",
    "NQX412",
    "NQX413",
    "NQX414",
    "NQX415",
    "NQX416",
    "NQX417",
    "NQX420",
    "NQX421",
    "NQX422",
    "NQX423",
    "NQX425",
    "NQX426",
    "NQX427",
    "NQX428",
    "NQX429",
    "NQX430",
    "NQX431",
    "NQX432",
    "NQX433",
    "NQX501",
    "NQX502",
    "NQX503",
    "NQX504",
    "NQX505",
    "NQX506",
    "NQX507",
    "NQX508",
    "NQX509",
    "NQX510",
    "NQX601",
    "NQX610",
    "NQX611",
    "NQX612",
    "NQX613",
    "NQX614",
    "NQX615",
    "NQX616",
    "NQX620",
    "NQX621",
    "NQX701",
    "NQX702",
    "NQX703",
    "NQX704",
    "NQX705",
    "NQX706",
    "NQX707",
    "NQX708",
    "NQX709",
}


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# Diagnostics.


def test_every_code_in_the_source_has_a_page_and_every_page_a_code():
    used = {
        code
        for path in SOURCES
        for code in re.findall(r"NQX\d{3}", path.read_text(encoding="utf-8"))
    }
    assert used == DIAGNOSTICS.keys()


def sections(code: str) -> dict[str, str]:
    """The sections of a page by their headings, the meaning by none."""
    title, _, text = DIAGNOSTICS[code].partition("\n")
    assert re.fullmatch(rf"# {code} [a-z0-9-]+", title)
    first, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    return {"": first} | {name: body for name, _, body in (each.partition("\n") for each in rest)}


@pytest.mark.parametrize("code", DIAGNOSTICS)
def test_every_page_has_a_meaning_and_a_wrong_example_with_its_fix(code):
    found = sections(code)
    assert len(found.pop("").split()) >= 5
    # For information: there is nothing to fix, and the example is only one.
    labels = {(): code in WITHOUT_EXAMPLE, ("Wrong", "Fixed"): True, ("Example",): True}
    assert labels.get(tuple(name for name in found if name != "Given"))


def documents_of(blocks: list[str]) -> dict[int, str]:
    """Whole files by place: a page leaves out the members that every file needs."""
    files = {}
    for version, block in enumerate(blocks, 1):
        comments = re.match(r"(?:#.*\n)*", block)[0]
        given = set(re.findall(r"^(\w+):", block, re.MULTILINE))
        header = [
            f"{name}: {value.format(version)}\n"
            for name, value in HEADER.items()
            if name not in given
        ]
        files[version] = comments + "".join(header) + block.removeprefix(comments)
    return files


def findings_of(blocks: list[str]) -> list[Diagnostic]:
    """What the examples of a page give: one version alone, or two compared."""
    documents, sources, found = [], {}, []
    for text in documents_of(blocks).values():
        try:
            source = read_text(text)
            documents.append(link(parse_document(source), among(documents)))
            sources[documents[-1].version] = source
        except StructError as error:
            found += error.diagnostics
    if len(documents) == 2:
        found += [change.to_diagnostic() for change in diff(*documents)]
    try:
        found += lint_series(series_of(documents, sources)) if documents else []
    except StructError as error:
        found += error.diagnostics
    return found


WITH_YAML = [code for code, page in DIAGNOSTICS.items() if code < "NQX400" and yaml_blocks(page)]


@pytest.mark.parametrize("code", WITH_YAML)
def test_a_wrong_example_gives_its_code_and_the_fixed_one_nothing(code, tmp_path):
    found = sections(code)
    wrong = yaml_blocks(found.get("Wrong") or found["Example"])
    assert code in {each.code for each in findings_of(wrong)}
    fixed = yaml_blocks(found.get("Fixed", ""))
    # The first version of both is the same where only the second one is shown.
    fixed = [wrong[0], *fixed] if len(wrong) > len(fixed) > 0 else fixed
    for version, text in documents_of(fixed).items():
        (tmp_path / f"v{version}.yaml").write_text(text, encoding="utf-8")
    assert [str(d) for d in lint(tmp_path) if d.severity != "info"] == [] or not fixed


# ---------------------------------------------------------------------------------------------------------------------
# Commands and names.


def test_every_command_has_a_section_with_its_options_and_members_and_every_section_a_command():
    page = read("docs/cli.md").partition("\n## Commands\n")[2]
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert sections.keys() == COMMANDS.keys()
    for name, command in COMMANDS.items():
        options = {argument.flag for argument in command.arguments if argument.flag}
        members = {f"`{member}`" for member in command.members}
        missing = {word for word in options | members if word not in sections[name]}
        assert not missing, f"{name}: {missing}"


def test_the_options_of_all_commands_are_on_the_page():
    section = read("docs/cli.md").partition("## Options of all commands")[2].partition("\n## ")[0]
    named = {name for each in COMMON for name in (each.flag, each.short) if name}
    assert {name for name in named if f"`{name}" not in section} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_function(name):
    module, _, function = COMMANDS[name].function.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))


def test_every_public_name_is_on_the_page_of_the_api():
    page = read("docs/api.md")
    named = set(
        re.findall(r"^(?:\.\. auto\w+:: |- `)(?:neuralqx_struct\.)?([\w.]+)", page, re.MULTILINE)
    )
    missing = {name for name in neuralqx_struct.__all__ if name not in named} - {"__version__"}
    assert not missing


def test_readme_has_two_commands_to_set_up_each_one_line():
    setup = read("README.md").partition("## Set-up")[2].partition("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", setup, re.DOTALL)
    assert len(blocks) == 2
    assert all(block.count("\n") == 1 and block.startswith("python3 -m venv ") for block in blocks)
    assert "neuralqx-struct demo" in blocks[0]
    assert ".[test]" in blocks[1] and "pytest" in blocks[1]


@pytest.mark.parametrize(
    "page", ["README.md", *(str(p.relative_to(ROOT)) for p in sorted(DOCS.rglob("*.md")))]
)
def test_links_between_files_lead_somewhere(page):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", read(page), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        assert target.startswith("https://") or (ROOT / page).parent.joinpath(target).exists(), (
            target
        )


def test_files_that_readme_lists_exist():
    table = read("README.md").partition("## Where things are")[2]
    paths = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_changelog_tells_of_the_version():
    assert f"## [{neuralqx_struct.__version__}]" in read("CHANGELOG.md")


# ---------------------------------------------------------------------------------------------------------------------
# Examples in docstrings.

MODULES = [
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for p in SOURCES
]
WITH_EXAMPLES = [
    m for m, p in zip(MODULES, SOURCES, strict=True) if ">>>" in p.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    module = importlib.import_module(name)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    # Examples may use the versions of the schema of the example in this repository.
    series = load_series("schemas/vmc_state")
    names = {
        **vars(module),
        "series": series,
        **{f"v{version}": series.at(version) for version in series.versions},
    }
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name, globs=names):
        runner.run(example, out=told.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(told)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


# ---------------------------------------------------------------------------------------------------------------------
# The pages.


def test_pages_build_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(DOCS),
        str(tmp_path / "html"),
    ]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees")],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Struct" in (tmp_path / "html" / "api.html").read_text(encoding="utf-8")


def test_the_guide_to_evolution_shows_every_step():
    page = read("docs/evolution.md")
    block = next(
        b
        for b in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if b.startswith("# schemas/steps/v2.yaml")
    )
    items = parse_document(read_text(block)).migrations[0].steps
    known = set(type(items[0]).model_fields)
    assert {item.name for item in items} == known - {
        "inline"
    }  # the inverse of move, which the way back uses
    assert set(re.findall(r"^\| `(\w+): \{", page, re.MULTILINE)) == known
