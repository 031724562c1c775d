"""What every check is given."""

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from connectors import Connector
from pair import Pair, Setting
from report import Line, Report
from shapes import FIRST_WORD, VOCABULARY

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Effort:
    """How much is tried. The defaults are what the project promises; less is for a look."""

    lengths: list[int] = field(default_factory=lambda: [*range(1, 201), 300, 1000])
    requests: int = 200
    repeats: int = 50
    kills: int = 20
    turns: int = 2


@dataclass
class Context:
    setting: Setting
    connector: Connector
    report: Report
    effort: Effort
    random: random.Random
    part: str = ""
    """All that is wanted of the check, if it is not all of it."""

    def wants(self, part: str) -> bool:
        return self.part in ("", part)

    def check(self, name: str, held: bool, detail: str) -> bool:
        self.report.check(Line(name, held, detail, self.connector.known_wrong(name)))
        return held

    def pair(self, kind: str, connector: Connector | None = None, **more: Any) -> Pair:
        return Pair(self.setting, connector or self.connector, kind, **more)

    def prompt(self, length: int) -> list[int]:
        return [self.random.randrange(FIRST_WORD, VOCABULARY) for _ in range(length)]


def at_once(count: int, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of all items, so many of them under way at a time."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, items))
