"""Agreement among the processes of one JAX program, which write a bundle together.

:func:`agreed` runs a step in each of them and shares the results and failures, so that no process goes on
alone or waits for one that has failed. JAX is used only if the program has imported it.

Example:
    >>> agreed(lambda: b"done")
    [b'done']
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic, SerializationError, StructError
from neuralqx_struct.printing import first_line

_GOOD: Final = b"+"
_FAILED: Final = b"-"
_LENGTH: Final = 4  # bytes of the length of an answer
_SHORT: Final = 64


def count() -> int:
    """The number of processes."""
    if "jax" not in sys.modules:
        return 1
    jax: Any = importlib.import_module("jax")  # waits for another thread that is importing it
    return int(jax.process_count())


def rank() -> int:
    """The index of this process; process 0 writes everything that exists once."""
    return 0 if count() == 1 else int(sys.modules["jax"].process_index())


def agreed(step: Callable[[], bytes]) -> list[bytes]:
    """The results of a step in all processes, in their order. Every process must call this.

    Raises:
        StructError: The step failed in some process. In that process, its own error of any class.
    """
    if count() == 1:
        return [step()]
    failure: Exception | None = None
    try:
        own = _GOOD + step()
    except Exception as error:  # noqa: BLE001 - raised below, once the others know
        failure = error
        own = _FAILED + _failure_text(error)
    try:
        everyone = _gathered(own)
    except RuntimeError as lost:  # raised by JAX alone
        reason = first_line(lost)
        message = f"expected every process to answer, got: {reason}"
        hint = "a process has ended; the bundle that was at the path before is untouched"
        raise failure or SerializationError(message, code="NQX406", hint=hint) from lost
    if failure is not None:
        raise failure
    for number, text in enumerate(everyone):
        if text[:1] == _FAILED:
            raise _failure(number, text[1:])
    return [text[1:] for text in everyone]


def _gathered(own: bytes) -> list[bytes]:
    """The bytes of every process."""
    import numpy as np

    gather = importlib.import_module("jax.experimental.multihost_utils").process_allgather

    def rows(room: int) -> list[bytes]:
        padded = np.frombuffer(message[:room].ljust(room, b"\0"), np.uint8)
        return [row.tobytes() for row in np.asarray(gather(padded)).reshape(-1, room)]

    # A training loop asks at each step, so short answers take one call, which waits for the devices of all.
    message = len(own).to_bytes(_LENGTH, "little") + own
    found = rows(_SHORT)
    ends = [_LENGTH + int.from_bytes(row[:_LENGTH], "little") for row in found]
    if max(ends) > _SHORT:
        found = rows(1 << (max(ends) - 1).bit_length())  # few different sizes: each is compiled
    return [row[_LENGTH:end] for row, end in zip(found, ends, strict=True)]


def _failure_text(error: Exception) -> bytes:
    if isinstance(error, StructError):
        found = error.diagnostics[:20]
    else:
        found = (Diagnostic("NQX406", "error", repr(error)),)
    return json.dumps([type(error).__name__, [asdict(each) for each in found]]).encode()


def _failure(number: int, text: bytes) -> StructError:
    """The error of another process, of its class if that is one of this library."""
    name, found = json.loads(text)
    known = {kind.__name__: kind for kind in _kinds(StructError)}
    where = f"\nin process {number} of the {count()} that write this bundle together"
    problems = [Diagnostic(**each) for each in found]
    return known.get(name, SerializationError)(
        replace(problem, message=problem.message + where) for problem in problems
    )


def _kinds(kind: type[StructError]) -> Iterator[type[StructError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)
