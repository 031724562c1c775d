"""The connector that vLLM loads: routes each call to the half that it belongs to."""

from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvferry import log_to_stderr

from .groups import groups_of
from .identity import Identity
from .messages import Words
from .options import Options
from .scheduler import Manner, SchedulerHalf
from .staging import CopyBlocks
from .stats import PromMetrics, Stats
from .worker import WorkerHalf

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request


class KvferryConnector(KVConnectorBase_V1, SupportsHMA):
    """Hands KV caches off, pulled by the decode engine. Each object is one half only."""

    _cache_hit_source = CacheHitSource.P2P

    # Only one of the two is there, and vLLM calls only its hooks.
    _scheduler: SchedulerHalf
    _worker: WorkerHalf

    def __init__(
        self,
        vllm_config: "VllmConfig",
        role: KVConnectorRole,
        kv_cache_config: "KVCacheConfig",
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        config = vllm_config.kv_transfer_config
        options = Options.of(config.kv_connector_extra_config)
        log_to_stderr(options.log)
        groups = groups_of(kv_cache_config)
        if role is KVConnectorRole.WORKER:
            self._worker = WorkerHalf(vllm_config, kv_cache_config, options, groups)
            return
        manner = Manner(
            engine_id=config.engine_id,
            tensor_parallel_size=vllm_config.parallel_config.tensor_parallel_size,
            consumes_only=not config.is_kv_producer,
            computes_failed=config.kv_load_failure_policy == "recompute",
        )
        self._scheduler = SchedulerHalf(manner, Identity(vllm_config, options), groups)

    # What vLLM asks of the class.

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: "VllmConfig") -> str | None:
        """Heads before tokens, where the attention backend can: then ranks of another tensor
        parallel size read whole runs. Where it cannot, any order is handed off as well."""
        return None if vllm_config.model_config.use_mla else "LBHNC"

    @classmethod
    def supports_sleep_mode(cls, *_: Any, **__: Any) -> bool:
        return True

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVConnectorStats | None:
        return Stats() if data is None else Stats(data)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: "VllmConfig",
        metric_types: dict[type[Any], type[Any]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics:
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # Beside the scheduler.

    def set_xfer_handshake_metadata_pp_aware(
        self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]
    ) -> None:
        self._scheduler.start(list(metadata.values()))

    def set_xfer_handshake_metadata(
        self, metadata: dict[int, KVConnectorHandshakeMetadata]
    ) -> None:
        self._scheduler.start(list(metadata.values()))

    def on_new_request(self, request: "Request") -> None:
        self._scheduler.arrive(request)

    def get_num_new_matched_tokens(
        self, request: "Request", num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self._scheduler.tokens_elsewhere(request, num_computed_tokens)

    def get_loaded_kv_cache_group_ids(self, request: "Request") -> tuple[int, ...]:
        return self._kv_cache_config.transfer_group_ids

    def update_state_after_alloc(
        self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int
    ) -> None:
        self._scheduler.give(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        return self._scheduler.step()

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        self._scheduler.hear(connector_output)

    def request_finished_all_groups(
        self, request: "Request", block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler.finish(request, block_ids)

    def request_finished(
        self, request: "Request", block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler.finish(request, (block_ids,))

    # In a worker.

    def register_kv_caches(self, kv_caches: "dict[str, torch.Tensor]") -> None:
        self._worker.register(kv_caches)

    def set_host_xfer_buffer_ops(self, copy_operation: CopyBlocks) -> None:
        self._worker.copy_with(copy_operation)

    def unregister_kv_caches(self) -> None:
        self._worker.withdraw()

    def restore_kv_caches(self) -> None:
        self._worker.restore()

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        return self._worker.presence

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Before the forward pass, where `start_load_kv` comes after it: a lease that waits for the
        next prefill to be computed keeps the decode engine waiting as long."""
        super().bind_connector_metadata(connector_metadata)
        self._worker.follow(connector_metadata)

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        """All that a step asks for has begun when it was bound."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded while a layer is computed."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: "torch.Tensor", attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Blocks are read out of the engine's own memory."""

    def wait_for_save(self) -> None:
        """As above."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        return self._worker.results()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        raise NotImplementedError(
            "get_finished cannot say that a load has failed: kvferry needs a vLLM that calls "
            "get_transfer_results"
        )

    def build_connector_worker_meta(self) -> Words | None:
        return self._worker.words()

    # In both.

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        stats = self._worker.stats if self._is_worker else self._scheduler.stats
        return stats.take()

    def shutdown(self) -> None:
        if self._is_worker:
            self._worker.close()

    @property
    def _is_worker(self) -> bool:
        return self.role is KVConnectorRole.WORKER
