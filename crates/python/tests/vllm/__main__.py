"""Runs kvferry's connector, or another, in a real vLLM on CPUs and checks what the project promises.

    python crates/python/tests/vllm --venv DIRECTORY [CHECK ...]

DIRECTORY is what `install.sh` made, with kvferry's wheel installed into it. This program itself needs only Python 3.11.
Of `lengths` a part may be named, as `lengths.uniform` or `lengths.hybrid.hma-off`.

With `--connector nixl` the same checks run against vLLM's own connector. Some are known to fail there, and the exit code is
zero if each of those is seen to fail and every other holds: that is how the suite shows that it can see a wrong answer.
"""

import argparse
import importlib
import random
import sys
import time
import traceback
from pathlib import Path

from connectors import CONNECTORS
from context import Context, Effort
from pair import Setting
from report import Line, Report

CHECKS = ("lengths", "mixups", "late", "blocks", "aborts", "crash", "beside", "api")
A_LOOK = Effort(lengths=[1, 2, 31, 32, 33, 63, 64, 65, 96, 129, 300], requests=24, repeats=5, kills=2)


def main() -> int:
    options = arguments()
    setting = Setting(options.venv.absolute() / "bin" / "python", options.out.absolute())
    connector = CONNECTORS[options.connector]
    report = Report(connector.name)
    effort = A_LOOK if options.look else Effort()
    effort.turns = options.turns
    for name in options.checks or CHECKS:
        check, _, rest = name.partition(".")
        print(f"{name} with {connector.name}", flush=True)
        begin, before = time.monotonic(), len(report.lines)
        context = Context(setting, connector, report, effort, random.Random(options.seed), name if rest else "")
        try:
            importlib.import_module(f"checks.{check}").run(context)
        except Exception as error:  # the other checks still tell something
            traceback.print_exc()
            last = str(error).splitlines()[-1:] or [""]
            # Never known: what does not run shows nothing.
            report.check(Line(f"{name}.ran", False, f"{type(error).__name__}: {last[0]}", None))
        if len(report.lines) == before:
            report.check(Line(f"{name}.ran", False, "nothing was looked at: is there such a part?", None))
        report.seconds[name] = time.monotonic() - begin
    report.write(setting.out / f"report-{connector.name}.json")
    return conclude(report, setting.out)


def conclude(report: Report, out: Path) -> int:
    for name, seconds in report.seconds.items():
        print(f"{name} took {seconds:.0f} s")
    for prefix in report.unseen():
        print(f"WRONG {prefix}: known to fail with {report.connector}, and nothing failed")
    if report.figures:
        print(report.table(), end="")
    print(f"report in {out}")
    print(report.summary())
    return int(bool(report.failed() or report.unseen()))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}; all if none is named")
    parser.add_argument("--venv", type=Path, required=True, help="the environment with vLLM")
    parser.add_argument("--out", type=Path, default=Path("target/vllm"), help="for models, logs and the report")
    parser.add_argument("--connector", choices=sorted(CONNECTORS), default="kvferry")
    parser.add_argument("--look", action="store_true", help="a few requests of each kind, not the promised numbers")
    parser.add_argument("--turns", type=int, default=2, help="pairs of engines for each line of `beside`")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts")
    options = parser.parse_args()
    if unknown := {name for name in options.checks if name.partition(".")[0] not in CHECKS}:
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
