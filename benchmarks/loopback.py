"""What `http_clients.py` and `collect.py` share: the loopback server, its answer, venvs, tables.

Not run by itself. Everything here stays on 127.0.0.1 and ends with the run that started it.
"""

import asyncio
import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

WORKERS = 64
MODEL = "loopback-model"
ANSWER = (
    "Paris is the capital of France. It lies on the Seine in the north of the country and has "
    "been the seat of government for most of the time since the tenth century. With a little over "
    "two million people inside its limits, and more than twelve million in the wider region, it "
    "is also the largest city of the country, and the place where most national institutions, "
    "museums and newspapers have their home."
)
COMPLETION = {
    "id": "chatcmpl-9f1c2d7e5b8a4c36a0e1f2d3c4b5a697",
    "object": "chat.completion",
    "created": 1750000000,
    "model": MODEL,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {
        "prompt_tokens": 61,
        "completion_tokens": 87,
        "total_tokens": 148,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    },
    "service_tier": "default",
    "system_fingerprint": "fp_0a1b2c3d4e",
}
ANSWER_BODY = json.dumps(COMPLETION, separators=(",", ":"))
NGINX_CONF = """
daemon off;
worker_processes 1;
pid nginx.pid;
error_log error.log;
events {{ worker_connections 1024; }}
http {{
  log_format moment '$msec';
  access_log off;
  keepalive_requests 100000000;
  keepalive_timeout 600s;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location = /v1/chat/completions {{
      access_log {log};
      default_type application/json;
      return 200 '{body}';
    }}
    location = /status {{ stub_status; }}
    location = /v1/models {{
      default_type application/json;
      return 200 '{{"object":"list","data":[{{"id":"{model}","object":"model"}}]}}';
    }}
  }}
}}
"""


def question(number: int) -> str:
    """The prompt of request `number`: no two are the same, so that no cache can answer."""
    return (
        f"Question {number}: which city is the capital of France? Answer in a few sentences, name "
        "the river it lies on, and say since when it has been the seat of government."
    )


def request_body(number: int) -> bytes:
    """One chat-completion request of about 300 bytes, encoded."""
    messages = [
        {"role": "system", "content": "You answer questions truthfully and briefly."},
        {"role": "user", "content": question(number)},
    ]
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 256}
    return json.dumps(body).encode()


async def drive(
    post: Callable[[bytes], Awaitable[bytes]], count: int, workers: int = WORKERS
) -> float:
    """Seconds that `workers` workers take for `count` requests, each answer decoded and checked.

    Answers are counted: a task group passes over a worker that ends with CancelledError, and a
    client that loses workers that way would otherwise look fast.
    """
    numbers = iter(range(count))
    answered = 0

    async def work() -> None:
        nonlocal answered
        for number in numbers:
            answer = json.loads(await post(request_body(number)))
            if answer["choices"][0]["finish_reason"] != "stop":
                raise RuntimeError(f"unexpected answer: {answer}")
            answered += 1

    start = time.perf_counter()
    async with asyncio.timeout(300), asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work())
    seconds = time.perf_counter() - start
    if answered != count:
        raise RuntimeError(f"{answered} answers to {count} requests")
    return seconds


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_program(name: str) -> str | None:
    """The path of a program, with the folders for administrators searched too."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


@contextlib.contextmanager
def nginx(log: Path | None = None) -> Iterator[str]:
    """Run nginx with one worker process; yields its base address, `http://127.0.0.1:PORT/v1`.

    With `log`, the moment of every completion's answer is appended there, within 0.1 s.
    """
    program = find_program("nginx")
    if program is None:
        raise SystemExit("nginx is not installed: apt-get install nginx-light")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="beacon-bench-") as name:
        conf = Path(name, "nginx.conf")
        logged = f"{log} moment buffer=64k flush=100ms" if log else "off"
        text = NGINX_CONF.format(port=port, body=ANSWER_BODY, model=MODEL, log=logged)
        conf.write_text(text)
        command = [program, "-p", name, "-c", str(conf), "-e", str(Path(name, "error.log"))]
        server = subprocess.Popen(command)
        try:
            wait_until_open(port, server)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(timeout=10)


def wait_until_open(port: int, server: subprocess.Popen[bytes]) -> None:
    """Return once the server takes connections; raise if it ends or takes over ten seconds."""
    for _ in range(200):
        if server.poll() is not None:
            raise RuntimeError(f"nginx ended with status {server.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
            return
        time.sleep(0.05)
    raise TimeoutError("nginx did not open its port within ten seconds")


def requests_served(base: str) -> int:
    """How many requests nginx has answered so far, those to this function among them."""
    with urllib.request.urlopen(base.removesuffix("/v1") + "/status", timeout=10) as page:
        return int(page.read().decode().splitlines()[2].split()[2])


@contextlib.contextmanager
def requests_expected(base: str, least: int) -> Iterator[None]:
    """Raise if the server saw fewer than `least` requests meanwhile: a figure must be real."""
    before = requests_served(base)
    yield
    seen = requests_served(base) - before - 1
    if seen < least:
        raise RuntimeError(f"the server saw {seen} requests, not {least}")


def client_environment(base: str) -> dict[str, str]:
    """The environment for a client process: ours without proxies, with a key and the address."""
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return kept | {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": base, "PYTHONWARNINGS": "ignore"}


def installed(package: str) -> str | None:
    """The version of a package beside this Python, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def venv_python(folder: Path) -> Path:
    """The Python of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def set_up_venv(folder: Path, steps: Sequence[Sequence[str]]) -> None:
    """Make a virtual environment and install each step's requirements, one step after another."""
    venv.create(folder, with_pip=True)
    for requirements in steps:
        command = [str(venv_python(folder)), "-m", "pip", "install", "--quiet", *requirements]
        print("installing", *requirements, flush=True)
        subprocess.run(command, check=True)


def venv_version(folder: Path, package: str) -> str | None:
    """The version of a package in a virtual environment, or None if either is missing."""
    if not venv_python(folder).exists():
        return None
    code = f"from importlib.metadata import version; print(version({package!r}))"
    command = [str(venv_python(folder)), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def machine_versions() -> str:
    """One line on the machine and the programs that every figure depends on."""
    shown = [f"Python {platform.python_version()}", f"{os.cpu_count()} cores", platform.machine()]
    for name, flag in (("nginx", "-v"), ("wrk", "-v")):
        program = find_program(name)
        if program is None:
            shown.append(f"{name} not installed: apt-get install {name}")
            continue
        done = subprocess.run([program, flag], capture_output=True, text=True, check=False)
        first = (done.stdout + done.stderr).splitlines()[0]
        shown.append(first.split(" Copyright")[0].replace("nginx version: ", ""))
    return ", ".join(shown)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("|", " | ".join(cells), "|")
    sys.stdout.flush()
