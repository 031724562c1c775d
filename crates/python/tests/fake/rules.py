"""What a query sees: the definitions of attention, written without a look at kvferry."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Full:
    """Every key up to its own."""

    def first(self, query: int) -> int:
        return 0


@dataclass(frozen=True)
class Latent(Full):
    """The same, of one latent for all heads."""


@dataclass(frozen=True)
class Window:
    """The last `size` keys, its own among them."""

    size: int

    def first(self, query: int) -> int:
        return max(0, query - self.size + 1)


@dataclass(frozen=True)
class Chunk:
    """The keys of its own chunk."""

    size: int

    def first(self, query: int) -> int:
        return query // self.size * self.size


@dataclass(frozen=True)
class State:
    """The state that all tokens before it have left, and no key."""

    aligned: bool = True
    """A state for each block of tokens (`align`), or one for the request (`none`)."""

    def first(self, query: int) -> int:
        return max(0, query - 1)


Rule = Full | Window | Chunk | State
