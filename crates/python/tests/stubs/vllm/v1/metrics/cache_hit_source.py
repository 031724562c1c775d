"""Where the KV of a prompt came from."""

from enum import Enum


class CacheHitSource(str, Enum):
    DEVICE = "device"
    HOST = "host"
    P2P = "p2p"
    DISK = "disk"
    EXTERNAL_UNSPECIFIED = "external_unspecified"
