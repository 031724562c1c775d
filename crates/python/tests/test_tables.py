"""Which of vLLM's blocks are handed off: lists by position, null where nothing is kept."""

from typing import Any

import pytest

from kvferry import KvferryError
from kvferry.vllm.groups import Group

FULL: dict[str, Any] = {"kind": "full"}
WINDOW: dict[str, Any] = {"kind": "sliding_window", "window": 40}
STATE: dict[str, Any] = {"kind": "recurrent", "recurrence": "mamba2"}
CASES = [
    # Of 33 tokens three blocks of 16; what is behind them is room for later ones.
    (FULL, [7, 3, 9], 33, 0, (0, [7, 3, 9])),
    (FULL, [7, 3, 9, 4], 33, 0, (0, [7, 3, 9])),
    (FULL, [7, 3], 32, 0, (0, [7, 3])),
    (FULL, [7], 1, 0, (0, [7])),
    # The first 16 or 32 tokens are there already; a hit within a block begins with that block.
    (FULL, [7, 3, 9], 33, 16, (16, [3, 9])),
    (FULL, [7, 3, 9], 33, 32, (32, [9])),
    (FULL, [7, 3, 9], 33, 31, (16, [3, 9])),
    # All of it is there.
    (FULL, [7, 3], 32, 32, (32, [])),
    # Blocks that the window has let go.
    (WINDOW, [0, 0, 9, 4, 6], 70, 0, (32, [9, 4, 6])),
    (WINDOW, [0, 0, 9, 4, 6], 70, 16, (32, [9, 4, 6])),
    (WINDOW, [0, 0, 9, 4, 6], 70, 48, (48, [4, 6])),
    (WINDOW, [0, 0], 32, 0, (32, [])),
    # The state behind 48 tokens is in the third block, whatever scratch comes after it.
    (STATE, [0, 0, 5], 48, 0, (48, [5])),
    (STATE, [0, 0, 5], 33, 0, (33, [5])),
    (STATE, [0, 0, 5, 8, 9], 48, 0, (48, [5])),
    (STATE, [0, 0, 0, 8, 9], 49, 0, (49, [8])),
    (STATE, [5], 70, 0, (70, [5])),
    (STATE, [0, 0, 5], 48, 32, (48, [5])),
]


@pytest.mark.parametrize(("kind", "ids", "tokens", "hit", "wanted"), CASES)
def test_table(kind: Any, ids: list[int], tokens: int, hit: int, wanted: Any) -> None:
    assert Group(0, kind, 16, ("layer",)).table(ids, tokens, hit) == wanted


@pytest.mark.parametrize("ids", [[], [0], [5, 0]])
def test_a_state_that_is_not_kept_is_not_handed_off(ids: list[int]) -> None:
    with pytest.raises(KvferryError, match="no state of group 1 after 32 tokens"):
        Group(1, STATE, 16, ("a",)).table(ids, 32)
