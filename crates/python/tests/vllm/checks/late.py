"""D asks when P's lease has ended and P's blocks hold something else: it fails or computes anew, and never decodes from them."""

import time

from compare import Match, match, summary
from connectors import Options
from context import Context, at_once
from pair import Pair

TOKENS = 8
LENGTH = 100
LEASE_SECONDS = 2
LATE_SECONDS = 4.0
AT_A_TIME = 10
# Three groups of four blocks each for a prompt: a round holds half the pool, and the fillers go through all of it.
POOL = {"num_gpu_blocks_override": 256}
SHORT = {"max_model_len": 2048}
FILLERS, FILLER_LENGTH = 12, 600


def run(context: Context) -> None:
    options = Options(policy="fail", lease_seconds=LEASE_SECONDS)
    with context.pair("hybrid", args=SHORT, options=options, prefill=POOL) as pair:
        free = pair.p.figures()["free_blocks"]
        under_policy(context, pair, "fail", free)
        pair.other_policy("recompute")
        under_policy(context, pair, "recompute", free)


def under_policy(context: Context, pair: Pair, policy: str, free: int) -> None:
    judge(context, policy, rounds(context, pair))
    left = pair.p.figures()["free_blocks"]
    context.check(f"late-after.{policy}.free", left == free, f"P has {left} of {free} blocks free again")
    prompt = context.prompt(LENGTH)
    after = match(LENGTH, pair.reference(prompt, TOKENS), pair.handoff(prompt, TOKENS))
    context.check(f"late-after.{policy}.served", after.same, f"in time after that: {summary([after])}")


def rounds(context: Context, pair: Pair) -> list[Match]:
    matches: list[Match] = []
    while len(matches) < context.effort.repeats:
        count = min(AT_A_TIME, context.effort.repeats - len(matches))
        prompts = [context.prompt(LENGTH) for _ in range(count)]
        references = [pair.reference(prompt, TOKENS) for prompt in prompts]
        params = at_once(count, pair.prefill, prompts)
        time.sleep(LATE_SECONDS)
        for _ in range(FILLERS):
            pair.p.ask(prompt=context.prompt(FILLER_LENGTH), n=2)
        answers = [pair.decode(prompt, TOKENS, kv) for prompt, kv in zip(prompts, params, strict=True)]
        matches += [match(LENGTH, r, a) for r, a in zip(references, answers, strict=True)]
    return matches


def judge(context: Context, policy: str, matches: list[Match]) -> None:
    count = len(matches)
    wrong = sum(m.finish == "length" and not m.same for m in matches)
    context.check(f"late.{policy}.no-wrong-token", wrong == 0, f"{wrong} of {count} answered with wrong tokens")
    if policy == "fail":
        failed = sum(m.finish == "error" for m in matches)
        context.check(f"late.{policy}.failed", failed == count, f"{failed} of {count} ended with an error")
    else:
        context.check(f"late.{policy}.recomputed", all(m.same for m in matches), summary(matches))
