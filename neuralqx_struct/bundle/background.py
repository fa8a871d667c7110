"""Background export: a bundle that is written while the program goes on, or by several processes together.

The first process opens the new bundle, every process writes its shards, and when all of them are on the
disk the first one adds the manifest and lets the bundle replace its target. The store writes
(:attr:`Store.begin <neuralqx_struct.stores.store.Store>`), ``stores/hosts.py`` keeps the processes together.

Example:
    >>> import tempfile, numpy as np
    >>> from neuralqx_struct.stores import store_named
    >>> node = {"__kind__": "array", "name": "w", "dtype": "int8", "shape": [2]}
    >>> document = {"version": 1, "manifest": node, "arrays": {"w": {"dtype": "int8", "shape": [2]}}}
    >>> payload = Payload(document, {"w": np.zeros(2, np.int8)})
    >>> pending = begin(f"{tempfile.mkdtemp()}/ckpt", lambda: payload, store_named("orbax"))
    >>> pending.wait().name, pending.done
    ('ckpt', True)
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from neuralqx_struct.bundle.storage import is_folder_path
from neuralqx_struct.bundle.writing import NewBundle, new_bundle
from neuralqx_struct.manifest.payload import Payload, check, raise_findings
from neuralqx_struct.stores.hosts import agreed, rank
from neuralqx_struct.stores.store import Progress, Store, Target, ticking

__all__ = ["PendingBundle", "begin"]

_LOG = logging.getLogger("neuralqx_struct")


class PendingBundle:
    """A bundle that is being written; :func:`~neuralqx_struct.export` returns it for ``asynchronous=True``.

    Its arrays are safe already: they may be donated, and numpy arrays written into. The bundle replaces its
    target when all of it is on the disk, whether or not anybody waits, or never.

    Attributes:
        path: The path of the bundle.
    """

    def __init__(self, path: Path, finish: Callable[[], None]) -> None:
        self.path = path
        self._failure: BaseException | None = None
        self._agreed = False
        self._thread = threading.Thread(target=self._run, args=(finish,), name=f"export to {path}")
        self._thread.start()

    def __repr__(self) -> str:
        if not self.done:
            state = "being written"
        else:
            state = "written" if self._failure is None else "failed"
        return f"<PendingBundle {str(self.path)!r}: {state}>"

    @property
    def done(self) -> bool:
        """True when this process has no more to do, whatever the result."""
        return not self._thread.is_alive()

    def wait(self) -> Path:
        """Waits until the bundle is complete.

        Every process of the program must call this, as it must call ``export``; no process returns before
        all can read the bundle.

        Returns:
            The path.

        Raises:
            SerializationError: The bundle was not written, in whichever of the processes, and the target
                is unchanged; raised again by further calls.
        """
        self._thread.join()
        if not self._agreed:
            self._agreed = True
            try:
                agreed(self._outcome)
            except Exception as failure:
                self._failure = failure
                raise
        self._outcome()
        return self.path

    def _outcome(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        return b""

    def _run(self, finish: Callable[[], None]) -> None:
        try:
            finish()
        except BaseException as failure:  # noqa: BLE001 - raised by wait(), and logged if nobody waits
            self._failure = failure
            _LOG.error("%s: the bundle was not written: %s", self.path, failure)


def _folder(place: Target) -> bytes:
    assert isinstance(place, Path)
    return os.fsencode(place.absolute())


def begin(
    path: str | Path,
    make: Callable[[], Payload],
    store: Store,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PendingBundle:
    """Begins to write a bundle; every process of the program calls this with the same arguments.

    Args:
        path: The folder, on a file system that all processes see.
        make: Returns the payload; of arrays that are spread over processes, each has its own part.
        store: A store that writes in the background.
        overwrite: Replace an existing bundle.
        progress: Called with (bytes done, bytes in all), also by the thread that writes.

    Raises:
        SerializationError: As :func:`~neuralqx_struct.bundle.write`, as far as it is known now; in all processes.
    """
    assert store.begin is not None
    path = Path(path)
    payload = Payload({}, {})
    new: NewBundle | None = None
    with ExitStack() as opened:

        def open_first() -> bytes:
            nonlocal payload, new
            payload = make()
            raise_findings(check(payload), str(path))
            store.require_form(folder=is_folder_path(path))
            if rank():
                return b""
            new = opened.enter_context(new_bundle(path, overwrite=overwrite))
            return new.put(store.file, _folder)

        target = Path(os.fsdecode(agreed(open_first)[0]))
        tick = ticking(progress, payload.document["arrays"])
        records = store.begin(target, payload.arrays, tick=tick)
        kept = opened.pop_all()

    def complete() -> None:
        with kept:
            written = records()
            if new is not None:
                new.complete(payload.document, written, store.file)

    return PendingBundle(path, complete)
