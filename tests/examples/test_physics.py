"""The physics of examples/vmc_ising against exact results, and its training loop across checkpoint layouts."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from examples.vmc_ising import __main__ as command
from examples.vmc_ising import ising, optimise, rbm, sampler, train
from examples.vmc_ising.settings import DEFAULTS, N_STEPS, Settings
from tests.builders import ROOT, every

SCHEMAS = ROOT / "schemas" / "vmc_state"
PAULI_X = np.array([[0.0, 1.0], [1.0, 0.0]])
PAULI_Z = np.diag([1.0, -1.0])


class Record:
    """What the adapters ask of a state."""

    def replace(self, **changes: Any) -> Any:
        return dataclasses.replace(self, **changes)


def record(name: str, values: dict[str, Any]) -> Any:
    cls = dataclass(frozen=True)(
        type(name, (Record,), {"__annotations__": dict.fromkeys(values, Any)})
    )
    return cls(**values)


def dense(n_sites: int, h: float) -> np.ndarray:
    """The matrix of H from Kronecker products, the first site being the outermost factor."""

    def at(sites: dict[int, np.ndarray]) -> np.ndarray:
        out = np.eye(1)
        for site in range(n_sites):
            out = np.kron(out, sites.get(site, np.eye(2)))
        return out

    bonds = sum(at({i: PAULI_Z}) @ at({(i + 1) % n_sites: PAULI_Z}) for i in range(n_sites))
    return -bonds - h * sum(at({i: PAULI_X}) for i in range(n_sites))


def random_params(n_sites: int, alpha: int, stddev: float, seed: int = 0) -> rbm.RBMParams:
    return rbm.init(jax.random.key(seed), n_sites, alpha, stddev)


# --- exact energies -------------------------------------------------------------------------------------------------


@every("h", [-0.7, 0.0, 0.5, 1.0, 2.0])
@every("n_sites", [2, 4, 5, 6])
def test_lanczos_finds_the_lowest_eigenvalue_of_the_dense_matrix(n_sites: int, h: float) -> None:
    assert ising.exact_energy(n_sites, h) == pytest.approx(
        np.linalg.eigvalsh(dense(n_sites, h))[0], rel=1e-10
    )


@every("h", [-0.5, 0.5, 1.0, 2.0])
@every("n_sites", [4, 5, 9, 10])
def test_lanczos_agrees_with_the_free_fermions(n_sites: int, h: float) -> None:
    assert ising.exact_energy(n_sites, h) == pytest.approx(
        ising.free_fermion_energy(n_sites, h), rel=1e-10
    )


def test_the_matrix_free_product_is_the_matrix_product() -> None:
    vector = np.random.default_rng(1).normal(size=64)
    np.testing.assert_allclose(
        ising.apply_hamiltonian(vector, 0.7), dense(6, 0.7) @ vector, atol=1e-12
    )


@pytest.mark.parametrize("n_sites", [-1, 1, ising.MAX_SITES + 1])
def test_chains_of_impossible_length_are_refused(n_sites: int) -> None:
    with pytest.raises(ValueError, match=f"n_sites: .*{ising.MAX_SITES}.*{n_sites}"):
        ising.exact_energy(n_sites, 1.0)


def test_lanczos_says_when_it_did_not_converge() -> None:
    with pytest.raises(ArithmeticError, match="1e-07.*2"):
        ising.exact_energy(8, 1.0, max_iterations=2)


# --- wave function --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("h", [0.5, 2.0])
def test_local_energies_are_the_dense_ratio_on_every_configuration(h: float) -> None:
    params, sigma = random_params(6, 2, 0.3), ising.configurations(6)
    psi = np.exp(np.asarray(rbm.log_psi(params, sigma), np.complex128))
    expected = dense(6, h) @ psi / psi
    np.testing.assert_allclose(
        ising.local_energies(rbm.log_psi, params, sigma, h), expected, rtol=2e-4, atol=2e-4
    )


def test_log_cosh_is_right_for_small_numbers_and_finite_for_large_ones() -> None:
    grid = np.linspace(-6, 6, 25)
    small = (grid[:, None] + 1j * (grid[None, :] + 0.1)).astype(np.complex64).ravel()
    np.testing.assert_allclose(
        np.exp(rbm.log_cosh(small)), np.cosh(small.astype(np.complex128)), rtol=2e-5, atol=2e-5
    )
    large = np.array([1e4 + 1j, -1e4 + 2j, 1e30, -1e30], np.complex64)
    np.testing.assert_allclose(
        rbm.log_cosh(large).real, np.abs(large.real) - math.log(2), rtol=1e-6
    )


def test_log_psi_is_its_formula() -> None:
    params, sigma = random_params(4, 2, 0.4), ising.configurations(4)
    kernel, visible, hidden = (np.asarray(x, np.complex128) for x in params)
    psi = np.exp(sigma @ visible) * np.prod(np.cosh(hidden + sigma @ kernel), axis=-1)
    np.testing.assert_allclose(np.exp(rbm.log_psi(params, sigma)), psi, rtol=1e-4)


def test_written_derivatives_are_those_of_autodiff() -> None:
    params, sigma = random_params(4, 2, 0.5), ising.configurations(4)
    by_jax = jax.vmap(jax.grad(rbm.log_psi, holomorphic=True), in_axes=(None, 0))(
        params, jnp.asarray(sigma)
    )
    for ours, theirs in zip(rbm.log_derivatives(params, sigma), by_jax, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_derivatives_of_large_parameters_are_finite() -> None:
    params = jax.tree.map(lambda x: 1e4 * x, random_params(4, 2, 1.0))
    assert all(np.isfinite(x).all() for x in rbm.log_derivatives(params, ising.configurations(4)))


# --- sampler --------------------------------------------------------------------------------------------------------

N_SAMPLES = 4000


@cache
def counts(exponent: float) -> np.ndarray:
    """How often each configuration of four sites turned up in as many independent chains."""
    start_key, key = jax.random.split(jax.random.key(3, impl="threefry2x32"))
    start = sampler.random_spins(start_key, N_SAMPLES, 4)
    sigma, _, _ = sampler.sample(
        rbm.log_psi, random_params(4, 2, 0.35), start, key, n_sweeps=15, exponent=exponent
    )
    assert sigma.dtype == jnp.int8
    assert set(np.unique(sigma)) == {-1, 1}
    rows = (np.asarray(sigma) < 0) @ (1 << np.arange(4)[::-1])
    return np.bincount(rows, minlength=16)


def chi_square(observed: np.ndarray, exponent: float) -> float:
    log_psi = np.asarray(
        rbm.log_psi(random_params(4, 2, 0.35), ising.configurations(4)).real, np.float64
    )
    weights = np.exp(exponent * log_psi)
    expected = N_SAMPLES * weights / weights.sum()
    return float(np.sum((observed - expected) ** 2 / expected))


@pytest.mark.parametrize(
    ("sampled", "claimed", "agrees"),
    [(2.0, 2.0, True), (1.0, 1.0, True), (1.0, 2.0, False), (2.0, 1.0, False)],
)
def test_chains_follow_the_power_of_the_modulus_and_no_other(
    sampled: float, claimed: float, agrees: bool
) -> None:
    # 15 degrees of freedom: above 44.3 in one of ten thousand cases
    assert (chi_square(counts(sampled), claimed) < 44.3) is agrees


def test_reweighted_samples_of_another_power_give_the_same_energy() -> None:
    params, sigma = random_params(4, 2, 0.35), ising.configurations(4)
    energies = ising.local_energies(rbm.log_psi, params, sigma, 1.0)
    log_amplitude = rbm.log_psi(params, sigma).real
    repeats = {p: np.exp(p * np.asarray(log_amplitude, np.float64)) for p in (1.0, 2.0)}
    born = np.sum(repeats[2.0] * np.asarray(energies)) / np.sum(repeats[2.0])
    weights = (
        optimise.importance_weights(log_amplitude, 1.0) * repeats[1.0]
    )  # each row as often as it is sampled
    measured = optimise.estimate(energies, weights / weights.sum())
    assert float(measured.energy) == pytest.approx(born.real, rel=1e-4)
    assert np.ptp(optimise.importance_weights(log_amplitude, 2.0)) == 0


# --- update ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)], ids=["more samples", "more parameters"])
def test_the_update_minimises_what_it_says(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    rows, residual, last = (
        rng.normal(size=s) + 1j * rng.normal(size=s) for s in (shape, shape[0], shape[1])
    )
    identity = np.eye(shape[1])
    expected = np.linalg.solve(
        rows.conj().T @ rows + 0.1 * identity, 0.1 * last - rows.conj().T @ residual
    )
    got = optimise.solve_update(
        *(jnp.asarray(x, jnp.complex64) for x in (rows, residual, last)), 0.1
    )
    np.testing.assert_allclose(got, expected, rtol=5e-3, atol=5e-3)


def test_a_singular_metric_is_solved_without_a_shift() -> None:
    rows = jnp.ones((8, 3), jnp.complex64)
    got = optimise.solve_update(
        rows, jnp.full(8, 3 + 0j, jnp.complex64), jnp.zeros(3, jnp.complex64), jnp.float32(0.0)
    )
    np.testing.assert_allclose(got, -np.ones(3), rtol=1e-3)


# --- training -------------------------------------------------------------------------------------------------------

SMALL = {
    "n_sites": 6,
    "alpha": 1,
    "n_chains": 128,
    "seed": 2,
    "h": 0.8,
    "lr": 0.05,
    "diag_shift": 0.01,
    "n_sweeps": 2,
}


def start_v1(**changes: Any) -> Any:
    return record("VMCState", train.initial_fields_v1(**{**SMALL, **changes}))


def v3_of(old: Any, **changes: Any) -> Any:
    """The declared migration from version 1 to 3, by hand in numpy."""
    n_sites = old.W_re.shape[0]
    biases, updates = np.asarray(old.b_all), np.asarray(old.db_all)
    optimizer = {
        "kernel_update": jnp.asarray(np.asarray(old.dW_re) + 1j * np.asarray(old.dW_im)),
        "visible_update": jnp.asarray(updates[:n_sites]),
        "hidden_update": jnp.asarray(updates[n_sites:]),
    }
    key = jax.random.wrap_key_data(old.rng, impl="threefry2x32")
    fields = {
        "alpha": old.alpha,
        "kernel": jnp.asarray(np.asarray(old.W_re) + 1j * np.asarray(old.W_im)),
        "visible_bias": jnp.asarray(biases[:n_sites]),
        "hidden_bias": jnp.asarray(biases[n_sites:]),
        "optimizer": record("Optimizer", optimizer),
        "sampler": record(
            "Sampler", {"sigma": jnp.asarray(old.samples.astype(np.int8)), "key": key}
        ),
        "step": old.n_iter,
        "energy_history": old.E_hist,
        "energy": None,
        "transverse_field": old.h,
        "learning_rate": old.lr,
        "diag_shift": old.diag_shift,
        "n_sweeps": old.n_sweeps,
        "exponent": 2.0,
        "logger": None,
    }
    return record("VMCState", {**fields, **changes})


def assert_declared(version: int, struct: str, values: Any, dims: dict[str, int]) -> None:
    """Every field that the schema declares is there, as what it is declared to be, and no other."""
    document = yaml.safe_load((SCHEMAS / f"v{version}.yaml").read_text())
    declared = {
        k: v for k, v in document["structs"][struct]["fields"].items() if "derived" not in v
    }
    assert {f.name for f in dataclasses.fields(values)} == set(declared)
    for name, field in declared.items():
        value = getattr(values, name)
        match field.get("type"):
            case "array":
                expected = tuple(dims.get(d, d) for d in field["shape"])
                assert (str(value.dtype), value.shape) == (field["dtype"], expected), name
                # what JAX cannot hold without x64 stays in numpy
                assert isinstance(
                    value, np.ndarray if field["dtype"] == "float64" else jax.Array
                ), name
            case "prng_key":
                assert str(jax.random.key_impl(value)) == field["impl"]
            case "int" | "float" as scalar:
                assert type(value).__name__ == scalar, name
            case "float | null":
                assert value is None or type(value) is float, name
            case None:
                assert field["kind"] == "opaque"
            case nested:
                assert_declared(version, nested, value, dims)


@cache
def trained_v1(n_steps: int) -> Any:
    return train.train(start_v1(), train.V1, n_steps)


@pytest.mark.parametrize("n_steps", [0, 3])
def test_states_are_what_the_schemas_declare(n_steps: int) -> None:
    dims = {"n_sites": 6, "n_hidden": 6, "n_bias": 12, "n_chains": 128, "n_records": n_steps}
    old = train.train(start_v1(), train.V1, n_steps)
    assert_declared(1, "VMCState", old, dims)
    new = train.train(v3_of(start_v1()), train.V3, n_steps)
    assert_declared(3, "VMCState", new, dims)
    assert (old.n_iter, new.step) == (n_steps, n_steps)


def test_training_goes_on_from_version_3_as_it_would_have_from_version_1() -> None:
    straight = trained_v1(20)
    half = trained_v1(10)
    moved = train.train(v3_of(half), train.V3, 10)
    np.testing.assert_array_equal(moved.energy_history, straight.E_hist)
    expected = v3_of(straight)
    for ours, theirs in [
        (moved.kernel, expected.kernel),
        (moved.optimizer.kernel_update, expected.optimizer.kernel_update),
        (moved.optimizer.hidden_update, expected.optimizer.hidden_update),
        (moved.sampler.sigma, expected.sampler.sigma),
        (jax.random.key_data(moved.sampler.key), straight.rng),
    ]:
        np.testing.assert_array_equal(ours, theirs)
    assert (moved.step, moved.energy) == (20, straight.E_hist[-1])


@pytest.mark.parametrize("lost", ["dW_re", "db_all", "rng", "samples"])
def test_everything_in_the_state_matters_for_going_on(lost: str) -> None:
    half = trained_v1(10)
    value = getattr(half, lost)
    forgetful = half.replace(
        **{lost: np.ones_like(value) if lost == "samples" else jnp.zeros_like(value)}
    )
    assert not np.array_equal(
        train.train(forgetful, train.V1, 3).E_hist, trained_v1(20).E_hist[:13]
    )


def test_local_energies_survive_the_move_bit_by_bit() -> None:
    old = trained_v1(10)
    before = train.energies_of(old, train.V1, old.samples)
    new = v3_of(old)
    np.testing.assert_array_equal(train.energies_of(new, train.V3, new.sampler.sigma), before)
    # a checkpoint's samples belong to its parameters, so its energy can be measured again from it alone
    assert before.mean().real == pytest.approx(old.E_hist[-1], rel=1e-5)


def test_training_lowers_the_energy_to_the_exact_one() -> None:
    exact = ising.exact_energy(6, SMALL["h"])
    history = train.train(start_v1(), train.V1, 60).E_hist
    assert abs(history[0] / exact - 1) > 0.02
    assert abs(history[-10:].mean() / exact - 1) < 0.003


def test_training_with_another_exponent_reaches_the_same_energy() -> None:
    state = train.train(v3_of(start_v1(), exponent=1.2), train.V3, 60)
    assert abs(state.energy_history[-10:].mean() / ising.exact_energy(6, SMALL["h"]) - 1) < 0.003


def test_logger_and_progress_see_every_step_under_its_number() -> None:
    class Logger:
        def __init__(self) -> None:
            self.lines: list[tuple[int, float]] = []

        def write(self, step: int, energy: float) -> None:
            self.lines.append((step, energy))

    logger, seen = Logger(), []
    state = v3_of(trained_v1(10), logger=logger)
    after = train.train(state, train.V3, 3, lambda *line: seen.append(line))
    assert seen == logger.lines == list(zip([11, 12, 13], after.energy_history[10:], strict=True))
    assert after.logger is logger


def test_a_run_that_diverges_says_so() -> None:
    broken = start_v1(lr=1e30)
    with pytest.raises(FloatingPointError, match=r"(?s)step \d: .*nan.*lr=1e\+30"):
        train.train(broken, train.V1, 5)


def test_a_new_field_or_learning_rate_does_not_compile_again() -> None:
    physics = train.physics_v1(start_v1())
    train.step(*physics)
    compiled = train.step._cache_size()
    train.step(*physics._replace(settings=Settings(h=1.9, lr=0.01, diag_shift=0.1)))
    assert train.step._cache_size() == compiled


# --- package --------------------------------------------------------------------------------------------------------


def test_defaults_are_the_arguments_of_a_new_state() -> None:
    assert set(inspect.signature(train.initial_fields_v1).parameters) == set(DEFAULTS)


@pytest.mark.slow
@pytest.mark.parametrize("h", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_defaults_come_within_a_fifth_of_a_percent(h: float, seed: int) -> None:
    state = record("VMCState", train.initial_fields_v1(**{**DEFAULTS, "h": h, "seed": seed}))
    history = train.train(state, train.V1, N_STEPS).E_hist
    assert abs(history[-10:].mean() / ising.exact_energy(DEFAULTS["n_sites"], h) - 1) < 0.002


def test_command_prints_the_energy_beside_the_exact_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--sites", "6", "--alpha", "1", "--chains", "128", "--steps", "10"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("step    1   energy ")
    assert f"exact: {ising.exact_energy(6, 1.0):.6f}" in out


def test_command_refuses_impossible_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["--sites", "1"])
    assert "--sites: expected at least 2, got 1" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["ising", "rbm", "sampler", "settings", "train"])
def test_examples_in_docstrings_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"examples.vmc_ising.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
