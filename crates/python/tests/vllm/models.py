"""Tiny models with random weights, and a tokenizer, that vLLM serves without a network.

    python models.py KIND DIRECTORY

Runs under the interpreter of the environment that has vLLM. The weights are drawn so that the whole context decides the next
token: a usual initialisation gives a model that repeats its last token, and then a cache full of rubbish goes unnoticed.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from shapes import HEAD_SIZE, KV_HEADS, LAYERS, VOCABULARY, WINDOW, layer_types

LONGEST = 8192
GAIN = 1.6
COMMON: dict[str, Any] = dict(
    vocab_size=VOCABULARY,
    hidden_size=256,
    intermediate_size=512,
    num_attention_heads=4,
    num_key_value_heads=KV_HEADS,
    max_position_embeddings=LONGEST,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)


def write(kind: str, directory: Path) -> None:
    """Writes the model of this kind, the same one every time."""
    torch.manual_seed(0)
    model, embedding = BUILDERS[kind](kind)
    draw_weights(model, embedding)
    model.to(torch.bfloat16).save_pretrained(directory, safe_serialization=True)
    write_tokenizer(directory)


def gemma(kind: str) -> tuple[Any, float]:
    """Windowed and full layers."""
    config = transformers.Gemma3TextConfig(
        **COMMON,
        num_hidden_layers=LAYERS[kind],
        head_dim=HEAD_SIZE,
        sliding_window=WINDOW,
        layer_types=layer_types(kind),
        query_pre_attn_scalar=HEAD_SIZE,
        tie_word_embeddings=True,
    )
    model = transformers.Gemma3ForCausalLM(config)
    for name, weight in model.named_parameters():
        # The norms multiply by one plus this: it sharpens the attention.
        if "q_norm" in name or "k_norm" in name:
            weight.data.fill_(0.5)
    return model, 0.012


def llama(kind: str) -> tuple[Any, float]:
    """Full layers only."""
    config = transformers.LlamaConfig(**COMMON, num_hidden_layers=LAYERS[kind], head_dim=HEAD_SIZE, tie_word_embeddings=False)
    return transformers.LlamaForCausalLM(config), 1.0


def lfm2(kind: str) -> tuple[Any, float]:
    """Short convolutions, which keep a state, and full layers."""
    config = transformers.Lfm2Config(
        **{**COMMON, "tie_word_embeddings": True},
        num_hidden_layers=LAYERS[kind],
        layer_types=layer_types(kind),
        conv_L_cache=3,
        block_auto_adjust_ff_dim=False,
        conv_dim=256,
        block_dim=256,
        block_ff_dim=512,
    )
    return transformers.Lfm2ForCausalLM(config), 0.05


def qwen3next(kind: str) -> tuple[Any, float]:
    """Gated delta nets, which keep a state, and full layers."""
    config = transformers.Qwen3NextConfig(
        **COMMON,
        num_hidden_layers=LAYERS[kind],
        layer_types=layer_types(kind),
        head_dim=HEAD_SIZE,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        shared_expert_intermediate_size=128,
        mlp_only_layers=list(range(LAYERS[kind] - 1)),
        tie_word_embeddings=False,
    )
    return transformers.Qwen3NextForCausalLM(config), 1.0


BUILDERS: dict[str, Callable[[str], tuple[Any, float]]] = {
    "hybrid": gemma,
    "padded": gemma,
    "uniform": llama,
    "lfm2": lfm2,
    "qwen3next": qwen3next,
}


def draw_weights(model: Any, embedding: float) -> None:
    """Small embeddings beside unit-sized updates of the residual; vectors stay as they were."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if weight.dim() < 2:
            continue
        spread = GAIN / weight.shape[1] ** 0.5 if weight.dim() == 2 else 0.6
        spread = embedding if "embed" in name else spread
        weight.data.copy_(torch.randn(weight.shape, generator=generator) * spread)


def write_tokenizer(directory: Path) -> None:
    """A word for each token, so that prompts can also be sent as text."""
    words = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3}
    words.update({f"w{n}": n for n in range(len(words), VOCABULARY)})
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        model_max_length=LONGEST,
    ).save_pretrained(directory)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in BUILDERS:
        sys.exit(f"usage: models.py {'|'.join(BUILDERS)} DIRECTORY")
    write(sys.argv[1], Path(sys.argv[2]))
