"""Engines that keep the same model differently: blocks, orders of memory, ranks, packings."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fake.engine import Engine, play, rest
from fake.inspected import Inspected
from fake.model import CHUNKED, HYBRID, LATENT, STATES, UNIFORM, Model
from fake.pair import decode, hand_off, prefill, prompt
from vllm.v1.request import RequestStatus

Start = Callable[..., Engine]
LENGTHS = [2, 17, 33, 55, 56, 71, 90]


def works(p: Engine, d: Inspected, lengths: list[int]) -> None:
    needed = 0
    for length in lengths:
        request = hand_off(p, d, prompt(length, seed=length))
        assert request.is_right and request.loads == [length - 1], (length, request)
        needed += d.needed
    assert d.inspections == len(lengths)
    rest(p, d)
    assert sum(sum(told["bytes"]) for told in d.told) == needed


@pytest.mark.parametrize("model", [HYBRID, UNIFORM, CHUNKED], ids=["hybrid", "uniform", "chunked"])
@pytest.mark.parametrize("blocks", [(16, 32), (32, 16), (8, 32), (32, 8)], ids=str)
def test_block_sizes_that_differ(model: Model, blocks: tuple[int, int], start: Start) -> None:
    source, target = blocks
    p = start(replace(model, block=source, blocks=128), "kv_producer")
    d = Inspected(replace(model, block=target), "kv_consumer", source_block=source)
    works(p, d, LENGTHS)


@pytest.mark.parametrize("source", ["LBHNC", "LBNHC", "BLHNC"])
@pytest.mark.parametrize("target", ["LBHNC", "LBNHC", "BLNHC"])
def test_orders_of_memory_that_differ(source: str, target: str, start: Start) -> None:
    p = start(replace(HYBRID, order=source), "kv_producer")
    d = Inspected(replace(HYBRID, order=target), "kv_consumer", source_block=16)
    works(p, d, LENGTHS)


@pytest.mark.parametrize("ways", [(1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4)], ids=str)
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_ranks_that_differ(ways: tuple[int, int], heads: int, start: Start) -> None:
    """Fewer heads than ranks are kept by several."""
    model = replace(HYBRID, heads=heads)
    p = start(model, "kv_producer", ways=ways[0])
    d = Inspected(model, "kv_consumer", ways=ways[1], source_block=16)
    works(p, d, [17, 55, 71])


@pytest.mark.parametrize("ways", [(1, 2), (2, 1), (2, 2)], ids=str)
def test_a_latent_is_on_every_rank(ways: tuple[int, int], start: Start) -> None:
    p = start(LATENT, "kv_producer", ways=ways[0])
    d = Inspected(LATENT, "kv_consumer", ways=ways[1], source_block=16)
    for length in LENGTHS:
        assert hand_off(p, d, prompt(length, seed=length)).is_right
    rest(p, d)


def test_states_of_as_many_ranks(start: Start) -> None:
    p = start(STATES, "kv_producer", ways=2)
    d = Inspected(STATES, "kv_consumer", ways=2, source_block=16)
    works(p, d, LENGTHS)


@pytest.mark.parametrize("ways", [(1, 2), (2, 1)], ids=str)
def test_states_of_more_or_fewer_ranks_are_refused(
    ways: tuple[int, int], start: Start, caplog: Any
) -> None:
    p = start(STATES, "kv_producer", ways=ways[0], extra={"lease_seconds": 0.2})
    d = start(STATES, "kv_consumer", ways=ways[1])
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    play(p, d, until=lambda: request.is_over)
    rest(p, d, seconds=3)
    assert request.status is RequestStatus.FINISHED_ERROR
    assert d.counts["failed_config"] > 0
    assert "model.layers.0.attn" in caplog.text


def test_one_rank_fails_and_no_rank_is_believed(start: Start) -> None:
    """One of two workers of P is gone when its blocks are asked for."""
    model = replace(HYBRID, heads=4)
    p, d = start(model, "kv_producer", ways=2), start(model, "kv_consumer", ways=2)
    first = prefill(p, prompt(70))
    first.params["kvferry"]["other_ranks"][0]["port"] = 1
    request = decode(d, first, prompt(70))
    play(p, d, until=lambda: request.is_over)
    assert request.status is RequestStatus.FINISHED_ERROR and request.output == []
    rest(d)
    assert hand_off(p, d, prompt(71)).is_right


# Blocks that a backend packs its own way.


def packed(block: int, **more: Any) -> Model:
    return replace(HYBRID, packed=True, block=block, **more)


def test_equal_packings_move_whole(start: Start, on_cpu: None) -> None:
    p = start(packed(16), "kv_producer")
    d = Inspected(packed(16), "kv_consumer", source_block=16)
    works(p, d, LENGTHS)


@pytest.mark.parametrize("blocks", [(32, 64), (64, 32)], ids=str)
def test_packed_blocks_of_another_size_are_refused(
    blocks: tuple[int, int], start: Start, on_cpu: None, caplog: Any
) -> None:
    """The bytes of such a block mean something else: vLLM's own connector moves them and the
    answers are garbage."""
    p = start(packed(blocks[0]), "kv_producer")
    d = start(packed(blocks[1]), "kv_consumer")
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    play(p, d, until=lambda: request.is_over, seconds=1)
    rest(p, d, seconds=3)
    assert request.status is RequestStatus.FINISHED_ERROR and request.output == []
    assert d.counts == {"failed": 1, "failed_config": 1}
    assert "block size" in caplog.text
    assert all(re.search(rf"\b{size}\b", caplog.text) for size in blocks)


ISA = "vllm.v1.attention.backends.cpu_attn._get_attn_isa"


def test_an_unknown_packing_is_refused_at_start(
    start: Start, monkeypatch: Any, on_cpu: None
) -> None:
    """Machines that look alike may pack otherwise."""
    monkeypatch.setattr(ISA, lambda: "asked otherwise")
    with pytest.raises(ValueError, match="does not know how the CPU attention"):
        start(packed(16), "kv_producer")


def test_another_packing_is_refused(start: Start, monkeypatch: Any, on_cpu: None, caplog: Any) -> None:
    p = start(packed(16), "kv_producer")
    monkeypatch.setattr(ISA, lambda *_: "another")
    d = start(packed(16), "kv_consumer")
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    play(p, d, until=lambda: request.is_over)
    assert request.status is RequestStatus.FINISHED_ERROR
    assert "CPU_ATTN/another" in caplog.text
