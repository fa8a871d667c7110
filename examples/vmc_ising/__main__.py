"""A plain training run: ``python -m vmc_ising --field 0.5``; no checkpoint is written."""

from __future__ import annotations

import argparse
import time

from .ising import MAX_SITES, exact_energy, free_fermion_energy
from .settings import DEFAULTS, N_STEPS, Settings
from .train import advance, initial_physics

LAST = 10  # energies averaged at the end: one alone carries the noise of one set of samples


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(
        "vmc_ising", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    out.add_argument("--sites", type=int, default=DEFAULTS["n_sites"], help="length of the chain")
    out.add_argument("--alpha", type=int, default=DEFAULTS["alpha"], help="hidden units per site")
    out.add_argument("--chains", type=int, default=DEFAULTS["n_chains"], help="Markov chains")
    out.add_argument("--steps", type=int, default=N_STEPS, help="optimisation steps")
    out.add_argument("--seed", type=int, default=DEFAULTS["seed"], help="of the random key")
    out.add_argument(
        "--field",
        type=float,
        default=DEFAULTS["h"],
        help="transverse field in units of the coupling",
    )
    out.add_argument("--lr", type=float, default=DEFAULTS["lr"], help="learning rate")
    out.add_argument(
        "--diag-shift",
        type=float,
        default=DEFAULTS["diag_shift"],
        help="regularisation of the metric",
    )
    out.add_argument(
        "--sweeps",
        type=int,
        default=DEFAULTS["n_sweeps"],
        help="Metropolis sweeps between two steps",
    )
    return out


def main(argv: list[str] | None = None) -> int:
    """Trains and prints the energy beside the exact one."""
    options = parser()
    args = options.parse_args(argv)
    for name, least in {"sites": 2, "alpha": 1, "chains": 1, "steps": 1, "sweeps": 1}.items():
        if getattr(args, name) < least:
            options.error(
                f"argument --{name}: expected at least {least}, got {getattr(args, name)}"
            )
    exact = (
        exact_energy(args.sites, args.field)
        if args.sites <= MAX_SITES
        else free_fermion_energy(args.sites, args.field)
    )

    def off(energy: float) -> str:
        return f"{100 * (energy - exact) / abs(exact):+.3f} %"

    def progress(number: int, energy: float) -> None:
        if number == 1 or number % 10 == 0:
            print(f"step {number:4d}   energy {energy:12.6f}   {off(energy)}")

    settings = Settings(h=args.field, lr=args.lr, diag_shift=args.diag_shift, n_sweeps=args.sweeps)
    start = time.perf_counter()
    _, energies = advance(
        initial_physics(args.sites, args.alpha, args.chains, args.seed, settings),
        args.steps,
        progress,
    )
    mean = float(energies[-LAST:].mean())
    print(
        f"mean of the last {min(LAST, args.steps)}: {mean:.6f}   exact: {exact:.6f}   {off(mean)}   {time.perf_counter() - start:.1f} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
