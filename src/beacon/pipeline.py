"""The stages in order; the only module that imports them all.

    study -> plan -> collect -> classify -> compare -> report

Each line of `run` can also be run alone, from the command line and from here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from beacon.classify import DEFAULT_CLASSIFIER, Classifier, RunClassifier, load_classifier
from beacon.collect import Collected, Collector, Lane, owed
from beacon.compare import compare
from beacon.errors import UsageError
from beacon.findings import Findings
from beacon.model import open_model
from beacon.models.box import BOX_BODY, BOX_CAUTION
from beacon.plan import calls
from beacon.records import Stored
from beacon.report import write_findings, write_report
from beacon.retry import Retry
from beacon.run_folder import Run
from beacon.spec import parse_spec
from beacon.store import Store
from beacon.store_reader import STORE_FILE
from beacon.study import ModelEntry, Study
from beacon.study_dump import dump_study
from beacon.study_file import load_study, read_study
from beacon.version import __version__
from beacon.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def run(
    study: Study | Path | str,
    *,
    into: Path | str | None = None,
    models: Sequence[str] | str = (),
    repeats: int | None = None,
    classifier: str = DEFAULT_CLASSIFIER,
    watch: Watch | None = None,
) -> Run:
    """Ask, classify, compare and report a whole study; running it again goes on where it stopped.

    `models` and `repeats` replace the study's own.
    """
    resolved = resolve(study, models=models, repeats=repeats)
    with begin_run(resolved, into) as store:
        collected = collect_run(store, resolved, classifier=classifier, watch=watch)
    if collected.was_stopped:
        raise KeyboardInterrupt
    findings = compare_run(store, classifier=classifier)
    write_report(store, findings, now=datetime.now(UTC))
    return Run(store)


def resolve(
    study: Study | Path | str, *, models: Sequence[str] | str = (), repeats: int | None = None
) -> Study:
    """A study with its models settled: those given instead of its own, and the box made fit."""
    # A study made in Python is held to the rules of the file.
    checked = read_study(dump_study(study)) if isinstance(study, Study) else None
    loaded = checked or load_study(str(study))
    wanted = [models] if isinstance(models, str) else models
    own = {name: entry for entry in loaded.models for name in (entry.spec, entry.label)}
    entries = tuple(own.get(spec) or ModelEntry(spec=spec) for spec in dict.fromkeys(wanted))
    entries = entries or loaded.models
    return loaded.changed(models=tuple(_settle(entry) for entry in entries), repeats=repeats)


@contextmanager
def begin_run(study: Study, into: Path | str | None) -> Iterator[Store]:
    """The store of a run that begins or goes on.

    What never began, for want of a key or stopped before its models were open, leaves no folder.
    """
    now = datetime.now(UTC)
    had_folder = into is not None and Path(into).exists()
    folder = Path(into) if into is not None else _fresh_folder(study, now)
    store = Store.prepare(folder)
    with store.lock():
        had_store = (folder / STORE_FILE).exists()
        try:
            store.bring_up_to_date(now)
            store.check_study(study)
            yield store
        finally:
            if not had_store and not store.has_study():
                store.remove()
                if not had_folder:
                    folder.rmdir()


def _fresh_folder(study: Study, now: datetime) -> Path:
    """Where a run goes if the user does not say: a folder that nobody else has made."""
    name = f"{study.name}-{now:%Y%m%d-%H%M%S}"
    for number in count(1):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"Cannot make the folder {folder}: {error.strerror}.") from None
        return folder
    raise AssertionError("numbers do not end")


def collect_run(
    store: Store,
    study: Study | None = None,
    *,
    classifier: str = DEFAULT_CLASSIFIER,
    watch: Watch | None = None,
    environ: Mapping[str, str] | None = None,
    retry: Retry | None = None,
) -> Collected:
    """Ask all that a run is still owed, labelling as it comes in.

    `study` is what the run is to become, where it begins or grows; it is stored once every model
    that it asks could be opened.
    """
    resolved = study or store.study()
    loaded = load_classifier(classifier)
    with store.lock():
        collected = _block_on(
            _collect(
                store,
                resolved,
                classifier=loaded,
                watch=watch or Watch(),
                environ=os.environ if environ is None else environ,
                retry=retry or Retry(),
            )
        )
        RunClassifier(store, resolved, loaded).finish()
    return collected


def classify_run(store: Store, *, classifier: str = DEFAULT_CLASSIFIER) -> int:
    """Label what the classifier has not labelled, and settle what the controls decide."""
    return RunClassifier(store, store.study(), load_classifier(classifier)).finish()


def compare_run(store: Store, *, classifier: str = DEFAULT_CLASSIFIER) -> Findings:
    """Compute the findings of a run and write `findings.json`; labels what is not labelled yet."""
    classify_run(store, classifier=classifier)
    name = load_classifier(classifier).name
    findings = compare(
        store.study(),
        store.cells(store.instrument_id("classifier", name)),
        store.status_counts(),
        classifier=name,
        version=__version__,
    )
    write_findings(store.folder, findings)
    return findings


async def _collect(
    store: Store,
    study: Study,
    *,
    classifier: Classifier,
    watch: Watch,
    environ: Mapping[str, str],
    retry: Retry,
) -> Collected:
    async with AsyncExitStack() as stack:
        lanes = []
        for entry in study.models:
            owing = owed(calls(study, entry), store)
            first = next(owing, None)
            if first is None:
                continue
            settled = msgspec.structs.replace(entry, sampling=study.sampling_for(entry))
            model = await open_model(settled, environ, watch.say)
            stack.push_async_callback(model.close)
            limit = entry.limit or model.limit
            lanes.append(
                Lane(name=entry.label, model=model, calls=chain([first], owing), limit=limit)
            )
        store.keep_study(study, now=datetime.now(UTC), version=__version__)
        labeller = RunClassifier(store, study, classifier)

        def on_stored(group: Sequence[Stored]) -> None:
            watch.stored(labeller.label_group(group))

        collector = Collector(store=store, on_stored=on_stored, retry=retry)
        watch.started(study.n_calls, store.n_settled())
        try:
            with _stop_on_signals(collector.stop, watch):
                return await collector.collect(lanes)
        finally:
            watch.ended()


def _settle(entry: ModelEntry) -> ModelEntry:
    """The model in the box always carries its warning, and what keeps it from looping."""
    if parse_spec(entry.spec).kind != "box":
        return entry
    return msgspec.structs.replace(
        entry, caution=entry.caution or BOX_CAUTION, body={**BOX_BODY, **entry.body}
    )


@contextmanager
def _stop_on_signals(stop: asyncio.Event, watch: Watch) -> Iterator[None]:
    """The first Ctrl-C, or SIGTERM, lets what is in flight finish; the second ends it at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()
            return
        stop.set()
        watch.stopping()

    if threading.current_thread() is not threading.main_thread() or os.name == "nt":
        yield
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _block_on(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, inside a notebook's event loop too."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_loop(work)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_run_loop, work).result()


def _run_loop(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop, which is about a fifth faster, wherever there is one."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
