"""What the workers of one engine agree on when they start."""

from dataclasses import dataclass
from typing import Any

from vllm.distributed.parallel_state import get_world_group


@dataclass(frozen=True)
class Ranks:
    """This worker among those of its engine."""

    engine_id: str
    rank: int
    members: tuple[int, ...]
    """The workers of this engine by their ranks in `group`, in the order of their own."""
    group: Any

    @classmethod
    def of_engine(cls, engine_id: str) -> "Ranks":
        """Data parallel engines may share vLLM's world: the engine's id tells them apart."""
        world = get_world_group()
        if world.world_size == 1:
            return cls(engine_id, 0, (0,), None)
        import torch.distributed as dist

        engines: list[str] = [""] * world.world_size
        dist.all_gather_object(engines, engine_id, group=world.cpu_group)
        members = tuple(rank for rank, engine in enumerate(engines) if engine == engine_id)
        return cls(engine_id, members.index(world.rank_in_group), members, world.cpu_group)

    def agree(self, epoch: int, layout: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
        """One epoch, the first rank's, and the layouts of all ranks in their order."""
        if self.group is None:
            return epoch, [layout]
        import torch.distributed as dist

        told: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(told, (epoch, layout), group=self.group)
        ours = [told[member] for member in self.members]
        return ours[0][0], [layout for _, layout in ours]
