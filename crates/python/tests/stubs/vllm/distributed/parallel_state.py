"""The ranks of an engine. Each is a thread of its own in the tests, so the group is local to one."""

import threading
from dataclasses import dataclass
from typing import Any


@dataclass
class Group:
    world_size: int = 1
    rank_in_group: int = 0
    cpu_group: Any = None


own = threading.local()


def get_world_group() -> Group:
    return getattr(own, "group", Group())
