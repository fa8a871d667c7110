"""Random histories of a schema, and an independent model of them.

A history is a first version, random edits with or without steps, and random payloads. The model knows nothing of the
package: types are tuples, sizes are resolved by their scope (document, struct instance, parameter), and each edit states
in plain Python what it makes of a value. `comparison.py` compares the package with it.
"""

import copy
import json
from dataclasses import dataclass

from neuralqx_struct.classes.compiler import register_hook
from tests.histories.arrays import OF_ARRAYS
from tests.histories.constraints import intact
from tests.histories.declarations import shows_members
from tests.histories.derivations import other_derived, sound, stored_to_derived
from tests.histories.edits import UNSTEPPED
from tests.histories.items import COLLECTED
from tests.histories.making import Maker
from tests.histories.stacks import stack, unstack
from tests.histories.steps import STEPPED

register_hook("histories.same", lambda value: value)

STEPS = [*STEPPED, *OF_ARRAYS, *COLLECTED, stack, stack, unstack, other_derived]
PLAIN = [*UNSTEPPED, other_derived, stored_to_derived]


@dataclass
class Hop:
    """From one version to the next: the hop of the schema that it uses, then its own edits."""

    edits: list
    used: object = None

    @property
    def stepped(self):
        own = all(edit.steps is not None for edit in self.edits)
        return own and (self.used is None or self.used.stepped)

    @property
    def all_edits(self):
        return [*(self.used.edits if self.used else ()), *self.edits]

    @property
    def lossless(self):
        return self.stepped and all(edit.lossless for edit in self.all_edits)

    def up(self, root):
        """What the hop makes of a payload; only hops with steps have a model."""
        value = copy.deepcopy(root)
        for edit in self.all_edits:
            value = edit.up(value)
        return value

    def __str__(self):
        used = [f"used ({self.used})"] if self.used else []
        return ", ".join([*used, *(edit.name for edit in self.edits)])


@dataclass
class History:
    """A schema with its versions, those of the schema that it uses, and payloads by version."""

    seed: int
    versions: list
    hops: list
    payloads: dict

    def __str__(self):
        lines = [f"seed {self.seed}: {'; '.join(map(str, self.hops))}"]
        used = {v.used.number: v.used for v in self.versions if v.used}
        lines += [json.dumps(version.data()) for version in (*used.values(), *self.versions)]
        return "\n".join(lines)


def history(seed, payloads=4):
    """A random history with up to three versions, and payloads of each version."""
    make = Maker(seed)
    used = [make.used()] if make.chance(0.25) else []
    if used:
        new, hop = next_version(make, used[0])
        used.append((new, hop))
    versions = [make.version(used=used[0] if used else None)]
    hops = []
    for _ in range(make.one([1, 1, 2])):
        new, hop = next_version(make, versions[-1])
        if used and new.used is used[0] and used[1][1].edits and make.chance(0.7):
            new.used, hop.used = used[1]
        if hop.edits or hop.used:
            versions.append(new)
            hops.append(hop)
    held = {version.number: [*some_payloads(make, version, payloads)] for version in versions}
    return History(seed, versions, hops, held)


def some_payloads(make, version, count):
    """Yields payloads of a version: the smallest ones first, with sizes of 0 and 1 and as many items."""
    for index in range(count):
        make.small = index if index < 2 else None
        made = make.payload(version)
        if made:
            yield made
    make.small = None


def next_version(make, old):
    """A version after another one, and the hop to it."""
    new = copy.deepcopy(old)
    new.number += 1
    new.steps = None
    new.used = old.used
    for struct in new.structs.values():
        for held in struct.fields.values():
            held.members.pop("aliases", None)
    edits = []
    kinds = STEPS if make.chance(0.6) else PLAIN
    for _ in range(make.one([1, 1, 2, 3])):
        before = copy.deepcopy(new)
        edit = make.one(kinds)(make, new)
        # Steps come before the defaults of enums, whatever the order of the edits.
        late = edit is not None and edit.name == "convert text"
        late = late and any(each.name == "a member less" for each in edits)
        if edit is None or late or not (intact(new) and sound(new) and shows_members(new)):
            new = before
            new.used = old.used
        else:
            edits.append(edit)
    if edits and all(edit.steps is not None for edit in edits):
        new.steps = [each for edit in edits for each in edit.steps]
    return new, Hop(edits)
