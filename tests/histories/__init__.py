"""Random histories of a schema, and an independent model of them.

A history is a first version, random edits with or without steps, and random payloads. The model knows nothing of the
package: types are tuples, sizes are resolved by their scope (document, struct instance, parameter), and each edit states
in plain Python what it makes of a value. `comparison.py` compares the package with it.
"""

import copy
import json
from dataclasses import dataclass

from tests.histories.edits import UNSTEPPED
from tests.histories.making import Maker
from tests.histories.steps import STEPPED


@dataclass
class Hop:
    """From one version to the next."""

    edits: list

    @property
    def stepped(self):
        return self.edits[0].steps is not None

    @property
    def lossless(self):
        return self.stepped and all(edit.lossless for edit in self.edits)

    def up(self, root):
        """What the hop makes of a payload; None for a hop without steps, whose result has no model."""
        value = copy.deepcopy(root)
        for edit in self.edits:
            value = edit.up(value)
        return value

    def __str__(self):
        return ", ".join(edit.name for edit in self.edits)


@dataclass
class History:
    seed: int
    versions: list
    hops: list
    payloads: dict

    def __str__(self):
        lines = [f"seed {self.seed}: {'; '.join(map(str, self.hops))}"]
        lines += [json.dumps(version.data()) for version in self.versions]
        return "\n".join(lines)


def history(seed, payloads=4):
    """A random history with two or three versions, and payloads of each version."""
    make = Maker(seed)
    versions = [make.version()]
    hops = []
    for _ in range(make.one([1, 1, 2])):
        new = copy.deepcopy(versions[-1])
        new.number += 1
        new.steps = None
        for struct in new.structs.values():
            for held in struct.fields.values():
                held.members.pop("aliases", None)
        edits = []
        kinds = STEPPED if make.chance(0.6) else UNSTEPPED
        for _ in range(make.one([1, 1, 2, 3])):
            before = copy.deepcopy(new)
            edit = make.one(kinds)(make, new)
            if edit is None:
                new = before
            else:
                edits.append(edit)
        if not edits:
            continue
        if edits[0].steps is not None:
            new.steps = [each for edit in edits for each in edit.steps]
        versions.append(new)
        hops.append(Hop(edits))
    held = {
        version.number: [p for p in (make.payload(version) for _ in range(payloads)) if p]
        for version in versions
    }
    return History(seed, versions, hops, held)
