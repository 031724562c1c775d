"""Two engines in one process hand a prompt from one to the other, with numpy arrays as memory.

Run it with the package installed: `python numpy_handoff.py`. It looks at what has arrived, and
ends with an error if a number is wrong.
"""

import numpy as np

import kvferry

HEADS, SIZE, BLOCK, BLOCKS, WINDOW = 2, 8, 16, 32, 40
MODEL = "toy"
# A layer that sees 40 tokens, and one that sees all. Each has a KV cache group of its own.
LAYERS = [("window", {"kind": "sliding_window", "window": WINDOW}), ("full", {"kind": "full"})]


def layout() -> kvferry.CacheLayout:
    """An array `cache[layer, block, head, token, number]`, keys before values in the last axis."""
    number = 4
    token = 2 * SIZE * number
    head = BLOCK * token
    parts = [
        {
            "role": role,
            "units": {"start": 0, "end": HEADS},
            "bytes": SIZE * number,
            "offset": offset,
            "unit_stride": head,
            "token_stride": token,
        }
        for role, offset in [("key", 0), ("value", SIZE * number)]
    ]
    layers = [
        {
            "name": name,
            "kind": kind,
            "group": group,
            "parts": [part | {"region": group} for part in parts],
        }
        for group, (name, kind) in enumerate(LAYERS)
    ]
    region = {"block_stride": HEADS * head, "block_count": BLOCKS}
    group = {"block_size": BLOCK}
    return kvferry.CacheLayout(
        {"regions": [region] * len(LAYERS), "groups": [group] * len(LAYERS), "layers": layers}
    )


def engine(name: str, cache: np.ndarray) -> kvferry.Engine:
    """Its regions are the layers of `cache`, which lie one after the other."""
    return kvferry.Engine(
        name,
        model=MODEL,
        dtype="f32",
        layouts=[layout()],
        memory=kvferry.memory_of(cache),
        offsets=[cache[layer].nbytes * layer for layer in range(len(LAYERS))],
    )


def kv(token: int, position: int, layer: int) -> np.ndarray:
    """Stands for what a model computes."""
    return np.random.default_rng([token, position, layer]).random((HEADS, 2 * SIZE), np.float32)


def main() -> None:
    shape = (len(LAYERS), BLOCKS, HEADS, BLOCK, 2 * SIZE)
    source, target = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    prefill = kvferry.Prefill(kvferry.Config(), engine("p", source))
    decode = kvferry.Decode(kvferry.Config(), engine("d", target))

    # P computes a prompt but for its last token, which D will compute. Its window has let go of
    # the blocks that the next query does not see.
    prompt = list(range(1000, 1100))
    valid = len(prompt) - 1
    first = (valid - WINDOW + 1) // BLOCK
    tables = [(first * BLOCK, [5, 3, 9, 1]), (0, [20, 2, 8, 31, 4, 6, 11])]
    for layer, (start, ids) in enumerate(tables):
        for position in range(start, valid):
            block = ids[(position - start) // BLOCK]
            source[layer, block, :, position % BLOCK] = kv(prompt[position], position, layer)
    digest = kvferry.prompt_digest(prompt[:valid], model=MODEL)
    params = prefill.offer("request of p", digest, tables)
    print("any router can carry", params)

    # D claims it, allocates blocks of its own and reads. Both know what the prompt is.
    offered = decode.claim("request of d", params, kvferry.prompt_digest(prompt[:valid], model=MODEL))
    own = [(first * BLOCK, [1, 2, 3, 4]), (0, [11, 12, 13, 14, 15, 16, 17])]
    moved = offered.receive(own, resume_at=valid)
    print(moved, "bytes are there")

    # The query at `valid` sees this much of each layer.
    for layer, seen in enumerate([range(valid - WINDOW + 1, valid), range(valid)]):
        start, ids = own[layer]
        for position in seen:
            there = target[layer, ids[(position - start) // BLOCK], :, position % BLOCK]
            assert (there == kv(prompt[position], position, layer)).all(), (layer, position)

    # Only now may P use its blocks for something else.
    assert prefill.freed(timeout=5) == ("request of p", "satisfied")
    print("every number that the next token sees is right")


if __name__ == "__main__":
    main()
