"""Memory of tensors and arrays."""

from typing import Any

from ._kvferry import Memory


def memory_of(owner: Any) -> Memory:
    """The bytes that a torch tensor's storage or a numpy array has, on the host.

    The engine that is made with it reads and writes them until it is collected; ``owner`` is kept
    alive for as long. A tensor stands for its whole storage, an array must be contiguous.
    """
    if hasattr(owner, "untyped_storage"):
        if owner.device.type != "cpu":
            raise ValueError(f"a tensor on {owner.device}: only host memory can be registered")
        storage = owner.untyped_storage()
        return Memory(storage.data_ptr(), storage.nbytes(), storage)
    if hasattr(owner, "__array_interface__"):
        if not owner.flags.c_contiguous or not owner.flags.writeable:
            raise ValueError("an array must be contiguous and writeable")
        return Memory(owner.ctypes.data, owner.nbytes, owner)
    raise TypeError(f"{type(owner).__name__} is neither a torch tensor nor a numpy array")
