"""An example exists for every sound schema: random documents that are made around sizes that fit."""

import random

import jax
import pytest

import neuralqx_struct as s

SIZES = [
    "{}",
    "{}",
    "{}",
    "2 * {}",
    "{} + 3",
    "{} - 1",
    "{} // 2",
    "{} * {}",
    "{} * ({} + 1)",
    "{} + {}",
]
EQUATIONS = ["{}", "2 * {}", "{} + 1", "{} * {}", "{} - 2", "{} // 2", "{} - {}", "({} + 1) * {}"]
BOUNDS = ["", "ge: {0}", "le: {0}", "ge: {0}, le: {1}", "choices: [{0}, {1}]", "multiple_of: {0}"]
LITERALS = ['"a"', 'b"a"', "0", "-1", "true", "0.5", "inf", "-inf", "nan", "1j", "1-infj"]


class Maker:
    """Writes one document; ``known`` has a size for every name that fits everything written so far."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.known = {}

    def expression(self, forms, names, most=60):
        """A size of some names that is not negative and not large, and its value."""
        while True:
            form = self.random.choice(forms)
            text = form.format(*self.random.choices(names, k=form.count("{}")))
            found = eval(text, dict(self.known))
            if 0 <= found <= most:
                return text, found

    def bounds(self, value):
        least = self.random.randint(max(0, value - 3), value)
        most = self.random.randint(value, value + 30)
        return self.random.sample([f"min: {least}", f"max: {most}"], self.random.randint(0, 2))

    def ints(self):
        for name in ["k0", "k1"][: self.random.randint(0, 2)]:
            value = self.known[name] = self.random.choice([0, 1, 2, 3, 4, 8, 21])
            bounds = [""] if value == 0 else BOUNDS
            text = self.random.choice(bounds).format(value, value + self.random.randint(0, 9))
            yield name, f"{{type: int, kind: static{', ' if text else ''}{text}}}"

    def dims(self):
        for name in ["d0", "d1", "d2", "d3"][: self.random.randint(0, 4)]:
            members = []
            if self.known and self.random.random() < 0.5:
                text, self.known[name] = self.expression(EQUATIONS, [*self.known], 40)
                members = [f'equals: "{text}"']
            else:
                self.known[name] = self.random.choice([0, 1, 2, 5, 12])
            members += self.bounds(self.known[name])
            yield f"  {name}: {{{', '.join(members)}}}\n"

    def array(self, names):
        axes = [self.expression(SIZES, names)[0] for _ in range(self.random.randint(0, 2))]
        return f'"{self.random.choice(["float32", "int8"])}[{", ".join(axes)}]"'

    def document(self):
        ints = dict(self.ints())
        dims = list(self.dims())
        shared = list(self.known)
        self.known |= {"n": 2, "m": 3, "p": 2}
        inner = {"x": self.array([*shared, "n", "p"]), "y": self.array(["n", "m", "p"])}
        arg = self.random.choice([name for name in shared if self.known[name] == 2] or ["2"])
        held = self.random.choice(["A[{}]", "list[A[{}]]", "A[{}] | null", "dict[str, A[{}]]"])
        root = {"a": self.array([*shared, "n"]), "b": f'"{held.format(arg)}"', **ints}
        root["c"] = self.array([*shared, "m"])
        values = self.random.sample(LITERALS, self.random.randint(1, 4))
        root["lit"] = f"{{type: 'literal[{', '.join(values)}]', kind: static}}"
        root["mode"] = f"{{type: {self.random.choice(['Mode', 'Mode | null'])}, kind: static}}"
        text = 'language: "1"\nschema: lab.law\nversion: 1\nroot: R\n'
        text += "enums: {Mode: {members: [fast, slow], aliases: {fast: [quick]}}}\n"
        text += "dims:\n" + "".join(dims) if dims else ""
        text += "structs:\n  A:\n    params: [p]\n    fields:\n"
        text += "".join(f"      {name}: {declared}\n" for name, declared in inner.items())
        text += "  R:\n    fields:\n"
        return text + "".join(f"      {name}: {declared}\n" for name, declared in root.items())


def check(seed):
    text = Maker(seed).document()
    try:
        schema = s.load_schema(text)
    except s.SchemaError as error:
        assert error.diagnostics[0].code in {"NQX103", "NQX105", "NQX106"}, text
        return False
    made = s.example(schema.root, key=seed)
    assert s.from_state_dict(made.to_state_dict()) == made
    assert s.from_dict(made.to_dict(recursive=True), schema) == made
    jax.block_until_ready(made)
    return True


def test_every_sound_schema_has_an_example():
    sound = sum(check(seed) for seed in range(40))
    assert sound > 20


@pytest.mark.slow
def test_every_sound_schema_has_an_example_at_length():
    assert sum(check(seed) for seed in range(1000, 3000)) > 1000
