"""The schema language: documents, their types, their reader, and the versions of one schema.

Read it in this order:

- ``loader``: YAML and JSON text -> plain values with positions.
- ``model``, ``migration``: what a document says, as models; the published JSON Schema.
- ``types``: the types of fields and their text form. A new type is a record and a parser there, and a row in ``conform``.
- ``expressions``, ``dims``: the expression language; symbolic sizes and their unification.
- ``conform``: does a value have the declared type? ``checks``, ``defaults``, ``patterns``: does a document make sense?
- ``fingerprint``, ``series``: when two documents are the same; the versions of one schema.
"""
