"""Random first versions of a schema, and random payloads of a version."""

import copy
import math
import random
import re
import string
from pathlib import PurePosixPath

import numpy as np

from tests.histories.constraints import paths_of
from tests.histories.declarations import (
    DTYPES,
    FAMILIES,
    FIELDS,
    FREE,
    IDENTITY,
    LIMITS,
    SIZES,
    WORDS,
    Field,
    Instance,
    Items,
    Key,
    Member,
    Stack,
    Struct,
    Version,
    evaluate,
    in_union,
    inner_types,
    mapped,
    shows_members,
    text,
    visible,
)
from tests.histories.derivations import derived_of
from tests.histories.steps import UNSTORED

IDENTITY_OF_USED = "lab.u"
#: The numbers of axes of arrays, by how often they are drawn.
RANKS = [0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3]
SCALARS = ["int", "float", "str", "bool", "bytes", "complex"]
#: Floats beyond any two limits, which most probes are for, and between them.
FAR = [-9.5, 9.5, -9.5, 9.5, -2.0, -1.5, -0.5, 0.0, 3.5, 4.0, 4.5, 5.0]
LITERALS = ["x", "word", "y", 0, 2, True, 0.5]
NOT_FINITE = [math.inf, -math.inf, math.nan]
#: Values of which every limit accepts some.
FITTING = [0, 2, 3, 0.5, 1.5, "x", b"x"]
PATTERNS = ["[a-z]*", "x|word", r"\w+"]


def stackable(version, name):
    """Whether a struct has an array in every instance, and nothing without a leading axis."""
    held = version.structs[name].fields.values()
    nodes = [f.type for f in held if f.members.get("kind") != "static"]
    inside = [t for kind in nodes for t in inner_types(kind)]
    plain = all(t[0] in ("array", "key", "null", "list", "items", "dict") for t in inside)
    return plain and any(kind[0] == "array" for kind in nodes)


def zeros(value):
    """Zeros in place of the numbers of an array; any other value itself."""
    return np.zeros_like(value) if isinstance(value, np.ndarray) else value


class Maker:
    """Makes declarations and values with one source of random choices.

    Args:
        seed: The seed of the choices.
        bold: Make values at the limits of their types too, which few steps and readers take.
    """

    def __init__(self, seed, bold=False):
        self.rng = random.Random(seed)
        self.conditions = random.Random(f"conditions {seed}")
        self.bold = bold
        self.depth = 0
        self.deepest = (
            5 if bold and seed % 3 == 0 else 2
        )  # a limit may be on a list inside four structs
        self.small = None  # the size, and the number of items, of small payloads
        self.chosen = {}  # the dtype of each choice in the payload that is made

    def one(self, choices):
        return self.rng.choice(list(choices))

    def chance(self, p):
        return self.rng.random() < p

    def used(self):
        """A first version of a schema that another one uses."""
        new = self.version(IDENTITY_OF_USED)
        new.compatibility = "none"
        return new

    def version(self, identity=IDENTITY, used=None):
        """A first version."""
        mode = self.one(["none", "none", "backward", "full"])
        new = Version(compatibility=mode, identity=identity, used=used)
        if not new.prefix and self.chance(0.6):
            new.enums["E"] = ["x", "y", "z"]
            if self.chance(0.35):
                new.defaults["E"] = self.one("xyz")
        for name in self.rng.sample("ST", self.rng.randint(0, 2)):
            new.dtypes[name] = self.rng.sample(["float16", "float32", "float64", "int8"], 2)
        for name in self.rng.sample(SIZES, self.rng.randint(0, 3)):
            dim = {"min": self.one([0, 0, 1])} if self.chance(0.4) else {}
            dim |= {"max": self.one([3, 4, 6])} if self.chance(0.15) else {}
            if new.dims and self.chance(0.3):
                other = self.one(new.dims)
                dim["equals"] = self.one([f"2 * {other}", f"{other} + 1", other])
            new.dims[name] = dim
        names = [*"BCD"[: self.rng.randint(0, 3)], "R"]
        for name in names:
            params = []
            if name != "R" and self.chance(0.35):
                params = self.rng.sample(SIZES, self.rng.randint(1, 2))
            new.structs[name] = Struct(params)
            for key in self.rng.sample(FIELDS, self.rng.randint(2, 5)):
                kind = self.kind(new, name)
                new.structs[name].fields[key] = Field(kind)
        for below in names[:-1]:  # everything is held by something
            if not any(
                below in text(f.type)
                for name, s in new.structs.items()
                for f in s.fields.values()
                if name != below
            ):
                key = next(
                    k for k in string.ascii_lowercase[8:] if k not in new.structs["R"].fields
                )
                new.structs["R"].fields[key] = Field(self.held(new, below, "R"))
        for name, struct in new.structs.items():
            if not struct.params and self.chance(0.1):  # a struct in itself
                key = self.one(k for k in FIELDS if k not in struct.fields)
                inner = ("struct", name, ())
                kinds = [("null", inner), ("list", inner), ("dict", ("null", inner))]
                struct.fields[key] = Field(self.one(kinds))
            for held in struct.fields.values():
                if held.type in (("int",), ("str",), ("bool",)) and self.chance(0.3):
                    held.members["kind"] = "static"
                elif self.chance(0.3):
                    held.members |= self.limit(held)
                elif held.type in (("int",), ("float",), ("str",)) and self.chance(0.1):
                    held.members["converter"] = "histories.same"
            if self.chance(0.15):
                struct.unstored["logger"] = self.one(UNSTORED[:2] if self.chance(0.8) else UNSTORED)
        if not shows_members(new):
            key = next(k for k in FIELDS if k not in new.structs["R"].fields)
            new.structs["R"].fields[key] = Field(("enum", "E"))
        if used is not None:
            key = next(k for k in "stuvw" if k not in new.structs["R"].fields)
            inner = ("struct", used.prefix + used.root, ())
            held = self.one([inner, ("list", inner), ("dict", inner), ("null", inner)])
            new.structs["R"].fields[key] = Field(held)
        new.structs = dict(reversed(new.structs.items()))
        if self.conditions.random() < 0.4:
            found = [*paths_of(new)]
            new.constraints = self.conditions.sample(found, min(len(found), 1))
        if self.conditions.random() < 0.1:
            found = [*derived_of(new)]
            new.derived = self.conditions.sample(found, min(len(found), 1))
        return new

    def extent(self, version, struct):
        """An extent: a number, a dim, a parameter, a name of the struct itself, any, or an expression of these."""
        known = [*version.dims, *version.structs[struct].params]
        name = self.one([*known, *SIZES]) if known else self.one(SIZES)
        return self.one([name, name, name, name, 2, 3, FREE, f"2 * {name}"])

    def array(self, version, struct):
        extents = tuple(self.extent(version, struct) for _ in range(self.one(RANKS)))
        return ("array", self.dtype(version), extents)

    def dtype(self, version):
        """A dtype, a family or a choice of dtypes."""
        if version.dtypes and self.chance(0.3):
            return self.one(version.dtypes)
        return self.one([*DTYPES, *FAMILIES] if self.chance(0.3) else DTYPES)

    def held(self, version, name, struct):
        """A use of the struct `name` in a field of `struct`."""
        args = self.args(version, struct, len(version.structs[name].params))
        inner = ("struct", name, args)
        choices = [inner, inner, ("list", inner), ("dict", inner), ("null", inner)]
        if self.chance(0.4):
            choices = [("items", inner, self.extent(version, struct))]
            if stackable(version, name):
                choices.append(("stack", inner, self.extent(version, struct)))
        return self.one(choices)

    def args(self, version, struct, count):
        """Arguments for the parameters of a struct: sizes that `struct` knows."""
        known = [*version.dims, *version.structs[struct].params, *visible(version, struct)]
        return tuple(
            self.one([*known, 2, FREE, *(f"2 * {n}" for n in known)]) for _ in range(count)
        )

    def kind(self, version, struct):
        """A type for a field of `struct`."""
        below = [name for name in version.structs if name != struct]
        roll = self.rng.random()
        if roll < 0.45:
            return self.array(version, struct)
        if roll < 0.6 and below:
            return self.held(version, self.one(below), struct)
        if roll < 0.67 and version.enums:
            inner = ("enum", "E")
            if self.chance(0.25):
                other = self.one(
                    [("str",), ("literal", "x", "word"), ("literal", "r", 2), ("int",)]
                )
                made = ("union", *self.rng.sample([inner, other], 2))
                return self.one([made, made, ("list", made)])
            return self.one(
                [inner, inner, ("list", inner), ("dict", inner), ("tuple", inner, ("int",))]
            )
        if roll < 0.72:
            return ("null", self.array(version, struct))
        if roll < 0.77:
            array = self.array(version, struct)
            return self.one([("list", array), ("items", array, self.extent(version, struct))])
        if roll < 0.84 and len(below) > 1:
            plain = [name for name in below if not version.structs[name].params]
            if len(plain) > 1:
                union = ("union", *(("struct", name, ()) for name in plain[:2]))
                return self.one([union, union, ("null", union), ("list", union)])
        if 0.84 <= roll < 0.88:
            return self.one(
                [("pytree",), ("tuple*", self.scalar()), ("tuple*", self.array(version, struct))]
            )
        inner = self.random_key(version, struct) if self.chance(0.05) else self.scalar()
        return self.one([inner, inner, ("null", inner), ("list", inner)])

    def random_key(self, version, struct):
        """A type of random keys, or of their words."""
        impl = self.one(WORDS)
        extents = self.one([(), (self.extent(version, struct),)])
        words = ("array", "uint32", (*extents, WORDS[impl]))
        return self.one([words, ("key", impl, extents)])

    def scalar(self):
        """A type of single values: one of Python's, a literal, or a union of these."""
        roll = self.rng.random()
        if roll < 0.6:
            return (self.one(["int", "float", "str", "bool"]),)
        if roll < 0.75:
            return (self.one(["bytes", "complex", "path", "dtype"]),)
        if roll < 0.85:
            return ("literal", *self.rng.sample(LITERALS, self.rng.randint(1, 3)))
        return ("union", *((name,) for name in self.rng.sample(SCALARS, self.rng.randint(2, 3))))

    def limit(self, held):
        """A limit on the values of a field, as members of its declaration; none for other types."""
        kind = held.type[1] if held.type[0] == "null" else held.type
        if kind == ("float",) and self.chance(0.3):
            return {"finite": True}
        if kind in (("int",), ("float",)):
            least = {self.one(["ge", "gt"]): self.one([-2, -1, 0])}
            most = {self.one(["le", "lt"]): self.one([3, 4, 5])}
            whole = [{"multiple_of": self.one([2, 3])}, {"choices": self.one([[0, 2], [0, 2, 5]])}]
            return self.one([least, most, least | most, *(whole if kind == ("int",) else ())])
        if kind == ("str",) and self.chance(0.3):
            return {"pattern": self.one(PATTERNS)}
        if kind == ("str",) and self.chance(0.3):
            return {"choices": self.one([["x", "word"], ["x", "word", "another"]])}
        if kind[0] in ("str", "bytes", "list", "dict"):
            inside = {each[0] for each in inner_types(kind)}  # a struct may be in itself
            least = {} if "struct" in inside else {"min_length": 1}
            return self.one([least, {"max_length": self.one([1, 2, 4])}])
        return {}

    # --- payloads ---

    def payload(self, version, tries=60):
        """A valid value of the root, or None where no sizes were found."""
        depth = self.depth
        for _ in range(tries):
            sizes = self.dims(version)
            if sizes is not None:
                outer, self.chosen = (
                    self.chosen,
                    {n: self.one(d) for n, d in version.dtypes.items()},
                )
                try:
                    made = self.instance(version, version.root, sizes, {})
                except LookupError:  # limits refuse it, or it has no end
                    self.depth = depth
                    continue
                finally:
                    self.chosen = outer
                if all(
                    each.holds(version, made) for each in (*version.constraints, *version.derived)
                ):
                    return made
        return None

    def dims(self, version):
        sizes = {}
        for name, dim in version.dims.items():
            least = dim.get("min") or 0
            top = dim.get("max", least + (9 if self.bold and self.chance(0.2) else 5))
            most = top if self.bold else min(least + 3, top)
            sizes[name] = self.rng.randint(least, max(least, most))
            if self.small is not None:
                sizes[name] = max(least, self.small)
        for _ in version.dims:
            for name, dim in version.dims.items():
                if "equals" in dim:
                    sizes[name] = evaluate(dim["equals"], sizes)
        for name, dim in version.dims.items():
            if not (dim.get("min") or 0) <= sizes[name] <= dim.get("max", 40):
                return None
            if "equals" in dim and sizes[name] != evaluate(dim["equals"], sizes):
                return None
        return sizes

    def instance(self, version, name, dims, given):
        """An instance of a struct; a probe of many instances needs some that constraints accept."""
        limits = [each for each in version.constraints if each.struct is version.structs[name]]
        for _ in range(3 if self.bold else 1):
            made = self.any_instance(version, name, dims, given)
            if all(each.holds(version, made) for each in limits):
                break
        return made

    def any_instance(self, version, name, dims, given):
        struct = version.structs[name]
        sizes = {key: self.any_size() for key in [*SIZES, *string.ascii_lowercase]}
        sizes |= dims
        sizes |= given
        given = {}  # static ints of the root are sizes
        for key, held in struct.fields.items():
            ints = held.type in (("int",), ("null", ("int",)))
            if name == version.root and ints and held.members.get("kind") == "static":
                if held.type[0] == "null" and self.chance(0.3):
                    given[key] = None
                    continue
                if self.bold and (not is_size(version, key) or self.chance(0.3)):
                    sizes[key] = self.value(version, ("int",), dims, sizes)
                if not fits(held, dims.get(key, sizes[key])):
                    sizes[key] = next(n for n in (*range(4), *range(-9, 9)) if fits(held, n))
                given[key] = sizes[key] = dims.get(key, sizes[key])
                if not fits(held, given[key]):
                    raise LookupError
        self.depth += 1
        if self.depth > 9:
            raise LookupError
        fields = {
            key: given[key] if key in given else self.field(version, held, dims, sizes)
            for key, held in struct.fields.items()
        }
        self.depth -= 1
        return Instance(version.prefix + name, fields, sizes)

    def field(self, version, held, dims, sizes):
        """A value of a field within its limits."""
        ends = [value for value in boundaries(held) if fits(held, value)]
        if ends and self.chance(0.3):
            return self.one(ends)
        for _ in range(30 if LIMITS & held.members.keys() else 1):
            made = self.value(version, held.type, dims, sizes)
            if fits(held, made):
                return made
        for value in FITTING:
            if type(value) is type(made) and fits(held, value):
                return value
        raise LookupError

    def value(self, version, kind, dims, sizes):
        match kind:
            case ("null" | "list" | "dict", inner) if self.depth > self.deepest and (
                not self.bold or any(t[0] == "struct" for t in inner_types(inner))
            ):
                return {"null": None, "list": [], "dict": {}}[kind[0]]
            case ("literal", *values):
                return self.one(values)
            case ("bytes",):
                return self.one(
                    [b"", b"x", b"\xff\x00", *([b"four", b"longer"] if self.bold else [])]
                )
            case ("complex",):
                return self.one([0j, 1 - 2.5j, complex(3)])
            case ("path",):
                return PurePosixPath(self.one(["x", "in/out", "/"]))
            case ("dtype",):
                return np.dtype(self.one(["float32", "int8"]))
            case ("array", dtype, extents):
                return self.numbers(dtype, [self.size(e, sizes) for e in extents])
            case ("key", impl, extents):
                shape = [self.size(e, sizes) for e in (*extents, WORDS[impl])]
                return Key(impl, self.numbers("uint32", shape))
            case ("pytree",):
                return self.tree(2)
            case ("null", _) if self.small == 0:
                return None
            case ("null", inner):
                return None if self.chance(0.3) else self.value(version, inner, dims, sizes)
            case ("union", *branches):
                made = self.value(version, self.one(branches), dims, sizes)
                if isinstance(made, str) and self.chance(0.2) and ("str",) in branches:
                    made = "r"  # members get this name
                return in_union(made, branches) if isinstance(made, str) else made
            case ("list", inner):
                count = self.count()
                return [self.value(version, inner, dims, sizes) for _ in range(count)]
            case ("items", inner, length):
                count = self.size(length, sizes)
                return [self.value(version, inner, dims, sizes) for _ in range(count)]
            case ("stack", inner, size):
                first = self.value(version, inner, dims, sizes)
                count = self.size(size, sizes)
                if count == 0:  # steps never refuse zeros
                    return Stack([mapped(first, zeros)], 0)
                others = [mapped(copy.deepcopy(first), self.other) for _ in range(count - 1)]
                return Stack([first, *others], count)
            case ("dict", inner):
                known = ["x", "y", "in/out", "z", "u", "v"]
                keys = self.rng.sample(known[:3] if not self.bold else known, self.count())
                return {key: self.value(version, inner, dims, sizes) for key in keys}
            case ("tuple*", inner):
                return Items([self.value(version, inner, dims, sizes) for _ in range(self.count())])
            case ("tuple", *inner):
                return Items([self.value(version, x, dims, sizes) for x in inner])
            case ("struct", name, args):
                owner, inside = version.holder(name)
                params = owner.structs[inside].params
                given = {p: self.size(a, sizes) for p, a in zip(params, args, strict=True)}
                if owner is not version:  # its dims are its own
                    made = self.payload(owner, 20)
                    if made is None:
                        raise LookupError
                    return made
                return self.instance(version, name, dims, given)
            case ("enum", name):
                return Member(self.one(version.enums[name]))
            case ("int",):
                far = self.bold and self.chance(0.5)
                return self.rng.randint(-9, 9) if far else self.rng.randint(-2, 3)
            case ("float",):
                odd = self.chance(0.4 if self.bold else 0.1)
                far = FAR if self.bold else []
                return self.one(NOT_FINITE if odd else [0.5, -1.0, 3.0, *far])
            case ("str",):
                others = ["no", "another", "no choice"] if self.bold else []
                return self.one(["x", "word", "", *others])
            case ("bool",):
                return self.chance(0.5)
        raise AssertionError(kind)

    def count(self):
        """The number of items of a list or dict."""
        if self.small is not None:
            return self.small
        return self.rng.randint(0, 6 if self.bold and self.chance(0.2) else 2)

    def tree(self, depth):
        """A value of type pytree: dicts in dicts, with numbers and arrays."""
        if depth == 0 or self.chance(0.2):
            return self.one([7, None, self.numbers("float32", [self.any_size()])])
        if self.chance(0.15):
            return [self.tree(depth - 1) for _ in range(self.count())]
        keys = self.rng.sample(["x", "y", "z", "u", "v"], min(5, self.count() + 1))
        return {key: self.tree(depth - 1) for key in keys} if self.small != 0 else {}

    def size(self, extent, sizes):
        found = self.any_size() if extent == FREE else evaluate(extent, sizes)
        if found < 0:  # of a static int
            raise LookupError
        return found

    def any_size(self):
        """A size that nothing fixes."""
        if self.small is not None:
            return self.small
        return self.rng.randint(0, 9 if self.bold and self.chance(0.1) else 3)

    def other(self, value):
        """Another array of the form of one; any other value itself."""
        if isinstance(value, np.ndarray):
            return self.numbers(str(value.dtype), value.shape)
        return value

    def numbers(self, dtype, shape):
        dtype = self.chosen.get(dtype, dtype)
        dtype = self.one(FAMILIES.get(dtype, [dtype]))
        count = int(np.prod(shape, dtype=int))
        if self.bold:
            return self.extremes(dtype, count).reshape(shape)
        found = [self.rng.randint(0, 1 if dtype == "bool" else 3) for _ in range(count)]
        if dtype in ("float64", "int32") and self.chance(0.15):
            found = [x * 123457 for x in found]
        made = np.array(found, dtype)
        if made.dtype.kind in "fc" and count and self.chance(0.08):
            made[-1] = self.one(NOT_FINITE)
        return made.reshape(shape)

    def extremes(self, dtype, count):
        """Numbers that no smaller dtype holds."""
        kind = np.dtype(dtype)
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            found = [limits.min, limits.max, limits.max - 1]
        elif kind.kind in "fc":
            limits = np.finfo(kind)
            found = [limits.max, limits.tiny, 1 / 3, *NOT_FINITE]
            found += [1j * limits.max] if kind.kind == "c" else []
        else:
            found = [False, True]
        return np.array([self.one(found) for _ in range(count)], kind)


TESTS = [
    ("ge", lambda least, x: x >= least),
    ("gt", lambda least, x: x > least),
    ("le", lambda most, x: x <= most),
    ("lt", lambda most, x: x < most),
    ("multiple_of", lambda step, x: x % step == 0),
    ("finite", lambda _, x: math.isfinite(x)),
]


def fits(held, value):
    """Whether the limits of a field accept a value; all accept null."""
    limits = held.members
    if value is None:
        return True
    number = value if isinstance(value, int | float) else None
    length = len(value) if isinstance(value, str | bytes | list | dict) else 0
    return (
        (
            number is None
            or all(test(limits[name], number) for name, test in TESTS if name in limits)
        )
        and value in limits.get("choices", [value])
        and (not isinstance(value, str) or re.fullmatch(limits.get("pattern", "(?s).*"), value))
        and limits.get("min_length", length) <= length <= limits.get("max_length", length)
    )


def boundaries(held):
    """Yields the outermost values that the limits of a number, or of a text, accept."""
    limits = held.members
    if held.type in (("int",), ("float",)) and limits.get("kind") != "static":
        number = int if held.type == ("int",) else float
        for name, value in limits.items():
            shift = {"gt": 1, "lt": -1}.get(name, 0)
            if name in ("ge", "gt", "le", "lt"):
                yield number(value + shift)
    elif held.type == ("str",):
        yield from ("x" * limits[name] for name in ("min_length", "max_length") if name in limits)


def is_size(version, name):
    """Whether a dim, or a size in a type or an equation, has a name."""
    data = version.data()
    fields = [held for each in data["structs"].values() for held in each["fields"].values()]
    types = [held["type"] for held in fields if "type" in held]
    equations = [dim.get("equals", "") for dim in version.dims.values()]
    return any(re.search(rf"\b{name}\b", text) for text in [*version.dims, *types, *equations])
