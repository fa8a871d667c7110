"""Limits: how large a schema file may be, for the readers and for the writer alike.

Read as ``limits.MAX_NODES``, so that there is one place that holds them. Limits of expressions and of payloads stand
with those.

Example:
    >>> MAX_BYTES >> 20
    16
"""

from __future__ import annotations

from neuralqx_struct.errors import SchemaError

__all__ = [
    "LARGE_DATA",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_EXPRESSIONS",
    "MAX_NODES",
    "MAX_PROBLEMS",
    "MAX_SCALAR",
    "MAX_SECOND_LOOK",
    "MAX_SUPPRESSIONS",
    "too_large",
]

MAX_BYTES = 16 << 20
MAX_DEPTH = 64
MAX_NODES = 65_536  # keys and values, of 20,000 lines; a busy machine checks them within two seconds
MAX_EXPRESSIONS = 4096  # different texts of types and expressions; reading one takes as long as reading a line
MAX_SCALAR = 1 << 20
MAX_DIGITS = 640  # the smallest limit on int <-> str that Python can be configured to
MAX_PROBLEMS = 1000
MAX_SUPPRESSIONS = 10_000
MAX_SECOND_LOOK = 256 << 10  # bytes of a malformed file, of which the sound fields are looked at, too

LARGE_DATA = "large data belongs into arrays"


def too_large(name: str) -> SchemaError:
    """The error about a text of more than :data:`MAX_BYTES`."""
    message = f"expected at most {MAX_BYTES >> 20} MiB of text, got more"
    return SchemaError(message, code="NQX005", file=name, hint="no schema is this large; is this the right file?")
