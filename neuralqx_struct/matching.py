"""Matching: named leaves beside those that a declaration has, with a receipt; the messages about missing, unknown and unfit ones.

The declaration may be the fields of a class or of a schema, the names of a layout, or another tree, such as the object of ``like=``.

Example:
    >>> receipt = match({"w": 1.5, "bais": 2.5}, ["w", "bias"])
    >>> dict(receipt)
    {'w': 'fits', 'bias': 'missing', 'bais': 'extra'}
    >>> unfit("missing", "$.bias", wanted="float", hint=receipt.meant("bias")).hint
    "did you mean 'bais'?"
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

from neuralqx_struct.errors import MOST_HINTS, Diagnostic, Severity, did_you_mean

K = TypeVar("K", bound=Hashable)

Verdict = Literal["fits", "missing", "extra", "mistyped", "misshapen"]

_CODES: Mapping[Verdict, str] = {
    "missing": "NQX414",
    "extra": "NQX415",
    "mistyped": "NQX411",
    "misshapen": "NQX412",
}


_MOST_COMPARED = 10_000


class Form(NamedTuple):
    """The dtype and the shape of an array."""

    dtype: str
    shape: tuple[Any, ...]

    @classmethod
    def of(cls, value: Any) -> Form | None:
        """Those of an array; None for other values."""
        try:
            return cls(str(value.dtype), tuple(value.shape))
        except Exception:  # noqa: BLE001 - attributes of foreign objects may raise anything
            return None


def compared(have: Any, want: Any, kind: Callable[[Any], Any] = lambda form: form.dtype) -> Verdict:
    """The verdict about an array, by its form and the one that is wanted.

    Args:
        have: Its form; None for another value.
        want: The other form.
        kind: What has to be equal beside the shape, such as the dtype or its family.
    """
    if have is None or want is None:
        return "fits" if have is want else "mistyped"
    if kind(have) != kind(want):
        return "mistyped"
    return "fits" if have.shape == want.shape else "misshapen"


class Receipt(dict[K, Verdict]):
    """The verdict about each name: those of the declaration in its order, then the others; see :func:`match`."""

    def having(self, *verdicts: Verdict) -> list[K]:
        """The names with one of some verdicts."""
        return [name for name, verdict in self.items() if verdict in verdicts]

    def meant(self, name: K, before: int = 0) -> str | None:
        """A hint with the name on the other side that is most like one that is missing or too many, or None.

        Args:
            name: The name.
            before: The number of findings so far: after many of them there are no hints, for comparing takes time.
        """
        return (
            None
            if before >= MOST_HINTS
            else did_you_mean(str(name), self._sides[self[name] == "missing"])
        )

    @cached_property
    def _sides(self) -> tuple[list[str], list[str]]:
        """The first names of the declaration, and of the others; comparing with all takes time."""
        sides = self.having("fits", "missing"), self.having("extra")
        wanted, extra = ([*map(str, names[:_MOST_COMPARED])] for names in sides)
        return wanted, extra


def match(have: Collection[K], want: Iterable[K]) -> Receipt[K]:
    """Matches leaves by their names.

    Args:
        have: The names of the leaves.
        want: The names of the declaration.
    """
    found = Receipt[K]({name: "fits" if name in have else "missing" for name in want})
    found.update((name, "extra") for name in have if name not in found)
    return found


def unfit(
    verdict: Verdict,
    path: str,
    wanted: object = "nothing",
    got: object = "nothing",
    *,
    origin: str = "",
    hint: str | None = None,
    code: str | None = None,
    severity: Severity = "error",
) -> Diagnostic:
    """The finding about a leaf that does not match.

    Args:
        verdict: The verdict about it.
        path: Its path.
        wanted: The declaration of it, in words.
        got: The leaf in words.
        origin: The name of the declaration.
        hint: The fix.
        code: The code, if it is none of those that the verdicts have.
        severity: The severity.
    """
    source = f", as in {origin}" if origin else ""
    message = f"expected {wanted}{source}, got {got}"
    return Diagnostic(code or _CODES[verdict], severity, message, path, hint=hint)


def missing_field(path: str, declared: str, hint: str | None = None) -> Diagnostic:
    """The finding about a stored field that is missing."""
    return unfit("missing", path, f"a stored field {declared}", "none", hint=hint)


def without_value(path: str, hint: str, severity: Severity = "error") -> Diagnostic:
    """The finding about a field that has neither a stored value nor a default."""
    wanted = "a stored value or a default"
    return unfit("missing", path, wanted, "neither", hint=hint, severity=severity)


def unknown_field(
    path: str, name: object, holder: str, hint: str | None, severity: Severity = "error"
) -> Diagnostic:
    """The finding about a value for a field that a class or a struct does not have."""
    got = f"{str(name)!r}, which it does not have"
    return unfit("extra", path, f"a field of {holder}", got, hint=hint, severity=severity)
