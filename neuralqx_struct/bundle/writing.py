"""Writes bundles, each completely or not at all: at once, or in a thread while the program goes on.

``forms.py`` has the places of bundles. A store that many hosts share writes by itself (:attr:`Store.begin
<neuralqx_struct.formats.store.Store>`): the first process opens the new bundle, every process writes its
shards, and when all of them are on the disk the first one adds the manifest and lets the bundle replace
its target. ``formats/hosts.py`` keeps the processes together. For the other stores the thread writes
copies of the arrays, which the caller makes.

Example:
    >>> import tempfile
    >>> payload = Payload({"version": 1, "manifest": 5, "arrays": {}}, {})
    >>> write(f"{tempfile.mkdtemp()}/ckpt", payload).name
    'ckpt'
    >>> pending = begin(Path(tempfile.mkdtemp(), "ckpt"), lambda: payload, WriteOptions())
    >>> pending.wait().name, pending.done
    ('ckpt', True)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from neuralqx_struct.bundle.forms import form_of, new_bundle
from neuralqx_struct.bundle.members import NewBundle
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.formats.hosts import agreed, rank
from neuralqx_struct.formats.store import Progress, Records, Store, store_named, ticking
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits, collector_paused, raise_findings
from neuralqx_struct.manifest.payload import Payload, StoredArrays, check
from neuralqx_struct.places.disk import Target
from neuralqx_struct.places.urls import Place, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a bundle is written, passed whole to all that write.

    Attributes:
        overwrite: Replace an existing bundle; nothing but a bundle is ever replaced.
        store: The store of the arrays.
        compress: Compress the arrays; they can then not be mapped.
        progress: Called with (bytes done, bytes in all).
        limits: Sizes above which it is refused; readers of a larger one need them too.
    """

    overwrite: bool = False
    store: str = "npz"
    compress: bool = False
    progress: Progress | None = None
    limits: Limits | None = None

    @property
    def most(self) -> Limits:
        """The limits, by default those of every reader."""
        return self.limits or DEFAULT_LIMITS


def write(path: str | Place, payload: Payload, **options: Any) -> Path:
    """Writes a bundle, completely or not at all: a folder, or with the suffix ``.zip`` one file.

    Args:
        path: The target, a path or a URL; missing parents are made.
        payload: The manifest and the arrays.
        **options: The members of :class:`WriteOptions`.

    Returns:
        The path.

    Raises:
        BundleExistsError: The target exists.
        BundleWriteError: The system refused a write; the target is unchanged.
        SerializationError: The payload is not sound, or could not be read back within the limits.
    """
    return written(place_of(path), payload, WriteOptions(**options))


def written(
    path: Place, payload: Payload, options: WriteOptions, shared: dict[str, str] | None = None
) -> Path:
    """As :func:`write`.

    Args:
        path: The target.
        payload: The manifest and the arrays.
        options: How it is written.
        shared: An empty dict for all payloads that share one document and whose arrays are lazy; the document is checked and
            printed for the first of them.
    """
    fill = _filling(path, payload, options, shared)
    with collector_paused(), new_bundle(path, overwrite=options.overwrite) as new:
        fill(new)
    return cast("Path", path)  # of a URL a RemotePath, whose users are few


def _filling(
    path: Place, payload: Payload, options: WriteOptions, shared: dict[str, str] | None = None
) -> Callable[[NewBundle], None]:
    """A function that writes a payload into a new bundle.

    Raises:
        SerializationError: The payload is not sound, or could not be read back within the limits.
    """
    if not shared:
        raise_findings(check(payload, options.most), str(path))
    store = store_named(options.store)
    form_of(path).require(store)
    store.require_compression(compress=options.compress)
    records, arrays = payload.document["arrays"], payload.arrays
    if not isinstance(arrays, StoredArrays) or arrays.keys() != records.keys():
        arrays = {name: arrays[name] for name in records}
    if isinstance(arrays, StoredArrays) and arrays.far:
        arrays.expect(records)
    tick = ticking(options.progress, records)

    def write_arrays(place: Target) -> Records:
        return store.write(place, arrays, compress=options.compress, tick=tick)

    def fill(new: NewBundle) -> None:
        file = new.named(store.file)
        records = new.put(file, write_arrays)
        new.complete(payload.document, records, file, options.most.manifest_bytes, shared)

    return fill


_SHORTEST: Final = 0.0002  # seconds between two looks at a thread
_LONGEST: Final = 0.005
#: ``saves``: how many saves of this thread have begun and not ended.
_INSIDE: Final = threading.local()
#: The bundles that this process writes now, by their absolute paths.
_RUNNING: Final[dict[Place, PendingBundle]] = {}
#: Those that failed, until somebody learns of it.
_FAILED: Final[list[PendingBundle]] = []


class PendingBundle:
    """A bundle that is being written; :func:`~neuralqx_struct.export` returns it for ``asynchronous=True``.

    Its arrays are safe already: they may be donated, and numpy arrays written into. The bundle replaces its
    target when all of it is on the disk, whether or not anybody waits, or never. A failure is raised by
    :meth:`wait`, else by the next export, and logged.

    Attributes:
        path: The path of the bundle.
    """

    def __init__(self, path: Place, finish: Callable[[], None], *, together: bool = False) -> None:
        self.path = cast("Path", path)  # of a URL a RemotePath
        self._failure: BaseException | None = None
        self._process = os.getpid()
        self._ended = False  # no is_alive(): a signal that comes in it would make another one wait
        self._agreed = not together
        self._place = _place(path)
        self._work: list[Callable[[], None]] = []  # none where the thread was given up
        self._thread = threading.Thread(target=self._run, name=f"export to {path}")
        try:
            self._work.append(finish)  # not before: the thread makes it part of a cycle
            _RUNNING[self._place] = self
            self._thread.start()
        except BaseException:  # such as an interrupt: nobody shall wait for it, nor its lock stay
            if not self._thread.is_alive():
                self._work.clear()
                _RUNNING.pop(self._place, None)
                self._ended = True
            raise

    def __repr__(self) -> str:
        if not self.done:
            state = "being written"
        else:
            state = "written" if self._failure is None else "failed"
        return f"<PendingBundle {str(self.path)!r}: {state}>"

    @property
    def done(self) -> bool:
        """True when this process has no more to do, whatever the result."""
        return self._ended or self._process != os.getpid()

    def wait(self) -> Path:
        """Waits until the bundle is complete.

        If several processes write the bundle, every one of them must call this, as it must call ``export``;
        no process returns before all can read the bundle.

        Returns:
            The path.

        Raises:
            SerializationError: The bundle was not written, in whichever of the processes, and the target
                is unchanged; raised again by further calls. Or it is this call that keeps it from being
                written, or a fork of the process that writes it.
        """
        inside = threading.current_thread() is self._thread
        if inside or self._process != os.getpid():
            message = "expected a call of wait() by the program that began the bundle, got one by "
            message += "the thread that writes it" if inside else "a process forked from it"
            raise SerializationError(message, code="NQX406", file=str(self.path))
        self.settle()
        if not self._agreed:
            self._agreed = True
            try:
                agreed(self._outcome)
            except Exception as failure:
                self._failure = failure
                raise
        self._outcome()
        return self.path

    def settle(self) -> None:
        """Waits until this process has no more to do; :meth:`wait` has the result."""
        pause = _SHORTEST
        while not self.done:
            time.sleep(pause)  # no lock, which a signal might interrupt while it is held
            pause = min(2 * pause, _LONGEST)

    def raise_failure(self) -> None:
        """Raises the failure of this process, if there is one; it then counts as seen.

        Raises:
            SerializationError: As :meth:`wait`, which also asks the other processes.
        """
        if self in _FAILED:
            _FAILED.remove(self)
        if self._failure is not None:
            raise self._failure

    def _outcome(self) -> bytes:
        self.raise_failure()
        return b""

    def _run(self) -> None:
        try:
            _INSIDE.saves = 1
            for finish in tuple(self._work):  # the caller may clear it
                finish()
        except BaseException as failure:  # noqa: BLE001 - raised by wait() and by the next export
            self._failure = failure
            _FAILED.append(self)
            import logging  # reading needs none of it

            log = logging.getLogger("neuralqx_struct")
            log.error("%s: the bundle was not written: %s", self.path, failure)  # noqa: TRY400 - wait() raises it with its traceback
        finally:
            self._work.clear()
            if _RUNNING.get(self._place) is self:
                del _RUNNING[self._place]
            self._ended = True


def inside_a_save() -> bool:
    """True in the progress of a save, in the handler of a signal that interrupts one, and in a thread that writes.

    A save there must not wait for others: it may have interrupted what they need.
    """
    return getattr(_INSIDE, "saves", 0) > 0


@contextmanager
def saving() -> Iterator[None]:
    """Marks a save of this thread for :func:`inside_a_save`."""
    before = getattr(_INSIDE, "saves", 0)
    try:
        _INSIDE.saves = before + 1
        yield
    finally:
        _INSIDE.saves = before


def settle(path: str | Place) -> None:
    """Waits for the bundle that this process writes to a path in the background; reports an earlier failure.

    Raises:
        SerializationError: A bundle was not written, to this path or another, and nobody has called its
            :meth:`~PendingBundle.wait`; raised once.
    """
    running = _RUNNING.get(_place(place_of(path))) if _RUNNING else None
    if running is not None:
        running.settle()
    if not _FAILED:
        return
    try:
        _FAILED[0].raise_failure()
    except BaseException as failure:
        failure.add_note(
            "this was an earlier export in the background; the present one has not begun"
        )
        raise


def _place(path: Place) -> Place:
    """The key of a path: the same for all of its names."""
    return Path(os.path.realpath(path)) if isinstance(path, Path) else path


def _folder(place: Target) -> bytes:
    assert isinstance(place, Path)
    return os.fsencode(place.absolute())


def begin(
    path: Place,
    make: Callable[[], Payload],
    options: WriteOptions,
    around: AbstractContextManager[object] | None = None,
) -> PendingBundle:
    """Begins to write a bundle.

    Args:
        path: The folder or zip.
        make: Returns the payload, whose arrays nobody changes.
        options: How it is written; ``progress`` is also called by the thread that writes. If the store writes in the
            background itself, every process of the program calls this with the same arguments and a path that all see; of
            arrays that are spread over processes, each has its own part.
        around: Entered before the bundle is begun and left when it is complete, or given up; in the first
            process only.

    Raises:
        SerializationError: As :func:`~neuralqx_struct.bundle.write`, as far as it is known now; in all processes.
    """
    around = around or nullcontext()
    store = store_named(options.store)
    if store.begin is not None:
        return _begin_together(path, make, store, options, around)
    fill = _filling(path, make(), options)
    with ExitStack() as opened:
        opened.enter_context(around)
        new = opened.enter_context(new_bundle(path, overwrite=options.overwrite))
        kept = opened.pop_all()

    def complete() -> None:
        with kept:
            fill(new)

    return PendingBundle(path, complete)


def _begin_together(
    path: Place,
    make: Callable[[], Payload],
    store: Store,
    options: WriteOptions,
    around: AbstractContextManager[object],
) -> PendingBundle:
    """As :func:`begin`, by all processes of the program."""
    assert store.begin is not None
    payload = Payload({}, {})
    new: NewBundle | None = None
    with ExitStack() as opened:

        def open_first() -> bytes:
            nonlocal payload, new
            payload = make()
            raise_findings(check(payload, options.most), str(path))
            form_of(path).require(store)
            if rank():
                return b""
            opened.enter_context(around)
            new = opened.enter_context(new_bundle(path, overwrite=options.overwrite))
            return new.put(store.file, _folder)

        target = Path(os.fsdecode(agreed(open_first)[0]))
        tick = ticking(options.progress, payload.document["arrays"])
        records = store.begin(target, payload.arrays, tick=tick)
        kept = opened.pop_all()

    def complete() -> None:
        with kept:
            written = records()
            if new is not None:
                new.complete(payload.document, written, store.file, options.most.manifest_bytes)

    return PendingBundle(path, complete, together=True)
