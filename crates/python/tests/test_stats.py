"""Counters count what their documentation says, once: see report R103."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake.engine import Engine, play, rest
from fake.model import HYBRID
from fake.pair import ask, decode, hand_off, prefill, prompt
from fake.prometheus import FakeCounter, FakeHistogram, registered

import kvferry
from kvferry.vllm import KvferryConnector
from kvferry.vllm.stats import COUNTS, SERIES

Start = Callable[..., Engine]


def test_r103_every_counter_is_exact(start: Start) -> None:
    """Operators had to look for expiries in the logs. Six requests, one of each kind of end."""
    p = start(HYBRID, "kv_producer", extra={"lease_seconds": 0.3}, caching=False)
    d = start(HYBRID, "kv_consumer", policy="recompute")
    hand_off(p, d, prompt(65))
    hand_off(p, d, prompt(65))
    play(p, d, until=lambda: sum(p.counts.values()) == 2)
    late, other = prefill(p, prompt(40, 1)), prefill(p, prompt(50, 2))
    mixed = decode(d, other, prompt(50, 3))
    play(p, d, until=lambda: mixed.is_over and p.pool.is_whole)
    lost = decode(d, late, prompt(40, 1))
    alone = ask(d, prompt(20, 4))
    cut = ask(d, prompt(20, 5), kv_transfer_params={"do_remote_prefill": True})
    play(p, d, until=lambda: lost.is_over and alone.is_over and cut.is_over)
    rest(p, d)
    assert p.counts == {"leases_satisfied": 1, "leases_released": 2, "leases_over": 1}
    assert d.counts == {
        "received": 1,
        "already_here": 1,
        "failed": 2,
        "failed_protocol": 1,
        "failed_retry": 1,
        "computed_here": 3,
        "params_missing": 1,
        "params_refused": 1,
    }
    assert set(p.counts | d.counts) <= set(COUNTS)


def test_every_kind_of_failure_has_its_counter() -> None:
    """An unknown counter would raise in the exporter, at the first such failure."""
    stub = Path(kvferry.__file__).with_name("_kvferry.pyi").read_text()
    kinds = re.search(r"^Kind = Literal\[(.*)\]$", stub, re.MULTILINE)
    assert kinds is not None
    names = re.findall(r'"(\w+)"', kinds[1])
    assert "bug" in names
    assert {f"failed_{name}" for name in names} == {c for c in COUNTS if c.startswith("failed_")}


def test_r103_bytes_are_those_of_all_ranks(start: Start) -> None:
    """Throughput that pools ranks was read wrongly: each rank's bytes are told apart, and their
    sum is what the engine received."""
    p, d = start(HYBRID, "kv_producer", ways=2), start(HYBRID, "kv_consumer", ways=2)
    hand_off(p, d, prompt(65))
    rest(p, d)
    # 2 full layers of 4 blocks; the query at 64 sees keys from 25 on, 3 blocks of 4 layers.
    # A block is 16 tokens of one head with 16 numbers of 4 bytes on each rank.
    blocks = 2 * 4 + 4 * 3
    told = [size for data in d.told for size in data["bytes"]]
    assert told == [blocks * 16 * 16 * 4] * 2
    assert d.counts["received"] == p.counts["leases_satisfied"] == 2
    for name in ("claim_seconds", "read_seconds"):
        values = [value for data in d.told for value in data[name]]
        assert len(values) == 2 and all(0 < value < 5 for value in values)


def test_stats_cross_processes_as_plain_data(start: Start) -> None:
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer")
    hand_off(p, d, prompt(65))
    rest(p, d)
    total = KvferryConnector.build_kv_connector_stats()
    assert total is not None and total.is_empty()
    for data in p.told + d.told:
        again = KvferryConnector.build_kv_connector_stats(json.loads(json.dumps(data)))
        assert again is not None and not again.is_empty()
        total = total.aggregate(again)
    told = total.reduce()
    assert told["received"] == told["leases_satisfied"] == 1
    assert told["MB"] == round(sum(total.data["bytes"]) / 1e6, 3) > 0
    assert told["mean read_seconds"] == told["median read_seconds"] > 0
    assert all(isinstance(value, int | float) for value in told.values())
    total.reset()
    assert total.is_empty() and total.reduce() == {}


def test_r103_prometheus_has_every_counter_and_series() -> None:
    observer, metrics = registered(KvferryConnector, engines=2)
    counters = {name for name, metric in metrics.items() if isinstance(metric, FakeCounter)}
    series = {name for name, metric in metrics.items() if isinstance(metric, FakeHistogram)}
    assert counters == {f"vllm:kvferry_{name}" for name in COUNTS}
    assert series == {f"vllm:kvferry_{name}" for name in SERIES}
    data = {
        "counts": {"received": 2, "failed": 1},
        "ready": 0,
        "bytes": [10, 20],
        "claim_seconds": [0.1, 0.2],
        "read_seconds": [0.3, 0.4],
        "ways": {},
    }
    observer.observe(data, 1)
    observer.observe({"counts": {"received": 1}, "ready": None, "bytes": [5],
                      "claim_seconds": [0.5], "read_seconds": [0.6], "ways": {}}, engine_idx=1)
    values = {name: metric.values for name, metric in metrics.items()}
    assert values["vllm:kvferry_received"] == {("toy", "0"): [], ("toy", "1"): [2, 1]}
    assert values["vllm:kvferry_failed"][("toy", "1")] == [1]
    assert values["vllm:kvferry_ready"] == {("toy", "0"): [1], ("toy", "1"): [1, 0]}
    assert values["vllm:kvferry_bytes"] == {("toy", "0"): [], ("toy", "1"): [10, 20, 5]}
    assert values["vllm:kvferry_read_seconds"][("toy", "1")] == [0.3, 0.4, 0.6]
    assert metrics["vllm:kvferry_bytes"].more["buckets"][-1] >= 1 << 33


def test_nothing_is_told_where_nothing_was(start: Start) -> None:
    p = start(HYBRID, "kv_producer")
    for _ in range(5):
        p.step()
    assert p.told == []


def test_r98_the_way_to_each_peer_is_in_the_stats(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything worked a hundred times slower over TCP, and nothing said so. Each rank tells once
    how it reads from each rank of P, how fast that was when tried, and why not faster."""
    p = start(HYBRID, "kv_producer", ways=2)
    fast = start(HYBRID, "kv_consumer", ways=2)
    slow = start(HYBRID, "kv_consumer", ways=2, extra={"transport": "tcp"})
    for d, provider, why in [
        (fast, "shm", "none is faster"),
        (slow, "tcp", "it is the one that is wanted"),
    ]:
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="vllm"):
            hand_off(p, d, prompt(65))
            hand_off(p, d, prompt(66, 1))
            rest(p, d)
        told = [data["ways"] for data in d.told if data["ways"]]
        ways = {rank: paths for each in told for rank, paths in each.items()}
        assert sum(map(len, told)) == 2 and set(ways) == {"0", "1"}, "once for each rank"
        peers = [path["peer"] for (path,) in ways.values()]
        for rank, (path,) in ways.items():
            assert (path["provider"], path["why"]) == (provider, why)
            assert (path["rate"] is None) == (provider == "tcp") and not path["falls_short"]
            said = f"rank {rank} reads from {path['peer']} by {provider}"
            [line] = [one for one in caplog.messages if said in one]
            assert line.endswith(f", since {why}") and ("MB/s" in line) == (provider == "shm")
        assert len(set(peers)) == 2 and all(":" in peer for peer in peers)


def test_r98_peers_are_counted_by_what_reads_them() -> None:
    """One metric: a way that falls short is told from one that is as it should be, ranks that say
    nothing new keep theirs, and peers that are gone are counted no more."""
    def way(provider: str, rate: int | None = None, short: bool = False) -> dict[str, Any]:
        return {"peer": "p:1", "provider": provider, "rate": rate, "why": "", "falls_short": short}

    observer, metrics = registered(KvferryConnector)
    empty = KvferryConnector.build_kv_connector_stats()
    assert empty is not None
    nothing = empty.to_dict()
    first = {"0": [way("shm", 9_000_000), way("tcp", short=True)], "1": [way("shm", 7_000_000)]}
    observer.observe(nothing | {"ways": first})
    observer.observe(nothing)
    observer.observe(nothing | {"ways": {"0": [way("shm", 9_000_000)]}})
    peers = metrics["vllm:kvferry_peers"]
    assert peers.labelnames == ["model_name", "engine", "provider", "falls_short"]
    assert peers.values == {("toy", "0", "shm", "no"): [2, 2], ("toy", "0", "tcp", "yes"): [1, 0]}
    rate = metrics["vllm:kvferry_probed_bytes_per_second"]
    assert rate.values == {("toy", "0", "shm"): [7_000_000, 7_000_000]}
    stats = KvferryConnector.build_kv_connector_stats(nothing | {"ways": first})
    assert stats is not None and not stats.is_empty()
    assert stats.reduce() == {"shm peers": 2, "tcp peers that fall short": 1, "slowest shm MB/s": 7.0}
