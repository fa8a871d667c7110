"""Compatibility modes: Confluent's seven, under their names.

``backward``: the new version reads payloads of the one before. ``forward``: the one before reads payloads of the new
version. ``full``: both. ``-transitive``: the same against every earlier version. To add a mode, put its record into
:data:`MODES`.

Example:
    >>> MODES["full-transitive"].directions
    ('backward', 'forward')
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """One compatibility mode.

    Attributes:
        name: Its name in schema files and on the command line.
        directions: The readings that have to work: ``backward``, ``forward``.
        transitive: True if they have to work with all earlier versions, not only with the one before.
        strictness: A larger one promises more; lowering it is reported.
    """

    name: str
    directions: tuple[str, ...]
    transitive: bool
    strictness: int


_NONE = ()
_BACKWARD = ("backward",)
_FORWARD = ("forward",)
_FULL = ("backward", "forward")

#: All modes by name.
MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("none", _NONE, transitive=False, strictness=0),
        Mode("backward", _BACKWARD, transitive=False, strictness=3),
        Mode("backward-transitive", _BACKWARD, transitive=True, strictness=4),
        Mode("forward", _FORWARD, transitive=False, strictness=1),
        Mode("forward-transitive", _FORWARD, transitive=True, strictness=2),
        Mode("full", _FULL, transitive=False, strictness=5),
        Mode("full-transitive", _FULL, transitive=True, strictness=6),
    )
}
