"""The document on Structs, block by block and sentence by sentence, in its order; only imports and names are changed.

Left out are the deviations that the design lists: arrays are stored uncompressed, readers do not import what a file names,
and the class that register_class makes stands before the original in the MRO.
"""

import abc
import inspect
import json
import math
import sys
import types
import zipfile
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import FieldKind, Struct, field, register_class
from tests.builders import refused


class TrainState(s.Struct):
    params: object  # JAX array tree (node field)
    step: int = s.field(static=True, default=0)  # static metadata
    tag: str = s.field(static=True, default="run")


class Node:
    def __init__(self, data, tag):
        self.data = data
        self.tag = tag


class Edge:
    def __init__(self, flux, source, target):
        self.flux = flux  # array, pytree leaf
        self.source = source  # int, static metadata
        self.target = target  # int, static metadata


def make(cls):
    """A class of its own for each test: a type is registered with JAX once and for all."""
    return type(cls.__name__, (), {"__init__": cls.__init__, "__module__": __name__})


def state():
    return TrainState(params={"w": jnp.ones(4)})


class TestIntroduction:
    def test_the_first_example(self):
        state = TrainState(params={"w": jnp.ones(4)})
        state2 = state.replace(step=1)  # new instance, original unchanged
        assert (
            state2.step == 1
            and state.step == 0
            and state2 is not state
            and state2.params is state.params
        )

        payload = state.to_state_dict()  # portable mapping
        state3 = TrainState.from_state_dict(payload)
        assert state3 == state and isinstance(state3, TrainState)

    def test_individual_names_can_be_imported(self):
        assert (Struct, field, FieldKind, register_class) == (
            s.Struct,
            s.field,
            s.FieldKind,
            s.register_class,
        )

    def test_a_pytree_with_leaves_and_aux_data_at_class_definition(self):
        class New(s.Struct):
            w: object
            n: int = s.field(static=True, default=1)

        leaves, treedef = jax.tree_util.tree_flatten(New(2.0))
        assert leaves == [2.0] and treedef.num_leaves == 1
        assert treedef != jax.tree_util.tree_structure(New(2.0, 2))

    def test_frozen_after_construction(self):
        with pytest.raises(s.FrozenStructError):
            state().step = 3
        with pytest.raises(s.FrozenStructError):
            state().undeclared = 3
        with pytest.raises(s.FrozenStructError):
            del state().step
        with pytest.raises(AttributeError):  # as every attribute error
            state().step = 3

    def test_safe_as_aux_data_static_argument_and_dictionary_key(self):
        class Config(s.Struct):
            width: int = s.field(static=True, default=2)

        class Model(s.Struct):
            w: object
            config: Config = s.field(static=True, default=Config())

        assert jax.tree.map(lambda x: x + 1, Model(1.0)).config == Config()
        traces = []
        run = jax.jit(lambda config, x: traces.append(config) or x * config.width, static_argnums=0)
        assert [int(run(Config(n), 3)) for n in (2, 2, 5)] == [6, 6, 15] and len(traces) == 2
        assert {state(): "a"}[state()] == "a"

    def test_a_stable_contract_in_memory_in_directories_and_in_zip_archives(self, tmp_path):
        again = TrainState.from_state_dict(state().to_state_dict())
        assert again == state() == TrainState.load(state().export(tmp_path / "a"))
        assert TrainState.load(state().export(tmp_path / "a.zip")) == state()

    def test_a_portable_class_reference(self):
        ref = s.class_ref(TrainState)
        assert ref == f"{__name__}:TrainState" and s.resolve_class(ref) is TrainState
        assert state().to_state_dict()["manifest"]["type"] == ref


class TestKinds:
    def test_the_block(self):
        class Config(s.Struct):
            weights: object  # NODE: JAX traces this
            n_layers: int = s.field(static=True)  # STATIC: re-traces on change
            cache: object = s.field(pytree=False, default_factory=dict)  # OPAQUE: invisible to JAX

        kinds = [spec.kind for spec in Config.fields().values()]
        assert kinds == [FieldKind.NODE, FieldKind.STATIC, FieldKind.OPAQUE]
        config = Config(jnp.ones(2), 3)
        assert jax.tree.leaves(config) == [config.weights] and config.cache == {}
        traces = []
        run = jax.jit(lambda c: traces.append(c.n_layers) or c.weights)
        for n in (3, 3, 4):
            run(config.replace(n_layers=n))
        assert traces == [3, 4]

    def test_a_node_is_traced_differentiated_batched_and_retraced_by_shape_and_dtype(self):
        class P(s.Struct):
            w: object

        traces = []
        run = jax.jit(lambda p: traces.append(p.w) or p.w * 2)
        for w in (jnp.ones(2), jnp.zeros(2), jnp.ones(3), jnp.ones(2, int)):
            run(P(w))
        assert len(traces) == 3 and all(isinstance(t, jax.core.Tracer) for t in traces)
        assert float(jax.grad(lambda p: p.w**2)(P(3.0)).w) == 6.0
        assert jax.vmap(lambda p: p.w)(P(jnp.ones((4, 2)))).shape == (4, 2)

    @pytest.mark.parametrize(
        "value", [[1], {"a": 1}, np.ones(2), jnp.ones(2), (jnp.ones(2),)], ids=repr
    )
    def test_statics_must_be_hashable_and_hold_no_array(self, value):
        with refused(s.ValidationError, "NQX110", "TrainState.step"):
            TrainState(1.0, step=value)

    def test_the_opaque_field_is_no_leaf_and_not_serialised(self):
        class Run(s.Struct):
            x: object
            handle: object = s.field(pytree=False, default=None)

        run = Run(1.0, handle=sys.stdout)
        assert jax.tree.leaves(run) == [1.0]
        assert "handle" not in run.to_state_dict()["manifest"]["fields"]


class TestField:
    def test_the_signature(self):
        expected = {
            "static": False,
            "pytree": True,
            "default": s.MISSING,
            "default_factory": s.MISSING,
            "init": True,
            "repr": True,
            "compare": True,
            "serialize": None,
            "kw_only": False,
            "doc": None,
            "metadata": None,
            "converter": None,
            "validator": None,
            "derived": None,
        }
        parameters = inspect.signature(s.field).parameters
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
        assert {name: parameters[name].default for name in expected} == expected
        assert list(parameters)[: len(expected)] == list(expected)
        with pytest.raises(TypeError):
            s.field(True)

    def test_it_returns_a_field_spec(self):
        assert isinstance(s.field(), s.FieldSpec)

    def test_common_patterns(self):
        class State(s.Struct):
            # plain node field, no annotation needed
            params: object

            # static field with a default
            name: str = s.field(static=True, default="run-1")

            # opaque field, invisible to JAX, not serialised by default
            logger: object = s.field(pytree=False, default_factory=object)

            # mutable container default, avoids shared-state bugs
            history: list = s.field(default_factory=list)

            # keyword-only in constructor
            seed: int = s.field(static=True, kw_only=True, default=0)

            # exclude from repr and equality
            debug_token: str = s.field(static=True, repr=False, compare=False, default="")

        a, b = State(1.0), State(1.0)
        assert (a.params, a.name, a.history, a.seed, a.debug_token) == (1.0, "run-1", [], 0, "")
        assert a.history is not b.history and a.logger is not b.logger
        assert not State.fields()["logger"].should_serialize
        with pytest.raises(TypeError):
            State(1.0, "n", None, [], "", 0)  # seed by position
        assert State(1.0, seed=5).seed == 5
        secret = State(1.0, logger=None, debug_token="secret")
        assert "secret" not in repr(secret) and "debug_token" not in repr(secret)
        assert secret == State(1.0, logger=None, debug_token="other")

    def test_default_rules(self):
        with refused(ValueError, "field()", "default_factory"):
            s.field(default=1, default_factory=list)

        class Needs(s.Struct):
            x: int

        with pytest.raises(TypeError, match="'x'"):
            Needs()
        made = []

        class Fresh(s.Struct):
            x: list = s.field(default_factory=lambda: made.append(1) or [])

        assert Fresh().x is not Fresh().x and made == [1, 1]

    def test_init_doc_and_metadata(self):
        class A(s.Struct):
            x: int = s.field(doc="what x means", metadata={"unit": "m"})
            y: int = s.field(init=False, default=3)

        spec = A.fields()["x"]
        assert spec.doc == "what x means" and spec.metadata["unit"] == "m" and A(1).y == 3
        with pytest.raises(TypeError, match="'y'"):
            A(1, y=4)


class TestHooks:
    def test_box(self):
        class Box(s.Struct):
            count: int = s.field(converter=int)  # coerce str to int on input
            label: str = s.field(converter=str.strip)  # strip whitespace

        b = Box(count="3", label="  hello  ")
        assert b.count == 3 and type(b.count) is int  # 3  (int)
        assert b.label == "hello"
        # in the constructor, in replace, and during deserialisation
        assert b.replace(count="4", label=" x ").to_dict() == {"count": 4, "label": "x"}
        payload = b.to_state_dict()
        payload["manifest"]["fields"]["label"] = "  from file "
        assert Box.from_state_dict(payload).label == "from file"

    def test_bounded(self):
        def _clamp(self, value):
            return max(0, min(value, self.maximum))

        class Bounded(s.Struct):
            maximum: int
            value: int = s.field(converter=_clamp)

        assert Bounded(10, 99).value == 10 and Bounded(10, -3).value == 0
        assert Bounded(10, 99).replace(maximum=5).value == 5

    def test_rate(self):
        def _positive(value):
            return value > 0

        class Rate(s.Struct):
            lr: float = s.field(validator=_positive)

        assert Rate(lr=0.01).lr == 0.01  # fine
        with refused(s.ValidationError, "NQX416", "Rate.lr", "-1.0"):
            Rate(lr=-1.0)
        with pytest.raises(s.ValidationError):
            Rate(lr=0.01).replace(lr=-1.0)

    def test_several_validators_in_order(self):
        calls = []

        def _positive(value):
            calls.append("positive")
            return value > 0

        def _finite(value):
            calls.append("finite")
            return math.isfinite(value)

        class Rate(s.Struct):
            lr: float = s.field(validator=[_positive, _finite])

        assert Rate(1.0).lr == 1.0 and calls == ["positive", "finite"]
        for bad in (-1.0, math.inf):
            with pytest.raises(s.ValidationError):
                Rate(bad)

    def test_a_validator_sees_the_converted_value_and_may_take_the_instance(self):
        class Limited(s.Struct):
            limit: int
            x: int = s.field(converter=int, validator=lambda self, value: value <= self.limit)

        assert Limited(3, "2").x == 2
        with pytest.raises(s.ValidationError):
            Limited(3, "4")

    def test_an_exception_of_a_validator_propagates(self):
        def check(value):
            raise LookupError("mine")

        class A(s.Struct):
            x: int = s.field(validator=check)

        with pytest.raises(LookupError, match="mine"):
            A(1)


class Dataset(s.Struct):
    samples: list
    n: int = s.field(static=True, init=False, derived=lambda self: len(self.samples))


class TestDerived:
    def test_dataset(self):
        ds = Dataset(samples=[1, 2, 3])
        assert ds.n == 3  # computed automatically
        with pytest.raises(TypeError, match="'n'"):
            Dataset(samples=[1], n=1)  # never part of the constructor
        payload = ds.to_state_dict()
        assert "n" not in payload["manifest"]["fields"]  # never serialised
        assert ds.replace(samples=[1]).n == 1  # after replace()
        assert Dataset.from_state_dict(payload).n == 3  # after from_state_dict()

    def test_it_must_be_static_or_opaque(self):
        with refused(ValueError, "field()", "derived"):
            s.field(init=False, derived=lambda self: 1)
        assert s.field(pytree=False, init=False, derived=lambda self: 1).is_derived

    def test_without_arguments(self):
        class A(s.Struct):
            n: int = s.field(static=True, init=False, derived=lambda: 7)

        assert A().n == 7

    def test_load_and_rederive(self, tmp_path):
        ds = Dataset.load(Dataset([1, 2]).export(tmp_path / "ds"))
        assert ds.n == 2
        ds.samples.append(3)
        ds.rederive()
        assert ds.n == 3

    @pytest.mark.parametrize("with_post_init", [True, False])
    def test_it_runs_twice_during_construction(self, with_post_init):
        calls = []
        body = {
            "__annotations__": {"x": int, "n": int},
            "n": s.field(
                static=True, init=False, derived=lambda self: calls.append(self.x) or self.x
            ),
            "__module__": __name__,
        }
        if with_post_init:
            body["__post_init__"] = lambda self: setattr(self, "x", 5)
        cls = s.StructMeta("Counted", (s.Struct,), body)
        assert cls(1).n == (5 if with_post_init else 1)
        assert calls == ([1, 5] if with_post_init else [1, 1])


class TestLifecycle:
    def test_model(self):
        class Model(s.Struct):
            x: int
            y: int = s.field(static=True, init=False, derived=lambda self: self.x * 2)

            def __post_init__(self):
                # called at step 3, can still mutate
                self.x = self.x + 1

        m = Model(x=2)
        assert m.x == 3  # (post_init incremented it)
        assert m.y == 6  # (derived after post_init)

    def test_the_six_steps_in_order(self):
        log = []

        class Ordered(s.Struct):
            x: int = s.field(
                converter=lambda v: log.append("1 assign") or v,
                validator=lambda v: log.append("5 validate"),
            )
            z: int = s.field(
                init=False, default=1, converter=lambda v: log.append("1 default") or v
            )
            y: int = s.field(
                static=True, init=False, derived=lambda self: log.append("2/4 derive") or 1
            )

            def __post_init__(self):
                log.append("3 post_init")
                self.x = 4

        instance = Ordered(1)
        assert log == [
            "1 assign",
            "1 default",
            "2/4 derive",
            "3 post_init",
            "2/4 derive",
            "5 validate",
        ]
        with pytest.raises(s.FrozenStructError):  # 6
            instance.x = 1

    def test_static_constraints_hold_after_post_init(self):
        class Late(s.Struct):
            n: object = s.field(static=True, default=1)

            def __post_init__(self):
                self.n = [1]

        with refused(s.ValidationError, "NQX110", "Late.n"):
            Late()

    @pytest.mark.parametrize("value", [[1], np.ones(2), jnp.ones(2)], ids=["list", "numpy", "jax"])
    def test_static_derived_values_obey_the_same_rule(self, value):
        class Wrong(s.Struct):
            n: object = s.field(static=True, init=False, derived=lambda self: value)

        with refused(s.ValidationError, "NQX110", "Wrong.n"):
            Wrong()


class TestReplace:
    def test_replace(self):
        first = state()
        state2 = first.replace(step=first.step + 1, tag="run-2")
        assert (state2.step, state2.tag, first.step, first.tag) == (1, "run-2", 0, "run")

    def test_the_full_lifecycle_again(self):
        log = []

        class A(s.Struct):
            x: int = s.field(converter=int, validator=lambda v: log.append("validate"))
            y: int = s.field(static=True, init=False, derived=lambda self: self.x + 1)

            def __post_init__(self):
                log.append("post_init")

        a = A("1")
        log.clear()
        b = a.replace(x="2")
        assert (b.x, b.y) == (2, 3) and log == ["post_init", "validate"]
        with pytest.raises(s.FrozenStructError):
            b.x = 3

    def test_derived_fields_cannot_be_replaced(self):
        ds = Dataset([1, 2, 3])
        # Wrong, raises TypeError:
        with refused(TypeError, "Dataset.replace()", "n"):
            ds.replace(n=10)
        # Correct, update the source and n is recomputed:
        assert ds.replace(samples=[1, 2, 3, 4]).n == 4

    def test_rederive(self):
        class Bag(s.Struct):
            items: list
            size: int = s.field(static=True, init=False, derived=lambda self: len(self.items))

        bag = Bag(items=[1, 2])
        bag.items.append(3)  # mutate in place
        assert bag.size == 2  # (stale!)

        bag.rederive()
        assert bag.size == 3


class TestIntrospection:
    def test_class_methods_and_module_functions(self):
        assert (
            TrainState.fields() == OrderedDict(s.fields(TrainState))
            and type(TrainState.fields()) is OrderedDict
        )
        assert list(TrainState.fields()) == ["params", "step", "tag"]
        for where in (TrainState, state()):
            assert where.node_fields() == ("params",) == s.node_fields(where)
            assert where.static_fields() == ("step", "tag") == s.static_fields(where)
            assert where.opaque_fields() == () == s.opaque_fields(where)
            assert where.derived_fields() == () == s.derived_fields(where)
            assert where.fields() == s.fields(where)

    def test_a_spec(self):
        spec = TrainState.fields()["step"]
        assert spec.name == "step"
        assert spec.kind == FieldKind.STATIC
        assert spec.default == 0
        assert spec.has_default is True
        assert spec.is_derived is False
        assert spec.should_serialize is True

    def test_tree_size(self):
        first = TrainState({"a": jnp.ones(2), "b": [1.0, 2.0]})
        assert first.tree_size() == len(jax.tree_util.tree_leaves(first)) == 3

    def test_to_dict(self):
        class Outer(s.Struct):
            inner: object
            handle: object = s.field(pytree=False, default=7)

        outer = Outer(state())
        assert (
            outer.to_dict() == {"inner": outer.inner, "handle": 7}
            and outer.to_dict()["inner"] is outer.inner
        )
        inner = {"params": outer.inner.params, "step": 0, "tag": "run"}
        assert outer.to_dict(recursive=True) == {"inner": inner, "handle": 7}
        assert outer.to_dict(include_opaque=False) == {"inner": outer.inner}


class TestSerialisation:
    def test_to_state_dict(self):
        payload = state().to_state_dict()
        assert payload["version"] == 1
        assert (
            json.loads(json.dumps(payload["manifest"], allow_nan=False)) == payload["manifest"]
        )  # JSON-safe
        (record,) = payload["arrays"].values()
        assert (record["dtype"], record["shape"]) == ("float32", [4])  # shape/dtype metadata
        (array,) = payload["array_data"].values()
        assert type(array) is np.ndarray and array.tolist() == [
            1,
            1,
            1,
            1,
        ]  # in-memory NumPy arrays
        restored = TrainState.from_state_dict(payload)
        assert restored == state()

    def test_export_and_load(self, tmp_path):
        first, target = state(), tmp_path / "checkpoints/step_100"
        # Write to a directory:
        first.export(str(target))
        assert {p.name for p in target.iterdir()} == {"manifest.json", "arrays.npz"}
        # Or write a zip archive:
        first.export(f"{target}.zip")
        assert set(zipfile.ZipFile(f"{target}.zip").namelist()) == {"manifest.json", "arrays.npz"}
        # Load back (class is inferred from the manifest):
        restored = TrainState.load(target)
        assert restored == first == s.load(target) == TrainState.load(f"{target}.zip")
        # Optionally enforce the expected class:
        restored = TrainState.load(target, load_cls=...)
        assert (
            restored
            == first
            == TrainState.load(target, load_cls=TrainState)
            == s.Struct.load(target)
        )
        assert TrainState.from_state_dict(first.to_state_dict(), load_cls=...) == first
        with refused(s.SerializationError, "NQX401", "Dataset"):
            TrainState.load(target, load_cls=Dataset)
        with refused(TypeError, "load_cls=", "TrainState"):
            s.load(target, load_cls="TrainState")

    def test_the_manifest_names_the_class_and_both_files_are_the_checkpoint(self, tmp_path):
        target = state().export(tmp_path / "a")
        manifest = json.loads((target / "manifest.json").read_text())
        assert manifest["manifest"]["type"] == f"{__name__}:TrainState"
        with np.load(target / "arrays.npz") as arrays:
            assert [arrays[name].tolist() for name in arrays.files] == [[1, 1, 1, 1]]

    def test_an_existing_target(self, tmp_path):
        state().export(tmp_path / "a")
        with pytest.raises(FileExistsError):
            state().export(tmp_path / "a")
        assert (
            TrainState.load(state().replace(step=9).export(tmp_path / "a", overwrite=True)).step
            == 9
        )

    def test_nested_structs_registered_types_and_arrays(self):
        class Tree(s.Struct):
            inner: object
            node: object
            host: object

        Local = make(Node)
        s.register_pytree_type(
            Local,
            flatten=lambda n: ([n.data], n.tag),
            unflatten=lambda aux, children: Local(children[0], aux),
        )
        tree = Tree(state(), Local(jnp.ones(3), "x"), np.arange(3))
        again = Tree.from_state_dict(tree.to_state_dict())
        assert again.inner == tree.inner and type(again.host) is np.ndarray
        assert again.node.tag == "x" and again.node.data.tolist() == [1, 1, 1]

    def test_the_policy_per_field(self):
        class State(s.Struct):
            params: object
            cache: object = s.field(pytree=False, serialize=True)  # opaque but saved
            debug: str = s.field(static=True, serialize=False)  # static but skipped

        payload = State(1.0, {"k": 2}, "x").to_state_dict()
        assert set(payload["manifest"]["fields"]) == {"params", "cache"}
        with refused(s.SerializationError, "NQX414", "$.debug", "fill="):
            State.from_state_dict(payload)
        again = State.from_state_dict(payload, fill={"debug": "y"})
        assert (again.params, again.cache, again.debug) == (1.0, {"k": 2}, "y")


class TestRegistering:
    def test_register_class(self):
        @s.register_class
        class Params:
            weights: object
            bias: object = s.field(default_factory=lambda: jnp.zeros(1))

            def describe(self):
                return f"described {super().__repr__()}"

        p = Params(weights=jnp.ones(4))
        assert p.replace(bias=jnp.zeros(4)).bias.shape == (4,)  # Struct API available
        assert p.describe().startswith("described Params(weights=") and isinstance(p, s.Struct)
        original = Params.__mro__[1]
        assert original.__name__ == "Params" and "weights" in inspect.get_annotations(original)
        assert s.register_class(type("Direct", (), {"__annotations__": {"x": int}}))(1).x == 1

    def test_with_a_name(self):
        @s.register_class(name="TrainingParams")
        class Params: ...

        assert Params.__name__ == "TrainingParams" and s.class_ref(Params).endswith(
            "TrainingParams"
        )
        assert repr(Params()) == "TrainingParams()"

    def test_dataclass(self):
        @s.dataclass
        class MyConfig:
            lr: float = s.field(static=True, default=1e-3)

        assert MyConfig().lr == 1e-3 and s.dataclass is s.register_class

    def test_register_pytree_type(self):
        Local = make(Node)
        s.register_pytree_type(
            Local,
            flatten=lambda obj: ([obj.data], obj.tag),
            unflatten=lambda aux, children: Local(children[0], aux),
        )
        # Local is now a JAX pytree:
        leaves = jax.tree_util.tree_leaves(Local(jnp.ones(3), "x"))  # [array([1,1,1])]
        assert [leaf.tolist() for leaf in leaves] == [[1, 1, 1]]

    def test_flatten_with_keys(self):
        Local = make(Node)
        s.register_pytree_type(
            Local,
            flatten=lambda obj: ([obj.data], obj.tag),
            unflatten=lambda aux, children: Local(children[0], aux),
            flatten_with_keys=lambda obj: (
                [(jax.tree_util.GetAttrKey("data"), obj.data)],
                obj.tag,
            ),
        )
        names = []
        jax.tree_util.tree_map_with_path(
            lambda path, x: names.append(jax.tree_util.keystr(path)), Local(1.0, "x")
        )
        assert names == [".data"]

    def test_serializer_and_deserializer(self, tmp_path):
        Local = make(Node)
        s.register_pytree_type(
            Local,
            flatten=lambda obj: ([obj.data], obj.tag),
            unflatten=lambda aux, children: Local(children[0], aux),
            serializer=lambda obj: {"tag": repr(obj.tag)},
            deserializer=lambda payload, children: Local(children[0], eval(payload["tag"])),
        )
        tag = slice(1, 2, "not JSON")
        again = s.load(s.export(Local(jnp.ones(3), tag), tmp_path / "a"))
        assert again.tag == tag and again.data.tolist() == [1, 1, 1]

    def test_register_attrs_type(self):
        Local = make(Edge)
        s.register_attrs_type(
            Local,
            node_fields=("flux",),
            static_fields=("source", "target"),
        )
        e = Local(jnp.array(1.5), source=0, target=3)
        # JAX now sees Edge as a pytree with one leaf (flux)
        # and static aux (source, target).
        assert jax.tree.leaves(e) == [e.flux]
        doubled = jax.tree.map(lambda x: 2 * x, e)
        assert (float(doubled.flux), doubled.source, doubled.target) == (3.0, 0, 3)
        traces = []
        run = jax.jit(lambda e: traces.append(e.target) or e.flux)
        for target in (3, 3, 4):
            run(Local(1.0, 0, target))
        assert traces == [3, 4]

    def test_with_a_constructor(self):
        Local = make(Edge)
        seen = []
        s.register_attrs_type(
            Local,
            node_fields=("flux",),
            static_fields=("source", "target"),
            constructor=lambda vals: (
                seen.append(vals) or Local(vals["flux"], vals["source"], vals["target"])
            ),
        )
        again = jax.tree.map(lambda x: x + 1, Local(1.0, 0, 3))
        assert (again.flux, again.source, again.target) == (2.0, 0, 3)
        assert seen == [{"flux": 2.0, "source": 0, "target": 3}]

    def test_checking_and_resolving(self, monkeypatch):
        module = types.ModuleType("mymodule")
        monkeypatch.setitem(sys.modules, "mymodule", module)
        module.Node = Local = type(
            "Node", (), {"__init__": Node.__init__, "__module__": "mymodule"}
        )
        assert s.is_registered_pytree_type(Local) is False
        flatten, unflatten = (
            lambda obj: ([obj.data], obj.tag),
            lambda aux, children: Local(children[0], aux),
        )
        s.register_pytree_type(Local, flatten=flatten, unflatten=unflatten)
        assert s.is_registered_pytree_type(Local) is True
        spec = s.resolve_pytree_spec("mymodule:Node")
        assert spec.cls is Local
        assert spec.flatten is flatten  # the flatten callable
        assert spec.unflatten is unflatten  # the unflatten callable


class TestClassRegistry:
    def test_refs(self):
        assert s.class_ref(TrainState) == f"{__name__}:TrainState"
        assert s.resolve_class(f"{__name__}:TrainState") is TrainState

    def test_cache_then_import_then_cache(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "seed_registry_module.py").write_text(
            "import neuralqx_struct as s\nclass A(s.Struct):\n    x: int = 1\nclass Plain: pass\n"
        )
        assert "seed_registry_module" not in sys.modules
        found = s.resolve_class("seed_registry_module:A")
        assert found().x == 1
        monkeypatch.delitem(sys.modules, "seed_registry_module")
        assert s.resolve_class("seed_registry_module:A") is found  # in the process cache

    def test_structs_and_registered_types_are_added_at_once(self):
        class Local(s.Struct):
            x: int

        Other = make(Edge)
        s.register_attrs_type(Other, node_fields=("flux",))
        assert (
            s.resolve_class(s.class_ref(Local)) is Local
            and s.resolve_class(s.class_ref(Other)) is Other
        )


class Params(s.Struct):
    w: object
    b: object
    lr: float = s.field(static=True, default=1e-3)


class TestJax:
    def test_the_block(self):
        p = Params(w=jnp.ones(4), b=jnp.zeros(4))

        # tree operations
        leaves = jax.tree_util.tree_leaves(p)  # [w_array, b_array]
        assert leaves[0] is p.w and leaves[1] is p.b and len(leaves) == 2
        zeros = jax.tree_util.tree_map(jnp.zeros_like, p)  # new Params with zero arrays
        assert zeros == Params(jnp.zeros(4), jnp.zeros(4))

        # jit: re-traces only when static field 'lr' changes
        traces = []

        @jax.jit
        def step(params, grad):
            traces.append(params.lr)
            return jax.tree_util.tree_map(lambda p, g: p - params.lr * g, params, grad)

        # grad: differentiates through node fields
        def loss(params):
            return jnp.sum(params.w**2)

        g = jax.grad(loss)(p)  # g is a Params with gradient arrays
        assert g == Params(2 * jnp.ones(4), jnp.zeros(4))
        assert (
            isinstance(step(p, g), Params)
            and isinstance(step(step(p, g), g), Params)
            and traces == [1e-3]
        )
        step(p.replace(lr=0.1), g.replace(lr=0.1))
        assert traces == [1e-3, 0.1]

        # vmap: batches over node fields
        batch = jax.tree_util.tree_map(lambda x: jnp.stack([x, x]), p)  # "batch of 2"
        assert jax.vmap(loss)(batch).tolist() == [4.0, 4.0]

    def test_each_combination_of_static_values_is_a_specialisation(self):
        traces = []
        run = jax.jit(lambda t: traces.append((t.step, t.tag)) or t.params)
        for step, tag in [(0, "a"), (1, "a"), (0, "b"), (1, "a"), (0, "a")]:
            run(TrainState(1.0, step, tag))
        assert traces == [(0, "a"), (1, "a"), (0, "b")]

    def test_opaque_objects_are_passed_through_by_identity(self):
        class Run(s.Struct):
            x: object
            handle: object = s.field(pytree=False, default=None)

        handle, traces = object(), []
        run = jax.jit(lambda r: traces.append(r.handle) or jax.tree.map(lambda x: x + 1, r))
        again = run(run(Run(1.0, handle)))
        assert again.handle is handle and all(seen is handle for seen in traces)
        assert jax.tree.map(lambda x: x, Run(1.0, handle)).handle is handle


class TestAbstractStructs:
    def test_the_block(self):
        class AbstractSolver(s.Struct, metaclass=s.StructABCMeta):
            lr: float = s.field(static=True)

            @abc.abstractmethod
            def step(self, params): ...

        class SGD(AbstractSolver):
            def step(self, params):
                return jax.tree_util.tree_map(lambda p: p - self.lr, params)

        assert SGD(lr=0.5).step({"w": 1.0}) == {"w": 0.5}
        with pytest.raises(TypeError, match="AbstractSolver.*step"):
            AbstractSolver(lr=0.5)

        class Unfinished(AbstractSolver):
            momentum: float = 0.0

        with pytest.raises(TypeError, match="step"):
            Unfinished(lr=0.5)
        assert issubclass(s.StructABCMeta, s.StructMeta) and issubclass(
            s.StructABCMeta, abc.ABCMeta
        )
