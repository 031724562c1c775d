"""Beside vLLM's own connector in the same run: time until the cache is there, CPU and bytes. And the hybrid allocator on and off.

The two take turns, so that what else the machine does meets both.
"""

import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from connectors import NIXL
from context import Context, at_once
from pair import Pair
from shapes import needed_bytes

WITHOUT = "allocator-off"
BLOCK = 32
SHORTEST, LONGEST = 300, 4000
TOKENS = 4
IDLE_SECONDS = 5.0
CONCURRENCY = 4


@dataclass
class Figures:
    """Of one connector, over all its turns."""

    ready_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    idle: list[float] = field(default_factory=list)
    moved: int = 0
    needed: int = 0
    requests: int = 0

    def row(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "ready_median_ms": round(1000 * median(self.ready_s), 1),
            "ready_p99_ms": round(1000 * percentile(self.ready_s, 0.99), 1),
            "cpu_s": round(self.cpu_s, 2),
            "idle_cpu_percent": round(100 * sum(self.idle) / len(self.idle), 1),
            "mib_moved": round(self.moved / 2**20, 2),
            "mib_needed": round(self.needed / 2**20, 2),
            "requests_a_second": round(self.requests / self.wall_s, 2),
        }


def run(context: Context) -> None:
    ours, reference = context.connector.name, NIXL.name
    for kind in ("hybrid", "padded"):
        sides = {ours: (context.connector, True), reference: (NIXL, True)}
        if kind == "hybrid":
            sides[WITHOUT] = (context.connector, False)
        rows = {side: Figures() for side in sides}
        lengths = drawn(context)
        for turn in range(context.effort.turns):
            for side, (connector, hma) in sides.items():
                with context.pair(kind, connector=connector, hma=hma) as pair:
                    measure(context, pair, lengths[turn :: context.effort.turns], rows[side])
        for side, figures in rows.items():
            context.report.figure(f"beside.{kind}.{side}", figures.row())
        judge(context, kind, rows[ours], rows[reference])
        if kind == "hybrid":
            # What the hybrid allocator is worth: without it every layer keeps, and moves, the whole prompt.
            detail = f"{rows[ours].moved} bytes with it, {rows[WITHOUT].moved} without"
            context.check("allocator.fewer-bytes", rows[ours].moved < rows[WITHOUT].moved, detail)


def drawn(context: Context) -> list[int]:
    count = context.effort.repeats
    return [context.random.randint(SHORTEST, LONGEST) for _ in range(count)]


def measure(context: Context, pair: Pair, lengths: list[int], figures: Figures) -> None:
    pair.handoff(context.prompt(SHORTEST), TOKENS)  # the greeting is not measured
    figures.idle.append(idle_share(pair))
    moved = pair.connector.moved(pair.d.figures())
    cpu, begin = cpu_seconds(pair), time.monotonic()
    prompts = [context.prompt(length) for length in lengths]
    answers = at_once(CONCURRENCY, lambda prompt: pair.handoff(prompt, TOKENS), prompts)
    figures.wall_s += time.monotonic() - begin
    figures.cpu_s += cpu_seconds(pair) - cpu
    figures.moved += pair.connector.moved(pair.d.figures()) - moved
    figures.requests += len(lengths)
    figures.needed += sum(needed_bytes(pair.kind, length, BLOCK, "float32") for length in lengths)
    # A load that failed has also ended, and sooner than others.
    if failed := sum(answer["finish"] != "length" for answer in answers):
        raise AssertionError(f"{failed} of {len(answers)} requests failed with {pair.connector.name}")
    ready = [answer["ready_s"] for answer in answers]
    if None in ready:
        raise AssertionError(f"{ready.count(None)} of {len(ready)} requests took nothing over")
    figures.ready_s += ready


def judge(context: Context, kind: str, ours: Figures, theirs: Figures) -> None:
    mine, other = ours.row(), theirs.row()
    for key in ("ready_median_ms", "ready_p99_ms", "cpu_s", "idle_cpu_percent"):
        held = mine[key] < other[key]
        context.check(f"beside.{kind}.{key}", held, f"{mine[key]} against {other[key]}")
    detail = f"{ours.moved} bytes moved, {ours.needed} are in blocks that D sees"
    context.check(f"beside.{kind}.no-byte-too-many", 0 < ours.moved <= ours.needed, detail)
    if kind == "padded":
        detail = f"{ours.moved} bytes against {theirs.moved}"
        context.check(f"beside.{kind}.fewer-bytes", ours.moved < theirs.moved, detail)


def idle_share(pair: Pair) -> float:
    """The share of a core that both engines use when nobody asks for anything."""
    time.sleep(1.0)  # what the last request leaves to do
    before, begin = cpu_seconds(pair), time.monotonic()
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(pair) - before) / (time.monotonic() - begin)


def cpu_seconds(pair: Pair) -> float:
    return pair.p.cpu_seconds() + pair.d.cpu_seconds()


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
