"""neuralqx_struct.tools.tree_structs: the structs in plain trees, and their names."""

import pytest

from neuralqx_struct.tools.drafts import draft
from tests.builders import bounded, every


def node(kind, **members):
    return {"__kind__": kind, **members}


def array(*shape, dtype="float32"):
    return node("full", dtype=dtype, shape=list(shape), value=0)


def plain(**items):
    return node("dict", items=[[key, value] for key, value in items.items()])


def named(reference, **fields):
    return node("namedtuple", type=reference, fields=fields)


def listed(*items, kind="list"):
    return node(kind, items=list(items))


def texts(root):
    """The types of a draft by struct and field."""
    document = draft(root, None, "x")[1]
    return {
        struct: {name: field.text for name, field in declaration.fields.items()}
        for struct, declaration in document.structs.items()
    }


DENSE = plain(kernel=array(2, 3), bias=array(3))
WIDE = plain(kernel=array(3, 5), bias=array(5))
CONV = plain(kernel=array(2, 3, 4), bias=array(4))
STATE = {"value": "float32[n_value]"}


@every(
    ("root", "structs"),
    [
        (plain(layers=listed(DENSE, WIDE)), {"State": "list[Layer]", "Layer": None}),
        (plain(dense_0=DENSE, dense_1=WIDE), {"State": "list[Dense]", "Dense": None}),
        (plain(dense_0=DENSE, head=WIDE), {"State": "Dense, Dense", "Dense": None}),
        (plain(dense_0=DENSE, dense_1=CONV), {"State": "Dense, Dense2", "Dense": None}),
        (plain(dense_0=DENSE, dense_2=DENSE), {"State": "Dense, Dense", "Dense": None}),
        (plain(dense_0=DENSE, dense_1=WIDE, dense=1), {"State": "Dense, Dense, int"}),
        (plain(loss=DENSE), {"State": "Loss", "Loss": None}),
        (plain(int=DENSE), {"State": "Int", "Int": None}),
        (plain(a=plain(state=DENSE)), {"State": "A", "A": "State2", "State2": None}),
        (plain(**{"0": DENSE, "1": WIDE}), {"State": "list[Value]", "Value": None}),
        (plain(m=plain(**{"a b": DENSE})), {"State": "dict[str, M]", "M": None}),
        (plain(m=plain(export=DENSE)), {"State": "dict[str, M]", "M": None}),
        (listed(DENSE, CONV), {"State": "tuple[Value, Value2]"}),
        (
            listed(plain(a=DENSE), plain(a=plain(kernel=array(2, 3))), plain(a=DENSE)),
            {"State": "list[Value]", "A": "float32[n_kernel_0, size_3], float32[size_3] | null"},
        ),
        (
            plain(
                b_0=plain(l=listed(plain(q=DENSE, rel=array(2)), plain(w=1))),
                b_1=plain(l=listed(plain(q=DENSE), plain(w=1))),
            ),
            {"State": "list[B]", "B": "tuple[L, L2]", "L": "Q, float32[size_2] | null"},
        ),
        (listed(plain(a=1, b=2), plain(c=1, b=2)), {"State": "tuple[Value, Value2]"}),
        (listed(DENSE, plain(kernel=array(2, 3)), kind="tuple"), {"State": "tuple[Value, Value2]"}),
        (listed(DENSE, None, WIDE), {"State": "list[Value | null]"}),
        (listed(DENSE, DENSE, kind="tuple"), {"State": "list[Value]"}),
        (listed(array(2), array(3)), {"State": "list[float32[_]]"}),
        (
            listed(array(2), array(3), kind="tuple"),
            {"State": "tuple[float32[n_value], float32[n_value_1]]"},
        ),
        (listed(1, 2.5), {"State": "list[float]"}),
        (named("m:Adam", mu=DENSE, nu=WIDE), {"Adam": "Mu, Mu", "Mu": None}),
        (listed(named("m:A", x=1), named("n:A", x=2)), {"State": "tuple[A, A2]"}),
        (listed(named("m:A", b=None), named("m:A", b=array(2))), {"State": "list[A]"}),
        (listed(named("m:A", x=DENSE), named("m:A", x=CONV)), {"A": "pytree"}),
        (listed(named("m:A", x=DENSE), named("m:A", x=plain(y=1))), {"A": "X | X2"}),
        (named("m:Empty"), {"Empty": ""}),
        (plain(e=plain(), f=named("m:Empty")), {"State": "dict[str, pytree], Empty"}),
        (plain(a=node("set", items=[])), {"State": "pytree"}),
        (array(3), {"State": "float32[n_value]"}),
        (None, {"State": "pytree"}),
    ],
)
def test_structs(root, structs):
    found = {name: ", ".join(fields.values()) for name, fields in texts(root).items()}
    assert {name: found[name] for name in structs} == {
        name: found[name] if text is None else text for name, text in structs.items()
    }


def test_a_shared_struct_is_there_once():
    params = plain(encoder=listed(DENSE, WIDE), head=DENSE)
    found = texts(plain(params=params, opt=listed(named("o:Adam", mu=params, nu=params))))
    assert list(found) == ["State", "Params", "Encoder", "Adam"]
    assert found["Adam"] == {"mu": "Params", "nu": "Params"}


def test_equal_sizes_are_dims_of_all_structs():
    found = draft(plain(a=plain(w=array(7, 8)), b=plain(v=array(8, 9))), None, "x")[1]
    assert found.dims["size_8"].doc == "8 in the bundle"
    assert found.structs["A"].fields["w"].text == "float32[n_w_0, size_8]"
    assert found.structs["B"].fields["v"].text == "float32[size_8, n_v_1]"


def chain(depth):
    tree = array(2)
    for number in range(depth):
        tree = plain(a=tree, b=array(number))
    return tree


SLOW = {
    "deep": lambda: chain(190),
    "wide": lambda: plain(**{f"k{n}": array(n) for n in range(5000)}),
    "numbered": lambda: plain(**{f"k_{n}": plain(w=array(n)) for n in range(5000)}),
    "kinds": lambda: plain(**{f"k{n}x": plain(**{f"w{n}": array(n)}) for n in range(500)}),
    "mixed": lambda: listed(*[plain(**{f"w{n}": array(n)}) for n in range(1000)]),
}


@pytest.mark.parametrize("name", SLOW)
def test_drafts_of_trees_take_bounded_time(name):
    root = SLOW[name]()
    with bounded():
        assert draft(root, None, "x")[1].root == "State"
