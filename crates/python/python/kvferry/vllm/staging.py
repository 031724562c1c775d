"""A copy of the KV cache in host memory, for an engine whose own lies elsewhere.

With `"kv_buffer_device": "cpu"` blocks go by the host: P copies those of a finished prefill out of
its device before it promises them, D copies what has arrived into its own before it says so.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from .groups import NULL_BLOCK, Group
from .messages import Blocks

if TYPE_CHECKING:
    import torch

Caches = dict[str, "torch.Tensor"]
CopyBlocks = Callable[[Caches, Caches, list[int], list[int], str], None]
"""vLLM's own: source, target, blocks of both, `h2d` or `d2h`; it returns when it has copied."""


class Staging:
    """The copy, and the blocks that go through it."""

    def __init__(self, caches: Caches, blocks: int, groups: list[Group]) -> None:
        self._device = caches
        self.host = _host_copy(caches)
        self._blocks = blocks
        self._groups = groups
        self._copy: CopyBlocks | None = None

    def copy_with(self, operation: CopyBlocks) -> None:
        self._copy = operation

    def out(self, blocks: Blocks) -> None:
        """From the device into the host's copy."""
        self._move(self._device, self.host, blocks, "d2h")

    def back(self, blocks: Blocks) -> None:
        """From the host's copy into the device."""
        self._move(self.host, self._device, blocks, "h2d")

    def _move(self, source: Caches, target: Caches, blocks: Blocks, direction: str) -> None:
        assert self._copy is not None, "vLLM gives the operation when it registers the caches"
        for group, ids in zip(self._groups, blocks):
            for per_block, layers in self._by_kernel_blocks(group).items():
                views = [kernel for block in ids if block != NULL_BLOCK
                         for kernel in range(block * per_block, (block + 1) * per_block)]
                if views:
                    some = {name: source[name] for name in layers}
                    others = {name: target[name] for name in layers}
                    self._copy(some, others, views, views, direction)

    def _by_kernel_blocks(self, group: Group) -> dict[int, list[str]]:
        """Attention kernels may cut a block into several, which vLLM's operation counts."""
        cut: dict[int, list[str]] = {}
        for name in group.layers:
            cut.setdefault(self._device[name].shape[0] // self._blocks, []).append(name)
        return cut


def _host_copy(caches: Caches) -> Caches:
    """The same views of a storage on the host."""
    import torch

    storages = {cache.untyped_storage().data_ptr(): cache for cache in caches.values()}
    hosts = {}
    for address, cache in storages.items():
        size = cache.untyped_storage().nbytes()
        hosts[address] = torch.zeros(size, dtype=torch.uint8, pin_memory=True).untyped_storage()
    copies = {}
    for name, cache in caches.items():
        host = hosts[cache.untyped_storage().data_ptr()]
        view = torch.empty(0, dtype=cache.dtype)
        place = (cache.storage_offset(), cache.size(), cache.stride())
        copies[name] = view.set_(host, *place)
    return copies
