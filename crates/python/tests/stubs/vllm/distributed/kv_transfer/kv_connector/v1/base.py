"""The interface of vLLM 0.32, and what 0.33 adds, with the answers of its base class."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from vllm.v1.metrics.cache_hit_source import CacheHitSource


@dataclass
class KVConnectorTransferResults:
    finished_sending: set[str] = field(default_factory=set)
    finished_recving: set[str] = field(default_factory=set)
    failed_recving: set[str] = field(default_factory=set)


class KVConnectorRole(Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorHandshakeMetadata(ABC):
    """What a worker tells its scheduler at the start."""


class KVConnectorMetadata(ABC):
    """What a scheduler tells its workers in a step."""


class KVConnectorWorkerMetadata(ABC):
    """What a worker tells its scheduler after a step."""

    @abstractmethod
    def aggregate(self, other: Any) -> Any: ...


class SupportsHMA(ABC):
    @abstractmethod
    def request_finished_all_groups(self, request: Any, block_ids: Any) -> Any: ...


def supports_hma(connector: Any) -> bool:
    kind = connector if isinstance(connector, type) else type(connector)
    return issubclass(kind, SupportsHMA)


class _Common:
    """What the object is made with, and the class methods."""

    _cache_hit_source = CacheHitSource.EXTERNAL_UNSPECIFIED

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        self._connector_metadata: KVConnectorMetadata | None = None
        self._vllm_config = vllm_config
        self._kv_transfer_config = vllm_config.kv_transfer_config
        self._kv_cache_config = kv_cache_config
        self._kv_cache_manager: Any = None
        self._role = role

    @property
    def role(self) -> KVConnectorRole:
        return self._role

    @property
    def requires_kv_delivery(self) -> bool:
        return self._kv_transfer_config.is_kv_producer

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        return False

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> Any:
        return None

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: Any) -> bool:
        return False

    @classmethod
    def supports_sleep_mode(cls, vllm_config: Any) -> bool:
        return False

    @classmethod
    def build_kv_connector_stats(cls, data: Any = None) -> Any:
        return None

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any
    ) -> Any:
        return None

    def get_kv_connector_stats(self) -> Any:
        return None

    def shutdown(self) -> None: ...


class _OfWorkers(_Common):
    def get_mem_pool_context(self) -> Any:
        return None

    def register_kv_caches(self, kv_caches: Any) -> None: ...

    def unregister_kv_caches(self) -> None: ...

    def restore_kv_caches(self) -> None: ...

    def set_host_xfer_buffer_ops(self, copy_operation: Any) -> None: ...

    def get_handshake_metadata(self) -> Any:
        return None

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self) -> None:
        self._connector_metadata = None

    def has_connector_metadata(self) -> bool:
        return self._connector_metadata is not None

    def _get_connector_metadata(self) -> Any:
        assert self._connector_metadata is not None, "no metadata of this step"
        return self._connector_metadata

    def handle_preemptions(self, kv_connector_metadata: Any) -> None: ...

    def reset_capture_state(self) -> None: ...

    def finish_forward(self) -> None: ...

    def get_finished(self, finished_req_ids: set[str]) -> Any:
        return None, None

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        sent, received = self.get_finished(finished_req_ids)
        return KVConnectorTransferResults(set(sent or ()), set(received or ()))

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set()

    def get_kv_connector_kv_cache_events(self) -> Any:
        return None

    def build_connector_worker_meta(self) -> Any:
        return None


class KVConnectorBase_V1(_OfWorkers, ABC):
    @abstractmethod
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...

    @abstractmethod
    def wait_for_layer_load(self, layer_name: str) -> None: ...

    @abstractmethod
    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None: ...

    @abstractmethod
    def wait_for_save(self) -> None: ...

    @abstractmethod
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any: ...

    @abstractmethod
    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None: ...

    @abstractmethod
    def build_connector_meta(self, scheduler_output: Any) -> Any: ...

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self._kv_cache_manager = kv_cache_manager
        self.bind_gpu_block_pool(kv_cache_manager.block_pool)

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None: ...

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return self._kv_cache_config.prefix_cacheable_group_ids

    def get_external_cache_hit_sources(
        self, request: Any, num_external_tokens: int
    ) -> dict[CacheHitSource, int]:
        return {self._cache_hit_source: num_external_tokens} if num_external_tokens else {}

    def on_new_request(self, request: Any) -> None: ...

    def update_connector_output(self, connector_output: Any) -> None: ...

    def request_finished(self, request: Any, block_ids: list[int]) -> Any:
        return False, None

    def register_finished_partial_tail(
        self, request: Any, block_ids: Any, partial_tail_offloads: Any
    ) -> bool:
        return False

    def take_events(self) -> Any:
        return ()

    def has_pending_block_frees(self) -> bool:
        return False

    def has_pending_push_work(self) -> bool:
        return False

    def reset_cache(self) -> bool | None:
        return None

    def get_finished_count(self) -> int | None:
        return None

    def set_xfer_handshake_metadata(self, metadata: Any) -> None: ...

    def set_xfer_handshake_metadata_pp_aware(self, metadata: Any) -> None:
        if any(stage for stage, _ in metadata):
            raise ValueError("no pipeline stages")
        self.set_xfer_handshake_metadata({rank: told for (_, rank), told in metadata.items()})
