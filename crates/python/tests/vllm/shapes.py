"""The shapes of the tiny models, and what a hand-off of each has to move by the attention mask.

Needs nothing but Python. What is worked out here shares no code with kvferry: it asks the mask about one token at a time.
"""

VOCABULARY = 512
FIRST_WORD = 4
WINDOW = 64
HEAD_SIZE = 64
KV_HEADS = 2
BYTES_OF = {"float32": 4, "bfloat16": 2}

LAYERS = {"hybrid": 6, "padded": 7, "uniform": 6, "lfm2": 6, "qwen3next": 6}
# Every so many layers one is full attention.
PERIOD = 3
STATE_LAYER = {"lfm2": "conv", "qwen3next": "linear_attention"}


def layer_types(kind: str) -> list[str]:
    """One word a layer, as `config.json` has them.

    `hybrid` has four windowed layers and two full ones, three groups of two. `padded` has five windowed ones: with two layers a
    group, one slot of the third windowed group belongs to no layer.
    """
    if kind == "uniform":
        return ["full_attention"] * LAYERS[kind]
    if kind == "padded":
        full, other = {3, 6}, "sliding_attention"
    else:
        full = {n for n in range(LAYERS[kind]) if (n + 1) % PERIOD == 0}
        other = STATE_LAYER.get(kind, "sliding_attention")
    return ["full_attention" if n in full else other for n in range(LAYERS[kind])]


def needed_bytes(kind: str, tokens: int, block: int, dtype: str) -> int:
    """Bytes of the blocks that the query of the last prompt token sees, that token's own place left out: D computes it."""
    page = block * KV_HEADS * 2 * HEAD_SIZE * BYTES_OF[dtype]
    query = tokens - 1
    pages = 0
    for layer in layer_types(kind):
        seen = {
            "full_attention": range(query),
            "sliding_attention": range(max(0, query - WINDOW + 1), query),
        }[layer]
        pages += len({token // block for token in seen})
    return pages * page


def boundary_lengths(block: int, longest: int) -> list[int]:
    """Prompt lengths at which the first key that the last prompt token sees is the last of its block."""
    return [n for n in range(WINDOW, longest) if (n - WINDOW + 1) % block == 0]
