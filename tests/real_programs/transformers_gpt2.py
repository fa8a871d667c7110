"""A GPT-2 of transformers: its weights go to JAX, are trained there, and go back to torch."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import transformers

import neuralqx_struct as s  # +
from tests.real_programs.changes import next_version, renamed

TRAIN = """
language: "1"
schema: lab.train
version: 1
uses: [lab.gpt2@1]
root: Train
structs:
  Train: {fields: {model: lab.gpt2.Model, opt_state: pytree}}
"""
CONFIG = transformers.GPT2Config(
    vocab_size=11, n_positions=12, n_embd=8, n_layer=2, n_head=2, tie_word_embeddings=True
)
OPTIMIZER = optax.adam(1e-2)


def torch_model():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(CONFIG).eval()


def norm(x, weights):
    x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * weights.weight + weights.bias


def dense(x, weights):
    return x @ weights.weight + weights.bias


def forward(model, tokens):
    x = model.wte[tokens] + model.wpe[: len(tokens)]
    mask = jnp.tril(jnp.ones((len(tokens), len(tokens)), bool))
    for block in model.h:
        q, k, v = jnp.split(dense(norm(x, block.ln_1), block.attn.c_attn), 3, axis=-1)
        q, k, v = (each.reshape(len(tokens), 2, 4).swapaxes(0, 1) for each in (q, k, v))
        scores = jnp.where(mask, q @ k.swapaxes(1, 2) / 2.0, -jnp.inf)
        mixed = (jax.nn.softmax(scores) @ v).swapaxes(0, 1).reshape(len(tokens), 8)
        x = x + dense(mixed, block.attn.c_proj)
        hidden = jax.nn.gelu(dense(norm(x, block.ln_2), block.mlp.c_fc), approximate=True)
        x = x + dense(hidden, block.mlp.c_proj)
    return norm(x, model.ln_f) @ model.wte.T


@jax.jit
def update(model, opt_state, step):
    tokens = jax.random.randint(jax.random.fold_in(jax.random.key(1), step), (8,), 0, 11)

    def loss(model):
        logits = forward(model, tokens[:-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[1:]).mean()

    updates, opt_state = OPTIMIZER.update(jax.grad(loss)(model), opt_state, model)
    return optax.apply_updates(model, updates), opt_state


def start():
    """The model of torch under a schema that is drafted from its file, and the state of its training."""
    torch_model().save_pretrained("hf")
    s.infer("hf/model.safetensors", schema="lab.gpt2").write("schemas/gpt2")  # +
    Path("schemas/train").mkdir()  # +
    Path("schemas/train/v1.yaml").write_text(TRAIN)  # +
    model = s.load_schema("schemas/gpt2").from_layout("hf/model.safetensors", "safetensors")  # +
    return s.load_schema("schemas/train").Train(model=model, opt_state=OPTIMIZER.init(model))  # +


def main(until):
    run = s.Series("run", keep_last=2)  # +
    if run.latest() is None:  # +
        state = start()
    else:
        state = run.load(load_cls=s.load_schema("schemas/train").Train)  # +
    for step in range((run.latest() or 0) + 1, until + 1):
        model, opt_state = update(state.model, state.opt_state, step)
        state = state.replace(model=model, opt_state=opt_state)
        run.save(step, state)  # +

    model, tokens = state.model, jnp.arange(8)
    model.export("trained", overwrite=True)  # +
    s.convert(  # +
        "trained",
        "hf/model.safetensors",
        schema="schemas/gpt2",
        layout="safetensors",
        overwrite=True,  # +
    )  # +
    again = transformers.GPT2LMHeadModel.from_pretrained("hf").eval()
    with torch.no_grad():
        logits = again(torch.arange(8)[None]).logits[0].numpy()
    np.testing.assert_allclose(logits, forward(model, tokens), atol=1e-4)
    return state, (forward(model, tokens), logits)


CHANGED = "a field gets another name"
EDITS = {"model.wte": "model.tokens"}


def change():
    renamed("schemas/gpt2", "wte", "tokens")
    next_version("schemas/train", {"lab.gpt2@1": "lab.gpt2@2"})
