"""The memory of one side, whose every word says where it belongs."""

import mmap

import numpy as np
import numpy.typing as npt

from workload import Workload

POISON = 0xEE
WORD = 8


class Pool:
    """Private memory in pages as the system gives them, as the KV cache of an engine on CPUs is."""

    def __init__(self, workload: Workload) -> None:
        memory = mmap.mmap(-1, workload.pool_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._words = np.frombuffer(memory, dtype=np.uint64)
        self._blocks = self._words.reshape(workload.regions * workload.pool, workload.block // WORD)
        self.address: int = self._words.ctypes.data
        self.regions = [self.address + region * workload.region_bytes for region in range(workload.regions)]
        self.region_bytes = workload.region_bytes

    def fill(self) -> None:
        for place in range(len(self._blocks)):
            self._blocks[place] = self._source_words(place)

    def poison_all(self) -> None:
        """Takes every page from the system, so that none is taken inside the clock."""
        self._words.view(np.uint8).fill(POISON)

    def poison(self, places: npt.NDArray[np.int64]) -> None:
        for place in places:
            self._blocks[place].view(np.uint8).fill(POISON)

    def wrong_bytes(self, sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> int:
        """Bytes of the targets that are not those of the sources in a filled pool."""
        wrong = 0
        for source, target in zip(sources, targets, strict=True):
            expected, found = self._source_words(int(source)), self._blocks[target]
            if not np.array_equal(expected, found):
                wrong += int(np.count_nonzero(expected.view(np.uint8) != found.view(np.uint8)))
        return wrong

    def _source_words(self, place: int) -> npt.NDArray[np.uint64]:
        """A block of a filled pool: each word is a different one, for an odd factor and a shift lose nothing."""
        count = self._blocks.shape[1]
        words = np.arange(place * count + 1, (place + 1) * count + 1, dtype=np.uint64)
        words *= np.uint64(0x9E37_79B9_7F4A_7C15)
        words ^= words >> np.uint64(32)
        return words
