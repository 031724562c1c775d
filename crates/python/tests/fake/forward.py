"""A forward pass: looks at every number that attention looks at, and writes the new ones."""

import numpy as np

from .model import Rank, chain, next_token
from .pool import NULL
from .request import Request
from .rules import State

WRONG = -1
"""The token of a model that has read something else than it should have."""


def run(ranks: list[Rank], request: Request, start: int, end: int) -> int:
    """Computes positions `start` to `end` of a request, and gives the token after them."""
    digests = chain(request._all_token_ids)
    seen = [holds(rank, request, start) for rank in ranks]
    for rank in ranks:
        write(rank, request, digests, start, end)
    return next_token(request._all_token_ids[:end]) if all(seen) else WRONG


def holds(rank: Rank, request: Request, query: int) -> bool:
    """Whether a rank has all that a query sees before itself."""
    return all(
        _layer_holds(rank, request, layer, query) for layer in range(len(rank.tensors))
    )


def _layer_holds(rank: Rank, request: Request, layer: int, query: int) -> bool:
    name, group, _ = rank.model.layers()[layer]
    rule, ids = rank.model.groups[group][0], request.tables.ids[group]
    digests, words = chain(request._all_token_ids), rank.tensors[name].words()
    if query == 0:
        return True
    if isinstance(rule, State):
        block = ids[(query - 1) // rank.model.block_of(group)]
        state = rank.state(layer, digests[query - 1])
        return block != NULL and bool((words[block, 0, 0] == state).all())
    positions = np.arange(rule.first(query), query)
    at = rank.keys(name, ids, positions)
    return bool((at[0] > 0).all() and (words[at] == rank.truth(layer, digests[positions])).all())


def write(rank: Rank, request: Request, digests: np.ndarray, start: int, end: int) -> None:
    positions = np.arange(start, end)
    for layer, (name, group, _) in enumerate(rank.model.layers()):
        rule, ids = rank.model.groups[group][0], request.tables.ids[group]
        words = rank.tensors[name].words()
        if isinstance(rule, State):
            block = ids[(end - 1) // rank.model.block_of(group)]
            words[block, 0, 0] = rank.state(layer, digests[end - 1])
        else:
            words[rank.keys(name, ids, positions)] = rank.truth(layer, digests[positions])
