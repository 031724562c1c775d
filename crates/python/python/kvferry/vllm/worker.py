"""The half of the connector that lives in each of vLLM's workers."""

import logging
import socket
from typing import TYPE_CHECKING

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.logger import init_logger

from kvferry import CacheLayout, Engine, Memory, Path, Report, Worker, random_u64

from .groups import Group
from .identity import Identity
from .layout import Builder, dtype_of
from .messages import Blocks, Presence, Step, Words
from .options import Options
from .ranks import Ranks
from .staging import CopyBlocks, Staging
from .stats import Stats

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from kvferry._kvferry import Part

# Under vLLM's own name: its log settings know no other.
logger = init_logger(f"vllm.{__name__}")


class WorkerHalf:
    """Follows the scheduler's orders, and tells vLLM what it must know of each request."""

    def __init__(
        self,
        vllm_config: "VllmConfig",
        kv_cache_config: "KVCacheConfig",
        options: Options,
        groups: list[Group],
    ) -> None:
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._options = options
        self._groups = groups
        self._worker: Worker | None = None
        self._presence: Presence | None = None
        self._votes = KVConnectorTransferResults()
        self._staging: Staging | None = None
        self._awaited: dict[str, Blocks] = {}
        self._ended: dict[str, Report] = {}
        self._unheard: set[str] = set()
        self._words: bytes | None = None
        self._paths: dict[str, Path] = {}
        self.stats = Stats()

    # Start, sleep, end.

    def register(self, caches: "dict[str, torch.Tensor]") -> None:
        ranks = Ranks.of_engine(self._vllm_config.kv_transfer_config.engine_id)
        caches = self._on_host(caches)
        placed = Builder(self._kv_cache_config, self._vllm_config).build(self._groups, caches)
        epoch, layouts = ranks.agree(random_u64(), placed.layout.to_dict())
        identity = Identity(self._vllm_config, self._options)
        storage = placed.storage
        engine = Engine(
            self._vllm_config.kv_transfer_config.engine_id,
            model=identity.model,
            revision=identity.revision,
            dtype=dtype_of(self._vllm_config),
            epoch=epoch,
            rank=ranks.rank,
            layouts=[CacheLayout(layout) for layout in layouts],
            memory=Memory(storage.data_ptr(), storage.nbytes(), storage),
            offsets=placed.offsets,
        )
        self._worker = Worker(self._options.config(ranks.rank), engine, self._part())
        address = self._worker.address
        if address is not None:
            _check_reachable(address)
            logger.info("kvferry: rank %d hands off at %s port %d", ranks.rank, *address)
        self._presence = Presence(epoch, ranks.rank, address)

    def _on_host(self, caches: "dict[str, torch.Tensor]") -> "dict[str, torch.Tensor]":
        """The caches themselves, or their copies in host memory where vLLM asks for these."""
        if all(cache.is_cpu for cache in caches.values()):
            return caches
        if self._vllm_config.kv_transfer_config.kv_buffer_device != "cpu":
            raise ValueError(
                "kvferry hands off from host memory: set \"kv_buffer_device\": \"cpu\" in "
                "--kv-transfer-config, and blocks go by a copy there"
            )
        self._staging = Staging(caches, self._kv_cache_config.num_blocks, self._groups)
        return self._staging.host

    def copy_with(self, operation: CopyBlocks) -> None:
        if self._staging is not None:
            self._staging.copy_with(operation)

    def _part(self) -> "Part":
        config = self._vllm_config.kv_transfer_config
        if config.is_kv_producer and config.is_kv_consumer:
            return "both"
        return "prefill" if config.is_kv_producer else "decode"

    @property
    def presence(self) -> Presence | None:
        return self._presence

    def withdraw(self) -> None:
        if self._worker is not None:
            self._worker.withdraw()

    def restore(self) -> None:
        if self._worker is not None:
            self._worker.restore()

    def close(self) -> None:
        self._worker = None

    # A step.

    def follow(self, step: Step) -> None:
        if self._staging is not None:
            for blocks in step.leased:
                self._staging.out(blocks)
        if step.orders is not None:
            assert self._worker is not None, "vLLM schedules before the caches are registered"
            self._worker.follow(step.orders)
        for request, blocks in step.awaited.items():
            report = self._ended.pop(request, None)
            if report is None:
                self._awaited[request] = blocks
            else:
                self._vote(report)
        for request in step.refused:
            self._votes.finished_recving.add(request)
            self._votes.failed_recving.add(request)
        for request in step.unheard:
            if self._ended.pop(request, None) is None:
                self._unheard.add(request)

    def results(self) -> KVConnectorTransferResults:
        """What has ended since the last step."""
        if self._worker is not None:
            reports, words = self._worker.reports()
            for report in reports:
                self._hear(report)
            self._words = words
            paths = self._worker.paths()
            if paths is not None:
                self._see(paths)
        votes, self._votes = self._votes, KVConnectorTransferResults()
        return votes

    def _see(self, paths: list[Path]) -> None:
        """Which way each peer is read, said once for each and counted for all."""
        assert self._presence is not None
        rank, known = self._presence.rank, self._paths
        self._paths = {path.peer: path for path in paths}
        for path in paths:
            if path.peer not in known:
                rate = path.bytes_per_second
                logger.log(
                    logging.WARNING if path.falls_short else logging.INFO,
                    "kvferry: rank %d reads from %s by %s%s, since %s",
                    rank,
                    path.peer,
                    path.provider,
                    "" if rate is None else f" at {rate / 1e6:.0f} MB/s",
                    path.why,
                )
        self.stats.ways(rank, paths)

    def words(self) -> Words | None:
        words, self._words = self._words, None
        if words is None or self._presence is None:
            return None
        return Words([(self._presence.rank, words)])

    def _hear(self, report: Report) -> None:
        if report.what == "freed":
            self.stats.count(f"leases_{report.why}")
            self._votes.finished_sending.add(report.request)
            return
        if report.what == "received":
            self.stats.received(report.bytes, report.claiming, report.reading)
        elif report.what == "failed":
            self.stats.count("failed")
            self.stats.count(f"failed_{report.kind}")
            logger.warning("Request %s was not received: %s", report.request, report.message)
        blocks = self._awaited.pop(report.request, None)
        if blocks is not None:
            if report.what == "received" and self._staging is not None:
                self._staging.back(blocks)
            self._vote(report)
        elif report.request in self._unheard:
            self._unheard.discard(report.request)
        else:
            # vLLM has given it no blocks yet, and may never do so.
            self._ended[report.request] = report

    def _vote(self, report: Report) -> None:
        self._votes.finished_recving.add(report.request)
        # A request that was given up is over for vLLM too, or its blocks hold nothing of use.
        if report.what not in ("received", "nothing"):
            self._votes.failed_recving.add(report.request)


def _check_reachable(address: tuple[str, int]) -> None:
    """An address that leads nowhere shows at start, not at the first request."""
    try:
        socket.create_connection(address, timeout=2).close()
    except OSError as why:
        host, port = address
        raise ValueError(
            f"kvferry cannot reach itself at {host} port {port}, where decode engines would: {why}. "
            f"Set `listen` or `advertise` in kv_connector_extra_config to an address of this host."
        ) from why
