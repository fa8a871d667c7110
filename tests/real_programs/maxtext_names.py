"""A decoder with the names and the scanned layers of MaxText's parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import neuralqx_struct as s  # +
from tests.real_programs.changes import renamed

D, HEADS, VOCAB, LAYERS = 8, 2, 11, 3


def create():
    """The tree as MaxText makes it: scanned layers have their axis second."""
    shapes = {
        "token_embedder": {"embedding": (VOCAB, D)},
        "decoder": {
            "decoder_norm": {"scale": (D,)},
            "logits_dense": {"kernel": (D, VOCAB)},
            "layers": {
                "pre_self_attention_layer_norm": {"scale": (D, LAYERS)},
                "self_attention": {
                    "query": {"kernel": (D, LAYERS, HEADS, D // HEADS)},
                    "key": {"kernel": (D, LAYERS, HEADS, D // HEADS)},
                    "value": {"kernel": (D, LAYERS, HEADS, D // HEADS)},
                    "out": {"kernel": (HEADS, LAYERS, D // HEADS, D)},
                },
                "mlp": {"wi_0": {"kernel": (D, LAYERS, D)}, "wo": {"kernel": (D, LAYERS, D)}},
            },
        },
    }
    random = np.random.default_rng(0)

    def drawn(shape):
        return jnp.asarray(0.2 * random.normal(size=shape), "float32")

    params = jax.tree.map(drawn, shapes, is_leaf=lambda node: isinstance(node, tuple))
    return {"params": {"params": params}, "opt_state": OPTIMIZER.init({"params": params})}


OPTIMIZER = optax.adamw(1e-2)


def forward(params, tokens):
    params = params["params"]
    layers = jax.tree.map(lambda w: jnp.moveaxis(w, 1, 0), params["decoder"]["layers"])

    def layer(x, weights):
        seen = x * weights["pre_self_attention_layer_norm"]["scale"]
        attention = weights["self_attention"]
        q, k, v = (
            jnp.einsum("td,dhe->hte", seen, attention[n]["kernel"])
            for n in ("query", "key", "value")
        )
        mixed = jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v
        x = x + jnp.einsum("hte,hed->td", mixed, attention["out"]["kernel"])
        mlp = weights["mlp"]
        return x + jax.nn.relu(x @ mlp["wi_0"]["kernel"]) @ mlp["wo"]["kernel"], None

    x, _ = jax.lax.scan(layer, params["token_embedder"]["embedding"][tokens], layers)
    decoder = params["decoder"]
    return (x * decoder["decoder_norm"]["scale"]) @ decoder["logits_dense"]["kernel"]


@jax.jit
def update(state, step):
    tokens = jax.random.randint(jax.random.fold_in(jax.random.key(1), step), (12,), 0, VOCAB)

    def loss(params):
        logits = forward(params, tokens[:-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[1:]).mean()

    value, gradient = jax.value_and_grad(loss)(state["params"])
    updates, opt_state = OPTIMIZER.update(gradient, state["opt_state"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, value


def main(until):
    state, start = create(), 0
    run = s.Series("run", keep_last=2)  # +
    if run.latest() is not None:  # +
        start = run.latest()  # +
        state = run.load("latest", like=state)  # +
    for step in range(start + 1, until + 1):
        state, loss = update(state, step)
        run.save(step, state, {"loss": loss})  # +
    return state, forward(state["params"], jnp.arange(5))


CHANGED = "a part gets another name"
EDITS = {
    "wi_0": "wi",
    'state = run.load("latest", like=state)  # +': """\
path, rules = run.root / str(run.latest()), {"of": "lab.decoder@2"}  # +
        state, receipt = s.warm_start(path, state, rules, schema="schemas/decoder")  # +
        assert not receipt.kept, receipt  # +""",
}


def change():
    s.infer("run/3", schema="lab.decoder").write("schemas/decoder")
    renamed("schemas/decoder", "wi_0", "wi")
