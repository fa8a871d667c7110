"""The schema language: documents, their types, their reader, and the versions of one schema.

Read it in this order:

- ``loader``: YAML and JSON text -> plain values with positions, and back. ``yaml_reader``, ``json_reader`` and
  ``yaml_problems`` tell ``builder`` what they meet, which makes a ``source``; ``yaml_writer`` is the way back; ``scalars``
  and ``limits`` serve both ways.
- ``model``, ``migration``: what a document says, as models; the published JSON Schema. ``reading``: plain values -> a
  validated document, or every structural problem with its position.
- ``types``: the types of fields and their text form. A new type is a record and a parser there, and a row in ``conform``.
- ``expressions``: text -> a checked expression. ``syntax``: the tables of the language and its canonical text. A new function
  is a row there and a row in ``evaluation``. ``linear``: solving for one unknown.
- ``dims``: symbolic sizes and their unification, over the equations of ``claims``; ``disagreements``: the messages.
- ``conform``: does a value have the declared type? ``checks``, ``defaults``, ``patterns``: does a document make sense?
- ``fingerprint``, ``series``: when two documents are the same; the versions of one schema.
"""
