"""Counters of a connector, as vLLM gathers, logs and exports them.

`data` of the stats holds, since the last step that had any: `bytes`, `claim_seconds` and
`read_seconds` of every request that a rank received, in order, `counts` of events by name,
`ready`, 1 or 0 where that has changed, and `ways` of each rank for which they have: how it reads
from each rank of prefill engines.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from kvferry import Path

COUNTS = {
    "received": "Requests whose blocks a rank received",
    "failed": "Requests whose blocks a rank could not receive, whatever the reason",
    "failed_retry": "Of these: the hand-off was lost, such as an expired or unknown lease",
    "failed_peer_lost": "Of these: the prefill engine is gone or does not answer",
    "failed_protocol": "Of these: the blocks are those of another prompt, model or adapter",
    "failed_config": "Of these: the two engines do not fit each other",
    "failed_exhausted": "Of these: this side had reached a limit",
    "failed_bug": "Of these: kvferry or its use is at fault",
    "leases_satisfied": "Leases of a rank whose blocks were read",
    "leases_released": "Leases of a rank whose decode engine did not want the blocks",
    "leases_over": "Leases of a rank that nobody read in time",
    "params_missing": "Requests at a decode-only engine without kv_transfer_params",
    "params_refused": "Requests whose kv_transfer_params could not be used",
    "computed_here": "Requests that this engine computed itself after their hand-off had failed",
    "already_here": "Requests of which the prefix cache had everything",
    "declined": "Requests that vLLM loaded from elsewhere or computed without looking at caches",
}
SERIES = {
    "bytes": "Bytes that a rank received for one request",
    "claim_seconds": "Seconds from the first word to the prefill engine to its answer",
    "read_seconds": "Seconds from the order to read until the bytes counted",
}
READY = "0 after three loads in a row have failed that were no mix-up of requests, else 1"
PEERS = "Ranks of prefill engines that ranks read from, by what moves the blocks"
RATE = "Bytes a second that the slowest of them gave when it was tried, where it could be"
_BUCKETS = {
    "bytes": [float(1 << shift) for shift in range(10, 36, 2)],
    "claim_seconds": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0],
    "read_seconds": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
}


def _empty() -> dict[str, Any]:
    return {"counts": {}, "ready": None, "ways": {}, **{name: [] for name in SERIES}}


def _by_way(ways: Iterable[list[dict[str, Any]]]) -> Counter[tuple[str, bool]]:
    """How many peers are read by which provider, and whether a faster one should work."""
    return Counter((way["provider"], way["falls_short"]) for of_rank in ways for way in of_rank)


def _slowest(ways: Iterable[list[dict[str, Any]]]) -> dict[str, int]:
    """The lowest rate of each provider that was measured."""
    slowest: dict[str, int] = {}
    for way in (way for of_rank in ways for way in of_rank if way["rate"] is not None):
        slowest[way["provider"]] = min(way["rate"], slowest.get(way["provider"], way["rate"]))
    return slowest


@dataclass
class Stats(KVConnectorStats):
    """Events of one rank, or of all after :meth:`aggregate`."""

    data: dict[str, Any] = field(default_factory=_empty)

    def count(self, name: str, times: int = 1) -> None:
        counts = self.data["counts"]
        counts[name] = counts.get(name, 0) + times

    def received(self, size: int, claiming: float, reading: float) -> None:
        self.count("received")
        for name, value in zip(SERIES, (size, claiming, reading)):
            self.data[name].append(value)

    def ready(self, is_ready: bool) -> None:
        self.data["ready"] = int(is_ready)

    def ways(self, rank: int, paths: "list[Path]") -> None:
        # By text: what crosses processes as JSON has no other keys.
        self.data["ways"][str(rank)] = [
            {
                "peer": path.peer,
                "provider": path.provider,
                "rate": path.bytes_per_second,
                "why": path.why,
                "falls_short": path.falls_short,
            }
            for path in paths
        ]

    def reset(self) -> None:
        self.data = _empty()

    def take(self) -> "Stats | None":
        """What there is, and begins anew."""
        if self.is_empty():
            return None
        taken = Stats(self.data)
        self.reset()
        return taken

    def aggregate(self, other: KVConnectorStats) -> "Stats":
        for name in SERIES:
            self.data[name] += other.data[name]
        for name, times in other.data["counts"].items():
            self.count(name, times)
        if other.data["ready"] is not None:
            self.data["ready"] = other.data["ready"]
        self.data["ways"].update(other.data["ways"])
        return self

    def reduce(self) -> dict[str, int | float]:
        """For the log: totals, and what a single request took."""
        told: dict[str, int | float] = dict(self.data["counts"])
        if self.data["ready"] is not None:
            told["ready"] = self.data["ready"]
        ways = self.data["ways"].values()
        for (provider, falls_short), peers in sorted(_by_way(ways).items()):
            told[f"{provider} peers" + (" that fall short" if falls_short else "")] = peers
        for provider, rate in sorted(_slowest(ways).items()):
            told[f"slowest {provider} MB/s"] = round(rate / 1e6, 1)
        if self.data["bytes"]:
            told["MB"] = round(sum(self.data["bytes"]) / 1e6, 3)
        for name in ("claim_seconds", "read_seconds"):
            if values := self.data[name]:
                told[f"mean {name}"] = round(fmean(values), 6)
                told[f"median {name}"] = round(median(values), 6)
        return told

    def is_empty(self) -> bool:
        return not (self.data["counts"] or self.data["ways"]) and self.data["ready"] is None


class PromMetrics(KVConnectorPromMetrics):
    """The same as Prometheus metrics, named `vllm:kvferry_…`."""

    def __init__(
        self,
        vllm_config: "VllmConfig",
        metric_types: dict[type[Any], type[Any]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: self._per_engine(self._counter_cls, f"vllm:kvferry_{name}", about)
            for name, about in COUNTS.items()
        }
        self._series = {
            name: self._per_engine(
                self._histogram_cls, f"vllm:kvferry_{name}", about, buckets=_BUCKETS[name]
            )
            for name, about in SERIES.items()
        }
        self._ready = self._per_engine(self._gauge_cls, "vllm:kvferry_ready", READY)
        for ready in self._ready.values():
            ready.set(1)

        self._peers = self._by_provider("vllm:kvferry_peers", PEERS, "falls_short")
        self._rate = self._by_provider("vllm:kvferry_probed_bytes_per_second", RATE)
        self._ways: dict[int, dict[str, list[dict[str, Any]]]] = {}
        self._shown: dict[int, set[tuple[str, bool]]] = {}

    def _by_provider(self, name: str, about: str, *more: str) -> Any:
        labels = [*self._labelnames, "provider", *more]
        return self._gauge_cls(name=name, documentation=about, labelnames=labels)

    def _per_engine(self, metric: type[Any], name: str, about: str, **more: Any) -> dict[int, Any]:
        made = metric(name=name, documentation=about, labelnames=self._labelnames, **more)
        return {
            engine: made.labels(*values) for engine, values in self.per_engine_labelvalues.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, times in transfer_stats_data["counts"].items():
            self._counters[name][engine_idx].inc(times)
        if transfer_stats_data["ready"] is not None:
            self._ready[engine_idx].set(transfer_stats_data["ready"])
        for name in SERIES:
            for value in transfer_stats_data[name]:
                self._series[name][engine_idx].observe(value)
        if transfer_stats_data["ways"]:
            self._see(transfer_stats_data["ways"], engine_idx)

    def _see(self, ways: dict[str, list[dict[str, Any]]], engine: int) -> None:
        """Of ranks that have nothing new to tell, the last word counts."""
        known = self._ways.setdefault(engine, {})
        known.update(ways)
        labels, peers = self.per_engine_labelvalues[engine], _by_way(known.values())
        shown = self._shown.setdefault(engine, set())
        shown.update(peers)
        for provider, falls_short in shown:
            way = self._peers.labels(*labels, provider, "yes" if falls_short else "no")
            way.set(peers[provider, falls_short])
        for provider, rate in _slowest(known.values()).items():
            self._rate.labels(*labels, provider).set(rate)
