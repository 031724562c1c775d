"""The package without vLLM: numpy arrays, engines of one rank, and what is said when it fails."""

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake.plain import HEADS, MODEL, Pair, cache, digest, engine, layout

import kvferry


def test_a_hand_off() -> None:
    pair = Pair()
    offered = pair.d.claim("b", pair.offer(), digest(20))
    assert offered.receive([(0, [1, 2])], 20) == pair.source[[7, 3]].nbytes
    assert (pair.target[[1, 2]] == pair.source[[7, 3]]).all()
    assert not pair.target[3:].any() and not pair.target[0].any()
    assert pair.p.freed(5) == ("a", "satisfied")


def test_only_what_is_needed() -> None:
    """A window of 5 sees positions 16 to 19 from 20, all in the second block; and of a prefix of
    16 tokens that D has, the first block does not come."""
    windowed = {"layer": {"kind": {"kind": "sliding_window", "window": 5}}}
    for more, hits in ((windowed, []), ({}, [16])):
        source, target = cache(), cache()
        source += 1
        p = kvferry.Prefill(kvferry.Config(), engine("p", source, **more))
        d = kvferry.Decode(kvferry.Config(), engine("d", target, **more))
        offered = d.claim("b", p.offer("a", digest(20), [(0, [7, 3])]), digest(20))
        assert offered.receive([(0, [1, 2])], 20, hits) == source[0].nbytes
        assert (target[2] == 1).all() and not target[1].any()


def test_an_offer_that_is_dropped_frees_p() -> None:
    pair = Pair()
    offered = pair.d.claim("b", pair.offer(), digest(20))
    del offered
    gc.collect()
    assert pair.p.freed(5) == ("a", "released")
    assert pair.p.freed(0) is None


# One class of errors for each thing to do.


def test_a_lost_lease_can_be_retried() -> None:
    pair = Pair(lease_seconds=0.05)
    params = pair.offer()
    assert pair.p.freed(5) == ("a", "over")
    with pytest.raises(kvferry.RetryError, match="no such lease"):
        pair.d.claim("b", params, digest(20))


def test_a_peer_that_is_gone() -> None:
    pair = Pair()
    params = pair.offer()
    del pair.p
    gc.collect()
    with pytest.raises(kvferry.PeerLostError, match=str(params["remote_port"])):
        pair.d.claim("b", params, digest(20))


def test_another_prompt() -> None:
    pair = Pair()
    with pytest.raises(kvferry.ProtocolError, match="another prompt"):
        pair.d.claim("b", pair.offer(), digest(20, seed=1))


@pytest.mark.parametrize("field", ["remote_host", "remote_port", "remote_request_id", "kvferry"])
def test_parameters_without_a_field(field: str) -> None:
    pair = Pair()
    params = pair.offer()
    del params[field]
    with pytest.raises(kvferry.ProtocolError, match=f"`{field}`"):
        pair.d.claim("b", params, digest(20))


def test_engines_that_do_not_match() -> None:
    pair = Pair()
    for more, named in (({"model": "another"}, "model"), ({"dtype": "f16"}, "element|dtype")):
        d = kvferry.Decode(kvferry.Config(), engine("d", cache(), **more))
        with pytest.raises(kvferry.ConfigError, match=named):
            d.claim("b", pair.offer(str(more)), digest(20))


def test_every_error_is_one_of_ours() -> None:
    kinds = {kvferry.RetryError, kvferry.PeerLostError, kvferry.ProtocolError, kvferry.ConfigError,
             kvferry.ExhaustedError, kvferry.BugError}
    assert all(issubclass(kind, kvferry.KvferryError) for kind in kinds)
    assert not issubclass(kvferry.KvferryError, (ValueError, OSError))


# Bad arguments.

WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no address": (lambda: kvferry.Config(listen="here"), kvferry.ConfigError, "`listen` of \"here\""),
    "ipv6": (lambda: kvferry.Config(listen="::1:0"), kvferry.ConfigError, r"\[::1\]:7000"),
    "lease": (lambda: kvferry.Config(lease_seconds=-1), kvferry.ConfigError, "`lease_seconds` of -1"),
    "nan": (
        lambda: kvferry.Config(read_timeout_seconds=float("nan")),
        kvferry.ConfigError,
        "`read_timeout_seconds`",
    ),
    "secret": (lambda: kvferry.Config(secret_file="nowhere"), kvferry.ConfigError, "nowhere"),
    "allow": (lambda: kvferry.Config(allow="everybody"), kvferry.ConfigError, "everybody"),
    "option": (lambda: kvferry.Config(port=3), TypeError, "port"),
    "by place": (lambda: kvferry.Config("127.0.0.1:0"), TypeError, "positional"),
    "log": (lambda: kvferry.log_to_stderr("a=b=c"), kvferry.ConfigError, "log filter \"a=b=c\""),
    "layout": (lambda: kvferry.CacheLayout({}), kvferry.ConfigError, "no cache layout"),
    "no dict": (lambda: kvferry.CacheLayout(3), kvferry.ConfigError, "no cache layout"),
    "kind": (
        lambda: layout(4, kind={"kind": "round"}), kvferry.ConfigError, "round"
    ),
    "dtype": (lambda: engine("e", cache(), dtype="int3"), kvferry.ConfigError, "bf16, f16, f32, fp8"),
    "offsets": (lambda: engine("e", cache(), offsets=[0, 1]), kvferry.BugError, "2 offsets of 1"),
    "rank": (lambda: engine("e", cache(), rank=1), kvferry.BugError, "rank 1 of 1"),
    "null": (lambda: kvferry.Memory(0, 8, None), kvferry.BugError, "no memory of 8 bytes"),
    "empty": (lambda: kvferry.Memory(4096, 0, None), kvferry.BugError, "no memory of 0 bytes"),
    "wraps": (lambda: kvferry.Memory(2**64 - 8, 16, None), kvferry.BugError, "no memory"),
    "negative": (lambda: kvferry.Memory(-1, 16, None), OverflowError, "int"),
    "part": (
        lambda: kvferry.Worker(kvferry.Config(), engine("e", cache()), "some"),
        ValueError,
        "one of prefill, decode, both",
    ),
    "orders": (
        lambda: kvferry.Worker(kvferry.Config(), engine("e", cache())).follow(b"{"),
        kvferry.BugError,
        "no orders",
    ),
    "words": (lambda: scheduler().hear(0, b"x"), kvferry.BugError, "no words"),
    "no ranks": (
        lambda: kvferry.Scheduler(1, engine_id="p", tp_size=1, addresses=[]),
        kvferry.BugError,
        "without a rank",
    ),
    "port": (
        lambda: kvferry.Scheduler(1, engine_id="p", tp_size=1, addresses=[("h", 0)]),
        kvferry.ProtocolError,
        "`remote_port`",
    ),
    "groups": (
        lambda: scheduler().finish("a", digest(20), [(0, [1])] * 65),
        kvferry.ExhaustedError,
        "65 tables",
    ),
    "no tokens": (lambda: scheduler().finish("a", digest(0), [(0, [])]), kvferry.BugError, "no valid"),
    "name": (lambda: scheduler().release(""), kvferry.ProtocolError, "1 to 256 bytes"),
    "big block": (lambda: scheduler().finish("a", digest(1), [(0, [2**32])]), OverflowError, "int"),
    "tokens": (lambda: kvferry.prompt_digest([-1], model=MODEL), OverflowError, "int"),
    "timeout": (lambda: Pair().p.freed(-1), kvferry.BugError, "a timeout of -1"),
    "tables": (lambda: Pair().p.offer("a", digest(20), []), kvferry.BugError, "0 block tables"),
    "plan": (
        lambda: kvferry.plan([layout(4)], [layout(4)], 1, [[(0, [1])]], [(0, [1])], valid=9, resume_at=9),
        kvferry.ConfigError,
        "rank",
    ),
}


def scheduler() -> kvferry.Scheduler:
    return kvferry.Scheduler(1, engine_id="p", tp_size=1, addresses=[("127.0.0.1", 7)])


@pytest.mark.parametrize("what", WRONG)
def test_bad_arguments(what: str) -> None:
    call, kind, said = WRONG[what]
    with pytest.raises(kind, match=said):
        call()


def test_a_claim_is_received_once() -> None:
    pair = Pair()
    offered = pair.d.claim("b", pair.offer(), digest(20))
    offered.receive([(0, [1, 2])], 20)
    with pytest.raises(kvferry.BugError, match="received already"):
        offered.receive([(0, [1, 2])], 20)


def test_a_block_that_is_not_there() -> None:
    pair = Pair()
    with pytest.raises(kvferry.KvferryError, match="1000"):
        pair.d.claim("b", pair.offer(), digest(20)).receive([(0, [1, 1000])], 20)
    assert not pair.target.any()
    assert pair.p.freed(5) == ("a", "released")
    params = pair.p.offer("c", digest(20), [(0, [99, 1])])
    with pytest.raises(kvferry.ConfigError, match="block 99 is outside"):
        pair.d.claim("d", params, digest(20)).receive([(0, [1, 2])], 20)


# Memory.


def test_memory_of_arrays() -> None:
    array = cache()
    assert len(kvferry.memory_of(array)) == array.nbytes
    fixed = cache()
    fixed.flags.writeable = False
    for wrong in (fixed, array[:, ::2]):
        with pytest.raises(ValueError, match="contiguous and writeable"):
            kvferry.memory_of(wrong)
    with pytest.raises(TypeError, match="bytes is neither"):
        kvferry.memory_of(b"x")


def test_memory_of_tensors() -> None:
    class Storage:
        array = cache()

        def data_ptr(self) -> int:
            return self.array.ctypes.data

        def nbytes(self) -> int:
            return self.array.nbytes

    class Device:
        type = "cpu"

    class Tensor:
        device = Device()

        def untyped_storage(self) -> Storage:
            return Storage()

    assert len(kvferry.memory_of(Tensor())) == Storage.array.nbytes
    Device.type = "cuda"
    with pytest.raises(ValueError, match="only host memory"):
        kvferry.memory_of(Tensor())


def test_an_engine_keeps_its_memory() -> None:
    class Array(np.ndarray):
        """One that can be referred to weakly."""

    array = cache().view(Array)
    seen = weakref.ref(array)
    p = kvferry.Prefill(kvferry.Config(), engine("p", array))
    del array
    gc.collect()
    assert seen() is not None
    del p
    for _ in range(300):
        # Threads without the interpreter's lock leave it to the next call.
        kvferry.random_u64()
        if seen() is None:
            return
        time.sleep(0.01)
    raise AssertionError("the array outlives all that use it")


# The plan.


def test_the_plan_of_a_tail() -> None:
    """20 tokens: two blocks of all heads; with 16 of them there already, one."""
    size = cache()[0].nbytes
    tables = [[(0, [7, 3])]]
    both = kvferry.plan([layout(9)], [layout(4)], 0, tables, [(0, [1, 2])], valid=20, resume_at=20)
    assert both == [[(0, [7, 3], 0, [1, 2], 2 * size)]]
    tail = kvferry.plan(
        [layout(9)], [layout(4)], 0, tables, [(0, [1, 2])], valid=20, resume_at=20, hits=[16]
    )
    assert tail == [[(0, [3], 0, [2], size)]]


def test_the_plan_of_two_ranks() -> None:
    """Each of two source ranks has half of the heads of the one target."""
    halves = [layout(9, rank, 2) for rank in range(2)]
    tables = [[(0, [7, 3])], [(0, [4, 5])]]
    reads = kvferry.plan(halves, [layout(4)], 0, tables, [(0, [1, 2])], valid=20, resume_at=20)
    half = cache()[0].nbytes // 2
    assert [sum(copy[4] for copy in copies) for copies in reads] == [2 * half] * 2
    assert [copies[0][1] for copies in reads] == [[7, 3], [4, 5]]


# Identities.


def test_heads_are_those_of_the_model() -> None:
    assert HEADS == 4 and layout(4).to_dict()["layers"][0]["parts"][0]["units"] == {"start": 0, "end": 4}
    assert kvferry.CacheLayout(layout(4).to_dict()) == layout(4)
    assert layout(4) != layout(5)
    same = kvferry.prompt_digest([1, 2], model="m")
    assert same == kvferry.prompt_digest([1, 2], model="m") and same.valid == 2
    others = [
        kvferry.prompt_digest([1, 2], model="n"),
        kvferry.prompt_digest([1, 3], model="m"),
        kvferry.prompt_digest([1, 2], model="m", revision="r"),
        kvferry.prompt_digest([1, 2], model="m", lora="l"),
        kvferry.prompt_digest([1, 2], model="m", salt="s"),
        kvferry.prompt_digest([1, 2], model="m", multimodal=["i"]),
    ]
    assert len({one.sha256 for one in [same, *others]}) == 7
