"""The tables of what a manifest may hold."""

from neuralqx_struct import manifest_rules
from neuralqx_struct.manifest_grammar import MODES, NODE_KINDS, PLACES, PLAIN, RECORDS
from tests.test_manifest import EVERY_KIND


def test_the_table_is_covered():
    kinds = {node["__kind__"] for node in EVERY_KIND if isinstance(node, dict)} | {"tuple"}  # inside the list
    assert kinds == set(NODE_KINDS)


def test_every_word_of_the_tables_has_a_meaning():
    structures = {"fields", "nodes", "pairs", "identity", "records", "version", "writer"}
    known = {*manifest_rules.RULES, *PLACES, *structures}
    for members in (*NODE_KINDS.values(), *MODES.values(), *RECORDS.values()):
        assert set(members.values()) <= known
    for allowed in PLACES.values():
        assert allowed <= {*PLAIN.values(), *NODE_KINDS}
