"""The generated constructor of a Struct class.

Owns the source of ``__init__``: a real signature, and the straight way from the arguments to the pair of a frozen instance,
with the hooks that look at one value and the proof that a schema's check has. Which classes get one is
``definition.py``'s; what is out of the straight way is ``lifecycle.py``'s.
"""

from __future__ import annotations

import gc
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import InitVar
from textwrap import indent
from typing import TYPE_CHECKING, Any, cast

from neuralqx_struct.fieldspec import MISSING, FieldSpec
from neuralqx_struct.hooks import required_positional
from neuralqx_struct.identity import EXACT_TYPES, OpaqueRef, are_exact
from neuralqx_struct.lifecycle import assign, build, is_false, note_converter, settle, untraced
from neuralqx_struct.printing import Text
from neuralqx_struct.pytree import put

if TYPE_CHECKING:
    from neuralqx_struct.definition import StructMeta

__all__ = ["generate_init", "has_value_hooks"]


def generate_init(cls: StructMeta) -> Callable[..., None]:
    """The constructor, with a real signature: Python itself reports missing and unexpected arguments.

    Classes without hooks, or with such alone as look at one value, store their pair at once; the others go through
    :func:`~neuralqx_struct.lifecycle.build`, and so does whatever is unusual: static values with keys of their own, a
    validator that does not say yes, hooks while JAX traces. Only names that Python
    already accepted as identifiers reach the source text; every value comes in through the namespace.
    """
    positional: list[str] = []
    keyword: list[str] = []
    namespace: dict[str, Any] = {"_nqx_missing": MISSING, "_nqx_build": build, "_nqx_put": put}
    after_default = None
    arguments = {
        name: spec
        for name in cls.__nqx_order__
        if (spec := cls.__nqx_init_vars__.get(name) or cls.__nqx_fields__[name]).init
    }
    for name, spec in arguments.items():
        if spec.has_default:
            namespace[f"_nqx_default_{name}"] = spec.default
        if not spec.kw_only:
            if spec.has_default:
                after_default = name
            elif after_default is not None:
                raise TypeError(
                    f"{cls.__name__}.{name}: expected a default, because {after_default!r} before it has one; "
                    "give it a default, move it up, or make it kw_only=True"
                )
        (keyword if spec.kw_only else positional).append(f"{name}=_nqx_default_{name}" if spec.has_default else name)
    own_self = "_nqx_self" if "self" in arguments else "self"
    signature = ", ".join([own_self, *positional, *(["*", *keyword] if keyword else [])])
    names = ", ".join(f"{name!r}: {name}" for name in arguments if name not in cls.__nqx_init_vars__)
    init_vars = ", ".join(f"{name!r}: {name}" for name in cls.__nqx_init_vars__)
    body = f"    _nqx_build({own_self}, {{{names}}}, {{{init_vars}}})\n"
    # A new instance of this class refers to nothing but its class. Whatever else comes here is an instance that is
    # frozen already, or one of a subclass whose own __init__ finishes what this one only assigns.
    outermost = (
        f"    if _nqx_referents({own_self}) != _nqx_new and _nqx_assign({own_self}, {{{names}}}, {{{init_vars}}}):\n"
        "        return\n"
    )
    namespace |= {"_nqx_type": type, "_nqx_assign": assign, "_nqx_referents": gc.get_referents, "_nqx_new": [cls]}
    if cls.__nqx_plain__ or cls.__nqx_value_hooks__:
        body = _straight(cls, own_self, namespace) + body
    lines = f"def __init__({signature}):\n{outermost}{body}return __init__"
    source = f"def _nqx_make({', '.join(namespace)}):\n{indent(lines, ' ')}"
    made: dict[str, Any] = {}
    # Its globals are those of the module, in which tools such as get_type_hints look for what annotations say as text.
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    exec(compile(source, f"<generated __init__ of {cls.__name__}>", "exec"), module, made)  # noqa: S102
    init = cast("types.FunctionType", made["_nqx_make"](**namespace))
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {
        name: spec.type.type if isinstance(spec.type, InitVar) else spec.type for name, spec in arguments.items()
    } | {"return": None}
    if any(spec.default_factory is not MISSING for spec in arguments.values()):
        init.__signature__ = _signature(init, arguments)  # type: ignore[attr-defined]
    return init


def _signature(init: Callable[..., None], arguments: Mapping[str, FieldSpec]) -> inspect.Signature:
    """The signature as help shows it: as for dataclasses, a default that a factory makes is ``<factory>``."""
    plain = inspect.signature(init)
    made = {name for name, spec in arguments.items() if spec.default_factory is not MISSING}
    return plain.replace(
        parameters=[p.replace(default=_FACTORY) if name in made else p for name, p in plain.parameters.items()]
    )


_FACTORY = Text("<factory>")


def _straight(cls: StructMeta, own_self: str, namespace: dict[str, Any]) -> str:
    """The lines of ``__init__`` that make the pair from the arguments, and return if nothing is unusual.

    Validators that do not say yes run once more, for the report.
    """
    layout = cls.__nqx_layout__
    lines: list[str] = []
    for name, spec in cls.__nqx_fields__.items():
        if spec.default_factory is not MISSING:
            namespace[f"_nqx_make_{name}"] = spec.default_factory
            lines += [f"if {name} is _nqx_missing:", f"    {name} = _nqx_make_{name}()"]
        if spec.converter is not None:
            namespace[f"_nqx_convert_{name}"] = spec.converter
            lines += ["try:", f"    {name} = _nqx_convert_{name}({name})", "except _nqx_error as _nqx_e:"]
            lines += [f"    _nqx_note(_nqx_e, {own_self}, {name!r})", "    raise"]
    statics = "".join(f"_nqx_type({name}), " for name in layout.statics)
    nodes = "".join(f"{name}, " for name in layout.nodes)
    held = [*layout.statics, *(f"_nqx_ref({name}, {name!r})" for name in layout.opaques)]
    check: Any = cls.__nqx_check__
    sound = getattr(check, "sound", None)
    opaques = "".join(f"{name}, " for name in layout.opaques)
    held_values = f"{nodes}{''.join(f'{name}, ' for name in layout.statics)}{opaques}"
    verdicts = [f"_nqx_valid_{place}({name})" for place, (name, _, _) in enumerate(cls.__nqx_validators__)]
    fine = [f"((_nqx_v := {verdict}) is True or _nqx_v is None or not _nqx_is_false(_nqx_v))" for verdict in verdicts]
    if sound is not None:
        namespace |= {"_nqx_sound": sound, "_nqx_cls": cls}
        shown = f"_nqx_sound(_nqx_cls, ({held_values}))"
        if (proof := check.proof) is not None:
            namespace |= proof.namespace
            shown = f"({proof.text} or {shown})"
        fine.append(shown)
    values = "".join(f"{name}, " for name in layout.statics)
    exact = f"(_nqx_exact(_nqx_keys) or _nqx_are_exact(_nqx_keys, ({values})))" if values else "True"
    lines += [f"_nqx_keys = ({statics})", f"_nqx_fine = {' and '.join([exact, *fine])}"]
    if fine:
        lines[-1:] = ["try:", f"    {lines[-1]}", "except _nqx_error:", "    _nqx_fine = False"]
    lines += [
        "if _nqx_fine:",
        f"    _nqx_put({own_self}, '_nqx_pair', (({nodes}), (_nqx_keys, {''.join(f'{name}, ' for name in held)})))",
        "    return",
    ]
    if not cls.__nqx_plain__:
        converted = ", ".join(f"{name!r}: {name}" for name in cls.__nqx_fields__)
        lines += [f"return _nqx_settle({own_self}, {{{converted}}})"]
    if cls.__nqx_converters__ or cls.__nqx_validators__:
        lines = ["if _nqx_untraced():", *(f"    {line}" for line in lines)]
    namespace |= {
        "_nqx_exact": EXACT_TYPES.issuperset,
        "_nqx_are_exact": are_exact,
        "_nqx_ref": OpaqueRef,
        "_nqx_error": Exception,
        "_nqx_note": note_converter,
        "_nqx_is_false": is_false,
        "_nqx_settle": settle,
        "_nqx_untraced": untraced,
    }
    namespace |= {f"_nqx_valid_{place}": validator for place, (_, _, validator) in enumerate(cls.__nqx_validators__)}
    return "".join(f"    {line}\n" for line in lines)


def has_value_hooks(cls: StructMeta) -> bool:
    """True if converters and validators are all the hooks there are, and none of them wants the instance.

    A check of the class itself may look at values as well: it remembers what it has found sound.
    """
    inherited = any(base.__dict__.get("__nqx_check__") is cls.__nqx_check__ for base in cls.__mro__[1:])
    whole = cls.__nqx_check__ is not None and (inherited or not hasattr(cls.__nqx_check__, "sound"))
    others = cls.__nqx_derive__, cls.__nqx_init_vars__, whole
    specs = cls.__nqx_fields__.values()
    if any(others) or hasattr(cls, "__post_init__") or not all(s.init and not s.reset for s in specs):
        return False
    hooks = [s.converter for s in specs if s.converter is not None] + [v for s in specs for v in s.validators]
    return all(required_positional(hook) < 2 for hook in hooks)
