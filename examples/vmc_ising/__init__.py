"""Variational Monte Carlo of a complex restricted Boltzmann machine for the transverse-field Ising chain.

A small but real application whose training state has gone through the schema versions of ``schemas/vmc_state``: the
checkpoints of ``neuralqx-struct``'s demonstration come from here. The physics is pure functions on arrays and does not
know how a checkpoint is kept; :mod:`.train` holds the adapters for versions 1 and 3.

- :mod:`.ising`: the Hamiltonian, its exact energies, local energies
- :mod:`.rbm`: the wave function
- :mod:`.sampler`: Metropolis chains
- :mod:`.optimise`: stochastic reconfiguration with momentum
- :mod:`.train`: the step, the loop, the layouts
- :mod:`.settings`: settings and good values

Run it with ``python -m vmc_ising`` from the folder above this one.
"""
