"""Variational states of NetKet as Structs of the shipped schema ``mc_state``, and the steps of a run as a series.

A checkpoint has the variables of the model, the state of the sampler and the settings of the estimates; with a driver
also what it keeps between two steps, such as the state of the optimiser. The model, the sampler and the Hamiltonian
are code: a program makes them anew, and :func:`from_struct` puts the checkpoint into them. Needs the extra ``netket``.

Example:
    A run that goes on where the last one ended, bit by bit::

        keep = SeriesCallback(s.Series("run", keep_last=3, keep_best=("Energy", "min")), every=50)
        keep.resume(driver)
        driver.run(1000 - driver.step_count, callback=keep)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, Unpack, cast

import jax
import numpy as np

from neuralqx_struct import formats
from neuralqx_struct.bundle.writing import PendingBundle
from neuralqx_struct.checkpoint import ExportKeywords
from neuralqx_struct.classes.schemas import Schema, load_schema
from neuralqx_struct.errors import SerializationError, StructError, ValidationError
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.formats.table import Reading
from neuralqx_struct.integrations.netket_files import loaded, parts_in
from neuralqx_struct.integrations.netket_parts import (
    HINT,
    NETKET,
    filled,
    numbers_of,
    parts_of,
    require_parts,
    with_parts,
)
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits
from neuralqx_struct.printing import brief
from neuralqx_struct.references import shipped
from neuralqx_struct.series import Series
from neuralqx_struct.trees import leaves_with_paths

__all__ = ["SeriesCallback", "from_nqxpack", "from_struct", "to_struct"]

_Callback: Any = NETKET.callbacks.AbstractCallback

Tree = Mapping[str, Any]

# What NetKet has no public names for: samples, the state that they were drawn from, the name of the loss.
_SAMPLES: Final = "_samples"
_BEFORE: Final = "_sampler_state_previous"
_LOSS: Final = "_loss_name"
#: The part of a driver that has the sampler of the state that it compares with, as it is after the last samples.
_TARGET: Final = "target_sampler"
#: The part of a driver that has the solution from which its preconditioner starts.
_START: Final = "preconditioner_x0"
#: What a state has beside its variables and its sampler.
_SETTINGS: Final = ("chunk_size", "n_samples", "n_discard_per_chain", "samples")
#: The structs of the schema that hold the parameters of a model of NetKet: field and path in the tree.
_MODELS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "RBM": {
        "kernel": ("Dense", "kernel"),
        "hidden_bias": ("Dense", "bias"),
        "visible_bias": ("visible_bias",),
    },
    "Jastrow": {"kernel": ("kernel",)},
}
#: The members of the enum ``Rule``, by the class of the rule.
_RULES: Final = {"LocalRule": "local", "ExchangeRule": "exchange", "HamiltonianRule": "hamiltonian"}
#: The fields of the struct ``Sampler``, by the name in the state of a Metropolis sampler.
_CHAINS: Final = {"\u03c3": "sigma", "n_steps_proc": "n_steps", "n_accepted_proc": "n_accepted"}


def to_struct(state: Any, driver: Any = None, *, energies: Sequence[complex] = ()) -> Any:
    """The struct ``MCState`` of the shipped schema that holds a variational state of NetKet.

    Parameters and samplers that the structs of earlier versions describe (an RBM, a Jastrow factor, chains of spins) are in these
    structs; all others are trees. The arrays are those of the state, except that those of samplers of numpy are copied.

    Args:
        state: A ``netket.vqs.MCState`` or ``FullSumState``.
        driver: The driver that optimises it, whose state is held too.
        energies: The mean energy after each step.

    Raises:
        TypeError: It is another object.
        ValidationError: The schema does not allow a value.
    """
    _require_state(state)
    mc = _schema()
    variables = dict(parts_of(state.variables))
    parameters = variables.pop("params", {})
    held = {
        "model_state": variables or None,
        "chunk_size": state.chunk_size,
        "energy_history": np.asarray(energies, np.complex128),
    }
    if driver is not None:
        held |= {"driver": _driver_parts(driver), "step": int(driver.step_count)}
    samplers: list[Any] = [None]
    if hasattr(state, "sampler"):
        samplers = [*_samplers(mc, state)]
        samples = getattr(
            state, "_samples", None
        )  # no public name has them without drawing new ones
        held |= {
            "samples": parts_of(samples),
            "n_samples": state.n_samples,
            "n_discard_per_chain": state.n_discard_per_chain,
        }
    *forms, (tree, parts) = product(_models(mc, parameters), samplers)
    for found, sampler in forms:
        with contextlib.suppress(ValidationError):  # its sizes are others than those of the sampler
            return mc.MCState(parameters=found, sampler=sampler, **held)
    return mc.MCState(parameters=tree, sampler=parts, **held)


def from_struct(held: Any, state: Any, driver: Any = None) -> Any:
    """Puts a struct ``MCState`` into a variational state of NetKet: the inverse of :func:`to_struct`.

    Args:
        held: The struct; of an earlier version that a load has migrated too.
        state: A state with the model and the sampler that were saved. Its parameters, samples and settings are replaced.
        driver: A driver of this state with the optimiser that was saved, which gets its state and the number of its step.

    Returns:
        The state.

    Raises:
        TypeError: An argument is another object.
        SerializationError: The checkpoint does not fit the model, the sampler or the driver; with every difference. Nothing
            is changed then.
    """
    _require_state(state)
    if not is_struct(held) or type(held).__name__ != "MCState":
        message = "expected a struct MCState, as to_struct makes and a Series loads"
        raise TypeError(f"from_struct(): {message}, got {brief(held)}")
    sampler = None
    if hasattr(state, "sampler"):
        sampler = filled(state.sampler_state, _sampler_tree(held, state), "sampler")
    variables = {"params": _tree_of(held.parameters), **(held.model_state or {})}
    variables = filled(state.variables, variables, "variables")
    kept = _filled_driver(driver, held)
    _put(state, variables, sampler, {name: getattr(held, name) for name in _SETTINGS})
    for name, value in kept.items():
        setattr(driver, name, value)
    return state


def _put(state: Any, variables: Any, sampler: Any, held: Mapping[str, Any]) -> None:
    """Puts parts that are known to fit into a state, with the settings and the samples of a checkpoint."""
    state.variables = variables
    state.chunk_size = held["chunk_size"]
    if sampler is not None:
        state.n_samples = held["n_samples"]
        state.n_discard_per_chain = held["n_discard_per_chain"]
        state.sampler_state = sampler
        setattr(state, _BEFORE, sampler)
    state.reset()
    if sampler is not None and held["samples"] is not None:
        setattr(state, _SAMPLES, held["samples"])


def from_nqxpack(
    path: str | os.PathLike[str],
    state: Any = None,
    *,
    trust: Iterable[str] = (),
    limits: Limits | None = None,
) -> Any:
    """The variational state in a ``.nk`` file of nqxpack.

    Args:
        path: The file or folder.
        state: A state with the model and the sampler that were saved, to put the file into. Nothing that the file names is
            imported then.
        trust: Without a state, packages whose classes and functions the file may name, such as ``("netket", "jax", "jaxlib")``. The
            package nqxpack makes the model and the sampler by them, with the arguments in the file: trust files of your own alone.
        limits: Sizes above which the file is refused.

    Returns:
        The state, which :func:`to_struct` brings under the schema.

    Raises:
        TypeError: The state is another object.
        SerializationError: The file does not fit the model or the sampler, with every difference; or it cannot be read.
        UntrustedError: It names something of a package that is not trusted.
    """
    if state is None:
        made = loaded(path, trust, Reading(limits=limits or DEFAULT_LIMITS))
        _require_state(made)
        return made
    _require_state(state)
    with formats.opened(os.fspath(path), limits=limits) as file:
        parts = parts_in(file)
    try:
        sampler = None
        if hasattr(state, "sampler"):
            sampler = filled(state.sampler_state, parts.get("sampler_state"), "sampler")
        variables = filled(state.variables, parts["variables"], "variables")
    except StructError as error:
        raise error.in_file(str(path)) from error.__cause__
    samples = None if parts["samples"] is None else jax.numpy.asarray(parts["samples"])
    _put(
        state,
        variables,
        sampler,
        {name: parts.get(name) for name in _SETTINGS} | {"samples": samples},
    )
    return state


def _schema() -> Schema:
    return load_schema(shipped("schemas/mc_state"))


def _require_state(state: Any) -> None:
    """Checks that an object is a state whose parts are known.

    Raises:
        TypeError: It is not.
    """
    kinds = (NETKET.vqs.MCState, NETKET.vqs.FullSumState)
    if not isinstance(state, kinds) or isinstance(state, NETKET.vqs.MCMixedState):
        raise TypeError(f"expected a netket.vqs.MCState or FullSumState, got {brief(state)}")


def _models(mc: Schema, tree: Any) -> Iterator[Any]:
    """Yields the parameters as a struct, where one describes them, and as a tree."""
    leaves = {tuple(map(str, path)): leaf for path, leaf in leaves_with_paths(tree)}
    for name, fields in _MODELS.items():
        if leaves and leaves.keys() <= set(fields.values()):
            with contextlib.suppress(ValidationError):
                yield getattr(mc, name)(**{at: leaves.get(path) for at, path in fields.items()})
    yield tree


def _tree_of(parameters: Any) -> Any:
    """The tree of NetKet for parameters; the inverse of :func:`_models`."""
    if not is_struct(parameters):
        return parameters
    tree: dict[str, Any] = {}
    for field, path in _MODELS[type(parameters).__name__].items():
        value = getattr(parameters, field)
        if value is not None:
            *outer, last = path
            place = tree
            for name in outer:
                place = place.setdefault(name, {})
            place[last] = value
    return tree


def _samplers(mc: Schema, state: Any) -> Iterator[Any]:
    """Yields the state of a sampler as a struct of its own, where one describes it, and by its parts."""
    sampler, now = state.sampler, state.sampler_state
    parts = parts_of(now)
    rule = _RULES.get(type(getattr(sampler, "rule", None)).__name__)
    power = float(sampler.machine_pow)
    if type(now) is NETKET.sampler.MetropolisSamplerState and rule and power.is_integer():
        with contextlib.suppress(ValidationError):
            yield mc.Sampler(
                **{field: parts[name] for name, field in _CHAINS.items()},
                key=now.rng,
                rule=rule,
                sweep_size=sampler.sweep_size,
                machine_pow=int(power),
            )
    yield mc.SamplerState(name=type(sampler).__name__, parts=parts)


def _sampler_tree(held: Any, state: Any) -> Tree:
    """The parts of the state of a sampler; the inverse of :func:`_samplers`.

    Raises:
        SerializationError: The checkpoint has none.
    """
    sampler = held.sampler
    if sampler is None:
        message = f"expected the state of a {type(state.sampler).__name__}, got that of a sum over all states"
        raise SerializationError(message, code="NQX414", path="$.sampler", hint=HINT)
    if hasattr(sampler, "parts"):
        return cast("Tree", sampler.parts)
    parts = dict(parts_of(state.sampler_state))
    parts |= {name: getattr(sampler, field) for name, field in _CHAINS.items()}
    return parts | {"rng": jax.random.key_data(sampler.key)}


def _driver_parts(driver: Any) -> Tree:
    """What a driver keeps between two steps, but for its state and the number of the step."""
    parts = dict(parts_of(driver))
    parts.pop("state")
    parts.pop("_step_count")
    start = getattr(getattr(driver, "preconditioner", None), "x0", None)
    target = getattr(getattr(driver, "target_state", None), "sampler_state", None)
    parts |= {} if start is None else {_START: start}
    return parts if target is None else {**parts, _TARGET: parts_of(target)}


def _filled_driver(driver: Any, held: Any) -> dict[str, Any]:
    """The attributes of a driver that a checkpoint sets.

    Raises:
        TypeError: It is no driver.
        SerializationError: The checkpoint has no state of a driver, or of another one.
    """
    if driver is None:
        return {}
    if not isinstance(driver, NETKET.driver.AbstractDriver):
        raise TypeError(f"expected a driver of NetKet, got {brief(driver)}")
    if held.driver is None:
        message = "expected the state of a driver, got a checkpoint without one"
        hint = "put it into the state alone: from_struct(held, driver.state)"
        raise SerializationError(message, code="NQX414", path="$.driver", hint=hint)
    kept = dict(held.driver)
    start = kept.pop(_START, None)
    target = kept.pop(_TARGET, None)
    known = dict(_driver_parts(driver))
    known.pop(_START, None)
    known.pop(_TARGET, None)
    # What a driver makes in its first step is None before.
    later = {name for name, part in known.items() if part is None}
    found, wanted = (
        {name: parts[name] for name in parts.keys() - later} for parts in (kept, known)
    )
    require_parts(found, wanted, "driver")
    if target is not None:
        target = filled(driver.target_state.sampler_state, target, "driver")
    if start is not None:
        driver.preconditioner.x0 = start
    values = {name: with_parts(getattr(driver, name), part) for name, part in kept.items()}
    if target is not None:  # NetKet restores the one before the last samples
        values.get("target_state", driver.target_state).sampler_state = target
    return {**values, "_step_count": held.step}


class SeriesCallback(_Callback):  # type: ignore[misc]
    """Keeps the steps of a run in a series: for ``callback=`` or ``out=`` of ``driver.run``.

    Step n is the state after n updates of the parameters. Its metrics are the estimates that the run makes with these
    parameters, so it is saved in the next step; the last step of a run has none, and is not compared by ``best``.

    Args:
        series: The series.
        every: Keep each step that this number divides, beside the last one of a run.
        **options: The other options of :meth:`~neuralqx_struct.Series.save`, such as ``asynchronous`` and ``store``.

    Attributes:
        series: The series.
        energies: The mean of the loss after each step, which the checkpoints hold.

    Raises:
        ValueError: ``every`` is no number from 1 on.
    """

    series: Series = NETKET.utils.struct.field(pytree_node=False, serialize=False)
    energies: list[complex] = NETKET.utils.struct.field(pytree_node=False, serialize=False)
    _every: int = NETKET.utils.struct.field(pytree_node=False, serialize=False)
    _options: Any = NETKET.utils.struct.field(pytree_node=False, serialize=False)
    _loss: complex = NETKET.utils.struct.field(pytree_node=False, serialize=False)
    _waiting: Any = NETKET.utils.struct.field(pytree_node=False, serialize=False)
    _finished: Any = NETKET.utils.struct.field(pytree_node=False, serialize=False)

    def __init__(
        self,
        series: Series,
        every: int = 1,
        *,
        asynchronous: bool = False,
        **options: Unpack[ExportKeywords],
    ) -> None:
        if type(every) is not int or every < 1:
            raise ValueError(f"every=: expected a whole number from 1 on, got {brief(every)}")
        self.series = series
        self.energies = []
        self._every = every
        self._options = {**options, "asynchronous": asynchronous}
        self._loss = np.nan
        self._waiting = None  # the struct of a step that has no estimates yet
        self._finished = None

    @property
    def callback_order(self) -> int:
        """After the observables, as the loggers of NetKet."""
        return 10

    def resume(self, driver: Any, step: Any = "latest") -> int:
        """Puts a step of the series into a driver and its state, which go on from there bit by bit.

        Args:
            driver: A driver as in the program that saved it.
            step: As for :meth:`~neuralqx_struct.Series.load`.

        Returns:
            The number of the step; 0 of a series without steps, which changes nothing.

        Raises:
            SerializationError: As :func:`from_struct`.
        """
        if not self.series.steps():
            return 0
        held = self.series.load(step, load_cls=_schema().root)
        from_struct(held, driver.state, driver)
        self.energies = np.asarray(held.energy_history).tolist()
        return int(driver.step_count)

    def on_run_start(self, step: int, driver: Any) -> None:
        """Checks that the run does not begin before the latest step.

        Raises:
            SerializationError: It does.
        """
        del driver
        self._finished = None  # no step of this run
        latest = self.series.latest()
        if latest is not None and latest > step:
            message = f"expected a run from step {latest} on, the latest of {self.series.root}, got one from {step}"
            hint = "call resume(driver) of the callback first, or keep the run in another folder"
            raise SerializationError(message, code="NQX431", hint=hint)

    def before_parameter_update(self, step: int, log_data: Mapping[str, Any], driver: Any) -> None:
        """Saves the step whose parameters were estimated just now."""
        del step
        self._save(numbers_of(log_data))
        loss = log_data.get(getattr(driver, _LOSS, ""))
        self._loss = complex(np.nan if loss is None else getattr(loss, "mean", loss))

    def on_step_end(self, step: int, log_data: Mapping[str, Any], driver: Any) -> None:
        """Holds the state, if it is one to keep."""
        del log_data
        self.energies.append(self._loss)
        self._finished = step + 1
        if self._finished % self._every == 0:
            self._hold(driver)

    def on_run_end(self, step: int, driver: Any) -> None:
        """Saves the last step, and waits until it is complete."""
        del step
        if self._waiting is None and self._finished not in (None, self.series.latest()):
            self._hold(driver)
        self._end()

    def on_run_error(self, step: int, error: BaseException, driver: Any) -> None:
        """Saves the step that had no estimates yet."""
        del step, error, driver
        self._end()

    def _hold(self, driver: Any) -> None:
        held = to_struct(driver.state, driver, energies=self.energies)
        self._waiting = held.replace(step=self._finished)  # the driver counts the step later

    def _save(self, metrics: Mapping[str, float]) -> Any:
        held, self._waiting = self._waiting, None
        return held and self.series.save(held.step, held, metrics, **self._options)

    def _end(self) -> None:
        if isinstance(written := self._save({}), PendingBundle):
            written.wait()
