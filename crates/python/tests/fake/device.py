"""Memory that the host does not see, and as much of torch as copies between it and the host need."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from .tensors import DType, Storage, Tensor


class _Zeros:
    def __init__(self, size: int) -> None:
        self._storage = Storage(size)

    def untyped_storage(self) -> Storage:
        return self._storage


class _Empty:
    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype

    def set_(self, storage: Storage, offset: int, size: Any, stride: Any) -> Tensor:
        return Tensor(storage, self._dtype, tuple(size), tuple(stride), offset, True)


@contextmanager
def torch() -> Iterator[None]:
    module = ModuleType("torch")
    module.uint8 = "uint8"  # type: ignore[attr-defined]
    module.zeros = lambda size, dtype, pin_memory: _Zeros(size)  # type: ignore[attr-defined]
    module.empty = lambda _, dtype: _Empty(dtype)  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, {"torch": module}):
        yield


class Copies:
    """vLLM's operation: copies blocks between two sets of views, and remembers which."""

    def __init__(self) -> None:
        self.made: list[tuple[str, tuple[str, ...], list[int]]] = []

    def __call__(
        self,
        sources: dict[str, Tensor],
        targets: dict[str, Tensor],
        from_ids: list[int],
        to_ids: list[int],
        direction: str,
    ) -> None:
        assert list(sources) == list(targets) and len(from_ids) == len(to_ids)
        for name, source in sources.items():
            target = targets[name]
            assert (source.is_cpu, target.is_cpu) == ((False, True) if direction == "d2h" else (True, False))
            target.words()[np.array(to_ids)] = source.words()[np.array(from_ids)]
        self.made.append((direction, tuple(sources), list(from_ids)))
