"""Run by a test, once for each log level: what becomes of a request that works and of two that
do not. A process has one log."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "stubs"), str(Path(__file__).parent)]

from fake.engine import Engine, play  # noqa: E402
from fake.model import HYBRID  # noqa: E402
from fake.pair import decode, hand_off, prefill, prompt  # noqa: E402


def main(level: str) -> None:
    p = Engine(HYBRID, "kv_producer", extra={"log": level})
    d = Engine(HYBRID, "kv_consumer", extra={"log": level})
    works = hand_off(p, d, prompt(71))
    other = decode(d, prefill(p, prompt(70, seed=1)), prompt(70, seed=2))
    play(p, d, until=lambda: other.is_over)
    first = prefill(p, prompt(70, seed=3))
    p.close()
    lost = decode(d, first, prompt(70, seed=3))
    play(d, until=lambda: lost.is_over)
    for request in (works, other, lost):
        print(request.status.name, request.output)
    print(d.counts)


main(sys.argv[1])
