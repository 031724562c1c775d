"""A prefill and a decode engine, each in a process of its own, and a request's way through both.

Every wait here has a deadline, and whatever was started ends with the `with` block that started it.
"""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from connectors import HOST, Connector, Options

HERE = Path(__file__).parent
START_SECONDS = 240.0
ANSWER_SECONDS = 120.0
STOP_SECONDS = 20.0
LAST_LINES = 15
FOR_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}

Answer = dict[str, Any]
_numbers = itertools.count()
_starts = itertools.count()


class EngineDied(Exception):
    """The process ended with requests under way."""


@dataclass(frozen=True)
class Setting:
    """Where the suite runs."""

    python: Path
    """The interpreter of the environment that has vLLM."""
    out: Path
    """Models, logs and the report."""

    def model(self, kind: str) -> Path:
        """The tiny model of this kind, made when first asked for."""
        directory = self.out / "models" / kind
        if not (directory / "config.json").exists():
            command: list[str | Path] = [self.python, HERE / "models.py", kind, directory]
            subprocess.run(command, check=True, timeout=START_SECONDS, capture_output=True)
        return directory


class Engine:
    """One `engine.py`; a thread reads its answers."""

    def __init__(self, setting: Setting, tag: str, task: dict[str, Any], env: dict[str, str]) -> None:
        self.tag = tag
        self.log = setting.out / "logs" / f"{tag}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.waiting: dict[str, Future[Answer]] = {}
        self.lock = threading.Lock()
        self.started = self.expect("start")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [setting.python, HERE / "engine.py", json.dumps(task)],
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        threading.Thread(target=self.listen, daemon=True).start()

    def expect(self, name: str) -> Future[Answer]:
        future: Future[Answer] = Future()
        with self.lock:
            self.waiting[name] = future
        return future

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.lock:
                future = self.waiting.pop(answer["id"], None)
            if future is not None:
                with suppress(InvalidStateError):
                    future.set_result(answer)
        code = self.process.wait()
        with self.lock:
            left, self.waiting = list(self.waiting.values()), {}
        for future in left:
            fail(future, f"{self.tag} ended with {code}; {self.log} says\n{self.tail()}")

    def ready(self) -> Answer:
        return self.started.result(START_SECONDS)

    def submit(self, **line: Any) -> Future[Answer]:
        name = f"{line.pop('name', 'r')}-{next(_numbers)}"
        future = self.expect(name)
        try:
            assert self.process.stdin is not None
            with self.lock:
                self.process.stdin.write(json.dumps({"id": name, **line}).encode() + b"\n")
                self.process.stdin.flush()
        except OSError as error:
            fail(future, f"{self.tag} takes no requests: {error}")
        # The thread that reads may have failed what was under way before this request was.
        if self.process.poll() is not None:
            fail(future, f"{self.tag} has ended")
        return future

    def abort(self, future: Future[Answer]) -> None:
        """What a client that goes away does to its request, if it has not been answered."""
        with self.lock:
            name = next((name for name, waiting in self.waiting.items() if waiting is future), None)
        if name is not None:
            self.ask(abort=name)

    def ask(self, seconds: float = ANSWER_SECONDS, **line: Any) -> Answer:
        return self.submit(**line).result(seconds)

    def figures(self) -> Answer:
        return self.ask(figures=True)

    def cpu_seconds(self) -> float:
        """As the system counts them, so that nothing has to run in the engine to tell."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def said(self, pattern: re.Pattern[str], after: int = 0) -> str | None:
        """The first line of the log, behind this many bytes, in which the pattern is found."""
        text = self.log.read_bytes()[after:].decode(errors="replace")
        return next((line for line in text.splitlines() if pattern.search(line)), None)

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def stop(self) -> None:
        if self.process.poll() is None and self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.write(b'{"stop": true}\n')
                self.process.stdin.close()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass(frozen=True)
class Side:
    """What one side of a pair is started with, beside what both have."""

    args: dict[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=Options)


class Pair:
    def __init__(
        self,
        setting: Setting,
        connector: Connector,
        kind: str,
        *,
        args: dict[str, Any] | None = None,
        options: Options | None = None,
        prefill: dict[str, Any] | None = None,
        decode: dict[str, Any] | None = None,
        hma: bool = True,
    ) -> None:
        self.setting, self.connector, self.kind = setting, connector, kind
        both = {"disable_hybrid_kv_cache_manager": not hma, **(args or {})}
        chosen = options or Options()
        self.sides = {
            "P": Side({**both, **(prefill or {})}, chosen),
            "D": Side({**both, **(decode or {})}, chosen),
        }
        self.ports = {"P": free_port(), "D": free_port()}
        self.p: Engine
        self.d: Engine

    def __enter__(self) -> Self:
        self.p, self.d = self.engine("P"), self.engine("D")
        try:
            for engine in (self.p, self.d):
                engine.ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for engine in (self.p, self.d):
            engine.stop()

    def engine(self, tag: str) -> Engine:
        side, port = self.sides[tag], self.ports[tag]
        role = "kv_producer" if tag == "P" else "kv_consumer"
        task = {
            "model": str(self.setting.model(self.kind)),
            "transfer": self.connector.config(role, side.options, port),
            "args": side.args,
        }
        name = f"{self.connector.name}-{self.kind}-{os.getpid()}-{next(_starts)}-{tag}"
        return Engine(self.setting, name, task, self.connector.environment(port))

    def restart(self, tag: str) -> None:
        """A new engine where the old one was, with its port."""
        engine = self.engine(tag)
        setattr(self, tag.lower(), engine)
        engine.ready()

    def other_policy(self, policy: str) -> None:
        """A new D with this policy; P, which has none, stays."""
        self.d.stop()
        side = self.sides["D"]
        self.sides["D"] = replace(side, options=replace(side.options, policy=policy))
        self.restart("D")

    def reference(self, prompt: list[int], n: int, **more: Any) -> Answer:
        """What D answers by itself; under a salt of its own, so that nothing of it serves the hand-off."""
        return self.d.ask(name="ref", prompt=prompt, n=n, salt=f"ref{next(_numbers)}", **more)

    def prefill(self, prompt: list[int], **more: Any) -> dict[str, Any]:
        """P's parameters for the router. A prompt of one token, which D computes, may have none."""
        answer = self.p.ask(name="p", prompt=prompt, n=1, kv=FOR_PREFILL, **more)
        if not answer.get("kv") and len(prompt) > 1:
            raise AssertionError(f"P gave no parameters: {answer}; {self.p.log} says\n{self.p.tail()}")
        return dict(answer.get("kv") or {})

    def decode(self, prompt: list[int], n: int, kv: dict[str, Any], **more: Any) -> Answer:
        return self.d.ask(name="d", prompt=prompt, n=n, kv=kv, **more)

    def handoff(self, prompt: list[int], n: int, **more: Any) -> Answer:
        return self.decode(prompt, n, self.prefill(prompt), **more)


def fail(future: Future[Answer], why: str) -> None:
    """Two threads may notice the end of a process."""
    with suppress(InvalidStateError):
        future.set_exception(EngineDied(why))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_until(seconds: float, holds: Any) -> float | None:
    """How long it took until this held; nothing if it did not within these seconds."""
    begin = time.monotonic()
    while (waited := time.monotonic() - begin) < seconds:
        if holds():
            return waited
        time.sleep(0.05)
    return None
