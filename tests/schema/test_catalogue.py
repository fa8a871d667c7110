"""Catalogues: the forms of a schema argument, and the schema of a bundle among several."""

import pytest

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.catalogue import Catalogue, schemas_given, series_for
from neuralqx_struct.schema.series import load_series
from tests.builders import POINT_V1, POINT_V2, refused

NET = POINT_V1.replace("lab.point", "lab.net")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, texts in {"point": [POINT_V1, POINT_V2], "net": [NET]}.items():
        (tmp_path / "schemas" / name).mkdir(parents=True)
        for version, text in enumerate(texts, 1):
            (tmp_path / "schemas" / name / f"v{version}.yaml").write_text(text)
    return (tmp_path / "schemas").relative_to(tmp_path)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("lab.point", "schemas/point"),
        ("lab.point@1", "schemas/point/v1.yaml"),
        ("lab.net@1", "schemas/net/v1.yaml"),
        ("schemas/point@2", "schemas/point/v2.yaml"),
        ("schemas/point/v1.yaml@1", "schemas/point/v1.yaml"),
        ("schemas/point", "schemas/point"),
        ("schemas/nope", "schemas/nope"),
        ("git:main", "git:main"),
        ("a b", "a b"),
    ],
)
def test_names_of_schemas(folder, name, found):
    assert Catalogue(folder).find(name).as_posix() == found


def test_a_path_is_preferred_to_an_identity(folder, tmp_path):
    (tmp_path / "lab.point").mkdir()
    assert Catalogue(folder).find("lab.point").as_posix() == "lab.point"


@pytest.mark.parametrize(
    ("name", "code", "parts"),
    [
        ("lab.pont", "NQX400", ("'lab.pont'", "'lab.point'")),
        ("other@3", "NQX400", ("got 'other@3'", "lab.net, lab.point")),
        ("lab.point@3", "NQX404", ("versions 1, 2 of lab.point, got 3", "lab.point@2")),
    ],
)  # fmt: skip
def test_names_of_no_schema(folder, name, code, parts):
    with refused(SchemaError, code, *parts):
        Catalogue(folder).find(name)


def test_files_beside_the_folders_do_not_matter(folder):
    (folder / "accepted.yaml").write_text("waivers: []\n")
    assert [*Catalogue(folder).places] == ["lab.net", "lab.point"]


def test_an_empty_folder(tmp_path):
    with refused(SchemaError, "NQX400", tmp_path / "missing", "lab.point"):
        Catalogue(tmp_path / "missing").find("lab.point")
    (tmp_path / "empty").mkdir()
    with refused(SchemaError, "NQX404", "1"):
        Catalogue(tmp_path).find(f"{tmp_path}/empty@1")


def test_errors_in_other_schemas_do_not_matter(folder):
    (folder / "net" / "v1.yaml").write_text("a: [")
    (folder / "point" / "v3.yaml").write_text("a: [")
    assert [*Catalogue(folder).places] == ["lab.point"]
    assert Catalogue(folder).find("lab.point@3").name == "v3.yaml"  # known by its name
    (folder / "net" / "v1.yaml").write_text("- a\n")
    assert [*Catalogue(folder).places] == ["lab.point"]


def test_two_folders_of_one_identity(folder):
    (folder / "net" / "v1.yaml").write_text(POINT_V1)
    with refused(SchemaError, "NQX283", "net"):
        Catalogue(folder).find("lab.point")


def test_the_schema_of_a_bundle_is_chosen_and_read_once(folder):
    catalogue = schemas_given(Catalogue(folder))
    chosen = series_for({"schema": {"id": "lab.point"}}, catalogue)
    assert chosen.versions == (1, 2)
    assert series_for({"schema": {"id": "lab.point"}}, catalogue) is chosen
    assert series_for({"schema": {"id": "lab.other"}}, catalogue) is None
    assert series_for({}, catalogue) is None


def test_other_arguments_are_one_schema(folder):
    series = load_series(folder / "net")
    assert series_for({}, schemas_given(series)) is series
    assert schemas_given(folder / "net").id == "lab.net"
    assert schemas_given(None) is None
