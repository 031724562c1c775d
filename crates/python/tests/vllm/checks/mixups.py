"""Another request's parameters are refused by name, and nothing is decoded from its blocks."""

from compare import Match, match, summary
from connectors import Options
from context import Context
from pair import Pair

TOKENS = 8
LENGTH = 150
CONVERSATION = 96


def run(context: Context) -> None:
    with context.pair("hybrid", options=Options(policy="fail")) as pair:
        refused(context, pair)
        pair.other_policy("recompute")
        computed_anew(context, pair)
    if blind := context.connector.blind:
        with context.pair("hybrid", connector=blind, options=Options(policy="fail")) as pair:
            control(context, pair)


def refused(context: Context, pair: Pair) -> None:
    """Prompts of one length and, every second time, of one beginning: only the digest tells them apart."""
    ended, named = [], 0
    for repeat in range(context.effort.repeats):
        beginning = context.prompt(CONVERSATION if repeat % 2 else 0)
        mine, others = ([*beginning, *context.prompt(LENGTH - len(beginning))] for _ in range(2))
        start = pair.d.log.stat().st_size
        answer = pair.decode(mine, TOKENS, pair.prefill(others))
        ended.append(answer["finish"])
        named += pair.d.said(pair.connector.says_why("mixup"), start) is not None
    count = len(ended)
    wrong = count - ended.count("error")
    context.check("mixups.refused", wrong == 0, f"{count - wrong} of {count} refused, {wrong} answered")
    context.check("mixups.named", named == count, f"D's log says why for {named} of {count}")
    prompt = context.prompt(LENGTH)
    after = match(LENGTH, pair.reference(prompt, TOKENS), pair.handoff(prompt, TOKENS))
    context.check("mixups-after.served", after.same, f"right parameters after that: {summary([after])}")


def computed_anew(context: Context, pair: Pair) -> None:
    """Under the other policy D computes the prompt itself."""
    matches = with_parameters_of_others(context, pair)
    context.check("mixups.recomputed", all(m.same for m in matches), summary(matches))


def control(context: Context, pair: Pair) -> None:
    """What the comparison is for: without it, tokens are decoded from the other prompt's blocks."""
    matches = with_parameters_of_others(context, pair)
    held = all(m.finish == "length" and not m.same for m in matches)
    context.check("mixups.control", held, f"without the comparison of prompts: {summary(matches)}")


def with_parameters_of_others(context: Context, pair: Pair) -> list[Match]:
    matches = []
    for _ in range(context.effort.repeats // 5):
        mine, others = context.prompt(LENGTH), context.prompt(LENGTH)
        reference = pair.reference(mine, TOKENS)
        matches.append(match(LENGTH, reference, pair.decode(mine, TOKENS, pair.prefill(others))))
    return matches
