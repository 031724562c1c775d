"""Metrics of Prometheus as far as vLLM lets a connector see them."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import Counter, Gauge, Histogram


class _Metric:
    made: dict[str, "_Metric"] = {}

    def __init__(self, name: str, documentation: str, labelnames: list[str], **more: Any) -> None:
        assert name not in self.made, f"{name} is registered twice"
        assert name.startswith("vllm:") and documentation
        self.made[name] = self
        self.labelnames, self.more = labelnames, more
        self.values: dict[tuple[Any, ...], list[float]] = {}

    def labels(self, *values: Any) -> "_Labelled":
        assert len(values) == len(self.labelnames)
        return _Labelled(self.values.setdefault(values, []))


class _Labelled:
    def __init__(self, values: list[float]) -> None:
        self.values = values

    def inc(self, times: float) -> None:
        self.values.append(times)

    def observe(self, value: float) -> None:
        self.values.append(value)

    def set(self, value: float) -> None:
        self.values.append(value)


class FakeCounter(_Metric):
    pass


class FakeHistogram(_Metric):
    pass


TYPES = {Counter: FakeCounter, Gauge: _Metric, Histogram: FakeHistogram}


def registered(connector: Any, engines: int = 1) -> tuple[Any, dict[str, _Metric]]:
    """The metrics of a connector class, and what it observes with."""
    _Metric.made = {}
    labels = {engine: ["toy", str(engine)] for engine in range(engines)}
    names = ["model_name", "engine"]
    config = type("Config", (), {"kv_transfer_config": None})
    return connector.build_prom_metrics(config, TYPES, names, labels), _Metric.made
