"""Blocks of an engine: given out in no order, counted, found again by prefix, painted when free."""

import random

from .model import Model, Rank
from .rules import State

NULL = 0
PAINT = 0xEE


class Pool:
    """Block 0 is the null block. A free block that no prefix names is painted over at once."""

    def __init__(self, model: Model, ranks: list[Rank], caching: bool) -> None:
        self.model, self.ranks, self.caching = model, ranks, caching
        self.free = list(range(1, model.blocks))
        random.Random(model.blocks).shuffle(self.free)
        self.users: dict[int, int] = {}
        self.ids: dict[tuple[int, int, int], int] = {}
        self.names: dict[int, tuple[int, int, int]] = {}

    def take(self) -> int:
        block = self.free.pop(0)
        if name := self.names.pop(block, None):
            del self.ids[name]
        self.users[block] = 1
        return block

    def share(self, block: int) -> int:
        if block in self.users:
            self.users[block] += 1
        else:
            self.free.remove(block)
            self.users[block] = 1
        return block

    def give_back(self, block: int) -> None:
        if block == NULL:
            return
        self.users[block] -= 1
        if self.users[block] == 0:
            del self.users[block]
            self.free.append(block)
            if block not in self.names:
                self.paint(block)

    def paint(self, block: int) -> None:
        for rank in self.ranks:
            rank.pages()[block] = PAINT

    def publish(self, block: int, name: tuple[int, int, int]) -> None:
        if self.caching and block != NULL and name not in self.ids and block not in self.names:
            self.ids[name] = block
            self.names[block] = name

    def forget(self) -> None:
        """Nothing is found by its prefix any more."""
        for block in [block for block in self.names if block not in self.users]:
            self.paint(block)
        self.ids.clear()
        self.names.clear()

    @property
    def is_whole(self) -> bool:
        return not self.users and sorted(self.free) == list(range(1, self.model.blocks))


class Tables:
    """The block lists of one request, one a group, by position; null where nothing is kept."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.model = pool, pool.model
        self.ids: list[list[int]] = [[] for _ in self.model.groups]

    def skipped(self, group: int, computed: int) -> int:
        """Blocks at the front that no query from `computed` on sees."""
        return self.model.groups[group][0].first(computed) // self.model.block_of(group)

    def wanted(self, computed: int, upto: int) -> list[tuple[int, int]]:
        return [
            (group, index)
            for group, ids in enumerate(self.ids)
            for index in range(len(ids), -(-upto // self.model.block_of(group)))
            if index >= self.skipped(group, computed)
        ]

    def grow(self, computed: int, upto: int, reserved: int = 0) -> bool:
        """Room for the tokens up to `upto`, of which `computed` are there or will be loaded, if
        `reserved` blocks stay free."""
        self.shrink(computed)
        wanted = set(self.wanted(computed, upto))
        if len(wanted) + reserved > len(self.pool.free):
            return False
        for group, ids in enumerate(self.ids):
            for index in range(len(ids), -(-upto // self.model.block_of(group))):
                ids.append(self.pool.take() if (group, index) in wanted else NULL)
        return True

    def shrink(self, computed: int) -> None:
        """Gives back what no later query sees."""
        for group, ids in enumerate(self.ids):
            for index in range(min(self.skipped(group, computed), len(ids))):
                self.pool.give_back(ids[index])
                ids[index] = NULL

    def clear(self) -> None:
        for ids in self.ids:
            for block in reversed(ids):
                self.pool.give_back(block)
            ids.clear()

    def publish(self, digests: list[int], computed: int) -> None:
        """Whole blocks can be found from now on; a state only where it is that of a block's end."""
        for group, ids in enumerate(self.ids):
            size, rule = self.model.block_of(group), self.model.groups[group][0]
            for index in range(min(computed // size, len(ids))):
                end = (index + 1) * size
                if not isinstance(rule, State) or end == computed:
                    self.pool.publish(ids[index], (group, index, digests[end - 1]))

    def lookup(self, digests: list[int], tokens: int) -> tuple[int, list[list[int]]]:
        """The longest prefix of at most `tokens` tokens of which every group has all that the
        query behind it sees, and its blocks."""
        block = self.model.block
        for hit in range(tokens // block * block, 0, -block):
            found = [self._find(group, digests, hit) for group in range(len(self.ids))]
            if all(ids is not None for ids in found):
                return hit, found
        return 0, [[] for _ in self.ids]

    def adopt(self, found: list[list[int]], total: int) -> None:
        """Uses such blocks, but those that no query behind `total` tokens sees."""
        for group, ids in enumerate(found):
            seen = min(self.skipped(group, total), len(ids))
            self.ids[group] = [NULL] * seen
            self.ids[group] += [self.pool.share(one) if one else NULL for one in ids[seen:]]

    def _find(self, group: int, digests: list[int], hit: int) -> list[int] | None:
        size, ids = self.model.block_of(group), []
        for index in range(hit // size):
            if index < self.skipped(group, hit):
                ids.append(NULL)
                continue
            name = (group, index, digests[(index + 1) * size - 1])
            if name not in self.pool.ids:
                return None
            ids.append(self.pool.ids[name])
        return ids if hit % size == 0 else None
