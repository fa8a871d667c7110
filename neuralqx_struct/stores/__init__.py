"""Array stores: how the named arrays of a bundle are written to files. The rows of the table of stores.

Each store is one :class:`~neuralqx_struct.stores.store.Store` record in a module of its own. A new store
takes one module and one row here.

Example:
    >>> store_named("npz").file, store_of_file("arrays-1.safetensors").name
    ('arrays.npz', 'safetensors')
"""

from neuralqx_struct.stores.npz import NPZ
from neuralqx_struct.stores.orbax import ORBAX
from neuralqx_struct.stores.safetensors import SAFETENSORS
from neuralqx_struct.stores.store import STORES, store_named, store_of_file

__all__ = ["STORES", "store_named", "store_of_file"]

STORES.update({store.name: store for store in (NPZ, SAFETENSORS, ORBAX)})
