"""Engines of several ranks without vLLM, and that whoever waits lets other threads run."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake.plain import Pair, cache, digest, engine

import kvferry


class Ranks:
    """An engine of two ranks: one scheduler and two workers."""

    def __init__(self, name: str, part: Any) -> None:
        self.memory = [cache(ways=2) for _ in range(2)]
        epoch = kvferry.random_u64()
        self.workers = [
            kvferry.Worker(
                kvferry.Config(), engine(name, memory, rank, 2, epoch=epoch), part
            )
            for rank, memory in enumerate(self.memory)
        ]
        addresses = [worker.address for worker in self.workers]
        self.scheduler = kvferry.Scheduler(epoch, engine_id=name, tp_size=2, addresses=addresses)
        self.outcomes: list[tuple[str, str]] = []
        self.reports: list[kvferry.Report] = []

    def step(self) -> None:
        orders = self.scheduler.orders()
        for rank, worker in enumerate(self.workers):
            if orders is not None:
                worker.follow(orders)
            reports, words = worker.reports()
            self.reports += reports
            if words is not None:
                self.scheduler.hear(rank, words)
        self.outcomes += [(one.what, one.request) for one in self.scheduler.outcomes()]


def until(what: Callable[[], Any], *engines: Ranks) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end
        for one in engines:
            one.step()
        time.sleep(0.001)


def test_two_ranks() -> None:
    p, d = Ranks("p", "prefill"), Ranks("d", "decode")
    for rank, memory in enumerate(p.memory):
        memory[:] = np.random.default_rng(rank).random(memory.shape)
    assert all(p.workers[rank].address for rank in range(2)) and d.workers[0].address is None
    params = p.scheduler.finish("a", digest(20), [(0, [7, 3])])
    assert p.scheduler.leases == 1 and d.scheduler.admit("b", params) == 20
    d.scheduler.fetch("b", params, digest(20))
    d.scheduler.allocate("b", [(0, [1, 2])], 20, [({"kind": "full"}, 0)])
    assert d.scheduler.requests == 1
    until(lambda: p.outcomes and d.outcomes, p, d)
    assert p.outcomes == [("freed", "a")] and d.outcomes == [("received", "b")]
    for rank in range(2):
        assert (d.memory[rank][[1, 2]] == p.memory[rank][[7, 3]]).all()
        assert not d.memory[rank][3:].any()
    assert [one.bytes for one in d.reports] == [p.memory[0][[1, 2]].nbytes] * 2
    assert [(one.what, one.why) for one in p.reports] == [("freed", "satisfied")] * 2
    assert p.scheduler.leases == d.scheduler.requests == p.scheduler.strays == 0
    for one in (*p.workers, *d.workers):
        counts = one.counts()
        assert all(counts[name] == 0 for name in ("leases", "claims", "receives", "quarantined"))


def test_one_rank_of_two_fails() -> None:
    p, d = Ranks("p", "prefill"), Ranks("d", "decode")
    params = p.scheduler.finish("a", digest(20), [(0, [7, 3])])
    params["kvferry"]["other_ranks"][0]["port"] = 1
    d.scheduler.fetch("b", params, digest(20))
    d.scheduler.allocate("b", [(0, [1, 2])], 20, [({"kind": "full"}, 4)])
    outcomes: list[kvferry.Outcome] = []

    def heard() -> bool:
        for rank, worker in enumerate(d.workers):
            _, words = worker.reports()
            if words is not None:
                d.scheduler.hear(rank, words)
        orders = d.scheduler.orders()
        for worker in d.workers if orders is not None else ():
            worker.follow(orders)
        outcomes.extend(d.scheduler.outcomes())
        return bool(outcomes)

    until(heard, p)
    assert (outcomes[0].what, outcomes[0].request, outcomes[0].kind) == ("failed", "b", "peer_lost")
    assert outcomes[0].message and outcomes[0].recompute_from == 4


def test_a_request_is_fetched_once_at_a_time() -> None:
    p, d = Ranks("p", "prefill"), Ranks("d", "decode")
    params = p.scheduler.finish("a", digest(20), [(0, [7, 3])])
    d.scheduler.fetch("b", params, digest(20))
    with pytest.raises(kvferry.BugError, match="under way"):
        d.scheduler.fetch("b", params, digest(20))


# The interpreter's lock.


class Relay:
    """Carries the control channel of an engine on threads of this interpreter: whoever waits with
    its lock held waits for ever."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.carried = 0
        self.server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near = self.server.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.port))
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(1 << 16):
            self.carried += len(data)
            target.sendall(data)


@pytest.fixture
def relay() -> Iterator[Callable[[int], Relay]]:
    relays: list[Relay] = []

    def one(port: int) -> Relay:
        relays.append(Relay(port))
        return relays[-1]

    yield one
    for each in relays:
        each.server.close()


def test_claim_and_receive_let_others_run(relay: Callable[[int], Relay]) -> None:
    pair = Pair()
    params = pair.offer()
    between = relay(params["remote_port"])
    params["remote_port"] = between.server.getsockname()[1]
    begun = time.monotonic()
    offered = pair.d.claim("b", params, digest(20))
    claimed = between.carried
    assert claimed > 0
    # The commit goes over the relay, too.
    assert offered.receive([(0, [1, 2])], 20) > 0
    assert between.carried > claimed and time.monotonic() - begun < 4
    assert pair.p.freed(5) == ("a", "satisfied")


def test_freed_lets_others_run() -> None:
    pair, ticks = Pair(), []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    begun = time.monotonic()
    assert pair.p.freed(0.3) is None
    ended = time.monotonic()
    stop.set()
    thread.join()
    assert ended - begun >= 0.3
    inside = [at for at in ticks if begun + 0.1 < at < ended - 0.1]
    assert len(inside) > 5, "another thread stood still"


def test_withdraw_ends_what_is_under_way() -> None:
    """Also at P, which is told at once; after that, all is as it was."""
    p, d = Ranks("p", "prefill"), Ranks("d", "decode")
    params = p.scheduler.finish("a", digest(20), [(0, [7, 3])])
    d.scheduler.fetch("b", params, digest(20))
    until(lambda: all(one.counts()["claims"] == 1 for one in p.workers), p, d)
    for one in d.workers:
        one.withdraw()
    until(lambda: p.outcomes, p)
    assert p.outcomes == [("freed", "a")]
    for one in d.workers:
        one.restore()
    params = p.scheduler.finish("c", digest(20), [(0, [7, 3])])
    d.scheduler.fetch("e", params, digest(20))
    d.scheduler.allocate("e", [(0, [1, 2])], 20, [({"kind": "full"}, 0)])
    until(lambda: ("received", "e") in d.outcomes, p, d)
