"""What `kv_connector_extra_config` may say."""

from dataclasses import dataclass, fields
from typing import Any

from kvferry import Config

_NUMBERS: dict[str, Any] = {
    "lease_seconds": (int, float),
    "read_timeout_seconds": (int, float),
    "streams": int,
}


@dataclass(frozen=True)
class Options:
    """Settings of one engine; what is left out has the default of the protocol."""

    listen: str = "127.0.0.1:0"
    """Address and port of rank 0; the other ranks take the ports after it, 0 lets the system choose."""
    advertise: str | None = None
    """Host by which decode engines reach this one, if it is not that of `listen`."""
    secret_file: str | None = None
    """File with the secret that all engines share; without one, loopback only."""
    allow: str | None = None
    """The only addresses that a decode engine may connect to, separated by commas."""
    tls_cert: str | None = None
    """TLS 1.3 on every socket: this engine's certificate chain, and with it the next two."""
    tls_key: str | None = None
    """Its key."""
    tls_ca: str | None = None
    """Whoever has signed the certificates of all engines."""
    lease_seconds: float | None = None
    """How long blocks are kept that nobody has claimed."""
    read_timeout_seconds: float | None = None
    """A read that takes longer is given up."""
    transport: str = "auto"
    """What moves blocks: `auto`, or `shm` or `tcp` to insist on one."""
    streams: int | None = None
    """Sockets to each peer."""
    model: str | None = None
    """Name that both sides must agree on, instead of the path or name given to vLLM."""
    revision: str | None = None
    """As `model`, of its revision."""
    log: str = "warn"
    """How much kvferry writes to standard error: `warn`, `info`, `debug`."""

    @classmethod
    def of(cls, extra: dict[str, Any]) -> "Options":
        """Refuses what it does not know, by name."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(extra) - known)
        if unknown:
            raise ValueError(
                f"kv_connector_extra_config: unknown option {', '.join(unknown)}; "
                f"kvferry knows {', '.join(sorted(known))}"
            )
        allow = extra.get("allow")
        if isinstance(allow, list):
            extra = {**extra, "allow": ",".join(allow)}
        for name, value in extra.items():
            wanted = _NUMBERS.get(name, str)
            is_left_out = value is None and cls.__dataclass_fields__[name].default is None
            if not is_left_out and not isinstance(value, wanted):
                kind = "text" if wanted is str else "number"
                raise ValueError(f"kv_connector_extra_config: {name} of {value!r} is no {kind}")
        return cls(**extra)

    def config(self, rank: int) -> Config:
        """The settings of one rank."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit() or int(port) + rank > 65535:
            raise ValueError(
                f"kv_connector_extra_config: listen {self.listen!r} is no address and port: write "
                f"10.0.0.1:7000, or [fd00::1]:7000 for IPv6"
            )
        if host.count(":") and not host.startswith("["):
            raise ValueError(
                f"kv_connector_extra_config: listen {self.listen!r}: an IPv6 address stands in "
                f"brackets, [{host}]:{port}"
            )
        own = int(port) + rank if int(port) else 0
        return Config(
            listen=f"{host}:{own}",
            advertise=self.advertise,
            secret_file=self.secret_file,
            allow=self.allow,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_ca=self.tls_ca,
            lease_seconds=self.lease_seconds,
            read_timeout_seconds=self.read_timeout_seconds,
            transport=self.transport,
            streams=self.streams,
        )
