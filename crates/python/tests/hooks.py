"""Every call that vLLM makes of a connector: what it passes by position and by name."""

from typing import Any, NamedTuple


class Hook(NamedTuple):
    name: str
    positional: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    since: str = "0.32"


OF_THE_CLASS = (
    Hook("get_required_kvcache_layout", ("vllm_config",)),
    Hook("requires_piecewise_for_cudagraph", ("extra_config",)),
    Hook("build_kv_connector_stats"),
    Hook("build_kv_connector_stats", ("data",)),
    Hook("build_kv_connector_stats", (), ("data",)),
    Hook(
        "build_prom_metrics",
        ("vllm_config", "metric_types", "labelnames", "per_engine_labelvalues"),
    ),
    Hook("supports_sleep_mode", ("vllm_config",), since="0.33"),
)
OF_BOTH = (
    Hook("get_kv_connector_stats"),
    Hook("shutdown"),
)
OF_WORKERS = (
    Hook("get_mem_pool_context"),
    Hook("register_kv_caches", ("kv_caches",)),
    Hook("unregister_kv_caches", since="0.33"),
    Hook("restore_kv_caches", since="0.33"),
    Hook("set_host_xfer_buffer_ops", ("copy_operation",)),
    Hook("get_handshake_metadata"),
    Hook("handle_preemptions", ("kv_connector_metadata",)),
    Hook("bind_connector_metadata", ("connector_metadata",)),
    Hook("has_connector_metadata"),
    Hook("clear_connector_metadata"),
    Hook("start_load_kv", ("forward_context",)),
    Hook(
        "start_load_kv",
        ("forward_context",),
        ("scheduler_output", "request_state_indices", "request_ids", "num_tokens", "attn_metadata"),
    ),
    Hook("wait_for_layer_load", ("layer_name",)),
    Hook("save_kv_layer", ("layer_name", "kv_layer", "attn_metadata")),
    Hook("save_kv_layer", ("layer_name", "kv_layer", "attn_metadata"), ("of_a_backend",)),
    Hook("finish_forward"),
    Hook("wait_for_save"),
    Hook("reset_capture_state"),
    Hook("get_transfer_results", ("finished_req_ids",)),
    Hook("get_finished", ("finished_req_ids",)),
    Hook("get_block_ids_with_load_errors"),
    Hook("get_kv_connector_kv_cache_events"),
    Hook("build_connector_worker_meta"),
)
OF_SCHEDULERS = (
    Hook("bind_kv_cache_manager", ("kv_cache_manager",)),
    Hook("bind_gpu_block_pool", ("gpu_block_pool",)),
    Hook("get_finished_count"),
    Hook("set_xfer_handshake_metadata", ("metadata",)),
    Hook("set_xfer_handshake_metadata_pp_aware", ("metadata",)),
    Hook("on_new_request", ("request",)),
    Hook("get_num_new_matched_tokens", ("request", "num_computed_tokens")),
    Hook("get_loaded_kv_cache_group_ids", ("request",)),
    Hook("update_state_after_alloc", ("request", "blocks", "num_external_tokens")),
    Hook("get_external_cache_hit_sources", ("request", "num_external_tokens")),
    Hook("build_connector_meta", ("scheduler_output",)),
    Hook("update_connector_output", ("connector_output",)),
    Hook("request_finished", ("request", "block_ids")),
    Hook("request_finished_all_groups", ("request", "block_ids")),
    Hook("register_finished_partial_tail", ("request", "block_ids", "partial_tail_offloads")),
    Hook("take_events"),
    Hook("has_pending_block_frees"),
    Hook("has_pending_push_work"),
    Hook("reset_cache"),
)
PROPERTIES = ("role", "requires_kv_delivery", "supports_divergent_local_hybrid_hits")
CONSTRUCTOR = ("vllm_config", "role", "kv_cache_config")
OURS_TO_ANSWER = {
    # What the base class answers is wrong for a connector that hands off between engines.
    "register_kv_caches",
    "unregister_kv_caches",
    "restore_kv_caches",
    "get_handshake_metadata",
    "start_load_kv",
    "get_transfer_results",
    "build_connector_worker_meta",
    "set_xfer_handshake_metadata_pp_aware",
    "on_new_request",
    "get_num_new_matched_tokens",
    "get_loaded_kv_cache_group_ids",
    "update_state_after_alloc",
    "build_connector_meta",
    "update_connector_output",
    "request_finished_all_groups",
    "get_kv_connector_stats",
    "build_kv_connector_stats",
    "build_prom_metrics",
    "supports_sleep_mode",
    "shutdown",
}


def complaints(connector: Any, newest: bool) -> list[str]:
    """Calls that a class would not accept, and names by which it knows a parameter otherwise."""
    import inspect

    wrong = []
    for of, hooks in (("class", OF_THE_CLASS), ("object", OF_BOTH + OF_WORKERS + OF_SCHEDULERS)):
        for hook in hooks:
            if hook.since != "0.32" and not newest:
                continue
            found = getattr(connector, hook.name, None)
            if found is None:
                wrong.append(f"{hook.name} is missing")
                continue
            if (of == "class") != inspect.ismethod(found):
                wrong.append(f"{hook.name} is not called on the {of}")
                continue
            itself = () if of == "class" else (None,)
            try:
                signature = inspect.signature(found)
                signature.bind(*itself, *hook.positional, **dict.fromkeys(hook.named))
            except TypeError as why:
                wrong.append(f"{hook.name}: {why}")
    return wrong


def names_by(connector: Any) -> dict[str, list[str]]:
    """The parameters of each hook, as somebody may name them."""
    import inspect

    hooks = OF_THE_CLASS + OF_BOTH + OF_WORKERS + OF_SCHEDULERS
    found = {}
    for hook in hooks:
        if hasattr(connector, hook.name):
            parameters = inspect.signature(getattr(connector, hook.name)).parameters.values()
            kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
            found[hook.name] = [
                one.name for one in parameters if one.kind not in kinds and one.name != "self"
            ]
    return found
