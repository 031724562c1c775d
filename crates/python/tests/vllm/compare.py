"""When two answers are the same."""

from dataclasses import dataclass
from typing import Any

Answer = dict[str, Any]


@dataclass(frozen=True)
class Match:
    """One prompt's answer beside the reference."""

    length: int
    first_difference: int | None
    """The first token that differs."""
    distance: float
    """How far log-probabilities lie apart, at most; zero if none were asked for."""
    finish: str
    took_over: bool
    """Whether D had anything of P, and did not compute the prompt by itself."""

    @property
    def same(self) -> bool:
        return self.first_difference is None and self.finish == "length"


def match(length: int, reference: Answer, answer: Answer) -> Match:
    return Match(
        length,
        first_difference(reference["tokens"], answer.get("tokens", [])),
        distance(reference, answer),
        answer["finish"],
        answer.get("ready_s") is not None,
    )


def first_difference(wanted: list[int], got: list[int]) -> int | None:
    if wanted == got:
        return None
    pairs = zip(wanted, got, strict=False)
    return next((at for at, (w, g) in enumerate(pairs) if w != g), min(len(wanted), len(got)))


def distance(reference: Answer, answer: Answer) -> float:
    """The largest difference of a token's log-probability, over the tokens that both list.

    Positions count up to the first that chose another token, itself included: what follows has another context.
    """
    until = first_difference(reference["tokens"], answer.get("tokens", []))
    pairs = zip(reference.get("logprobs", ()), answer.get("logprobs", ()), strict=False)
    far = 0.0
    for at, (wanted, got) in enumerate(pairs):
        if until is not None and at > until:
            break
        far = max([far, *(abs(wanted[token] - got[token]) for token in wanted.keys() & got.keys())])
    return far


def none_alone(matches: list[Match]) -> bool:
    """Right tokens prove nothing if D computed the prompt itself. One token it does compute itself."""
    return all(m.took_over for m in matches if m.length > 1)


def summary(matches: list[Match]) -> str:
    """So many of so many, and what the others were."""
    good = sum(m.same for m in matches)
    bad = [f"{m.length}:{m.finish}@{m.first_difference}" for m in matches if not m.same]
    shown = ", ".join(bad[:12]) + (" …" if len(bad) > 12 else "")
    alone = sum(not m.took_over for m in matches if m.length > 1 and m.finish == "length")
    parts = [f"{good} of {len(matches)} the same"]
    parts += [f"length:end@token {shown}"] if bad else []
    parts += [f"{alone} computed by D alone"] if alone else []
    return "; ".join(parts)
