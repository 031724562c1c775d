"""The same with torch tensors: the engines' views share one storage, as those of an engine do.

Run it with the package and torch installed: `python torch_handoff.py`. It ends with an error if a
number is wrong.
"""

import torch

import kvferry

LAYERS, HEADS, SIZE, BLOCK, BLOCKS = 3, 2, 8, 16, 16
MODEL = "toy"


class Cache:
    """One allocation, and for each layer a view `[block, head, token, key and value]` of it."""

    def __init__(self) -> None:
        page = HEADS * BLOCK * 2 * SIZE
        self.whole = torch.zeros(BLOCKS * LAYERS * page, dtype=torch.float32)
        # The pages of all layers lie side by side in a block.
        rows = self.whole.view(BLOCKS, LAYERS, HEADS, BLOCK, 2 * SIZE)
        self.layers = [rows[:, layer] for layer in range(LAYERS)]

    def layout(self) -> kvferry.CacheLayout:
        item = self.whole.element_size()
        layers = []
        for number, view in enumerate(self.layers):
            block, head, token, _ = (stride * item for stride in view.stride())
            place = {
                "units": {"start": 0, "end": HEADS},
                "bytes": SIZE * item,
                "region": 0,
                "unit_stride": head,
                "token_stride": token,
            }
            start = view.storage_offset() * item
            parts = [
                place | {"role": "key", "offset": start},
                place | {"role": "value", "offset": start + SIZE * item},
            ]
            name = f"layer {number}"
            layers.append({"name": name, "kind": {"kind": "full"}, "group": 0, "parts": parts})
        regions = [{"block_stride": block, "block_count": BLOCKS}]
        groups = [{"block_size": BLOCK}]
        return kvferry.CacheLayout({"regions": regions, "groups": groups, "layers": layers})

    def engine(self, name: str) -> kvferry.Engine:
        return kvferry.Engine(
            name,
            model=MODEL,
            dtype="f32",
            layouts=[self.layout()],
            memory=kvferry.memory_of(self.whole),
            offsets=[0],
        )

    def of(self, layer: int, ids: list[int], tokens: int) -> torch.Tensor:
        """Keys and values of the first tokens of a request, `[head, token, number]`."""
        return self.layers[layer][ids].transpose(0, 1).reshape(HEADS, -1, 2 * SIZE)[:, :tokens]


def attend(query: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Attention of one query to all keys."""
    keys, values = seen.split(SIZE, dim=-1)
    weights = torch.softmax(query @ keys.transpose(1, 2) / SIZE**0.5, dim=-1)
    return weights @ values


def main() -> None:
    torch.manual_seed(0)
    source, target = Cache(), Cache()
    prefill = kvferry.Prefill(kvferry.Config(), source.engine("p"))
    decode = kvferry.Decode(kvferry.Config(), target.engine("d"))

    # P computes all tokens but the last one.
    prompt = list(range(70))
    valid, ids = len(prompt) - 1, [9, 4, 12, 1, 7]
    for view in source.layers:
        view[ids] = torch.randn_like(view[ids])
    digest = kvferry.prompt_digest(prompt[:valid], model=MODEL)
    params = prefill.offer("request of p", digest, [(0, ids)])

    # D reads into blocks of its own.
    own = [3, 2, 5, 8, 6]
    offered = decode.claim("request of d", params, digest)
    print(offered.receive([(0, own)], resume_at=valid), "bytes are there")

    # The next token attends to the same on both sides.
    query = torch.randn(HEADS, 1, SIZE)
    for layer in range(LAYERS):
        there = attend(query, target.of(layer, own, valid))
        assert torch.equal(there, attend(query, source.of(layer, ids, valid))), layer
    assert prefill.freed(timeout=5) == ("request of p", "satisfied")
    print("attention computes the same")


if __name__ == "__main__":
    main()
