"""Engines on a device hand off by a copy in host memory, with vLLM's own copy operation."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fake import device
from fake.engine import Engine, play, rest
from fake.model import HYBRID, STATES, Model
from fake.pair import decode, hand_off, prefill, prompt

Start = Callable[..., Engine]


@pytest.fixture(autouse=True)
def torch() -> Iterator[None]:
    with device.torch():
        yield


def on_device(model: Model) -> Model:
    return replace(model, on_device=True)


MODELS = {
    "hybrid": HYBRID,
    "states": STATES,
    "kernels cut blocks": replace(HYBRID, kernel=4),
    "block by block": replace(HYBRID, order="BLHNC"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("device_of", ["both", "p", "d"])
def test_by_the_host(name: str, device_of: str, start: Start) -> None:
    p = start(replace(MODELS[name], on_device=device_of != "d"), "kv_producer", buffer="cpu")
    d = start(replace(MODELS[name], on_device=device_of != "p"), "kv_consumer", buffer="cpu",
              caching=False)
    for length in (2, 17, 54, 55, 56, 71, 90):
        request = hand_off(p, d, prompt(length, seed=length))
        assert request.is_right and request.loads == [length - 1], length
    rest(p, d)
    assert bool(p.workers.copies.made) == (device_of != "d")
    assert bool(d.workers.copies.made) == (device_of != "p")


def test_only_blocks_of_the_request_are_copied(start: Start) -> None:
    p = start(on_device(HYBRID), "kv_producer", buffer="cpu")
    d = start(on_device(HYBRID), "kv_consumer", buffer="cpu")
    first = prefill(p, prompt(71))
    kept = [[block for block in ids if block] for ids in first.tables.ids]
    request = decode(d, first, prompt(71))
    play(p, d, until=lambda: request.request_id in d.arrived)
    own = [[block for block in ids if block] for ids in request.tables.ids]
    assert [ids for way, _, ids in p.workers.copies.made if way == "d2h"] == kept
    assert [ids for way, _, ids in d.workers.copies.made if way == "h2d"] == own
    layers = [names for _, names, _ in p.workers.copies.made]
    assert layers == [group.layers for group in p.connector._scheduler._groups]
    play(p, d, until=lambda: request.is_over)
    rest(p, d)


def test_what_has_failed_is_not_copied(start: Start) -> None:
    p = start(on_device(HYBRID), "kv_producer", buffer="cpu")
    d = start(on_device(HYBRID), "kv_consumer", buffer="cpu", policy="recompute")
    request = decode(d, prefill(p, prompt(70)), prompt(70, seed=1))
    play(p, d, until=lambda: request.is_over)
    rest(p, d)
    assert request.is_right and d.workers.copies.made == []


def test_a_device_without_a_buffer_is_refused(start: Start) -> None:
    with pytest.raises(ValueError, match="kv_buffer_device"):
        start(on_device(HYBRID), "kv_producer")


def test_a_request_that_is_aborted(start: Start) -> None:
    p = start(on_device(HYBRID), "kv_producer", buffer="cpu")
    d: Any = start(on_device(HYBRID), "kv_consumer", buffer="cpu")
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    d.step()
    d.abort(request)
    rest(p, d)
