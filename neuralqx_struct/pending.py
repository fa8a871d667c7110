"""Bundles that are written while the program goes on, or by several processes of it together.

Owns :class:`PendingBundle` and how one comes about: the first process opens the new bundle, every process writes its shards,
and when all of them are on the disk the first one adds the manifest and lets the bundle take its place. Until then what stood
there before stands. The writing is the store's (``stores/orbax_writing.py``), the agreement of processes ``stores/hosts.py``'s.

Example:
    >>> import tempfile, numpy as np
    >>> node = {"__kind__": "array", "name": "w", "dtype": "int8", "shape": [2]}
    >>> document = {"version": 1, "manifest": node, "arrays": {"w": {"dtype": "int8", "shape": [2]}}}
    >>> pending = begin(f"{tempfile.mkdtemp()}/ckpt", lambda: Payload(document, {"w": np.zeros(2, np.int8)}))
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

from neuralqx_struct import bundle
from neuralqx_struct.payload import Payload, check, raise_findings
from neuralqx_struct.stores import Progress, Records
from neuralqx_struct.stores.hosts import agreed, rank
from neuralqx_struct.stores.orbax_writing import begin as begin_writing
from neuralqx_struct.stores.orbax_writing import folder_of

__all__ = ["PendingBundle", "begin"]

_LOG = logging.getLogger("neuralqx_struct")


class PendingBundle:
    """A bundle that is being written; :func:`~neuralqx_struct.export` gives it for ``asynchronous=True``.

    Its arrays are safe already: they may be donated, and numpy arrays written into. The bundle takes its place at the path
    when all of it is on the disk, whether anybody waits or not, or never.

    Attributes:
        path: Where the bundle will be.
    """

    def __init__(self, path: Path, finish: Callable[[], None]) -> None:
        self.path = path
        self._failure: BaseException | None = None
        self._told = False
        self._thread = threading.Thread(target=self._run, args=(finish,), name=f"export to {path}")
        self._thread.start()

    def __repr__(self) -> str:
        state = "being written" if not self.done else "failed" if self._failure is not None else "written"
        return f"<PendingBundle {str(self.path)!r}: {state}>"

    @property
    def done(self) -> bool:
        """True when nothing is left to be done by this process, whatever came of it."""
        return not self._thread.is_alive()

    def wait(self) -> Path:
        """Wait until the bundle stands at its path.

        Every process of the program must call this, as it must call ``export``, and no process comes back before all can
        read the bundle.

        Returns:
            The path.

        Raises:
            SerializationError: The bundle was not written, in whichever of the processes, and what stood at the path
                before stands; raised again by further calls.
        """
        self._thread.join()
        if not self._told:
            self._told = True
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
        except BaseException as failure:  # noqa: BLE001 - raised by wait(), and told even if nobody waits
            self._failure = failure
            _LOG.error("%s: the bundle was not written: %s", self.path, failure)


def begin(
    path: str | Path, make: Callable[[], Payload], *, overwrite: bool = False, progress: Progress | None = None
) -> PendingBundle:
    """Begin to write a bundle in the store ``orbax``; every process of the program calls this with the same arguments.

    Args:
        path: The folder, on a file system that all processes see.
        make: Makes what is written; of arrays that are spread over processes, each has its own part.
        overwrite: Replace a bundle that is there.
        progress: Called with (bytes done, bytes in all), also by the thread that writes.

    Raises:
        SerializationError: As :func:`~neuralqx_struct.bundle.write`, as far as it can be told now; in all processes.
    """
    path = Path(path)
    with ExitStack() as opened:
        payload = Payload({}, {})
        finish: Callable[[Records], None] | None = None

        def open_first() -> bytes:
            nonlocal payload, finish
            payload = make()
            raise_findings(check(payload), str(path))
            if rank():
                return b""
            unfinished = bundle.unfinished(path, payload.document, store="orbax", overwrite=overwrite)
            put, finish = opened.enter_context(unfinished)
            return os.fsencode(put(lambda place: folder_of(place).absolute()))

        target = Path(os.fsdecode(agreed(open_first)[0]))
        tick = bundle.ticking(progress, payload.document["arrays"])
        records = begin_writing(target, payload.arrays, tick=tick)
        kept = opened.pop_all()

    def complete() -> None:
        with kept:
            written = records()
            if finish is not None:
                finish(written)

    return PendingBundle(path, complete)
