"""The platform; tests turn it."""


class _Platform:
    cpu = False

    def is_cpu(self) -> bool:
        return self.cpu


current_platform = _Platform()
