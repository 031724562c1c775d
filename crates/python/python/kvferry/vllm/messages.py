"""What vLLM carries between the scheduler's half of the connector and those of the workers.

Plain dataclasses: vLLM pickles them.
"""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

Blocks = list[list[int]]
"""Of each group that is handed off, the blocks of one request."""


@dataclass
class Step(KVConnectorMetadata):
    """What the workers are told in one step."""

    orders: bytes | None = None
    """For `kvferry.Worker.follow`."""
    awaited: dict[str, Blocks] = field(default_factory=dict)
    """Requests that vLLM parks until every worker has said that they are here, and the blocks that
    they are read into."""
    leased: list[Blocks] = field(default_factory=list)
    """Blocks that are promised from this step on."""
    refused: tuple[str, ...] = ()
    """Requests that vLLM parks although they have failed already."""
    unheard: tuple[str, ...] = ()
    """Requests that vLLM does not wait for, whatever the workers say of them yet."""


@dataclass
class Words(KVConnectorWorkerMetadata):
    """What workers report, by rank, for `kvferry.Scheduler.hear`."""

    words: list[tuple[int, bytes]] = field(default_factory=list)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "Words":
        assert isinstance(other, Words)
        return Words(self.words + other.words)


@dataclass
class Presence(KVConnectorHandshakeMetadata):
    """Who a worker is, told to its scheduler when it has started."""

    epoch: int
    rank: int
    address: tuple[str, int] | None
