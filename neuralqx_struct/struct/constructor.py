"""The generated constructor of a Struct class.

Owns the source of ``__init__``: a real signature, and straight-line code from the arguments to the pair of a frozen
instance for classes whose hooks each look at one value. All other cases go through ``lifecycle.py``.
"""

from __future__ import annotations

import gc
import inspect
import sys
from dataclasses import InitVar
from typing import Any

from neuralqx_struct.documents.instances import MARK, is_frozen, put
from neuralqx_struct.documents.source import block, compiled
from neuralqx_struct.errors import FrozenStructError, ValidationError
from neuralqx_struct.fieldspec import MISSING, FieldSpec, Hook, Specs, Values
from neuralqx_struct.printing import Text
from neuralqx_struct.struct.declarations import required_positional
from neuralqx_struct.struct.equality import EXACT_TYPES, OpaqueRef
from neuralqx_struct.struct.lifecycle import (
    build,
    convert,
    finish,
    is_false,
    note_converter,
    untraced,
)

_FACTORY = Text("<factory>")
_MOST_ARGUMENTS = 500

#: The key in ``__dict__`` of the InitVars that ``super().__init__`` got, until ``__post_init__`` takes them.
INIT_VARS = "_nqx_init_vars"


def refuse_frozen(self: Any) -> None:
    """Refuse a second call of a constructor, which would change a frozen instance."""
    # A new instance refers to nothing but its class; this is faster than to look for an absent attribute.
    if gc.get_referents(self) != [type(self)] and is_frozen(self):
        raise FrozenStructError(
            "expected __init__ once, got a call on an instance that is frozen",
            path=type(self).__name__,
            hint="make a changed copy: obj.replace(...), or a new instance of the class",
        )


def assign(self: Any, given: Values, init_vars: Values) -> bool:
    """Step 1 for the arguments of a constructor that another ``__init__`` has called; False if there is no other.

    Raises:
        FrozenStructError: The instance is complete already.
    """
    refuse_frozen(self)
    if type(self).__nqx_generated_init__:
        return False
    if init_vars:
        self.__dict__[INIT_VARS] = {**self.__dict__.get(INIT_VARS, {}), **init_vars}
    for name, value in given.items():
        if value is not MISSING:
            self.__dict__[name] = convert(self, name, value)
    return True


def settle(self: Any, values: Values) -> None:
    """Steps 2 to 6 for values that are converted."""
    self.__dict__.update(values)
    finish(self, {})


_NAMESPACE: Values = {
    "_nqx_missing": MISSING,
    "_nqx_build": build,
    "_nqx_put": put,
    "_nqx_type": type,
    "_nqx_assign": assign,
    "_nqx_referents": gc.get_referents,
    "_nqx_exact": EXACT_TYPES,
    "_nqx_float": float,
    "_nqx_ref": OpaqueRef,
    "_nqx_error": Exception,
    "_nqx_note": note_converter,
    "_nqx_is_false": is_false,
    "_nqx_settle": settle,
    "_nqx_untraced": untraced,
}


def generate_init(cls: Any) -> Hook:
    """The constructor, with a real signature: Python itself reports missing and unexpected arguments."""
    arguments: Specs = cls.__nqx_arguments__
    _check_order(cls, arguments)
    own_self = "_nqx_self" if "self" in arguments else "self"
    if len(arguments) > _MOST_ARGUMENTS:
        init = _binding_init(cls, _signature(own_self, arguments))
    else:
        init = _compiled_init(cls, own_self, arguments)
        if any(spec.default_factory is not MISSING for spec in arguments.values()):
            init.__signature__ = _signature(own_self, arguments)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {name: _annotation(spec) for name, spec in arguments.items()}
    init.__annotations__["return"] = None
    return init  # type: ignore[no-any-return]


def _compiled_init(cls: Any, own_self: str, arguments: Specs) -> Any:
    namespace = {**_NAMESPACE, "_nqx_cls": cls, "_nqx_new": [cls]}
    signature = [own_self, *_parameters(arguments, namespace)]
    fields = _dict_of(name for name in arguments if name not in cls.__nqx_init_vars__)
    init_vars = _dict_of(cls.__nqx_init_vars__)
    values = f"{own_self}, {fields}, {init_vars}"
    # A new instance of this class refers to nothing but its class. Any other is frozen already, or is one of a subclass
    # whose own __init__ finishes the instance.
    is_other = f"_nqx_referents({own_self}) != _nqx_new"
    lines = block(f"if {is_other} and _nqx_assign({values})", ["return"])
    if cls.__nqx_straight__:
        lines += _straight(cls, own_self, namespace)
    lines.append(f"_nqx_build({values})")
    # Its globals are those of the module, in which get_type_hints and the like look up postponed annotations.
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    head, title = f"__init__({', '.join(signature)})", f"__init__ of {cls.__name__}"
    return compiled(head, lines, namespace, title=title, scope=module)


def _binding_init(cls: Any, signature: inspect.Signature) -> Any:
    """The constructor of a class with very many arguments, which Python's own calls take quadratic time to bind."""

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:
        _, *given = signature.bind(self, *args, **kwargs).arguments.items()
        values = dict(given)
        init_vars = {name: values.pop(name) for name in cls.__nqx_init_vars__ if name in values}
        if gc.get_referents(self) == [cls] or not assign(self, values, init_vars):
            build(self, values, init_vars)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


def _check_order(cls: Any, arguments: Specs) -> None:
    """Refuse a positional argument without default behind one with a default."""
    after_default = None
    for name, spec in arguments.items():
        if spec.kw_only:
            continue
        if spec.has_default:
            after_default = name
        elif after_default is not None:
            raise ValidationError(
                f"expected a default, because {after_default!r} before it has one",
                path=f"{cls.__name__}.{name}",
                hint="give it a default, move it up, or make it kw_only=True",
            )


def _parameters(arguments: Specs, namespace: dict[str, Any]) -> list[str]:
    """The source of the parameters; their defaults are put into the namespace."""
    positional: list[str] = []
    keyword: list[str] = []
    for name, spec in arguments.items():
        text = name
        if spec.has_default:
            namespace[f"_nqx_default_{name}"] = spec.default
            text = f"{name}=_nqx_default_{name}"
        (keyword if spec.kw_only else positional).append(text)
    return [*positional, "*", *keyword] if keyword else positional


def _annotation(spec: FieldSpec) -> Any:
    return spec.type.type if isinstance(spec.type, InitVar) else spec.type


def _signature(own_self: str, arguments: Specs) -> inspect.Signature:
    """The signature for help: as for dataclasses, a default made by a factory is ``<factory>``."""
    kinds = inspect.Parameter
    parameters = [kinds(own_self, kinds.POSITIONAL_OR_KEYWORD)]
    for name, spec in sorted(arguments.items(), key=lambda item: item[1].kw_only):
        kind = kinds.KEYWORD_ONLY if spec.kw_only else kinds.POSITIONAL_OR_KEYWORD
        default = kinds.empty if spec.default is MISSING else spec.default
        if spec.default_factory is not MISSING:
            default = _FACTORY
        parameters.append(kinds(name, kind, default=default, annotation=_annotation(spec)))
    return inspect.Signature(parameters, return_annotation=None)


# ---------------------------------------------------------------------------------------------------------------------
# Straight-line code.


def is_straight(cls: Any) -> bool:
    """True if each hook of a class looks at one value alone."""
    specs = cls.__nqx_fields__.values()
    if cls.__nqx_derive__ or cls.__nqx_init_vars__ or hasattr(cls, "__post_init__"):
        return False
    if not all(spec.init and not spec.reset for spec in specs):
        return False
    hooks = [function for spec in specs for _, function in spec.value_hooks()]
    return all(required_positional(hook) < 2 for hook in hooks)


def _tuple_of(names: Any) -> str:
    return f"({''.join(f'{name}, ' for name in names)})"


def _dict_of(names: Any) -> str:
    return f"{{{', '.join(f'{name!r}: {name}' for name in names)}}}"


def _straight(cls: Any, own_self: str, namespace: dict[str, Any]) -> list[str]:
    """The lines that make the pair from the arguments, and return unless something is unusual.

    Unusual are static values with keys of their own, a validator that does not return True or None, an instance that a
    check does not know yet, and hooks while JAX traces. Validators that fail run once more, for the report.
    """
    lines: list[str] = []
    verdicts: list[str] = []
    for name, spec in cls.__nqx_fields__.items():
        if spec.default_factory is not MISSING:
            namespace[f"_nqx_make_{name}"] = spec.default_factory
            lines += block(f"if {name} is _nqx_missing", [f"{name} = _nqx_make_{name}()"])
        for number, (hook, function) in enumerate(spec.value_hooks()):
            call = f"_nqx_hook_{name}_{number}"
            namespace[call] = function
            if hook.converts:
                lines += _converting(name, call, own_self)
            else:
                verdict = f"(_nqx_v := {call}({name}))"
                verdicts.append(
                    f"({verdict} is True or _nqx_v is None or not _nqx_is_false(_nqx_v))"
                )
    layout = cls.__nqx_layout__
    conditions = [_exact_static(name) for name in layout.statics]
    lines += [f"_nqx_key_{name} = _nqx_type({name})" for name in layout.statics]
    if verdicts:
        fine = " and ".join([*conditions, *verdicts])
        lines += block("try", [f"_nqx_fine = {fine}"])
        lines += block("except _nqx_error", ["_nqx_fine = False"])
        conditions = ["_nqx_fine"]
    check = cls.__nqx_check__
    if check is not None:
        namespace["_nqx_check"] = check
        values = "".join(f", {name}" for name in check.fields)
        conditions.append(f"(_nqx_mark := _nqx_check.known(_nqx_cls{values})) is not None")
    keys = _tuple_of(f"_nqx_key_{name}" for name in layout.statics)
    opaque = [f"_nqx_ref({name}, {name!r})" for name in layout.opaques]
    pair = f"({_tuple_of(layout.nodes)}, {_tuple_of([keys, *layout.statics, *opaque])})"
    done = [f"_nqx_put({own_self}, '_nqx_pair', {pair})"]
    if check is not None:
        done += block("if _nqx_mark", [f"_nqx_put({own_self}, {MARK!r}, _nqx_mark)"])
    lines += block(f"if {' and '.join(conditions) or True}", [*done, "return"])
    if not cls.__nqx_plain__:
        lines.append(f"return _nqx_settle({own_self}, {_dict_of(cls.__nqx_fields__)})")
    if cls.__nqx_converters__ or cls.__nqx_validators__:
        lines = block("if _nqx_untraced()", lines)
    return lines


def _converting(name: str, call: str, own_self: str) -> list[str]:
    failed = [f"_nqx_note(_nqx_e, {own_self}, {name!r})", "raise"]
    converted = block("try", [f"{name} = {call}({name})"])
    return [*converted, *block("except _nqx_error as _nqx_e", failed)]


def _exact_static(name: str) -> str:
    """The condition that the type of a static value is its key: floats other than zeros and NaN, and exact types."""
    key = f"_nqx_key_{name}"
    return f"({key} in _nqx_exact or ({key} is _nqx_float and ({name} < 0 or {name} > 0)))"
