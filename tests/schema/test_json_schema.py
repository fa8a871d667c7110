"""neuralqx_struct.schema.export: what an independent validator makes of manifests of one schema."""

import copy
import functools
import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.schema.export import payload_schema
from tests.builders import SHIPPED, cases, every
from tests.preloaded import check_jsonschema, python

HEAD = 'language: "1"\nschema: lab.wide\nversion: 3\nroot: Net\n'
WIDE = s.load_schema(
    HEAD
    + """
dims: {d: {min: 1, doc: width}}
enums: {Mode: [fast, slow]}
structs:
  Dense: {params: [m], fields: {w: "float32[m, d]", b: {type: "float32[m] | null", default: null}}}
  Relu: {fields: {}}
  Net:
    doc: Of everything something.
    fields:
      layers: {type: "list[Dense[d]]", min_length: 1, max_length: 5}
      table: "dict[str, Dense[2]]"
      named: "dict[str, str]"
      head: "Dense[d] | Relu"
      any_rank: "int8[..., d]"
      fixed: "complex64[2, 3]"
      flag: bool
      count: {type: int, ge: 10, lt: 20, multiple_of: 5}
      rate: {type: float, gt: 0, le: 0.5, finite: true}
      z: complex
      name: {type: str, min_length: 3, max_length: 4, pattern: "[a-z]+"}
      choice: {type: str, choices: [one, two]}
      raw: bytes
      where: path
      kind: dtype
      mode: Mode
      letter: 'literal["a", 1, True] | null'
      several: "int | str | list[int] | prng_key[rbg] | tuple[int, str]"
      pair: "tuple[int, str]"
      row: "tuple[int, ...]"
      none: "tuple[]"
      key: "prng_key[threefry2x32]"
      keys: "prng_key[rbg, 3]"
      any: pytree
      kept: {kind: opaque, serialize: true, default: 3}
      lost: {kind: opaque, default: null}
      size: {type: int, kind: static, derived: "size(fixed)"}
""".replace('pattern: "[a-z]+"}', 'pattern: "[a-z]+", examples: [abc]}')
)
NAMES = [*SHIPPED, "wide"]
DRAFTS = [jsonschema.Draft7Validator, jsonschema.Draft202012Validator]


@functools.cache
def schema_of(name):
    return WIDE if name == "wide" else s.load_schema(f"schemas/{name}")


@functools.cache
def made(name):
    return payload_schema(schema_of(name).document)


def manifest(name, **how):
    data = s.to_state_dict(s.example(schema_of(name).root, **how))
    del data["array_data"]
    return json.loads(json.dumps(data))


def told(name, document, draft=jsonschema.Draft202012Validator):
    """The places that a validator blames, innermost first."""
    found = list(draft(made(name)).iter_errors(document))
    leaves = [inner for error in found for inner in (error.context or [error])]
    return {"/".join(map(str, error.absolute_path)) for error in (*leaves, *found)}


@every("draft", DRAFTS)
@every("name", NAMES)
def test_it_is_a_json_schema_in_both_drafts(name, draft):
    draft.check_schema(made(name))
    assert told(name, manifest(name), draft) == set()


@given(st.sampled_from(sorted(NAMES)), st.integers(0, 10**6))
@settings(max_examples=cases(60))
def test_every_instance_of_the_schema_is_accepted(name, key):
    document = manifest(name, key=key)
    assert [told(name, document, draft) for draft in DRAFTS] == [set(), set()]


FIELDS = "manifest/fields"
WRONG = {
    "missing": (lambda f: f.pop("fixed"), FIELDS),
    "unknown": (lambda f: f.update(fixd=1), FIELDS),
    "dtype": (lambda f: f["fixed"].update(dtype="complex128"), f"{FIELDS}/fixed/dtype"),
    "rank": (
        lambda f: f["layers"]["items"][0]["fields"]["w"].update(shape=[3]),
        f"{FIELDS}/layers/items/0/fields/w/shape",
    ),
    "rank-at-least": (lambda f: f["any_rank"].update(shape=[]), f"{FIELDS}/any_rank/shape"),
    "size": (lambda f: f["fixed"].update(shape=[3, 2]), f"{FIELDS}/fixed/shape"),
    "member": (lambda f: f.update(mode="fats"), f"{FIELDS}/mode"),
    "member-of-python": (
        lambda f: f.update(mode={"__kind__": "enum", "type": "lab:Mode", "name": "fats"}),
        f"{FIELDS}/mode/name",
    ),
    "literal": (lambda f: f.update(letter="b"), f"{FIELDS}/letter"),
    "scalar": (lambda f: f.update(count="10"), f"{FIELDS}/count"),
    "bool-for-int": (lambda f: f.update(count=True), f"{FIELDS}/count"),
    "bound": (lambda f: f.update(count=20), f"{FIELDS}/count"),
    "bound-as-text": (
        lambda f: f.update(count={"__kind__": "bigint", "value": "1" * 30}),
        f"{FIELDS}/count/value",
    ),
    "multiple": (lambda f: f.update(count=11), f"{FIELDS}/count"),
    "not-above": (lambda f: f.update(rate=0), f"{FIELDS}/rate"),
    "not-finite": (
        lambda f: f.update(rate={"__kind__": "float", "value": "nan"}),
        f"{FIELDS}/rate/__kind__",
    ),
    "short": (lambda f: f.update(name="ab"), f"{FIELDS}/name"),
    "pattern": (lambda f: f.update(name="ABC"), f"{FIELDS}/name"),
    "choice": (lambda f: f.update(choice="three"), f"{FIELDS}/choice"),
    "few": (lambda f: f["layers"].update(items=[]), f"{FIELDS}/layers/items"),
    "null": (lambda f: f.update(flag=None), f"{FIELDS}/flag"),
    "array-for-scalar": (
        lambda f: f.update(flag={"__kind__": "array", "name": "w", "dtype": "int8", "shape": []}),
        f"{FIELDS}/flag/dtype",
    ),
    "struct": (
        lambda f: f["layers"]["items"].append({"__kind__": "struct", "type": "a:B", "fields": {}}),
        f"{FIELDS}/layers/items",
    ),
    "branch": (lambda f: f.update(head=3), f"{FIELDS}/head"),
    "branch-inside": (
        lambda f: f.update(
            head={"__kind__": "struct", "type": "lab.wide@3:Dense", "fields": {"b": None}}
        ),
        f"{FIELDS}/head/fields",
    ),
    "union": (lambda f: f.update(several=1.5), f"{FIELDS}/several"),
    "union-inside": (
        lambda f: f.update(several={"__kind__": "list", "items": ["a"]}),
        f"{FIELDS}/several/items/0",
    ),
    "tuple-length": (lambda f: f["pair"].update(items=[1]), f"{FIELDS}/pair/items"),
    "empty-tuple": (lambda f: f["none"].update(items=[1]), f"{FIELDS}/none/items"),
    "tuple-item": (lambda f: f["row"].update(items=["a"]), f"{FIELDS}/row/items/0"),
    "pair": (lambda f: f["table"].update(items=[["k", 1]]), f"{FIELDS}/table/items/0/1"),
    "text-value": (lambda f: f["table"].update(items=[["k", "v"]]), f"{FIELDS}/table/items/0"),
    "list-for-tuple": (lambda f: f["row"].update(__kind__="list"), f"{FIELDS}/row/__kind__"),
    "key": (lambda f: f["key"].update(impl="rbg"), f"{FIELDS}/key/impl"),
    "keys": (lambda f: f["keys"]["data"].update(shape=[3]), f"{FIELDS}/keys/data/shape"),
    "key-numbers": (lambda f: f["key"]["data"].update(dtype="float32"), f"{FIELDS}/key/data/dtype"),
    "bytes": (lambda f: f.update(raw="abc"), f"{FIELDS}/raw"),
}


@every("draft", DRAFTS)
@every("case", WRONG)
def test_what_is_wrong_is_refused_at_its_place(case, draft):
    document = manifest("wide", key=1)
    change, place = WRONG[case]
    change(document["manifest"]["fields"])
    blamed = told("wide", document, draft)
    assert any(path.startswith(place) for path in blamed), blamed
    assert not any(
        len(path) > 4
        and not path.startswith(f"{place}/")
        and not place.startswith(path)
        and path != place
        for path in blamed
    )
    assert conform(WIDE.document, "Net", document["manifest"], see_node)  # we say so too


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda d: d.pop("schema"), ""),
        (lambda d: d["schema"].update(version=2), "schema/version"),
        (lambda d: d["schema"].update(id="lab.other"), "schema/id"),
        (lambda d: d["schema"].update(fingerprint="sha256:" + "0" * 64), "schema/fingerprint"),
        (lambda d: d.update(manifest=3), "manifest"),
        (lambda d: d["manifest"].update(type="lab.wide@2:Net"), "manifest/type"),
        (lambda d: d["arrays"].update(x=1), "arrays/x"),
    ],
)
def test_the_manifest_around_it_counts(change, place):
    document = manifest("wide")
    change(document)
    assert place in told("wide", document)


def places(node, path=()):
    if isinstance(node, dict) and "__kind__" in node:
        yield path
        for key in ("fields", "items"):
            inside = node.get(key)
            for name, child in (
                inside.items() if isinstance(inside, dict) else enumerate(inside or ())
            ):
                yield from places(child, (*path, key, name))
    elif not isinstance(node, (dict, list)):
        yield path


VALUES = st.sampled_from(
    [
        *(None, True, 3, 15, 0.25, "abc", "one", "fast", "a", 10**30),
        {"__kind__": "float", "value": "inf"},
        {"__kind__": "bigint", "value": "1" * 30},
        {"__kind__": "complex", "real": 1, "imag": 0},
        *(
            {"__kind__": "array", "name": "w", "dtype": d, "shape": n}
            for d in ("int8", "float32", "bool")
            for n in ([], [2])
        ),
        {"__kind__": "list", "items": []},
        {"__kind__": "tuple", "items": [1, "a"]},
        {"__kind__": "dict", "items": [["a", "b"]]},
        {"__kind__": "struct", "type": "lab.wide@3:Relu", "fields": {}},
        {"__kind__": "enum", "type": "lab:Mode", "name": "fast"},
    ]
)


@given(st.data(), st.integers(0, 50))
def test_what_it_refuses_is_refused_by_us_and_what_we_take_it_takes(data, key):
    document = manifest("wide", key=key)
    *path, last = data.draw(st.sampled_from([p for p in places(document["manifest"]) if p]))
    inside = document["manifest"]
    for part in path:
        inside = inside[part]
    inside[last] = copy.deepcopy(data.draw(VALUES))
    ours = conform(WIDE.document, "Net", document["manifest"], see_node)
    theirs = told("wide", document)
    if not ours:
        assert not theirs
    elif (
        not theirs
    ):  # what no JSON Schema says: sizes that must agree, items of a tuple, text as value in a pair
        assert (
            {d.code for d in ours} <= {"NQX412", "NQX413", "NQX410"}
            or not {"pair", "several"}.isdisjoint(path)
            or "named" in str(ours)
            or "table" in str(ours)
        ), ours


def test_each_rule_of_values_has_one():
    """Some validators refuse a list of no values."""
    assert '"enum": []' not in json.dumps(made("wide"))


def test_other_tools_read_it(tmp_path, root):
    command = ["-m", "neuralqx_struct", "schema", "json-schema"]
    printed = python().run(*command, "neuralqx.vmc_state@3", cwd=root).stdout
    assert json.loads(printed) == made("vmc_state")
    again = python().run(*command, "schemas/vmc_state@3", cwd=root).stdout
    assert again == printed
    (tmp_path / "schema.json").write_text(printed)
    good, bad = manifest("vmc_state"), manifest("vmc_state")
    bad["manifest"]["fields"]["kernel"]["dtype"] = "complex128"
    (tmp_path / "good.json").write_text(json.dumps(good))
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    published = tmp_path / "schema.json"
    assert check_jsonschema("--schemafile", published, tmp_path / "good.json").returncode == 0
    done = check_jsonschema("--schemafile", published, tmp_path / "bad.json")
    assert done.returncode == 1 and "$.manifest.fields.kernel.dtype" in done.stdout


@pytest.mark.parametrize(
    ("pattern", "exported"),
    [("[a-z]+-[0-9]*", True), ("[a-z]*[a-z]*A" * 20, False), ("(a|aa)*b", False)],
)
def test_other_engines_get_no_pattern_that_they_would_match_for_ever(pattern, exported):
    field = f'  Net: {{fields: {{name: {{type: str, kind: static, pattern: "{pattern}"}}}}}}'
    schema = s.load_schema(f"{HEAD}structs:\n{field}\n")
    assert (pattern in json.dumps(payload_schema(schema.document))) == exported


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_dtype_that_does_not_exist_is_refused_in_a_pytree_too(draft):
    document = manifest("wide", key=1)
    scalar = {"__kind__": "numpy-scalar", "dtype": "float32", "value": 1.0}
    document["manifest"]["fields"]["any"] = scalar
    assert told("wide", document, draft) == set()
    scalar["dtype"] = "float33"
    assert f"{FIELDS}/any/dtype" in told("wide", document, draft)
