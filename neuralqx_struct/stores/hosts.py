"""Hosts: the processes of one JAX program, which write a bundle together.

Owns how they agree: :func:`agreed` runs a step in each of them and lets all know what came of it, so that none goes on alone
and none waits for one that has failed. With one process, which is most programs, the step is all there is. JAX is looked at
only where the program has brought it in.

Example:
    >>> agreed(lambda: b"done")
    [b'done']
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic, SerializationError, StructError

__all__ = ["agreed", "count", "rank"]

_GOOD: Final = b"+"
_FAILED: Final = b"-"


def count() -> int:
    """How many processes there are."""
    jax: Any = sys.modules.get("jax")
    return 1 if jax is None else int(jax.process_count())


def rank() -> int:
    """Which of them this is; the first one, 0, writes what there is but one of."""
    return 0 if count() == 1 else int(sys.modules["jax"].process_index())


def agreed(step: Callable[[], bytes]) -> list[bytes]:
    """What a step gives in each process, in their order. All of them call this, each with its own step.

    Raises:
        StructError: The step has failed in some process; where it did, what it raised there, of whatever class.
    """
    if count() == 1:
        return [step()]
    failure: Exception | None = None
    try:
        told = _GOOD + step()
    except Exception as error:  # noqa: BLE001 - raised below, once the others know
        failure, told = error, _FAILED + _failure_text(error)
    try:
        everyone = _gathered(told)
    except RuntimeError as lost:  # raised by JAX alone
        message = f"expected every process to answer, got: {str(lost).partition(chr(10))[0][:300]}"
        hint = "one of them has ended; what stood at the path before is untouched"
        raise failure or SerializationError(message, code="NQX406", hint=hint) from lost
    if failure is not None:
        raise failure
    for number, text in enumerate(everyone):
        if text[:1] == _FAILED:
            raise _failure(number, text[1:])
    return [text[1:] for text in everyone]


def _gathered(told: bytes) -> list[bytes]:
    """The bytes of every process."""
    import numpy as np

    gather = importlib.import_module("jax.experimental.multihost_utils").process_allgather
    sizes = [int(size) for size in np.ravel(gather(np.array([len(told)], np.int32)))]
    room = 1 << max(max(sizes) - 1, 1).bit_length()  # few different sizes: each is compiled
    padded = np.frombuffer(told.ljust(room, b"\0"), np.uint8)
    rows = np.asarray(gather(padded)).reshape(len(sizes), room)
    return [row.tobytes()[:size] for row, size in zip(rows, sizes, strict=True)]


def _failure_text(error: Exception) -> bytes:
    found = error.diagnostics if isinstance(error, StructError) else [Diagnostic("NQX406", "error", repr(error))]
    return json.dumps([type(error).__name__, [asdict(each) for each in found[:20]]]).encode()


def _failure(number: int, text: bytes) -> StructError:
    """What another process has raised, of its class where that is one of ours."""
    name, found = json.loads(text)
    known = {kind.__name__: kind for kind in _kinds(StructError)}
    said = [Diagnostic(**each) for each in found]
    where = f"\nin process {number} of the {count()} that write this bundle together"
    return known.get(name, SerializationError)(
        Diagnostic(d.code, d.severity, d.message + where, d.path, d.file, d.line, d.column, d.hint) for d in said
    )


def _kinds(kind: type[StructError]) -> Iterator[type[StructError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)
