"""An engine that calls the connector as vLLM does, and computes with toy numbers.

`Engine.step` is one turn of its loop. Words that vLLM would die of are assertions here.
"""

import pickle
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

from kvferry.vllm import KvferryConnector

from .model import Model, Rank, config_of
from .pool import Pool, Tables
from .request import Request
from .workers import Workers

ROLES = {"kv_producer": (True, False), "kv_consumer": (False, True), "kv_both": (True, True)}


def settings(model: Model, role: str, **more: Any) -> SimpleNamespace:
    """The parts of `VllmConfig` that a connector may look at."""
    producer, consumer = ROLES[role]
    extra = more.pop("extra", {})
    transfer = SimpleNamespace(
        engine_id=more.pop("engine_id", role),
        is_kv_producer=producer,
        is_kv_consumer=consumer,
        kv_connector_extra_config=extra,
        kv_load_failure_policy=more.pop("policy", "fail"),
        kv_buffer_device=more.pop("buffer", "cuda" if model.on_device else "cpu"),
    )
    parallel = SimpleNamespace(
        tensor_parallel_size=more.pop("ways", 1),
        rank=more.pop("rank", 0),
        decode_context_parallel_size=1,
        prefill_context_parallel_size=1,
    )
    model_config = SimpleNamespace(
        model=more.pop("served", model.name),
        revision=None,
        dtype="torch.float32",
        use_mla=False,
        get_total_num_kv_heads=lambda: model.heads,
    )
    assert not more, more
    return SimpleNamespace(
        kv_transfer_config=transfer,
        parallel_config=parallel,
        model_config=model_config,
        cache_config=SimpleNamespace(cache_dtype="auto", block_size=-1),
    )


class Engine:
    """`more` is that of `settings`. One that is `late` hears of the workers when it has scheduled
    the next step already, as with overlapping batches."""

    def __init__(
        self,
        model: Model,
        role: str,
        ways: int = 1,
        caching: bool = True,
        late: bool = False,
        connector: Callable[..., Any] = KvferryConnector,
        **more: Any,
    ) -> None:
        self.model, self.ways = model, ways
        self.recomputes = more.get("policy") == "recompute"
        self.ranks = [Rank(model, rank, ways) for rank in range(ways)]
        self.pool = Pool(model, self.ranks, caching)
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.arrived: set[str] = set()
        self.failed: set[str] = set()
        self.gone: set[str] = set()
        self.preempted: set[str] = set()
        self.late = KVConnectorOutput(set(), set()) if late else None
        self.counts: dict[str, int] = {}
        self.told: list[dict[str, Any]] = []
        """Statistics as they leave the engine."""
        halves = [
            connector(
                vllm_config=settings(model, role, ways=ways, rank=rank, **more),
                role=KVConnectorRole.WORKER,
                kv_cache_config=config_of(model, own),
            )
            for rank, own in enumerate(self.ranks)
        ]
        self.workers = Workers(halves, self.ranks)
        self.connector = connector(
            vllm_config=settings(model, role, ways=ways, **more),
            role=KVConnectorRole.SCHEDULER,
            kv_cache_config=config_of(model, self.ranks[0]),
        )
        self.connector.bind_kv_cache_manager(SimpleNamespace(block_pool=self.pool))
        assert self.connector.get_finished_count() is None
        self.connector.set_xfer_handshake_metadata_pp_aware(self.workers.start())

    def add(self, request: Request) -> Request:
        request.tables = Tables(self.pool)
        self.requests[request.request_id] = request
        self.waiting.append(request)
        self.connector.on_new_request(request)
        return request

    def step(self) -> None:
        batch = self._schedule()
        output = SimpleNamespace(
            finished_req_ids=self.gone,
            preempted_req_ids=self.preempted,
            num_scheduled_tokens={one.request_id: end - start for one, start, end in batch},
            has_sync_kv_loads=False,
        )
        self.gone, self.preempted = set(), set()
        meta = pickle.dumps(self.connector.build_connector_meta(output))
        tokens, said = self.workers.step(output, meta, batch)
        if self.late is not None:
            said, self.late = self.late, said
        self._update(batch, tokens, said)

    # Who computes what.

    def _schedule(self) -> list[tuple[Request, int, int]]:
        for request in list(self.running):
            if not request.tables.grow(request.num_computed_tokens, request.num_tokens):
                self.preempt(request)
        for request in list(self.waiting):
            if not self._promoted(request):
                continue
            if not self._admit(request):
                break
        return [(one, *self._piece(one)) for one in self.running]

    def _piece(self, request: Request) -> tuple[int, int]:
        """Up to the end of the last whole block first: a state is kept there."""
        start, end = request.num_computed_tokens, request.num_tokens
        whole = end // self.model.block * self.model.block
        return start, whole if whole > start else end

    def _promoted(self, request: Request) -> bool:
        if request.status is not RequestStatus.WAITING_FOR_REMOTE_KVS:
            return True
        name = request.request_id
        if name not in self.arrived:
            return False
        self.arrived.remove(name)
        if name in self.failed:
            self.failed.remove(name)
            request.tables.clear()
        else:
            request.tables.publish(request.digests(), request.num_computed_tokens)
            if request.num_computed_tokens == request.num_tokens:
                request.num_computed_tokens -= 1
        again = request.num_preemptions > 0
        request.status = RequestStatus.PREEMPTED if again else RequestStatus.WAITING
        return True

    def _admit(self, request: Request) -> bool:
        external = 0
        if request.num_computed_tokens == 0:
            hit, found = 0, [[] for _ in self.model.groups]
            if not request.skips_prefix_cache:
                hit, found = request.tables.lookup(request.digests(), request.num_tokens - 1)
            external, later = self.connector.get_num_new_matched_tokens(request, hit)
            assert later == (external > 0), "a load that is none, or one that a step waits for"
            if request.skips_prefix_cache:
                external = 0
            total = hit + external
            if external:
                groups = self.connector.get_loaded_kv_cache_group_ids(request)
                assert groups == tuple(range(len(self.model.groups)))
            request.tables.adopt(found, total)
            upto = total if external else request.num_tokens
            if not request.tables.grow(total, upto, self._reserved() if external else 0):
                request.tables.clear()
                return False
            request.num_computed_tokens = total
        elif not request.tables.grow(request.num_computed_tokens, request.num_tokens):
            return False
        self._give(request, external)
        return True

    def _reserved(self) -> int:
        """Blocks that those who hold some need to go on: a load that took them would end nothing."""
        return len(self.model.groups) * len([one for one in self.requests.values() if one.loads])

    def _give(self, request: Request, external: int) -> None:
        ids = tuple(list(ids) for ids in request.tables.ids)
        blocks = SimpleNamespace(get_block_ids=lambda: ids)
        self.connector.update_state_after_alloc(request, blocks, external)
        if external:
            request.loads.append(external)
            assert self.connector.get_external_cache_hit_sources(request, external)
            request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
            return
        request.status = RequestStatus.RUNNING
        self.waiting.remove(request)
        self.running.append(request)

    def preempt(self, request: Request) -> None:
        request.tables.clear()
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = RequestStatus.PREEMPTED
        self.running.remove(request)
        self.waiting.insert(0, request)
        self.preempted.add(request.request_id)

    # What has come of it.

    def _update(self, batch: Any, tokens: dict[str, int], said: Any) -> None:
        failed = self._failed_loads(said.failed_recving)
        for request, _, end in batch:
            request.num_computed_tokens = end
            request.tables.publish(request.digests(), end)
            if end < request.num_tokens:
                continue
            request.say(tokens[request.request_id])
            if request.num_output_tokens >= request.max_tokens:
                self._finish(request, RequestStatus.FINISHED_LENGTH_CAPPED)
        for request in failed:
            self._finish(request, RequestStatus.FINISHED_ERROR)
        self.connector.update_connector_output(said)
        for name in said.finished_recving:
            request = self.requests[name]
            if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS:
                self.arrived.add(name)
            else:
                assert request.is_over, f"{name} waits for nothing"
                self._free(request)
        for name in said.finished_sending:
            self._free(self.requests[name])
        self._hear_stats(said.kv_connector_stats)
        assert not list(self.connector.take_events())

    def _failed_loads(self, names: set[str]) -> list[Request]:
        waits = RequestStatus.WAITING_FOR_REMOTE_KVS
        found = [self.requests[name] for name in names if name in self.requests]
        found = [request for request in found if request.status is waits]
        if not self.recomputes:
            return found
        for request in found:
            request.num_computed_tokens = 0
            self.failed.add(request.request_id)
        return []

    def _hear_stats(self, stats: Any) -> None:
        more = self.connector.get_kv_connector_stats()
        if more is not None and not more.is_empty():
            stats = more if stats is None else stats.aggregate(more)
        if stats is None:
            return
        self.told.append(stats.to_dict())
        for name, times in stats.to_dict().get("counts", {}).items():
            self.counts[name] = self.counts.get(name, 0) + times

    # A request goes.

    def abort(self, request: Request) -> None:
        if not request.is_over:
            self._finish(request, RequestStatus.FINISHED_ABORTED)

    def _finish(self, request: Request, status: RequestStatus) -> None:
        name = request.request_id
        waits = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
        keeps = waits and name not in self.arrived
        self.arrived.discard(name)
        self.failed.discard(name)
        (self.running if request in self.running else self.waiting).remove(request)
        request.status = status
        request.tables.shrink(request.num_computed_tokens)
        ids = tuple(list(ids) for ids in request.tables.ids)
        kept, request.params = self.connector.request_finished_all_groups(request, ids)
        self.gone.add(name)
        if not (kept or keeps):
            self._free(request)

    def _free(self, request: Request) -> None:
        request.tables.clear()
        del self.requests[request.request_id]

    # At rest.

    def holds(self) -> dict[str, int]:
        """What the connector still has of any request, over all its ranks."""
        half = self.connector._scheduler
        held = {"leases": half.scheduler.leases, "requests": half.scheduler.requests}
        held |= {"loads": len(half._loads), "shortened": len(half._shortened)}
        for connector in self.workers.connectors:
            worker = connector._worker
            for name, value in worker._worker.counts().items():
                if name in ("leases", "claims", "receives", "quarantined"):
                    held[f"worker {name}"] = held.get(f"worker {name}", 0) + value
            for name in ("_awaited", "_ended", "_unheard"):
                held[name] = held.get(name, 0) + len(getattr(worker, name, ()))
        return {name: value for name, value in held.items() if value}

    def about(self) -> str:
        return f"{[str(one) for one in self.requests.values()]} {self.holds()} {self.counts}"

    @property
    def is_idle(self) -> bool:
        return not self.requests and not self.gone and self.pool.is_whole and not self.holds()

    def close(self) -> None:
        for connector in self.workers.connectors:
            connector.shutdown()
        self.connector.shutdown()


def play(*engines: Engine, until: Callable[[], bool], seconds: float = 10) -> None:
    """Runs engines side by side."""
    end = time.monotonic() + seconds
    while not until():
        for engine in engines:
            engine.step()
        assert time.monotonic() < end, [one.about() for one in engines]
        time.sleep(0.0005)


def rest(*engines: Engine, seconds: float = 10) -> None:
    """Everything is given back, everywhere."""
    play(*engines, until=lambda: all(engine.is_idle for engine in engines), seconds=seconds)
