"""What has broken for people who set such engines up, by the numbers of `docs/RELIABILITY.md`."""

import logging
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fake.engine import Engine, play, rest
from fake.model import HYBRID
from fake.pair import ask, decode, hand_off, prefill, prompt
from fake.wrapper import Cache, Wrapper
from vllm.distributed.kv_transfer.kv_connector.v1.base import supports_hma

from kvferry import ConfigError
from kvferry.vllm import KvferryConnector
from kvferry.vllm.scheduler import Health
from kvferry.vllm.stats import Stats

Start = Callable[..., Engine]


@dataclass
class Told:
    """What a scheduler says of a request."""

    what: str
    kind: str


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def adjacent_ports() -> int:
    """The first of two that nobody has, below those that the system gives out by itself."""
    for first in random.sample(range(20000, 30000, 2), 100):
        try:
            for port in (first, first + 1):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    pytest.fail("no two free ports side by side")


# Advertised addresses.


@pytest.mark.parametrize("host", ["no-such-host.invalid", "127.0.0.77"])
def test_r74_an_address_that_leads_nowhere(host: str, start: Start) -> None:
    """Decode engines hung at the first request."""
    with pytest.raises(ValueError, match="cannot reach itself") as why:
        start(HYBRID, "kv_producer", extra={"advertise": host})
    assert host in str(why.value) and "`advertise`" in str(why.value)


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"listen": "0.0.0.0:0"}, "0.0.0.0 is not a loopback address"),
        ({"listen": "10.0.0.1:7000"}, "10.0.0.1 is not a loopback address"),
        ({"advertise": "0.0.0.0"}, "`advertise`"),
        ({"advertise": "host:7000"}, "`advertise` of \"host:7000\""),
    ],
)
def test_r74_an_address_that_no_peer_could_use(extra: Any, named: str, start: Start) -> None:
    with pytest.raises(ConfigError) as why:
        start(HYBRID, "kv_producer", extra=extra)
    assert named in str(why.value)


def test_r74_every_address_of_the_host_needs_one_to_advertise(start: Start, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)
    secret.chmod(0o600)
    extra = {"listen": "0.0.0.0:0", "secret_file": str(secret)}
    with pytest.raises(ConfigError, match="`advertise`"):
        start(HYBRID, "kv_producer", extra=extra)
    p = start(HYBRID, "kv_producer", extra=extra | {"advertise": "localhost"})
    d = start(HYBRID, "kv_consumer", extra={"secret_file": str(secret)})
    request = hand_off(p, d, prompt(70))
    assert request.is_right and request.kv_transfer_params["remote_host"] == "localhost"


def test_r74_a_consumer_needs_no_address(start: Start) -> None:
    d = start(HYBRID, "kv_consumer", extra={"advertise": "no-such-host.invalid"})
    assert d.workers.connectors[0].get_handshake_metadata().address is None


# IPv6.


def test_r75_ipv6(start: Start) -> None:
    """Host and port were put together as text."""
    if not has_ipv6():
        pytest.skip("this host has no ::1")
    p, d = start(HYBRID, "kv_producer", extra={"listen": "[::1]:0"}), start(HYBRID, "kv_consumer")
    request = hand_off(p, d, prompt(70))
    assert request.is_right and request.kv_transfer_params["remote_host"] == "::1"
    assert isinstance(request.kv_transfer_params["remote_port"], int)


@pytest.mark.parametrize("listen", ["::1:5600", "fd00::1:5600", ":::0"])
def test_r75_ipv6_without_brackets_is_refused(listen: str, start: Start) -> None:
    with pytest.raises(ValueError, match="stands in brackets") as why:
        start(HYBRID, "kv_producer", extra={"listen": listen})
    host, _, port = listen.rpartition(":")
    assert f"[{host}]:{port}" in str(why.value)


@pytest.mark.parametrize("listen", ["", "127.0.0.1", "5600", ":5600", "host:", "[::1]", "1.2.3.4:x",
                                    "127.0.0.1:65536", "127.0.0.1:-1"])
def test_r75_half_an_address_is_refused(listen: str, start: Start) -> None:
    with pytest.raises(ValueError, match="listen") as why:
        start(HYBRID, "kv_producer", extra={"listen": listen})
    assert repr(listen) in str(why.value)


# Ports and identities.


def test_r76_a_port_in_use_is_named(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            start(HYBRID, "kv_producer", extra={"listen": f"127.0.0.1:{port}"})


def test_r76_ranks_take_ports_of_their_own(start: Start) -> None:
    first = adjacent_ports()
    p = start(HYBRID, "kv_producer", ways=2, extra={"listen": f"127.0.0.1:{first}"})
    d = start(HYBRID, "kv_consumer", ways=2)
    told = prefill(p, prompt(70)).params
    assert told["remote_port"] == first
    assert [rank["port"] for rank in told["kvferry"]["other_ranks"]] == [first + 1]
    assert hand_off(p, d, prompt(71)).is_right


def test_r76_two_engines_of_one_id_are_told_apart(start: Start) -> None:
    """Identities were made of host and port, or copied with a configuration."""
    one, two = start(HYBRID, "kv_producer", engine_id="p"), start(HYBRID, "kv_producer", engine_id="p")
    d = start(HYBRID, "kv_consumer")
    prompts = [prompt(70, seed=number) for number in range(6)]
    firsts = [prefill((one, two)[at % 2], tokens) for at, tokens in enumerate(prompts)]
    requests = [decode(d, *both) for both in zip(firsts, prompts)]
    play(one, two, d, until=lambda: all(request.is_over for request in requests))
    rest(one, two, d)
    assert all(request.is_right and request.loads == [69] for request in requests)
    assert one.counts == two.counts == {"leases_satisfied": 3}
    assert d.counts == {"received": 6}


def test_r76_ranks_of_one_engine_share_its_identity_only(start: Start) -> None:
    p = start(HYBRID, "kv_producer", ways=2)
    told = [one.get_handshake_metadata() for one in p.workers.connectors]
    assert told[0].epoch == told[1].epoch and [one.rank for one in told] == [0, 1]
    assert told[0].address != told[1].address


# The hybrid allocator and wrappers.


def test_r100_the_hybrid_allocator_stays_on() -> None:
    """vLLM turns it off for a connector without the hook for all groups, which costs half the
    capacity of such a model."""
    assert supports_hma(KvferryConnector)
    assert "request_finished_all_groups" in vars(KvferryConnector)


def test_r100_windows_keep_few_blocks(start: Start) -> None:
    """What a lease binds of a window group does not grow with the prompt."""
    p = start(replace(HYBRID, blocks=128), "kv_producer", caching=False)
    bound = {}
    for length in (80, 160, 240):
        before = len(p.pool.free)
        prefill(p, prompt(length))
        bound[length] = before - len(p.pool.free)
    # 3 blocks hold the 40 keys of a window here, in each of 2 groups; the full group has all.
    assert bound == {80: 5 + 6, 160: 10 + 6, 240: 15 + 6}


def test_r101_in_a_wrapper(start: Start) -> None:
    """A wrapper called the hook for a single group, and all prompts were computed twice."""
    p = start(HYBRID, "kv_producer", connector=Wrapper)
    d = start(HYBRID, "kv_consumer", connector=Wrapper)
    request = hand_off(p, d, prompt(71))
    rest(p, d)
    assert request.is_right and request.loads == [70]
    cache = d.connector.children[1]
    assert cache.called.count("on_new_request") == 1
    assert cache.called.count("request_finished_all_groups") == 1
    assert d.counts == {"received": 1} and p.counts == {"leases_satisfied": 1}


class Both(Cache):
    """Has 32 tokens of everything, and says so before kvferry does."""

    holds = 32


class CacheFirst(Wrapper):
    kinds = (Both, KvferryConnector)


def test_r101_another_child_loads_instead(start: Start, caplog: Any) -> None:
    """P's blocks are free at once, which is counted and said: nobody fetched what P computed."""
    p = start(HYBRID, "kv_producer")
    d = start(HYBRID, "kv_consumer", connector=CacheFirst)
    request = decode(d, prefill(p, prompt(71)), prompt(71))
    play(p, d, until=lambda: p.pool.is_whole, seconds=3)
    assert request.loads == [32]
    assert p.counts == {"leases_released": 1} and d.counts == {"declined": 1}
    assert "does not want" in caplog.text


def test_r101_introductions_of_another_connector_are_refused(start: Start) -> None:
    p = start(HYBRID, "kv_producer")
    with pytest.raises(ValueError, match="MultiConnector"):
        p.connector.set_xfer_handshake_metadata_pp_aware({(0, 0): object()})
    p.connector.set_xfer_handshake_metadata({})


# Parameters that a router has lost.


def test_r102_a_decode_engine_without_parameters(start: Start, caplog: Any) -> None:
    """Everything seemed to work, and D computed the prompts itself."""
    d = start(HYBRID, "kv_consumer")
    with caplog.at_level(logging.WARNING):
        requests = [ask(d, prompt(40, seed=number), max_tokens=2) for number in range(3)]
    play(d, until=lambda: all(request.is_over for request in requests))
    rest(d)
    assert all(request.is_right for request in requests)
    assert d.counts == {"params_missing": 3}
    assert caplog.text.count("without kv_transfer_params") == 1


@pytest.mark.parametrize("role", ["kv_both", "kv_producer"])
def test_r102_other_engines_may_be_asked_directly(role: str, start: Start, caplog: Any) -> None:
    engine = start(HYBRID, role)
    request = ask(engine, prompt(40), max_tokens=2)
    play(engine, until=lambda: request.is_over)
    assert request.is_right and engine.counts == {} and request.params is None
    assert not caplog.records


# Failures that look like success.


def test_r104_a_failed_load_is_an_error_for_the_client(start: Start) -> None:
    """HTTP 200 with tokens of a prompt that nobody had sent."""
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer", policy="fail")
    first = prefill(p, prompt(70))
    p.close()
    request = decode(d, first, prompt(70))
    play(d, until=lambda: request.is_over)
    assert request.status.name == "FINISHED_ERROR" and request.output == []


def test_r104_not_ready_after_three_failed_loads() -> None:
    """Pods stayed ready while every transfer failed."""
    stats = Stats()
    health = Health(stats)
    said: list[int | None] = []
    told = ["failed", "failed", "received", "failed", "mixed up", "failed", "failed", "failed"]
    for what in [*told, "received"]:
        kind = "protocol" if what == "mixed up" else "peer_lost"
        health.hear(Told("failed" if what == "mixed up" else what, kind))
        taken = stats.take()
        said.append(None if taken is None else taken.data["ready"])
    assert said == [None] * 6 + [0, None, 1]


def test_r104_the_same_at_all_log_levels() -> None:
    script = Path(__file__).parent / "log_levels.py"
    told = {}
    for level in ("error", "warn", "trace"):
        run = subprocess.run([sys.executable, script, level], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        told[level] = run.stdout
    assert "FINISHED_ERROR" in told["warn"] and "received" in told["warn"]
    assert len(set(told.values())) == 1, told
