"""Run `python benchmarks/http_clients.py`: how many chat completions a second each client draws.

Needs nginx, and wrk for the ceiling (`apt-get install nginx-light wrk`). Each client runs in its
own process with 64 workers that pull requests from one iterator; every answer is read whole and
decoded. The rounds are interleaved, so that noise on a shared machine falls on all alike: compare
ratios from one run, never figures from two. Clients that are not installed are named as such.
"""

import argparse
import asyncio
import contextlib
import importlib
import itertools
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from loopback import (
    ANSWER_BODY,
    WORKERS,
    client_environment,
    drive,
    find_program,
    installed,
    machine_versions,
    nginx,
    print_table,
    request_body,
    requests_expected,
    requests_served,
)

Post = Callable[[bytes], Awaitable[bytes]]
HEADERS = {"content-type": "application/json", "authorization": "Bearer none"}
CONNECT_S = 10
TOTAL_S = 120
WARM_UP = 4 * WORKERS


@contextlib.asynccontextmanager
async def with_aiohttp(url: str) -> AsyncIterator[Post]:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=TOTAL_S, sock_connect=CONNECT_S)
    connector = aiohttp.TCPConnector(limit=WORKERS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def post(body: bytes) -> bytes:
            async with session.post(url, data=body, headers=HEADERS) as response:
                return await response.read()

        yield post


@contextlib.asynccontextmanager
async def with_httpx(url: str) -> AsyncIterator[Post]:
    httpx = importlib.import_module("httpx")

    limits = httpx.Limits(max_connections=WORKERS, max_keepalive_connections=WORKERS)
    timeout = httpx.Timeout(TOTAL_S, connect=CONNECT_S)
    async with httpx.AsyncClient(limits=limits, timeout=timeout) as client:

        async def post(body: bytes) -> bytes:
            return bytes((await client.post(url, content=body, headers=HEADERS)).content)

        yield post


@contextlib.asynccontextmanager
async def with_pyreqwest(url: str) -> AsyncIterator[Post]:
    pyreqwest = importlib.import_module("pyreqwest.client")

    builder = pyreqwest.ClientBuilder().timeout(timedelta(seconds=TOTAL_S)).default_headers(HEADERS)
    builder = builder.connect_timeout(timedelta(seconds=CONNECT_S))
    async with builder.pool_max_idle_per_host(WORKERS).build() as client:

        async def post(body: bytes) -> bytes:
            response = await client.post(url).body_bytes(body).build().send()
            return bytes((await response.bytes()).to_bytes())

        yield post


@contextlib.asynccontextmanager
async def with_wreq(url: str) -> AsyncIterator[Post]:
    wreq = importlib.import_module("wreq")

    client = wreq.Client(
        headers=HEADERS,
        timeout=timedelta(seconds=TOTAL_S),
        connect_timeout=timedelta(seconds=CONNECT_S),
        pool_max_idle_per_host=WORKERS,
    )

    async def post(body: bytes) -> bytes:
        response = await client.post(url, body=body)
        return bytes(await response.bytes())

    yield post


@contextlib.asynccontextmanager
async def with_rnet(url: str) -> AsyncIterator[Post]:
    rnet = importlib.import_module("rnet")

    client = rnet.Client(timeout=TOTAL_S, connect_timeout=CONNECT_S, pool_max_idle_per_host=WORKERS)

    async def post(body: bytes) -> bytes:
        response = await client.post(url, body=body, headers=HEADERS)
        return bytes(await response.bytes())

    yield post


@contextlib.asynccontextmanager
async def with_primp(url: str) -> AsyncIterator[Post]:
    primp = importlib.import_module("primp")

    options = {"timeout": TOTAL_S, "connect_timeout": CONNECT_S, "headers": HEADERS}
    async with primp.AsyncClient(**options) as client:

        async def post(body: bytes) -> bytes:
            response = await client.post(url, content=body)
            return bytes(response.content)

        yield post


@contextlib.asynccontextmanager
async def with_httpr(url: str) -> AsyncIterator[Post]:
    httpr = importlib.import_module("httpr")

    async with httpr.AsyncClient(timeout=TOTAL_S, headers=HEADERS) as client:

        async def post(body: bytes) -> bytes:
            response = await client.post(url, content=body)
            return bytes(response.content)

        yield post


@dataclass(frozen=True)
class Client:
    """A client, what it needs, and what it offers besides speed."""

    name: str
    packages: tuple[str, ...]
    connect: Callable[[str], AbstractAsyncContextManager[Post]]
    timeouts: str
    tls_and_proxy: str
    maturity: str


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "aiohttp",
            ("aiohttp",),
            with_aiohttp,
            "connect, idle read, total; each its own exception",
            "ssl context, SSL_CERT_FILE; proxy variables with trust_env=True",
            "since 2013, aio-libs, 3.x, Production/Stable",
        ),
        Client(
            "aiohttp+uvloop",
            ("aiohttp", "uvloop"),
            with_aiohttp,
            "as aiohttp",
            "as aiohttp",
            "uvloop: since 2016, Production/Stable, not on Windows",
        ),
        Client(
            "httpx",
            ("httpx",),
            with_httpx,
            "connect, read, write, pool; no total",
            "ssl context, SSL_CERT_FILE; proxy variables",
            "since 2019, Encode, 0.x, Beta",
        ),
        Client(
            "pyreqwest",
            ("pyreqwest",),
            with_pyreqwest,
            "connect, idle read, total; no answer raises ConnectTimeoutError",
            "PEM roots, SSL_CERT_FILE; proxy variables",
            "0.x, Beta, one author; cancelling leaves the request running; may abort at exit",
        ),
        Client(
            "pyreqwest+uvloop",
            ("pyreqwest", "uvloop"),
            with_pyreqwest,
            "as pyreqwest",
            "as pyreqwest",
            "as pyreqwest and uvloop",
        ),
        Client(
            "wreq",
            ("wreq",),
            with_wreq,
            "connect, idle read, total; a stalled body raises DecodingError or BodyError",
            "tls_verify takes a PEM path, SSL_CERT_FILE ignored; proxy variables",
            "0.x, one author, aims at browser emulation",
        ),
        Client(
            "wreq+uvloop",
            ("wreq", "uvloop"),
            with_wreq,
            "as wreq",
            "as wreq",
            "as wreq and uvloop",
        ),
        Client(
            "rnet",
            ("rnet",),
            with_rnet,
            "connect, read, total",
            "verify takes a path, SSL_CERT_FILE ignored; proxy variables",
            "renamed to wreq; this line is GPL-3.0",
        ),
        Client(
            "primp",
            ("primp",),
            with_primp,
            "connect, read, total; one TimeoutError for all",
            "ca_cert_file, SSL_CERT_FILE; proxy variables",
            "one author, aims at browser impersonation",
        ),
        Client(
            "httpr",
            ("httpr",),
            with_httpr,
            "one timeout only",
            "ca_cert_file, SSL_CERT_FILE ignored; proxy variables",
            "0.x, one author; threads under the async face; cancelling leaves the request running",
        ),
    )
}
SLOW = {"httpx": 10}  # these get a tenth of the requests: they would take half a minute a round


def run_client(name: str, url: str, count: int, warm_up: int) -> dict[str, float]:
    """Run one client in this process: seconds and CPU seconds for `count` requests."""

    async def run() -> dict[str, float]:
        async with CLIENTS[name].connect(url) as post:
            await drive(post, warm_up)
            before = resource.getrusage(resource.RUSAGE_SELF)
            seconds = await drive(post, count)
            after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"seconds": seconds, "cpu": cpu}

    if "uvloop" in CLIENTS[name].packages:
        uvloop = importlib.import_module("uvloop")

        found: dict[str, float] = uvloop.run(run())
        return found
    return asyncio.run(run())


class ClientFailedError(Exception):
    """A client's process did not end well, whether before or after its figures."""


def measure(name: str, base: str, count: int) -> dict[str, float]:
    """Run one client in a process of its own, and check that the server saw what it claims."""
    command = [sys.executable, __file__, "--client", name, "--requests", str(count)]
    command += ["--url", f"{base}/chat/completions"]
    with requests_expected(base, count + WARM_UP):
        done = subprocess.run(
            command,
            env=client_environment(base),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise ClientFailedError(f"status {done.returncode}: {why}")
    figures: dict[str, float] = json.loads(done.stdout)
    return {"rate": count / figures["seconds"], "cpu_us": figures["cpu"] / count * 1e6}


def measure_wrk(base: str) -> dict[str, float]:
    """What wrk draws from the same server with the same request, in two seconds: the ceiling."""
    program = find_program("wrk")
    if program is None:
        raise FileNotFoundError("wrk")
    script = ["wrk.method = 'POST'", f"wrk.body = [[{request_body(0).decode()}]]"]
    script += [f"wrk.headers[{name!r}] = {value!r}" for name, value in HEADERS.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "post.lua")
        path.write_text("\n".join(script))
        command = [program, "-t1", f"-c{WORKERS}", "-d2s", "-s", str(path)]
        command.append(f"{base}/chat/completions")
        before = requests_served(base)
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        seen = requests_served(base) - before - 1
    found = re.search(r"(\d+) requests in .*Requests/sec:\s+([\d.]+)", shown.stdout, re.DOTALL)
    if found is None or "Non-2xx" in shown.stdout or seen < int(found[1]):
        raise ClientFailedError(shown.stdout)
    return {"rate": float(found[2]), "cpu_us": float("nan")}


def requests_for(name: str, count: int) -> int:
    """How many requests a client gets in one round."""
    return max(WORKERS, count // SLOW.get(name, 1))


@dataclass
class Measured:
    """What the rounds of one client gave."""

    figures: list[dict[str, float]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def run_rounds(names: list[str], rounds: int, count: int) -> dict[str, Measured]:
    """Every client once a round, the rounds one after another; a failure is kept, not hidden."""
    measured = {name: Measured() for name in names}
    with nginx() as base:
        for turn, name in itertools.product(range(rounds), names):
            try:
                if name == "wrk":
                    figures = measure_wrk(base)
                else:
                    figures = measure(name, base, requests_for(name, count))
            except ClientFailedError as failure:
                measured[name].failures.append(str(failure))
                continue
            measured[name].figures.append(figures)
            print(f"round {turn + 1} {name}: {figures['rate']:,.0f}/s", file=sys.stderr)
    return measured


def report(measured: dict[str, Measured], count: int) -> None:
    """Print medians, ranges and ratios to the bare aiohttp loop, and every failure."""
    rates = {name: [f["rate"] for f in one.figures] for name, one in measured.items()}
    bare = statistics.median(rates.get("aiohttp") or [float("nan")])
    rows = []
    for name, found in rates.items():
        if not found:
            continue
        median = statistics.median(found)
        cpu = statistics.median(f["cpu_us"] for f in measured[name].figures)
        size = "2 s" if name == "wrk" else f"{requests_for(name, count):,}"
        spread = f"{min(found):,.0f}-{max(found):,.0f}"
        row = [name, size, f"{median:,.0f}", spread, f"{median / bare:.2f}"]
        rows.append([*row, "-" if name == "wrk" else f"{cpu:.0f}"])
    head = ["client", "requests", "median/s", "range", "to aiohttp", "CPU us each"]
    print_table(head, rows)
    for name, one in measured.items():
        for failure in one.failures:
            print(f"{name}: a round FAILED: {failure}")


def report_offers() -> None:
    """Print what each client offers besides speed."""
    offers = [[c.name, c.timeouts, c.tls_and_proxy, c.maturity] for c in CLIENTS.values()]
    print()
    print_table(["client", "timeouts", "TLS and proxy", "maturity"], offers)


def choose(wanted: list[str]) -> tuple[list[str], list[str]]:
    """The clients that can run, and a line for each that cannot."""
    names, missing = [], []
    for name in wanted:
        needs = [p for p in CLIENTS[name].packages if not installed(p)] if name != "wrk" else []
        if name == "wrk" and not find_program("wrk"):
            missing.append("wrk: not installed: apt-get install wrk")
        elif needs:
            missing.append(f"{name}: not installed: pip install {' '.join(needs)}")
        else:
            names.append(name)
    return names, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=4000, help="requests a client and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[*CLIENTS, "wrk"], help="these clients only")
    parser.add_argument("--client", choices=list(CLIENTS), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        found = run_client(options.client, options.url, options.requests, options.warm_up)
        print(json.dumps(found))
        return
    names, missing = choose(options.only or [*CLIENTS, "wrk"])
    print(machine_versions())
    packages = sorted({p for name in names if name != "wrk" for p in CLIENTS[name].packages})
    print(", ".join(f"{package} {installed(package)}" for package in packages))
    sizes = f"answer {len(ANSWER_BODY)} bytes, request {len(request_body(0))} bytes"
    print(f"{WORKERS} workers, {options.rounds} interleaved rounds, {sizes}\n")
    report(run_rounds(names, options.rounds, options.requests), options.requests)
    for line in missing:
        print(line)
    report_offers()


if __name__ == "__main__":
    main()
