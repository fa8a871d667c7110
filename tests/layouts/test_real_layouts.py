"""Layouts of real models, with their names and shapes: BERT, GPT-2, Llama, a ViT, MaxText and GPT-NeoX."""

import numpy as np
import pytest

import neuralqx_struct as s

rng = np.random.default_rng(0)


def draw(*shape):
    return rng.standard_normal(shape).astype("float32")


def bert():
    """Two layers, under the prefix `bert.`, with arrays that the layout ignores."""
    d, ff = 8, 16
    found = {"embeddings.position_ids": np.arange(5), "embeddings.word.weight": draw(20, d)}

    def dense(name, i, o):
        found.update({f"{name}.weight": draw(o, i), f"{name}.bias": draw(o)})

    def norm(name):
        found.update({f"{name}.weight": draw(d), f"{name}.bias": draw(d)})

    norm("embeddings.LayerNorm")
    for i in range(2):
        layer = f"encoder.layer.{i}"
        dense(f"{layer}.attention.self.query", d, d)
        norm(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", d, ff)
        dense(f"{layer}.output.dense", ff, d)
    dense("pooler.dense", d, d)
    return {f"bert.{name}": array for name, array in found.items()}


BERT = """
language: "1"
schema: lab.minilm
version: 1
root: MiniLM
dims: {d: {}}
structs:
  Dense: {params: [i, o], fields: {kernel: "float32[i, o]", bias: "float32[o]"}}
  Norm: {fields: {scale: "float32[d]", bias: "float32[d]"}}
  Attention: {fields: {query: "Dense[d, d]", norm: Norm}}
  Layer: {fields: {attention: Attention, up: "Dense[d, ff]", down: "Dense[ff, d]"}}
  MiniLM:
    fields:
      n_heads: {type: int, kind: static}
      words: "float32[v, d]"
      norm: Norm
      layers: "list[Layer, n_layers]"
"""

BERT_HF = """
language: "1"
layout: hf
of: lab.minilm@1
prefix: ["", "bert."]
ignore: [embeddings.position_ids, "pooler.*"]
values: {n_heads: 2}
structs:
  Dense: {kernel: {name: weight, transpose: true}}
  Norm: {scale: weight}
  Attention: {query: self.query, norm: output.LayerNorm}
  Layer: {up: intermediate.dense, down: output.dense}
  MiniLM:
    words: embeddings.word.weight
    norm: embeddings.LayerNorm
    layers: "encoder.layer.{i}"
"""


def gpt2():
    """Fused query, key and value; the layers apart."""
    d, found = 12, {"wte.weight": draw(20, 12), "wpe.weight": draw(6, 12)}
    for i in range(3):
        found |= {
            f"h.{i}.ln_1.weight": draw(d),
            f"h.{i}.attn.bias": np.ones((1, 1), "bool"),
            f"h.{i}.attn.c_attn.weight": draw(d, 3 * d),
            f"h.{i}.attn.c_attn.bias": draw(3 * d),
            f"h.{i}.attn.c_proj.weight": draw(d, d),
        }
    return found


GPT2 = """
language: "1"
schema: lab.gpt2
version: 1
root: GPT2
dims: {d: {}, heads: {}, hd: {}}
structs:
  Block:
    fields:
      scale: "float32[d]"
      query: "float32[d, heads, hd]"
      key: "float32[d, heads, hd]"
      value: "float32[d, heads, hd]"
      q_bias: "float32[heads, hd]"
      k_bias: "float32[heads, hd]"
      v_bias: "float32[heads, hd]"
      out: "float32[heads, hd, d]"
  GPT2: {fields: {tokens: "float32[v, d]", positions: "float32[p, d]", blocks: "Block[][n]"}}
"""

GPT2_HF = """
language: "1"
layout: hf
of: lab.gpt2@1
prefix: ["", "transformer."]
ignore: ["*.attn.bias"]
values: {heads: 4}
structs:
  Block:
    scale: ln_1.weight
    query: {name: attn.c_attn.weight, part: [0, 3], axis: 1, reshape: [d, heads * hd]}
    key: {name: attn.c_attn.weight, part: [1, 3], axis: 1, reshape: [d, heads * hd]}
    value: {name: attn.c_attn.weight, part: [2, 3], axis: 1, reshape: [d, heads * hd]}
    q_bias: {name: attn.c_attn.bias, part: [0, 3], reshape: [heads * hd]}
    k_bias: {name: attn.c_attn.bias, part: [1, 3], reshape: [heads * hd]}
    v_bias: {name: attn.c_attn.bias, part: [2, 3], reshape: [heads * hd]}
    out: {name: attn.c_proj.weight, reshape: [heads * hd, d]}
  GPT2: {tokens: wte.weight, positions: wpe.weight, blocks: "h.{i}"}
"""


def llama():
    """Grouped queries: 4 heads of 3 for the query, 2 for key and value."""
    d, ff, found = 8, 10, {"model.embed_tokens.weight": draw(20, 8)}
    for i in range(2):
        layer = f"model.layers.{i}"
        found |= {
            f"{layer}.self_attn.q_proj.weight": draw(12, d),
            f"{layer}.self_attn.k_proj.weight": draw(6, d),
            f"{layer}.self_attn.v_proj.weight": draw(6, d),
            f"{layer}.self_attn.o_proj.weight": draw(d, 12),
            f"{layer}.mlp.gate_proj.weight": draw(ff, d),
            f"{layer}.mlp.up_proj.weight": draw(ff, d),
            f"{layer}.mlp.down_proj.weight": draw(d, ff),
            f"{layer}.input_layernorm.weight": draw(d),
        }
    return {**found, "model.norm.weight": draw(d), "lm_head.weight": draw(20, d)}


LLAMA = """
language: "1"
schema: lab.llama
version: 1
root: Llama
dims: {d: {}, n_q: {}, n_kv: {}}
structs:
  Layer:
    fields:
      pre: "float32[d]"
      qkv: "float32[d, n_q + 2 * n_kv]"
      out: "float32[n_q, d]"
      gate_up: "float32[2, d, ff]"
      down: "float32[ff, d]"
  Llama: {fields: {tokens: "float32[v, d]", layers: "list[Layer]", norm: "float32[d]", head: "float32[d, v]"}}
"""

LLAMA_HF = """
language: "1"
layout: hf
of: lab.llama@1
prefix: ["model.", ""]
structs:
  Layer:
    pre: input_layernorm.weight
    qkv:
      name: [self_attn.q_proj.weight, self_attn.k_proj.weight, self_attn.v_proj.weight]
      sizes: [n_q, n_kv, n_kv]
      transpose: true
    out: {name: self_attn.o_proj.weight, transpose: true}
    gate_up: {name: [mlp.gate_proj.weight, mlp.up_proj.weight], merge: stack, transpose: [0, 2, 1]}
    down: {name: mlp.down_proj.weight, transpose: true}
  Llama:
    tokens: embed_tokens.weight
    layers: "layers.{i}"
    norm: norm.weight
    head: {name: /lm_head.weight, transpose: true}
"""


def maxtext():
    """One array for all layers, whose axis is the second one."""
    return {
        "params-token_embedder-embedding": draw(20, 8),
        "params-decoder-layers-norm-scale": draw(8, 3),
        "params-decoder-layers-attention-query-kernel": draw(8, 3, 4, 2),
        "params-decoder-decoder_norm-scale": draw(8),
    }


MAXTEXT = """
language: "1"
schema: lab.lm
version: 1
root: LM
dims: {d: {}}
structs:
  Layer: {fields: {pre: "float32[d]", query: "float32[d, heads, hd]"}}
  LM: {fields: {tokens: "float32[v, d]", layers: "list[Layer]", norm: "float32[d]"}}
"""

MAXTEXT_SCANNED = """
language: "1"
layout: maxtext
of: lab.lm@1
prefix: ["params-"]
separator: "-"
structs:
  Layer: {pre: norm-scale, query: attention-query-kernel}
  LM:
    tokens: token_embedder-embedding
    layers: {name: decoder-layers, unstack: 1}
    norm: decoder-decoder_norm-scale
"""

MAXTEXT_STACKED = MAXTEXT.replace("list[Layer]", "Layer[][n]")
MAXTEXT_STACKED_SCANNED = MAXTEXT_SCANNED.replace("unstack: 1", "stack: 1")


def neox():
    """Query, key and value of each head together, and the experts of a dict."""
    return {
        "attention.query_key_value.weight": draw(4 * 3 * 2, 8),
        "groups.weight": draw(2 * (3 + 1 + 1), 8),
        "experts.a.w": draw(2),
        "experts.b.w": draw(3),
        "bias.x": draw(1),
        "bias.y.z": draw(4),
        "key": np.array([1, 2], "uint32"),
        "half": draw(3).astype("float16"),
        "emb.0.w": draw(5, 2),
        "emb.1.w": draw(5, 2),
        "pair.0": draw(2),
        "pair.1": draw(3, 2),
    }


NEOX = """
language: "1"
schema: lab.neox
version: 1
root: Neox
dims: {heads: {}, hd: {}, d: {}}
structs:
  Expert: {fields: {w: "float32[n]"}}
  Neox:
    fields:
      query: "float32[d, heads, hd]"
      key_: "float32[heads * hd, d]"
      value: "float32[heads * hd, d]"
      q: "float32[2 * 3, d]"
      k: "float32[2, d]"
      v: "float32[2, d]"
      experts: "dict[str, Expert]"
      bias: "dict[str, float32[_]]"
      key: "prng_key[threefry2x32]"
      half: "float32[_]"
      emb: "float32[5, n_emb, 2]"
      pair: "tuple[float32[_], float32[_, _]]"
      absent: "Expert | null"
      scale: {type: "float | null", default: null}
"""

NEOX_HF = """
language: "1"
layout: hf
of: lab.neox@1
values: {heads: 4, hd: 2}
structs:
  Neox:
    query:
      {name: attention.query_key_value.weight, part: 0, sizes: [hd, hd, hd], blocks: heads, reshape: [heads * hd, d], transpose: [2, 0, 1]}
    key_: {name: attention.query_key_value.weight, part: 1, sizes: [hd, hd, hd], blocks: heads}
    value: {name: attention.query_key_value.weight, part: 2, sizes: [hd, hd, hd], blocks: heads}
    q: {name: groups.weight, part: 0, sizes: [3, 1, 1], blocks: 2}
    k: {name: groups.weight, part: 1, sizes: [3, 1, 1], blocks: 2}
    v: {name: groups.weight, part: 2, sizes: [3, 1, 1], blocks: 2}
    half: {cast: float16}
    emb: {name: "emb.{i}.w", merge: stack, axis: 1}
"""

CASES = {
    "bert": (BERT, BERT_HF, bert),
    "gpt2": (GPT2, GPT2_HF, gpt2),
    "llama": (LLAMA, LLAMA_HF, llama),
    "maxtext to a list": (MAXTEXT, MAXTEXT_SCANNED, maxtext),
    "maxtext stacked": (MAXTEXT_STACKED, MAXTEXT_STACKED_SCANNED, maxtext),
    "neox": (NEOX, NEOX_HF, neox),
}
IGNORED = {"bert": ("bert.embeddings.position_ids", "bert.pooler"), "gpt2": (".attn.bias",)}


@pytest.mark.parametrize("name", CASES)
def test_the_round_trip_is_bit_identical(name):
    schema, layout, make = CASES[name]
    schema, source = s.load_schema(schema), make()
    model = schema.from_layout(source, layout)
    found = schema.to_layout(model, layout, like=source)
    kept = {k: v for k, v in source.items() if not any(part in k for part in IGNORED.get(name, ()))}
    assert [*found] == [*kept]
    for key, array in kept.items():
        assert found[key].dtype == array.dtype, key
        assert found[key].tobytes() == array.tobytes(), key
    again = schema.from_layout(found, layout)
    assert again == model


def test_gpt2_splits_the_fused_array_by_head():
    source = gpt2()
    model = s.load_schema(GPT2).from_layout(source, GPT2_HF)
    assert model.blocks.query.shape == (3, 12, 4, 3)
    fused = source["h.2.attn.c_attn.weight"]
    np.testing.assert_array_equal(model.blocks.key[2].reshape(12, 12), fused[:, 12:24])
    np.testing.assert_array_equal(
        model.blocks.out[1].reshape(12, 12), source["h.1.attn.c_proj.weight"]
    )


def test_llama_merges_grouped_queries():
    source = llama()
    model = s.load_schema(LLAMA).from_layout(source, LLAMA_HF)
    layer = "model.layers.1"
    np.testing.assert_array_equal(
        model.layers[1].qkv[:, 12:18], source[f"{layer}.self_attn.k_proj.weight"].T
    )
    np.testing.assert_array_equal(
        model.layers[1].gate_up[1], source[f"{layer}.mlp.up_proj.weight"].T
    )
    np.testing.assert_array_equal(model.head, source["lm_head.weight"].T)


def test_maxtext_scans_over_its_second_axis():
    source = maxtext()
    kernel = source["params-decoder-layers-attention-query-kernel"]
    listed = s.load_schema(MAXTEXT).from_layout(source, MAXTEXT_SCANNED)
    np.testing.assert_array_equal(listed.layers[2].query, kernel[:, 2])
    one = s.load_schema(MAXTEXT_STACKED).from_layout(source, MAXTEXT_STACKED_SCANNED)
    np.testing.assert_array_equal(one.layers.query, np.moveaxis(kernel, 1, 0))


def test_interleaved_heads_come_apart():
    source = neox()
    model = s.load_schema(NEOX).from_layout(source, NEOX_HF)
    fused = source["attention.query_key_value.weight"].reshape(4, 3, 2, 8)
    np.testing.assert_array_equal(model.query, fused[:, 0].transpose(2, 0, 1))
    np.testing.assert_array_equal(model.value, fused[:, 2].reshape(8, 8))
    np.testing.assert_array_equal(model.k, source["groups.weight"].reshape(2, 5, 8)[:, 3])
    assert [*model.bias] == ["x", "y.z"]
    assert [*model.experts] == ["a", "b"]
    assert model.absent is None
    assert model.scale is None
    assert model.half.dtype == np.float32
    np.testing.assert_array_equal(model.emb[:, 1], source["emb.1.w"])
