"""Files of torch.save. Those that torch must read are slow tests, as few have it; checks before it are not."""

import contextlib
import io
import pickle
import sys
import zipfile
from importlib.util import find_spec

import numpy as np
import pytest

from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.manifest import Limits
from tests.builders import ROOT, bounded, refused


def archive(objects, *more, method=zipfile.ZIP_STORED):
    """A file like those of torch: a pickle, and other members."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as file:
        file.writestr("m/data.pkl", objects)
        for name in more:
            file.writestr(f"m/{name}", bytes(8))
    return made.getvalue()


def call(module, name, *arguments):
    """A pickle that calls something."""
    pickled = pickle.dumps(arguments, 2)[2:-1]
    return b"\x80\x02" + f"c{module}\n{name}\n".encode() + pickled + b"R."


OLD = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
EMPTY = pickle.dumps({}, 2)
REFUSED = {
    "old": (OLD + EMPTY, UntrustedError, "NQX502", "1.6"),
    "program": (archive(EMPTY, "constants.pkl"), UntrustedError, "NQX502", "TorchScript"),
    "deflated": (
        archive(bytes(10**6), method=zipfile.ZIP_DEFLATED),
        UntrustedError,
        "NQX508",
        "m/data.pkl",
    ),
    "memory": (
        archive(call("torch", "Tensor", 10**12)),
        UntrustedError,
        "NQX502",
        "Tensor",
    ),
    "bytes": (
        archive(call("builtins", "bytearray", 10**12)),
        UntrustedError,
        "NQX502",
        "bytearray",
    ),
    "cut": (archive(EMPTY)[:-5], IntegrityError, "NQX408", "m.pt"),
    "large": (archive(bytes(3000)), SerializationError, "NQX005", 2500),
}


@pytest.mark.parametrize(("data", "kind", "code", "named"), REFUSED.values(), ids=REFUSED)
def test_files_that_torch_does_not_see(tmp_path, data, kind, code, named):
    (tmp_path / "m.pt").write_bytes(data)
    with bounded(), refused(kind, code, named):
        formats.opened(tmp_path / "m.pt", limits=Limits(manifest_bytes=20_000))
    assert [
        d.code for d in formats.verify(tmp_path / "m.pt", limits=Limits(manifest_bytes=20_000))
    ] == [code]


def test_recognised_and_refused_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "weights").write_bytes(archive(EMPTY))
    assert formats.recognised(tmp_path / "weights").name == "torch"
    with refused(SerializationError, "NQX615", "[torch]"):
        formats.opened(tmp_path / "weights")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a.txt", "a")
    assert formats.recognised(tmp_path / "other.zip") is None


def saved(path, value, **options):
    import torch

    torch.save(value, path, **options)
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tensors_and_values(tmp_path):
    import ml_dtypes
    import torch

    tree = {
        "model": {"w.1": torch.arange(6.0).reshape(2, 3), "p": torch.nn.Parameter(torch.ones(2))},
        "bf": torch.ones(3, dtype=torch.bfloat16),
        "f8": torch.tensor([1.0, 2]).to(torch.float8_e4m3fn),
        "complex": torch.tensor([1 + 2j]).conj(),
        "on": torch.tensor([True]),
        "step": torch.tensor(5),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "spread": torch.ones(1).expand(10),
        "none": torch.zeros(0, 3),
        "list": [torch.ones(1), 1, 0.5, "x", None, True],
        0: {"dtype": torch.float32, "size": torch.Size([1, 2])},
        "phase": 1 + 2j,
        "sparse": torch.eye(2).to_sparse(),
        "meta": torch.ones(2, device="meta"),
    }
    path = saved(tmp_path / "m.pt", tree)
    with formats.opened(path) as file:
        arrays = file.arrays
        assert file.values == {
            "list.1": 1,
            "list.2": 0.5,
            "list.3": "x",
            "list.4": None,
            "list.5": True,
            "0.dtype": "torch.float32",
            "0.size.0": 1,
            "0.size.1": 2,
        }
        for name in ("sparse", "meta"):
            assert not arrays[name].readable
            with refused(SerializationError, "NQX411", f"$.arrays.{name}"):
                arrays[name].read()
    assert arrays["model.w.1"].read().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not arrays["model.w.1"].read().flags.writeable
    assert arrays["bf"].read().dtype == ml_dtypes.bfloat16
    assert arrays["f8"].read().tolist() == [1, 2]
    assert arrays["complex"].read().tolist() == [1 - 2j]
    assert arrays["turned"].read().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert arrays["spread"].read().shape == (10,)
    assert arrays["none"].shape == (0, 3)
    assert arrays["phase"].read() == 1 + 2j
    assert {d.code for d in formats.verify(path)} == {"NQX411"}
    optimizer = torch.optim.Adam(torch.nn.Linear(2, 3).parameters())
    with formats.opened(saved(tmp_path / "o.pt", optimizer.state_dict())) as file:
        assert file.values["param_groups.0.betas.1"] == 0.999
    with formats.opened(saved(tmp_path / "t.pt", torch.ones(2))) as file:
        assert file.arrays[""].read().tolist() == [1, 1]


@pytest.mark.slow
def test_hostile_files(tmp_path):
    import torch

    shared = [torch.ones(1)]
    for _ in range(40):
        shared = [shared, shared]
    deep = []
    for _ in range(400):
        deep = [deep]
    spread = torch.ones(1).expand(10**12)
    for value, code, named in [
        (shared, "NQX005", 1_000_000),
        (deep, "NQX005", 200),
        (spread, "NQX505", 4_000_000_000_000),
        (torch.nn.Linear(2, 3), "NQX502", "torch.nn.modules.linear.Linear"),
        ({(1, 2): 3}, "NQX612", (1, 2)),
        ({1: 1, "1": 2}, "NQX408", "m.pt"),
    ]:
        path = saved(tmp_path / "m.pt", value)
        with bounded(), refused(SerializationError, code, named):
            formats.opened(path)
    path = saved(tmp_path / "m.pt", torch.arange(1000.0))
    data = bytearray(path.read_bytes())
    data[data.index(b"data.pkl") + 100] ^= 0xFF
    path.write_bytes(bytes(data))
    with contextlib.suppress(IntegrityError, UntrustedError):
        formats.opened(path)
    with refused(IntegrityError, "NQX408", "m.pt"):
        path.write_bytes(archive(EMPTY[:-1], "version"))
        formats.opened(path)


@pytest.mark.slow
def test_tensors_stay_readable_when_the_file_is_closed(tmp_path):
    import torch

    path = saved(tmp_path / "m.pt", {"w": torch.arange(1000.0)})
    with formats.opened(path) as file:
        array = file.arrays["w"]
    assert array.read().sum() == np.arange(1000.0).sum()


def test_a_file_that_torch_wrote():
    """It passes all checks before torch; without torch the error names the extra."""
    path = ROOT / "tests/golden/foreign/torch.pt"
    if find_spec("torch") is None:
        with refused(SerializationError, "NQX615", "neuralqx-struct[torch]"):
            formats.opened(path)
        return
    with formats.opened(path) as file:
        arrays = file.arrays
        assert file.values["epoch"] == 7 and file.values["optimizer.param_groups.0.lr"] == 0.001
        assert arrays["model.weight"].shape == (2, 3)
        assert arrays["optimizer.state.1.exp_avg"].read().tolist() == [np.float32(0.1)] * 2
        assert arrays["half"].read().tolist() == [0, 1, 2, 3]
