"""What is moved: blocks of regions, by the rules of `kvferry bench` (`crates/cli/src/bench/workload.rs`)."""

import random
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

# What the repair of an order may try: a draw fails once in as many as there are blocks.
TRIES = 1 << 20


class Side(Enum):
    """Whose ids."""

    SOURCE = 0
    TARGET = 1


@dataclass(frozen=True)
class Workload:
    """Blocks to move: the same ids in each region, as the layers of one model have."""

    name: str
    regions: int
    # Blocks of a region, and how many of them are moved.
    pool: int
    moved: int
    # Bytes of a block.
    block: int

    @property
    def count(self) -> int:
        return self.regions * self.moved

    @property
    def bytes(self) -> int:
        return self.count * self.block

    @property
    def region_bytes(self) -> int:
        return self.pool * self.block

    @property
    def pool_bytes(self) -> int:
        return self.regions * self.region_bytes

    @property
    def is_latency(self) -> bool:
        """A single block, whose time says nothing but how long an answer takes."""
        return self.count == 1

    def ids(self, side: Side, seed: int) -> list[int]:
        """Different ids in random order, no two of which follow each other: nothing merges."""
        draw = random.Random(seed * 2 + side.value)
        ids = list(range(0, self.pool, 2 if self.moved * 2 <= self.pool else 1))
        draw.shuffle(ids)
        del ids[self.moved :]
        for _ in range(TRIES):
            at = next((at for at in range(len(ids) - 1) if abs(ids[at] - ids[at + 1]) == 1), None)
            if at is None:
                break
            other = draw.randrange(len(ids))
            ids[at], ids[other] = ids[other], ids[at]
        return ids

    def places(self, ids: list[int]) -> npt.NDArray[np.int64]:
        """These blocks of every region, region by region, counted through the whole pool."""
        first = np.arange(self.regions, dtype=np.int64)[:, None] * self.pool
        return (first + np.asarray(ids, dtype=np.int64)[None, :]).ravel()


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", 10, 400, 165, 128 << 10),
        Workload("W2", 68, 80, 63, 128 << 10),
        Workload("W3", 64, 1024, 128, 4 << 10),
        Workload("W4", 1, 64, 1, 4 << 10),
    )
}
