"""Real API servers behind the example's router, started and asked by the commands that stand on the example's page."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from context import Context, at_once
from pair import HERE, free_port, wait_until

EXAMPLE = HERE.parents[3] / "examples" / "vllm"
START_SECONDS = 900.0
SECONDS = 60.0
TOKENS = 12
CONCURRENCY = 8


def written(part: str, model: str) -> str:
    """The one command of the example's page in which this stands."""
    page = (EXAMPLE / "README.md").read_text().replace("\\\n", " ")
    (command,) = (line for line in page.splitlines() if part in line)
    return command.replace("MODEL", model)


class Servers:
    """`serve.sh` in a process group of its own."""

    def __init__(self, context: Context) -> None:
        self.ports = {name: free_port() for name in ("PORT", "PREFILL_PORT", "DECODE_PORT")}
        self.model = str(context.setting.model("hybrid"))
        python = context.setting.python
        env = {
            **os.environ,
            **context.connector.environment(free_port()),
            **{name: str(port) for name, port in self.ports.items()},
            "CONNECTOR": json.dumps(context.connector.transfer),
            "DECODE_SIDE_PORT": str(free_port()),
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        self.log = context.setting.out / "logs" / f"{context.connector.name}-api.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", written("./serve.sh MODEL --", self.model).replace("./serve.sh", "exec ./serve.sh")],
                cwd=EXAMPLE,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        try:
            if wait_until(START_SECONDS, self.is_up) is None:
                tail = self.log.read_text(errors="replace").splitlines()[-15:]
                raise AssertionError("the servers did not come up: " + " | ".join(tail))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def is_up(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the script ended: {self.log.read_text(errors='replace')[-2000:]}")
        try:
            return self.call("PORT", "/v1/models")[0] == 200
        except OSError:
            return False

    def call(
        self, port: str, path: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[port]}{path}",
            data=None if body is None else json.dumps({"model": self.model, **body}).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                return response.status, response.read(), dict(response.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read(), dict(error.headers)

    def complete(self, port: str, prompt: list[int], **more: Any) -> list[int]:
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        status, answer, _ = self.call(port, "/v1/completions", {**body, **more})
        if status != 200:
            raise AssertionError(f"{status}: {answer[:500]!r}")
        return list(json.loads(answer)["choices"][0]["token_ids"])

    def kill_prefill(self) -> None:
        """All processes of the engine that listens on this port: the server and those that it started."""
        wanted = f"--port {self.ports['PREFILL_PORT']} "
        parents = {pid: parent for pid, parent, _ in processes()}
        victims = {pid for pid, _, line in processes() if wanted in line and "api_server" in line}
        while more := {pid for pid, parent in parents.items() if parent in victims} - victims:
            victims |= more
        for pid in victims:
            os.kill(pid, signal.SIGKILL)


def processes() -> list[tuple[int, int, str]]:
    """Id, parent and command line of all that run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            found.append((int(entry.name), int(parent), line))
        except (OSError, ValueError):
            continue
    return found


def run(context: Context) -> None:
    with Servers(context) as servers:
        as_written(context, servers)
        tokens(context, servers)
        stream(context, servers)
        errors(context, servers)
        dead_prefill(context, servers)


def as_written(context: Context, servers: Servers) -> None:
    """The page's own request; only the port is another."""
    command = written("curl ", servers.model).replace(":8000/", f":{servers.ports['PORT']}/")
    ended = subprocess.run(["bash", "-c", f"{command} -sS"], capture_output=True, timeout=SECONDS, check=False)
    text = ended.stdout.decode(errors="replace")
    held = ended.returncode == 0 and "text_completion" in text and '"completion_tokens":8' in text
    context.check("api.as-written", held, f"the page's commands end with {ended.returncode}: {text[:80]}")


def tokens(context: Context, servers: Servers) -> None:
    lengths = [7, 40, 95, 100, 300, 1000]
    prompts = [context.prompt(length) for length in lengths for _ in range(4)]
    wanted = [servers.complete("DECODE_PORT", p, cache_salt=f"reference{n}") for n, p in enumerate(prompts)]
    got = at_once(CONCURRENCY, lambda prompt: servers.complete("PORT", prompt), prompts)
    wrong = [len(p) for p, w, g in zip(prompts, wanted, got, strict=True) if w != g]
    taken = external_hits(servers)
    context.check("api.tokens", not wrong, f"{len(prompts) - len(wrong)} of {len(prompts)} the same; not: {wrong}")
    context.check("api.handed-off", taken > 0, f"D counts {taken:.0f} tokens that came from P")


def external_hits(servers: Servers) -> float:
    text = servers.call("DECODE_PORT", "/metrics")[1].decode()
    lines = [line for line in text.splitlines() if line.startswith("vllm:external_prefix_cache_hits_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def stream(context: Context, servers: Servers) -> None:
    prompt = context.prompt(120)
    body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True}
    name = "the-clients-own-id"
    _, answer, headers = servers.call("PORT", "/v1/completions", body, {"X-Request-Id": name})
    events = [line[6:] for line in answer.decode().splitlines() if line.startswith("data: ")]
    texts = [json.loads(event)["choices"] for event in events[:-1]]
    text = "".join(choice["text"] for choices in texts for choice in choices)
    body = {**body, "stream": False, "cache_salt": "stream"}
    del body["stream_options"]
    whole = json.loads(servers.call("DECODE_PORT", "/v1/completions", body)[1])["choices"][0]["text"]
    held = text.split() == whole.split() and events[-1] == "[DONE]" and len(texts) >= TOKENS
    context.check("api.stream", held, f"{len(texts)} pieces, the same text as whole: {text.split() == whole.split()}")
    context.check("api.request-id", headers.get("X-Request-Id") == name, f"came back as {headers.get('X-Request-Id')}")


def errors(context: Context, servers: Servers) -> None:
    body = {"prompt": context.prompt(20), "max_tokens": 4, "temperature": -1}
    status, answer, _ = servers.call("PORT", "/v1/completions", body)
    held = 400 <= status < 500 and "error" in json.loads(answer)
    context.check("api.error-passed-on", held, f"a wrong request is answered with {status}")
    several = {"prompt": [context.prompt(20), context.prompt(30)], "max_tokens": 4}
    status, answer, _ = servers.call("PORT", "/v1/completions", several)
    count = len(json.loads(answer).get("choices", ()))
    context.check("api.several-prompts", status == 200 and count == 2, f"{status} with {count} answers")


def dead_prefill(context: Context, servers: Servers) -> None:
    servers.kill_prefill()
    begin = time.monotonic()
    status, answer, _ = servers.call("PORT", "/v1/completions", {"prompt": context.prompt(50), "max_tokens": 4})
    seconds = time.monotonic() - begin
    held = status == 502 and "error" in json.loads(answer) and seconds < 10
    context.check("api.dead-prefill", held, f"{status} after {seconds:.1f} s: {answer[:120].decode(errors='replace')}")
