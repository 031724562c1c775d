"""NIXL with its backend UCX: descriptor lists once, a request of them by index each time, as its connectors do."""

import base64
import importlib
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from engine import Failed, Moved, Options
from pool import Pool
from workload import Side, Workload

# Between two looks at a transfer that a thread of NIXL's own drives.
PAUSE_SECONDS = 0.0001


class Pair:
    """One side; which one is decided by what is called."""

    def __init__(self) -> None:
        self._api: Any = None
        self._agent: Any = None

    def load(self) -> None:
        self._api = importlib.import_module("nixl._api")

    def serve(self, options: Options, pool: Pool) -> Any:
        # Nobody else would answer: a source's engine has other things to do.
        self._open("source", True, pool)
        return base64.b64encode(self._agent.get_agent_metadata()).decode()

    def connect(self, options: Options, pool: Pool, card: Any, base: int) -> None:
        self._open("reader", options.reader_thread, pool)
        name = self._agent.add_remote_agent(base64.b64decode(card))
        peer = name.decode() if isinstance(name, bytes) else name
        self._workload = options.workload
        self._local = self._agent.prep_xfer_dlist(
            "NIXL_INIT_AGENT", descriptors(options.workload, pool.address), mem_type="DRAM"
        )
        self._remote = self._agent.prep_xfer_dlist(peer, descriptors(options.workload, base), mem_type="DRAM")
        self._sources = options.workload.ids(Side.SOURCE, options.seed)
        self._targets = options.workload.ids(Side.TARGET, options.seed)
        # Without the thread it is the asking that moves the bytes; one block is there before a pause ends.
        self._pauses = options.reader_thread and not options.workload.is_latency

    def move(self) -> Moved:
        agent = self._agent
        remote = self._workload.places(self._sources).astype(np.int32)
        local = self._workload.places(self._targets).astype(np.int32)
        transfer = agent.make_prepped_xfer("READ", self._local, local, self._remote, remote, b"done")
        state = agent.transfer(transfer)
        posted = time.perf_counter()
        while state == "PROC":
            if self._pauses:
                time.sleep(PAUSE_SECONDS)
            state = agent.check_xfer_state(transfer)
        done = time.perf_counter()
        if state != "DONE":
            raise Failed(f"the transfer ended as {state}")
        agent.release_xfer_handle(transfer)
        return Moved(posted, done)

    def _open(self, name: str, thread: bool, pool: Pool) -> None:
        self.load()
        config = self._api.nixl_agent_config(enable_prog_thread=thread, backends=[])
        self._agent = self._api.nixl_agent(name, config)
        self._agent.create_backend("UCX", {})
        regions = [(region, pool.region_bytes, 0, "") for region in pool.regions]
        self._agent.register_memory(regions, mem_type="DRAM")


def descriptors(workload: Workload, base: int) -> npt.NDArray[np.uint64]:
    """Address, length and device of every block of a pool."""
    places = np.arange(workload.regions * workload.pool, dtype=np.uint64)
    addresses = np.uint64(base) + places * np.uint64(workload.block)
    return np.stack([addresses, np.full_like(places, workload.block), np.zeros_like(places)], axis=1)
