"""The half of the connector that lives beside vLLM's scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

from kvferry import KvferryError, Outcome, Scheduler

from .groups import Group
from .identity import Identity
from .messages import Presence, Step, Words
from .stats import Stats

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

# Under vLLM's own name: its log settings know no other.
logger = init_logger(f"vllm.{__name__}")


class Stage(Enum):
    """How far the load of a request has come."""

    CLAIMED = auto()
    """The prefill engine is asked; vLLM has given no blocks."""
    FAILED = auto()
    """There is nothing to load; vLLM does not know yet."""
    SETTLED = auto()
    """vLLM waits for the workers, or for nobody."""


@dataclass
class Load:
    """A request whose KV another engine has."""

    resume_at: int
    """First position that this engine computes itself, hence the tokens to load."""
    stage: Stage
    is_fetched: bool = True
    """The workers will say how it ended, once each."""
    tokens: int = 0
    """Told to vLLM when it asked last."""


@dataclass(frozen=True)
class Manner:
    """How an engine is set up."""

    engine_id: str
    tensor_parallel_size: int
    consumes_only: bool
    computes_failed: bool
    """Whether a request whose load failed is computed here, or ends with an error."""


UNREADY_AFTER = 3
"""Loads that fail one after the other until the engine says that it is not ready."""


class Health:
    """Whether loads come through: what a probe of the engine should ask for beside its life."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._failed = 0

    def hear(self, outcome: Outcome) -> None:
        before = self._failed < UNREADY_AFTER
        if outcome.what == "received":
            self._failed = 0
        elif outcome.what == "failed" and outcome.kind != "protocol":
            # A mixed-up request is the router's fault, and says nothing about the way to P.
            self._failed += 1
        after = self._failed < UNREADY_AFTER
        if before != after:
            self._stats.ready(after)
            logger.warning("kvferry: loads %s", "come through again" if after else "fail")


class SchedulerHalf:
    """Grants leases for finished prefills and has requests fetched; decides nothing itself."""

    def __init__(self, manner: Manner, identity: Identity, groups: list[Group]) -> None:
        self._manner = manner
        self._identity = identity
        self._groups = groups
        self._scheduler: Scheduler | None = None
        self._workers: list[Presence] = []
        self._loads: dict[str, Load] = {}
        self._shortened: set[str] = set()
        self._step = Step()
        self.stats = Stats()
        self._health = Health(self.stats)

    def start(self, workers: Sequence[Presence]) -> None:
        """The workers have started, and say where they are."""
        strange = [type(worker).__name__ for worker in workers if not isinstance(worker, Presence)]
        if strange:
            # vLLM gives all children of a MultiConnector what the first of them has to say.
            raise ValueError(
                f"kvferry was given {strange[0]} of another connector: in a MultiConnector, "
                f"KvferryConnector must stand before others whose workers are introduced"
            )
        ranks = sorted(workers, key=lambda worker: worker.rank)
        if not ranks or ranks == self._workers:
            # They woke up, and what is under way goes on under the same names.
            return
        if [worker.rank for worker in ranks] != list(range(len(ranks))):
            raise ValueError(f"workers of ranks {[worker.rank for worker in ranks]}")
        self._workers = ranks
        self._scheduler = Scheduler(
            ranks[0].epoch,
            engine_id=self._manner.engine_id,
            tp_size=self._manner.tensor_parallel_size,
            addresses=[worker.address for worker in ranks],
        )

    @property
    def scheduler(self) -> Scheduler:
        assert self._scheduler is not None, "vLLM asks before its workers have started"
        return self._scheduler

    # A request comes.

    def arrive(self, request: "Request") -> None:
        params = request.kv_transfer_params or {}
        if params.get("do_remote_decode"):
            self._prefill(request, params)
        elif params.get("do_remote_prefill"):
            self._claim(request, params)
        elif self._manner.consumes_only:
            self.stats.count("params_missing")
            logger.warning_once(
                "A request came to this decode engine without kv_transfer_params of a prefill "
                "engine: it is computed here. If that is not meant, look at the router."
            )

    def _prefill(self, request: "Request", params: dict[str, Any]) -> None:
        if why := self._no_prefill(request):
            self.stats.count("params_refused")
            logger.warning("Request %s will not be handed off: %s", request.request_id, why)
            return
        if params.get("remote_block_ids"):
            logger.warning_once(
                "A request came to this prefill engine with blocks of a decode engine: handing "
                "over in that direction (several turns) is not supported, its prompt is computed"
            )
        self._shorten(request)

    def _no_prefill(self, request: "Request") -> str | None:
        if self._manner.consumes_only:
            return "do_remote_decode is for a prefill engine, and this one is a kv_consumer"
        if request.prompt_token_ids is None:
            return "a prompt of embeddings cannot be compared by whoever decodes it"
        return None

    def _shorten(self, request: "Request") -> None:
        """P stops one token early: the decode engine computes the last one itself, and what its
        query sees is then what vLLM has kept, also of windows and states."""
        if request.request_id in self._shortened:
            return
        request.max_tokens = 1
        if request.num_prompt_tokens > 1 and not request.get_skip_reading_prefix_cache():
            del request.prompt_token_ids[-1]
            del request._all_token_ids[-1]
            request.num_prompt_tokens -= 1
        self._shortened.add(request.request_id)

    def _claim(self, request: "Request", params: dict[str, Any]) -> None:
        name, last = request.request_id, request.num_prompt_tokens - 1
        try:
            valid = self._admit(request, params)
            self.scheduler.fetch(name, params, self._identity.digest(request, valid))
        except (KvferryError, ValueError) as why:
            self.stats.count("params_refused")
            logger.warning("Request %s cannot be fetched: %s", name, why)
            self._loads[name] = Load(last, Stage.FAILED, is_fetched=False)
            return
        self._loads[name] = Load(min(valid, last), Stage.CLAIMED)

    def _admit(self, request: "Request", params: dict[str, Any]) -> int:
        if request.prompt_token_ids is None:
            raise ValueError("a prompt of embeddings cannot be compared with that of its blocks")
        valid = self.scheduler.admit(request.request_id, params)
        if valid > request.num_prompt_tokens:
            raise ValueError(
                f"the prefill engine holds {valid} tokens, the prompt has "
                f"{request.num_prompt_tokens}"
            )
        return valid

    # vLLM looks what there is, and gives blocks.

    def tokens_elsewhere(self, request: "Request", computed: int) -> tuple[int, bool]:
        """How many tokens behind the `computed` ones are to be loaded, and that it takes time."""
        load = self._loads.get(request.request_id)
        if load is None or load.stage is Stage.SETTLED:
            return 0, False
        if load.stage is Stage.FAILED and self._manner.computes_failed:
            return 0, False
        load.tokens = max(0, load.resume_at - computed)
        return load.tokens, load.tokens > 0

    def give(self, request: "Request", blocks: "KVCacheBlocks", external: int) -> None:
        name = request.request_id
        load = self._loads.get(name)
        if load is None or load.stage is Stage.SETTLED:
            return
        if external > 0:
            if load.stage is Stage.FAILED:
                self._step.refused += (name,)
                self._drop(name, load)
            else:
                self._read(name, blocks.get_block_ids(), load.resume_at, load.resume_at - external)
        else:
            self._do_without(load)
            self._drop(name, load)
        load.stage = Stage.SETTLED

    def _do_without(self, load: Load) -> None:
        if load.stage is Stage.FAILED:
            self.stats.count("computed_here")
        elif load.tokens == 0:
            self.stats.count("already_here")
        else:
            self.stats.count("declined")
            logger.warning_once(
                "vLLM does not want what a prefill engine has of a request: another connector "
                "loads it, or it must not read caches. The prefill was for nothing."
            )

    def _drop(self, name: str, load: Load) -> None:
        """vLLM does not wait for the workers."""
        if load.is_fetched:
            self.scheduler.release(name)
            self._step.unheard += (name,)

    def _read(
        self, name: str, ids: tuple[list[int], ...], resume_at: int, hit: int
    ) -> None:
        hits = [0 if group.is_recurrent else hit for group in self._groups]
        tables = [
            group.table(ids[group.index], resume_at, hit)
            for group, hit in zip(self._groups, hits)
        ]
        kinds = [group.kind for group in self._groups]
        self.scheduler.allocate(name, tables, resume_at, list(zip(kinds, hits)))
        self._step.awaited[name] = [blocks for _, blocks in tables]

    # A step of the workers begins and ends.

    def step(self) -> Step:
        step, self._step = self._step, Step()
        step.orders = self.scheduler.orders()
        return step

    def hear(self, output: "KVConnectorOutput") -> None:
        words = output.kv_connector_worker_meta
        if not isinstance(words, Words):
            return
        for rank, said in words.words:
            self.scheduler.hear(rank, said)
        for outcome in self.scheduler.outcomes():
            self._health.hear(outcome)
            load = self._loads.get(outcome.request)
            if outcome.what != "failed" or load is None:
                continue
            if load.stage is Stage.CLAIMED:
                load.stage = Stage.FAILED
            elif self._manner.computes_failed:
                self.stats.count("computed_here")

    # A request goes.

    def finish(
        self, request: "Request", ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Whether its blocks are kept, and the parameters that lead to them."""
        name = request.request_id
        load = self._loads.pop(name, None)
        if load is not None and load.stage is Stage.SETTLED:
            # vLLM may wait for it: the workers say when nothing touches its blocks.
            self.scheduler.release(name)
        elif load is not None:
            self._drop(name, load)
        if name not in self._shortened:
            return False, None
        self._shortened.discard(name)
        if request.status not in (
            RequestStatus.FINISHED_LENGTH_CAPPED,
            RequestStatus.FINISHED_STOPPED,
        ):
            return False, None
        return self._lease(request, ids)

    def _lease(
        self, request: "Request", ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        valid = min(request.num_computed_tokens, request.num_prompt_tokens)
        try:
            tables = [group.table(ids[group.index], valid) for group in self._groups]
            prompt = self._identity.digest(request, valid)
            params = self.scheduler.finish(request.request_id, prompt, tables)
        except KvferryError as why:
            logger.error("Request %s cannot be handed off: %s", request.request_id, why)
            return False, None
        self._step.leased.append([blocks for _, blocks in tables])
        return True, params
