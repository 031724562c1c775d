"""Mooncake's transfer engine over TCP, where both sides find each other without a metadata server."""

import importlib
import time
from typing import Any

from engine import Failed, Moved, Options
from pool import Pool
from workload import Side

HOST = "127.0.0.1"


class Pair:
    """One side; which one is decided by what is called."""

    def __init__(self) -> None:
        self._engine: Any = None

    def load(self) -> None:
        importlib.import_module("mooncake.engine")

    def serve(self, options: Options, pool: Pool) -> Any:
        self._open(pool)
        return self._engine.get_rpc_port()

    def connect(self, options: Options, pool: Pool, card: Any, base: int) -> None:
        self._open(pool)
        self._peer = f"{HOST}:{card}"
        self._workload, self._pool, self._base = options.workload, pool, base
        self._sources = options.workload.ids(Side.SOURCE, options.seed)
        self._targets = options.workload.ids(Side.TARGET, options.seed)

    def move(self) -> Moved:
        workload = self._workload
        remote = (self._base + workload.places(self._sources) * workload.block).tolist()
        local = (self._pool.address + workload.places(self._targets) * workload.block).tolist()
        if workload.is_latency:
            code = self._engine.transfer_sync_read(self._peer, local[0], remote[0], workload.block)
        else:
            lengths = [workload.block] * workload.count
            code = self._engine.batch_transfer_sync_read(self._peer, local, remote, lengths)
        done = time.perf_counter()
        if code:
            raise Failed(f"a read of {workload.count} blocks was answered with {code}")
        return Moved(None, done)

    def _open(self, pool: Pool) -> None:
        engine = importlib.import_module("mooncake.engine").TransferEngine()
        if engine.initialize(HOST, "P2PHANDSHAKE", "tcp", ""):
            raise Failed("the engine does not start")
        for region in pool.regions:
            if engine.register_memory(region, pool.region_bytes):
                raise Failed("the engine does not register the pool")
        self._engine = engine
