"""The connector takes every call that vLLM makes, of 0.32 and of 0.33."""

import importlib.machinery
import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake.engine import settings
from fake.model import HYBRID, Rank, config_of
from hooks import CONSTRUCTOR, OURS_TO_ANSWER, PROPERTIES, complaints, names_by
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    SupportsHMA,
)

import kvferry
from kvferry.vllm import KvferryConnector
from kvferry.vllm.messages import Presence, Step, Words

HERE = Path(__file__).parent


def test_every_call_is_accepted() -> None:
    assert complaints(KvferryConnector, newest=True) == []
    assert complaints(KVConnectorBase_V1, newest=True) == ["request_finished_all_groups is missing"]
    assert all(hasattr(KvferryConnector, name) for name in PROPERTIES)


def test_parameters_have_the_names_of_the_interface() -> None:
    own, known = names_by(KvferryConnector), names_by(KVConnectorBase_V1)
    for name in known:
        if own[name]:
            assert own[name] == known[name], name


def test_what_the_base_class_would_answer_wrongly() -> None:
    assert OURS_TO_ANSWER <= set(vars(KvferryConnector))


def test_it_can_be_made_by_the_names_of_its_parameters() -> None:
    assert tuple(inspect.signature(KvferryConnector).parameters) == CONSTRUCTOR
    assert issubclass(KvferryConnector, KVConnectorBase_V1)
    assert issubclass(KvferryConnector, SupportsHMA)
    assert not KvferryConnector.__abstractmethods__
    for role in KVConnectorRole:
        made = KvferryConnector(
            vllm_config=settings(HYBRID, "kv_both"),
            role=role,
            kv_cache_config=config_of(HYBRID, Rank(HYBRID)),
        )
        assert made.role is role and made.requires_kv_delivery
        made.shutdown()
        made.shutdown()


def test_metadata_are_pickled() -> None:
    for told in (Step(b"x", ("a",), ("b",), ("c",)), Words([(1, b"y")]), Presence(1, 2, ("h", 3))):
        assert pickle.loads(pickle.dumps(told)) == told
    assert Words([(0, b"a")]).aggregate(Words([(1, b"b")])) == Words([(0, b"a"), (1, b"b")])


def test_a_worker_before_its_caches_are_registered() -> None:
    """Profiling runs steps of a worker that has no memory yet."""
    config = config_of(HYBRID, Rank(HYBRID))
    worker = KvferryConnector(settings(HYBRID, "kv_both"), KVConnectorRole.WORKER, config)
    worker.bind_connector_metadata(Step())
    worker.start_load_kv(SimpleNamespace())
    results = worker.get_transfer_results(set())
    assert not (results.finished_sending or results.finished_recving or results.failed_recving)
    assert worker.build_connector_worker_meta() is None
    assert worker.get_handshake_metadata() is None
    worker.unregister_kv_caches()
    worker.restore_kv_caches()
    worker.shutdown()


def test_the_hook_that_has_no_word_for_failed_loads() -> None:
    """Who calls it would take a failed load for a received one."""
    config = config_of(HYBRID, Rank(HYBRID))
    worker = KvferryConnector(settings(HYBRID, "kv_both"), KVConnectorRole.WORKER, config)
    with pytest.raises(NotImplementedError, match="get_transfer_results"):
        worker.get_finished(set())


def test_memory_is_asked_for_with_heads_before_tokens() -> None:
    assert KvferryConnector.get_required_kvcache_layout(settings(HYBRID, "kv_both")) == "LBHNC"


def with_vllm() -> str:
    """An interpreter that has a real vLLM: that of a variable, or this one."""
    if named := os.environ.get("KVFERRY_VLLM_PYTHON"):
        return named
    elsewhere = [path for path in sys.path if path != str(HERE / "stubs")]
    found = importlib.machinery.PathFinder.find_spec("vllm", elsewhere)
    if found is None or found.loader is None or found.origin is None:
        pytest.skip("no vLLM: set KVFERRY_VLLM_PYTHON to an interpreter that has one")
    return sys.executable


def test_the_installed_vllm_has_this_interface(tmp_path: Path) -> None:
    python = with_vllm()
    # Nothing else of this interpreter.
    (tmp_path / "kvferry").symlink_to(Path(kvferry.__file__).parent)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [python, str(HERE / "real_vllm.py")]
    run = subprocess.run(command, capture_output=True, text=True, env=env)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    assert told == {
        "of the connector": [],
        "of the table": [],
        "named otherwise": {},
        "not in the table": [],
        "abstract": [],
        "hybrid": True,
        "constructor": list(CONSTRUCTOR),
        "of the stubs": [],
        "recurrences": [],
        "not ours": [],
    }
