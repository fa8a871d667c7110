"""Schema evolution: differences between versions, their compatibility, and the steps that migrate payloads.

- ``steps``: the table of migration steps, and the builders for Python. ``payload_tree``: payloads as steps see them.
- ``differences``: why payloads of one version cannot be read as another. ``suggestions``: the steps that
  resolve them, and questions. ``proof``: whether declared steps lead to the declared version.
- ``plans``: the hops between two versions, and their application to a payload. ``migrations``: the versions to use, and
  payloads as readers want them.
- ``changes``, ``diff``: all changes between two versions, with codes. ``compatibility``: verdicts
  by mode, and the check of a folder of schemas. ``against``: the earlier schemas that it compares with.
- ``revision``: the file of the next version from an edited schema.
- ``declared_sizes``: sizes and choices of dtypes that two versions declare otherwise.
"""
