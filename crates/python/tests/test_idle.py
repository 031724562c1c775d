"""An engine with nothing to hand off pays next to nothing for the connector."""

import sys
import time
from collections.abc import Callable
from types import FrameType, SimpleNamespace

import pytest
from fake.engine import Engine, play, rest
from fake.model import HYBRID
from fake.pair import decode, hand_off, prefill, prompt
from vllm.v1.outputs import KVConnectorOutput

Start = Callable[..., Engine]
CALLS = 40
"""The hooks themselves are ten."""


@pytest.mark.parametrize("role", ["kv_producer", "kv_consumer", "kv_both"])
def test_a_step_with_nothing_to_do(role: str, start: Start) -> None:
    """The hooks of one step, of scheduler and worker together, by the calls that they make: a time
    would be the machine's."""
    engine = start(HYBRID, role)
    scheduler, worker = engine.connector, engine.workers.connectors[0]
    output, context, said = SimpleNamespace(), SimpleNamespace(), KVConnectorOutput()
    nobody: set[str] = set()

    def step() -> None:
        meta = scheduler.build_connector_meta(output)
        worker.bind_connector_metadata(meta)
        worker.start_load_kv(context)
        worker.wait_for_save()
        worker.get_transfer_results(nobody)
        worker.get_kv_connector_stats()
        worker.build_connector_worker_meta()
        worker.clear_connector_metadata()
        scheduler.update_connector_output(said)
        scheduler.get_kv_connector_stats()

    step()
    assert calls(step) <= CALLS


def calls(work: Callable[[], None]) -> int:
    """How many functions are called, those of C included."""
    made = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def test_an_idle_engine_burns_no_processor(start: Start) -> None:
    """The threads of the agents sleep, also after they have worked."""
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer")
    assert hand_off(p, d, prompt(70)).is_right
    rest(p, d)
    begun = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - begun < 0.1


def test_work_goes_on_between_steps(start: Start) -> None:
    """Blocks arrive while the engine computes for long: no step has to come for that."""
    p, d = start(HYBRID, "kv_producer"), start(HYBRID, "kv_consumer")
    first = prefill(p, prompt(70))
    request = decode(d, first, prompt(70))
    d.step()
    worker = p.workers.connectors[0]._worker._worker
    # P lets go before either engine makes another step.
    deadline = time.monotonic() + 20
    while worker.counts()["leases"] > 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    play(p, d, until=lambda: request.is_over)
    assert request.is_right
