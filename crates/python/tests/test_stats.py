"""Counters count what their documentation says, once: see report R103."""

import json
import re
from collections.abc import Callable
from pathlib import Path

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
    }
    observer.observe(data, 1)
    observer.observe({"counts": {"received": 1}, "ready": None, "bytes": [5],
                      "claim_seconds": [0.5], "read_seconds": [0.6]}, engine_idx=1)
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
