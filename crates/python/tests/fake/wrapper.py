"""A connector of two, as vLLM's MultiConnector: all children hear of everything, one loads."""

from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)

from kvferry.vllm import KvferryConnector


@dataclass
class Each(KVConnectorMetadata, KVConnectorWorkerMetadata):
    parts: list[Any]

    def aggregate(self, other: "Each") -> "Each":
        pairs = zip(self.parts, other.parts)
        return Each([b if a is None else a if b is None else a.aggregate(b) for a, b in pairs])


class Cache(KVConnectorBase_V1, SupportsHMA):
    """Another connector: an offloading cache that has `holds` tokens of every prompt, and claims
    to have loaded them. Remembers which hooks were called."""

    holds = 0

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.called: list[str] = []
        self.loads: list[str] = []
        self.received: set[str] = set()

    def on_new_request(self, request: Any) -> None:
        self.called.append("on_new_request")

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        self.called.append("get_num_new_matched_tokens")
        tokens = max(0, self.holds - num_computed_tokens) if request.num_preemptions == 0 else 0
        return tokens, tokens > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self.called.append("update_state_after_alloc")

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return Each([])

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> Any:
        self.called.append("request_finished_all_groups")
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self.called.append("start_load_kv")

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **_: Any) -> None: ...

    def wait_for_save(self) -> None: ...


class Wrapper(KVConnectorBase_V1, SupportsHMA):
    """Its children in the order of `kinds`."""

    kinds: tuple[type, ...] = (KvferryConnector, Cache)

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.children = [kind(vllm_config, role, kv_cache_config) for kind in self.kinds]
        self.ours = next(one for one in self.children if isinstance(one, KvferryConnector))
        self.loader: dict[str, Any] = {}

    @property
    def _scheduler(self) -> Any:
        return self.ours._scheduler

    @property
    def _worker(self) -> Any:
        return self.ours._worker

    def _all(self, hook: str, *args: Any, **more: Any) -> list[Any]:
        return [getattr(child, hook)(*args, **more) for child in self.children]

    def on_new_request(self, request: Any) -> None:
        self._all("on_new_request", request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        answers = self._all("get_num_new_matched_tokens", request, num_computed_tokens)
        for child, (tokens, later) in zip(self.children, answers):
            if tokens:
                self.loader[request.request_id] = child
                return tokens, later
        return 0, False

    def get_loaded_kv_cache_group_ids(self, request: Any) -> Any:
        return self.loader[request.request_id].get_loaded_kv_cache_group_ids(request)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        for child in self.children:
            loads = child is self.loader.get(request.request_id)
            child.update_state_after_alloc(request, blocks, num_external_tokens if loads else 0)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return Each(self._all("build_connector_meta", scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        told = connector_output.kv_connector_worker_meta
        for at, child in enumerate(self.children):
            if told is not None:
                connector_output.kv_connector_worker_meta = told.parts[at]
            child.update_connector_output(connector_output)
        connector_output.kv_connector_worker_meta = told

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> Any:
        answers = self._all("request_finished_all_groups", request, block_ids)
        told = [params for _, params in answers if params is not None]
        return any(keeps for keeps, _ in answers), told[0] if told else None

    def set_xfer_handshake_metadata_pp_aware(self, metadata: Any) -> None:
        self._all("set_xfer_handshake_metadata_pp_aware", metadata)

    def register_kv_caches(self, kv_caches: Any) -> None:
        self._all("register_kv_caches", kv_caches)

    def get_handshake_metadata(self) -> Any:
        return next((one for one in self._all("get_handshake_metadata") if one is not None), None)

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        for child, own in zip(self.children, connector_metadata.parts):
            child.bind_connector_metadata(own)

    def clear_connector_metadata(self) -> None:
        super().clear_connector_metadata()
        self._all("clear_connector_metadata")

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._all("start_load_kv", forward_context, **kwargs)

    def wait_for_layer_load(self, layer_name: str) -> None:
        self._all("wait_for_layer_load", layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **more: Any) -> None:
        self._all("save_kv_layer", layer_name, kv_layer, attn_metadata, **more)

    def wait_for_save(self) -> None:
        self._all("wait_for_save")

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        total = KVConnectorTransferResults()
        for one in self._all("get_transfer_results", finished_req_ids):
            for name in ("finished_sending", "finished_recving", "failed_recving"):
                getattr(total, name).update(getattr(one, name))
        return total

    def build_connector_worker_meta(self) -> Any:
        parts = self._all("build_connector_worker_meta")
        return Each(parts) if any(part is not None for part in parts) else None

    def get_kv_connector_stats(self) -> Any:
        return self.ours.get_kv_connector_stats()

    def shutdown(self) -> None:
        self._all("shutdown")
