"""A router between a prefill and a decode engine."""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .engine import Engine, play
from .request import Request

_numbers = itertools.count()
TO_P = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None}


def prompt(length: int, seed: int = 0) -> list[int]:
    return [random.Random(f"{seed} {at}").randrange(50_000) for at in range(length)]


def ask(engine: Engine, tokens: list[int], **more: Any) -> Request:
    return engine.add(Request(f"r{next(_numbers)}", list(tokens), **more))


def prefill(p: Engine, tokens: list[int], **more: Any) -> Request:
    """Has P compute a prompt; its blocks are kept for whoever has the answer's parameters."""
    request = ask(p, tokens, kv_transfer_params=dict(TO_P), **more)
    play(p, until=lambda: request.is_over)
    return request


def decode(d: Engine, first: Request, tokens: list[int], count: int = 3, **more: Any) -> Request:
    """Has D go on where P has stopped."""
    return ask(d, tokens, max_tokens=count, kv_transfer_params=dict(first.params or {}), **more)


def hand_off(p: Engine, d: Engine, tokens: list[int], count: int = 3, **more: Any) -> Request:
    """One request through both, to its end."""
    request = decode(d, prefill(p, tokens), tokens, count, **more)
    play(p, d, until=lambda: request.is_over)
    return request


@contextmanager
def full(engine: Engine) -> Iterator[None]:
    """No block is free meanwhile."""
    held = [engine.pool.take() for _ in list(engine.pool.free)]
    yield
    for block in held:
        engine.pool.give_back(block)
