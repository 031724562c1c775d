"""A client leaves at any moment: both engines have all their blocks again, P within a lease, and go on."""

import time

from compare import match, summary
from connectors import Options
from context import Context
from pair import FOR_PREFILL, Pair, wait_until

TOKENS = 40
LEASE_SECONDS = 3
LEASE_GRACE_SECONDS = 2.0
# From before the engine has looked at the request until after its first tokens.
LONGEST_WAIT_SECONDS = 0.4


def run(context: Context) -> None:
    options = Options(policy="fail", lease_seconds=LEASE_SECONDS)
    with context.pair("hybrid", options=options, args={"enable_prefix_caching": False}) as pair:
        free = {tag: free_blocks(pair, tag) for tag in "PD"}
        for what, leave in (("prefill", leave_prefill), ("between", leave_between), ("decode", leave_decode)):
            for _ in range(context.effort.repeats):
                leave(context, pair)
            judge(context, pair, what, free)


def leave_prefill(context: Context, pair: Pair) -> None:
    future = pair.p.submit(prompt=long_prompt(context), n=1, kv=FOR_PREFILL)
    time.sleep(context.random.uniform(0, LONGEST_WAIT_SECONDS))
    pair.p.abort(future)


def leave_between(context: Context, pair: Pair) -> None:
    """P has answered, and D never hears of the request."""
    pair.prefill(context.prompt(context.random.randrange(1, 200)))


def leave_decode(context: Context, pair: Pair) -> None:
    prompt = long_prompt(context)
    future = pair.d.submit(prompt=prompt, n=TOKENS, kv=pair.prefill(prompt))
    time.sleep(context.random.uniform(0, LONGEST_WAIT_SECONDS))
    pair.d.abort(future)


def long_prompt(context: Context) -> list[int]:
    return context.prompt(context.random.randrange(200, 2000))


def judge(context: Context, pair: Pair, what: str, free: dict[str, int]) -> None:
    within = LEASE_SECONDS + LEASE_GRACE_SECONDS
    for tag, blocks in free.items():
        waited = wait_until(within, lambda tag=tag, blocks=blocks: free_blocks(pair, tag) == blocks)
        detail = f"{free_blocks(pair, tag)} of {blocks} blocks of {tag} free" + (f" after {waited:.1f} s" if waited else "")
        context.check(f"aborts.{what}.{tag}", waited is not None, detail)
    prompt = context.prompt(150)
    after = match(150, pair.reference(prompt, TOKENS), pair.handoff(prompt, TOKENS))
    context.check(f"aborts.{what}.served", after.same, f"after that: {summary([after])}")


def free_blocks(pair: Pair, tag: str) -> int:
    engine = pair.p if tag == "P" else pair.d
    return int(engine.figures()["free_blocks"])
