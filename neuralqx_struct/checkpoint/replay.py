"""Functions beside checkpoints: an exported function of a state with golden inputs and outputs, which runs without code.

:func:`replay` traces a function of a state and writes it as ``jax.export`` does; ``export(..., replay=)`` keeps it in the
metadata of the bundle, so every store, form and migration carries it, and the digest of the manifest covers it.
:func:`replayed` runs it with the arrays of the bundle, which it brings back to the version of the function first.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.checkpoint import export
    >>> state = {"w": np.float32([1, 2])}
    >>> kept = replay(lambda state, x: state["w"] @ x, state, np.float32([3, 4]))
    >>> path = export(state, f"{tempfile.mkdtemp()}/ckpt", replay={"dot": kept})
    >>> replayed(path).equal
    True
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from neuralqx_struct import bundle
from neuralqx_struct.checkpoint.loading import of_payload
from neuralqx_struct.checkpoint.options import ExportOptions, ReadOptions
from neuralqx_struct.checkpoint.packing import packed, unpacked
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError, printable
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.fieldspec import Values
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.paths import Path, format_path
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.printing import brief, brief_array
from neuralqx_struct.references import imported
from neuralqx_struct.tools.value_differences import compared_numbers
from neuralqx_struct.trees import leaves_with_paths

__all__ = ["Replay", "Replayed", "ReplayedOutput", "replay", "replayed"]

#: The member of a bundle's metadata.
REPLAY: Final = "replay"
_RECORD: Final = 1  # version of the record
_MOST: Final = 16 << 20  # bytes of a record: each reader of the manifest reads it


@dataclass(frozen=True, slots=True)
class Replay:
    """An exported function with its golden inputs and outputs; the result of :func:`replay`.

    Attributes:
        state: The object that it was traced with.
        arguments: The paths of the leaves of the state that it takes.
        record: Everything that is written, as plain JSON.
    """

    state: Any
    arguments: tuple[str, ...]
    record: Values


class ReplayedOutput(NamedTuple):
    """One output of a function, compared with the golden one.

    Attributes:
        path: The name of the function, and the place in its result.
        type: Dtype and shape of the golden one, such as ``float32[8]``.
        got: Dtype and shape of the output.
        exact: True if all bits are the same.
        close: True if it differs by no more than the tolerance. Integers, truth values and random keys have none.
        different: The number of elements that differ; None if dtype or shape do.
        absolute: The largest difference of two numbers, as in ``diff_values``.
        tolerance: The largest difference that is allowed.
    """

    path: str
    type: str
    got: str
    exact: bool
    close: bool
    different: int | None
    absolute: float | None
    tolerance: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of :func:`replayed`; ``str()`` lists the outputs.

    Attributes:
        path: The bundle.
        outputs: All outputs of all functions.
        written: The platform that computed the golden outputs, for each function.
        platform: The platform that computed them now.
    """

    path: str
    outputs: tuple[ReplayedOutput, ...]
    written: Mapping[str, str]
    platform: str

    @property
    def equal(self) -> bool:
        """True if every output is within its tolerance."""
        return all(output.close for output in self.outputs)

    @property
    def exact(self) -> bool:
        """True if every output has the golden bits."""
        return all(output.exact for output in self.outputs)

    @property
    def findings(self) -> list[Diagnostic]:
        """NQX434 for each output that differs by more than its tolerance."""
        return [_finding(output, self.path) for output in self.outputs if not output.close]

    def __str__(self) -> str:
        lines = []
        for output in self.outputs:
            bits = "same bits" if output.exact else f"{_largest(output)}, {_allowed(output)}"
            lines.append(f"{output.path}: {output.type}: {bits}")
        others = sorted({*self.written.values()} - {self.platform})
        if others:
            lines.append(f"golden outputs of {', '.join(others)}, compared on {self.platform}")
        return "\n".join(map(printable, lines))

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        facts = asdict(self)
        return {**facts, "outputs": [output._asdict() for output in self.outputs]}


def _largest(output: ReplayedOutput) -> str:
    if output.different is None:
        return f"got {output.got}"
    size = "" if output.absolute is None else f", largest difference {output.absolute:.3g}"
    return f"{output.different} elements differ{size}"


def _allowed(output: ReplayedOutput) -> str:
    return f"tolerance {output.tolerance:.3g}"


def _finding(output: ReplayedOutput, file: str) -> Diagnostic:
    message = f"expected the golden {output.type}, got {output.got}"
    if output.different is not None:
        message = f"expected the elements of the golden {output.type}, got others"
        message += f"\n{_largest(output)}, {_allowed(output)}"
    hint = "the values of the bundle changed, or the platform computes otherwise: rtol= allows more"
    return Diagnostic("NQX434", "error", message, output.path, file, hint=hint)


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def replay(f: Callable[..., Any], state: Any, *inputs: Any) -> Replay:
    """Exports a function of a state with golden inputs and outputs, for ``export(state, path, replay={"name": ...})``.

    Arrays and numbers of the state and the inputs are arguments of the exported function; whatever else they hold, such
    as static fields and text, becomes part of it. It is written for the CPU and the present platform.

    Args:
        f: The function, called ``f(state, *inputs)``; ``jax.jit`` must be able to trace it. Its result is any tree of
            arrays.
        state: The object that will be exported.
        *inputs: Trees of arrays; a small batch serves, as they are kept in the manifest.

    Returns:
        The record.

    Raises:
        SerializationError: NQX430 the function cannot be exported, or the record is too large; NQX615 the package
            flatbuffers is not installed.

    Example:
        >>> replay(lambda state, x: state["w"] * x, {"w": 2.0}, 3.0).arguments
        ("$['w']",)
    """
    _require_flatbuffers()
    given, structure = jax.tree.flatten((state, inputs))
    arrays = {
        place: found for place, leaf in enumerate(given) if (found := _array(leaf)) is not None
    }
    paths = [_text(path) for path, _ in leaves_with_paths(state)]
    names: list[str] = []

    def flat(*arguments: Any) -> list[Any]:
        leaves = [*given]
        for place, argument in zip(arrays, arguments, strict=True):
            leaves[place] = argument
        held, rest = jax.tree.unflatten(structure, leaves)
        results = leaves_with_paths(f(held, *rest))
        names[:] = [_text(path) for path, _ in results]
        return [jnp.asarray(leaf) for _, leaf in results]

    platforms = tuple(dict.fromkeys(("cpu", jax.export.default_export_platform())))
    abstract: Any = jax.ShapeDtypeStruct
    shapes = [  # without shardings: the function shall run on one device
        abstract(each.shape, each.dtype, weak_type=jax.typeof(each).weak_type)
        for each in arrays.values()
    ]
    try:
        exported = jax.export.export(jax.jit(flat), platforms=platforms)(*shapes)
        function = exported.serialize()
        outputs = jax.jit(flat)(*arrays.values())
    except StructError:
        raise
    except Exception as error:  # JAX has no class for all of them
        raise SerializationError(
            f"expected a function that jax.export can write, got: {brief(f)}\n{error}",
            code="NQX430",
            path="replay",
            hint="jax.jit has to trace it: declare the fields on which it branches as static",
        ) from error
    if not outputs:
        raise _unsaved(
            "expected a function that returns arrays, got none", "return the arrays to compare"
        )
    own = [place for place in arrays if place < len(paths)]
    record: dict[str, Any] = {
        "version": _RECORD,
        "calling_convention": exported.calling_convention_version,
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "x64": bool(jnp.result_type(float) == "float64"),
        "arguments": [paths[place] for place in own],
        "function": base64.b64encode(function).decode(),
        "inputs": packed([array for place, array in arrays.items() if place not in own]),
        "names": names,
        "outputs": packed(outputs),
    }
    size = len(json.dumps(record))
    if size > _MOST:
        raise _unsaved(
            f"expected at most {_MOST} bytes of a function and its golden arrays, got {size}",
            "use a smaller batch, and pass arrays as inputs or in the state: those that a function closes over are in it",
        )
    return Replay(state, tuple(record["arguments"]), record)


def _unsaved(message: str, hint: str) -> SerializationError:
    return SerializationError(message, code="NQX430", path="replay", hint=hint)


def _require_flatbuffers() -> None:
    """Refuses to go on without the package that writes and reads what ``jax.export`` makes."""
    imported("flatbuffers", "replay", "exported functions", instead="")


def _array(leaf: Any) -> Any:
    """A leaf as a JAX array; None for text and other leaves that JAX cannot compute with."""
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
        return None  # JAX takes some text for the name of a dtype
    try:
        return jnp.asarray(leaf)
    except (TypeError, ValueError, OverflowError):
        return None


def _text(path: Path) -> str:
    """A path without the declarations of fields: the same in a payload that is read without classes."""
    return format_path(tuple(str(part) if isinstance(part, str) else part for part in path))


def with_replays(payload: Payload, obj: Any, options: ExportOptions) -> dict[str, Any]:
    """The document of a payload with the functions of an export in its metadata.

    Raises:
        SerializationError: NQX430 a function is of another object, or takes leaves that are not saved.
    """
    document = payload.document
    metadata = dict(document.get("metadata", {}))
    if REPLAY in metadata:
        raise _unsaved(f"expected metadata without the member {REPLAY!r}, got one", "rename it")
    without_classes = ReadOptions(raw=True, abstract=True, limits=options.limits)
    leaves = leaves_with_paths(of_payload(payload, without_classes))
    stored = {_text(path) for path, _ in leaves}
    found = {}
    for name, each in (options.replay or {}).items():
        if not isinstance(name, str) or not isinstance(each, Replay) or each.state is not obj:
            raise _unsaved(
                f"expected the result of replay() with the object that is exported, got {brief(name)}: {brief(each)}",
                "call replay(f, state, ...) with the same object",
            )
        missing = [path for path in each.arguments if path not in stored]
        if missing:
            raise SerializationError(
                Diagnostic(
                    "NQX430",
                    "error",
                    f"expected a leaf that is saved, as an argument of the function {name!r}, got one that is not",
                    path,
                    hint="pass its value as an input of the function",
                )
                for path in missing
            )
        schema = {"schema": document["schema"]} if "schema" in document else {}
        found[name] = {**each.record, **schema}
    return {**document, "metadata": {**metadata, REPLAY: found}}


# ---------------------------------------------------------------------------------------------------------------------
# Running


@bundle.read_again
def replayed(
    path: str | Place,
    *,
    rtol: float | None = None,
    trust: Iterable[str] = (),
    limits: Limits | None = None,
    storage_options: Options | None = None,
) -> Replayed:
    """Runs the functions of a bundle with its arrays, and compares their outputs with the golden ones.

    Needs no class of the program that wrote it. A bundle that was migrated is brought back, in memory, to the version
    that the functions were exported with, by the steps in it. The functions are programs that come with the bundle:
    run those of people whom you trust.

    Args:
        path: The bundle, a path or a URL.
        rtol: The tolerance of floating and complex outputs, times the largest absolute value of the golden output;
            without it, the square root of the machine epsilon of its dtype: 3.5e-4 for float32, 1.5e-8 for float64.
        trust: Packages whose registered functions ``python`` steps may run.
        limits: Sizes above which the bundle is refused.
        storage_options: Options of fsspec for a URL, such as keys.

    Returns:
        All outputs; bits are compared besides, as the same platform gives the same.

    Raises:
        SerializationError: NQX435 the bundle has no function; NQX436 this JAX cannot read or run one; NQX615 the package
            flatbuffers is not installed.
        MigrationError: The bundle cannot be brought back to the version of the function.
    """
    _require_flatbuffers()
    path = place_of(path, storage_options)
    try:
        payload = bundle.read(path, limits=limits)
        metadata = payload.document.get("metadata", {})
        records = metadata.get(REPLAY) if isinstance(metadata, Mapping) else None
        if not isinstance(records, Mapping) or not records:
            raise SerializationError(
                "expected a bundle with an exported function, got none",
                code="NQX435",
                path="metadata.replay",
                hint="write it with export(state, path, replay={'name': replay(f, state, inputs)})",
            )
        outputs: list[ReplayedOutput] = []
        for name, record in records.items():
            outputs += _run(
                payload,
                name,
                _checked(name, record),
                ReadOptions(raw=True, limits=limits),
                rtol=rtol,
                trust=tuple(trust),
            )
    except StructError as error:
        raise error.in_file(str(path)) from error.__cause__
    written = {name: record["platform"] for name, record in records.items()}
    return Replayed(str(path), tuple(outputs), written, jax.default_backend())


def _unreadable(name: str, message: str, hint: str, place: str = "") -> SerializationError:
    return SerializationError(
        message, code="NQX436", path=place or f"metadata.replay.{name}", hint=hint
    )


def _checked(name: str, record: Any) -> Any:
    """A record that this program and this JAX can read.

    Raises:
        SerializationError: NQX436.
    """
    texts = ("function", "platform", "jax")
    sound = (
        isinstance(record, Mapping)
        and all(isinstance(record.get(each), str) for each in texts)
        and all(type(record.get(each)) is int for each in ("version", "calling_convention"))
        and isinstance(record.get("x64"), bool)
        and all(
            isinstance(record.get(each), list)
            and all(isinstance(text, str) for text in record[each])
            for each in ("arguments", "names")
        )
        and all(isinstance(record.get(each), Mapping) for each in ("inputs", "outputs"))
    )
    if not sound:
        raise _damaged(name, "something else")
    if record["version"] != _RECORD:
        raise _unreadable(
            name,
            f"expected a record of version {_RECORD}, got {record['version']}",
            "upgrade neuralqx-struct",
        )
    low = jax.export.minimum_supported_calling_convention_version
    high = jax.export.maximum_supported_calling_convention_version
    got = record["calling_convention"]
    if not low <= got <= high:
        way = "newer" if got > high else "older"
        raise _unreadable(
            name,
            f"expected a calling convention from {low} to {high}, got {got}\nJAX {record['jax']} wrote it, this is {jax.__version__}",
            f"run it with a {way} JAX",
        )
    return record


def _damaged(name: str, got: object) -> SerializationError:
    return _unreadable(
        name, f"expected the record of an exported function, got {got}", "write the bundle again"
    )


def _run(
    payload: Payload,
    name: str,
    record: Any,
    options: ReadOptions,
    *,
    rtol: float | None,
    trust: tuple[str, ...],
) -> list[ReplayedOutput]:
    """Runs a function and compares its outputs."""
    payload = _of_version(payload, name, record.get("schema"), trust)
    with jax.enable_x64(record["x64"]):  # numbers have the widths that they were traced with
        leaves = {
            _text(path): leaf for path, leaf in leaves_with_paths(of_payload(payload, options))
        }
        arguments = record["arguments"]
        missing = [path for path in arguments if path not in leaves]
        if missing:
            message = f"expected the leaf {missing[0]}, an argument of the function, got none"
            raise _unreadable(name, message, "the bundle was changed: write it again", missing[0])
        try:
            inputs, golden = ([*unpacked(record[each], raw=True)] for each in ("inputs", "outputs"))
            function: Any = jax.export.deserialize(
                bytearray(base64.b64decode(record["function"], validate=True))
            )
        except StructError:
            raise
        except Exception as error:  # flatbuffers has no class for damage
            raise _damaged(name, brief(error)) from error
        given = [*(jnp.asarray(leaves[path]) for path in arguments), *map(jnp.asarray, inputs)]
        for place, aval, argument in zip(
            [*arguments, *(f"input {n}" for n in range(len(inputs)))],
            function.in_avals,
            given,
            strict=False,
        ):
            if (aval.shape, aval.dtype) != (argument.shape, argument.dtype):
                message = f"expected {brief_array(aval)}, got {brief_array(argument)}"
                raise _unreadable(name, message, "the function was exported with it", place)
        try:
            got = function.call(*given)
        except Exception as error:  # JAX has no class for all of them
            message = f"expected a function that runs on {jax.default_backend()}, got: {error}"
            hint = f"it was written for {', '.join(function.platforms)} by JAX {record['jax']}"
            raise _unreadable(name, message, hint) from error
        if not len(got) == len(golden) == len(record["names"]):
            raise _damaged(name, f"{len(got)} outputs for {len(golden)} golden ones")
        return [
            _compared(f"{name}{place[1:]}", want, found, rtol)
            for place, want, found in zip(record["names"], golden, got, strict=True)
        ]


def _of_version(payload: Payload, name: str, schema: Any, trust: tuple[str, ...]) -> Payload:
    """The payload in the version of the schema that a function was exported with."""
    stored = payload.document.get("schema")
    if schema == stored:
        return payload
    if not isinstance(schema, Mapping) or stored is None or schema.get("id") != stored["id"]:
        message = f"expected a payload of {brief(schema)}, got one of {brief(stored)}"
        raise _unreadable(name, message, "the bundle was changed: write it again")
    return resolve(payload, to=schema["version"], trust=trust)


# ---------------------------------------------------------------------------------------------------------------------
# Comparing


def _numbers(array: Any) -> np.ndarray[Any, Any]:
    keys = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.ascontiguousarray(jax.random.key_data(array) if keys else array)


def _compared(path: str, want: Any, got: Any, rtol: float | None) -> ReplayedOutput:
    """Compares an output with the golden one; NaN is equal to NaN."""
    types = brief_array(want), brief_array(got)
    before, after = _numbers(want), _numbers(got)
    tolerance = 0.0
    rounds = jnp.issubdtype(before.dtype, jnp.inexact)
    if rounds:
        is_complex = jnp.issubdtype(before.dtype, jnp.complexfloating)
        golden = np.abs(before.astype("complex128" if is_complex else "float64"))
        epsilon: Any = jnp.finfo(before.dtype)  # type: ignore[no-untyped-call]
        share = math.sqrt(float(epsilon.eps)) if rtol is None else rtol
        tolerance = share * float(golden[np.isfinite(golden)].max(initial=0.0))
    if types[0] != types[1]:
        return ReplayedOutput(path, *types, False, False, None, None, tolerance)
    numbers = compared_numbers(before, after)
    near = numbers.absolute is not None and numbers.absolute <= tolerance
    if rounds:
        near = near and bool((np.isnan(before) == np.isnan(after)).all())
    exact = before.tobytes() == after.tobytes()
    close = near or not numbers.different
    return ReplayedOutput(
        path, *types, exact, close, numbers.different, numbers.absolute, tolerance
    )
