"""The schema language: documents, their reader, their checks, and the versions of one schema.

Read it in this order:

- ``text``: YAML and JSON as plain values with positions, and back.
- ``model``, ``migration``: the Pydantic models of a document. ``reading``: plain values to a validated document, or every
  structural error. ``language``: the JSON Schema of schema files.
- ``sizes``: symbolic sizes and their unification over all arrays of an instance.
- ``conformance``, ``view``, ``bounds``: checks of a value against its declaration.
- ``lint``: checks of a document as a whole.
- ``lock``, ``uses``, ``series``: fingerprints, the documents that a document uses, and the versions of one schema.
- ``export``: JSON Schema of payloads, stubs, diagrams and templates.

The types of fields are records in ``neuralqx_struct.types``, expressions are in ``neuralqx_struct.expressions``.
"""
