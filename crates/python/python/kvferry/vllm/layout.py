"""Where a vLLM worker keeps its KV cache, as kvferry describes it."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheSpec, MambaSpec

from kvferry import CacheLayout

from .groups import Group, kind_of, spec_of

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from kvferry._kvferry import DType

_DTYPES: "dict[str, DType]" = {"torch.bfloat16": "bf16", "torch.float16": "f16", "torch.float32": "f32"}


@dataclass
class Placed:
    """A rank's layout and the memory that it lies in."""

    layout: CacheLayout
    storage: "torch.UntypedStorage"
    offsets: list[int]
    """First byte of each region in the storage."""


@dataclass(frozen=True)
class Shard:
    """One rank's place among those that share the layers' heads."""

    rank: int
    ways: int
    heads: int
    """KV heads of the whole model."""


def shard_of(vllm_config: "VllmConfig") -> Shard:
    """Refuses how kvferry cannot read an engine's blocks, by the name of the setting."""
    parallel = vllm_config.parallel_config
    if parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1:
        raise ValueError("kvferry does not hand off under context parallelism of vLLM yet")
    heads = vllm_config.model_config.get_total_num_kv_heads()
    ways = parallel.tensor_parallel_size
    return Shard(parallel.rank % ways, ways, heads)


def dtype_of(vllm_config: "VllmConfig") -> "DType":
    """Element type of the KV cache."""
    cache = vllm_config.cache_config.cache_dtype
    if cache.startswith("fp8"):
        return "fp8"
    dtype = str(vllm_config.model_config.dtype)
    if dtype not in _DTYPES:
        raise ValueError(f"kvferry does not know a KV cache of {dtype}")
    return _DTYPES[dtype]


class Builder:
    """Puts the layers of a worker into regions."""

    def __init__(self, config: "KVCacheConfig", vllm_config: "VllmConfig") -> None:
        self.blocks = config.num_blocks
        self.config = config
        self.shard = shard_of(vllm_config)
        self.cache_dtype = vllm_config.cache_config.cache_dtype
        self.storage: "torch.UntypedStorage | None" = None
        self.regions: dict[tuple[int, int], int] = {}
        self.layers: list[dict[str, Any]] = []

    def build(self, groups: list[Group], caches: "dict[str, torch.Tensor]") -> Placed:
        for number, group in enumerate(groups):
            whole = self.config.kv_cache_groups[group.index].kv_cache_spec
            for name in group.layers:
                spec = spec_of(whole, name)
                self.layers.append(self._layer(name, number, spec, caches[name]))
        if self.storage is None:
            raise ValueError("this worker keeps no KV cache that could be handed off")
        regions = [{"block_stride": stride, "block_count": self.blocks} for _, stride in self.regions]
        sizes = [{"block_size": group.block_size} for group in groups]
        layout = CacheLayout({"regions": regions, "groups": sizes, "layers": self.layers})
        return Placed(layout, self.storage, [offset for offset, _ in self.regions])

    def _layer(
        self, name: str, group: int, spec: KVCacheSpec, cache: "torch.Tensor"
    ) -> dict[str, Any]:
        layer = {"name": name, "kind": kind_of(name, spec), "group": group}
        if isinstance(spec, MambaSpec):
            return layer | {"parts": self._state(spec, cache)}
        assert isinstance(spec, AttentionSpec), name
        packing = packing_of(spec, cache, self.cache_dtype)
        parts = self._attention(name, spec, cache)
        return layer | {"parts": parts} | ({"packing": packing} if packing else {})

    def _region(self, cache: "torch.Tensor", stride: int, extent: int) -> tuple[int, int]:
        """The region of a layer that takes `extent` bytes of every `stride` of them, and where
        in a block of it the layer begins: layers that lie side by side in a block share one."""
        storage = cache.untyped_storage()
        if self.storage is not None and storage.data_ptr() != self.storage.data_ptr():
            raise ValueError("kvferry needs the KV cache of a worker in one allocation")
        self.storage = storage
        start = cache.storage_offset() * cache.element_size()
        inside = start % stride
        if inside + extent > stride:
            inside = 0
        return self.regions.setdefault((start - inside, stride), len(self.regions)), inside

    def _attention(
        self, name: str, spec: AttentionSpec, cache: "torch.Tensor"
    ) -> list[dict[str, Any]]:
        """The parts of a view of blocks, heads, tokens and content, in any order of memory."""
        kernel_blocks, heads, tokens, content = cache.shape
        item = cache.element_size()
        per_block = kernel_blocks // self.blocks
        block, unit, token = (cache.stride(dim) * item for dim in range(3))
        if cache.stride(3) != 1 or per_block * self.blocks != kernel_blocks:
            raise ValueError(f"{name}: a cache of strides {cache.stride()} cannot be described")
        extent = block * (per_block - 1) + unit * (heads - 1) + token * (tokens - 1) + content * item
        region, offset = self._region(cache, block * per_block, extent)
        place = {
            "units": self._heads(name, spec, heads),
            "region": region,
            "unit_stride": unit,
            "token_stride": token,
        }
        if per_block > 1:
            place["tile"] = {"tokens": tokens, "stride": block}
        parts = []
        for role, size in content_of(spec, content * item):
            parts.append({"role": role, "bytes": size, "offset": offset} | place)
            offset += size
        return parts

    def _heads(self, name: str, spec: AttentionSpec, slots: int) -> dict[str, int]:
        """The heads that this rank keeps, counted over the whole model."""
        rank, ways, heads = self.shard.rank, self.shard.ways, self.shard.heads
        if kind_of(name, spec)["kind"] == "mla" or ways == 1:
            return {"start": 0, "end": slots}
        if slots * ways == heads:
            return {"start": rank * slots, "end": (rank + 1) * slots}
        if slots == 1 and ways % heads == 0:
            own = rank * heads // ways
            return {"start": own, "end": own + 1}
        raise ValueError(
            f"{name}: {slots} heads on each of {ways} ranks are no share of the model's {heads}"
        )

    def _state(self, spec: MambaSpec, cache: "torch.Tensor") -> list[dict[str, Any]]:
        """The pieces of a state, one after the other from the start of the page. Each rank's are
        one unit, which moves between engines of as many ranks."""
        stride = cache.stride(0) * cache.element_size()
        region, offset = self._region(cache, stride, cache.shape[-1] * cache.element_size())
        rank = 0 if spec.tp_replicated else self.shard.rank
        parts = []
        for role, shape, dtype in zip(("conv_input", "temporal"), spec.shapes, spec.dtypes):
            size = math.prod(shape) * dtype.itemsize
            units = {"start": rank, "end": rank + 1}
            place = {"region": region, "offset": offset, "unit_stride": size, "token_stride": size}
            parts.append({"role": role, "units": units, "bytes": size} | place)
            offset += size
        if len(parts) != len(spec.shapes):
            raise ValueError(f"kvferry does not know a state of {len(spec.shapes)} pieces")
        return parts


def content_of(spec: AttentionSpec, content: int) -> list[tuple[str, int]]:
    """What lies side by side for one head and one token."""
    key = spec.head_size * spec.dtype.itemsize
    value = spec.head_size_v * spec.dtype.itemsize
    if value > 0 and key + value == content:
        return [("key", key), ("value", value)]
    return [("key", content)]


def packing_of(spec: AttentionSpec, cache: "torch.Tensor", cache_dtype: str) -> str | None:
    """How the inside of a page is packed, where its shape does not say it.

    vLLM's CPU attention keeps keys as its matrix unit wants them, which depends on the machine.
    """
    if not (cache.is_cpu and current_platform.is_cpu()):
        return None
    try:
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        isa = _get_attn_isa(spec.dtype, spec.block_size, spec.head_size, cache_dtype)
    except (ImportError, TypeError) as why:
        raise ValueError(
            f"kvferry does not know how the CPU attention of this vLLM packs its blocks, and so "
            f"not with whom they could be shared: {why}"
        ) from why
    return f"CPU_ATTN/{isa}"
