"""The connectors that the suite can run, and all that it has to know of one: nothing else in it names a connector."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Connector:
    name: str
    transfer: Mapping[str, Any]
    """What goes into vLLM's `--kv-transfer-config` beside the role."""
    lease_key: str
    bytes_key: str
    """Of its statistics: the bytes that this engine received."""
    env: Mapping[str, str] = field(default_factory=dict)
    listen_key: str | None = None
    """Where its address is set; in the environment if there is none."""
    says: Mapping[str, str] = field(default_factory=dict)
    """What the log of an engine must say when it refuses, by the name of the case."""
    wrong: tuple[str, ...] = ()
    """Checks that it is known not to pass, by the start of their names: the controls of the suite."""
    blind: "Connector | None" = None
    """The same one, but that it does not compare prompts."""

    def config(self, role: str, options: "Options", port: int) -> dict[str, Any]:
        extra = dict(options.extra)
        if options.lease_seconds is not None:
            extra[self.lease_key] = options.lease_seconds
        if self.listen_key and port:
            extra[self.listen_key] = f"{HOST}:{port}"
        return {
            **self.transfer,
            "kv_role": role,
            "kv_buffer_device": "cpu",
            "kv_load_failure_policy": options.policy,
            "kv_connector_extra_config": extra,
        }

    def environment(self, port: int) -> dict[str, str]:
        return {name: value.format(host=HOST, port=port) for name, value in self.env.items()}

    def moved(self, figures: Mapping[str, Any]) -> int:
        """Bytes that an engine received since it started."""
        return int(figures["stats"].get(self.bytes_key, 0))

    def says_why(self, case: str) -> re.Pattern[str]:
        # A connector of which nothing is expected is asked for what no log has.
        return re.compile(self.says.get(case, r"(?!)"), re.IGNORECASE)

    def known_wrong(self, check: str) -> str | None:
        """The entry of `wrong` that covers this check."""
        return next((prefix for prefix in self.wrong if check.startswith(prefix)), None)


@dataclass(frozen=True)
class Options:
    """What a check may want of the connector, in words that hold for each."""

    policy: str = "fail"
    lease_seconds: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


_KVFERRY = Connector(
    name="kvferry",
    transfer={"kv_connector": "KvferryConnector", "kv_connector_module_path": "kvferry.vllm"},
    lease_key="lease_seconds",
    bytes_key="bytes",
    # vLLM sets this by itself for its own connector only.
    env={"VLLM_SSM_CONV_STATE_LAYOUT": "DS"},
    listen_key="listen",
    says={
        "mixup": r"another prompt",
        "blocks": r"block.?size.*\b(32\b.*\b64|64\b.*\b32)\b",
    },
)

_BLIND = {"kv_connector": "BlindConnector", "kv_connector_module_path": "blind"}
KVFERRY = replace(_KVFERRY, blind=replace(_KVFERRY, name="kvferry-blind", transfer=_BLIND))

NIXL = Connector(
    name="nixl",
    transfer={"kv_connector": "NixlConnector"},
    lease_key="kv_lease_duration",
    bytes_key="bytes_transferred",
    env={"VLLM_NIXL_SIDE_CHANNEL_HOST": "{host}", "VLLM_NIXL_SIDE_CHANNEL_PORT": "{port}"},
    wrong=(
        "lengths.hybrid.boundary",
        # One of its prompts has a boundary length as well.
        "lengths.hybrid.prefix-hit",
        "lengths.lfm2",
        "mixups",
        "late",
        "blocks",
        "beside",
    ),
)

CONNECTORS = {connector.name: connector for connector in (KVFERRY, NIXL)}
