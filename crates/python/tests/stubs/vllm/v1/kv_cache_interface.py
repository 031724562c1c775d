"""What the layers of a model keep."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class MambaType(Enum):
    MAMBA1 = auto()
    MAMBA2 = auto()
    GDN_ATTN = auto()
    SHORT_CONV = auto()
    LINEAR = auto()


@dataclass(frozen=True)
class KVCacheSpec:
    block_size: int


@dataclass(frozen=True)
class AttentionSpec(KVCacheSpec):
    num_kv_heads: int
    head_size: int
    dtype: Any
    head_size_v: int = -1

    def __post_init__(self) -> None:
        if self.head_size_v < 0:
            object.__setattr__(self, "head_size_v", self.head_size)


@dataclass(frozen=True)
class FullAttentionSpec(AttentionSpec):
    sliding_window: int | None = None
    attention_chunk_size: int | None = None


@dataclass(frozen=True)
class MLAAttentionSpec(FullAttentionSpec):
    head_size_v: int = 0


@dataclass(frozen=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    attention_chunk_size: int = 0


@dataclass(frozen=True)
class SlidingWindowSpec(AttentionSpec):
    sliding_window: int = 0


@dataclass(frozen=True)
class CrossAttentionSpec(AttentionSpec):
    """Of an encoder: nothing that the connector knows."""


@dataclass(frozen=True)
class MambaSpec(KVCacheSpec):
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    mamba_type: MambaType = MambaType.MAMBA2
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0
    tp_replicated: bool = False


@dataclass(frozen=True)
class UniformTypeKVCacheSpecs(KVCacheSpec):
    kv_cache_specs: dict[str, KVCacheSpec] = field(default_factory=dict)


@dataclass
class KVCacheGroupSpec:
    layer_names: list[str]
    kv_cache_spec: KVCacheSpec
    enable_kv_transfer: bool = True


@dataclass
class KVCacheConfig:
    num_blocks: int
    kv_cache_groups: list[KVCacheGroupSpec]

    @property
    def transfer_group_ids(self) -> tuple[int, ...]:
        groups = enumerate(self.kv_cache_groups)
        return tuple(index for index, group in groups if group.enable_kv_transfer)

    @property
    def prefix_cacheable_group_ids(self) -> tuple[int, ...]:
        return self.transfer_group_ids
