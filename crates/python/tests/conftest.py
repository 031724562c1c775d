"""The tests need no vLLM and no torch: `stubs/` has what the connector sees of the one."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "stubs"), str(HERE)]

from fake.engine import Engine  # noqa: E402
from vllm import logger  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402


@pytest.fixture
def start() -> Iterator[Callable[..., Engine]]:
    """Starts engines that end with the test."""
    engines: list[Engine] = []

    def one(*args: Any, **more: Any) -> Engine:
        engines.append(Engine(*args, **more))
        return engines[-1]

    yield one
    for engine in engines:
        engine.close()


@pytest.fixture(autouse=True)
def anew() -> None:
    logger.forget()


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform whose attention packs blocks its own way."""
    monkeypatch.setattr(current_platform, "cpu", True)
