"""Hands the KV cache of a request from a prefill engine to a decode engine.

An engine of one rank uses :class:`Prefill` and :class:`Decode`. An engine whose scheduler and
workers are processes of their own has a :class:`Scheduler` in the one and a :class:`Worker` in
each of the others, and carries what they say to each other. ``kvferry.vllm`` does that for
vLLM.
"""

from ._kvferry import (
    BugError,
    CacheLayout,
    Config,
    ConfigError,
    Decode,
    Engine,
    ExhaustedError,
    KvferryError,
    Memory,
    Offered,
    Outcome,
    Path,
    PeerLostError,
    Prefill,
    PromptDigest,
    ProtocolError,
    Report,
    RetryError,
    Scheduler,
    Worker,
    __version__,
    log_to_stderr,
    plan,
    prompt_digest,
    random_u64,
)
from .memory import memory_of

__all__ = [
    "BugError",
    "CacheLayout",
    "Config",
    "ConfigError",
    "Decode",
    "Engine",
    "ExhaustedError",
    "KvferryError",
    "Memory",
    "Offered",
    "Outcome",
    "Path",
    "PeerLostError",
    "Prefill",
    "PromptDigest",
    "ProtocolError",
    "Report",
    "RetryError",
    "Scheduler",
    "Worker",
    "__version__",
    "log_to_stderr",
    "memory_of",
    "plan",
    "prompt_digest",
    "random_u64",
]
