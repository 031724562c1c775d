"""Workers of one engine: connectors that meet in a process group, each in a thread at the start."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any
from unittest import mock

from vllm.distributed import parallel_state


class Meeting:
    """A process group whose ranks are threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.told: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)

    def gather(self, into: list[Any], what: Any, group: "Meeting") -> None:
        assert group is self
        self.told[parallel_state.own.group.rank_in_group] = what
        self.barrier.wait(10)
        into[:] = self.told
        self.barrier.wait(10)


def together(calls: list[Any]) -> list[Any]:
    """Makes the calls, each as a rank of one group. The group is all of torch that they need."""
    size = len(calls)
    if size == 1:
        return [calls[0]()]
    meeting = Meeting(size)
    torch, dist = ModuleType("torch"), ModuleType("torch.distributed")
    torch.distributed = dist  # type: ignore[attr-defined]
    dist.all_gather_object = meeting.gather  # type: ignore[attr-defined]
    dist.get_world_size = lambda group: group.size  # type: ignore[attr-defined]

    def one(rank: int) -> Any:
        parallel_state.own.group = parallel_state.Group(size, rank, meeting)
        return calls[rank]()

    with mock.patch.dict(sys.modules, {"torch": torch, "torch.distributed": dist}):
        with ThreadPoolExecutor(size) as threads:
            return list(threads.map(one, range(size)))
