"""How objects that show their fields appear in rich and in notebooks.

Owns ``__rich_repr__``, ``__treescope_repr__`` and ``_repr_mimebundle_``. They show what ``repr`` shows, laid out, with the same
care: nothing pending is computed, long containers and deep nests are cut, and what cannot be printed is said so. Rich and
treescope are not imported unless they are what asks; without treescope a notebook shows the ``repr``.

Example:
    >>> from rich.pretty import pretty_repr
    >>> from neuralqx_struct import Struct
    >>> class Layer(Struct):
    ...     w: object
    ...     name: str = "dense"
    >>> print(pretty_repr(Layer(w=[1.0] * 3)))
    Layer(w=[1.0, 1.0, 1.0], name='dense')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from neuralqx_struct.printing import UNLABELLED, Shown, Text, brief, parts_of

__all__ = ["Displayed"]

_MANY = 20
_DEEP = 12
_LEAVES = 500


class Displayed(Shown):
    """Base of objects that rich and notebooks lay out."""

    __slots__ = ()

    def __rich_repr__(self) -> Iterable[tuple[str, Any]]:
        """The fields, as ``rich.pretty`` wants them."""
        return _Views(_brief_leaf).fields(self)

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        """The object as treescope lays it out; arrays are shown as treescope shows them."""
        return _render(type(self), dict(_Views(_array_or_brief).fields(self)), path, subtree_renderer)

    # Not _repr_html_: treescope asks that of every object that it renders, and would ask for ever.
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str] | None:  # noqa: ARG002
        """What a notebook shows, where treescope is installed; None leaves it to ``repr``."""
        try:
            import treescope
        except ImportError:
            return None
        # With numbers of its own where JAX traces around it: treescope measures the arrays that it shows.
        with jax.ensure_compile_time_eval():
            return {"text/plain": repr(self), "text/html": treescope.render_to_html(self)}


class _Fields:
    """The fields of an object inside another one; shows itself under the name of that object."""

    def __init__(self, kind: type, fields: Mapping[str, Any]) -> None:
        self.kind = kind
        self.fields = fields

    def __rich_repr__(self) -> Iterable[tuple[str, Any]]:
        return self.fields.items()

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        return _render(self.kind, self.fields, path, subtree_renderer)


class _Text(Text):
    """A text that treescope shows as it is."""

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        from treescope import rendering_parts

        return rendering_parts.text(self.text)


def _render(kind: type, fields: Mapping[str, Any], path: str | None, subtree_renderer: Any) -> Any:
    from treescope import repr_lib

    with jax.ensure_compile_time_eval():
        return repr_lib.render_object_constructor(kind, fields, path, subtree_renderer)


def _brief_leaf(value: Any) -> Any:
    return _Text(brief(value))


def _array_or_brief(value: Any) -> Any:
    """Arrays whose numbers are at hand as they are, everything else as text."""
    try:
        shows = isinstance(value, np.ndarray) and value.dtype != object
        if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
            shows = not value.is_deleted() and value.is_fully_addressable and "key<" not in str(value.dtype)
    except Exception:  # noqa: BLE001 - a stand-in for an array that cannot say what it is
        shows = False
    return value if shows else _brief_leaf(value)


class _Views:
    """Copies of a tree for printing: its first parts, with other objects in place of its leaves."""

    def __init__(self, leaf: Callable[[Any], Any]) -> None:
        self.leaf = leaf
        self.left = _LEAVES

    def fields(self, shown: Shown) -> Iterator[tuple[str, Any]]:
        yield from ((label, self.view(value, _DEEP)) for label, value in shown.__nqx_shown__()[1])

    def view(self, value: Any, depth: int) -> Any:
        self.left -= 1
        try:
            parts = parts_of(value, _MANY)
            if parts is None or not depth or self.left < 0:
                return self.leaf(value)
            entries = [(label, self.view(item, depth - 1)) for label, item in parts.entries]
        except Exception:  # noqa: BLE001 - a container that fails when it is walked has a brief text that says so
            return _brief_leaf(value)
        if not parts.braces:
            kind = type(value)
            return type(kind.__name__, (_Fields,), {"__module__": kind.__module__})(kind, dict(entries))
        items = [item for _, item in entries]
        if parts.braces == "[]":
            return items
        if parts.braces == "()":
            return tuple(items)
        if not entries or any(label is not UNLABELLED for label, _ in entries):
            return {_brief_leaf(item if label is UNLABELLED else label): item for label, item in entries}
        return {item if isinstance(item, Text) else _brief_leaf(item) for item in items}
