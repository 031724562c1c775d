"""What D computes with is what P has computed: at every length, for every kind of layer."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake.engine import Engine, play, rest
from fake.inspected import Inspected
from fake.model import CHUNKED, HYBRID, LATENT, STATES, UNIFORM, Model
from fake.pair import ask, decode, hand_off, prefill, prompt
from fake.rules import Full, State

Start = Callable[..., Engine]
MODELS = {
    "hybrid": HYBRID,
    "uniform": UNIFORM,
    "states": STATES,
    "chunked": CHUNKED,
    "latent": LATENT,
    "one state": Model(((State(aligned=False), 2), (Full(), 2))),
    "token by token": replace(HYBRID, order="LBNHC"),
    "block by block": replace(HYBRID, order="BLHNC"),
    "block by block, token by token": replace(HYBRID, order="BLNHC"),
    "kernels cut blocks": replace(HYBRID, kernel=4),
}


def pair(start: Start, model: Model, **more: object) -> tuple[Engine, Inspected]:
    p = start(model, "kv_producer")
    d = Inspected(model, "kv_consumer", source_block=model.block, **more)
    return p, d


@pytest.mark.parametrize("name", MODELS)
def test_lengths(name: str, start: Start) -> None:
    """W is 40 and a block has 16 tokens: N = 55, 71, 87 make (N - W + 1) mod 16 = 0, where a P
    that had computed all N tokens would have let the first block of D's window go."""
    p, d = pair(start, MODELS[name])
    lengths = range(1, 91) if name == "hybrid" else [1, 2, 15, 16, 17, 18, 33, 54, 55, 56, 71, 90]
    for length in lengths:
        request = hand_off(p, d, prompt(length, seed=length))
        assert request.is_right, (length, request.status, request.output)
        # The last token is always D's own.
        assert request.loads == ([length - 1] if length > 1 else [])
        if length > 1:
            assert d.told[-1]["bytes"] == [d.needed], length
    assert d.inspections == len([length for length in lengths if length > 1])
    rest(p, d)


def test_p_computes_one_token_less(start: Start) -> None:
    p = start(HYBRID, "kv_producer")
    first = prefill(p, prompt(71), max_tokens=9)
    assert (first.num_prompt_tokens, len(first.output)) == (70, 1)
    assert first.params["remote_num_tokens"] == 70
    # The query at 70 sees keys from 31 on: block 1 of each window, and all of the full group.
    assert [[block > 0 for block in ids] for ids in first.tables.ids] == [
        [False, True, True, True, True],
        [False, True, True, True, True],
        [True, True, True, True, True],
    ]


def test_a_prompt_of_one_token_is_computed_by_d(start: Start) -> None:
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer")
    request = hand_off(p, d, prompt(1))
    rest(p, d)
    assert request.is_right and request.loads == []
    assert p.counts == {"leases_released": 1} and d.counts == {"already_here": 1}


@pytest.mark.parametrize("name", ["hybrid", "uniform", "states", "chunked", "kernels cut blocks"])
@pytest.mark.parametrize("known", [16, 32, 48, 64])
def test_a_prefix_that_d_has_is_not_read(name: str, known: int, start: Start) -> None:
    p, d = pair(start, MODELS[name])
    before = hand_off(p, d, prompt(known + 1))
    tokens = prompt(known) + prompt(30, seed=known)
    request = hand_off(p, d, tokens)
    assert before.is_right and request.is_right
    assert request.loads == [len(tokens) - 1 - known]
    assert d.told[-1]["bytes"] == [d.needed]
    rest(p, d)


@pytest.mark.parametrize("name", ["hybrid", "uniform", "states"])
def test_a_full_hit_frees_p_at_once(name: str, start: Start) -> None:
    p, d = start(MODELS[name], "kv_producer"), start(MODELS[name], "kv_consumer")
    hand_off(p, d, prompt(65))
    rest(p, d)
    request = decode(d, prefill(p, prompt(65)), prompt(65))
    play(p, d, until=lambda: p.pool.is_whole, seconds=3)
    play(d, until=lambda: request.is_over)
    rest(p, d)
    assert request.is_right and request.loads == []
    assert d.counts == {"received": 1, "already_here": 1}
    assert p.counts == {"leases_satisfied": 1, "leases_released": 1}


def test_p_has_a_prefix_as_well(start: Start) -> None:
    p, d = pair(start, HYBRID, caching=False)
    for length in (70, 90, 100):
        assert hand_off(p, d, prompt(length)).is_right
    rest(p, d)


def test_many_at_a_time_in_small_pools(start: Start) -> None:
    """Blocks are reused at once, and painted over before that."""
    model = replace(HYBRID, blocks=60)
    p = start(model, "kv_producer", caching=False)
    d = start(model, "kv_consumer", caching=False)
    prompts = [prompt(20 + number * 7 % 90, seed=number) for number in range(60)]
    params = {"do_remote_decode": True}
    firsts = [ask(p, tokens, kv_transfer_params=dict(params)) for tokens in prompts]
    requests = {}

    def all_over() -> bool:
        for number, first in enumerate(firsts):
            if number not in requests and first.is_over:
                requests[number] = decode(d, first, prompts[number])
        return len(requests) == 60 and all(request.is_over for request in requests.values())

    play(p, d, until=all_over, seconds=20)
    rest(p, d)
    assert all(request.is_right for request in requests.values())
    assert d.counts["received"] == p.counts["leases_satisfied"] == 60
    assert all(request.loads[0] == len(prompts[number]) - 1 for number, request in requests.items())


def test_several_requests_of_one_lease(start: Start) -> None:
    """`n` choices of a prompt arrive with the same parameters, as long as the lease lives."""
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer", caching=False)
    first = prefill(p, prompt(80))
    requests = [decode(d, first, prompt(80)) for _ in range(3)]
    play(p, d, until=lambda: all(request.is_over for request in requests))
    rest(p, d)
    assert all(request.is_right and request.loads == [79] for request in requests)
    assert d.counts == {"received": 3}
    assert p.counts == {"leases_satisfied": 1}


def test_an_engine_that_does_both(start: Start) -> None:
    p, d = start(HYBRID, "kv_both", engine_id="a"), start(HYBRID, "kv_both", engine_id="b")
    assert hand_off(p, d, prompt(71)).is_right
    assert hand_off(d, p, prompt(87, seed=1)).is_right
    alone = ask(p, prompt(40, seed=2), max_tokens=3)
    play(p, d, until=lambda: alone.is_over)
    rest(p, d)
    assert alone.is_right
    assert p.counts == {"leases_satisfied": 1, "received": 1} == d.counts
