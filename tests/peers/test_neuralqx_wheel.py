"""The loader of the published neuraLQX: it gives its struct package, and starts nothing else of it."""

import hashlib
import pickle
import sys

import jax
import numpy as np
import pytest

from tests.programs import neuralqx

peer = neuralqx.load()


class State(peer.Struct):
    w: object
    name: str = peer.field(static=True, default="n")


def test_it_is_the_published_package_and_nothing_but_its_struct_package_is_there():
    assert neuralqx.load() is peer
    assert peer.__name__ == neuralqx.PACKAGE
    assert str(peer.__file__).startswith(str(neuralqx.wheel()))
    real = {
        name
        for name, module in sys.modules.items()
        if name.startswith("neuralqx.") and hasattr(module, "__file__")
    }
    assert all(name.startswith(peer.__name__) for name in real)
    with pytest.raises(ImportError):
        __import__("neuralqx.vqs")


def test_it_works(tmp_path):
    state = State(np.arange(3.0))
    mapped = jax.tree.map(lambda x: x + 1, state)
    assert (mapped.name, mapped.w.tolist()) == ("n", [1.0, 2.0, 3.0])
    path = state.export(tmp_path / "ckpt")
    assert State.load(path).w.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(AttributeError):
        state.w = 1
    assert pickle.loads(pickle.dumps(peer.FieldKind.NODE)) is peer.FieldKind.NODE


def test_another_file_is_refused(tmp_path, monkeypatch):
    other = tmp_path / neuralqx.FILE
    other.write_bytes(b"another")
    monkeypatch.setenv("NEURALQX_WHEEL", str(other))
    with pytest.raises(ImportError, match=hashlib.sha256(b"another").hexdigest()):
        neuralqx.wheel()


def test_no_wheel_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURALQX_WHEEL", str(tmp_path / "cache" / neuralqx.FILE))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ImportError, match="NEURALQX_WHEEL"):
        neuralqx.wheel()


def test_it_does_not_stand_in_for_a_neuralqx_that_runs():
    with pytest.raises(ImportError, match="neuralqx: "):
        neuralqx.load.__wrapped__()
