"""The comparison of the package with the model of one history."""

import json
import re
from collections import Counter
from dataclasses import dataclass, field

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.evolution.changes import LIMITS
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.migration import MODES
from neuralqx_struct.schema.samples import samples_of
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.sizes.scopes import given_sizes
from neuralqx_struct.tools.linting import lint
from neuralqx_struct.types import walk_type
from tests.histories.declarations import IDENTITY, from_node, same, to_node
from tests.histories.derivations import misses
from tests.histories.making import Maker
from tests.histories.steps import Open, Stop

#: Errors of lint about two versions that are sound by themselves.
OF_TWO_VERSIONS = {"NQX301", "NQX305"}
#: Codes of loads that a step refuses because of the data, by edit: lint names them (NQX320), and verdicts accept them.
STOPS = {
    "cast": {"NQX213", "NQX214"},
    "cast with a loss": {"NQX213", "NQX214"},  # on the way back
    "convert": {"NQX213", "NQX214", "NQX412", "NQX413"},
    "stack": {"NQX412", "NQX413", "NQX432"},
    "unstack": {"NQX412", "NQX413", "NQX432"},
    "stack arrays": {"NQX412", "NQX413", "NQX432"},
    "unstack array": {"NQX412", "NQX413", "NQX432"},
    "merge list": {"NQX411"},
    "merge dict": {"NQX411"},
    "split list": {"NQX411"},
    "split tuple": {"NQX411"},
    "split dict": {"NQX411"},
    "convert text": {"NQX421"},
    "derived field": {"NQX115"},
    "a derived field less": {"NQX115"},  # on the way back
    "a stored field is derived": {"NQX115"},
    "rename path": {"NQX414", "NQX415"},
    "add path": {"NQX414", "NQX415"},
    "remove path": {"NQX414", "NQX415"},  # the latter on the way back
}
#: Likewise of downgrades: an array without elements does not show its former axes, nor an empty list the sizes of parts.
DOWNGRADE_STOPS = {"reshape": {"NQX413"}, "merge": {"NQX413"}}
#: Likewise: an empty list does not show the axes of the layers that it had.
LAYERLESS = {"unstack": {"NQX432"}, "unstack array": {"NQX432"}}
#: A function that only the documents in a bundle ask for is not run without trust.
FORWARD_STOPS = {"python": {"NQX312"}}
#: The payloads that are tried for a verdict of which no sample is an example.
PROBES = 300


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


def unfound_sizes(found):
    """The versions to which findings name a downgrade that stops."""
    stops = [d.message for d in found if d.code == "NQX320"]
    return {int(n) for m in stops for n in re.findall(r"on a downgrade to version (\d+)", m)}


def no_value(outcome):
    """Whether a derived field has no value of its type: only the version that is read or written has to have one."""
    failed = isinstance(outcome, s.StructError)
    return failed and {d.code for d in outcome.diagnostics} in ({"NQX115"}, {"NQX411"})


def content(path):
    """The value that a bundle holds, or the error that the path is."""
    if isinstance(path, Exception):
        return path
    held = bundle.read(path)
    return from_node(held.document["manifest"], held.arrays)


def loaded(schema, path, version=None, **options):
    """The value that a load gives, after the checks of construction; or what is wrong with its derived fields."""
    made = schema.load(path, **options)
    state = s.to_state_dict(made)
    value = from_node(state["manifest"], state["array_data"])
    return [*misses(version, value, made)] or value if version else value


def read(schema, payload, unknown):
    """Reads a payload in memory as a load does."""
    state = {**payload.document, "array_data": payload.arrays}
    return s.to_state_dict(s.from_state_dict(state, load_cls=schema.root, unknown=unknown))


def has_unfilled(version):
    """Whether a version has a field that neither payloads nor a default give a value."""
    return any(
        struct.unfilled
        for each in filter(None, (version, version.used))
        for struct in each.structs.values()
    )


def is_unfilled(outcome, version):
    """Whether a load was refused for such a field: the caller has to give it."""
    refused = isinstance(outcome, s.StructError) and has_unfilled(version)
    return refused and {d.code for d in outcome.diagnostics} == {"NQX414"}


@dataclass
class Comparison:
    """The comparison of one history; files go to the folder `root`.

    Attributes:
        wrong: The disagreements.
        findings: The errors of lint; only verdicts are compared where there are some, all of them about two versions.
        named: The codes of all findings of lint, with those that name stops.
        unfound: The versions of :func:`unfound_sizes`; the newest for one of the schema that it uses.
        loads: How many payloads were read as a later version.
        alarms: The codes of verdicts against versions of which every payload was read, counted.
        judged_pairs: How many verdicts were compared with loads.
    """

    history: object
    root: object
    wrong: list = field(default_factory=list)
    findings: list = field(default_factory=list)
    loads: int = 0
    alarms: Counter = field(default_factory=Counter)
    judged_pairs: int = 0
    named: set = field(default_factory=set)
    unfound: set = field(default_factory=set)
    _series: dict = field(default_factory=dict)
    _schemas: dict = field(default_factory=dict)
    _probes: dict = field(default_factory=dict)
    _refused: dict = field(default_factory=dict)  # the probe that a reader refused last
    _all_read: set = field(default_factory=set)  # no probe was refused, by other policies either

    def run(self):
        head = self.history.versions[-1]
        found = lint(self.folder(head.number))
        self.findings = [d for d in found if d.severity == "error"]
        used = self.found_by_used(head)
        self.named = {d.code for d in found + used}
        self.unfound = unfound_sizes(found) | {head.number for _ in unfound_sizes(used)}
        if not {d.code for d in self.findings} <= OF_TWO_VERSIONS:
            return self
        for version in self.history.versions:
            for i, value in enumerate(self.history.payloads[version.number]):
                path = self.stored(value, version, self.root / f"p{version.number}_{i}")
                own = outcome(
                    lambda path=path, version=version: loaded(
                        self.schema(version.number), path, version
                    )
                )
                if not same(own, value) and not is_unfilled(own, version):
                    self.wrong.append(f"{path.name} is not read as it is: {own}")
                elif version is not head and not self.findings:
                    self.upgrade(version, value, path)
        self.verdicts()
        return self

    def found_by_used(self, head):
        """The findings about the schema that the newest version uses: its migrations are in its own folder."""
        if not head.used:
            return []
        return lint(self.folder(head.number).with_name(head.used.identity[-1]))

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
        """The schema of an installation with the versions up to one, also where lint refuses a pair of them; read once."""
        if number not in self._schemas:
            if self.findings:
                self._schemas[number] = s.Schema(self.series(number), number)
            else:
                self._schemas[number] = s.load_schema(self.folder(number))
        return self._schemas[number]

    def series(self, number):
        """The documents of an installation with the versions up to one, read once."""
        if number not in self._series:
            self._series[number] = load_series(self.folder(number))
        return self._series[number]

    def held(self, value, version):
        """A payload of one version with all documents up to it, as bundles hold it."""
        arrays = {}
        tree = to_node(value, version, arrays)
        records = {k: {"dtype": str(a.dtype), "shape": list(a.shape)} for k, a in arrays.items()}
        identity = {
            "id": IDENTITY,
            "version": version.number,
            "fingerprint": payload_fingerprint(self.series(version.number).at(version.number)),
        }
        manifest = {
            "version": 1,
            "schema": identity,
            "schemas": [v.data() for v in self.with_used(version.number)],
            "manifest": tree,
            "arrays": records,
            "writer": {"name": "test", "version": "1"},
        }
        return Payload(manifest, arrays)

    def stored(self, value, version, path):
        """Writes a payload of one version as a bundle."""
        return bundle.write(path, self.held(value, version))

    def upgrade(self, version, value, path):
        """Compares the load of an older payload with the model."""
        self.loads += 1
        head = self.history.versions[-1]
        hops = self.history.hops[version.number - 1 :]
        label = f"{path.name} to {head.number}"
        got = outcome(lambda: loaded(self.schema(head.number), path, head))
        if all(hop.stepped for hop in hops):
            expected, is_open = value, False
            try:
                for hop in hops:
                    expected = hop.up(expected)
                owners = filter(None, (head, head.used))
                if not all(each.holds(own, expected) for own in owners for each in own.derived):
                    raise Stop
            except Stop as error:
                expected, is_open = s.MigrationError("stop"), isinstance(error, Open)
            same_result = agree(got, expected) or self.is_removed_unread(got, expected)
            same_result = same_result or is_unfilled(got, head)
            if is_open and (not isinstance(got, Exception) or self.may_stop(got)):
                same_result = True
            if not same_result and not self.is_limit(got):
                self.wrong.append(f"{label}: load gave {got}, expected {expected}")
        elif isinstance(got, Exception) and head.compatibility != "none" and len(hops) == 1:
            stops = self.may_stop(got, unfilled=has_unfilled(head))
            if (stops and "NQX320" in self.named) or self.is_limit(got):
                return
            if is_unfilled(got, head):
                return
            self.wrong.append(f"{label}: promised, but load refused: {got}")
        self.on_disk(version, path, value, got)

    def migrated(self, path, name, number):
        """Migrates a bundle to a version; returns the path or the error."""
        series = self.series(len(self.history.versions))
        out = self.root / name
        return outcome(lambda: s.migrate(path, out, to=number, schema=series).out)

    def on_disk(self, version, path, value, got):
        """Compares a migration by one call, hop by hop, and back."""
        head = len(self.history.versions)
        label = f"{path.name} to {head}"
        once = self.migrated(path, f"{path.name}once", head)
        single = outcome(lambda: content(once))
        if not agree(single, got) and not is_unfilled(got, version=self.history.versions[-1]):
            self.wrong.append(f"{label}: load gave {got}, migrate gave {single}")
        at = path
        for number in range(version.number + 1, head + 1):
            at = self.migrated(at, f"{path.name}to{number}", number)
            if isinstance(at, Exception):
                break
        several = outcome(lambda: content(at))
        if not agree(several, single) and not self.is_limit(several) and not no_value(several):
            self.wrong.append(f"{label}: one call gave {single}, hop by hop {several}")
        hops = self.history.hops[version.number - 1 :]
        lossy = not all(hop.lossless for hop in hops) or "NQX307" in self.named
        if isinstance(once, Exception) or lossy:
            return
        back = self.migrated(once, f"{path.name}back", version.number)
        down = outcome(lambda: content(back))
        stops = isinstance(down, Exception) and self.may_stop(
            down, LAYERLESS | self.downgrade_stops(version.number)
        )
        if not same(down, value) and not stops:
            self.wrong.append(f"{label}: down gave {down}, expected {value}")

    def verdicts(self):
        """Compares verdicts with loads by readers that have only their own version and those before.

        A verdict about two versions is exact: without an error every payload is read, except for `STOPS`; with one
        some payload is not. The verdict of a mode is that of its directions and versions, which is tried with one mode
        for each policy, another one for each history. `breaking` reads the files again; it has the default policy.
        """
        head = len(self.history.versions)
        earlier = [self.series(head).at(number) for number in range(1, head)]
        modes = list(MODES.values())
        for turn, unknown in enumerate(("error", "warn", "drop")):
            broken = {}
            for direction in ("backward", "forward"):
                for number in range(1, head):
                    broken[direction, number] = self.judged(direction, number, unknown)
            if not broken:
                continue
            mode = modes[(self.history.seed + turn) % len(modes)]
            numbers = range(1, head) if mode.transitive else [head - 1]
            expected = any(broken[d, n] for d in mode.directions for n in numbers)
            if unknown == "error":
                against = self.folder(head - 1)
                found = s.breaking(self.folder(head), against=against, mode=mode.name)
            else:
                found = verdict(earlier, self.series(head), mode.name, unknown=unknown)
            errors = [str(d) for d in found if d.severity == "error"]
            if bool(errors) is not expected:
                self.wrong.append(f"{mode.name}, unknown={unknown}: got {errors}")

    def judged(self, direction, number, unknown):
        """Compares the verdict about one version and the newest; returns whether it is an error."""
        series = self.series(len(self.history.versions))
        old = series.at(number)
        found = verdict(old, series, direction, unknown=unknown)
        errors = [str(d) for d in found if d.severity == "error"]
        refused = self.refused(direction, number, unknown, probe=bool(errors))
        label = f"{direction} {number}, unknown={unknown}"
        stops = STOPS
        if direction == "forward":
            stops = STOPS | FORWARD_STOPS | self.downgrade_stops(number)
        if refused and not errors and not self.may_stop(refused, stops):
            self.wrong.append(f"{label}: no finding, but {refused}")
        codes = {d.code for d in found if d.severity == "error"}
        self.judged_pairs += 1
        reader = self.history.versions[-1 if direction == "backward" else number - 1]
        # Nobody knows the limits of computed values, and a limit that a constraint or choices imply, or that an int has
        # because it is a size, is another limit all the same; a pytree may hold structs that no payload shows; a field without
        # a value stops loads of its own version, too, and then no payloads are tried, which would settle the sizes.
        writer = series.at(number if direction == "backward" else len(self.history.versions))
        structs = [each for document in writer.closure() for each in document.structs.values()]
        sized = any(map(given_sizes, writer.closure()))
        chosen = any(field.choices for each in structs for field in each.stored.values())
        constrained = any(each.constraints for each in structs)
        types = [
            t
            for each in structs
            for field in each.stored.values()
            for t in walk_type(field.declared)
        ]
        open_ = any(each.takes_all for each in types)
        unsure = self.is_computed() or sized or chosen or constrained or open_
        allowed = LIMITS if unsure else set()
        if has_unfilled(reader) and "NQX414" in codes:
            allowed = LIMITS | {"NQX414"}
        if codes and not refused and self.has_payloads(direction, number):
            self.alarms[", ".join(sorted(codes))] += 1
            if codes - allowed:
                self.wrong.append(f"{label}: every payload was read, but {errors}")
        return bool(errors)

    def is_computed(self):
        """Whether a function made values, of which no verdict knows that they are within limits."""
        return any(edit.name == "python" for hop in self.history.hops for edit in hop.all_edits)

    def refused(self, direction, number, unknown, *, probe):
        """The first refused load between a version and the newest in one direction, or None.

        Args:
            direction: Which of the two reads.
            number: The older version.
            unknown: The policy of the reader.
            probe: Try more payloads, at the limits of the writer, until one is refused.
        """
        head = len(self.history.versions)
        reader, writer = (head, number) if direction == "backward" else (number, head)
        schema = self.schema(reader)
        if not self.has_payloads(direction, number):
            return None
        for path in self.samples(writer):
            got = outcome(lambda path=path: loaded(schema, path, unknown=unknown))
            if isinstance(got, Exception) and self.is_read(writer, path):
                return got
        if (direction, number) in self._all_read:
            return None
        first = self._refused.get((direction, number), 0)
        for i in (first, *range(PROBES)) if probe else ():
            found = self.probe(writer, i)
            if found is None:  # none of its sizes fit
                continue
            got = outcome(lambda held=found: read(schema, held, unknown))
            if isinstance(got, Exception) and self.is_read(writer, self.stored_probe(writer, i)):
                self._refused[direction, number] = i
                path = self.stored_probe(writer, i)
                return outcome(lambda path=path: loaded(schema, path, unknown=unknown))
        found = self.refused_sample(schema, writer, unknown) if probe else None
        if probe and found is None and unknown == "error":
            self._all_read.add((direction, number))
        return found

    def refused_sample(self, schema, writer, unknown):
        """As `refused`, of the payloads that verdicts try, which are no evidence unless the writer reads them."""
        for i in range(PROBES):
            held = samples_of(self.series(writer).at(writer)).at(i).payload
            if held is None:
                continue
            own = outcome(lambda held=held: read(self.schema(writer), held, "error"))
            got = outcome(lambda held=held: read(schema, held, unknown))
            if isinstance(got, Exception) and not isinstance(own, Exception):
                return got
        return None

    def is_read(self, number, path):
        """Whether the version that wrote a payload reads it: a field without a value stops that one too."""
        version = self.history.versions[number - 1]
        if not has_unfilled(version):
            return True
        own = outcome(lambda: loaded(self.schema(number), path))
        return not isinstance(own, Exception)

    def has_payloads(self, direction, number):
        """Whether the writer has payloads that it reads itself: limits and sizes may leave none."""
        writer = number if direction == "backward" else len(self.history.versions)
        return any(self.is_read(writer, path) for path in self.samples(writer))

    def is_limit(self, outcome):
        """Whether a load was refused by a limit of values that lint names, of the newest version or one in between."""
        if not isinstance(outcome, s.StructError) or not self.named & LIMITS:
            return False
        return {d.code for d in outcome.diagnostics} == {"NQX416"}

    def is_removed_unread(self, got, expected):
        """Whether a load passed a stop of the model: an array that a step removes is not read, so nothing refuses it."""
        edits = {edit.name for hop in self.history.hops for edit in hop.all_edits}
        passed = isinstance(expected, Exception) and not isinstance(got, Exception)
        return passed and "remove" in edits and not edits.isdisjoint(STOPS)

    def downgrade_stops(self, number):
        """`DOWNGRADE_STOPS` if lint names one on the way to a version; it reviews no steps that are wrong."""
        named = any(each >= number for each in self.unfound)
        return DOWNGRADE_STOPS if named or (self.findings and "NQX320" in self.named) else {}

    def may_stop(self, error, stops=STOPS, *, unfilled=False):
        """Whether a step of the history may refuse data as an error does; `unfilled`: beside a field without a value."""
        edits = {edit.name for hop in self.history.hops for edit in hop.all_edits}
        allowed = set().union(*(stops[name] for name in edits & stops.keys()))
        return {d.code for d in error.diagnostics} <= allowed | ({"NQX414"} if unfilled else set())

    def samples(self, number):
        return sorted(self.root.glob(f"p{number}_?"))

    def probe(self, number, i):
        """One more payload of a version, or None where no sizes were found."""
        if (number, i) not in self._probes:
            version = self.history.versions[number - 1]
            value = Maker(i, bold=True).payload(version)
            self._probes[number, i] = value and self.held(value, version)
        return self._probes[number, i]

    def stored_probe(self, number, i):
        """The bundle of such a payload."""
        path = self.root / f"probe{number}_{i}"
        return path if path.exists() else bundle.write(path, self.probe(number, i))
