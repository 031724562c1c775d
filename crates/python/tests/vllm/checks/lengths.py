"""D's tokens are those it would have made alone, at every length of prompt."""

from compare import Match, match, none_alone, summary
from context import Context, at_once
from pair import EngineDied, Pair
from shapes import boundary_lengths

TOKENS = 12
TOP = 5
BLOCK = 32
# Between the same arithmetic in another order, in single precision; a key that is missed shows at a hundred times this.
NOISE = 1e-3
PROMPTS_AT_A_BOUNDARY = 4
AT_A_TIME = 4
CONCURRENCY = 16


def run(context: Context) -> None:
    for kind, hma in (("hybrid", True), ("hybrid", False), ("uniform", True), ("uniform", False), ("padded", True)):
        name = f"lengths.{kind}" + ("" if hma else ".hma-off")
        if context.wants(name):
            single_precision(context, kind, hma, name)
    for kind, dtype in (("lfm2", "float32"), ("hybrid", "bfloat16"), ("qwen3next", "bfloat16")):
        name = f"lengths.{kind}" + (".bf16" if dtype == "bfloat16" else "")
        if context.wants(name):
            cut_prompt(context, kind, dtype, name)


def single_precision(context: Context, kind: str, hma: bool, name: str) -> None:
    with context.pair(kind, hma=hma) as pair:
        every_length(context, pair, name)
        if kind == "hybrid":
            boundaries(context, pair, name)
            prefix_hit(context, pair, name)
        if kind != "padded":
            many(context, pair, name)


def compare(pair: Pair, prompt: list[int], n: int = TOKENS, logprobs: int | None = None) -> Match:
    more = {"logprobs": logprobs} if logprobs else {}
    reference = pair.reference(prompt, n, **more)
    return match(len(prompt), reference, pair.handoff(prompt, n, **more))


def right(matches: list[Match]) -> bool:
    return all(m.same for m in matches) and none_alone(matches)


def every_length(context: Context, pair: Pair, name: str) -> None:
    prompts = [context.prompt(length) for length in context.effort.lengths]
    matches = at_once(AT_A_TIME, lambda prompt: compare(pair, prompt), prompts)
    context.check(f"{name}.every-length", right(matches), summary(matches))


def boundaries(context: Context, pair: Pair, name: str) -> None:
    """Where the first key that the last prompt token sees ends a block, and one length to each side."""
    at = boundary_lengths(BLOCK, 330)
    for what, lengths in (("boundary", at), ("beside-it", [n + side for n in at for side in (-1, 1)])):
        prompts = [context.prompt(n) for n in lengths for _ in range(PROMPTS_AT_A_BOUNDARY)]
        matches = at_once(AT_A_TIME, lambda prompt: compare(pair, prompt, logprobs=TOP), prompts)
        far = max(m.distance for m in matches)
        held = right(matches) and far < NOISE
        detail = f"{summary(matches)}; log-probabilities at most {far:.2g} apart, lengths {lengths}"
        context.check(f"{name}.{what}", held, detail)


def prefix_hit(context: Context, pair: Pair, name: str) -> None:
    """D has the beginning of the prompt already, or P has it; D takes only what it lacks."""
    shared, tail = context.prompt(5 * BLOCK), [context.prompt(n) for n in (1, 31, 32, 33, 140)]
    before = moved(pair)
    matches = [compare(pair, context.prompt(len(shared) + len(rest)), logprobs=TOP) for rest in tail]
    whole = moved(pair) - before
    pair.d.ask(prompt=shared, n=1)
    pair.p.ask(prompt=shared, n=1)
    before = moved(pair)
    matches = [compare(pair, shared + rest, logprobs=TOP) for rest in tail]
    part = moved(pair) - before
    far = max(m.distance for m in matches)
    # Of the first, D may have all but the token that it computes.
    held = right(matches[1:]) and matches[0].same and far < NOISE and part < whole
    detail = f"{summary(matches)}; log-probabilities at most {far:.2g} apart; {part} bytes instead of {whole}"
    context.check(f"{name}.prefix-hit", held, detail)


def moved(pair: Pair) -> int:
    return pair.connector.moved(pair.d.figures())


def many(context: Context, pair: Pair, name: str) -> None:
    """Many at once: more than the engines run at a time, of lengths drawn at random."""
    prompts = [context.prompt(context.random.randrange(1, 400)) for _ in range(context.effort.requests)]
    references = at_once(AT_A_TIME, lambda prompt: pair.reference(prompt, TOKENS), prompts)
    answers = at_once(CONCURRENCY, lambda prompt: pair.handoff(prompt, TOKENS), prompts)
    matches = [match(len(p), r, a) for p, r, a in zip(prompts, references, answers, strict=True)]
    detail = f"{summary(matches)}, {CONCURRENCY} at a time"
    context.check(f"{name}.many", right(matches), detail)


def cut_prompt(context: Context, kind: str, dtype: str, name: str) -> None:
    """Models whose arithmetic depends on the order of work: the reference computes the last prompt token by itself, as a hand-off
    does, and has nothing else under way. Without a prefix cache vLLM cuts the prompt exactly there.

    Single precision must agree to the token. In half precision a hand-off may be as far from that reference as a run that does
    not cut the prompt is, and half as far again: these are maxima of samples.
    """
    try:
        with context.pair(kind, args={"dtype": dtype, "enable_prefix_caching": False}) as pair:
            runs = [apart(pair, context.prompt(n)) for n in context.effort.lengths[::3]]
    except EngineDied as died:
        context.check(name, False, f"does not start: {str(died).splitlines()[-1]}")
        return
    handed, whole = [hand for hand, _ in runs], [plain for _, plain in runs]
    far, bound = max(m.distance for m in handed), max(m.distance for m in whole)
    detail = f"{summary(handed)}; hand-offs at most {far:.2g} from the reference, uncut runs {bound:.2g}"
    if dtype == "float32":
        held = right(handed) and far < NOISE
    else:
        held = all(m.finish == "length" for m in handed) and none_alone(handed) and far <= 1.5 * bound
    context.check(name, held, detail)


def apart(pair: Pair, prompt: list[int]) -> tuple[Match, Match]:
    """A hand-off, and a plain run in one piece, beside the reference."""
    more = {"logprobs": TOP}
    reference = pair.reference(prompt, TOKENS, split=max(1, len(prompt) - 1), **more)
    answers = pair.handoff(prompt, TOKENS, **more), pair.reference(prompt, TOKENS, **more)
    handed, whole = (match(len(prompt), reference, answer) for answer in answers)
    return handed, whole
