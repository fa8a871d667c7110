"""States of NetKet as the shipped schema ``mc_state``, and runs that go on from a series bit by bit.

Importing NetKet switches JAX to double precision; here the fixture does, so that other tests keep theirs.
"""

import os
import pickle
import re
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import formats
from tests.builders import ROOT, refused

N = 6
FORM = ROOT / "schemas/mc_state"


def test_without_the_extra_an_error_names_it():
    code = """
import sys
sys.modules["netket"] = None
import neuralqx_struct.integrations.netket
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "NQX615" in ran.stderr and "neuralqx-struct[netket]" in ran.stderr


def test_what_netket_wrote_is_read_without_it(double):
    """A state as a bundle, and the parameters that NetKet saved itself after the same steps."""
    folder = ROOT / "tests/golden/foreign"
    path = folder / "netket_state.zip"
    assert s.validate(path, FORM) == [] == s.verify(path)
    state = s.load_schema(FORM).load(path)
    assert (state.step, state.n_samples, state.sampler.rule) == (2, 16, "local")
    assert type(state.parameters).__name__ == "RBM"
    names = {"Dense.bias": "hidden_bias", "Dense.kernel": "kernel", "visible_bias": "visible_bias"}
    with formats.opened(folder / "netket.mpack") as file:
        assert file.arrays.keys() == {f"params.{name}" for name in names}
        for name, field in names.items():
            value = file.arrays[f"params.{name}"].read()
            assert np.array_equal(value, getattr(state.parameters, field)) and value.any()


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("netket.vqs.base", "VariationalState", "to_struct(state) of neuralqx_struct.integrations"),
        (
            "netket._src.driver.abstract_variational_driver",
            "AbstractDriver",
            "to_struct(driver.state, driver) of neuralqx_struct.integrations",
        ),
    ],
)
def test_export_names_the_integration(module, name, words, tmp_path):
    """The package recognises the classes without importing NetKet."""
    base = type(name, (), {"__module__": module})
    state = type("MCState", (base,), {"__module__": "netket.vqs.mc.mc_state.state"})()
    with pytest.raises(s.SerializationError) as caught:
        s.export({"state": state}, tmp_path / "ck")
    (found,) = caught.value.diagnostics
    assert found.code == "NQX430" and words in found.hint


@pytest.fixture(scope="session")
def nk():
    """NetKet, imported without its switch to double precision."""
    os.environ.setdefault("NETKET_ENABLE_X64", "0")
    os.environ.setdefault("NETKET_SHARDING", "0")  # samplers of numpy take one device
    return pytest.importorskip("netket")


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def integration(nk, double):
    from neuralqx_struct.integrations import netket

    return netket


def chain(nk):
    return nk.hilbert.Spin(0.5, N)


def ising(nk, hilbert):
    return nk.operator.IsingJax(hilbert, nk.graph.Chain(N), h=1.0)


def field(nk, hilbert):
    """A Hamiltonian for the samplers that take an operator of numba."""
    return nk.operator.Ising(hilbert, nk.graph.Chain(N), h=1.0)


def rbm(nk, **_):
    return nk.models.RBM(alpha=1, param_dtype=complex)


def of(make, model=rbm, hilbert=chain, operator=ising):
    return make, model, hilbert, operator


def fermions(nk):
    return nk.hilbert.SpinOrbitalFermions(4, n_fermions=2)


def hopping(nk, hilbert):
    create, destroy = nk.operator.fermion.create, nk.operator.fermion.destroy
    pairs = [(i, (i + 1) % 4) for i in range(4)]
    hops = [
        create(hilbert, i) @ destroy(hilbert, j) for i, j in (*pairs, *((j, i) for i, j in pairs))
    ]
    ham = -sum(hops[1:], hops[0])
    return ham.to_jax_operator()


def particles(nk):
    return nk.experimental.hilbert.Particle(N=3, geometry=nk.experimental.geometry.FreeSpace(d=1))


def oscillators(nk, hilbert):
    potential = nk.operator.PotentialEnergy(hilbert, lambda x: 0.5 * jnp.sum(x**2))
    return nk.operator.KineticEnergy(hilbert, mass=1.0) + potential


def gaussian(nk, **_):
    return nk.models.Gaussian(param_dtype=float)


def autoregressive(nk, hilbert):
    return nk.models.ARNNDense(hilbert=hilbert, layers=2, features=4)


def local(nk, hilbert):
    return nk.sampler.MetropolisLocal(hilbert, n_chains=8)


def custom(nk, hilbert):
    rules = nk.sampler.rules
    both = rules.MultipleRules([rules.LocalRule(), rules.GlobalSpinFlipRule()], [0.8, 0.2])
    return nk.sampler.MetropolisSampler(hilbert, both, n_chains=8, reset_chains=True)


def moves(nk, hilbert):
    ops = [nk.operator.spin.sigmax(hilbert, i) for i in range(N)]
    return nk.sampler.MetropolisCustomNumpy(hilbert, move_operators=sum(ops), n_chains=8)


SAMPLERS = {
    "local": of(local),
    "dense": of(local, model=lambda nk, **_: nk.models.RBMModPhase(alpha=1)),
    "jastrow": of(local, model=lambda nk, **_: nk.models.Jastrow(param_dtype=complex)),
    "exchange": of(
        lambda nk, hilbert: nk.sampler.MetropolisExchange(
            hilbert, graph=nk.graph.Chain(N), n_chains=8
        )
    ),
    "hamiltonian": of(
        lambda nk, hilbert: nk.sampler.MetropolisHamiltonian(
            hilbert, hamiltonian=ising(nk, hilbert), n_chains=8
        )
    ),
    "rules": of(custom),
    "tempering": of(
        lambda nk, hilbert: nk.sampler.ParallelTemperingLocal(hilbert, n_replicas=4, n_chains=8)
    ),
    "exact": of(lambda nk, hilbert: nk.sampler.ExactSampler(hilbert)),
    "direct": of(lambda nk, hilbert: nk.sampler.ARDirectSampler(hilbert), model=autoregressive),
    "numpy": of(lambda nk, hilbert: nk.sampler.MetropolisLocalNumpy(hilbert, n_chains=8)),
    "numpy hamiltonian": of(
        lambda nk, hilbert: nk.sampler.MetropolisHamiltonianNumpy(
            hilbert, hamiltonian=field(nk, hilbert), n_chains=8
        ),
        operator=field,
    ),
    "numpy moves": of(moves),
    "fermions": of(
        lambda nk, hilbert: nk.sampler.MetropolisFermionHop(
            hilbert, graph=nk.graph.Chain(4), n_chains=8
        ),
        hilbert=fermions,
        operator=hopping,
    ),
    "gaussian": of(
        lambda nk, hilbert: nk.sampler.MetropolisGaussian(hilbert, sigma=0.5, n_chains=8),
        model=gaussian,
        hilbert=particles,
        operator=oscillators,
    ),
    "langevin": of(
        lambda nk, hilbert: nk.sampler.MetropolisAdjustedLangevin(hilbert, dt=0.1, n_chains=8),
        model=gaussian,
        hilbert=particles,
        operator=oscillators,
    ),
}


def made(nk, case, seed):
    """A state and a driver, and the class of the driver."""
    sampler, model, hilbert, operator = SAMPLERS[case]
    space = hilbert(nk)
    state = nk.vqs.MCState(
        sampler(nk, hilbert=space),
        model(nk, hilbert=space),
        n_samples=64,
        seed=seed,
        sampler_seed=seed + 1,
    )
    return state, driver_of(nk, state, operator(nk, space))


def driver_of(nk, state, operator, **options):
    optimiser = nk.optimizer.Adam(learning_rate=0.01)
    return nk.driver.VMC(operator, optimiser, variational_state=state, **options)


def words(tree):
    """The bits of all leaves, and the structure."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [_bits_of(leaf) for leaf in leaves]


def _bits_of(leaf):
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes() if hasattr(leaf, "dtype") else repr(leaf)


def _is_key(value):
    return jnp.issubdtype(getattr(value, "dtype", None), jax.dtypes.prng_key)


def bits(integration, driver):
    return words(integration.to_struct(driver.state, driver))


def quiet(driver, steps, *callbacks, **options):
    driver.run(steps, show_progress=False, callback=callbacks, **options)


needs_netket = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@needs_netket
@pytest.mark.parametrize("case", SAMPLERS)
def test_a_run_goes_on_bit_by_bit(case, nk, integration, tmp_path):
    state, driver = made(nk, case, 3)
    pickle.loads(pickle.dumps(state.sampler))
    log = nk.logging.RuntimeLog()
    keep = integration.SeriesCallback(s.Series(tmp_path / "run"), every=2)
    quiet(driver, 3, keep, out=log)
    assert keep.series.steps() == [2, 3]
    assert s.validate(tmp_path / "run/3", FORM) == s.verify(tmp_path / "run/3") == []
    middle = bits(integration, driver)
    quiet(driver, 2, keep, out=log)

    other_state, other = made(nk, case, 77)
    again = integration.SeriesCallback(s.Series(tmp_path / "run"), every=2)
    assert again.resume(other, 3) == other.step_count == 3
    assert bits(integration, other) == middle
    quiet(other, 2)
    assert bits(integration, other) == bits(integration, driver)
    assert np.array_equal(other_state.samples, state.samples)
    held = keep.series.load(5)
    assert np.array_equal(held.energy_history, np.asarray(log.data["Energy"]["Mean"], complex))


@needs_netket
def test_what_the_schema_describes_is_in_its_structs(nk, integration, tmp_path):
    held = integration.to_struct(made(nk, "local", 3)[0])
    assert type(held.parameters).__name__ == "RBM" and type(held.sampler).__name__ == "Sampler"
    assert (held.sampler.rule, held.sampler.sweep_size, held.n_samples) == ("local", N, 64)
    held = integration.to_struct(made(nk, "jastrow", 3)[0])
    assert type(held.parameters).__name__ == "Jastrow"
    held = integration.to_struct(made(nk, "tempering", 3)[0])
    assert held.sampler.name == "ParallelTemperingSampler" and "beta" in held.sampler.parts
    assert held.n_parameters == 48
    narrow = nk.vqs.MCState(local(nk, chain(nk)), narrow_model(), n_samples=64)
    held = integration.to_struct(narrow)  # of the names of the RBM, with another number of sites
    assert (held.parameters.kernel.shape, held.sampler.name) == ((4, 3), "MetropolisSampler")


def narrow_model():
    from flax import linen

    class Narrow(linen.Module):
        @linen.compact
        def __call__(self, x):
            dense = linen.Dense(3, name="Dense", param_dtype=complex)
            return jnp.sum(dense(x[..., :4]), axis=-1)

    return Narrow()


@needs_netket
def test_an_earlier_version_is_migrated_into_a_state(nk, integration, tmp_path):
    state, driver = made(nk, "local", 3)
    quiet(driver, 2)
    held = integration.to_struct(state)
    plain = held.replace(
        sr=integration._schema().StochasticReconfiguration(),
        optimizer=integration._schema().Optimizer(),
    )
    plain.export(tmp_path / "three")
    s.migrate(tmp_path / "three", tmp_path / "one", to=1, schema=FORM)
    fresh = made(nk, "local", 77)[0]
    integration.from_struct(s.load_schema(FORM).load(tmp_path / "one"), fresh)
    assert np.array_equal(fresh.sample(), state.sample())


@needs_netket
@pytest.mark.parametrize("driver", ["VMC_SR", "momentum", "SR", "restart"])
def test_what_drivers_keep(driver, nk, integration, tmp_path):
    """Momentum of an optimiser, of stochastic reconfiguration, and the start of an iterative solver."""

    def make(seed):
        state = made(nk, "local", seed)[0]
        operator = ising(nk, state.hilbert)
        if driver in ("VMC_SR", "momentum"):
            options = {"momentum": 0.5} if driver == "momentum" else {}
            return nk.driver.VMC_SR(
                operator,
                nk.optimizer.Momentum(0.02, beta=0.9),
                variational_state=state,
                diag_shift=0.01,
                use_ntk=True,
                **options,
            )
        solver = partial(jax.scipy.sparse.linalg.cg, maxiter=3)
        options = {"solver": solver, "solver_restart": True} if driver == "restart" else {}
        reconfigured = nk.optimizer.SR(diag_shift=0.01, holomorphic=True, **options)
        return driver_of(nk, state, operator, preconditioner=reconfigured)

    first, second = make(3), make(77)
    keep = integration.SeriesCallback(s.Series(tmp_path / "run"), every=3)
    quiet(first, 3, keep)
    keep.resume(second)
    quiet(first, 2)
    quiet(second, 2)
    assert bits(integration, first) == bits(integration, second)


@needs_netket
def test_a_full_sum_and_models_with_a_state(nk, integration, tmp_path):
    from flax import linen

    class Normed(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.Dense(4, param_dtype=float)(jnp.asarray(x, float))
            seen = self.variable("stats", "seen", lambda: jnp.ones(4))
            return jnp.sum(jnp.log(jnp.cosh(x * seen.value)), axis=-1)

    def make(seed):
        state = nk.vqs.FullSumState(chain(nk), Normed(), seed=seed, chunk_size=16)
        return driver_of(nk, state, ising(nk, state.hilbert))

    first, second = make(3), make(77)
    first.state.variables = {**first.state.variables, "stats": {"seen": jnp.arange(4.0)}}
    keep = integration.SeriesCallback(s.Series(tmp_path / "run"), every=2)
    quiet(first, 2, keep)
    held = keep.series.load()
    assert held.sampler is None and held.model_state["stats"]["seen"].tolist() == [0, 1, 2, 3]
    keep.resume(second)
    quiet(first, 2)
    quiet(second, 2)
    assert bits(integration, first) == bits(integration, second)
    with refused(s.SerializationError, "NQX414", "$.sampler"):
        integration.from_struct(held, made(nk, "local", 3)[0])


@needs_netket
def test_samples_that_were_drawn_are_kept(nk, integration, tmp_path):
    state, driver = made(nk, "local", 3)
    quiet(driver, 1)
    state.sample(n_samples=16)
    integration.to_struct(state, driver).export(tmp_path / "ck")
    other_state, other = made(nk, "local", 77)
    integration.from_struct(s.load(tmp_path / "ck"), other_state, other)
    assert other_state.samples.shape == state.samples.shape == (8, 2, N)
    assert np.array_equal(other_state.samples, state.samples)
    quiet(driver, 1)
    quiet(other, 1)
    assert bits(integration, driver) == bits(integration, other)


@needs_netket
def test_the_best_step_is_the_one_with_the_best_estimate(nk, integration, tmp_path):
    """The metrics of a step are the estimates with its parameters, which the next step makes."""
    series = s.Series(tmp_path / "run", keep_best=("Energy", "min"))
    log = nk.logging.RuntimeLog()
    observables = {"magnetisation": nk.operator.spin.sigmaz(chain(nk), 0)}
    _, driver = made(nk, "local", 3)
    quiet(
        driver,
        6,
        out=(log, integration.SeriesCallback(series, asynchronous=True)),
        obs=observables,
    )
    assert series.steps() == [1, 2, 3, 4, 5, 6]
    energies = np.real(log.data["Energy"]["Mean"])
    metrics = [s.inspect(tmp_path / "run" / str(n)).metadata.get("metrics") for n in range(1, 7)]
    assert [each["Energy"] for each in metrics[:5]] == energies[1:].tolist()
    assert "magnetisation" in metrics[0] and metrics[5] is None
    assert series.best() == 1 + np.argmin(energies[1:])


@needs_netket
def test_runs_that_end_early(nk, integration, tmp_path):
    """A run that stops saves its last step; one that fails the step without estimates; one from before is refused."""
    series = s.Series(tmp_path / "run")
    keep = integration.SeriesCallback(series, every=4)
    _, driver = made(nk, "local", 3)
    quiet(driver, 10, keep, lambda step, log, driver: step < 5)
    assert series.steps() == [4, 5] and series.load(5).energy_history.shape == (5,)
    quiet(driver, 1, keep)
    assert series.load(6).energy_history.shape == (6,)

    def broken(step, log, driver):
        raise RuntimeError("no more")

    quiet(driver, 2, keep)
    with pytest.raises(RuntimeError, match="no more"):
        quiet(driver, 2, keep, broken)
    assert series.steps() == [4, 5, 6, 8]
    _, other = made(nk, "local", 3)
    with refused(s.SerializationError, "NQX431", 8, series.root, "resume(driver)"):
        quiet(other, 1, integration.SeriesCallback(series))
    empty = integration.SeriesCallback(s.Series(tmp_path / "none"))
    assert empty.resume(other) == 0


@needs_netket
def test_a_checkpoint_of_another_program_is_refused(nk, integration, tmp_path):
    state, driver = made(nk, "local", 3)
    quiet(driver, 1)
    held = integration.to_struct(state, driver)
    wide = nk.vqs.MCState(
        nk.sampler.MetropolisLocal(chain(nk), n_chains=16),
        nk.models.RBM(alpha=2, param_dtype=complex),
    )
    wide.sampler = state.sampler
    with pytest.raises(s.SerializationError) as caught:
        integration.from_struct(held, wide)
    assert {each.path for each in caught.value.diagnostics} == {
        "$.variables['params']['Dense']['kernel']",
        "$.variables['params']['Dense']['bias']",
    }
    assert "expected complex128[6, 12], as in the program, got complex128[6, 6]" in str(
        caught.value
    )
    few = nk.vqs.MCState(nk.sampler.MetropolisLocal(chain(nk), n_chains=16), rbm(nk), n_samples=64)
    before = words(few.variables)
    with refused(s.SerializationError, "NQX412", "sampler") as caught:
        integration.from_struct(held, few)
    assert {each.code for each in caught.value.diagnostics} == {"NQX412"}
    assert words(few.variables) == before
    plain = nk.driver.VMC(driver._ham, nk.optimizer.Sgd(0.1), variational_state=state)
    with pytest.raises(s.SerializationError, match="driver"):
        integration.from_struct(held, state, plain)
    with refused(s.SerializationError, "NQX414", "$.driver"):
        integration.from_struct(integration.to_struct(state), state, driver)


@needs_netket
def test_misuse(nk, integration, tmp_path):
    state, _ = made(nk, "local", 3)
    with refused(TypeError, "netket.vqs.MCState", "FullSumState", 5):
        integration.to_struct(5)
    with refused(TypeError, "from_struct()", "MCState"):
        integration.from_struct({"params": 1}, state)
    with refused(TypeError, 5):
        integration.from_struct(integration.to_struct(state), state, 5)
    with refused(ValueError, "every=", 0):
        integration.SeriesCallback(s.Series(tmp_path), every=0)
    with refused(s.SerializationError, "NQX430", "to_struct(state)"):
        s.export(state, tmp_path / "ck")


def spins(nk, seed):
    hilbert = chain(nk)
    return nk.vqs.MCState(local(nk, hilbert), rbm(nk), n_samples=64, seed=seed)


@needs_netket
@pytest.mark.parametrize("form", ["zip", "folder"])
def test_a_file_of_nqxpack_goes_into_a_state(form, nk, integration, tmp_path):
    """Also its samples, if it has them; and the next ones are those that nqxpack's own reader draws."""
    nqxpack = pytest.importorskip("nqxpack")
    state, other = (spins(nk, seed) for seed in (1, 2))
    state.sample()
    options = {"save_sample_cache": form == "zip"}
    nqxpack.save(state, tmp_path / "state.nk", zip=form == "zip", options=options)
    found = integration.from_nqxpack(tmp_path / "state.nk", other)
    assert found is other and np.array_equal(found.samples, state.samples)
    mine, theirs = integration.to_struct(found), integration.to_struct(state)
    assert mine.parameters == theirs.parameters and mine.sampler == theirs.sampler
    theirs = nqxpack.load(tmp_path / "state.nk")
    assert np.array_equal(found.samples, theirs.samples)
    assert np.array_equal(found.sample(), theirs.sample())


@needs_netket
def test_a_file_of_nqxpack_names_trusted_packages_alone(nk, integration, tmp_path):
    nqxpack = pytest.importorskip("nqxpack")
    path = tmp_path / "state.nk"
    state = spins(nk, 1)
    nqxpack.save(state, path, zip=False)
    for trust in ((), ("jax", "jaxlib")):
        with pytest.raises(s.UntrustedError) as caught:
            integration.from_nqxpack(path, trust=trust)
        (found,) = caught.value.diagnostics
        assert found.code == "NQX501" and "netket" in found.hint
    trust = ("netket", "jax", "jaxlib")
    made_anew = integration.from_nqxpack(path, trust=trust)
    assert integration.to_struct(made_anew).parameters == integration.to_struct(state).parameters
    text = (path / "object.json").read_text()
    for name in ("builtins.eval", "jax.numpy.nothing", "netket.utils.os.system"):
        (path / "object.json").write_text(text.replace("netket.models.rbm.RBM", name))
        with refused(s.UntrustedError, "NQX501"):
            integration.from_nqxpack(path, trust=trust)


@needs_netket
def test_a_file_of_nqxpack_that_does_not_fit_changes_nothing(nk, integration, tmp_path):
    nqxpack = pytest.importorskip("nqxpack")
    state, other = (spins(nk, seed) for seed in (1, 2))
    nqxpack.save({"a": state}, tmp_path / "two.nk")
    with refused(s.SerializationError, "NQX614"):
        integration.from_nqxpack(tmp_path / "two.nk", other)
    wide = nk.vqs.MCState(local(nk, chain(nk)), nk.models.RBM(alpha=2, param_dtype=complex))
    nqxpack.save(wide, tmp_path / "wide.nk")
    before = integration.to_struct(other)
    with refused(s.SerializationError, "NQX412"):
        integration.from_nqxpack(tmp_path / "wide.nk", other)
    assert integration.to_struct(other).parameters == before.parameters
    with refused(TypeError, "netket.vqs.MCState"):
        integration.from_nqxpack(tmp_path / "wide.nk", {})


@needs_netket
def test_the_page(nk, double, tmp_path, monkeypatch):
    pytest.importorskip("nqxpack")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/netket.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    exec("\n".join(blocks), {})
