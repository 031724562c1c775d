"""What the checks found: a line each as it comes, and all of it as JSON in the end."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Line:
    check: str
    held: bool
    detail: str
    known: str | None
    """The entry by which the connector is known not to pass this."""


@dataclass
class Report:
    connector: str
    lines: list[Line] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    begin: float = field(default_factory=time.monotonic)

    def check(self, line: Line) -> None:
        self.lines.append(line)
        mark = "ok    " if line.held else "known " if line.known else "WRONG "
        print(f"{time.monotonic() - self.begin:7.1f}s {mark}{line.check}: {line.detail}", flush=True)

    def figure(self, name: str, values: dict[str, Any]) -> None:
        self.figures[name] = values
        shown = "  ".join(f"{key} {value}" for key, value in values.items())
        print(f"{time.monotonic() - self.begin:7.1f}s       {name}: {shown}", flush=True)

    def failed(self) -> int:
        """Checks that did not hold and are not known not to."""
        return sum(not line.held and line.known is None for line in self.lines)

    def unseen(self) -> list[str]:
        """What is known to be wrong and was not seen to be: then the suite proves less than it says."""
        known = {line.known for line in self.lines if line.known}
        seen = {line.known for line in self.lines if line.known and not line.held}
        return sorted(known - seen)

    def write(self, path: Path) -> None:
        content = {
            "connector": self.connector,
            "checks": [asdict(line) for line in self.lines],
            "figures": self.figures,
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
        }
        path.write_text(json.dumps(content, indent=1) + "\n")

    def table(self) -> str:
        """The figures as a page shows them, a row each."""
        keys = list(dict.fromkeys(key for values in self.figures.values() for key in values))
        head = [["run", *(key.replace("_", " ") for key in keys)], ["---"] * (len(keys) + 1)]
        rows = [[name, *(str(values.get(key, "")) for key in keys)] for name, values in self.figures.items()]
        return "".join(f"| {' | '.join(row)} |\n" for row in head + rows)

    def summary(self) -> str:
        """What failed as it is known to is no failure of this run, and has a line of its own."""
        known = sum(line.known is not None and not line.held for line in self.lines)
        held = sum(line.held for line in self.lines)
        seen = f"{known} failed as known\n" if known else ""
        return f"{seen}{held} passed, {self.failed() + len(self.unseen())} failed"
