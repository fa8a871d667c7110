"""What rich, treescope and notebooks show of Structs, states and params, and that it is neither long, slow nor failing."""

import collections
import dataclasses
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import treescope
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.pretty import pretty_repr

import neuralqx_struct as s
from neuralqx_struct.printing import brief
from tests.builders import bounded, every


class Inner(s.Struct):
    w: object
    name: str = s.field(static=True, default="inner")


class Outer(s.Struct):
    inner: object
    secret: object = s.field(repr=False, default=None)
    norm: object = s.field(pytree=False, derived=lambda self: computed.append(1) or 5.0)


computed = []


class Loud:
    def __repr__(self):
        raise RuntimeError("no")


class Hostile:
    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        return "Hostile()"


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Record:
    x: object
    y: object = dataclasses.field(default=0, repr=False)


def deleted():
    array = jnp.ones(3)
    array.delete()
    return array


def donated():
    state = Inner(jnp.ones(4))
    jax.jit(lambda inner: jax.tree.map(lambda x: x + 1, inner), donate_argnums=0)(state)
    return state.w


def sharded():
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    return jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("d")))


def deep(n):
    value = 1.0
    for _ in range(n):
        value = Inner(value)
    return value


def deep_list(n):
    value = []
    for _ in range(n):
        value = [value]
    return value


def endless():
    value = []
    value.append(value)
    return value


VALUES = {
    "small array": lambda: jnp.arange(3.0),
    "large array": lambda: np.zeros((1000, 1000)),
    "large jax array": lambda: jnp.zeros((1000, 1000)),
    "deleted": deleted,
    "donated": donated,
    "sharded": sharded,
    "typed key": lambda: jax.random.key(0),
    "typed keys": lambda: jax.random.split(jax.random.key(0), 3),
    "abstract": lambda: jax.ShapeDtypeStruct((3,), jnp.float32),
    "None": lambda: None,
    "object": object,
    "repr fails": Loud,
    "attributes fail": Hostile,
    "list of failures": lambda: [Loud()] * 3,
    "huge dict": lambda: {i: jnp.float32(1) for i in range(2)} | dict.fromkeys(range(100_000), 1.0),
    "huge list": lambda: [1.0] * 100_000,
    "huge set": lambda: set(range(100_000)),
    "huge text": lambda: "x" * 10_000_000,
    "huge integer": lambda: 10**5000,
    "object array": lambda: np.array([object()] * 10, dtype=object),
    "deep struct": lambda: deep(400),
    "deep list": lambda: deep_list(100_000),
    "endless list": endless,
    "wide and deep": lambda: [[[[[[0] * 30] * 30] * 30] * 30] * 30] * 30,
    "namedtuple": lambda: Pair(jnp.ones(2), Loud()),
    "dataclass": lambda: Record(jnp.ones(2)),
    "ordered": lambda: collections.OrderedDict(a=jnp.ones(9), b=1),
    "default": lambda: collections.defaultdict(list, a=[1]),
    "proxy": lambda: types.MappingProxyType({"a": jnp.ones(9)}),
    "deque": lambda: collections.deque([1, 2]),
    "bfloat16": lambda: jnp.ones(3, jnp.bfloat16),
}
FORMS = {
    "repr": repr,
    "rich": pretty_repr,
    "treescope text": treescope.render_to_text,
    "html": lambda value: (
        treescope.render_to_html(value, compressed=False) + value._repr_mimebundle_()["text/plain"]
    ),
}


@every("form", FORMS)
@every("case", VALUES)
def test_every_value_is_shown_in_every_form(case, form):
    value = object.__new__(Inner)
    value.__dict__["w"] = VALUES[case]()  # as it is: no constructor looks at it
    with bounded():
        text = FORMS[form](value)
        assert isinstance(text, str) and "Inner" in text
        assert len(text) < {"html": 400_000}.get(form, 12_000)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_works_under_tracing(form):
    texts = []
    constant = jnp.arange(3.0)

    def f(inner):
        texts.append(FORMS[form](Outer(Inner([inner.w, constant]))))
        return inner

    for transform in (jax.jit, jax.vmap, lambda f: lambda x: jax.eval_shape(f, x)):
        transform(f)(Inner(jnp.ones((2, 3))))
    assert len(texts) >= 2 and all("float32" in text for text in texts)


@pytest.mark.parametrize("form", ["repr", "rich", "treescope text"])
def test_hidden_fields_are_hidden_and_pending_ones_not_computed(form):
    outer = jax.tree.map(lambda x: x, Outer(Inner(1.0), secret=2.0))
    computed.clear()
    text = FORMS[form](outer)
    assert "secret" not in text and "norm" not in text and not computed
    assert outer.norm == 5.0
    assert "norm" in FORMS[form](outer)
    FORMS[form]([outer, {"a": outer}])
    assert len(computed) == 1


@pytest.mark.parametrize("form", FORMS)
def test_hostile_texts_are_shown_harmless(form):
    evil = "<script>alert(1)</script>\x1b[31m\u202e\u200b[red]"
    value = Outer(Inner({evil: evil, "list": [evil], "w": jnp.ones(2)}))
    text = FORMS[form](value)
    assert not set(text) & set("\x1b\u202e\u200b") and "[red]" in text
    assert form != "html" or "<script>alert" not in text.removesuffix(repr(value))


def test_rich_lays_out_what_repr_says():
    assert (
        pretty_repr(Outer(Inner({"a": (1, None)})))
        == "Outer(inner=Inner(w={'a': (1, None)}, name='inner'), norm=5.0)"
    )
    assert pretty_repr(Inner({1})) == "Inner(w={1}, name='inner')"
    assert (
        pretty_repr(Inner(Pair(1, Record(2)))) == "Inner(w=Pair(a=1, b=Record(x=2)), name='inner')"
    )
    assert pretty_repr(Inner(jnp.zeros((3, 4)))) == "Inner(w=float32[3, 4], name='inner')"
    assert "... 99,989 more" in pretty_repr(Inner([0.0] * 100_000))
    assert pretty_repr(Inner) == repr(Inner)


def test_treescope_shows_arrays_and_names():
    text = treescope.render_to_text(Outer(Inner(jnp.arange(3.0))))
    assert "Inner" in text and "inner" in text and "Array([0., 1., 2.]" in text
    assert "Outer" in treescope.render_to_html(Outer(Inner(1)), compressed=False)
    assert "Outer" in treescope.render_to_text([Outer])


def test_states_and_params_are_shown_and_short():
    definition, state = s.split({str(i): float(i) for i in range(1000)}, ...)
    params = s.Params({("net", str(i)): s.Param(float(i)) for i in range(1000)})
    for value in (state, params):
        for form in FORMS.values():
            text = form(value)
            assert "State" in text or "Params" in text
            assert len(text) < 400_000
    assert repr(state).endswith("...: 960 more})") and len(repr(state)) < 1000
    assert repr(definition) == "<Definition of 1,000 leaves>"
    assert "    ... 940 more,\n" in repr(params)


def test_notebooks_without_treescope_fall_back_to_repr(monkeypatch):
    monkeypatch.setitem(sys.modules, "treescope", None)
    assert Inner(1)._repr_mimebundle_() is None


def test_nothing_is_imported_before_it_is_asked_for():
    code = "import neuralqx_struct as s; repr(s.Param(1)), s.Param(1).__rich_repr__(); import sys; "
    code += "assert not {'treescope', 'rich', 'IPython'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


@every(
    ("value", "text"),
    [
        (Pair(1, (2,)), "Pair(a=1, b=(2,))"),
        (Record(3), "Record(x=3)"),
        (collections.OrderedDict(a=1), "OrderedDict({'a': 1})"),
        (collections.deque([1, 2]), "deque([1, 2])"),
        (collections.defaultdict(int, a=1), "defaultdict({'a': 1})"),
        (types.MappingProxyType({"a": 1}), "mappingproxy({'a': 1})"),
        ({None: None}, "{None: None}"),
        (set(), "{}"),
        (frozenset([1]), "{1}"),
        (
            Outer(Inner([1.0] * 9)),
            "Outer(inner=Inner(w=[1.0, 1.0, 1.0, ..., 1.0], name='inner'), norm=5.0)",
        ),
        (deep_list(9), "[[[[[[[[[...]]]]]]]]]"),
        (np.float64, "<class 'numpy.float64'>"),
        ([Hostile()], "[<Hostile whose repr fails: RuntimeError>]"),
    ],
)
def test_brief_looks_into_what_has_no_repr_of_its_own(value, text):
    assert brief(value) == text


def test_a_repr_of_ones_own_is_respected():
    class Named(list):
        def __repr__(self):
            return "Named!"

    class Own(s.Struct):
        x: int = 0

        def __repr__(self):
            return "Own!"

    assert (
        brief([Named(), Own()]) == "[Named!, Own!]"
        and repr(Inner(Own())) == "Inner(w=Own!, name='inner')"
    )


def test_printing_transfers_no_large_array():
    class Watched(np.ndarray):
        def __repr__(self):
            raise AssertionError("printed")

    large = np.zeros(10_000).view(Watched)
    assert (
        brief({"a": [large], "b": Pair(large, 1)})
        == "{'a': [float64[10000]], 'b': Pair(a=float64[10000], b=1)}"
    )
