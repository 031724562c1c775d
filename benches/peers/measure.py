"""Drives an engine through its repetitions, and tells of each."""

import os
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from engine import Engine, Options
from pool import Pool
from process import STEP_SECONDS, Source, cpu_seconds, deadline, forget_peak, peak_resident_bytes, say
from workload import Side

# A single block is moved so often in a repetition: one alone takes less than a clock can tell well.
TIMES = 200
IDLE_SECONDS = 0.5
# Fewer times have no hundredth part.
ENOUGH_FOR_P99 = 100


@dataclass
class Turn:
    """One repetition; a single block is moved many times in it."""

    seconds: list[float] = field(default_factory=list)
    posted: list[float] = field(default_factory=list)
    cpu_reader: float = 0.0
    cpu_source: float = 0.0
    wrong: int = 0


@dataclass
class Peaks:
    """Most that was resident beside what each side had before its engine was there: the pool, and Python."""

    before_reader: int
    before_source: int
    reader: int = 0
    source: int = 0

    def look(self, source: Source) -> None:
        self.reader = max(self.reader, peak_resident_bytes("self") - self.before_reader)
        self.source = max(self.source, peak_resident_bytes(source.pid) - self.before_source)


def measure(
    options: Options, pool: Pool, engine: Engine, source: Source, before_reader: int, before_source: int
) -> None:
    """One repetition that is not counted, for it meets a new connection, and those that are."""
    peaks = Peaks(before_reader, before_source)
    turns: list[Turn] = []
    for number in range(options.reps + 1):
        times = TIMES if number and options.workload.is_latency else 1
        turn = repeat(options, pool, engine, source, peaks, times)
        turns.append(turn)
        say(line(options, number, times, turn))
    summary = summarise(options, turns, peaks)
    summary["idle_cores"] = idle(source)
    say({"summary": summary})


def repeat(options: Options, pool: Pool, engine: Engine, source: Source, peaks: Peaks, times: int) -> Turn:
    workload, turn = options.workload, Turn()
    sources, targets = (workload.places(workload.ids(side, options.seed)) for side in (Side.SOURCE, Side.TARGET))
    for _ in range(times):
        deadline(STEP_SECONDS)
        pool.poison(targets)
        if not workload.is_latency:
            forget_peak("self")
            forget_peak(source.pid)
        here, there = cpu_seconds(os.getpid()), cpu_seconds(source.pid)
        begin = time.perf_counter()
        moved = engine.move()
        turn.cpu_reader += cpu_seconds(os.getpid()) - here
        turn.cpu_source += cpu_seconds(source.pid) - there
        turn.seconds.append(moved.done - begin)
        if moved.posted is not None:
            turn.posted.append(moved.posted - begin)
        if not workload.is_latency:
            peaks.look(source)
        turn.wrong += pool.wrong_bytes(sources, targets)
    if workload.is_latency:
        peaks.look(source)
    return turn


def line(options: Options, number: int, times: int, turn: Turn) -> dict[str, Any]:
    return {
        "case": options.case,
        "workload": options.workload.name,
        "round": number,
        "transfers": times,
        "seconds": statistics.median(turn.seconds),
        "cpu_reader_s": turn.cpu_reader / times,
        "cpu_source_s": turn.cpu_source / times,
        "bytes": options.workload.bytes,
        "wrong": turn.wrong,
    }


def summarise(options: Options, turns: list[Turn], peaks: Peaks) -> dict[str, Any]:
    counted = turns[1:]
    times = sorted(seconds for turn in counted for seconds in turn.seconds)
    posted = [seconds for turn in counted for seconds in turn.posted]
    moves = [len(turn.seconds) for turn in counted]
    median = statistics.median(times)
    return {
        "case": options.case,
        "workload": options.workload.name,
        "first_s": turns[0].seconds[0],
        "median_s": median,
        "min_s": times[0],
        "max_s": times[-1],
        "p99_s": statistics.quantiles(times, n=100, method="inclusive")[-1] if len(times) >= ENOUGH_FOR_P99 else None,
        "posted_s": statistics.median(posted) if posted else None,
        "gigabytes_per_second": options.workload.bytes / median / 1e9,
        "of_limit": None,
        "cpu_s": {
            "reader": statistics.median(turn.cpu_reader / n for turn, n in zip(counted, moves, strict=True)),
            "source": statistics.median(turn.cpu_source / n for turn, n in zip(counted, moves, strict=True)),
        },
        "resident_over_pools_bytes": {"reader": max(peaks.reader, 0), "source": max(peaks.source, 0)},
        "wrong": sum(turn.wrong for turn in turns),
    }


def idle(source: Source) -> dict[str, float]:
    """Cores that the pair takes while nothing is asked of it."""
    deadline(STEP_SECONDS)
    begin = (time.perf_counter(), cpu_seconds(os.getpid()), cpu_seconds(source.pid))
    time.sleep(IDLE_SECONDS)
    end = (time.perf_counter(), cpu_seconds(os.getpid()), cpu_seconds(source.pid))
    took = end[0] - begin[0]
    return {"reader": (end[1] - begin[1]) / took, "source": (end[2] - begin[2]) / took}
