"""Run by a test in an interpreter that has a real vLLM: the connector against its base class."""

import dataclasses
import enum
import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


STUBS = [
    "v1.kv_cache_interface",
    "v1.outputs",
    "v1.request",
    "v1.metrics.cache_hit_source",
    "distributed.kv_transfer.kv_connector.v1.base",
]
OF_TESTS_ONLY = {"MambaType"}


def unknown() -> list[str]:
    """What the stubs have and the real modules do not: names, fields and members."""
    found = []
    for name in STUBS:
        path = Path(__file__).parent / "stubs" / "vllm" / (name.replace(".", "/") + ".py")
        spec = importlib.util.spec_from_file_location(f"stub_of_{name}", path)
        stub = importlib.util.module_from_spec(spec)
        sys.modules[stub.__name__] = stub
        spec.loader.exec_module(stub)
        real = importlib.import_module(f"vllm.{name}")
        for kind in vars(stub).values():
            if inspect.isclass(kind) and kind.__module__ == stub.__name__:
                found += [f"{name}: {one}" for one in _lacks(kind, real)]
    return found


def _lacks(kind: type, real: object) -> list[str]:
    if kind.__name__.startswith("_") or kind.__name__ in OF_TESTS_ONLY:
        return []
    theirs = getattr(real, kind.__name__, None)
    if theirs is None:
        return [kind.__name__]
    if issubclass(kind, enum.Enum):
        wanted, has = set(kind.__members__), set(theirs.__members__)
    elif dataclasses.is_dataclass(kind):
        wanted = {field.name for field in dataclasses.fields(kind)}
        has = {field.name for field in dataclasses.fields(theirs)}
    else:
        return []
    return [f"{kind.__name__}.{one}" for one in sorted(wanted - has)]


def recurrences() -> list[str]:
    """Kinds of states that the connector names and vLLM does not."""
    from vllm.v1.kv_cache_interface import MambaSpec

    from kvferry.vllm.groups import _RECURRENCES

    kinds = type(MambaSpec.__dataclass_fields__["mamba_type"].default)
    return sorted(set(_RECURRENCES) - set(kinds.__members__))


def main() -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1 import base

    from hooks import OURS_TO_ANSWER, PROPERTIES, complaints, names_by
    from kvferry.vllm import KvferryConnector

    theirs, newest = base.KVConnectorBase_V1, hasattr(base.KVConnectorBase_V1, "supports_sleep_mode")
    own, known = names_by(KvferryConnector), names_by(theirs)
    named = {
        name: [known[name], own[name]]
        for name in known
        if name in vars(KvferryConnector) and own[name] and own[name] != known[name]
    }
    print(
        json.dumps(
            {
                "of the connector": complaints(KvferryConnector, newest),
                "of the table": [
                    one
                    for one in complaints(theirs, newest)
                    if not one.startswith("request_finished_all_groups")
                ],
                "named otherwise": named,
                "not in the table": sorted(
                    name
                    for name, what in vars(theirs).items()
                    if not name.startswith("_")
                    and name not in known
                    and name not in PROPERTIES
                    and callable(getattr(theirs, name))
                ),
                "abstract": sorted(KvferryConnector.__abstractmethods__),
                "hybrid": base.supports_hma(KvferryConnector),
                "constructor": list(inspect.signature(KvferryConnector).parameters),
                "of the stubs": unknown(),
                "recurrences": recurrences(),
                "not ours": sorted(OURS_TO_ANSWER - set(vars(KvferryConnector))),
            }
        )
    )


main()
