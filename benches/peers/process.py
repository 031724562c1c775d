"""Processes: what each takes of cores and memory, the lines that it prints, and that none outlives its use."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

# A transfer that takes longer has hung: the slowest engine needs a second.
STEP_SECONDS = 60
WHOLE_RUN_SECONDS = 600
END_SECONDS = 5.0

PR_SET_PDEATHSIG = 1
# The kernel's number for "CPU time of a process, all threads", beside the inverted process id.
CPUCLOCK_SCHED = 2

_lines = sys.stdout


def keep_stdout_for_lines() -> None:
    """Native engines print what they like to standard output; from here on that goes to standard error."""
    global _lines
    _lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), file=_lines, flush=True)


def deadline(seconds: int) -> None:
    """Ends this process if it is not called again in time. A signal does so even while native code holds Python's lock."""
    signal.alarm(seconds)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_seconds(pid: int) -> float:
    """Read from outside, so that a source is not woken for it."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def resident_bytes(pid: int | str) -> int:
    return _status(pid, "VmRSS:")


def peak_resident_bytes(pid: int | str) -> int:
    """Most since `forget_peak`."""
    return _status(pid, "VmHWM:")


def forget_peak(pid: int | str) -> None:
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        # Then the peak is that of the whole life, which is more and never less.
        pass


def _status(pid: int | str, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    return 0


class Source:
    """The other side: this program once more, told to be the source."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, str(Path(__file__).parent), *arguments, "--source"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._child.pid

    def hello(self) -> Any:
        """What it says when its pool is filled."""
        line = self._child.stdout.readline() if self._child.stdout else ""
        if not line:
            raise RuntimeError(f"the source ended with {self._child.wait()}")
        return json.loads(line)

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        if self._child.stdin:
            self._child.stdin.close()
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
