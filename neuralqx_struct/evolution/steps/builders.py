"""Builders: functions that make steps in Python, with keywords, and with errors that name each wrong argument.

Example:
    >>> from neuralqx_struct.schema.migration import Rename
    >>> builder(Rename)(field="rng", to="key")
    Rename(field='rng', to='key')
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from pydantic import ValidationError

from neuralqx_struct.printing import brief
from neuralqx_struct.schema.migration import Step

_S = TypeVar("_S", bound=Step)
_P = ParamSpec("_P")


def builder(model: Callable[_P, _S], **always: Any) -> Callable[_P, _S]:
    """The function that makes a step in Python: it takes keywords and reports wrong ones as a TypeError.

    Args:
        model: The model of the step.
        always: Arguments that are written into the step where the caller leaves them out.
    """

    @functools.wraps(model, assigned=("__doc__",), updated=())
    def build(*args: _P.args, **given: _P.kwargs) -> _S:
        return built(model, *args, **{**always, **given})

    build.__name__ = build.__qualname__ = cast("Any", model).name
    build.__module__ = "neuralqx_struct.evolution.steps"
    return build


def built(model: Callable[..., _S], *args: Any, **given: Any) -> _S:
    """The step.

    Raises:
        TypeError: Names each argument that is wrong.
    """
    try:
        return model(*args, **given)
    except ValidationError as error:
        step, found = cast("type[Step]", model), dict[str, list[str]]()
        for item in error.errors(include_url=False):
            name = "within" if item["loc"][0] == "in" else str(item["loc"][0])
            wanted = _WANTED.get(item["type"], item["msg"].removeprefix("Input should be "))
            found.setdefault(name, []).append(wanted)
        lines = [
            f"steps.{step.name}(): {name}=: {_wrong(name, wanted, step, given)}"
            for name, wanted in found.items()
        ]
        raise TypeError("\n".join(lines)) from None


def _wrong(name: str, wanted: list[str], step: type[Step], given: Mapping[str, Any]) -> str:
    if name not in step.model_fields:
        known = ", ".join(step.model_fields)
        return f"expected a known argument, got {name!r}; known are {known}"
    got = brief(given[name]) if name in given else "none"
    return f"expected {' or '.join(dict.fromkeys(wanted))}, got {got}"


#: The words for an argument by Pydantic's type of error.
_WANTED = {
    "string_type": "text",
    "string_pattern_mismatch": "a name (letters, digits, _, not starting with a digit)",
    "bool_type": "True or False",
    "int_type": "a whole number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "too_short": "more entries",
    "string_too_short": "text that is not empty",
    "missing": "an argument",
}
