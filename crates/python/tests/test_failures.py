"""A load that fails ends in an error or in a computation from the start, never in another text."""

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake.engine import Engine, play, rest
from fake.model import HYBRID
from fake.pair import TO_P, ask, decode, full, hand_off, prefill, prompt
from fake.request import Request
from vllm.v1.request import RequestStatus

from kvferry.vllm.worker import WorkerHalf

Start = Callable[..., Engine]


@pytest.fixture(params=["fail", "recompute"])
def policy(request: pytest.FixtureRequest) -> str:
    return request.param


def ends(request: Request, policy: str) -> None:
    if policy == "recompute":
        assert request.is_right
    else:
        assert (request.status, request.output) == (RequestStatus.FINISHED_ERROR, [])


def engines(start: Start, policy: str, **of_p: Any) -> tuple[Engine, Engine]:
    p = start(HYBRID, "kv_producer", caching=False, extra=of_p)
    return p, start(HYBRID, "kv_consumer", policy=policy)


def test_the_lease_has_expired(policy: str, start: Start) -> None:
    """P's blocks are reused meanwhile."""
    p, d = engines(start, policy, lease_seconds=0.1)
    first = prefill(p, prompt(70))
    play(p, until=lambda: p.pool.is_whole, seconds=3)
    prefill(p, prompt(90, seed=1))
    request = decode(d, first, prompt(70))
    play(p, d, until=lambda: request.is_over)
    ends(request, policy)
    rest(p, d)
    assert d.counts["failed"] == d.counts["failed_retry"] == 1
    assert "received" not in d.counts
    assert p.counts == {"leases_over": 2}


def test_p_is_gone(policy: str, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    p, d = engines(start, policy)
    first = prefill(p, prompt(70))
    p.close()
    begun = time.monotonic()
    request = decode(d, first, prompt(70))
    play(d, until=lambda: request.is_over)
    ends(request, policy)
    assert time.monotonic() - begun < 5
    rest(d)
    assert d.counts["failed"] == d.counts["failed_peer_lost"] == 1
    assert f"port {first.params['remote_port']}" in caplog.text or (
        f":{first.params['remote_port']}" in caplog.text
    )


def test_p_is_gone_and_another_is_there(start: Start) -> None:
    p, d = engines(start, "fail")
    first = prefill(p, prompt(70))
    p.close()
    lost = decode(d, first, prompt(70))
    other = start(HYBRID, "kv_producer", engine_id="other")
    request = hand_off(other, d, prompt(70))
    play(other, d, until=lambda: lost.is_over)
    assert request.is_right
    rest(other, d)


def test_the_parameters_of_another_request(policy: str, start: Start) -> None:
    """A router that mixes up two prompts of one length."""
    p, d = engines(start, policy)
    for number in range(10):
        one, other = prompt(70, seed=number), prompt(70, seed=-1 - number)
        mixed = [decode(d, prefill(p, one), other), decode(d, prefill(p, other), one)]
        play(p, d, until=lambda: all(request.is_over for request in mixed))
        for request in mixed:
            ends(request, policy)
        rest(p, d)
    assert d.counts["failed"] == d.counts["failed_protocol"] == 20
    assert "received" not in d.counts


def test_a_failure_that_crosses_with_blocks(policy: str, start: Start) -> None:
    """The workers know that there is nothing to read, and the scheduler gives blocks before it
    has heard of that."""
    p = start(HYBRID, "kv_producer")
    d = start(HYBRID, "kv_consumer", policy=policy, late=True)
    mixed = prefill(p, prompt(70))
    with full(d):
        request = decode(d, mixed, prompt(70, seed=1))
        worker = d.workers.connectors[0]._worker
        play(p, d, until=lambda: worker._ended)
    play(p, d, until=lambda: request.is_over)
    rest(p, d)
    ends(request, policy)
    assert request.loads == [69] and d.counts["failed"] == 1


class Silent:
    """A worker that is not asked yet what has ended."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def reports(self) -> Any:
        return [], None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


def test_a_failure_of_one_rank_that_crosses_with_blocks(policy: str, start: Start) -> None:
    """One rank has said that it failed, the other nothing yet: vLLM waits for the words of both."""
    p = start(HYBRID, "kv_producer", ways=2)
    d = start(HYBRID, "kv_consumer", policy=policy, ways=2)
    silent, other = (connector._worker for connector in d.workers.connectors)
    native, silent._worker = silent._worker, Silent(silent._worker)
    with full(d):
        request = decode(d, prefill(p, prompt(70)), prompt(70, seed=1))
        play(p, d, until=lambda: other._ended)
    d.step()
    silent._worker = native
    play(p, d, until=lambda: request.is_over)
    rest(p, d)
    ends(request, policy)
    assert request.loads == [69]


@pytest.mark.parametrize(
    ("what", "is_loaded"),
    [("received", True), ("nothing", True), ("failed", False), ("released", False)],
)
def test_only_what_was_received_counts_as_loaded(what: str, is_loaded: bool) -> None:
    """A load that ended in any other way, whatever its name, must not be decoded from."""
    nothing: Any = None
    worker: Any = WorkerHalf(nothing, nothing, nothing, [])
    worker._vote(SimpleNamespace(what=what, request="r"))
    votes = worker.results()
    assert votes.finished_recving == {"r"}
    assert votes.failed_recving == (set() if is_loaded else {"r"})


def test_engines_that_hear_late(start: Start) -> None:
    p = start(HYBRID, "kv_producer", late=True)
    d = start(HYBRID, "kv_consumer", late=True, caching=False)
    requests = [decode(d, prefill(p, prompt(40 + at)), prompt(40 + at)) for at in range(5)]
    d.abort(requests[0])
    d.step()
    d.abort(requests[1])
    play(p, d, until=lambda: all(request.is_over for request in requests))
    rest(p, d)
    assert all(request.is_right for request in requests[2:])


@pytest.mark.parametrize("shorter", [1, 20])
def test_the_parameters_of_a_longer_prompt(shorter: int, policy: str, start: Start) -> None:
    """P says that it has more tokens than the whole prompt, or than all but its last one."""
    p, d = engines(start, policy)
    request = decode(d, prefill(p, prompt(70)), prompt(70)[:-shorter])
    play(p, d, until=lambda: request.is_over)
    if shorter == 1:
        # The same tokens, all of which P has: D still computes the last one itself.
        assert request.is_right and request.loads == [68]
    else:
        ends(request, policy)
        assert d.counts["params_refused"] == 1


@pytest.mark.parametrize("what", ["lora", "salt", "image", "model"])
def test_whatever_decides_the_kv_is_compared(what: str, policy: str, start: Start) -> None:
    served = {"served": "another"} if what == "model" else {}
    p = start(HYBRID, "kv_producer")
    d = start(HYBRID, "kv_consumer", policy=policy, caching=False, **served)
    more: dict[str, Any] = {
        "lora": {"lora_request": type("Lora", (), {"lora_name": "adapter"})},
        "salt": {"cache_salt": "tenant"},
        "image": {"mm_features": [type("Feature", (), {"identifier": "sha of an image"})]},
    }.get(what, {})
    request = decode(d, prefill(p, prompt(70)), prompt(70), **more)
    play(p, d, until=lambda: request.is_over)
    ends(request, policy)
    assert d.counts["failed"] == 1 and "received" not in d.counts
    if more:
        alike = decode(d, prefill(p, prompt(71), **more), prompt(71), **more)
        play(p, d, until=lambda: alike.is_over)
        assert alike.is_right and alike.loads == [70]


FIELDS = [
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
    "tp_size",
    "remote_num_tokens",
    "kvferry",
]


@pytest.mark.parametrize("field", FIELDS)
def test_r102_a_missing_field_is_named(
    field: str, policy: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Parameters that a router has cut were taken for a request without any."""
    p, d = engines(start, policy)
    first = prefill(p, prompt(70))
    del first.params[field]
    with caplog.at_level(logging.WARNING):
        request = decode(d, first, prompt(70))
    play(d, until=lambda: request.is_over)
    ends(request, policy)
    rest(d)
    assert f"`{field}`" in caplog.text and request.request_id in caplog.text
    expected = {"params_refused": 1}
    assert d.counts == expected | ({"computed_here": 1} if policy == "recompute" else {})


# Engines that are asked for what they do not do.


def test_a_prefill_engine_is_asked_to_decode(policy: str, start: Start) -> None:
    p, other = start(HYBRID, "kv_producer"), start(HYBRID, "kv_producer", policy=policy)
    request = decode(other, prefill(p, prompt(70)), prompt(70))
    play(p, other, until=lambda: request.is_over)
    rest(other)
    ends(request, policy)
    assert other.counts["failed"] == 1


def test_a_decode_engine_offers_nothing_for_a_second_turn(start: Start) -> None:
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_both")
    request = hand_off(p, d, prompt(70))
    rest(p, d)
    assert request.is_right and request.params is None


def test_a_decode_engine_is_no_prefill_engine(start: Start, caplog: Any) -> None:
    """The answer has all the tokens that were asked for, and leads nowhere."""
    d = start(HYBRID, "kv_consumer")
    request = ask(d, prompt(70), max_tokens=3, kv_transfer_params=dict(TO_P))
    play(d, until=lambda: request.is_over)
    assert request.is_right and len(request.output) == 3 and request.params is None
    rest(d)
    assert d.counts == {"params_refused": 1}
    assert request.request_id in caplog.text and "kv_consumer" in caplog.text


def test_blocks_of_a_decode_engine_are_refused_by_name(start: Start, caplog: Any) -> None:
    """A second turn, as vLLM's own connector would have it."""
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer")
    first = ask(p, prompt(70), kv_transfer_params=TO_P | {"remote_block_ids": [[1, 2], [3]]})
    play(p, until=lambda: first.is_over)
    request = decode(d, first, prompt(70))
    play(p, d, until=lambda: request.is_over)
    assert request.is_right and "several turns" in caplog.text


def test_push_is_refused_by_name(policy: str, start: Start, caplog: Any) -> None:
    p, d = engines(start, policy)
    first = prefill(p, prompt(70))
    first.params["transfer_mode"] = "push"
    request = decode(d, first, prompt(70))
    play(d, until=lambda: request.is_over)
    ends(request, policy)
    assert "`transfer_mode`" in caplog.text


@pytest.mark.parametrize(
    "params",
    [
        {"do_remote_prefill": True},
        {"do_remote_prefill": True, "kvferry": []},
        {"do_remote_prefill": True, "kvferry": {"version": 2}},
        {"do_remote_prefill": 1, "remote_port": float("nan")},
        {"do_remote_prefill": True, "remote_port": {1, 2}},
        {"do_remote_prefill": True, 3: object()},
    ],
)
def test_nonsense_costs_its_request_only(params: Any, start: Start) -> None:
    p, d = engines(start, "fail")
    other = decode(d, prefill(p, prompt(71)), prompt(71))
    request = decode(d, type("First", (), {"params": params}), prompt(70))
    play(p, d, until=lambda: request.is_over and other.is_over)
    rest(p, d)
    ends(request, "fail")
    assert other.is_right
