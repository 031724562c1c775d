"""One vLLM engine in one process: a JSON line in for each request, one out for each answer.

    python engine.py '{"model": DIRECTORY, "transfer": KV_TRANSFER_CONFIG or null, "args": ENGINE_ARGS}'

Runs under the interpreter of the environment that has vLLM. The API server and the worker process of a usual engine are left
out, so that it starts in seconds and can be asked what no endpoint tells. Requests:

    {"id": …, "prompt": [ids], "n": tokens, "kv": kv_transfer_params?, "salt": text?, "logprobs": count?,
     "split": tokens?}
    {"id": …, "abort": id of a request}
    {"id": …, "figures": true}
    {"stop": true}

Many may be under way. The engine steps while its scheduler has work, as vLLM's own loop does: that is how a prefill engine
learns that its blocks may go. When nothing is left to do it sleeps until a line comes. "split", with nothing else under way,
has the prompt computed in pieces of at most so many tokens.
"""

import json
import os
import select
import sys
import time
from typing import Any

# Read when vLLM is imported. One process is what lets the scheduler be looked at; the rest keeps an engine small and silent.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
for name, value in {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
}.items():
    os.environ.setdefault(name, value)

# vLLM prints what it likes to standard output; answers get a descriptor of their own.
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.config import KVTransferConfig  # noqa: E402

# How long vLLM's loop waits between two steps that had nothing to compute.
PAUSE_SECONDS = 0.001
SLEEP_SECONDS = 3600.0


class Watch:
    """What the scheduler's half of the connector is told and tells, through the calls that its interface has."""

    def __init__(self, connector: Any) -> None:
        self.stats: dict[str, float] = {}
        self.ready: dict[str, float] = {}
        self.failed: set[str] = set()
        self.steps = 0
        if connector is None:
            return
        told, tells = connector.update_connector_output, connector.get_kv_connector_stats

        def update_connector_output(output: Any) -> None:
            self.see(output)
            told(output)

        def get_kv_connector_stats() -> Any:
            stats = tells()
            self.add(stats)
            return stats

        connector.update_connector_output = update_connector_output
        connector.get_kv_connector_stats = get_kv_connector_stats

    def see(self, output: Any) -> None:
        now = time.monotonic()
        for request in output.finished_recving or ():
            self.ready.setdefault(request, now)
        self.failed.update(output.failed_recving or ())
        self.add(output.kv_connector_stats)

    def add(self, stats: Any) -> None:
        if stats is not None:
            self.sum(stats.data)

    def sum(self, data: dict[str, Any]) -> None:
        """Whatever the connector counts: numbers, lists of one number an event, or such by name."""
        for key, value in data.items():
            if isinstance(value, dict):
                self.sum(value)
                continue
            number = sum(value) if isinstance(value, list) else value
            if isinstance(number, int | float):
                self.stats[key] = self.stats.get(key, 0) + number


class Engine:
    def __init__(self, model: str, transfer: dict[str, Any] | None, args: dict[str, Any]) -> None:
        kv = KVTransferConfig(**transfer) if transfer else None
        defaults: dict[str, Any] = dict(
            dtype="float32",
            block_size=32,
            max_model_len=6144,
            max_num_seqs=16,
            enforce_eager=True,
            disable_log_stats=True,
            distributed_executor_backend="uni",
        )
        self.engine = LLM(**{**defaults, **args}, model=model, kv_transfer_config=kv).llm_engine
        self.core = self.engine.engine_core
        self.scheduler = self.core.engine_core.scheduler
        self.watch = Watch(self.scheduler.connector)
        self.under_way: dict[str, tuple[str, float]] = {}
        self.most_tokens = self.scheduler.max_num_scheduled_tokens
        self.pending = b""

    def run(self) -> None:
        tell({"id": "start", "pid": os.getpid(), **self.figures()})
        while self.read():
            if self.scheduler.has_requests():
                self.step()

    def read(self) -> bool:
        """Takes what lines there are; false when there will be none."""
        wait = 0.0 if self.scheduler.running else PAUSE_SECONDS if self.scheduler.has_requests() else SLEEP_SECONDS
        if not select.select([0], [], [], wait)[0]:
            return True
        came = os.read(0, 1 << 20)
        *lines, self.pending = (self.pending + came).split(b"\n")
        for line in lines:
            if not self.take(json.loads(line)):
                return False
        return bool(came)

    def take(self, line: dict[str, Any]) -> bool:
        if "stop" in line:
            return False
        if "figures" in line:
            tell({"id": line["id"], **self.figures()})
        elif "abort" in line:
            self.engine.abort_request([line["abort"]])
            if self.under_way.pop(line["abort"], None):
                tell({"id": line["abort"], "finish": "abort"})
            tell({"id": line["id"]})
        else:
            self.add(line)
        return True

    def add(self, line: dict[str, Any]) -> None:
        params = SamplingParams(
            temperature=0,
            max_tokens=line["n"],
            min_tokens=line["n"],
            ignore_eos=True,
            logprobs=line.get("logprobs"),
            extra_args={"kv_transfer_params": line["kv"]} if line.get("kv") else None,
        )
        prompt: dict[str, Any] = {"prompt_token_ids": line["prompt"]}
        if line.get("salt"):
            prompt["cache_salt"] = line["salt"]
        arrival = time.monotonic()
        try:
            internal = self.engine.add_request(line["id"], prompt, params)
        except ValueError as error:
            tell({"id": line["id"], "finish": "refused", "error": str(error)})
        else:
            self.under_way[line["id"]] = (internal, arrival)
            self.scheduler.max_num_scheduled_tokens = line.get("split") or self.most_tokens

    def step(self) -> None:
        self.watch.steps += 1
        for output in self.engine.step():
            if output.finished and output.request_id in self.under_way:
                tell(self.answer(output, *self.under_way.pop(output.request_id)))

    def answer(self, output: Any, internal: str, arrival: float) -> dict[str, Any]:
        ready = self.watch.ready.pop(internal, None)
        choice = output.outputs[0]
        return {
            "id": output.request_id,
            "tokens": list(choice.token_ids),
            "finish": choice.finish_reason,
            "kv": output.kv_transfer_params,
            "cached": output.num_cached_tokens,
            "logprobs": [top(position) for position in choice.logprobs or ()],
            "load_failed": internal in self.watch.failed,
            "ready_s": None if ready is None else ready - arrival,
            "s": time.monotonic() - arrival,
        }

    def figures(self) -> dict[str, Any]:
        return {
            "free_blocks": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "cpu_s": time.process_time(),
            "steps": self.watch.steps,
            "requests": len(self.scheduler.requests),
            "stats": self.watch.stats,
        }


def top(position: dict[int, Any]) -> dict[int, float]:
    return {token: entry.logprob for token, entry in position.items()}


def tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), file=ANSWERS)


if __name__ == "__main__":
    engine = Engine(**json.loads(sys.argv[1]))
    engine.run()
    engine.core.shutdown()
    # Past the exit handlers: a library that NIXL's wheel brings along crashes in one.
    os._exit(0)
