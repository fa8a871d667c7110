"""The comparison of the package with the model of one history."""

import json
from dataclasses import dataclass, field

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.migration import MODES
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.tools.linting import lint
from tests.histories.declarations import IDENTITY, from_node, same, to_node
from tests.histories.steps import Stop


def outcome(run):
    """The result of a call, or the error of the package that it raised."""
    try:
        return run()
    except s.StructError as error:
        return error


def agree(a, b):
    """Whether two outcomes are the same value, or both errors."""
    if isinstance(a, Exception) or isinstance(b, Exception):
        return isinstance(a, Exception) and isinstance(b, Exception)
    return same(a, b)


def content(path):
    """The value that a bundle holds, or the error that the path is."""
    if isinstance(path, Exception):
        return path
    held = bundle.read(path)
    return from_node(held.document["manifest"], held.arrays)


def loaded(schema, path, **options):
    """The value that a load gives, after the checks of construction."""
    state = s.to_state_dict(schema.load(path, **options))
    return from_node(state["manifest"], state["array_data"])


@dataclass
class Comparison:
    """The comparison of one history; files go to the folder `root`.

    Attributes:
        strict: Verdicts that refuse what every payload of the sample can do.
        wrong: The disagreements.
        findings: The errors of lint; the package is compared only where there are none.
        named: The codes of all findings of lint, with those that name stops.
        loads: How many payloads were read as a later version.
    """

    history: object
    root: object
    strict: list = field(default_factory=list)
    wrong: list = field(default_factory=list)
    findings: list = field(default_factory=list)
    loads: int = 0
    named: set = field(default_factory=set)

    def run(self):
        head = self.history.versions[-1]
        found = lint(self.folder(head.number))
        self.findings = [d for d in found if d.severity == "error"]
        self.named = {d.code for d in found}
        if self.findings:
            return self
        for version in self.history.versions:
            for i, value in enumerate(self.history.payloads[version.number]):
                path = self.stored(value, version, i)
                own = outcome(lambda path=path, n=version.number: loaded(self.schema(n), path))
                if not same(own, value):
                    self.wrong.append(f"{path.name} is not read as it is: {own}")
                elif version is not head:
                    self.upgrade(version, value, path)
        self.verdicts()
        return self

    def folder(self, number):
        """A schema folder with the versions up to one."""
        folder = self.root / f"upto{number}" / "h"
        if not folder.exists():
            for version in self.with_used(number):
                file = folder.with_name(version.identity[-1]) / f"v{version.number}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(version.data()))
        return folder

    def with_used(self, number):
        """The versions up to one, those of the schema that they use first."""
        versions = self.history.versions[:number]
        used = {v.used.number: v.used for v in versions if v.used}
        return [*used.values(), *versions]

    def schema(self, number):
        return s.load_schema(self.folder(number))

    def stored(self, value, version, i):
        """Writes a payload of one version as a bundle, with all documents up to it."""
        arrays = {}
        tree = to_node(value, version, arrays)
        documents = [
            load_series(self.folder(version.number)).documents[n]
            for n in range(1, version.number + 1)
        ]
        records = {k: {"dtype": str(a.dtype), "shape": list(a.shape)} for k, a in arrays.items()}
        identity = {
            "id": IDENTITY,
            "version": version.number,
            "fingerprint": payload_fingerprint(documents[-1]),
        }
        manifest = {
            "version": 1,
            "schema": identity,
            "schemas": [v.data() for v in self.with_used(version.number)],
            "manifest": tree,
            "arrays": records,
            "writer": {"name": "test", "version": "1"},
        }
        return bundle.write(self.root / f"p{version.number}_{i}", Payload(manifest, arrays))

    def upgrade(self, version, value, path):
        """Compares the load of an older payload with the model."""
        self.loads += 1
        head = self.history.versions[-1]
        hops = self.history.hops[version.number - 1 :]
        label = f"{path.name} to {head.number}"
        got = outcome(lambda: loaded(self.schema(head.number), path))
        if all(hop.stepped for hop in hops):
            expected = value
            try:
                for hop in hops:
                    expected = hop.up(expected)
            except Stop:
                expected = s.MigrationError("stop")
            if not agree(got, expected):
                self.wrong.append(f"{label}: load gave {got}, expected {expected}")
        elif isinstance(got, Exception) and head.compatibility != "none" and len(hops) == 1:
            self.wrong.append(f"{label}: promised, but load refused: {got}")
        self.on_disk(version, path, value, got)

    def migrated(self, path, name, number):
        """Migrates a bundle to a version; returns the path or the error."""
        folder = self.folder(len(self.history.versions))
        out = self.root / name
        return outcome(lambda: s.migrate(path, out, to=number, schema=folder).out)

    def on_disk(self, version, path, value, got):
        """Compares a migration by one call, hop by hop, and back."""
        head = len(self.history.versions)
        label = f"{path.name} to {head}"
        once = self.migrated(path, f"{path.name}once", head)
        single = outcome(lambda: content(once))
        if not agree(single, got):
            self.wrong.append(f"{label}: load gave {got}, migrate gave {single}")
        at = path
        for number in range(version.number + 1, head + 1):
            at = self.migrated(at, f"{path.name}to{number}", number)
            if isinstance(at, Exception):
                break
        several = outcome(lambda: content(at))
        if not agree(several, single):
            self.wrong.append(f"{label}: one call gave {single}, hop by hop {several}")
        hops = self.history.hops[version.number - 1 :]
        lossy = not all(hop.lossless for hop in hops) or "NQX307" in self.named
        if isinstance(once, Exception) or lossy:
            return
        back = self.migrated(once, f"{path.name}back", version.number)
        down = outcome(lambda: content(back))
        if not same(down, value):
            self.wrong.append(f"{label}: down gave {down}, expected {value}")

    def verdicts(self):
        """Compares the verdicts of all modes with loads by readers that have only their own version and those before."""
        head = len(self.history.versions)
        for unknown in ("error", "warn", "drop"):
            reads = {
                (direction, number): self.reads(direction, number, unknown)
                for direction in ("backward", "forward")
                for number in range(1, head)
            }
            for mode in MODES.values():
                self.verdict(mode, unknown, reads)

    def reads(self, direction, number, unknown):
        """The first refused load between a version and the newest in one direction, or None."""
        head = len(self.history.versions)
        reader, writer = (head, number) if direction == "backward" else (number, head)
        schema = self.schema(reader)
        for path in sorted(self.root.glob(f"p{writer}_?")):
            got = outcome(lambda path=path: loaded(schema, path, unknown=unknown))
            if isinstance(got, Exception):
                return got
        return None

    def verdict(self, mode, unknown, reads):
        head = len(self.history.versions)
        if head < 2:
            return
        numbers = range(1, head) if mode.transitive else [head - 1]
        refused = [
            (direction, number, reads[direction, number])
            for direction in mode.directions
            for number in numbers
            if reads[direction, number] is not None
        ]
        against = self.folder(head - 1)
        found = s.breaking(self.folder(head), against=against, mode=mode.name, unknown=unknown)
        errors = [str(d) for d in found if d.severity == "error"]
        label = f"{mode.name}, unknown={unknown}"
        if refused and not errors and not self.may_stop():
            self.wrong.append(f"{label}: no finding, but {refused[0]}")
        if errors and not refused and mode.directions:
            self.strict.append(f"{label}: every payload was read, but {errors[0]}")

    def may_stop(self):
        """Whether a step may refuse data that its reader is given, as lint names it."""
        return any(
            e.name in ("cast", "convert") for hop in self.history.hops for e in hop.all_edits
        )
