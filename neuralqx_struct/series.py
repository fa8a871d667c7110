"""The steps of a run: saves a bundle for each, finds the latest and the best, and removes the others.

A step is the bundle ``<root>/<step>``. It takes this name when it is complete, so every step is whole or not
there. Its metrics are in the metadata of its manifest. ``bundle/roots.py`` lists and removes
the steps of a folder on a disk or behind a URL.

Example:
    >>> import tempfile
    >>> series = Series(f"{tempfile.mkdtemp()}/run", keep_last=2, keep_best=("energy", "min"))
    >>> for step, energy in enumerate([-1.0, -3.0, -2.0, -1.5]):
    ...     _ = series.save(step, {"w": energy}, {"energy": energy})
    >>> series.steps(), series.latest(), series.best(), series.load("best")
    ([1, 2, 3], 3, 1, {'w': -3.0})
"""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, Unpack, cast, overload

from neuralqx_struct import bundle
from neuralqx_struct.bundle.roots import METRICS, Metrics, metrics_at, metrics_to_plain, root_of
from neuralqx_struct.bundle.writing import PendingBundle, inside_a_save
from neuralqx_struct.checkpoint import ExportOptions, LoadOptions, load, save
from neuralqx_struct.manifest import Limits
from neuralqx_struct.places.disk import numbered
from neuralqx_struct.places.steps import listed
from neuralqx_struct.places.urls import Options
from neuralqx_struct.printing import brief, notebook_table

__all__ = ["Series"]

T = TypeVar("T")
_LOG = logging.getLogger("neuralqx_struct")
_MODES: Final[Mapping[str, Callable[[float], float]]] = {
    "min": lambda score: score,
    "max": lambda score: -score,
}
_ATTEMPTS: Final = 16


class Series:
    """The checkpoints of one run, a bundle ``<root>/<step>`` for each step.

    Any number of programs may read a series while it is written. Two that write it take turns, and a save that
    another one of the same process contains, as in the handler of a signal, is done at once; behind a URL, where
    nothing can be locked, they leave whole steps all the same, and one of two that save the same step is refused.

    Args:
        root: The folder, a path or a URL such as ``s3://bucket/run`` (with the extra ``remote``); made by the first save.
        keep_last: The number of latest steps to keep; None keeps every step.
        keep_best: A metric and ``"min"`` or ``"max"``: keeps the step with the best value too.
        keep_every: Keeps the steps that this number divides too.
        limits: Sizes above which a step is refused, and is none; ``save`` and ``load`` take it over.
        timeout: Seconds that a save waits for another process that writes the series; None for any time, and after
            five it is logged which process that is. Saves of one process never wait for each other's turn.
        storage_options: Options of fsspec for a URL, such as keys.

    Raises:
        ValueError: An argument has no meaning.
        SerializationError: fsspec, or a package that it needs for the URL, is not installed.

    Example:
        >>> import tempfile
        >>> series = Series(tempfile.mkdtemp(), keep_last=1, keep_every=10)
        >>> for step in range(8, 13):
        ...     _ = series.save(step, [step])
        >>> series.steps(), series.load(10)
        ([10, 12], [10])
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        keep_last: int | None = None,
        keep_best: tuple[str, Literal["min", "max"]] | None = None,
        keep_every: int | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        storage_options: Options | None = None,
    ) -> None:
        self._folder = root_of(os.fspath(root), storage_options)
        self.root = cast("Path", self._folder.path)  # of a URL a RemotePath
        self._keep_last = _count("keep_last", keep_last)
        self._keep_every = _count("keep_every", keep_every)
        self._keep_best = None if keep_best is None else _metric_and_mode(keep_best)
        self._limits = limits
        self._timeout = timeout
        self._pending: PendingBundle | None = None
        self._known: dict[int, tuple[Hashable, Metrics]] = {}

    def __repr__(self) -> str:
        kept = {
            "keep_last": self._keep_last,
            "keep_best": self._keep_best,
            "keep_every": self._keep_every,
        }
        options = [f", {name}={value!r}" for name, value in kept.items() if value is not None]
        return f"Series({str(self.root)!r}{''.join(options)})"

    def _repr_html_(self) -> str:
        found = self._complete()
        names = sorted({name for metrics in found.values() for name in metrics})
        best = self._best(found)
        rows: list[list[str]] = []
        for step, metrics in found.items():
            values = [f"{metrics[name]:g}" if name in metrics else "" for name in names]
            marks = {"latest": max(found), "best": best}
            marked = [mark for mark, of in marks.items() if of == step]
            rows.append([str(step), *values, ", ".join(marked)])
        return notebook_table(("step", *names, ""), rows, repr(self))

    # Reading

    def steps(self) -> list[int]:
        """The complete steps, in their order.

        Raises:
            SerializationError: The folder cannot be read.
        """
        return list(self._complete())

    def latest(self) -> int | None:
        """The latest complete step; None if there is none."""
        return max(self._complete(), default=None)

    def best(self) -> int | None:
        """The complete step with the best value of the metric that ``keep_best`` names; None if none has it.

        Of equal values the latest is best. NaN never is.

        Raises:
            ValueError: The series was made without ``keep_best``.
        """
        if self._keep_best is None:
            message = "best: expected a series that has keep_best, got one without"
            raise ValueError(f'{message}; pass keep_best=("energy", "min"), or load a step')
        return self._best(self._complete())

    @overload
    def load(
        self,
        step: int | Literal["latest", "best"] = ...,
        *,
        load_cls: type[T],
        **options: Unpack[LoadOptions],
    ) -> T: ...
    @overload
    def load(
        self,
        step: int | Literal["latest", "best"] = ...,
        *,
        load_cls: None = None,
        **options: Unpack[LoadOptions],
    ) -> Any: ...
    def load(
        self,
        step: Any = "latest",
        *,
        load_cls: Any = None,
        **options: Unpack[LoadOptions],
    ) -> Any:
        """Loads a step.

        Args:
            step: Its number, ``"latest"`` or ``"best"``.
            load_cls: As for :func:`~neuralqx_struct.load`.
            **options: The other options of :func:`~neuralqx_struct.load`.

        Raises:
            BundleMissingError: There is no such step; lists those that there are.
            SerializationError: As :func:`~neuralqx_struct.load`.
            ValueError: ``step`` is something else, or ``"best"`` of a series without ``keep_best``.
        """
        finders = {"latest": self.latest, "best": self.best}
        find = finders.get(step) if isinstance(step, str) else None
        if find is None:
            number = _number(step, *finders)
            return self._loaded(number, load_cls, options)
        for _ in range(_ATTEMPTS):
            found = find()
            if found is None:
                break
            try:
                return self._loaded(found, load_cls, options)
            except bundle.BundleMissingError:  # a writer has removed it by now
                continue
        raise self._missing(f"a {step} step")

    def _loaded(self, step: int, load_cls: Any, options: LoadOptions) -> Any:
        options.setdefault("limits", self._limits)
        try:
            return load(self._path(step), load_cls=load_cls, **options)
        except bundle.BundleMissingError as error:
            raise self._missing(f"step {step}") from error

    def _missing(self, wanted: str) -> bundle.BundleMissingError:
        steps = self.steps()
        if steps:
            reason = f"the complete steps are {listed(steps)}"
            hint = 'load one of them, "latest" or "best"'
        else:
            reason, hint = "no step is complete", "check the folder, or save a step first"
        message = f"expected {wanted}, got none\n{reason}"
        error = bundle.BundleMissingError(message, file=str(self.root), hint=hint)
        return numbered(error, errno.ENOENT, self.root)

    def _path(self, step: int) -> Path:
        return self.root / str(step)

    def _complete(self) -> dict[int, Metrics]:
        """The complete steps with their metrics; each manifest is read once."""
        known: dict[int, tuple[Hashable, Metrics]] = {}
        for step, mark in self._folder.marks().items():
            held = self._known.get(step)
            if held is None or held[0] != mark:
                metrics = metrics_at(self._path(step), self._limits)
                if metrics is None:
                    continue
                held = mark, metrics
            known[step] = held
        self._known = known
        return {step: metrics for step, (_, metrics) in known.items()}

    def _best(self, found: Mapping[int, Metrics]) -> int | None:
        if self._keep_best is None:
            return None
        name, mode = self._keep_best
        order = _MODES[mode]
        scores = [
            (order(metrics[name]), -step) for step, metrics in found.items() if name in metrics
        ]
        ranked = [score for score in scores if not math.isnan(score[0])]
        return -min(ranked)[1] if ranked else None

    # Writing

    @overload
    def save(
        self,
        step: int,
        obj: Any,
        metrics: Mapping[str, Any] = ...,
        *,
        asynchronous: Literal[True],
        timeout: float | None = ...,
        **options: Unpack[ExportOptions],
    ) -> PendingBundle: ...
    @overload
    def save(
        self,
        step: int,
        obj: Any,
        metrics: Mapping[str, Any] = ...,
        *,
        asynchronous: Literal[False] = False,
        timeout: float | None = ...,
        **options: Unpack[ExportOptions],
    ) -> Path: ...
    def save(
        self,
        step: int,
        obj: Any,
        metrics: Mapping[str, Any] = MappingProxyType({}),
        *,
        asynchronous: bool = False,
        timeout: float | None = None,
        **options: Unpack[ExportOptions],
    ) -> Path | PendingBundle:
        """Saves a step, and removes the steps that are not to be kept.

        The new step and the latest one are always kept. A step that cannot be removed is logged, and tried
        again by the next save.

        Args:
            step: Its number, at least 0.
            obj: As for :func:`~neuralqx_struct.export`.
            metrics: Real numbers by name, kept in the metadata of the bundle.
            asynchronous: Return when all arrays have been copied; the next save waits for this one.
            timeout: Seconds to wait for another process that writes the series; None for those of the series.
            **options: The other options of :func:`~neuralqx_struct.export`, such as ``store``; ``overwrite``
                replaces a step.

        Returns:
            The path of the step; with ``asynchronous`` a
            :class:`~neuralqx_struct.bundle.writing.PendingBundle`.

        Raises:
            SerializationError: As :func:`~neuralqx_struct.export`; of an earlier save in the background too.
            BundleBusyError: Another process writes the series for longer than ``timeout``; a TimeoutError too.
            ValueError: The step or a metric is no number.
            TypeError: ``metrics`` or ``metadata`` is no mapping.
        """
        number = _number(step)
        given = options.get("metadata") or {}
        if not isinstance(given, Mapping):
            raise TypeError(f"metadata=: expected a mapping, got {brief(given)}")
        metadata = dict(given)
        if METRICS in metadata:
            message = f"metadata=: expected no member {METRICS!r}, got one"
            raise ValueError(f"{message}; pass the numbers as metrics=")
        if metrics:
            metadata[METRICS] = metrics_to_plain(metrics)
        options["metadata"] = metadata or None
        options.setdefault("limits", self._limits)
        self._refuse_link(number)
        if self._pending is not None and not inside_a_save():
            self._pending.settle()
        written = save(
            obj,
            self._path(number),
            asynchronous=asynchronous,
            around=self._writing(number, self._timeout if timeout is None else timeout),
            **options,
        )
        if isinstance(written, PendingBundle):
            self._pending = written
        return written

    def _refuse_link(self, step: int) -> None:
        """Raises if a step is a link: the bundle that it leads to belongs to somebody else."""
        path = self._path(step)
        if isinstance(path, Path) and path.is_symlink():
            message = f"expected a step of this series, got a link to {os.path.realpath(path)}"
            hint = "remove the link, or save another step"
            error = bundle.BundleExistsError(message, file=str(path), hint=hint)
            raise numbered(error, errno.EEXIST, path)

    @contextmanager
    def _writing(self, step: int, timeout: float | None) -> Iterator[None]:
        """Keeps other processes away while a step is written, and removes old steps after it."""
        with self._folder.turn(timeout):
            yield
            with _logged(self.root):
                self._folder.tidy()
                for each in self._outdated(step):
                    with _logged(self._path(each)):
                        self._folder.remove(each)

    def _outdated(self, saved: int) -> list[int]:
        """The steps that are not to be kept after a save."""
        if self._keep_last is None:
            return []
        found = self._complete()
        steps = list(found)
        kept = {saved, self._best(found), *steps[-self._keep_last :]}
        if self._keep_every is not None:
            kept.update(step for step in steps if step % self._keep_every == 0)
        return [step for step in steps if step not in kept]


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Logs why something could not be removed; the saved step is complete all the same."""
    try:
        yield
    except FileNotFoundError:  # another program has removed it
        pass
    except OSError as error:
        _LOG.warning("%s: expected to remove it, got: %s", path, error.strerror or error)


def _number(step: Any, *names: str) -> int:
    """The number of a step.

    Raises:
        ValueError: It is none.
    """
    try:
        if isinstance(step, (bool, str)):
            raise TypeError
        number = index(step)
    except TypeError:
        number = -1
    if not 0 <= number < 10**18:
        choices = "".join(f"{name!r}, " for name in names)
        raise ValueError(f"step=: expected {choices}a whole number from 0 on, got {brief(step)}")
    return number


def _count(name: str, value: Any) -> int | None:
    if value is None or (type(value) is int and value > 0):
        return value
    raise ValueError(f"{name}=: expected a number of at least 1 or None, got {brief(value)}")


def _metric_and_mode(given: Any) -> tuple[str, str]:
    if isinstance(given, (tuple, list)) and len(given) == 2:
        name, mode = given
        if isinstance(name, str) and isinstance(mode, str) and mode in _MODES:
            return name, mode
    example = '("energy", "min")'
    raise ValueError(
        f"keep_best=: expected a metric and a mode, as in {example}, got {brief(given)}"
    )
