"""The native half of kvferry."""

from typing import Any, Literal

__version__: str

Table = tuple[int, list[int]]
"""Position of the first token of the first block, and the block ids."""
DType = Literal["bf16", "f16", "f32", "fp8"]
Part = Literal["prefill", "decode", "both"]
Kind = Literal["retry", "peer_lost", "protocol", "config", "exhausted", "bug"]
Ending = Literal["satisfied", "released", "over"]

class KvferryError(Exception): ...
class RetryError(KvferryError): ...
class PeerLostError(KvferryError): ...
class ProtocolError(KvferryError): ...
class ConfigError(KvferryError): ...
class ExhaustedError(KvferryError): ...
class BugError(KvferryError): ...

class Memory:
    """``length`` bytes from ``address`` on, which stay there until ``owner`` is collected."""

    def __init__(self, address: int, length: int, owner: object) -> None: ...
    def __len__(self) -> int: ...

class CacheLayout:
    """Regions, KV cache groups and the place of every layer, of one rank."""

    def __init__(self, layout: dict[str, Any]) -> None: ...
    def to_dict(self) -> dict[str, Any]: ...

class Config:
    """How an agent works. Times are in seconds."""

    def __init__(
        self,
        *,
        listen: str = "127.0.0.1:0",
        advertise: str | None = None,
        secret_file: str | None = None,
        allow: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        tls_ca: str | None = None,
        lease_seconds: float | None = None,
        read_timeout_seconds: float | None = None,
        transport: str = "auto",
        streams: int | None = None,
    ) -> None: ...

class Engine:
    """One worker of an engine; ``offsets`` are those of its regions in ``memory``, in bytes."""

    def __init__(
        self,
        name: str,
        *,
        model: str,
        revision: str = "",
        dtype: DType,
        epoch: int | None = None,
        rank: int = 0,
        layouts: list[CacheLayout],
        memory: Memory,
        offsets: list[int],
    ) -> None: ...

class PromptDigest:
    """A number of tokens and a digest of all that decided their KV."""

    @property
    def valid(self) -> int: ...
    @property
    def sha256(self) -> bytes: ...

def prompt_digest(
    tokens: list[int],
    *,
    model: str,
    revision: str = "",
    lora: str | None = None,
    multimodal: list[str] = ...,
    salt: str | None = None,
) -> PromptDigest: ...
def random_u64() -> int: ...
def log_to_stderr(filter: str = "warn") -> None: ...
def plan(
    sources: list[CacheLayout],
    targets: list[CacheLayout],
    rank: int,
    source_tables: list[list[Table]],
    target_tables: list[Table],
    *,
    valid: int,
    resume_at: int,
    hits: list[int] = ...,
) -> list[list[tuple[int, list[int], int, list[int], int]]]:
    """Of each source rank: source region and blocks, target region and blocks, bytes."""

class Outcome:
    what: Literal["freed", "received", "failed", "released"]
    request: str
    message: str | None
    kind: Kind | None
    recompute_from: int | None

class Scheduler:
    """The hand-off at an engine's scheduler. No call waits."""

    def __init__(
        self,
        epoch: int,
        *,
        engine_id: str,
        tp_size: int,
        addresses: list[tuple[str, int] | None],
    ) -> None: ...
    def finish(self, request: str, prompt: PromptDigest, tables_of: list[Table]) -> dict[str, Any]: ...
    def admit(self, request: str, params: dict[str, Any]) -> int: ...
    def fetch(self, request: str, params: dict[str, Any], prompt: PromptDigest) -> None: ...
    def allocate(
        self,
        request: str,
        tables_of: list[Table],
        resume_at: int,
        groups: list[tuple[dict[str, Any], int]],
    ) -> None: ...
    def release(self, request: str) -> None: ...
    def hear(self, rank: int, words: bytes) -> None: ...
    def withdraw(self) -> None: ...
    def orders(self) -> bytes | None: ...
    def outcomes(self) -> list[Outcome]: ...
    @property
    def leases(self) -> int: ...
    @property
    def requests(self) -> int: ...
    @property
    def strays(self) -> int: ...

class Report:
    what: Literal["freed", "received", "failed", "released", "nothing"]
    request: str
    why: Ending | None
    message: str | None
    kind: Kind | None
    bytes: int
    claiming: float
    reading: float

class Path:
    peer: str
    provider: str
    bytes_per_second: int | None
    why: str
    falls_short: bool

class Worker:
    """One rank, led by the orders of its engine's scheduler. Only ``withdraw`` waits."""

    def __init__(self, config: Config, engine: Engine, part: Part = "both") -> None: ...
    @property
    def address(self) -> tuple[str, int] | None: ...
    def follow(self, bytes: bytes) -> None: ...
    def reports(self) -> tuple[list[Report], bytes | None]: ...
    def paths(self) -> list[Path] | None: ...
    def withdraw(self) -> None: ...
    def restore(self) -> None: ...
    def counts(self) -> dict[str, int]: ...

class Prefill:
    """A prefill engine of one rank."""

    def __init__(self, config: Config, engine: Engine) -> None: ...
    def offer(self, request: str, prompt: PromptDigest, tables_of: list[Table]) -> dict[str, Any]: ...
    def freed(self, timeout: float) -> tuple[str, Ending] | None: ...

class Offered:
    """A claimed prompt."""

    def receive(self, tables_of: list[Table], resume_at: int, hits: list[int] = ...) -> int: ...

class Decode:
    """A decode engine of one rank."""

    def __init__(self, config: Config, engine: Engine) -> None: ...
    def claim(self, request: str, params: dict[str, Any], prompt: PromptDigest) -> Offered: ...
