"""A request as an engine's core has it."""

from dataclasses import dataclass, field
from typing import Any

from vllm.v1.request import RequestStatus

from .model import chain, greedy
from .pool import Tables


@dataclass(eq=False, repr=False)
class Request:
    request_id: str
    prompt_token_ids: list[int] | None
    max_tokens: int = 1
    kv_transfer_params: dict[str, Any] | None = None
    lora_request: Any = None
    mm_features: list[Any] = field(default_factory=list)
    cache_salt: str | None = None
    skips_prefix_cache: bool = False

    status: RequestStatus = RequestStatus.WAITING
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    output: list[int] = field(default_factory=list)
    params: dict[str, Any] | None = None
    """What the engine's answer carries."""
    tables: Tables | None = None
    loads: list[int] = field(default_factory=list)
    """Tokens that were to be loaded, of each time."""

    def __post_init__(self) -> None:
        self._all_token_ids = list(self.prompt_token_ids or [7] * 20)
        self.num_prompt_tokens = len(self._all_token_ids)
        self.asked = list(self._all_token_ids), self.max_tokens

    def __repr__(self) -> str:
        return f"{self.request_id} {self.status.name} {self.num_computed_tokens}/{self.num_tokens}"

    @property
    def num_tokens(self) -> int:
        return len(self._all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.output)

    @property
    def is_over(self) -> bool:
        return RequestStatus.is_finished(self.status)

    def get_skip_reading_prefix_cache(self) -> bool:
        return self.skips_prefix_cache

    def digests(self) -> list[int]:
        return chain(self._all_token_ids).tolist()

    def say(self, token: int) -> None:
        self.output.append(token)
        self._all_token_ids.append(token)

    @property
    def is_right(self) -> bool:
        """Ended as it should, with the tokens of an engine that computes everything itself."""
        return self.status is RequestStatus.FINISHED_LENGTH_CAPPED and self.output == greedy(
            *self.asked
        )
