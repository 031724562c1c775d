"""On CPUs a block's inside is known to its backend alone, so other block sizes at P and D are refused, by name and at once."""

import time

from compare import match
from connectors import Options
from context import Context
from pair import Pair

TOKENS = 8
LENGTH = 150
SECONDS = 1.0


def run(context: Context) -> None:
    for hma in (True, False):
        name, options = f"blocks.{'hma-on' if hma else 'hma-off'}", Options(policy="fail")
        with context.pair("hybrid", hma=hma, options=options, prefill={"block_size": 32}, decode={"block_size": 64}) as pair:
            first_contact(context, pair, f"{name}.fail", "fail")
            pair.other_policy("recompute")
            first_contact(context, pair, f"{name}.recompute", "recompute")


def first_contact(context: Context, pair: Pair, name: str, policy: str) -> None:
    prompt = context.prompt(LENGTH)
    params = pair.prefill(prompt)
    start, begin = pair.d.log.stat().st_size, time.monotonic()
    answer = pair.decode(prompt, TOKENS, params)
    seconds = time.monotonic() - begin
    line = pair.d.said(pair.connector.says_why("blocks"), start)
    if policy == "fail":
        held = answer["finish"] == "error" and seconds < SECONDS
        context.check(f"{name}.refused", held, f"ended with {answer['finish']} after {seconds:.2f} s")
    else:
        same = match(LENGTH, pair.reference(prompt, TOKENS), answer).same
        context.check(f"{name}.computed-anew", same, f"the tokens are {'right' if same else 'wrong'}")
    context.check(f"{name}.named", line is not None, f"D's log names both sizes: {line}")
