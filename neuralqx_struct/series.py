"""The steps of a run: saves a bundle for each, finds the latest and the best, and removes the others.

A step is the bundle ``<root>/<step>``. It takes this name when it is complete, so every step is whole or not
there. Its metrics, and the state of a data loader, are in the metadata of its manifest: every store, form and migration
carries them. ``bundle/roots.py`` lists and removes the steps of a folder on a disk or behind a URL.

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
import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeVar, Unpack, cast, overload

from neuralqx_struct import bundle
from neuralqx_struct.bundle.roots import (
    DATA,
    METRICS,
    SAVED,
    SERIES,
    Facts,
    data_at,
    facts_at,
    metrics_to_plain,
    root_of,
)
from neuralqx_struct.bundle.writing import PendingBundle, inside_a_save
from neuralqx_struct.checkpoint import ExportKeywords, LoadKeywords, load, save
from neuralqx_struct.checkpoint.options import ExportOptions
from neuralqx_struct.checkpoint.packing import packed, unpacked
from neuralqx_struct.errors import SerializationError, StructError
from neuralqx_struct.formats.hosts import agreed, count, rank
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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DataState(Protocol):
    """A data loader that can go on from where it was, such as the iterators of grain."""

    def get_state(self) -> Any:
        """The state: bytes, text, or a dict, list or array of values that can be saved."""

    def set_state(self, state: Any, /) -> object:
        """Goes on from a state."""


class Series:
    """The checkpoints of one run, a bundle ``<root>/<step>`` for each step.

    Any number of programs may read a series while it is written. Two that write it take turns, and a save that
    another one of the same process contains, as in the handler of a signal, is done at once; behind a URL, where
    nothing can be locked, they leave whole steps all the same, and one of two that save the same step is refused.

    Args:
        root: The folder, a path or a URL such as ``s3://bucket/run`` (with the extra ``remote``); made by the first save.
        keep_last: The number of latest steps to keep; None keeps every step.
        keep_best: A metric and ``"min"`` or ``"max"``: keeps the step with the best value too.
        keep_every: Keeps the steps that this number divides too; or, with a ``datetime.timedelta``, the first step of each
            such time, as of each hour. Steps of such a series store when they were saved; those that do not are kept.
        save_every: The steps for which :meth:`should_save` is true: those that this number divides, or, with a
            ``timedelta``, the next one when so much time has passed since the last save.
        preemption: Take SIGTERM as the wish for one last step: :meth:`should_save` is then true, and so is
            :attr:`preempted`. A handler that Python code has set before is called too, another one is replaced. Only the
            main thread can set handlers; this one stays until the process ends.
        limits: Sizes above which a step is refused, and is none; ``save`` and ``load`` take it over.
        timeout: Seconds that a save waits for another process that writes the series; None for any time, and after
            five it is logged which process that is. Saves of one process never wait for each other's turn.
        storage_options: Options of fsspec for a URL, such as keys.

    Raises:
        ValueError: An argument has no meaning, or ``preemption`` is wanted in another thread.
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
        keep_every: int | timedelta | None = None,
        save_every: int | timedelta = 1,
        preemption: bool = False,
        limits: Limits | None = None,
        timeout: float | None = None,
        storage_options: Options | None = None,
    ) -> None:
        self._folder = root_of(os.fspath(root), storage_options)
        self.root = cast("Path", self._folder.path)  # of a URL a RemotePath
        self._keep_last = _count("keep_last", keep_last)
        self._keep_every = None if keep_every is None else _interval("keep_every", keep_every)
        self._save_every = _interval("save_every", save_every)
        self._preempted = False
        self._begun = False  # True once there is a step for certain
        self._saved: int | None = None
        self._saved_at = time.monotonic()
        self._keep_best = None if keep_best is None else _metric_and_mode(keep_best)
        self._limits = limits
        self._timeout = timeout
        self._pending: PendingBundle | None = None
        self._known: dict[int, tuple[Hashable, Facts]] = {}
        self._notice = _Notice.installed() if preemption else None

    def __repr__(self) -> str:
        kept = {
            "keep_last": self._keep_last,
            "keep_best": self._keep_best,
            "keep_every": self._keep_every,
            "save_every": None if self._save_every == 1 else self._save_every,
            "preemption": None if self._notice is None else True,
        }
        options = [f", {name}={value!r}" for name, value in kept.items() if value is not None]
        return f"Series({str(self.root)!r}{''.join(options)})"

    def _repr_html_(self) -> str:
        found = self._complete()
        names = sorted({name for facts in found.values() for name in facts.metrics})
        best = self._best(found)
        rows: list[list[str]] = []
        for step, (metrics, _) in found.items():
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
        data: DataState | None = None,
        **options: Unpack[LoadKeywords],
    ) -> T: ...
    @overload
    def load(
        self,
        step: int | Literal["latest", "best"] = ...,
        *,
        load_cls: None = None,
        data: DataState | None = None,
        **options: Unpack[LoadKeywords],
    ) -> Any: ...
    def load(
        self,
        step: Any = "latest",
        *,
        load_cls: Any = None,
        data: DataState | None = None,
        **options: Unpack[LoadKeywords],
    ) -> Any:
        """Loads a step.

        Args:
            step: Its number, ``"latest"`` or ``"best"``.
            load_cls: As for :func:`~neuralqx_struct.load`.
            data: A data loader, which gets the state that was saved with the step when all else is loaded.
            **options: The other options of :func:`~neuralqx_struct.load`.

        Raises:
            BundleMissingError: There is no such step; lists those that there are.
            SerializationError: As :func:`~neuralqx_struct.load`; NQX414, the step has no state of a data loader.
            ValueError: ``step`` is something else, or ``"best"`` of a series without ``keep_best``.
            TypeError: ``data`` has no method ``set_state``.

        Example:
            >>> import tempfile
            >>> class Numbers:
            ...     def __init__(self):
            ...         self.seen = 0
            ...     def get_state(self):
            ...         return {"seen": self.seen}
            ...     def set_state(self, state):
            ...         self.seen = state["seen"]
            >>> series, numbers = Series(tempfile.mkdtemp()), Numbers()
            >>> numbers.seen = 7
            >>> _ = series.save(1, {"w": 0.5}, data=numbers)
            >>> again = Numbers()
            >>> series.load("latest", data=again), again.seen
            ({'w': 0.5}, 7)
        """
        _require_method("set_state", data)
        finders = {"latest": self.latest, "best": self.best}
        find = finders.get(step) if isinstance(step, str) else None
        if find is None:
            number = _number(step, *finders)
            return self._loaded(number, load_cls, data, options)
        for _ in range(_ATTEMPTS):
            found = find()
            if found is None:
                break
            try:
                return self._loaded(found, load_cls, data, options)
            except bundle.BundleMissingError:  # a writer has removed it by now
                continue
        raise self._missing(f"a {step} step")

    def _loaded(
        self, step: int, load_cls: Any, data: DataState | None, options: LoadKeywords
    ) -> Any:
        options.setdefault("limits", self._limits)
        path, limits = self._path(step), options["limits"]
        trust = options.get("trust", ())
        try:
            while True:
                states = [] if data is None else data_at(path, limits)
                state = None if data is None else _own_state(states, path, trust)
                value = load(path, load_cls=load_cls, **options)
                # Both are of one save, also if a writer has replaced the step between the two.
                if data is None or states == data_at(path, limits):
                    break
        except bundle.BundleMissingError as error:
            raise self._missing(f"step {step}") from error
        if data is not None:
            data.set_state(state)
        return value

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

    def _complete(self) -> dict[int, Facts]:
        """The complete steps with their facts; each manifest is read once.

        A writer may have gone on since the folder was listed, and have removed all that was listed.
        """
        listed_before = None
        for _ in range(_ATTEMPTS):
            marks = self._folder.marks()
            known: dict[int, tuple[Hashable, Facts]] = {}
            for step, mark in marks.items():
                held = self._known.get(step)
                if held is None or held[0] != mark:
                    facts = None if mark is None else facts_at(self._path(step), self._limits)
                    held = None if facts is None else (mark, facts)
                if held is not None:
                    known[step] = held
            self._known = known
            if len(known) == len(marks) or marks == listed_before:
                break
            listed_before = marks
        return {step: facts for step, (_, facts) in known.items()}

    def _best(self, found: Mapping[int, Facts]) -> int | None:
        if self._keep_best is None:
            return None
        name, mode = self._keep_best
        order = _MODES[mode]
        scores = [
            (order(metrics[name]), -step) for step, (metrics, _) in found.items() if name in metrics
        ]
        ranked = [score for score in scores if not math.isnan(score[0])]
        return -min(ranked)[1] if ranked else None

    # Writing

    def should_save(self, step: int, *, last: int | None = None) -> bool:
        """True if a step is to be saved, as ``save_every`` and ``preemption`` say.

        The first step of a series without steps and the last one are to be saved too; the step that this object has
        saved last is not. In a program of several processes every one calls this, and all get the same answer.

        Args:
            step: Its number.
            last: The number of the last step of the run, if it is known.

        Raises:
            SerializationError: The folder cannot be read.
            ValueError: The step is no number.

        Example:
            >>> import tempfile
            >>> series = Series(tempfile.mkdtemp(), save_every=5)
            >>> for step in range(1, 13):
            ...     if series.should_save(step, last=12):
            ...         _ = series.save(step, {"step": step})
            >>> series.steps()
            [1, 5, 10, 12]
        """
        number = _number(step)
        every, notice = self._save_every, self._notice

        def votes() -> bytes:
            if isinstance(every, timedelta):
                due = time.monotonic() - self._saved_at >= every.total_seconds()
            else:
                due = number % every == 0
            first = not self._begun and self.latest() is None
            return bytes((due, first, notice is not None and notice.received))

        # Processes can differ in their clocks, in signals, and in the steps that they see already.
        alike = self._begun and notice is None and not isinstance(every, timedelta)
        everyone = [votes()] if alike else agreed(votes)
        due, first, told = (any(column) for column in zip(*everyone, strict=True))
        self._begun = not first
        self._preempted |= told
        return number != self._saved and (due or first or told or number == last)

    @property
    def preempted(self) -> bool:
        """True if the program is to end: a call of :meth:`should_save` has answered a SIGTERM.

        It never becomes true between ``should_save`` and the end of the loop, so no step ends unsaved. Always False
        without ``preemption``.

        Example:
            >>> import os, signal, tempfile
            >>> series = Series(tempfile.mkdtemp(), save_every=1000, preemption=True)
            >>> for step in range(1, 100):
            ...     if step == 3:
            ...         os.kill(os.getpid(), signal.SIGTERM)
            ...     if series.should_save(step):
            ...         _ = series.save(step, {"step": step})
            ...     if series.preempted:
            ...         break
            >>> series.steps()
            [1, 3]
            >>> _ = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        """
        return self._preempted

    @overload
    def save(
        self,
        step: int,
        obj: Any,
        metrics: Mapping[str, Any] = ...,
        *,
        data: DataState | None = ...,
        asynchronous: Literal[True],
        timeout: float | None = ...,
        **options: Unpack[ExportKeywords],
    ) -> PendingBundle: ...
    @overload
    def save(
        self,
        step: int,
        obj: Any,
        metrics: Mapping[str, Any] = ...,
        *,
        data: DataState | None = ...,
        asynchronous: Literal[False] = False,
        timeout: float | None = ...,
        **options: Unpack[ExportKeywords],
    ) -> Path: ...
    def save(
        self,
        step: int,
        obj: Any,
        metrics: Mapping[str, Any] = MappingProxyType({}),
        *,
        data: DataState | None = None,
        asynchronous: bool = False,
        timeout: float | None = None,
        **options: Unpack[ExportKeywords],
    ) -> Path | PendingBundle:
        """Saves a step, and removes the steps that are not to be kept.

        The new step and the latest one are always kept. A step that cannot be removed is logged, and tried
        again by the next save.

        Args:
            step: Its number, at least 0.
            obj: As for :func:`~neuralqx_struct.export`.
            metrics: Real numbers by name, kept in the metadata of the bundle.
            data: A data loader, whose state is kept too, as it is now; in a program of several processes that of each.
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
            TypeError: ``metrics`` or ``metadata`` is no mapping, or ``data`` has no method ``get_state``.
        """
        number = _number(step)
        given = options.get("metadata") or {}
        if not isinstance(given, Mapping):
            raise TypeError(f"metadata=: expected a mapping, got {brief(given)}")
        metadata = dict(given)
        for name, argument in ((METRICS, "pass the numbers as metrics="), (SERIES, "rename it")):
            if name in metadata:
                message = f"metadata=: expected no member {name!r}, got one"
                raise ValueError(f"{message}; {argument}")
        if metrics:
            metadata[METRICS] = metrics_to_plain(metrics)
        _require_method("get_state", data)
        options.setdefault("limits", self._limits)
        self._refuse_link(number)
        if self._pending is not None and not inside_a_save():
            self._pending.settle()
        facts: dict[str, Any] = {}
        if isinstance(self._keep_every, timedelta):
            facts[SAVED] = datetime.now(UTC).isoformat(timespec="milliseconds")
        if data is not None:
            facts[DATA] = _states(data)
        if facts:
            metadata[SERIES] = facts
        options["metadata"] = metadata or None
        written = save(
            obj,
            self._path(number),
            ExportOptions(asynchronous=asynchronous, **options),
            self._writing(number, self._timeout if timeout is None else timeout),
        )
        if isinstance(written, PendingBundle):
            self._pending = written
        self._begun, self._saved, self._saved_at = True, number, time.monotonic()
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
        kept = {saved, self._best(found), *steps[-self._keep_last :], *self._regular(found)}
        return [step for step in steps if step not in kept]

    def _regular(self, found: Mapping[int, Facts]) -> set[int]:
        """The steps that ``keep_every`` keeps."""
        every = self._keep_every
        if every is None:
            return set()
        if not isinstance(every, timedelta):
            return {step for step in found if step % every == 0}
        firsts: dict[int, int] = {}
        for step, (_, saved) in found.items():
            if saved is not None:
                firsts.setdefault((saved - _EPOCH) // every, step)
        return {*firsts.values(), *(step for step in found if found[step].saved is None)}


class _Notice:
    """The handler of SIGTERM: it notes the signal, and calls the handler that was there before.

    Example:
        >>> notice = _Notice(lambda number, frame: print("before"))
        >>> notice(signal.SIGTERM, None)
        before
        >>> notice.received
        True
    """

    def __init__(self, before: Any) -> None:
        self.received = False
        self._before = before  # no function: the default action, or a handler that is not of Python

    def __call__(self, number: int, frame: Any) -> None:
        self.received = True
        if callable(self._before):
            self._before(number, frame)

    @classmethod
    def installed(cls) -> _Notice:
        """The handler of this process; all series share it.

        Raises:
            ValueError: This is not the main thread, which alone may set handlers.
        """
        if threading.current_thread() is not threading.main_thread():
            name = threading.current_thread().name
            message = f"preemption=: expected the main thread, got {name!r}"
            raise ValueError(f"{message}; make the series there, or without preemption=True")
        found = signal.getsignal(signal.SIGTERM)
        if isinstance(found, cls):
            return found
        notice = cls(found)
        signal.signal(signal.SIGTERM, notice)
        return notice


def _require_method(name: str, data: Any) -> None:
    if data is not None and not callable(getattr(data, name, None)):
        raise TypeError(f"data=: expected an object with the method {name}, got {brief(data)}")


def _states(data: DataState) -> list[Any]:
    """The state of a data loader in each process, as plain JSON."""
    return [
        json.loads(text) for text in agreed(lambda: json.dumps(packed(data.get_state())).encode())
    ]


def _own_state(states: list[Any], path: Path, trust: Sequence[str]) -> Any:
    """The state of the data loader of this process.

    Raises:
        SerializationError: There is none, or it was edited.
    """
    place, file = f"metadata.{SERIES}.{DATA}", str(path)
    if len(states) != count():
        got = f"states of {len(states)}" if states else "none"
        message = f"expected the state of a data loader in {count()} process(es), got {got}"
        hint = "load it without data=, and start the loader anew"
        raise SerializationError(message, code="NQX414", path=place, file=file, hint=hint)
    try:
        return unpacked(states[rank()], trust=trust)
    except StructError as error:
        raise error.in_file(file) from error.__cause__
    except (KeyError, TypeError, ValueError) as error:
        message = f"expected the state of a data loader, got something else\n{brief(error)}"
        raise SerializationError(message, code="NQX407", path=place, file=file) from error


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


def _interval(name: str, value: Any) -> int | timedelta:
    if isinstance(value, timedelta):
        if value > timedelta(0):
            return value
    elif type(value) is int and value > 0:
        return value
    expected = "a number of at least 1 or a positive timedelta"
    raise ValueError(f"{name}=: expected {expected}, got {brief(value)}")


def _metric_and_mode(given: Any) -> tuple[str, str]:
    if isinstance(given, (tuple, list)) and len(given) == 2:
        name, mode = given
        if isinstance(name, str) and isinstance(mode, str) and mode in _MODES:
            return name, mode
    example = '("energy", "min")'
    raise ValueError(
        f"keep_best=: expected a metric and a mode, as in {example}, got {brief(given)}"
    )
