"""Moves the blocks of `kvferry bench` with another transfer engine, between two processes of this host.

    python benches/peers ENGINE --case NAME --workload W1 [--reps 3] [--seed 1] [--no-reader-thread]
    python benches/peers ENGINE --version

ENGINE is `nixl` or `mooncake`; each is steered by its own environment variables as well. What is printed has the form of
`kvferry bench --json`: a line for each repetition, then a summary, or one line that says what failed. The command
`cargo xtask bench-peers` runs this program, in an environment that has the engines.
"""

import argparse
import importlib
import os
import sys
from importlib.metadata import version

import process
from engine import Engine, Options
from measure import measure
from pool import Pool
from workload import WORKLOADS

# The module that drives an engine, and the package that brings it.
ENGINES = {"nixl": ("nixl_pair", "nixl"), "mooncake": ("mooncake_pair", "mooncake-transfer-engine-non-cuda")}


def main() -> None:
    given = arguments()
    process.keep_stdout_for_lines()
    module, package = ENGINES[given.engine]
    engine: Engine = importlib.import_module(module).Pair()
    if given.version:
        engine.load()
        process.say({"version": version(package)})
        return
    options = Options(given.case, WORKLOADS[given.workload], given.reps, given.seed, not given.no_reader_thread)
    if given.source:
        serve(engine, options)
    else:
        read(engine, options)
    # Destructors of native engines wait for threads that may not end.
    os._exit(0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", choices=list(ENGINES))
    parser.add_argument("--version", action="store_true", help="load the engine and say its version")
    parser.add_argument("--case", default="peer", help="what the lines call it")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="W3")
    parser.add_argument("--reps", type=int, default=3, help="repetitions that count, after one that does not")
    parser.add_argument("--seed", type=int, default=1, help="decides which block ids are drawn")
    parser.add_argument("--no-reader-thread", action="store_true", help="the reader's caller makes the progress (nixl)")
    parser.add_argument("--source", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def serve(engine: Engine, options: Options) -> None:
    """The source: a filled pool that is there until the reader lets go of the pipe."""
    process.end_with_parent()
    process.deadline(process.WHOLE_RUN_SECONDS)
    pool = Pool(options.workload)
    pool.fill()
    before = process.resident_bytes("self")
    card = engine.serve(options, pool)
    process.say({"base": pool.address, "resident_before": before, "card": card})
    sys.stdin.read()


def read(engine: Engine, options: Options) -> None:
    try:
        with process.Source(sys.argv[1:]) as source:
            process.deadline(process.STEP_SECONDS)
            pool = Pool(options.workload)
            pool.poison_all()
            before = process.resident_bytes("self")
            hello = source.hello()
            engine.connect(options, pool, hello["card"], hello["base"])
            measure(options, pool, engine, source, before, hello["resident_before"])
    except Exception as why:  # whatever a native engine throws is a reason
        failed = {"case": options.case, "workload": options.workload.name, "why": str(why) or type(why).__name__}
        process.say({"failed": failed})


if __name__ == "__main__":
    main()
