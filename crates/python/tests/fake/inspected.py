"""An engine that looks at every byte of its pool when a load has ended."""

import math
from typing import Any

import numpy as np
from vllm.v1.request import RequestStatus

from .engine import Engine
from .model import Rank, chain
from .request import Request
from .rules import State


class Inspected(Engine):
    """For one request at a time: whatever else writes would be taken for a stray write.

    What the rule at the first computed position asks for must be there, and nothing else may have
    changed but the slots beside it: keys come by blocks, those of the engine with the smaller
    ones. Where blocks are packed they come whole, and only those of others are looked at.
    """

    def __init__(self, *args: Any, source_block: int = 0, **more: Any) -> None:
        self.before: list[np.ndarray] = []
        self.needed = 0
        """Bytes that the last load had to bring, the slots beside them included."""
        self.inspections = 0
        super().__init__(*args, **more)
        self.unit = math.gcd(source_block, self.model.block)

    def _give(self, request: Request, external: int) -> None:
        if external:
            self.before = [rank.storage.bytes.copy() for rank in self.ranks]
        super()._give(request, external)

    def _promoted(self, request: Request) -> bool:
        waited = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
        failed = request.request_id in self.failed
        total, external = request.num_computed_tokens, (request.loads or [0])[-1]
        is_promoted = super()._promoted(request)
        if waited and is_promoted and not failed:
            self.inspections += 1
            self.needed = 0
            for rank, before in zip(self.ranks, self.before):
                self._inspect(rank, before, request, (total - external, total))
        return is_promoted

    def _inspect(
        self, rank: Rank, before: np.ndarray, request: Request, span: tuple[int, int]
    ) -> None:
        now = rank.storage.bytes.copy()
        rank.storage.bytes[:] = 0
        for layer in range(len(rank.tensors)):
            self.needed += self._fill(rank, request, layer, span, beside=True)
        beside = rank.storage.bytes != 0
        if self.model.packed:
            own = [block for ids in request.tables.ids for block in ids]
            rank.pages()[own] = 1
            beside |= rank.storage.bytes != 0
        rank.storage.bytes[:] = before
        for layer in range(len(rank.tensors)):
            self._fill(rank, request, layer, span, beside=False)
        wrong = np.flatnonzero((now != rank.storage.bytes) & ~beside)
        rank.storage.bytes[:] = now
        assert not len(wrong), f"{len(wrong)} bytes of rank {rank.rank} differ, from {wrong[0]} on"

    def _fill(
        self, rank: Rank, request: Request, layer: int, span: tuple[int, int], beside: bool
    ) -> int:
        """Writes what a load of the tokens of `span` must bring, or marks the slots that may come
        with that. Gives the bytes of both."""
        hit, total = span
        name, group, _ = rank.model.layers()[layer]
        rule, ids = rank.model.groups[group][0], request.tables.ids[group]
        digests, words = chain(request._all_token_ids), rank.tensors[name].words()
        if isinstance(rule, State):
            state = rank.state(layer, digests[total - 1])
            if not beside:
                words[ids[(total - 1) // rank.model.block_of(group)], 0, 0] = state
            return state.nbytes
        needed = np.arange(max(rule.first(total), hit), total)
        if not len(needed):
            return 0
        units = np.arange(needed[0] // self.unit, needed[-1] // self.unit + 1)
        slots = (units[:, None] * self.unit + np.arange(self.unit)).ravel()
        if beside:
            words[rank.keys(name, ids, np.setdiff1d(slots, needed))] = 0x01010101
        else:
            words[rank.keys(name, ids, needed)] = rank.truth(layer, digests[needed])
        return len(slots) * rank.own * rank.content * 4
