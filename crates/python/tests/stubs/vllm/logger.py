"""Loggers that can say a thing once."""

import logging

_said: set[tuple[str, str]] = set()


class _Logger(logging.Logger):
    def warning_once(self, message: str, *args: object) -> None:
        if (self.name, message) not in _said:
            _said.add((self.name, message))
            self.warning(message, *args)


def init_logger(name: str) -> _Logger:
    usual = logging.getLoggerClass()
    logging.setLoggerClass(_Logger)
    try:
        return logging.getLogger(name)
    finally:
        logging.setLoggerClass(usual)


def forget() -> None:
    """Makes everything worth saying again: tests share a process."""
    _said.clear()
