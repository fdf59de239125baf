"""Run with `python benchmarks/memory.py`.

Peak memory of collecting many calls: each size in a process of its own, on a scripted model, with
everything stored and labelled. Flat memory means that ten times the calls take no more of it.
"""

import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from beacon.pipeline import collect_run
from beacon.store import Store
from beacon.study_file import read_study

SIZES = (10_000, 100_000, 1_000_000)
STUDY = """
beacon: 1
name: many
framings: {{neutral: You are a helpful assistant.}}
questions: [{{id: q, text: "What is the capital of France?"}}]
models: [{{spec: "scripted/{script}", limit: 64}}]
repeats: {repeats}
"""
SCRIPT = "replies: [{text: 'Paris is the capital of France, and has been for a long time.'}]"


def collect(n_calls: int) -> None:
    """Collect `n_calls` in this process and print what it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "script.yaml"
        script.write_text(SCRIPT)
        study = read_study(STUDY.format(script=script, repeats=n_calls))
        store = Store.create(folder / "run", study, now=datetime.now(UTC), version="benchmark")
        started = time.perf_counter()
        collected = collect_run(store)
        seconds = time.perf_counter() - started
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = (folder / "run" / "store.sqlite").stat().st_size / 1e6
    print(
        f"{collected.n_stored:>9,} calls  peak {megabytes:6.0f} MB  {seconds:6.1f} s  "
        f"{collected.n_stored / seconds:6,.0f} calls/s  store {size:5.0f} MB",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) == 2:
        collect(int(sys.argv[1]))
        return
    print(f"beacon {metadata.version('beacon-audit')}, Python {platform.python_version()}")
    for size in SIZES:
        subprocess.run([sys.executable, __file__, str(size)], check=True)


if __name__ == "__main__":
    main()
