"""A cache of one layer for the plain package: `cache[block, head, token, number]`."""

from typing import Any

import numpy as np

import kvferry

HEADS, BLOCK, NUMBERS = 4, 16, 8
MODEL = "toy"


def layout(blocks: int, rank: int = 0, ways: int = 1, **more: Any) -> kvferry.CacheLayout:
    own = HEADS // ways
    token = NUMBERS * 4
    part = {
        "role": "key",
        "units": {"start": rank * own, "end": (rank + 1) * own},
        "bytes": token,
        "region": 0,
        "offset": 0,
        "unit_stride": BLOCK * token,
        "token_stride": token,
    }
    layer = {"name": "0", "kind": {"kind": "full"}, "group": 0, "parts": [part]} | more
    region = {"block_stride": own * BLOCK * token, "block_count": blocks}
    return kvferry.CacheLayout(
        {"regions": [region], "groups": [{"block_size": BLOCK}], "layers": [layer]}
    )


def cache(blocks: int = 16, ways: int = 1) -> np.ndarray:
    return np.zeros((blocks, HEADS // ways, BLOCK, NUMBERS), np.float32)


def engine(name: str, memory: np.ndarray, rank: int = 0, ways: int = 1, **more: Any) -> Any:
    layouts = [layout(len(memory), one, ways, **more.pop("layer", {})) for one in range(ways)]
    known = {"model": MODEL, "dtype": "f32", "rank": rank, "layouts": layouts, "offsets": [0]}
    return kvferry.Engine(name, memory=kvferry.memory_of(memory), **(known | more))


def digest(tokens: int, seed: int = 0) -> kvferry.PromptDigest:
    return kvferry.prompt_digest([seed] * tokens, model=MODEL)


class Pair:
    """A prefill and a decode engine whose memory is known."""

    def __init__(self, **more: Any) -> None:
        self.source, self.target = cache(), cache()
        self.source[:] = np.random.default_rng(0).random(self.source.shape)
        self.p = kvferry.Prefill(kvferry.Config(**more), engine("p", self.source))
        self.d = kvferry.Decode(kvferry.Config(), engine("d", self.target))

    def offer(self, name: str = "a", tokens: int = 20) -> dict[str, Any]:
        return self.p.offer(name, digest(tokens), [(0, [7, 3])])
