"""The folder of a series: its complete steps with their facts, the turns of its writers, and removal.

The folder is on a disk or behind a URL. On a disk writers take turns by a lock. Servers have none: there every step is
written and removed so that writers who meet leave whole steps, and a step that two of them save at once is refused to one.
Metrics are real numbers by name, in the metadata of a bundle, as is all else that a series keeps beside an object.

Example:
    >>> import tempfile
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> root = root_of(f"{tempfile.mkdtemp()}/run")
    >>> with root.turn(None):
    ...     _ = bundle.write(root.path / "5", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> [*root.marks()], root.remove(5), [*root.marks()]
    ([5], None, [])
    >>> metrics_of_plain(metrics_to_plain({"energy": -1.5, "error": math.inf}))
    {'energy': -1.5, 'error': inf}
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from neuralqx_struct import bundle
from neuralqx_struct.bundle.uploads import remove_remote
from neuralqx_struct.errors import StructError, has_errors
from neuralqx_struct.manifest import MANIFEST, Limits, raise_findings
from neuralqx_struct.places.atomic import clear_leftovers, current, remove
from neuralqx_struct.places.disk import BundleReadError, refusals_named, refused_reading
from neuralqx_struct.places.locks import turn
from neuralqx_struct.places.steps import numbers_of, step_paths
from neuralqx_struct.places.urls import Options, Place, RemotePath, place_of
from neuralqx_struct.printing import brief


class Root(Protocol):
    """The folder of a series."""

    @property
    def path(self) -> Place:
        """Its path."""

    def marks(self) -> Mapping[int, Hashable]:
        """The steps, in their order, and the identity of the manifest of each: another one if the step was written again.

        It is None where there is no manifest, as in a step that was removed meanwhile.
        """

    def turn(self, timeout: float | None) -> AbstractContextManager[None]:
        """Keeps the writers of other processes away, where the system can.

        Raises:
            BundleBusyError: One of them works for more seconds than ``timeout``.
        """

    def tidy(self) -> None:
        """Removes files of writers that were stopped, where it is known that they were."""

    def remove(self, step: int) -> None:
        """Removes a step.

        Raises:
            FileNotFoundError: There is none.
            OSError: The system refused.
        """


def root_of(path: str | Place, options: Options | None = None) -> Root:
    """The folder of a series at a path or a URL."""
    place = place_of(path, options)
    return DiskRoot(place) if isinstance(place, Path) else RemoteRoot(place)


@dataclass(frozen=True, slots=True)
class DiskRoot:
    """The folder of a series on a disk."""

    path: Path

    def marks(self) -> Mapping[int, Hashable]:
        """The steps, and the identity of the manifest of each; see :class:`Root`."""
        try:
            paths = step_paths(self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise refused_reading(error, self.path) from error
        return {step: _mark(path) for step, path in paths.items()}

    @contextmanager
    def turn(self, timeout: float | None) -> Iterator[None]:
        """Lets the writers of one process at a time in."""
        with refusals_named(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with turn(self.path, timeout):
            yield

    def tidy(self) -> None:
        """Removes files of killed writers."""
        clear_leftovers(self.path)

    def remove(self, step: int) -> None:
        """Removes a step without harm to its readers."""
        remove(self.path / str(step))


def _mark(path: Path) -> Hashable | None:
    """The identity of a manifest; None if there is none."""
    try:
        seen = ((current(path) or path) / MANIFEST).stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


@dataclass(frozen=True, slots=True)
class RemoteRoot:
    """The folder of a series behind a URL."""

    path: RemotePath

    def marks(self) -> Mapping[int, Hashable]:
        """The steps with a manifest, and its facts, of one listing."""
        found: dict[str, Hashable] = {}
        for name, facts in self.path.files_below().items():
            step, _, file = name.partition("/")
            if file == MANIFEST:
                found[step] = tuple(sorted((key, str(value)) for key, value in facts.items()))
        return {step: found[str(step)] for step in numbers_of(found)}

    def turn(self, timeout: float | None) -> AbstractContextManager[None]:  # noqa: ARG002
        """Nothing: servers have no locks."""
        return nullcontext()

    def tidy(self) -> None:
        """Nothing: an upload of another writer looks the same as one that was stopped."""

    def remove(self, step: int) -> None:
        """Removes a step, its manifest first."""
        remove_remote(self.path / str(step))


Metrics = Mapping[str, float]
#: The members of the metadata: metrics, and the other facts that a series keeps.
METRICS: Final = "metrics"
SERIES: Final = "series"
#: The members of the latter: the time of the save, and the state of a data loader in each process.
SAVED: Final = "saved"
DATA: Final = "data"


class Facts(NamedTuple):
    """What the manifest of a step has for its series.

    Attributes:
        metrics: Its metrics.
        saved: When it was saved, if it was saved with a policy by time.
    """

    metrics: Metrics
    saved: datetime | None


@bundle.read_again
def facts_at(path: Place, limits: Limits | None = None) -> Facts | None:
    """The facts of a step; None if it is not complete, or above the limits.

    Raises:
        BundleReadError: The system or the server refuses to read it, complete or not.
    """
    try:
        with bundle.opened(path, limits, alone=True) as found:
            if has_errors(found.findings) or has_errors(found.size_findings()):
                return None
            metadata = found.document.get("metadata", {})
            saved = _member(metadata, SAVED)
            return Facts(metrics_of_plain(metadata.get(METRICS)), _time_of_plain(saved))
    except BundleReadError:
        raise
    except StructError:
        return None


@bundle.read_again
def data_at(path: Place, limits: Limits | None = None) -> list[Any]:
    """The states of a data loader in a step, one of each process that saved it; none if it has no state.

    Raises:
        SerializationError: The manifest cannot be read.
    """
    with bundle.opened(path, limits, alone=True) as found:
        raise_findings(found.findings, str(path))
        data = _member(found.document.get("metadata", {}), DATA)
        return data if isinstance(data, list) else []


def _member(metadata: Mapping[str, Any], name: str) -> Any:
    """A fact about a step; None if it is not there, or the member belongs to another program."""
    facts = metadata.get(SERIES)
    return facts.get(name) if isinstance(facts, Mapping) else None


def _time_of_plain(plain: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(plain)
    except (TypeError, ValueError):
        return None
    return None if time.tzinfo is None else time


def metrics_to_plain(metrics: Mapping[str, Any]) -> dict[str, float | str]:
    """Metrics as values of JSON: numbers, and text for NaN and the infinite ones.

    Raises:
        ValueError: A name is no text, or a value no real number; lists all of them.
        TypeError: It is no mapping.

    Example:
        >>> metrics_to_plain({"energy": -1.5, "error": math.nan})
        {'energy': -1.5, 'error': 'nan'}
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics=: expected a mapping of real numbers, got {brief(metrics)}")
    plain: dict[str, float | str] = {}
    wrong = []
    for name, value in metrics.items():
        try:
            if not isinstance(name, str) or isinstance(value, str) or not _is_real(value):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            wrong.append(f"{brief(name)}: {brief(value)}")
            continue
        plain[name] = number if math.isfinite(number) else str(number)
    if wrong:
        message = f"metrics=: expected real numbers by name, got {', '.join(wrong)}"
        raise ValueError(f"{message}; of complex numbers pass the real part")
    return plain


def _is_real(value: Any) -> bool:
    import numpy as np

    return np.ndim(value) == 0 and not np.iscomplexobj(value)


def metrics_of_plain(plain: Any) -> Metrics:
    """The inverse of :func:`metrics_to_plain`; leaves out members of other programs.

    Example:
        >>> metrics_of_plain({"energy": -1.5, "error": "nan", "note": "good"})
        {'energy': -1.5, 'error': nan}
    """
    found: dict[str, float] = {}
    for name, value in plain.items() if isinstance(plain, Mapping) else ():
        if type(value) in (int, float) or value in ("nan", "inf", "-inf"):
            try:
                found[name] = float(value)
            except OverflowError:
                continue
    return found
