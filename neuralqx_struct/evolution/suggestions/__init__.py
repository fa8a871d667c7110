"""Suggestions: the steps between two versions that need no question, and the questions that only the author can answer.

Messages show them as hints (:func:`explained`), and revisions write them into files. A step is sure where both
declarations together determine it: a default, an alias, a dtype, a field that is found again in a nested struct. Where
there are several ways, such as a rename or a new field, or where a value has to be chosen, there is a question with the
possible answers. Every step was applied to the declaration first, so none is refused when it is pasted into a file.

The parts, in the order of reading: each kind of step yields *candidates* (``steps/candidates.py``, and beside the steps); ``search.py``
tries them, and places what it finds at messages; ``flat.py`` lays fields of nested structs beside each other before; ``work.py``
holds what was found.

Example:
    >>> suggest(v1, v1)
    ()
"""

from neuralqx_struct.evolution.suggestions.search import explained, suggest

__all__ = ["explained", "suggest"]
