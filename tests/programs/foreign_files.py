"""Writes tests/golden/foreign: files of torch, of NetKet and of nqxpack, which the tests read without either. Needs the extra ``slow``.

python -m tests.programs.foreign_files FOLDER
"""

import os
import sys
from pathlib import Path

os.environ["NETKET_ENABLE_X64"] = "1"
os.environ["NETKET_SHARDING"] = "0"


def torch_file(path):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7}
    torch.save({**held, "half": torch.arange(4.0, dtype=torch.bfloat16)}, path)


def netket_files(folder):
    import netket

    from neuralqx_struct.integrations.netket import to_struct

    hilbert = netket.hilbert.Spin(0.5, 4)
    sampler = netket.sampler.MetropolisLocal(hilbert, n_chains=4)
    model = netket.models.RBM(alpha=1, param_dtype=complex)
    state = netket.vqs.MCState(sampler, model, n_samples=16, seed=3, sampler_seed=4)
    operator = netket.operator.IsingJax(hilbert, netket.graph.Chain(4), h=1.0)
    driver = netket.driver.VMC(operator, netket.optimizer.Adam(0.01), variational_state=state)
    log = netket.logging.JsonLog(str(folder / "netket"), save_params_every=1)
    driver.run(2, out=log, show_progress=False)
    to_struct(state, driver).export(folder / "netket_state.zip")
    nqxpack_file(state, folder / "netket.nk")
    (folder / "netket.log").unlink()


def nqxpack_file(state, path):
    import nqxpack
    from nqxpack._src.metadata import generate_metadata

    generate_metadata.get_host_info = dict  # the same bytes on every machine
    nqxpack.save(state, path, options={"save_sample_cache": True})


if __name__ == "__main__":
    torch_file(Path(sys.argv[1], "torch.pt"))
    netket_files(Path(sys.argv[1]))
