"""What decides the KV of a vLLM request."""

from typing import TYPE_CHECKING

from kvferry import PromptDigest, prompt_digest

from .options import Options

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.request import Request


class Identity:
    """The model that an engine runs, as its peers must know it."""

    def __init__(self, vllm_config: "VllmConfig", options: Options) -> None:
        model = vllm_config.model_config
        self.model = options.model or model.model
        self.revision = options.revision or model.revision or ""

    def digest(self, request: "Request", valid: int) -> PromptDigest:
        """Of the first `valid` tokens of a request's prompt."""
        lora = request.lora_request
        return prompt_digest(
            request.prompt_token_ids[:valid],
            model=self.model,
            revision=self.revision,
            lora=None if lora is None else lora.lora_name,
            multimodal=[feature.identifier for feature in request.mm_features],
            salt=request.cache_salt,
        )
