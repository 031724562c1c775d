"""What a transfer engine must do to be measured."""

from dataclasses import dataclass
from typing import Any, Protocol

from pool import Pool
from workload import Workload


class Failed(Exception):
    """The engine said no."""


@dataclass(frozen=True)
class Options:
    """What is measured, and how it is told."""

    case: str
    workload: Workload
    reps: int
    seed: int
    reader_thread: bool


@dataclass(frozen=True)
class Moved:
    """When a transfer was handed over and when it was done, by `time.perf_counter`."""

    # None where one call does both.
    posted: float | None
    done: float


class Engine(Protocol):
    """One side of a pair; an object is either source or reader."""

    def load(self) -> None:
        """Imports the engine."""

    def serve(self, options: Options, pool: Pool) -> Any:
        """Lets others read `pool`. What it returns is JSON that the reader connects with."""

    def connect(self, options: Options, pool: Pool, card: Any, base: int) -> None:
        """Prepares reading into `pool` from the pool that the source has at the address `base`."""

    def move(self) -> Moved:
        """Moves all blocks once, from block ids on."""
