"""Schema evolution: what differs between versions, what it breaks, and the steps that move payloads across.

Read it in this order:

- ``steps``: the table of all steps and the builders behind ``neuralqx_struct.steps``. A new step is a model in
  ``schema/migration.py``, three functions side by side in one of the ``*_steps`` modules, and a row here.
- ``field_steps``, ``struct_steps``, ``array_steps``, ``part_steps``, ``key_steps``: what each step does to a declaration,
  to a payload, and which steps lead back.
- ``proof``: do the declared steps lead to the declared version? ``differences``: if not, why, and which step would.
- ``plans``, ``migrations``: the way from one version to another, and going it.
- ``diff``, ``changes``: everything that changed, with codes. ``rules``: the verdict of each compatibility mode.
- ``edits``, ``tree``, ``values``, ``casts``, ``sizes``, ``measure``: what the steps are written with.
"""
