"""How the attention on CPUs packs its blocks."""

from typing import Any


def _get_attn_isa(
    dtype: Any, block_size: int, head_size: int | None = None, kv_cache_dtype: str | None = None
) -> str:
    return "vec"
