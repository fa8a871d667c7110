"""Ways out of a sandbox for Python expressions, and ways to make one work forever: each is refused, at once.

The walks are those that are published against evaluators built on ``eval`` with emptied builtins, on attribute
filters, on ``str.format`` and on restricted ``ast`` walkers. The subset has neither attributes nor calls of values, so
each of them ends while parsing; what is only large ends at a budget, while parsing or while evaluating.
"""

import numpy as np
import pytest

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from tests.builders import bounded, every

# The least that every name could be worth to an attacker: values of all sorts that schemas hand to expressions.
NAMES = {
    "x": 3,
    "name": "a" * 100,
    "t": (1, 2, 3),
    "array": np.zeros((4, 4)),
    "none": None,
    "n": 2**200,
}

ESCAPES = {
    "dunder walk from a tuple": "().__class__.__bases__[0].__subclasses__()",
    "dunder walk from a list": "[].__class__.__mro__[1].__subclasses__()",
    "dunder walk from text": "''.__class__.__base__",
    "dunder walk from a number": "(1).__class__",
    "dunder walk from a float literal": "1.0.__class__",
    "dunder walk from True": "True.__class__",
    "dunder walk from None": "None.__class__",
    "dunder walk from a name": "x.__class__.__init__.__globals__",
    "dunder walk from a comparison": "(1 == 1).__class__",
    "dunder walk from a conditional": "(1 if 1 else 2).__class__",
    "dunder walk from a function": "len.__self__",
    "dunder walk from a call": "len('a').__class__",
    "dunder walk from a shape": "shape(array).__class__",
    "dunder walk behind a subscript": "shape(array)[0].__class__",
    "builtins by name": "__builtins__['eval']('1')",
    "import": "__import__('os').system('true')",
    "eval": "eval('1')",
    "exec": "exec('1')",
    "compile": "compile('1', '', 'eval')",
    "open": "open('/etc/passwd')",
    "getattr": "getattr(x, '__class__')",
    "setattr": "setattr(x, 'y', 1)",
    "type": "type(x)",
    "three-argument type": "type('X', (), {})",
    "vars": "vars()",
    "globals": "globals()",
    "locals": "locals()",
    "dir": "dir(x)",
    "breakpoint": "breakpoint()",
    "help": "help()",
    "input": "input()",
    "super": "super()",
    "str.format": "'{0.__class__}'.format(x)",
    "str.format_map": "'{x.__class__}'.format_map(x)",
    "percent formatting": "'%s' % x",
    "percent formatting with width": "'%1000000000d' % 1",
    "percent formatting with *": "'%*d' % (1000000000, 1)",
    "f-string": "f'{x.__class__}'",
    "f-string with a call": "f'{len(x)}'",
    "nested f-string": "f'{f\"{x}\"}'",
    "raw f-string": "rf'{x}'",
    "template string": "t'{x}'",
    "byte string": "b'a'",
    "raw string": "r'a'",
    "named unicode escape": "'\\N{BULLET}'",
    "octal escape": "'\\101'",
    "generator frame": "(i for i in (1, 2)).gi_frame.f_back.f_globals",
    "generator": "sum(i for i in (1, 2))",
    "list comprehension": "[i for i in (1, 2)]",
    "set comprehension": "{i for i in (1, 2)}",
    "dict comprehension": "{i: i for i in (1, 2)}",
    "comprehension with condition": "[i for i in t if i.__class__]",
    "asynchronous comprehension": "[i async for i in t]",
    "yield": "(yield)",
    "yield from": "(yield from t)",
    "await": "await x",
    "coroutine frame": "x.cr_frame",
    "traceback frame": "x.tb_frame.f_globals",
    "code object": "(lambda: 0).__code__",
    "lambda": "(lambda: 0)()",
    "lambda with default": "(lambda a=x: a)()",
    "walrus": "(y := 1)",
    "walrus in a call": "len(y := 'a')",
    "assignment": "x = 1",
    "augmented assignment": "x += 1",
    "star in a tuple": "(*t,)",
    "star in a list": "[*t]",
    "star in a call": "max(*t)",
    "double star in a call": "max(**{'key': x})",
    "keyword in a call": "max(1, 2, key=len)",
    "default of min": "min(t, default=open)",
    "dict": "{'a': 1}",
    "dict with **": "{**x}",
    "set": "{1, 2}",
    "subscript of a name": "name[0]",
    "subscript of a literal": "'abc'[0]",
    "subscript with a computed index": "shape(array)[x]",
    "subscript with a tuple": "shape(array)[0, 1]",
    "slice": "name[1:2]",
    "slice of a shape": "shape(array)[:]",
    "slice with step": "shape(array)[::-1]",
    "ellipsis": "...",
    "ellipsis as an index": "shape(array)[...]",
    "call of a call": "len('a')()",
    "call of a literal": "1()",
    "call of a conditional": "(len if x else sum)(t)",
    "call of a subscript": "t[0]()",
    "call of an unknown name": "x()",
    "function as a value in a call": "max(len, sum)",
    "matrix product": "array @ array",
    "bit shift": "1 << 1000000000",
    "bitwise or": "x | x",
    "bitwise and": "x & x",
    "bitwise xor": "x ^ x",
    "inversion": "~x",
    "identity": "x is None",
    "negated identity": "x is not None",
    "membership in a name": "1 in t",
    "membership in text": "'a' in 'abc'",
    "membership in a computed list": "1 in [x]",
    "unicode-normalised len": "\uff4c\uff45\uff4e(t)",
    "unicode-normalised dunder": "x.__\uff43lass__",
    "unicode-normalised eval": "\u1d49\u1d5b\u1d43\u1d38('1')",
    "mathematical letters": "\U0001d4c1\u212f\U0001d4c3(t)",
    "fullwidth digits": "\uff11 + 1",
    "fullwidth parenthesis": "len\uff08t)",
    "no-break space": "1\u00a0+ 1",
    "right-to-left override": "1 \u202e+ 1",
    "zero-width joiner in a name": "x\u200dy",
    "line separator": "1\u20282",
    "NUL": "1\0",
    "form feed": "1\f+ 1",
    "comment": "1 # __import__('os')",
    "semicolon": "1; import os",
    "line continuation": "1 + \\\n1",
    "backquotes": "`x`",
    "type annotation": "x: int",
    "statement import": "import os",
    "statement del": "del x",
    "statement assert": "assert x",
    "statement print": "print x",
    "decorator": "@x",
    "imaginary number": "1j",
    "soft keyword match": "match x: pass",
    "implicit concatenation": "'a' 'b'",
    "infinite float": "1e999",
    "two expressions": "1\n2",
    "null coalescing": "x ?? 1",
    "arrow": "x -> y",
    "template placeholder": "${x}",
}

EXPONENTIAL = {
    "tower of powers": "9**9**9",
    "tower of powers of names": "n**n**n",
    "tower in parentheses": "((9**9)**9)**9**9",
    "power with a huge exponent": "2**1000000000",
    "power with a huge literal": f"2**{'9' * 100}",
    "power with a negative huge exponent": "2**-1000000000",
    "power of a value": "n**64",
    "squares of squares": "((((((n**2)**2)**2)**2)**2)**2)**2",
    "product of large values": " * ".join(["n"] * 200),
    "multiplied text": "'a' * 1000000000",
    "multiplied text, nested": "(('a' * 1000000) * 1000000) * 1000000",
    "multiplied tuple": "(1,) * 1000000000",
    "multiplied tuple, nested": "((0,) * 99999999) * 99999999",
    "multiplied list, nested": "[[0] * 99999] * 99999",
    "multiplied name": "name * 1000000000",
    "number times text": "1000000000 * name",
    "doubled by addition": "(" * 40 + "name + name" + ") + name" * 40 + " * 99999",
    "deep parentheses": "(" * 200_000 + "1" + ")" * 200_000,
    "deep parentheses, short": "(" * 2000 + "1" + ")" * 2000,
    "deep brackets": "[" * 2000 + "]" * 2000,
    "unclosed brackets": "[" * 2000,
    "deep unary minus": "-" * 3000 + "1",
    "deep not": "not " * 900 + "x",
    "deep calls": "abs(" * 300 + "1" + ")" * 300,
    "deep conditionals": "1 if x else " * 300 + "1",
    "deep power": "**".join(["1"] * 300),
    "long sum": "+".join(["1"] * 2000),
    "long sum beyond the text": "+".join(["1"] * 200_000),
    "long comparison": "<".join(["1"] * 2000),
    "long or": " or ".join(["x"] * 1000),
    "many arguments": f"max({','.join(['1'] * 1500)})",
    "huge literal": "9" * 4000,
    "huge literal beyond Python's limit": "9" * 1_000_000,
    "huge hexadecimal literal": "0x" + "f" * 4000,
    "huge binary literal": "0b" + "1" * 4000,
    "huge float literal": "1" * 4000 + ".0",
    "huge exponent of a float": "1e" + "9" * 3000,
    "huge text": "'" + "a" * 5_000_000 + "'",
    "digits with underscores": "1_" * 2000 + "1",
    "outer product of arrays": "sum(wide * high)",
}

LARGE = {"wide": np.zeros((1, 50_000)), "high": np.zeros((50_000, 1))}


@every("text", [*ESCAPES.values(), *EXPONENTIAL.values()])
def test_no_way_out_and_no_way_to_work_forever(text):
    with bounded(), pytest.raises(SchemaError) as caught:
        evaluate(parse(text), NAMES | LARGE)
    for found in caught.value.diagnostics:
        assert found.code in {"NQX114", "NQX115", "NQX116", "NQX117", "NQX507"}
        assert found.message.startswith("expected ")
        assert len(found.message) < 400


@every("text", ESCAPES.values())
def test_what_is_not_of_the_subset_names_its_column(text):
    try:
        parse(text)
    except SchemaError as error:
        assert all("column" in found.message for found in error.diagnostics)
    else:  # a sentence of the subset, whose operands do not fit
        assert text in {
            "'%s' % x",
            "'%1000000000d' % 1",
            "'%*d' % (1000000000, 1)",
            "max(len, sum)",
            "x.cr_frame",
            "x.tb_frame.f_globals",
            "name[0]",
        }
