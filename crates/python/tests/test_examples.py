"""The examples run as they are written, and look at their own result."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvferry

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"


@pytest.mark.parametrize("name", ["numpy_handoff", "torch_handoff"])
def test_example(name: str) -> None:
    needs = name.split("_")[0]
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"no {needs}")
    path = str(Path(kvferry.__file__).parent.parent)
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.returncode == 0, run.stderr
    assert "bytes are there" in run.stdout
