"""The workers of an engine: the hooks of the connector in the order of a step, and the sum."""

import pickle
from types import SimpleNamespace
from typing import Any

from vllm.v1.outputs import KVConnectorOutput

from . import forward
from .device import Copies
from .model import Rank
from .ranks import together
from .request import Request


class Workers:
    def __init__(self, connectors: list[Any], ranks: list[Rank]) -> None:
        self.connectors, self.ranks = connectors, ranks
        self._open: dict[str, dict[str, int]] = {"sent": {}, "received": {}}
        self._failed: set[str] = set()
        self.copies = Copies()

    def start(self) -> dict[tuple[int, int], Any]:
        pairs = zip(self.connectors, self.ranks)
        calls = [lambda c=c, r=r: c.register_kv_caches(dict(r.tensors)) for c, r in pairs]
        for connector in self.connectors:
            assert connector.get_mem_pool_context() is None
        together(calls)
        for connector in self.connectors:
            connector.set_host_xfer_buffer_ops(self.copies)
            connector.reset_capture_state()
        return self.presences()

    def presences(self) -> dict[tuple[int, int], Any]:
        told = [connector.get_handshake_metadata() for connector in self.connectors]
        return {(0, rank): one for rank, one in enumerate(pickle.loads(pickle.dumps(told)))}

    def step(
        self, output: SimpleNamespace, meta: bytes, batch: list[tuple[Request, int, int]]
    ) -> tuple[dict[str, int], KVConnectorOutput]:
        """One step of all workers. Gives the next token of each request, and what was said."""
        metas = [pickle.loads(meta) for _ in self.connectors]
        for connector, own in zip(self.connectors, metas):
            connector.handle_preemptions(own)
            connector.bind_connector_metadata(own)
        tokens = {
            request.request_id: forward.run(self.ranks, request, start, end)
            for request, start, end in batch
        }
        told = [self._rank(*pair, output, bool(batch)) for pair in zip(self.connectors, self.ranks)]
        return tokens, self._sum(pickle.loads(pickle.dumps(told)))

    def _rank(
        self, connector: Any, rank: Rank, output: SimpleNamespace, forwards: bool
    ) -> KVConnectorOutput:
        for name, tensor in rank.tensors.items() if forwards else ():
            assert connector.has_connector_metadata()
            connector.wait_for_layer_load(name)
            connector.save_kv_layer(name, tensor, None)
        connector.finish_forward()
        connector.start_load_kv(SimpleNamespace(attn_metadata=None))
        connector.wait_for_save()
        results = connector.get_transfer_results(set(output.finished_req_ids))
        said = KVConnectorOutput(
            results.finished_sending or None,
            results.finished_recving or None,
            connector.get_kv_connector_stats(),
            connector.get_kv_connector_kv_cache_events(),
            connector.build_connector_worker_meta(),
            connector.get_block_ids_with_load_errors(),
            results.failed_recving,
            len(self.connectors),
        )
        assert not said.invalid_block_ids, "fatal with several groups"
        connector.clear_connector_metadata()
        return said

    def _sum(self, told: list[KVConnectorOutput]) -> KVConnectorOutput:
        """A request counts when every rank has named it; a failure is held back until then."""
        total = KVConnectorOutput(set(), set())
        for said in told:
            self._count("sent", said.finished_sending, total.finished_sending)
            self._count("received", said.finished_recving, total.finished_recving)
            self._failed |= said.failed_recving
            for name in ("kv_connector_stats", "kv_connector_worker_meta"):
                before, more = getattr(total, name), getattr(said, name)
                if more is not None:
                    setattr(total, name, more if before is None else before.aggregate(more))
        total.failed_recving = self._failed & total.finished_recving
        self._failed -= total.failed_recving
        return total

    def _count(self, what: str, named: set[str] | None, done: set[str] | None) -> None:
        counts = self._open[what]
        for name in named or ():
            counts[name] = counts.get(name, len(self.connectors)) - 1
            if counts[name] == 0:
                del counts[name]
                done.add(name)
