"""How long a process takes to start: with nothing, with the package, with the command line."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

VERSION = "import sys; from msgledger.cli.main import main; sys.argv = ['msgledger', '--version']; main()"
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "import msgledger": ("-c", "import msgledger"),
    "import, and all that open needs": ("-c", "import msgledger; msgledger.open"),
    "msgledger --version": ("-c", VERSION),
}


def measure(folder: Path, starts: int) -> dict[str, float]:
    """Median milliseconds of each command, in turns; a command that fails is left out. The first turn warms up."""
    took: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(starts + 1):
        for name, arguments in COMMANDS.items():
            began = time.perf_counter()
            ended = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, check=False)
            if turn and ended.returncode == 0:
                took[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(values) for name, values in took.items() if values}
