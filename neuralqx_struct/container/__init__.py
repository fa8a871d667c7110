"""Containers: walking, saving and describing anything that holds arrays, one level or all levels at a time.

A container is any pytree: tuples, lists, dicts of any key, Structs, classes known to ``register_pytree_type``, types that
a library registered with JAX, and plain classes that :func:`derive` declares. Everything else is a leaf. On Structs, the
containers are the node fields and what is kept are the static fields. Owns the walks, the pair
:func:`serialize`/:func:`deserialize`, templates and comparison by them. Does not write files: ``checkpoint.py`` does, and
a derived class is saved with the fields that it declares.

Example:
    >>> @derive(containers=["mean"], keep=["name"])
    ... class Estimate:
    ...     def __init__(self, mean=0.0, name="energy"):
    ...         self.mean, self.name, self.cache = mean, name, {}
    >>> doubled, leaves = traverse(Estimate(1.5), 0, lambda x, n: (2 * x, n + 1))
    >>> doubled.mean, doubled.name, leaves
    (3.0, 'energy', 1)
"""

from neuralqx_struct.container.derivation import derive
from neuralqx_struct.container.lazy import register_lazy, to_container
from neuralqx_struct.container.serialization import deserialize, serialize
from neuralqx_struct.container.templates import compatible, to_template
from neuralqx_struct.container.walks import reduce, reduce_deep, traverse, traverse_deep

__all__ = [
    "compatible",
    "derive",
    "deserialize",
    "reduce",
    "reduce_deep",
    "register_lazy",
    "serialize",
    "to_container",
    "to_template",
    "traverse",
    "traverse_deep",
]
