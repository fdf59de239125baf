"""Run with `python benchmarks/startup.py`.

How long `beacon` takes to start: the median of several cold processes, and of `import beacon`.
"""

import platform
import statistics
import subprocess
import sys
import time
from importlib import metadata

COMMANDS = (
    ("beacon --help", ["-m", "beacon", "--help"]),
    ("beacon classify --help", ["-m", "beacon", "classify", "--help"]),
    ("beacon run --help", ["-m", "beacon", "run", "--help"]),
    ("beacon classify --text ...", ["-m", "beacon", "classify", "--text", "I cannot discuss it."]),
    ("python -c 'import beacon'", ["-c", "import beacon"]),
    ("python -c pass", ["-c", "pass"]),
)
ROUNDS = 15


def seconds(arguments: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name, _ in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS:
            taken[name].append(seconds(arguments))
    print(
        f"beacon {metadata.version('beacon-audit')}, Python {platform.python_version()}, ", end=""
    )
    print(f"median (range) of {ROUNDS} interleaved processes, seconds")
    for name, times in taken.items():
        print(f"{name:28} {statistics.median(times):.3f}  ({min(times):.3f}-{max(times):.3f})")


if __name__ == "__main__":
    main()
