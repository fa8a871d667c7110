"""The agreement of nodes, records and arrays; walking nodes; dtype names."""

import json

import ml_dtypes
import numpy as np
import pytest

from neuralqx_struct.dtypes import ML_DTYPES, dtype_name, dtype_named, storage_dtype
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.manifest import Limits, raise_findings
from neuralqx_struct.manifest.kinds import iter_nodes
from neuralqx_struct.manifest.payload import Payload, check
from neuralqx_struct.paths import FieldName, format_path
from tests.builders import document, every, refused


def node(name="w", dtype="float32", shape=(2,)):
    return {"__kind__": "array", "name": name, "dtype": dtype, "shape": list(shape)}


def payload(tree, records, arrays):
    return Payload({"version": 1, "manifest": tree, "arrays": records}, arrays)


W = np.zeros(2, np.float32)
R = {"dtype": "float32", "shape": [2]}
STRUCT = {"__kind__": "struct", "type": "m:A", "fields": {"w": node()}}


@every(
    ("held", "codes", "path"),
    [
        (payload(STRUCT, {"w": R}, {"w": W}), [], None),
        (payload({"__kind__": "list", "items": [node(), node()]}, {"w": R}, {"w": W}), [], None),
        (payload(STRUCT, {"w": R}, {"w": W[:1]}), ["NQX412"], "$.arrays.w"),
        (payload(STRUCT, {"w": R}, {"w": W.astype(float)}), ["NQX411"], "$.arrays.w"),
        (payload(node(shape=()), {"w": {**R, "shape": []}}, {"w": W}), ["NQX412"], "$.arrays.w"),
        (payload(node(shape=()), {"w": R}, {"w": W}), ["NQX412"], "$"),
        (
            payload({**STRUCT, "fields": {"w": node(dtype="int32")}}, {"w": R}, {"w": W}),
            ["NQX411"],
            "$.w",
        ),
        (
            payload({**STRUCT, "fields": {"w": node("v")}}, {"w": R}, {"w": W}),
            ["NQX409", "NQX410"],
            "$.w",
        ),
        (payload(STRUCT, {}, {}), ["NQX409"], "$.w"),
        (payload(STRUCT, {"w": R}, {}), ["NQX409"], "$.arrays.w"),
        (payload(None, {"w": R}, {"w": W}), ["NQX410"], "$.arrays.w"),
        (payload(None, {}, {"w": W}), ["NQX410"], "$.arrays.w"),
        (payload(STRUCT, {"w": {**R, "unused": True}}, {"w": W}), ["NQX410"], "$.arrays.w"),
        (payload(STRUCT, {"w": {**R, "nbytes": 9}}, {"w": W}), ["NQX408"], "$.arrays.w"),
        (payload(STRUCT, {"w": R}, {"w": [0.0, 0.0]}), ["NQX612"], "$.arrays.w"),
        (payload(STRUCT, {"w": R}, {"w": np.ma.masked_array(W)}), ["NQX612"], "$.arrays.w"),
        (
            payload(node(dtype="object"), {"w": {**R, "dtype": "object"}}, {"w": W}),
            ["NQX411"],
            "$.arrays.w",
        ),
        (payload(node(dtype="flaot32"), {"w": R}, {"w": W}), ["NQX411"], "$"),
        (payload({"__kind__": "what"}, {}, {}), ["NQX613"], "$.manifest.__kind__"),
    ],
)
def test_check(held, codes, path):
    found = check(held)
    assert [d.code for d in found] == codes
    if found:
        assert found[0].path == path


def test_the_message_names_both_sides():
    [problem] = check(payload(STRUCT, {"w": R}, {"w": np.zeros((4, 5))[:, 0].astype(np.float32)}))
    assert "float32[2]" in problem.message and "float32[4]" in problem.message


def test_an_unused_array_is_noted():
    [note] = check(payload(None, {"w": {**R, "unused": True}}, {"w": W}))
    assert (note.code, note.severity) == ("NQX410", "info")
    raise_findings([note])


def test_a_dtype_may_be_spelled_in_two_ways():
    assert check(payload(node(dtype="<f4"), {"w": R}, {"w": W})) == []


def test_arrays_are_found_below_every_kind():
    tree = {
        "__kind__": "dict",
        "items": [[{"__kind__": "struct", "type": "m:K", "fields": {"a": node("k")}}, node("v")]],
    }
    assert check(payload(tree, {"k": R, "v": R}, {"k": W, "v": W})) == []
    assert [d.code for d in check(payload(tree, {"v": R}, {"v": W}))] == ["NQX409"]


def test_limits_reach_the_manifest():
    assert [d.code for d in check(payload(STRUCT, {"w": R}, {"w": W}), Limits(nodes=1))] == [
        "NQX005"
    ]


def test_iter_nodes():
    tree = {
        "__kind__": "struct",
        "type": "m:A",
        "fields": {
            "x": {"__kind__": "list", "items": [1, node()]},
            "d": {
                "__kind__": "dict",
                "items": [
                    ["k", 2],
                    [{"__kind__": "tuple", "items": [1, "a"]}, 3],
                    [{"__kind__": "path", "value": "p"}, 4],
                ],
            },
            "p": {
                "__kind__": "registered-pytree",
                "type": "m:P",
                "mode": "flatten",
                "children": [5],
                "aux": 6,
            },
        },
    }
    seen = {format_path(path): found for path, found in iter_nodes(tree)}
    assert seen["$.x[1]"]["name"] == "w"
    assert seen["$.d['k']"] == 2
    assert seen["$.d[(1, 'a')]"] == 3
    assert seen["$.p[0]"] == 5
    assert seen["$.p.aux"] == 6
    assert 4 in seen.values()
    [(path, _)] = [(p, n) for p, n in iter_nodes(tree) if n == 3]
    assert path == (FieldName("d"), (1, "a"))
    assert [format_path(p) for p, _ in iter_nodes(tree)][:4] == ["$", "$.x", "$.x[0]", "$.x[1]"]


def test_iter_nodes_does_not_recurse():
    tree = 5
    for _ in range(5000):
        tree = {"__kind__": "list", "items": [tree]}
    assert sum(1 for _ in iter_nodes(tree)) == 5001


AVAILABLE = [name for name in sorted(ML_DTYPES) if hasattr(ml_dtypes, name)]
NUMPY = [
    "bool",
    "int8",
    "uint64",
    "float16",
    "float64",
    "complex128",
    ">f4",
    ">i8",
    "<U5",
    "|S3",
    "datetime64[ns]",
    "timedelta64[D]",
]


@every("name", [*NUMPY, *AVAILABLE])
def test_dtype_names_are_inverse(name):
    dtype = dtype_named(name)
    assert dtype_name(dtype) == name
    assert dtype_named(dtype_name(dtype)) == dtype
    assert json.dumps(storage_dtype(name))


def test_byte_order_is_part_of_the_dtype():
    assert dtype_named(">f4") != dtype_named("float32")
    assert dtype_name(np.dtype(">f4")) == ">f4"


def test_all_of_ml_dtypes_is_known():
    found = {
        name
        for name in dir(ml_dtypes)
        if name not in ("finfo", "iinfo") and isinstance(getattr(ml_dtypes, name), type)
    }
    assert found <= ML_DTYPES


@every(
    "name",
    [
        "object",
        "O",
        "f",
        "float",
        "int",
        "a,b",
        "float32,int8",
        "float128",
        "longdouble",
        "V5",
        "|V2",
        "void",
        "",
        "<U999999999",
        "<i3",
        "(2,)f4",
    ],
)
def test_refused_dtypes(name):
    with refused(SerializationError, "NQX411"):
        dtype_named(name)


@pytest.mark.parametrize("dtype", [object, np.longdouble, [("a", "f4")], "V3", ("f4", (2,))])
def test_refused_arrays(dtype):
    with refused(SerializationError, "NQX411"):
        dtype_name(np.dtype(dtype))


def test_storage():
    assert storage_dtype("bfloat16") == "<u2"
    assert storage_dtype("int4") == storage_dtype("float8_e5m2") == "|u1"
    assert storage_dtype(">f4") == ">f4"


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        (["NQX407"], IntegrityError),
        (["NQX412", "NQX611"], IntegrityError),
        (["NQX407", "NQX503"], UntrustedError),
        (["NQX402"], SerializationError),
        (["NQX611"], SerializationError),
    ],
)
def test_the_class_of_an_error_follows_from_its_worst_finding(codes, kind):
    with pytest.raises(SerializationError) as caught:
        raise_findings([Diagnostic(code, "error", "no") for code in codes], "ckpt")
    assert type(caught.value) is kind
    assert [d.code for d in caught.value.diagnostics] == codes
    assert caught.value.diagnostics[0].file == "ckpt"


FULL = {"__kind__": "full", "dtype": "float32", "shape": [1 << 27], "value": 0}


@every(
    ("tree", "codes"),
    [
        (FULL, []),
        ({"__kind__": "list", "items": [FULL, FULL]}, []),
        ({"__kind__": "list", "items": [FULL, FULL, {**FULL, "shape": [1]}]}, ["NQX505"]),
        ({**FULL, "shape": [1 << 50]}, ["NQX505"]),
        ({**FULL, "shape": [0, (1 << 63) - 1]}, []),
        ({**FULL, "shape": [0, 1 << 63]}, ["NQX614"]),
        ({**FULL, "dtype": "float3"}, []),
        ({**FULL, "value": {"__kind__": "list", "items": []}}, ["NQX612"]),
        ({"__kind__": "list", "items": [FULL, {**FULL, "dtype": "bool"}]}, ["NQX612"]),
        ({"__kind__": "dict", "items": [["a", {**FULL, "shape": [1 << 50]}]]}, ["NQX505"]),
        (
            {
                "__kind__": "list",
                "items": [{"__kind__": "numpy-scalar", "dtype": "<U99999999", "value": ""}] * 3,
            },
            ["NQX505"],
        ),
    ],
)
def test_what_is_described_and_not_stored_has_a_limit(tree, codes):
    held = payload(tree, {}, {})
    assert [d.code for d in check(held)] == codes
    if codes == ["NQX505"]:
        assert check(held, Limits(full_bytes=1 << 60)) == []
        with pytest.raises(UntrustedError):
            raise_findings(check(held))


@every("kind", ["bytes", "bytearray"])
@every(("text", "codes"), [("", []), ("AAA=", []), ("A", ["NQX614"]), ("AAAAA=", ["NQX614"])])
def test_base64_is_whole(kind, text, codes):
    whole = {"__kind__": kind, "base64": "AAAA"}
    node = {"__kind__": "list", "items": [{"__kind__": kind, "base64": text}, whole]}
    found = check(Payload(document(node), {}))
    assert [d.code for d in found] == codes
    assert [d.path for d in found] == ["$[0]"] * len(codes)
