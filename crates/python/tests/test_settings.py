"""What an operator may set, and what is refused at the start, by name."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake.engine import Engine, play, settings
from fake.model import HYBRID, LATENT, STATES, Model, Rank, config_of
from fake.pair import decode, hand_off, prefill, prompt
from fake.tensors import FLOAT32, Storage, Tensor
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1 import kv_cache_interface as specs

from kvferry import ConfigError
from kvferry.vllm import KvferryConnector
from kvferry.vllm.options import Options
from kvferry.vllm.stats import COUNTS, SERIES

Start = Callable[..., Engine]


@pytest.mark.parametrize("name", ["lease", "kv_lease_duration", "bidirectional_kv_xfer", "Listen"])
def test_an_unknown_option_is_named(name: str, start: Start) -> None:
    with pytest.raises(ValueError, match=f"unknown option {name}") as why:
        start(HYBRID, "kv_producer", extra={name: 1, "log": "warn"})
    assert all(field.name in str(why.value) for field in fields(Options))


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"lease_seconds": -1}, "`lease_seconds`"),
        ({"read_timeout_seconds": 0}, "`read_timeout`"),
        ({"secret_file": "nowhere"}, "nowhere"),
        ({"allow": "everybody"}, "everybody"),
        ({"allow": ["127.0.0.1", "nobody"]}, "nobody"),
        ({"log": "a=b=c"}, "log filter"),
    ],
)
def test_a_value_that_cannot_work_is_named(extra: Any, said: str, start: Start) -> None:
    with pytest.raises(ConfigError, match=said):
        start(HYBRID, "kv_producer", extra=extra)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("listen", 7000, "text"),
        ("listen", None, "text"),
        ("allow", {"10.0.0.0/8": True}, "text"),
        ("log", 3, "text"),
        ("lease_seconds", "5", "number"),
        ("streams", 1.5, "number"),
    ],
)
def test_a_value_of_another_type_is_named(name: str, value: Any, kind: str, start: Start) -> None:
    with pytest.raises(ValueError, match=f"{name} of .* is no {kind}"):
        start(HYBRID, "kv_producer", extra={name: value})


def test_none_leaves_an_option_out(start: Start) -> None:
    start(HYBRID, "kv_producer", extra={"advertise": None, "lease_seconds": None})


def test_options_that_work(start: Start) -> None:
    extra = {
        "listen": "127.0.0.1:0",
        "advertise": "127.0.0.1",
        "allow": ["127.0.0.0/8"],
        "lease_seconds": 5,
        "read_timeout_seconds": 2.5,
        "transport": "auto",
        "streams": 1,
        "model": "the same",
        "revision": "r1",
        "log": "warn",
    }
    of_files = {"secret_file", "tls_cert", "tls_key", "tls_ca"}
    assert set(extra) | of_files == {field.name for field in fields(Options)}
    p = start(HYBRID, "kv_producer", extra=extra, served="a path on this host")
    d = start(HYBRID, "kv_consumer", extra=extra, served="another path")
    assert hand_off(p, d, prompt(70)).is_right


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_transport_that_is_insisted_on(transport: str, start: Start) -> None:
    p = start(HYBRID, "kv_producer", extra={"transport": transport})
    d = start(HYBRID, "kv_consumer", extra={"transport": transport})
    assert hand_off(p, d, prompt(70)).is_right


def test_a_transport_that_is_not_there(start: Start, caplog: Any) -> None:
    p = start(HYBRID, "kv_producer", extra={"transport": "tcp"})
    d = start(HYBRID, "kv_consumer", extra={"transport": "shm"})
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    play(p, d, until=lambda: request.is_over)
    assert request.status.name == "FINISHED_ERROR"
    assert "cannot be read by shm" in caplog.text
    with pytest.raises(ConfigError, match="choose `auto`, `tcp` or `shm`"):
        start(HYBRID, "kv_consumer", extra={"transport": "pigeon"})


def test_an_address_off_the_list(start: Start, caplog: Any) -> None:
    p = start(HYBRID, "kv_producer")
    d = start(HYBRID, "kv_consumer", extra={"allow": ["10.0.0.0/8"]})
    request = decode(d, prefill(p, prompt(70)), prompt(70))
    play(p, d, until=lambda: request.is_over)
    assert request.status.name == "FINISHED_ERROR"
    assert "127.0.0.1" in caplog.text and "list of allowed addresses" in caplog.text


def test_parameters_have_the_names_that_routers_know(start: Start) -> None:
    params = prefill(start(HYBRID, "kv_producer", engine_id="p7"), prompt(70)).params
    assert json.loads(json.dumps(params)) == params
    ours = params.pop("kvferry")
    assert set(ours) == {"version", "engine", "nonce"}
    # The port and the request's name are of this run.
    assert 0 < params.pop("remote_port") < 65536 and params.pop("remote_request_id")
    assert params == {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": "p7",
        "remote_host": "127.0.0.1",
        "tp_size": 1,
        "remote_num_tokens": 69,
        "transfer_mode": "pull",
    }


# What operators read.


def test_the_page_names_every_option_and_counter() -> None:
    """Counters of one family are named by how they go on."""
    page = (Path(__file__).parents[3] / "docs" / "vllm.md").read_text()
    named = set(re.findall(r"`(_?[a-z_]+)`", page))
    known = {field.name for field in fields(Options)} | set(COUNTS) | set(SERIES)
    assert {
        name
        for name in known - named
        if not any(name.endswith(part) for part in named if part.startswith("_"))
    } == set()


# Caches that cannot be handed off.


def register(
    model: Model, change: Callable[[Any, Any, dict[str, Tensor]], None], rank: int = 0, ways: int = 1
) -> Any:
    """A worker whose settings, groups and tensors were changed before it saw them."""
    own = Rank(model, rank, ways)
    config = config_of(model, own)
    asked = settings(model, "kv_both", rank=rank, ways=ways)
    tensors = dict(own.tensors)
    change(asked, config, tensors)
    worker = KvferryConnector(asked, KVConnectorRole.WORKER, config)
    worker.register_kv_caches(tensors)
    worker.shutdown()
    return worker


def other_storage(_: Any, __: Any, tensors: dict[str, Tensor]) -> None:
    name = next(iter(tensors))
    tensors[name] = replace(tensors[name], storage=Storage(tensors[name].storage.nbytes()))


def wide(_: Any, __: Any, tensors: dict[str, Tensor]) -> None:
    name = next(iter(tensors))
    tensors[name] = replace(tensors[name], strides=(*tensors[name].strides[:3], 2))


def of_encoder(_: Any, config: Any, __: Any) -> None:
    config.kv_cache_groups[0].kv_cache_spec = specs.CrossAttentionSpec(16, 2, 8, FLOAT32)


def linear(_: Any, config: Any, __: Any) -> None:
    group = config.kv_cache_groups[0]
    group.kv_cache_spec = replace(group.kv_cache_spec, mamba_type=specs.MambaType.LINEAR)


def set_to(part: str, name: str, value: Any) -> Callable[..., None]:
    return lambda asked, *_: setattr(getattr(asked, part), name, value)


REFUSED: dict[str, tuple[Model, Callable[..., None], str]] = {
    "dcp": (HYBRID, set_to("parallel_config", "decode_context_parallel_size", 2), "context parallel"),
    "pcp": (HYBRID, set_to("parallel_config", "prefill_context_parallel_size", 2), "context parallel"),
    "dtype": (HYBRID, set_to("model_config", "dtype", "torch.int4"), "torch.int4"),
    "storage": (HYBRID, other_storage, "one allocation"),
    "strides": (HYBRID, wide, r"model.layers.0.attn: a cache of strides \(512, 256, 16, 2\)"),
    "encoder": (HYBRID, of_encoder, "model.layers.0.attn: .* CrossAttentionSpec"),
    "recurrence": (STATES, linear, "model.layers.0.attn: .* LINEAR"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_handed_off_is_refused(what: str) -> None:
    model, change, said = REFUSED[what]
    with pytest.raises(ValueError, match=said):
        register(model, change)


def test_heads_that_are_no_share_of_the_model() -> None:
    """Six heads of a model on one of two ranks, of which each says to have two."""

    def six(asked: Any, *_: Any) -> None:
        asked.model_config.get_total_num_kv_heads = lambda: 6
        asked.parallel_config.tensor_parallel_size = 2

    with pytest.raises(ValueError, match="2 heads on each of 2 ranks are no share of the model's 6"):
        register(HYBRID, six)


def test_layers_of_unlike_pages_in_one_group(start: Start) -> None:
    """A worker sees a wrapper around the specs of its layers; the scheduler sees the first."""

    def wrap(_: Any, config: Any, __: Any) -> None:
        for group in config.kv_cache_groups:
            inner = dict.fromkeys(group.layer_names, group.kv_cache_spec)
            size = group.kv_cache_spec.block_size
            group.kv_cache_spec = specs.UniformTypeKVCacheSpecs(size, inner)

    for model in (HYBRID, STATES, LATENT):
        assert register(model, wrap)._worker._groups == register(model, lambda *_: None)._worker._groups


def test_groups_that_are_rebuilt_are_left_out() -> None:
    def ephemeral(_: Any, config: Any, __: Any) -> None:
        config.kv_cache_groups[1].enable_kv_transfer = False

    groups = register(HYBRID, ephemeral)._worker._groups
    assert [group.index for group in groups] == [0, 2]


def test_layers_that_share_anothers_cache_have_no_spec() -> None:
    def shared(_: Any, __: Any, tensors: dict[str, Tensor]) -> None:
        tensors["model.layers.99.attn"] = tensors["model.layers.0.attn"]

    register(HYBRID, shared)


def test_nothing_to_hand_off() -> None:
    def none(_: Any, config: Any, __: Any) -> None:
        config.kv_cache_groups.clear()

    with pytest.raises(ValueError, match="keeps no KV cache"):
        register(HYBRID, none)


def test_the_element_type_of_a_quantized_cache() -> None:
    from kvferry.vllm.layout import dtype_of

    def asked(cache: str, model: str) -> Any:
        config = SimpleNamespace(cache_dtype=cache)
        return SimpleNamespace(cache_config=config, model_config=SimpleNamespace(dtype=model))

    names = [("auto", "torch.bfloat16"), ("auto", "torch.float16"), ("fp8_e4m3", "torch.bfloat16")]
    assert [dtype_of(asked(*pair)) for pair in names] == ["bf16", "f16", "fp8"]
