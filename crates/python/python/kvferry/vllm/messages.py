"""What vLLM carries between the scheduler's half of the connector and those of the workers.

Plain dataclasses: vLLM pickles them.
"""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)


@dataclass
class Step(KVConnectorMetadata):
    """What the workers are told in one step."""

    orders: bytes | None = None
    """For `kvferry.Worker.follow`."""
    awaited: tuple[str, ...] = ()
    """Requests that vLLM parks until every worker has said that they are here."""
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
