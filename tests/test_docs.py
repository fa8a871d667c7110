"""The documentation says what the code does: codes, commands, names, examples, and pages that build."""

import doctest
import functools
import importlib
import inspect
import json
import re
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from sphinx.search.en import SearchEnglish

import neuralqx_struct
from neuralqx_struct import Series, export, field, from_dict, load, migrate, migrate_all, warm_start
from neuralqx_struct.cli.arguments import COMMON
from neuralqx_struct.cli.commands import COMMANDS
from neuralqx_struct.dtypes import FAMILIES
from neuralqx_struct.errors import Diagnostic, StructError
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.formats.table import FORMATS, STORES
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.schema import model
from neuralqx_struct.schema.migration import MODES
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import load_series, series_of
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.schema.uses import among, link
from neuralqx_struct.tools.linting import lint, lint_series
from neuralqx_struct.tools.project import _KEYS
from neuralqx_struct.types import RECORDS
from neuralqx_struct.types.scalars import Scalar
from tests.builders import DIAGNOSTICS, ROOT, SEARCHED, build_site, every, invoke, yaml_blocks

DOCS = ROOT / "docs"
SOURCES = sorted((ROOT / "neuralqx_struct").rglob("*.py"))
HEADER = {"language": '"1"', "schema": "lab.net", "version": "{}", "root": "Net"}

#: What the examples in Python follow, as docs/diagnostics.md lists it.
IMPORTS = """
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import neuralqx_struct as s
"""

#: The models of the parts of a schema file.
DECLARATIONS = [
    *(model.Document, model.DimDeclaration, model.EnumDeclaration, model.DtypeDeclaration),
    *(model.StructDeclaration, model.FieldDeclaration, model.Constraint),
]

#: Codes whose pages have no example, and why.
WITHOUT_EXAMPLE = {
    "NQX000": "it is a defect of the program",
    "NQX321": "it needs thousands of fields",
    "NQX505": "it needs gigabytes",
    "NQX507": "the limits of expressions are reached by generated schemas",
    "NQX510": "it needs a second user",
    "NQX615": "it needs an environment without a package",
    "NQX621": "it needs a folder that Orbax wrote",
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


@every("code", DIAGNOSTICS)
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


@every("code", WITH_YAML)
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


FENCED = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)
WITH_CODE = [code for code, page in DIAGNOSTICS.items() if FENCED.search(page)]


def codes_of_running(text: str, namespace: dict[str, Any]) -> set[str]:
    """The codes that examples give: in an error, in a list `found`, in the results of a command."""
    found: list[Diagnostic] = []
    for language, block in FENCED.findall(text):
        if language == "console":
            for line in block.splitlines():
                words = shlex.split(line.removeprefix("$ neuralqx-struct "))
                result = json.loads(invoke(*words, "--format", "json").stdout)
                found += [Diagnostic(d["code"], d["severity"], "") for d in result["diagnostics"]]
            continue
        try:
            exec(block, namespace)
        except StructError as error:
            found += error.diagnostics
    found += namespace.pop("found", [])
    return {each.code for each in found if each.severity != "info"} or {d.code for d in found}


@every("code", WITH_CODE)
def test_running_a_wrong_example_gives_its_code_and_the_fixed_one_nothing(
    code, tmp_path, monkeypatch
):
    page = types.ModuleType(f"page_{code}")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schemas").symlink_to(ROOT / "schemas")
    found = sections(code)
    exec(IMPORTS, vars(page))
    codes_of_running(found.get("Given", ""), vars(page))
    assert code in codes_of_running(found.get("Wrong") or found["Example"], vars(page))
    assert codes_of_running(found.get("Fixed", ""), vars(page)) == set()


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


@every("name", COMMANDS)
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


#: The names of abilities, by the page that describes them in words (in the case of arguments by all guides).
ABILITIES = {
    "schema-language.md": {
        *(each.alias or name for kind in DECLARATIONS for name, each in kind.model_fields.items()),
        *(record.name for record in RECORDS if isinstance(record, Scalar)),
        *("null", "pytree", "prng_key", "literal", "list", "tuple", "dict"),
        *FAMILIES,
        *FUNCTIONS,
        *(name.removesuffix("-transitive") for name in MODES),
    },
    "foreign-files.md": {name for name, row in FORMATS.items() if row.name == name},
    "bundles.md": set(STORES),
    "format.md": set(KINDS),
    "cli.md": {flag for each in COMMON for flag in (each.flag, each.short) if flag} | {*_KEYS},
    "": {
        f"{name}="
        for function in (load, export, field, Series, migrate, migrate_all, warm_start, from_dict)
        for name, found in inspect.signature(function).parameters.items()
        if found.kind is found.KEYWORD_ONLY
    },
}


@every("page", ABILITIES)
def test_every_ability_has_a_place(page):
    """Fewer words may not leave an ability out."""
    text = read(f"docs/{page}") if page else "".join(map(Path.read_text, DOCS.glob("*.md")))
    words = {*re.findall(r"\w+", text), *re.findall(r"[\w-]+=?|--\w[\w-]*", text)}
    words |= {f"{name}=" for name in re.findall(r"`(\w+)`", text)}
    assert sorted(name for name in ABILITIES[page] if name not in words) == []


def test_pages_have_few_words():
    """A table in place of repeated explanations: code blocks, which are run, and tables of measurements do not count."""
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    made = r"^```.*?^```$|^<!-- table: .*?^<!-- end -->$"
    prose = re.sub(made, "", pages, flags=re.MULTILINE | re.DOTALL)
    assert len(prose.split()) < 30_000


def test_readme_has_two_commands_to_set_up_each_one_line():
    setup = read("README.md").partition("## Set-up")[2].partition("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", setup, re.DOTALL)
    assert len(blocks) == 2
    assert all(block.count("\n") == 1 and block.startswith("python3 -m venv ") for block in blocks)
    assert "neuralqx-struct demo" in blocks[0]
    assert ".[test]" in blocks[1] and "pytest" in blocks[1]


@every("page", ["README.md", *(str(p.relative_to(ROOT)) for p in sorted(DOCS.rglob("*.md")))])
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


def test_changelog_has_the_version_below_what_is_not_released_and_links_to_both():
    text = read("CHANGELOG.md")
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert versions[:2] == ["Unreleased", neuralqx_struct.__version__]
    assert re.findall(r"^\[(.+?)\]: https://", text, re.MULTILINE) == versions


# ---------------------------------------------------------------------------------------------------------------------
# Examples in docstrings.

MODULES = [
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for p in SOURCES
]
WITH_EXAMPLES = [
    m for m, p in zip(MODULES, SOURCES, strict=True) if ">>>" in p.read_text(encoding="utf-8")
]


@functools.cache
def versions_of_the_example():
    """What examples may use: the versions of the schema of the example in this repository."""
    series = load_series(ROOT / "schemas/vmc_state")
    return {"series": series, **{f"v{version}": series.at(version) for version in series.versions}}


@every("name", WITH_EXAMPLES)
def test_examples_in_docstrings(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    module = importlib.import_module(name)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    names = {**vars(module), **versions_of_the_example()}
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name, globs=names):
        runner.run(example, out=told.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(told)


# ---------------------------------------------------------------------------------------------------------------------
# The pages.


def test_pages_build_without_a_warning_and_the_search_has_what_users_type(tmp_path):
    site = build_site(tmp_path)
    assert "Struct" in (site / "api.html").read_text(encoding="utf-8")
    families = {page.stem: page.read_text(encoding="utf-8") for page in (site / "codes").iterdir()}
    assert [c for c in DIAGNOSTICS if f'id="{c.lower()}"' not in families[f"{c[:4]}xx"]] == []
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    stemmer = SearchEnglish({})
    words = {word: stemmer.stem(word.lower()) for word in SEARCHED}
    assert [
        w for w, term in words.items() if term not in index["terms"].keys() | index["titleterms"]
    ] == []


def test_settings_of_editors_name_the_published_schemas_and_match_files_and_findings(tmp_path):
    settings, tasks = map(
        json.loads, re.findall(r"```json\n(.*?)```", read("docs/editors.md"), re.DOTALL)
    )
    for schema, patterns in settings["yaml.schemas"].items():
        validator = jsonschema.Draft202012Validator(json.loads(read(schema)))
        files = [file for pattern in patterns for file in ROOT.glob(pattern)]
        assert all(validator.is_valid(yaml.safe_load(file.read_text())) for file in files)
        assert files or "/v*" not in patterns[0]  # no schema of this repository has others
    wrong = tmp_path / "v1.yaml"
    wrong.write_text(documents_of(["structs: {Net: {fields: {x: imt}}}\n"])[1], encoding="utf-8")
    line = invoke("schema", "lint", wrong).stdout.splitlines()[0]
    matcher = tasks["tasks"][0]["problemMatcher"]["pattern"]
    found = re.match(matcher["regexp"], line)
    assert (found[matcher["file"]], found[matcher["code"]]) == (str(wrong), "NQX101")
    assert found[matcher["message"]].startswith("expected ")


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
