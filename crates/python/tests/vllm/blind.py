"""A control: kvferry's connector that takes every prompt of one length for the same.

What the suite then sees is what the comparison of prompts prevents. vLLM loads it from beside `engine.py`.
"""

from typing import Any

from kvferry import PromptDigest, prompt_digest
from kvferry.vllm import KvferryConnector
from kvferry.vllm.identity import Identity
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole


class BlindIdentity(Identity):
    def digest(self, request: Any, valid: int) -> PromptDigest:
        return prompt_digest([0] * valid, model=self.model, revision=self.revision)


class BlindConnector(KvferryConnector):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        if role is KVConnectorRole.SCHEDULER:
            self._scheduler._identity.__class__ = BlindIdentity
