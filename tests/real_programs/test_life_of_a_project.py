"""The life of one project: its code changes nine times, and each time the same run goes on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

import neuralqx_struct as s
from tests.real_programs.changes import next_version

FOLDER = "schemas/lm"
FIRST = """
language: "1"
schema: lab.lm
version: 1
root: Train
dims: {d: {min: 1}, vocab: {min: 1}}
structs:
  Attention:
    fields:
      qkv: "float32[d, 3 * d]"
      out: "float32[d, d]"
  Block:
    fields:
      attention: Attention
      mlp: {type: "float32[d, d]", axes: [embed, mlp]}
  Params:
    fields:
      embed: {type: "float32[vocab, d]", axes: [vocab, embed]}
      positions: "float32[context, d]"
      blocks: "list[Block, depth]"
      head: "float32[d, classes]"
  Train:
    fields:
      params: Params
      opt_state: pytree
      key: "prng_key[threefry2x32]"
      step: int
"""


def fused(block, x):
    q, k, v = jnp.split(x @ block.attention.qkv, 3, axis=-1)
    x = x + jax.nn.softmax(q @ k.T) @ v @ block.attention.out
    return x + jax.nn.relu(x @ block.mlp)


def parted(block, x):
    held = block.attention
    x = x + jax.nn.softmax((x @ held.query) @ (x @ held.key).T) @ (x @ held.value) @ held.out
    return x + jax.nn.relu(x @ block.mlp)


def forward(params, tokens, *, words="tokens", block=parted, scanned=False):
    x = getattr(params, words)[tokens] + params.positions[: len(tokens)]
    if scanned:
        x, _ = jax.lax.scan(lambda x, each: (block(each, x), None), x, params.blocks)
    else:
        for each in params.blocks:
            x = block(each, x)
    return x @ params.head


def trainer(model, optimizer):
    """The loop of one stage of the project: from the latest step of the run, or from a state."""

    def loss(params, tokens):
        labels = tokens % params.head.shape[1]
        logits = model(params, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def update(params, opt_state, key):
        key, draw = jax.random.split(key)
        tokens = jax.random.randint(draw, (params.positions.shape[0],), 0, 11)
        updates, opt_state = optimizer.update(jax.grad(loss)(params, tokens), opt_state, params)
        return optax.apply_updates(params, updates), opt_state, key

    def train(state, until, run=None):
        while state.step < until:
            params, opt_state, key = update(state.params, state.opt_state, state.key)
            changes = {"params": params, "opt_state": opt_state, "key": key}
            if hasattr(state, "ema"):
                changes["ema"] = optax.incremental_update(params, state.ema, 0.1)
            state = state.replace(step=state.step + 1, **changes)
            if run is not None:
                run.save(state.step, state)
        return state

    return train


def close(one, other):
    """Compares two models by what they compute, with the forward function of each."""
    values = [model(params, jnp.arange(4)) for params, model in (one, other)]
    np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-4)


def test_a_run_goes_on_through_every_change_of_its_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "v1.yaml").write_text(FIRST)
    run = s.Series("run")

    # It begins with AdamW, and resumes bit by bit.
    adamw = optax.adamw(1e-2)

    def first(params, tokens):
        return forward(params, tokens, words="embed", block=fused)

    lab = s.load_schema(FOLDER)
    sizes = {"d": 8, "vocab": 11, "classes": 3, "depth": 2, "context": 4}
    params = jax.tree.map(lambda w: 0.2 * w, s.example(lab.Params, dims=sizes, key=0))
    state = lab.Train(params=params, opt_state=adamw.init(params), key=jax.random.key(0), step=0)
    whole = trainer(first, adamw)(state, 4)
    trainer(first, adamw)(state, 2, run)
    state = trainer(first, adamw)(run.load(load_cls=lab.Train), 4, run)
    assert state == whole

    # A field gets another name, and q, k, v are split.
    next_version(
        FOLDER,
        {
            '      qkv: "float32[d, 3 * d]"': "".join(
                f'      {name}: "float32[d, d]"\n' for name in ("query", "key", "value")
            ).rstrip(),
            "      embed: ": "      tokens: ",
        },
        "rename: {in: Params, field: embed, to: tokens}",
        "split: {in: Attention, field: qkv, axis: 1, into: {query: d, key: d, value: d}}",
    )
    lab = s.load_schema(FOLDER)
    second = run.load(load_cls=lab.Train)
    close((state.params, first), (second.params, forward))
    goes_on = trainer(first, adamw)(state, 6)
    state = trainer(forward, adamw)(second, 6, run)  # the moments followed
    close((goes_on.params, first), (state.params, forward))

    # An average of the weights is added.
    next_version(
        FOLDER,
        {"      params: Params\n": "      params: Params\n      ema: Params\n"},
        "add: {field: ema, copy: params}",
    )
    lab = s.load_schema(FOLDER)
    state = run.load(load_cls=lab.Train)
    assert state.ema == state.params
    state = trainer(forward, adamw)(state, 8, run)
    assert state.ema != state.params

    # Another optimiser, with the first moments of the old one.
    lion = optax.lion(1e-3)
    state = run.load(load_cls=lab.Train)
    fresh = lion.init(state.params)
    moments = fresh[0]._replace(mu=state.opt_state[0].mu, count=state.opt_state[0].count)
    state = state.replace(opt_state=(moments, *fresh[1:]))
    state = trainer(forward, lion)(state, 10, run)

    # The layers are scanned.
    next_version(
        FOLDER, {'"list[Block, depth]"': '"Block[][depth]"'}, "stack: {in: Params, field: blocks}"
    )
    lab = s.load_schema(FOLDER)

    def scanned(params, tokens):
        return forward(params, tokens, scanned=True)

    goes_on = trainer(forward, lion)(state, 12)
    state = trainer(scanned, lion)(run.load(load_cls=lab.Train), 12, run)
    close((goes_on.params, forward), (state.params, scanned))
    close((goes_on.ema, forward), (state.ema, scanned))

    # A new head for another task, and a longer context.
    fresh = s.example(lab.Params, dims={**sizes, "classes": 5, "context": 6}, key=1)
    state.params.export("pretrained")
    rules = {"paths": {"head": None}, "sizes": {"positions": "pad"}}
    params, receipt = s.warm_start("pretrained", fresh, rules)
    assert (receipt.kept, receipt.resized, receipt.dropped) == (
        ("head",),
        ("positions",),
        ("head",),
    )
    assert (params.positions[:4] == state.params.positions).all()
    assert (params.positions[4:] == fresh.positions[4:]).all()
    state = state.replace(params=params, ema=params, opt_state=lion.init(params))
    state = trainer(scanned, lion)(state, 14, run)

    # On another mesh.
    rules = {"vocab": None, "embed": "model", "mlp": "data"}
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))
    divided = run.load(load_cls=lab.Train, mesh=mesh, rules=rules)
    assert tuple(divided.params.tokens.sharding.spec) == (None, "model")
    assert tuple(divided.opt_state[0].mu.blocks.mlp.sharding.spec) == (None, "model", "data")
    goes_on = trainer(scanned, lion)(state, 16)
    state = trainer(scanned, lion)(divided, 16, run)
    close((goes_on.params, scanned), (jax.device_get(state.params), scanned))

    # Every step that was saved on the way is still read.
    assert run.steps() == [*range(1, 17)]
    assert [run.load(step, load_cls=lab.Train).step for step in run.steps()] == run.steps()
