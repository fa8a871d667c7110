"""A notebook all of whose cells are run twice in one kernel, so that its classes are defined again."""

import nbclient
import nbformat
import numpy as np

CELLS = [
    """\
import jax
import jax.numpy as jnp
import numpy as np

import neuralqx_struct as s  # +
""",
    """\
class State(s.Struct, schema="lab.notebook", version=1):  # +
    weights: jax.Array
    key: jax.Array
    step: int
""",
    """\
@jax.jit
def update(weights, key):
    key, draw = jax.random.split(key)
    x = jax.random.normal(draw, (16, 3))
    return weights - 0.1 * jax.grad(lambda w: jnp.mean((x @ w - x.sum(1)) ** 2))(weights), key
""",
    """\
run = s.Series("run", keep_last=2)  # +
if run.latest() is None:  # +
    state = State(weights=jnp.zeros(3), key=jax.random.key(0), step=0)
else:
    state = run.load(load_cls=State)  # +
""",
    """\
while state.step < UNTIL:
    weights, key = update(state.weights, state.key)
    state = state.replace(weights=weights, key=key, step=state.step + 1)
    run.save(state.step, state)  # +
""",
    """\
np.savez("result.npz", weights=state.weights, key=jax.random.key_data(state.key))
""",
]


def main(until):
    book = nbformat.v4.new_notebook()
    for steps in (until - 1, until):
        cells = [f"UNTIL = {steps}\n", *CELLS]
        book.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbclient.NotebookClient(book, kernel_name="python3", timeout=120).execute()
    with np.load("result.npz") as found:
        return dict(found), found["weights"]


CHANGED = "a field gets another name"
EDITS = {
    "class State(": """\
MIGRATION = s.steps.migration(1, [s.steps.rename(field="weights", to="kernel")])  # +


class State(""",
    'schema="lab.notebook", version=1': 'schema="lab.notebook", version=2, migrations=[MIGRATION]',
    "    weights: jax.Array": "    kernel: jax.Array",
    "State(weights=": "State(kernel=",
    "state.weights": "state.kernel",
    "state.replace(weights=": "state.replace(kernel=",
}
