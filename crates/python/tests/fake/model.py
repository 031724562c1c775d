"""Toy models: what layers keep, how a rank lays it out, and the numbers that a real run would keep.

Every number follows from all tokens up to its position, the layer, the head and the place in it,
so a byte of another prompt, layer or position is never taken for right.
"""

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from vllm.v1 import kv_cache_interface as specs

from .rules import Chunk, Full, Latent, Rule, State, Window
from .tensors import FLOAT32, INT8, Storage, Tensor


@dataclass(frozen=True)
class Model:
    groups: tuple[tuple[Rule, int], ...]
    """Of each KV cache group its rule and how many layers it has."""
    block: int = 16
    blocks: int = 64
    heads: int = 2
    head_size: int = 8
    """Of keys and of values each."""
    order: str = "LBHNC"
    """Outer to inner: layers, blocks, heads, tokens, content."""
    kernel: int | None = None
    """Tokens of the blocks that kernels work on, if they cut up those of the pool."""
    state_bytes: int = 384
    """Of all ranks together."""
    packed: bool = False
    """Blocks are taken for the backend's own way of packing: see `on_cpu` in `conftest.py`."""
    on_device: bool = False
    """The host does not see the memory."""
    name: str = "toy"
    max_len: int = 1 << 12

    def layers(self) -> list[tuple[str, int, int]]:
        """Of each layer its name, its group and its slot in that."""
        names = iter(range(1 << 10))
        return [
            (f"model.layers.{next(names)}.attn", group, slot)
            for group, (_, count) in enumerate(self.groups)
            for slot in range(count)
        ]

    def block_of(self, group: int) -> int:
        rule = self.groups[group][0]
        return self.max_len if isinstance(rule, State) and not rule.aligned else self.block


HYBRID = Model(((Window(40), 2), (Window(40), 2), (Full(), 2)))
UNIFORM = Model(((Full(), 3),))
STATES = Model(((State(), 2), (State(), 1), (Full(), 2)))
CHUNKED = Model(((Chunk(32), 2), (Full(), 1)))
LATENT = Model(((Latent(), 2),), heads=1)


def chain(tokens: list[int]) -> np.ndarray:
    """For each position a number made from all tokens up to it."""
    digests, last = [], 1
    for token in tokens:
        last = zlib.crc32(token.to_bytes(4, "little"), last)
        digests.append(last)
    return np.array(digests, np.uint32)


def next_token(tokens: list[int]) -> int:
    return int(chain(tokens)[-1]) % 50_000 + 1


def greedy(prompt: list[int], count: int) -> list[int]:
    """What the model says to a prompt when nobody hands anything off."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


@dataclass
class Rank:
    """The KV cache of one rank."""

    model: Model
    rank: int = 0
    ways: int = 1
    storage: Storage = field(init=False)
    tensors: dict[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        model = self.model
        latent = any(isinstance(rule, Latent) for rule, _ in model.groups)
        self.own = 1 if latent else max(1, model.heads // self.ways)
        self.head = 0 if latent else self.rank * model.heads // self.ways
        self.content = model.head_size * (1 if latent else 2)
        self.page = self.own * model.block * self.content * 4
        self.state_size = model.state_bytes // self.ways
        self.slots = max(count for _, count in model.groups)
        self.storage = Storage(self.slots * model.blocks * self.page)
        self.storage.bytes[:] = 0xC5
        self.tensors = {
            name: self._tensor(model.groups[group][0], slot)
            for name, group, slot in model.layers()
        }

    def _place(self, slot: int) -> tuple[int, int]:
        """Bytes from the start to a slot's first page, and from block to block."""
        if self.model.order.startswith("L"):
            return slot * self.model.blocks * self.page, self.page
        return slot * self.page, self.slots * self.page

    def _tensor(self, rule: Rule, slot: int) -> Tensor:
        model, (offset, stride) = self.model, self._place(slot)
        if isinstance(rule, State):
            size = self.state_size
            return Tensor(
                self.storage,
                INT8,
                (model.blocks, 1, 1, size),
                (stride, size, size, 1),
                offset,
                not model.on_device,
            )
        tokens = model.kernel or model.block
        parts = model.block // tokens
        assert parts == 1 or model.order == "LBHNC", "kernels cut up contiguous pages only"
        inner = (tokens * self.content, self.content)
        if model.order.endswith("NHC"):
            inner = (self.content, self.own * self.content)
        shape = (model.blocks * parts, self.own, tokens, self.content)
        strides = (stride // 4 // parts, *inner, 1)
        return Tensor(self.storage, FLOAT32, shape, strides, offset // 4, not model.on_device)

    def pages(self) -> np.ndarray:
        """All bytes, by block and slot."""
        model = self.model
        if model.order.startswith("L"):
            shape = (self.slots, model.blocks, self.page)
            return self.storage.bytes.reshape(shape).transpose(1, 0, 2)
        return self.storage.bytes.reshape(model.blocks, self.slots, self.page)

    def truth(self, layer: int, digests: np.ndarray) -> np.ndarray:
        """What a run keeps at positions of these digests: by position, head, place."""
        head = np.arange(self.head, self.head + self.own, dtype=np.uint32)[None, :, None]
        place = np.arange(self.content, dtype=np.uint32)[None, None, :]
        salt = np.uint32(layer * 40503 + 1) + head * np.uint32(9973) + place * np.uint32(7)
        return digests[:, None, None] * np.uint32(2654435761) + salt

    def state(self, layer: int, digest: np.uint32) -> np.ndarray:
        place = np.arange(self.state_size, dtype=np.uint32)
        salt = np.uint32((int(digest) * 31 + layer * 131 + self.rank * 17 + 1) % (1 << 32))
        return ((salt + place * np.uint32(7)) >> np.uint32(3)).astype(np.uint8)

    def keys(self, name: str, ids: list[int], positions: np.ndarray) -> Any:
        """Where keys and values lie, as an index of the tensor's words."""
        tokens = self.model.kernel or self.model.block
        parts, at = self.model.block // tokens, positions % self.model.block
        blocks = np.array(ids)[positions // self.model.block] * parts + at // tokens
        return blocks, slice(None), at % tokens


def spec_of(rule: Rule, model: Model, rank: Rank) -> specs.KVCacheSpec:
    if isinstance(rule, State):
        part = rank.state_size // 3
        shapes = ((part,), (rank.state_size - part,))
        block = model.block if rule.aligned else model.max_len
        mode = "align" if rule.aligned else "none"
        return specs.MambaSpec(block, shapes, (INT8, INT8), mamba_cache_mode=mode)
    plain = (model.block, rank.own, model.head_size, FLOAT32)
    match rule:
        case Window(size):
            return specs.SlidingWindowSpec(*plain, sliding_window=size)
        case Chunk(size):
            return specs.ChunkedLocalAttentionSpec(*plain, attention_chunk_size=size)
        case Latent():
            return specs.MLAAttentionSpec(*plain)
    return specs.FullAttentionSpec(*plain)


def config_of(model: Model, rank: Rank) -> specs.KVCacheConfig:
    names: list[list[str]] = [[] for _ in model.groups]
    for name, group, _ in model.layers():
        names[group].append(name)
    groups = [
        specs.KVCacheGroupSpec(layers, spec_of(rule, model, rank))
        for layers, (rule, _) in zip(names, model.groups)
    ]
    return specs.KVCacheConfig(model.blocks, groups)
