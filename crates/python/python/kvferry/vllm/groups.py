"""KV cache groups of vLLM: what their layers see and where the tokens of a list of blocks are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from kvferry import KvferryError

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig

NULL_BLOCK = 0
"""vLLM's block that never holds anything."""

_RECURRENCES = {
    "MAMBA1": "mamba1",
    "MAMBA2": "mamba2",
    "GDN_ATTN": "gated_delta_net",
    "SHORT_CONV": "short_conv",
}


def kind_of(name: str, spec: KVCacheSpec) -> dict[str, Any]:
    """What a query sees of a layer, as a layout of kvferry names it."""
    if isinstance(spec, MambaSpec):
        recurrence = _RECURRENCES.get(spec.mamba_type.name)
        if recurrence is None:
            raise ValueError(f"{name}: kvferry does not know the state of {spec.mamba_type.name}")
        return {"kind": "recurrent", "recurrence": recurrence}
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return {"kind": "chunked_local", "chunk": spec.attention_chunk_size}
    if isinstance(spec, SlidingWindowSpec):
        return {"kind": "sliding_window", "window": spec.sliding_window}
    if isinstance(spec, MLAAttentionSpec):
        return {"kind": "mla"}
    if isinstance(spec, FullAttentionSpec):
        return {"kind": "full"}
    raise ValueError(f"{name}: kvferry does not know a cache of {type(spec).__name__}")


def spec_of(spec: KVCacheSpec, layer: str) -> KVCacheSpec:
    """A layer's own spec: layers of unlike pages share a wrapper."""
    return spec.kv_cache_specs[layer] if isinstance(spec, UniformTypeKVCacheSpecs) else spec


@dataclass(frozen=True)
class Group:
    """One group whose blocks are handed off."""

    index: int
    """Its place in vLLM's lists of block ids."""
    kind: dict[str, Any]
    block_size: int
    layers: tuple[str, ...]

    @property
    def is_recurrent(self) -> bool:
        return self.kind["kind"] == "recurrent"

    def table(self, ids: Sequence[int], tokens: int, hit: int = 0) -> tuple[int, list[int]]:
        """The blocks that hold tokens `hit` to `tokens` of a request whose blocks are `ids`.

        vLLM lists them by position, the null block where it keeps none. Of a recurrent group,
        the one state after `tokens` tokens.
        """
        if self.is_recurrent:
            at = min((tokens - 1) // self.block_size, len(ids) - 1)
            if at < 0 or ids[at] == NULL_BLOCK:
                raise KvferryError(f"no state of group {self.index} after {tokens} tokens is kept")
            return tokens, [ids[at]]
        end = min(-(-tokens // self.block_size), len(ids))
        start = min(hit // self.block_size, end)
        while start < end and ids[start] == NULL_BLOCK:
            start += 1
        return start * self.block_size, list(ids[start:end])


def groups_of(config: "KVCacheConfig") -> list[Group]:
    """The groups that are handed off, in vLLM's order."""
    groups = []
    for index in config.transfer_group_ids:
        group = config.kv_cache_groups[index]
        layers = tuple(group.layer_names)
        spec = group.kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs):
            spec = next(iter(spec.kv_cache_specs.values()))
        name = layers[0] if layers else f"group {index}"
        groups.append(Group(index, kind_of(name, spec), spec.block_size, layers))
    return groups
