"""The package holds its own type annotations, and its stub file agrees with how it is used."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


def test_mypy_strict() -> None:
    if find_spec("mypy") is None:
        pytest.skip("no mypy")
    root = Path(__file__).parents[1]
    run = subprocess.run([sys.executable, "-m", "mypy"], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
