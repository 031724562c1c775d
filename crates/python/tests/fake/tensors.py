"""Memory of numpy that looks like tensors of torch, as far as the connector looks."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DType:
    name: str
    itemsize: int

    def __str__(self) -> str:
        return f"torch.{self.name}"


FLOAT32 = DType("float32", 4)
INT8 = DType("int8", 1)
_NUMPY = {FLOAT32: np.uint32, INT8: np.uint8}


class Storage:
    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)

    def data_ptr(self) -> int:
        return self.bytes.ctypes.data

    def nbytes(self) -> int:
        return self.bytes.nbytes


@dataclass(frozen=True)
class Tensor:
    """A view of a storage; strides and offset count elements, as those of torch do."""

    storage: Storage
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    is_cpu: bool = True

    def size(self) -> tuple[int, ...]:
        return self.shape

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    def element_size(self) -> int:
        return self.dtype.itemsize

    def storage_offset(self) -> int:
        return self.offset

    def untyped_storage(self) -> Storage:
        return self.storage

    def words(self) -> np.ndarray:
        """The elements as numbers, to be read and written in place."""
        item = self.dtype.itemsize
        return np.ndarray(
            self.shape,
            _NUMPY[self.dtype],
            self.storage.bytes.data,
            self.offset * item,
            tuple(stride * item for stride in self.strides),
        )
