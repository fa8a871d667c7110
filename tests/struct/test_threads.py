"""Many threads at once: classes, registrations, derived fields, schemas, saving and imports come out as in one thread."""

import collections
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s

THREADS = 8
CLASSES = 50


@pytest.fixture(autouse=True)
def restless():
    """Threads change places as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(function, arguments):
    """The results of a function for each argument, each in a thread of its own, all started at once."""
    gate = threading.Barrier(len(arguments))

    def run(argument):
        gate.wait()
        return function(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return [
            future.result() for future in [pool.submit(run, argument) for argument in arguments]
        ]


def struct_class(name):
    class Made(s.Struct):
        __qualname__ = name
        x: object
        n: int = s.field(static=True, default=2, converter=int, validator=lambda n: n > 0)
        total: object = s.field(pytree=False, derived=lambda self: self.x.sum())

    return Made(jnp.arange(3.0), n="3")


def promoted_class(name):
    @s.register_class(name=name)
    class Made:
        x: object
        n: int = s.field(static=True, default=3)

    return Made(jnp.arange(3.0))


class Plain:
    def __init__(self, x, n=3):
        self.x, self.n = x, n


def pytree_class(name):
    cls = type(name, (Plain,), {"__module__": __name__})
    s.register_pytree_type(
        cls, flatten=lambda m: ((m.x,), m.n), unflatten=lambda n, xs: cls(xs[0], n)
    )
    return cls(jnp.arange(3.0))


def attrs_class(name):
    cls = type(name, (Plain,), {"__module__": __name__})
    s.register_attrs_type(cls, node_fields=("x",), static_fields=("n",))
    return cls(jnp.arange(3.0))


MAKERS = (struct_class, promoted_class, pytree_class, attrs_class)


def life_of_a_class(name, maker, path):
    """Everything that happens to a class and an instance, told in values that can be compared."""
    instance = maker(name)
    cls = type(instance)
    doubled = jax.tree.map(lambda x: x * 2, instance)
    told = [
        s.resolve_class(s.class_ref(cls)) is cls,
        type(doubled) is cls,
        doubled.x.tolist(),
        doubled.n,
    ]
    told.append(float(getattr(doubled, "total", 6.0)))
    told.append(str(jax.tree.structure(instance)).replace(name, "Made"))
    if path is not None:
        told.append(jax.jit(lambda m: jax.tree.map(lambda x: x + m.n, m))(instance).x.tolist())
        s.export(instance, path)
        back = s.load(path)
        told += [type(back) is cls, back.x.tolist(), back.n, s.verify(path)]
    return told


def lives(thread, folder):
    """50 classes; some of them are compiled and saved, which is what takes time."""
    return [
        life_of_a_class(
            f"{folder.name}_{thread}_{i}",
            MAKERS[i % 4],
            folder / f"{thread}_{i}" if i < 8 else None,
        )
        for i in range(CLASSES)
    ]


def test_classes_live_in_many_threads_as_in_one(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    alone = lives(0, tmp_path / "one")
    assert all(told[:2] == [True, True] for told in alone)
    assert (
        together(lambda thread: lives(thread, tmp_path / "many"), range(THREADS))
        == [alone] * THREADS
    )


def test_a_type_is_registered_once():
    for i in range(CLASSES):
        cls = type(f"Once{i}", (Plain,), {"__module__": __name__})

        def register(thread, cls=cls):
            try:
                s.register_attrs_type(
                    cls, node_fields=("x",), constructor=lambda values: cls(**values, n=thread)
                )
            except ValueError as error:
                return "already" in str(error) or "registered" in str(error)
            return "first"

        assert sorted(map(str, together(register, range(4)))) == ["True", "True", "True", "first"]


class Pending(s.Struct):
    x: object
    cache: dict = s.field(pytree=False, reset=True, default_factory=dict)
    a: object = s.field(pytree=False, derived=lambda self: [self.b, self.x])
    b: object = s.field(pytree=False, derived=lambda self: [self.x])


def test_a_pending_field_is_the_same_for_all_who_read_it_first():
    for i in range(200):
        pending = jax.tree.map(lambda x: x, Pending(float(i)))
        read = together(
            lambda name, pending=pending: getattr(pending, name), ["a", "b", "cache", "x"] * 2
        )
        assert (
            read[0] is read[4]
            and read[1] is read[5]
            and read[2] is read[6]
            and read[3] == read[7] == float(i)
        )
        assert (
            read[0][0] is read[1]
            and pending.a is read[0]
            and pending.b is read[1]
            and pending.cache is read[2]
        )


SCHEMA = """
language: "1"
schema: threads.point_{i}
version: 1
root: Point
structs:
  Point: {{fields: {{x: "float32[n]", label: {{type: str, kind: static, default: here}}}}}}
"""


def test_one_schema_gives_one_set_of_classes():
    for i in range(5):
        roots = together(lambda _, i=i: s.load_schema(SCHEMA.format(i=i)).root, range(THREADS))
        assert set(roots) == {roots[0]}
        assert roots[0](x=jnp.ones(3)).label == "here"


def test_exports_to_one_path_leave_one_complete_bundle(tmp_path):
    class State(s.Struct):
        w: object
        n: int

    for suffix in ("", ".zip"):
        path = tmp_path / f"ckpt{suffix}"
        for _ in range(3):
            together(
                lambda n, path=path: s.export(State(np.full(1000, n), n), path, overwrite=True),
                range(THREADS),
            )
            assert s.verify(path) == []
            back = s.load(path, load_cls=State, mmap=False)
            assert back.n in range(THREADS) and (back.w == back.n).all()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ckpt", "ckpt.zip"]


def test_one_export_wins_where_nothing_may_be_overwritten(tmp_path):
    def save(n):
        try:
            return s.export([n], tmp_path / "ckpt").name
        except FileExistsError:
            return None

    assert together(save, range(THREADS)).count("ckpt") == 1
    assert s.verify(tmp_path / "ckpt") == [] and [e.name for e in tmp_path.iterdir()] == ["ckpt"]


IMPORTS = """
import sys, threading
import neuralqx_struct as s
sys.setswitchinterval(1e-6)
names = [name for name in s.__all__ if name != "__version__"]
gate, failed = threading.Barrier(16), []

def read(first):
    gate.wait()
    for name in names[first:] + names[:first]:
        try:
            getattr(s, name)
        except BaseException as error:
            failed.append((name, repr(error)))

threads = [threading.Thread(target=read, args=(3 * i,)) for i in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failed, failed
assert s.Struct is __import__("neuralqx_struct.struct").struct.Struct
"""


def test_names_are_imported_by_many_threads_at_once():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "size", "how"),
    [
        ("folder", 1 << 18, {}),
        ("zip.zip", 1 << 18, {}),
        ("between", 20_000, {}),  # gathered with others, larger than what is copied anyway
        ("packed", 1 << 16, {"compress": True}),
        ("tensors", 1 << 18, {"store": "safetensors"}),
        ("orbax", 1 << 18, {"store": "orbax"}),
    ],
)
def test_an_array_that_another_thread_writes_into_gives_a_bundle_without_damage(
    tmp_path, name, size, how
):
    array, stop = np.zeros(size), threading.Event()

    def write():
        while not stop.is_set():
            array[:] = array[0] + 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        paths = [
            s.export({"w": array, "views": [array[1:]]}, tmp_path / f"{i}{name}", **how)
            for i in range(3)
        ]
    finally:
        stop.set()
        writer.join()
    assert [found for path in paths for found in s.verify(path)] == []


class Busy:
    """While it is being saved, somebody writes into the container that it stands in."""

    def __init__(self, act):
        self.act = act


s.register_pytree_type(
    Busy, flatten=lambda busy: ((busy.act(),), None), unflatten=lambda _, children: Busy(*children)
)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, set, collections.deque, list])
def test_a_container_that_another_thread_writes_into_is_saved_as_it_was(kind):
    held = kind()
    if isinstance(held, dict):
        held.update({i: i for i in range(9)} | {"busy": Busy(lambda: held.update({len(held): 1}))})
    elif isinstance(held, set):
        held |= {*range(9), Busy(lambda: held.add(len(held)))}
    else:
        held.extend([Busy(lambda: held.append(len(held))), *range(9)])
    again = s.from_state_dict(s.to_state_dict(held))
    assert len(again) == 10 < len(held)
