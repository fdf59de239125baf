"""Run `python benchmarks/collect.py`: what whole tools draw from the same server in the same run.

Compares a bare aiohttp loop that stores nothing with lm-evaluation-harness, Inspect and Beacon.
Needs nginx (`apt-get install nginx-light`); `--set-up` first makes the virtual environments of the
two peers under `benchmarks/.venvs`. Two rates are shown, both measured alike for every tool:

    kept/s   what a further request costs in all: a large run's wall time less a small one's
    sent/s   from the first answer to the last, by the server's own notes

The second leaves out what a tool prepares before it sends and stores after it, so the first is the
one to compare. A run counts only if the server saw every request and the tool kept every answer.
Compare ratios from one run: the machine is noisy.
"""

import argparse
import itertools
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from loopback import (
    ANSWER_BODY,
    MODEL,
    WORKERS,
    client_environment,
    installed,
    machine_versions,
    nginx,
    print_table,
    question,
    set_up_venv,
    venv_python,
    venv_version,
)

HERE = Path(__file__).resolve().parent
LIMIT_S = 600
SMALL = WORKERS  # requests of the small run that start-up is measured with
LEAST = 8 * WORKERS  # below this the first burst would hide what a request costs
TARGET = "Paris"
BARE = "bare aiohttp loop"
LM_EVAL_TASK = """
task: beacon_bench
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{target}}}}"
generation_kwargs:
  until: []
  max_gen_toks: 256
  do_sample: false
metric_list:
  - metric: exact_match
"""
INSPECT_TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset, FieldSpec
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


@task
def beacon_bench():
    fields = FieldSpec(input="question", target="target")
    data = json_dataset({data!r}, fields)
    return Task(dataset=data, solver=generate(), scorer=includes())
"""


@dataclass(frozen=True)
class Tool:
    """A tool under measurement: how it is run, and how many answers it kept."""

    name: str
    version: Callable[[Path], str | None]
    install: str
    prepare: Callable[[Path, str, int, Path], list[str]]
    """Writes what the tool needs into a folder; returns the command."""
    kept: Callable[[Path, Path], int] | None
    """How many answers lie in the folder after the run; None where none are stored."""
    note: str


@dataclass(frozen=True)
class Figures:
    """One run of one tool."""

    wall: float
    before: float
    sending: float
    after: float
    cpu: float
    peak_mib: float


@dataclass(frozen=True)
class Pair:
    """A small run and a large one after it."""

    small: Figures
    large: Figures
    count: int

    @property
    def kept_rate(self) -> float:
        """Requests a second without what the small run costs too."""
        return (self.count - SMALL) / (self.large.wall - self.small.wall)

    @property
    def sent_rate(self) -> float:
        """Requests a second between the first answer and the last."""
        return (self.count - 1) / self.large.sending

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds that a further request costs."""
        return (self.large.cpu - self.small.cpu) / (self.count - SMALL) * 1000


class ToolFailedError(Exception):
    """A tool ended badly, or lost a request or an answer."""


def write_questions(folder: Path, count: int) -> Path:
    """The questions as JSON Lines."""
    path = folder / "questions.jsonl"
    rows = ({"question": question(number), "target": TARGET} for number in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prepare_bare(folder: Path, base: str, count: int, venvs: Path) -> list[str]:
    script = str(HERE / "http_clients.py")
    url = f"{base}/chat/completions"
    command = [sys.executable, script, "--client", "aiohttp", "--url", url]
    return [*command, "--requests", str(count), "--warm-up", "0"]


def prepare_lm_eval(folder: Path, base: str, count: int, venvs: Path) -> list[str]:
    data = write_questions(folder, count)
    (folder / "beacon_bench.yaml").write_text(LM_EVAL_TASK.format(data=data))
    arguments = {
        "model": MODEL,
        "base_url": f"{base}/chat/completions",
        "num_concurrent": WORKERS,
        "tokenizer_backend": "None",
    }
    command = [str(venv_python(venvs / "lm-eval")), "-m", "lm_eval", "run"]
    command += ["--model", "local-chat-completions", "--tasks", "beacon_bench"]
    command += ["--model_args", ",".join(f"{name}={value}" for name, value in arguments.items())]
    command += ["--include_path", str(folder), "--output_path", str(folder / "out")]
    return [*command, "--apply_chat_template", "--log_samples"]


def kept_by_lm_eval(folder: Path, venvs: Path) -> int:
    """The samples that lm-eval logged with a response."""
    lines = (line for path in folder.rglob("samples_*.jsonl") for line in path.open())
    return sum(1 for line in lines if json.loads(line)["resps"][0][0])


def prepare_inspect(folder: Path, base: str, count: int, venvs: Path) -> list[str]:
    data = write_questions(folder, count)
    task = folder / "beacon_bench.py"
    task.write_text(INSPECT_TASK.format(data=str(data)))
    command = [str(venv_python(venvs / "inspect")), "-m", "inspect_ai", "eval", task.name]
    command += ["--model", f"openai-api/loopback/{MODEL}", "--model-base-url", base]
    command += ["--max-connections", str(WORKERS), "--display", "none"]
    return [*command, "--log-dir", str(folder / "logs")]


def kept_by_inspect(folder: Path, venvs: Path) -> int:
    """The samples that were scored, as Inspect itself reads its log (zstd inside a zip)."""
    found = 0
    for path in folder.rglob("*.eval"):
        command = [str(venv_python(venvs / "inspect")), "-m", "inspect_ai", "log", "dump"]
        command += ["--header-only", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        results = json.loads(done.stdout)["results"]
        found += min(results["completed_samples"], results["scores"][0]["scored_samples"])
    return found


def prepare_beacon(folder: Path, base: str, count: int, venvs: Path) -> list[str]:
    """A study whose questions lie beside it, one JSON object a line."""
    questions = [
        json.dumps({"id": f"q{number}", "text": question(number), "expected": [TARGET]})
        for number in range(count)
    ]
    (folder / "questions.jsonl").write_text("\n".join(questions))
    study = {
        "beacon": 1,
        "name": "benchmark",
        "framings": {"plain": "You answer questions truthfully and briefly."},
        "questions": "questions.jsonl",
        "models": [{"spec": f"{base}#{MODEL}", "limit": WORKERS}],
        "sampling": {"temperature": 0, "max_tokens": 256},
    }
    path = folder / "study.yaml"
    path.write_text(json.dumps(study, indent=1))
    return [sys.executable, "-m", "beacon", "collect", str(path), "--into", str(folder / "run")]


def kept_by_beacon(folder: Path, venvs: Path) -> int:
    """The fewest rows in the tables that must hold one for every call."""
    found = []
    for path, table in itertools.product(folder.rglob("store.sqlite"), ("responses", "labels")):
        with closing(sqlite3.connect(path)) as store:
            found.append(int(store.execute(f"SELECT count(*) FROM {table}").fetchone()[0]))
    return min(found, default=0)


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            BARE,
            lambda venvs: installed("aiohttp"),
            "pip install aiohttp",
            prepare_bare,
            None,
            "stores nothing",
        ),
        Tool(
            "lm-eval",
            lambda venvs: venv_version(venvs / "lm-eval", "lm_eval"),
            "python benchmarks/collect.py --set-up",
            prepare_lm_eval,
            kept_by_lm_eval,
            "writes its samples at the end",
        ),
        Tool(
            "Inspect",
            lambda venvs: venv_version(venvs / "inspect", "inspect_ai"),
            "python benchmarks/collect.py --set-up",
            prepare_inspect,
            kept_by_inspect,
            "one generate + includes, log written",
        ),
        Tool(
            "Beacon",
            lambda venvs: installed("beacon-audit"),
            "pip install -e .",
            prepare_beacon,
            kept_by_beacon,
            "durable in SQLite, labelled by reference",
        ),
    )
}


def last_lines(path: Path) -> str:
    """The end of a tool's output, for the line that says why it failed."""
    return " / ".join(path.read_text(errors="replace").strip().splitlines()[-3:])


def run_command(command: list[str], folder: Path, base: str) -> tuple[float, float, float]:
    """Run to the end or the limit: wall seconds, CPU seconds and peak memory in MiB."""
    extra = {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    extra |= {"LOOPBACK_API_KEY": "none", "LOOPBACK_BASE_URL": base, "NO_COLOR": "1"}
    out = folder / "output.txt"
    with out.open("wb") as sink:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=client_environment(base) | extra, stdout=sink, stderr=sink
        )
        guard = threading.Timer(LIMIT_S, process.kill)
        guard.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        guard.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise ToolFailedError(f"status {process.returncode}: {last_lines(out)}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(tool: Tool, base: str, count: int, log: Path, venvs: Path) -> Figures:
    """Run a tool once in a folder of its own, and read from the server's log what it did."""
    with tempfile.TemporaryDirectory(prefix="beacon-bench-") as name:
        folder = Path(name)
        command = tool.prepare(folder, base, count, venvs)
        seen_before = log.stat().st_size
        started = time.time()
        wall, cpu, peak = run_command(command, folder, base)
        time.sleep(0.5)
        kept = tool.kept(folder, venvs) if tool.kept else count
    with log.open() as lines:
        lines.seek(seen_before)
        moments = [float(line) for line in lines]
    if len(moments) != count or kept != count:
        raise ToolFailedError(f"{count} wanted, the server saw {len(moments)}, {kept} were kept")
    return Figures(
        wall=wall,
        before=moments[0] - started,
        sending=moments[-1] - moments[0],
        after=started + wall - moments[-1],
        cpu=cpu,
        peak_mib=peak,
    )


def run_rounds(
    sizes: dict[str, int], rounds: int, venvs: Path
) -> tuple[dict[str, list[Pair]], list[str]]:
    """Every tool once a round; a failed run is kept as a line, never as a figure."""
    measured: dict[str, list[Pair]] = {name: [] for name in sizes}
    failures = []
    with tempfile.TemporaryDirectory(prefix="beacon-bench-") as name:
        log = Path(name, "moments.log")
        Path(name).chmod(0o755)
        with nginx(log) as base:
            for turn, (tool, count) in itertools.product(range(rounds), sizes.items()):
                try:
                    small = measure(TOOLS[tool], base, SMALL, log, venvs)
                    large = measure(TOOLS[tool], base, count, log, venvs)
                except ToolFailedError as failure:
                    failures.append(f"{tool}: round {turn + 1} FAILED: {failure}")
                    continue
                measured[tool].append(pair := Pair(small, large, count))
                said = f"kept {pair.kept_rate:,.0f}/s, sent {pair.sent_rate:,.0f}/s"
                print(f"round {turn + 1} {tool}: {said}", file=sys.stderr)
    return measured, failures


def report(measured: dict[str, list[Pair]]) -> None:
    """Print medians, and ratios to the bare loop."""
    medians = {
        name: statistics.median(pair.kept_rate for pair in pairs)
        for name, pairs in measured.items()
        if pairs
    }
    bare = medians.get(BARE, float("nan"))
    rows = []
    for name, kept in medians.items():
        pairs = measured[name]
        rates = [pair.kept_rate for pair in pairs]
        row = [name, f"{pairs[0].count:,}", f"{kept:,.0f}", f"{min(rates):,.0f}-{max(rates):,.0f}"]
        row += [f"{kept / bare:.3f}", f"{statistics.median(p.sent_rate for p in pairs):,.0f}"]
        for part in ("before", "sending", "after", "wall"):
            row.append(f"{statistics.median(getattr(p.large, part) for p in pairs):.2f}")
        row.append(f"{statistics.median(p.cpu_ms for p in pairs):.2f}")
        row.append(f"{statistics.median(p.large.peak_mib for p in pairs):.0f}")
        rows.append([*row, TOOLS[name].note])
    head = ["tool", "requests", "kept/s", "range", "to bare loop", "sent/s", "before first s"]
    head += ["sending s", "after last s", "whole s", "CPU ms each", "peak MiB", "note"]
    print_table(head, rows)


def set_up(venvs: Path) -> None:
    """Make the peers' virtual environments; torch first, since an unpinned one is gigabytes."""
    set_up_venv(venvs / "lm-eval", [["torch==2.13.0"], ["lm_eval[api]"]])
    set_up_venv(venvs / "inspect", [["inspect_ai", "openai"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set-up", action="store_true", help="make the peers' environments first")
    parser.add_argument("--venvs", type=Path, default=HERE / ".venvs", help="where they lie")
    parser.add_argument("--requests", type=int, default=4000, help="for the fast tools")
    parser.add_argument("--slow-requests", type=int, default=640, help="for Inspect")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    options = parser.parse_args()
    if min(options.requests, options.slow_requests) < LEAST:
        parser.error(f"fewer than {LEAST} requests measure start-up, not the tool")
    if options.set_up:
        set_up(options.venvs)
    versions = {name: TOOLS[name].version(options.venvs) for name in options.only}
    sizes = {
        name: options.slow_requests if name == "Inspect" else options.requests
        for name, version in versions.items()
        if version
    }
    print(machine_versions())
    print(", ".join(f"{name} {version}" for name, version in versions.items() if version))
    print(
        f"{WORKERS} at once, {options.rounds} interleaved rounds, answer {len(ANSWER_BODY)} bytes\n"
    )
    measured, failures = run_rounds(sizes, options.rounds, options.venvs)
    report(measured)
    missing = [name for name, version in versions.items() if not version]
    for line in [*failures, *(f"{n}: not installed: {TOOLS[n].install}" for n in missing)]:
        print(line)


if __name__ == "__main__":
    main()
