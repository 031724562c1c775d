"""Either engine is killed at a random moment under load: what was under way ends, the other goes on, and blocks come back."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from compare import Match, match
from connectors import Options
from context import Context
from pair import Answer, EngineDied, Pair, wait_until

TOKENS = 8
CLIENTS = 4
END_SECONDS = 10.0
AGAIN_SECONDS = 10.0
LEASE_SECONDS = 5
# A lease may be given at the last moment before D dies, and an engine tells a little later that blocks are free.
LEASE_GRACE_SECONDS = 2.0
# A prompt, and what D answers to it alone.
Known = tuple[list[int], Answer]


@dataclass
class Load:
    """Clients that hand off prompts one after the other until they are stopped."""

    context: Context
    pair: Pair
    prompts: list[Known]
    stop: threading.Event = field(default_factory=threading.Event)
    matches: list[Match] = field(default_factory=list)
    slowest: float = 0.0
    lost: int = 0
    hung: int = 0

    def client(self, number: int) -> None:
        at = number
        while not self.stop.is_set():
            prompt, reference = self.prompts[at % len(self.prompts)]
            at += CLIENTS
            self.one(prompt, reference)

    def one(self, prompt: list[int], reference: Answer) -> None:
        """What a router would see: an error from P, or D's answer, but one of them in time."""
        try:
            params = self.pair.prefill(prompt)
        except (EngineDied, AssertionError):
            self.lost += 1
            time.sleep(0.05)
            return
        begin = time.monotonic()
        try:
            answer = self.pair.decode(prompt, TOKENS, params, seconds=END_SECONDS)
        except EngineDied:
            self.lost += 1
        except TimeoutError:
            self.hung += 1
        else:
            self.matches.append(match(len(prompt), reference, answer))
        self.slowest = max(self.slowest, time.monotonic() - begin)


def run(context: Context) -> None:
    options = Options(policy="fail", lease_seconds=LEASE_SECONDS)
    # The prefix cache would let D answer a prompt that it has seen without asking P for anything.
    with context.pair("hybrid", options=options, args={"enable_prefix_caching": False}) as pair:
        prompts = [context.prompt(context.random.randrange(20, 600)) for _ in range(40)]
        known = [(prompt, pair.reference(prompt, TOKENS)) for prompt in prompts]
        kill_prefill(context, pair, known)
        kill_decode(context, pair, known)


def kill_under_load(context: Context, pair: Pair, known: list[Known], tag: str) -> Load:
    load = Load(context, pair, known)
    victim = pair.p if tag == "P" else pair.d
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(load.client, n) for n in range(CLIENTS)]
        time.sleep(context.random.uniform(0.5, 2.5))
        victim.kill()
        time.sleep(0.5)
        load.stop.set()
        for client in clients:
            client.result(2 * END_SECONDS)
    return load


def kill_prefill(context: Context, pair: Pair, known: list[Known]) -> None:
    loads, again = [], []
    free = pair.d.figures()["free_blocks"]
    for _ in range(context.effort.kills):
        loads.append(kill_under_load(context, pair, known, "P"))
        pair.restart("P")
        again.append(serves_again(pair, known))
    came_back = wait_until(END_SECONDS, lambda: pair.d.figures()["free_blocks"] == free)
    judge(context, "crash.prefill", loads, again)
    detail = f"D's free blocks are {pair.d.figures()['free_blocks']} of {free}"
    context.check("crash.prefill.blocks", came_back is not None, detail)


def kill_decode(context: Context, pair: Pair, known: list[Known]) -> None:
    loads, again, returned = [], [], []
    free = pair.p.figures()["free_blocks"]
    for _ in range(context.effort.kills):
        loads.append(kill_under_load(context, pair, known, "D"))
        within = LEASE_SECONDS + LEASE_GRACE_SECONDS
        returned.append(wait_until(within, lambda: pair.p.figures()["free_blocks"] == free))
        pair.restart("D")
        again.append(serves_again(pair, known))
    judge(context, "crash.decode", loads, again)
    late = returned.count(None)
    slowest = max((r for r in returned if r is not None), default=0.0)
    detail = f"{late} of {len(returned)} times not all of P's blocks free within the lease, else {slowest:.1f} s"
    context.check("crash.decode.blocks", late == 0, detail)


def serves_again(pair: Pair, known: list[Known]) -> float | None:
    """Seconds from the new engine's start until a hand-off through it is right."""
    prompt, reference = known[0]

    def right() -> bool:
        try:
            answer = pair.decode(prompt, TOKENS, pair.prefill(prompt), seconds=AGAIN_SECONDS)
        except (TimeoutError, AssertionError):
            return False
        return match(len(prompt), reference, answer).same and answer["ready_s"] is not None

    return wait_until(AGAIN_SECONDS, right)


def judge(context: Context, name: str, loads: list[Load], again: list[float | None]) -> None:
    matches = [m for load in loads for m in load.matches]
    right = sum(m.same for m in matches)
    errors = sum(m.finish == "error" for m in matches)
    wrong, hung = len(matches) - right - errors, sum(load.hung for load in loads)
    slowest = max(load.slowest for load in loads)
    lost = sum(load.lost for load in loads)
    detail = f"{len(loads)} kills: {right} right, {errors} errors, {lost} lost with the process, {wrong} wrong"
    context.check(f"{name}.answers", wrong == 0 and right > 0, detail)
    held = hung == 0 and slowest < END_SECONDS
    context.check(f"{name}.ends", held, f"the slowest took {slowest:.1f} s, {hung} did not end")
    slow = again.count(None)
    longest = max((a for a in again if a is not None), default=0.0)
    context.check(f"{name}.again", slow == 0, f"serves again after {longest:.1f} s at most, {slow} times not")
