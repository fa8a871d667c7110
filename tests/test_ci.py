"""What other repositories run: the hooks of pre-commit, the steps of the action, and the files about the project."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import neuralqx_struct
from tests.builders import POINT_V1, POINT_V2, ROOT, invoke

HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
GOLDEN = ROOT / "tests" / "golden" / "format-1" / "vmc_state_1"


@pytest.fixture
def repository(tmp_path):
    """A repository whose last commit has version 1 of a schema, and a checkpoint."""
    folder = tmp_path / "schemas" / "point"
    folder.mkdir(parents=True)
    (folder / "v1.yaml").write_text(POINT_V1)
    (tmp_path / "neuralqx-struct.toml").write_text('schemas = "schemas"\n')
    shutil.copytree(GOLDEN, tmp_path / "ckpt")
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m x"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    (folder / "v2.yaml").write_text(POINT_V2)
    return tmp_path


def run(line, folder, **env):
    """Runs a line of a shell, where `neuralqx-struct` is this package."""
    command = (
        f'neuralqx-struct() {{ {shlex.quote(sys.executable)} -m neuralqx_struct "$@"; }}; {line}'
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def files_of(hook, folder):
    """The files that pre-commit passes to a hook."""
    if not hook.get("pass_filenames", True):
        return ""
    known = subprocess.run(
        ["git", "ls-files"], cwd=folder, capture_output=True, text=True, check=True
    )
    return shlex.join(f for f in known.stdout.split() if re.search(hook["files"], f))


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_pass_what_is_good_and_fail_for_what_is_not(repository, name):
    hook = HOOKS[name]
    line = f"{hook['entry']} {files_of(hook, repository)}"
    code, text = run(line, repository)
    assert code == 0, text
    (repository / "ckpt" / "manifest.json").write_text("{}")
    first = repository / "schemas" / "point" / "v1.yaml"
    if name == "neuralqx-struct-fmt":
        first.write_text(POINT_V1.replace('language: "1"', 'language:   "1"'))
        assert run(line, repository)[0] == 0
        assert "language:   " not in first.read_text()
        return
    first.write_text(POINT_V1.replace("float32", "float64"))
    if name == "neuralqx-struct-lint":
        first.write_text(POINT_V1.replace("float32", "float33"))
    code, text = run(line, repository)
    assert code == 1, text


def committed(folder, message):
    """Commits everything, without the hooks."""
    for words in ("add .", f"-c user.name=a -c user.email=a@b commit -q --no-verify -m {message}"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)


def pre_commit(folder, *words, **env):
    """Runs pre-commit; returns the exit code, and the hooks with `Passed`, `Failed` or `Skipped`."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PRE_COMMIT_COLOR": "never", **env}
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    found = dict(re.findall(r"^(\w.*?)\.+(?:\(.*?\))?(\w+)$", done.stdout, re.MULTILINE))
    return done.returncode, found, done.stdout + done.stderr


def test_pre_commit_runs_the_hooks(repository, tmp_path_factory):
    """With the package of the tests in place of the one that pre-commit would install."""
    programs = tmp_path_factory.mktemp("bin")
    program = programs / "neuralqx-struct"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m neuralqx_struct "$@"\n')
    program.chmod(0o755)
    hooks = [
        {**hook, "language": "system", "additional_dependencies": []} for hook in HOOKS.values()
    ]
    config = {"repos": [{"repo": "local", "hooks": hooks}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    env = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PRE_COMMIT_HOME": str(programs)}
    point = repository / "schemas" / "point" / "v2.yaml"
    assert invoke("schema", "fmt", repository / "schemas").exit_code == 0
    committed(repository, "good")
    names = [hook["name"] for hook in HOOKS.values()]
    code, found, text = pre_commit(repository, "run", "--all-files", **env)
    assert (code, found) == (0, dict.fromkeys(names, "Passed")), text

    point.write_text(point.read_text().replace("count", "count:  ").replace("float32", "float64"))
    (repository / "ckpt" / "manifest.json").write_text("{}")
    code, found, text = pre_commit(repository, "run", "--all-files", **env)
    assert (code, found) == (1, dict.fromkeys(names, "Failed")), text


@pytest.mark.slow
def test_pre_commit_installs_the_hooks_without_jax(repository, tmp_path):
    """Those of the last commit, as pre-commit clones the repository."""
    words = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {"repo": str(ROOT), "rev": head.strip(), "hooks": [{"id": name} for name in HOOKS]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [wanted]}))
    assert invoke("schema", "fmt", repository / "schemas").exit_code == 0
    committed(repository, "good")
    home = tmp_path.parent / f"{tmp_path.name}-home"
    words = ["run", "--all-files"]
    code, found, text = pre_commit(repository, *words, PRE_COMMIT_HOME=str(home), PYTHONPATH="")
    assert (code, found) == (0, {hook["name"]: "Passed" for hook in HOOKS.values()}), text
    installed = {each.name for each in home.glob("*/py_env-*/lib/python*/site-packages/*")}
    assert {"neuralqx_struct", "numpy"} <= installed
    assert not {"jax", "jaxlib"} & installed


def test_the_hooks_name_every_dependency_of_what_the_action_installs():
    """As pip looks for none itself."""
    (option, *given), *others = [hook["additional_dependencies"] for hook in HOOKS.values()]
    assert option == "--no-deps" and all(each == [option, *given] for each in others)
    action = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][0]["run"]
    todo = shlex.split(action.splitlines()[-1])[5:]
    needed = set()
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in needed:
            needed.add(name)
            known = map(Requirement, importlib.metadata.requires(name) or ())
            todo += [
                each.name
                for each in known
                if not each.marker or each.marker.evaluate({"extra": ""})
            ]
    assert sorted(canonicalize_name(each.partition("==")[0]) for each in given) == sorted(needed)
    pins = dict(each.split("==") for each in given if "==" in each)
    assert pins.keys() == {"pydantic", "pydantic-core"}
    if pins["pydantic"] == importlib.metadata.version("pydantic"):  # with others, it needs another
        assert pins["pydantic-core"] == importlib.metadata.version("pydantic-core")


def test_the_steps_of_the_action(repository):
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    _, lint, breaking, checkpoints = [step["run"] for step in action["runs"]["steps"]]
    assert run(lint, repository)[0] == 0
    assert run(breaking, repository, AGAINST="git:HEAD")[0] == 0
    assert run(checkpoints, repository, CHECKPOINTS="ckpt ckpt")[0] == 0
    (repository / "ckpt" / "manifest.json").write_text("{}")
    code, text = run(checkpoints, repository, CHECKPOINTS="ckpt")
    assert (code, text[:7]) == (1, "::error")


def test_the_action_and_its_page_install_everything_but_jax():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.match(r"[\w-]+", each)[0] for each in declared}
    # typing_extensions comes with pydantic, and zlib takes the place of isal.
    wanted = names - {"jax", "jaxlib", "isal", "typing_extensions"}
    for file in ("action.yml", "docs/ci.md"):
        line = re.search(r"pip install (?:--quiet )?(numpy .*)", (ROOT / file).read_text())[1]
        assert {re.match(r"[\w-]+", word)[0] for word in shlex.split(line)} == wanted


def test_the_entry_for_schemastore(repository):
    """By the rules of its catalogue: members, words of names, patterns of files, a published address."""
    (entry,) = json.loads((ROOT / "docs" / "schemastore.json").read_text())
    assert entry.keys() == {"name", "description", "fileMatch", "url"}
    assert "schema" not in f"{entry['name']} {entry['description']}".lower()
    published = entry["url"].removeprefix("https://neuralqx.github.io/neuralqx-struct/")
    schema = json.loads((ROOT / published).read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["$id"] == entry["url"]
    # Files of these names are read, and match the schema.
    assert all(re.fullmatch(r"\*\.struct\.(ya?ml|json)", each) for each in entry["fileMatch"])
    folder = repository / "schemas" / "point"
    for file in [*folder.glob("v*.yaml")]:
        file.rename(file.with_suffix(".struct.yaml"))
        data = yaml.safe_load(file.with_suffix(".struct.yaml").read_text())
        jsonschema.Draft7Validator(schema).validate(data)
    code, text = run("neuralqx-struct schema list schemas; neuralqx-struct schema lint", repository)
    assert (code, "lab.point  versions 1, 2" in text) == (0, True), text
    code, text = run("neuralqx-struct schema show lab.point@1", repository)
    assert (code, "lab.point version 1" in text) == (0, True), text


def test_files_about_the_project_name_its_version_and_license():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == neuralqx_struct.__version__
    assert cited["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    built = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert (ROOT / built["sphinx"]["configuration"]).is_file()


PROGRAMS = [file for file in sorted((ROOT / ".ci").iterdir()) if file.is_file()]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda file: file.name)
def test_the_shell_reads_the_programs_of_ci(program):
    subprocess.run(["bash", "-n", program], check=True)


def test_a_part_of_the_night_that_fails_does_not_end_the_others(tmp_path):
    """With programs in place of those of its environments: tests pass, and Python finds something wrong."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci", ignore=shutil.ignore_patterns("venv"))
    for env, name, status in (
        ("night-3.11", "pytest", 0),
        ("night-3.11", "python", 1),
        ("uv", "uv", 1),
    ):
        program = tmp_path / ".ci" / "venv" / env / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
    code, text = run(".ci/nightly torch fuzzing s3", tmp_path)
    table = text.partition("== result\n")[2]
    found = re.findall(r"^(\w+) +\d+ s  (\w+)$", table, re.MULTILINE)
    assert found == [("torch", "passed"), ("fuzzing", "failed"), ("s3", "passed")], text
    assert code == 1
    assert run(".ci/nightly torch s3", tmp_path)[0] == 0


def test_a_part_that_the_night_has_not_is_an_error(tmp_path):
    code, text = run(f"{ROOT}/.ci/nightly nonsense", tmp_path)
    assert (code, "got nonsense" in text) == (2, True)
