"""Layouts: foreign checkpoints read and written under a schema, by files that map names and forms of arrays."""
