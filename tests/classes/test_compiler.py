import inspect
import pickle
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.classes.compiler import classes_of, register_hook
from neuralqx_struct.errors import SchemaError, StructError, ValidationError
from neuralqx_struct.schema.series import series_of
from tests.builders import doc, every, refused

TEXT = """\
language: "1"
schema: lab.{name}
version: 1
root: Net
dims: {d: {min: 1}, e: {equals: width * d}}
enums: {Mode: [slow, fast]}
structs:
  Layer:
    doc: One layer.
    fields:
      w: {type: array, dtype: float32, shape: [d, h], tags: [trainable], doc: Weights., unit: m}
      b: "float32[h] | null"
  Net:
    fields:
      width: {type: int, kind: static, default: 2}
      layers: list[Layer]
      out: float32[e]
      mode: {type: Mode, kind: static, default: slow}
      key: {type: prng_key, impl: threefry2x32}
      scale: {type: array, dtype: float32, shape: [3], default: 1}
      four: {type: array, dtype: int32, shape: [2 * 2], default: 7}
      open: {type: array, dtype: int32, default: [1, 2]}
      names: {type: "list[str]", default: []}
      rate: {type: float, default: 0.5, gt: 0}
      where: {type: path | null, default: null}
      dt: {type: dtype | null, default: null}
      opts: {type: "dict[str, int]", default: {a: 1}}
      step: {type: int, default: 0}
      handle: {kind: opaque, default: null}
      pair: {type: "tuple[int, path]", kind: static, default: [1, a/b]}
      kind: {type: "dtype | null", kind: static, default: int8}
      folders: {type: "list[path]", kind: opaque, default: [x]}
      table: {type: "dict[str, tuple[int, ...]]", default: {k: [1, 2]}}
      size: {type: int, kind: static, derived: size(out)}
      total: {derived: size + width}
    constraints:
      - {expr: all(isfinite(out)), message: not finite}
"""


def schema(name="net"):
    return s.load_schema(TEXT.replace("{name}", name))


def layer(net, d=4, h=2, **changes):
    return net.Layer(**{"w": jnp.zeros((d, h)), "b": jnp.zeros(h), **changes})


def instance(net=None, **changes):
    net = net or schema()
    return net.Net(
        **{
            "layers": [layer(net), layer(net, h=3)],
            "out": jnp.zeros(8),
            "key": jax.random.key(0),
            **changes,
        }
    )


class TestClasses:
    def test_what_a_schema_gives(self):
        net = schema()
        assert (net.id, net.version, net.versions, net.root, list(net)) == (
            "lab.net",
            1,
            (1,),
            net.Net,
            ["Layer", "Net"],
        )
        assert (
            net["Layer"] is net.Layer
            and "Layer" in net
            and "Nope" not in net
            and "Layer" in dir(net)
        )
        assert (
            repr(net) == "<Schema lab.net version 1 of 1>"
            and net.series.id == "lab.net"
            and net.document.version == 1
        )
        assert (
            net.Layer.__doc__.splitlines()[0] == "One layer."
            and s.class_ref(net.Net) == "lab.net@1:Net"
        )
        spec = net.Layer.fields()["w"]
        assert (
            spec.tags == {"trainable"} and spec.doc == "Weights." and spec.metadata["unit"] == "m"
        )
        with refused(SchemaError, "NQX280", "Layer", "Layr"):
            net["Layr"]
        with refused(AttributeError, "Nope"):
            net.Nope
        with refused(SchemaError, "NQX404"):
            net.at(2)

    def test_one_fingerprint_one_class(self):
        assert schema().Net is schema().Net is not schema("other").Net

    def test_classes_have_the_order_of_their_document(self):
        """Leaves have that order: it depends on no schema that was loaded before."""
        text = 'language: "1"\nschema: lab.order\nversion: 1\nroot: A\nstructs:\n  A: {fields: {%s: int, %s: int}}\n'
        for order in (["a", "b"], ["b", "a"]):
            assert list(s.load_schema(text % (*order,)).root.fields()) == order

    def test_defaults_are_fresh(self):
        a = instance()
        assert (
            a.scale.tolist() == [1, 1, 1]
            and a.four.tolist() == [7] * 4
            and a.open.tolist() == [1, 2]
            and a.names == []
            and a.opts == {"a": 1}
            and a.size == 8
            and a.total == 10
        )
        assert (
            a.pair == (1, Path("a/b"))
            and a.kind == np.dtype("int8")
            and a.folders == [Path("x")]
            and a.table == {"k": (1, 2)}
        )
        assert instance().names is not a.names and instance().opts is not a.opts

    def test_classes_and_instances_pickle(self):
        a = instance()
        assert pickle.loads(pickle.dumps(type(a))) is type(a)
        again = pickle.loads(pickle.dumps(a.layers[0]))
        assert again == a.layers[0] and type(again) is type(a.layers[0])

    def test_keyword_arguments_only(self):
        with pytest.raises(TypeError, match="Layer.__init__"):
            schema().Layer(1, 2)

    def test_unknown_schema_errors_are_raised_on_load(self):
        with pytest.raises(SchemaError) as caught:
            s.load_schema(TEXT.replace("{name}", "bad").replace("list[Layer]", "list[Layr]"))
        assert "NQX101" in {d.code for d in caught.value.diagnostics} and "'Layer'" in str(
            caught.value
        )


WRONG = {
    "dtype": ({"out": np.zeros(8)}, "NQX411", "$.out"),
    "rank": ({"out": jnp.zeros((8, 1))}, "NQX412", "$.out"),
    "equation": ({"out": jnp.zeros(9)}, "NQX413", "$.out"),
    "enum": ({"mode": "sloww"}, "NQX421", "$.mode"),
    "key": ({"key": jax.random.PRNGKey(0)}, "NQX420", "$.key"),
    "impl": ({"key": jax.random.key(0, impl="rbg")}, "NQX420", "$.key"),
    "bound": ({"rate": -1.0}, "NQX416", "$.rate"),
    "constraint": ({"out": jnp.full(8, jnp.nan)}, "NQX416", "$"),
    "scalar": ({"step": "3"}, "NQX411", "$.step"),
    "list": ({"names": ("a",)}, "NQX411", "$.names"),
    "item": ({"names": [1]}, "NQX411", "$.names[0]"),
    "dict": ({"opts": {1: 1}}, "NQX411", "$.opts"),
    "struct": ({"layers": [{}]}, "NQX411", "$.layers[0]"),
    "object": ({"where": object()}, "NQX411", "$.where"),
}


@every("case", WRONG)
def test_values_are_checked(case):
    changes, code, path = WRONG[case]
    with pytest.raises(ValidationError) as caught:
        instance(**changes)
    assert (code, path) in {(d.code, d.path) for d in caught.value.diagnostics}


def test_sizes_agree_through_lists():
    net = schema()
    with pytest.raises(ValidationError) as caught:
        instance(net, layers=[layer(net), layer(net, d=5)])
    assert caught.value.diagnostics[0].path == "$.layers[1].w" and "$.layers[0].w" in str(
        caught.value
    )
    with refused(ValidationError, "NQX413"):
        layer(net, b=jnp.zeros(7))


def test_what_passes():
    a = instance(where=Path("x"), dt=np.dtype("int8"), names=["a"], step=jnp.int32(3), rate=1)
    assert a.step == 3 and layer(schema(), b=None).b is None


class TestTracing:
    def test_shapes_are_checked_values_are_not(self):
        net = schema()

        @jax.jit
        def good(a):
            return a.replace(out=a.out + jnp.nan, step=a.step + 1)

        assert bool(jnp.isnan(good(instance(net)).out).all())
        with refused(ValidationError, "NQX413"):
            jax.jit(lambda a: a.replace(out=a.out[:3]))(instance(net))

    def test_wide_dtypes_compare_after_canonicalisation(self):
        wide = s.load_schema(
            TEXT.replace("{name}", "wide").replace("out: float32[e]", "out: float64[e]")
        )
        a = instance(wide, out=np.zeros(8))
        assert jax.jit(lambda b: b.replace(step=b.step))(a).out.dtype == "float32"
        with refused(ValidationError, "NQX411"):
            instance(wide, out=jnp.zeros(8))

    def test_grad_and_vmap(self):
        a = instance()
        arrays = jax.grad(lambda w: jnp.sum(a.layers[0].replace(w=w).w ** 2))(a.layers[0].w)
        assert arrays.shape == (4, 2)
        assert jax.eval_shape(lambda b: b, a).out.shape == (8,)


def test_versions_coexist_and_a_subclass_counts(vmc_folder):
    vmc = s.load_schema(vmc_folder)
    assert vmc.root is not vmc.at(2).root and vmc.at(2).version == 2
    net = schema()

    class Mine(net.Layer):
        def norm(self):
            return float(jnp.sum(self.w**2))

    mine = Mine(w=jnp.ones((4, 2)), b=None)
    assert mine.norm() == 8 and instance(net, layers=[mine]).layers[0] is mine


def test_registered_hooks():
    text = TEXT.replace("{name}", "hooks").replace(
        "rate: {", "rate: {converter: lab_half, validator: lab_small, "
    )
    net = s.load_schema(text)
    with refused(StructError, "NQX313", "register_hook", "lab_half"):
        instance(net)
    register_hook("lab_half", lambda v: min(v, 0.5))
    register_hook("lab_small", lambda v: v != 0.25)
    assert instance(net, rate=3.0).rate == 0.5
    with refused(ValidationError, "NQX416", "lab_small", "Net.rate", "0.25"):
        instance(net, rate=0.25)


DEFAULTS = """\
language: "1"
schema: lab.defaults
version: 1
root: Net
structs:
  Net:
    doc: A net.
    fields:
      zeros: {type: array, dtype: float32, shape: [2], default: zeros, doc: Nothing, unit: m}
      ones: {type: array, dtype: int8, shape: [2], default: ones}
      yes: {type: "bool[2]", default: ones}
      half: {type: "float32[2, 2] | null", default: {fill: 0.5}}
      value: {type: "int32[3]", default: {value: [1, 2, 3]}}
      free: {type: "float32[...]", default: 0.5}
      names: {type: "list[str]", default: [a], min_length: 1, max_length: 2}
      table: {type: "dict[str, int]", default: {}, max_length: 1}
      raw: {type: bytes | null, default: null, max_length: 2}
      twice: {type: int, kind: static, derived: 2 * len(names)}
      four: {type: int, kind: static, derived: 2 * twice}
    constraints:
      - {expr: four < 8, message: too many names}
"""


def test_words_for_defaults_of_arrays():
    net = s.load_schema(DEFAULTS).Net()
    found = {
        name: np.asarray(getattr(net, name)).tolist()
        for name in ("zeros", "ones", "yes", "half", "value", "free")
    }
    assert found == {
        "zeros": [0.0, 0.0], "ones": [1, 1], "yes": [True, True], "half": [[0.5, 0.5], [0.5, 0.5]], "value": [1, 2, 3], "free": 0.5,
    }  # fmt: skip
    assert net.ones.dtype == jnp.int8 and net.yes.dtype == jnp.bool_


def test_docs_reach_the_class_and_its_fields():
    net = s.load_schema(DEFAULTS).Net
    assert net.__doc__ == "A net.\n\nAttributes:\n    zeros: Nothing In m."
    spec = s.fields(net)["zeros"]
    assert spec.doc == "Nothing" and spec.metadata["unit"] == "m"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"names": []}, ["$.names", 1, 0]),
        ({"names": ["a", "b", "c"]}, ["$.names", 2, 3]),
        ({"table": {"a": 1, "b": 2}}, ["$.table", 1, 2]),
        ({"raw": b"abc"}, ["$.raw", 2, 3]),
        ({"names": ["a", "b"]}, ["four < 8", "four = 8"]),
    ],
    ids=["short", "long", "dict", "bytes", "derived"],
)
def test_lengths_and_constraints_on_derived_fields(changes, named):
    with refused(ValidationError, "NQX416", *named):
        s.load_schema(DEFAULTS).Net(**changes)


def test_constructors_are_made_when_they_are_asked_for():
    text = 'language: "1"\nschema: lab.later\nversion: 1\nroot: R\nstructs: {R: {fields: {x: int, y: {type: int, default: 2}}}}\n'
    cls = s.load_schema(text).R
    assert type(vars(cls)["__init__"]).__name__ == "_LateInit"
    assert str(inspect.signature(cls)) == "(*, x: 'int', y: 'int' = 2) -> None"
    assert type(vars(cls)["__init__"]).__name__ == "function"
    assert cls(x=1).replace(x=3) == cls(x=3, y=2)

    class Mine(s.load_schema(text.replace("later", "later_still")).R):
        def __init__(self, x):
            super().__init__(x=x, y=x)

    assert Mine(4).y == 4


def test_deprecated_fields_warn_of_values_that_are_no_default():
    text = """
    language: "1"
    schema: lab.old
    version: 1
    root: R
    structs:
      R:
        fields:
          x: {type: int, deprecated: true}
          rate: {type: float, default: 0.1, deprecated: use lr}
          w: {type: "float32[2]", default: zeros, deprecated: true}
    """
    cls = s.load_schema(text).R
    made = cls(x=1)  # a field that has to be given is given
    assert made.replace(rate=0.1, w=jnp.zeros(2)) == made
    with pytest.warns(DeprecationWarning, match=r"lab\.old@1:R\.rate: .*use lr") as told:
        assert cls(x=1, rate=0.2).rate == 0.2
    assert [warning.filename for warning in told] == [__file__]
    with pytest.warns(
        DeprecationWarning,
        match=r"R\.w: ",
    ) as told:
        made.replace(w=jnp.ones(2))
    assert [warning.filename for warning in told] == [__file__]


def test_a_name_that_is_nearly_one_is_named(vmc_folder):
    schema = s.load_schema(vmc_folder)
    with refused(AttributeError, "VMCstate", "VMCState"):
        schema.VMCstate
    with refused(TypeError, "load_schema()", repr(schema)):
        s.load_schema(schema)


def test_a_default_of_another_type_is_refused_with_its_field():
    from neuralqx_struct.classes.compiler import classes_of
    from neuralqx_struct.schema.reading import document_from_data
    from neuralqx_struct.schema.series import series_of

    data = {
        "language": "1",
        "schema": "test.default",
        "version": 1,
        "root": "A",
        "structs": {"A": {"fields": {"x": {"type": "float", "kind": "static", "default": ""}}}},
    }
    series = series_of([document_from_data(data, "<bundle>")])
    with refused(SchemaError, "NQX107", "test.default@1:A.x"):
        classes_of(series, 1)


def test_a_field_of_an_unlinted_document_that_no_class_can_have():
    document = doc({"fields": "int"})
    with refused(SchemaError, "NQX118", "$.structs.A.fields") as error:
        classes_of(series_of([document]), 1)
    assert error.value.diagnostics[0].code == "NQX118"


def test_without_jax_the_package_is_named(monkeypatch):
    schema = s.load_schema(DEFAULTS)
    monkeypatch.setitem(sys.modules, "jax", None)
    with refused(s.SerializationError, "NQX615", "jax"):
        schema.Net()
