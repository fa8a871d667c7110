import json
import shutil

import pytest

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.lock import (
    format_lock,
    full_fingerprint,
    lock_entry,
    payload_fingerprint,
    read_lock,
)
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import (
    SchemaMissingError,
    carried_series,
    load_series,
    series_of,
)
from neuralqx_struct.schema.text.loader import read_text
from tests.builders import refused


def document(body, version=1, schema="lab.x", root="A"):
    return parse_document(
        read_text(f'language: "1"\nschema: {schema}\nversion: {version}\nroot: {root}\n{body}')
    )


A = "structs:\n  A: {fields: {x: 'float32[n]', y: {type: int, default: 1}}}\n"


def test_versions_of_a_folder(vmc_folder):
    series = load_series(vmc_folder)
    assert series.versions == (1, 2, 3) and series.head.version == 3 and series.at(2).version == 2
    assert series.id == "neuralqx.vmc_state" and series.folder == vmc_folder
    assert len(set(series.fingerprints.values())) == 3
    with refused(SchemaError, "NQX404", "1, 2, 3"):
        series.at(4)


def test_a_file_is_that_version_alone_and_text_is_text(vmc_folder):
    assert load_series(vmc_folder / "v2.yaml").versions == (2,)
    assert load_series((vmc_folder / "v2.yaml").read_text()).versions == (2,)


def test_json_and_yaml_have_the_same_fingerprints(vmc_folder, tmp_path):
    head = load_series(vmc_folder).head
    (tmp_path / "v3.json").write_text(json.dumps(head.to_data()))
    again = load_series(tmp_path).head
    assert payload_fingerprint(again) == payload_fingerprint(head) and full_fingerprint(
        again
    ) == full_fingerprint(head)


SAME_PAYLOAD = [
    A.replace("default: 1", "default: 2"), A.replace("{type: int", "{doc: hi, type: int"), A.replace("{type: int", "{kind: static, type: int"),
    A.replace("'float32[n]'", "{type: array, dtype: float32, shape: [n]}"), A.replace("default: 1}", "default: 1}, h: {kind: opaque}"),
    A + "  Unused: {fields: {z: int}}\n", A.replace("{x: 'float32[n]', y: {type: int, default: 1}}", "{y: {type: int}, x: 'float32[n]'}"),
]  # fmt: skip
OTHER_PAYLOAD = [
    A.replace("float32", "float64"), A.replace("[n]", "[m]"), A.replace("x:", "z:"), A.replace("type: int", "type: int | null"),
    A.replace("default: 1}", "default: 1}, h: {kind: opaque, serialize: true}"),
]  # fmt: skip


@pytest.mark.parametrize("body", SAME_PAYLOAD)
def test_what_is_outside_the_payload_fingerprint(body):
    assert payload_fingerprint(document(body)) == payload_fingerprint(document(A))


@pytest.mark.parametrize("body", OTHER_PAYLOAD)
def test_what_is_in_it(body):
    assert payload_fingerprint(document(body)) != payload_fingerprint(document(A))


def test_full_fingerprints_see_everything():
    bodies = [A, *SAME_PAYLOAD[:3], *SAME_PAYLOAD[4:6], *OTHER_PAYLOAD]
    assert len({full_fingerprint(document(body)) for body in bodies}) == len(bodies)
    assert full_fingerprint(document(A)) == full_fingerprint(document(SAME_PAYLOAD[3]))
    assert full_fingerprint(
        document(A.replace(", default: 1", ", default: null"))
    ) != full_fingerprint(document(A.replace(", default: 1", "")))


def test_what_is_no_series(tmp_path, vmc_folder):
    with refused(SchemaError, "NQX404"):
        series_of([])
    with refused(SchemaError, "NQX283", "$.schema", "lab.x", "lab.y"):
        series_of([document(A), document(A, 2, "lab.y")])
    with refused(SchemaError, "NQX303", "$.version"):
        series_of([document(A), document(A)])
    with refused(SchemaError, "NQX404") as caught:
        load_series(tmp_path)
    assert caught.value.diagnostics[0].file == str(tmp_path)
    shutil.copytree(vmc_folder, tmp_path / "inner" / "vmc")
    with refused(SchemaError, "NQX404", "vmc"):
        load_series(tmp_path / "inner")


def test_all_files_are_reported(tmp_path):
    (tmp_path / "v1.yaml").write_text("language: 1\n")
    (tmp_path / "v2.yaml").write_text("a: [\n")
    with pytest.raises(SchemaError) as caught:
        load_series(tmp_path)
    assert {d.file.rsplit("/", 1)[-1] for d in caught.value.diagnostics} == {"v1.yaml", "v2.yaml"}


def test_one_version_in_two_files(tmp_path, vmc_folder):
    for name in ("a.yaml", "b.yaml"):
        shutil.copy(vmc_folder / "v1.yaml", tmp_path / name)
    with refused(SchemaError, "NQX303", "a.yaml") as caught:
        load_series(tmp_path)
    assert caught.value.diagnostics[0].line == 4


def test_own_documents_win():
    mine, other = document(A), document(A.replace("float32", "float64"))
    series = series_of([mine]).merged([other, document(A, 2), document(A, 3, "lab.y")])
    assert series.versions == (1, 2) and series.at(1) is mine


def test_lock_files(tmp_path):
    entries = {1: lock_entry(document(A))}
    (tmp_path / "schema.lock").write_text(format_lock("lab.x", entries))
    assert read_lock(tmp_path) == entries and read_lock(tmp_path / "nowhere") == {}
    for text in ("{", "[]", '{"versions": {"x": {}}}', '{"versions": 3}'):
        (tmp_path / "schema.lock").write_text(text)
        with refused(SchemaError, "NQX291", "schema.lock"):
            read_lock(tmp_path)


def test_the_schemas_that_travel_in_a_payload():
    first, second, other = document(A), document(A, 2), document(A, 1, "other")
    carried = carried_series({"schemas": [second.to_data(), other.to_data(), first.to_data()]})
    assert {identity: series.versions for identity, series in carried.items()} == {
        first.id: (1, 2),
        "other": (1,),
    }
    assert carried[first.id].at(2) == second
    assert carried_series({}) == {}
    with refused(SchemaError, "NQX010", "schemas[1]"):
        carried_series({"schemas": [first.to_data(), {}]})
    with refused(SchemaError, "NQX303", "$.version", "1"):
        carried_series({"schemas": [first.to_data(), first.to_data()]})


@pytest.mark.parametrize("name", ["nope", "nope.yaml"])
def test_a_missing_path_says_so(tmp_path, name):
    with refused(SchemaMissingError, "NQX404", tmp_path / name) as caught:
        load_series(tmp_path / name)
    assert isinstance(caught.value, FileNotFoundError)
    assert (caught.value.code, caught.value.diagnostics[0].file) == ("NQX404", str(tmp_path / name))


def test_documents_that_travel_are_read_once_and_wrong_ones_are_told_each_time():
    data = {
        "language": "1",
        "schema": "lab.once",
        "version": 1,
        "root": "A",
        "structs": {"A": {"fields": {"n": "int"}}},
    }
    first, second = (
        carried_series({"schemas": [json.loads(json.dumps(data))]})["lab.once"].at(1)
        for _ in range(2)
    )
    assert first is second
    for wrong in ({**data, "version": {1, 2}}, {**data, "version": "one"}):
        for _ in range(2):
            with pytest.raises(SchemaError):
                carried_series({"schemas": [wrong]})
