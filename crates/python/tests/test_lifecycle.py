"""Requests that are given up, preempted, or do not want what P has: nothing stays behind."""

from collections.abc import Callable
from typing import Any

import pytest
from fake.engine import Engine, play, rest
from fake.model import HYBRID, STATES
from fake.pair import TO_P, ask, decode, full, hand_off, prefill, prompt
from fake.request import Request
from vllm.v1.request import RequestStatus

Start = Callable[..., Engine]
LOADING = RequestStatus.WAITING_FOR_REMOTE_KVS


@pytest.fixture
def pair(start: Start) -> tuple[Engine, Engine]:
    return start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer", caching=False)


def claimed(p: Engine, d: Engine) -> bool:
    return any(one._worker._worker.counts()["claims"] for one in p.workers.connectors)


# Aborted.


def test_aborted_before_a_step(pair: Any) -> None:
    p, d = pair
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    d.abort(request)
    rest(p, d, seconds=3)
    assert p.counts == {"leases_released": 1} and d.counts == {}


def test_aborted_before_there_are_blocks(pair: Any) -> None:
    p, d = pair
    with full(d):
        request = decode(d, prefill(p, prompt(70)), prompt(70))
        play(p, d, until=lambda: claimed(p, d))
        d.abort(request)
    rest(p, d, seconds=3)
    assert request.loads == [] and p.counts == {"leases_released": 1}


def test_aborted_while_loading(pair: Any) -> None:
    p, d = pair
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    play(d, until=lambda: request.status is LOADING)
    d.abort(request)
    # The blocks belong to the hand-off until the workers have said that nothing touches them.
    assert not d.pool.is_whole and request.request_id in d.requests
    rest(p, d, seconds=3)
    assert sum(p.counts.values()) == 1


def test_aborted_when_it_has_arrived(pair: Any) -> None:
    p, d = pair
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    play(p, d, until=lambda: request.request_id in d.arrived)
    d.abort(request)
    assert d.pool.is_whole
    rest(p, d, seconds=3)
    assert p.counts == {"leases_satisfied": 1} and d.counts == {"received": 1}


def test_aborted_while_it_is_computed(pair: Any) -> None:
    p, d = pair
    request = decode(d, prefill(p, prompt(70)), prompt(70), count=50)
    play(p, d, until=lambda: request.num_output_tokens == 5)
    d.abort(request)
    rest(p, d, seconds=3)


def test_aborted_with_nobody_at_the_other_end(pair: Any) -> None:
    """Words of a request that vLLM does not wait for come after it has gone."""
    p, d = pair
    params = dict(prefill(p, prompt(70)).params)
    for number in range(20):
        params["remote_port"] = 1
        request = ask(d, prompt(70), kv_transfer_params=dict(params))
        if number % 2:
            d.step()
        d.abort(request)
    rest(d, seconds=5)


def test_p_gives_nothing_for_what_was_aborted(pair: Any) -> None:
    p, _ = pair
    with full(p):
        waiting = ask(p, prompt(70), kv_transfer_params=dict(TO_P))
        p.step()
        p.abort(waiting)
    running = ask(p, prompt(70), kv_transfer_params=dict(TO_P), max_tokens=9)
    p.step()
    assert running.status is RequestStatus.RUNNING
    p.abort(running)
    assert waiting.params is None and running.params is None
    rest(p, seconds=1)
    assert p.counts == {}


# Preempted.


@pytest.mark.parametrize("model", [HYBRID, STATES], ids=["hybrid", "states"])
def test_d_does_not_pull_twice(model: Any, start: Start) -> None:
    p, d = start(model, "kv_producer"), start(model, "kv_consumer", caching=False)
    request = decode(d, prefill(p, prompt(70)), prompt(70), count=6)
    play(p, d, until=lambda: request.num_output_tokens == 2)
    d.preempt(request)
    play(p, d, until=lambda: request.is_over)
    rest(p, d)
    assert request.is_right and request.loads == [69]
    assert d.counts == {"received": 1}


def test_p_is_preempted_while_it_computes(start: Start) -> None:
    p, d = start(HYBRID, "kv_producer", caching=False), start(HYBRID, "kv_consumer")
    first = ask(p, prompt(71), kv_transfer_params=dict(TO_P))
    p.step()
    assert first.num_computed_tokens == 64
    p.preempt(first)
    play(p, until=lambda: first.is_over)
    request = decode(d, first, prompt(71))
    play(p, d, until=lambda: request.is_over)
    rest(p, d)
    assert request.is_right and request.loads == [70]


# Requests that must not read caches, and prompts that are no tokens.


def test_a_request_that_skips_the_prefix_cache(pair: Any) -> None:
    """One that wants log-probabilities of its prompt: P computes it to its end and D anew, and
    P is told at once. Nobody says that D had had it already."""
    p, d = pair
    first = prefill(p, prompt(70), skips_prefix_cache=True)
    assert first.num_prompt_tokens == 70
    request = decode(d, first, prompt(70), skips_prefix_cache=True)
    play(p, d, until=lambda: request.is_over)
    rest(p, d, seconds=3)
    assert request.is_right and request.loads == []
    assert d.counts == {"declined": 1} and p.counts == {"leases_released": 1}


@pytest.mark.parametrize("length", [54, 55, 56])
def test_only_p_skips_the_prefix_cache(length: int, start: Start) -> None:
    """P has computed all N tokens, and at N = 55 its windows have let go of what D's query at 54
    sees: that is an error, not an answer."""
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer")
    request = decode(d, prefill(p, prompt(length), skips_prefix_cache=True), prompt(length))
    play(p, d, until=lambda: request.is_over)
    rest(p, d, seconds=3)
    if length == 55:
        assert request.status is RequestStatus.FINISHED_ERROR and request.output == []
        assert d.counts["failed"] == 1
    else:
        assert request.is_right and request.loads == [length - 1]


def test_embeddings_are_not_handed_off(start: Start) -> None:
    """There are no tokens that could be compared."""
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer", policy="recompute")
    first = p.add(Request("embedded", None, kv_transfer_params=dict(TO_P)))
    params = prefill(p, prompt(20)).params
    request = d.add(Request("embedded", None, kv_transfer_params=params))
    play(p, d, until=lambda: first.is_over and request.is_over)
    assert first.params is None and request.is_right
    assert p.counts == {"params_refused": 1}
    assert d.counts == {"params_refused": 1, "computed_here": 1}


# Asleep.


def asleep(engine: Engine) -> None:
    for connector in engine.workers.connectors:
        assert connector.supports_sleep_mode(None)
        connector.unregister_kv_caches()
        connector.unregister_kv_caches()


def awake(engine: Engine) -> None:
    for connector in engine.workers.connectors:
        connector.restore_kv_caches()
    engine.connector.set_xfer_handshake_metadata_pp_aware(engine.workers.presences())


def test_engines_sleep_and_wake(pair: Any) -> None:
    p, d = pair
    assert hand_off(p, d, prompt(70)).is_right
    rest(p, d)
    for sleeper in (p, d, p):
        asleep(sleeper)
        for rank in sleeper.ranks:
            rank.storage.bytes[:] = 0x77
        sleeper.pool.forget()
        awake(sleeper)
        assert hand_off(p, d, prompt(90)).is_right
        rest(p, d)


def test_p_sleeps_on_a_lease(pair: Any) -> None:
    p, d = pair
    first = prefill(p, prompt(70))
    with full(d):
        request = decode(d, first, prompt(70))
        play(p, d, until=lambda: claimed(p, d))
        asleep(p)
        play(p, d, until=lambda: p.pool.is_whole, seconds=3)
        awake(p)
    play(p, d, until=lambda: request.is_over)
    assert request.status is RequestStatus.FINISHED_ERROR
    assert hand_off(p, d, prompt(71)).is_right
    rest(p, d)


def test_d_sleeps_with_a_request_in_its_queue(start: Start) -> None:
    p = start(HYBRID, "kv_producer")
    d = start(HYBRID, "kv_consumer", caching=False, policy="recompute")
    with full(d):
        request = decode(d, prefill(p, prompt(70)), prompt(70))
        play(p, d, until=lambda: claimed(p, d))
        asleep(d)
        awake(d)
    play(p, d, until=lambda: request.is_over)
    assert request.is_right
    assert hand_off(p, d, prompt(71)).is_right
    rest(p, d)
    assert d.counts["failed"] == 1 and d.counts["received"] == 1
