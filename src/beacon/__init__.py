"""Beacon asks language models the same questions under different framings, and says what changed.

    study -> plan -> collect -> classify -> compare -> report
                        |          |          |
                        +---- the run's store +

Each stage has a module and a command of its own name. From Python:

    import beacon

    beacon.classify("I'm sorry, but I cannot discuss that.").category    # 'content_refusal'
    run = beacon.run("standard", models=["smollm2"], repeats=2)          # all stages
    run.frame()                                                          # a row per response
    beacon.open_run("runs/...").findings                                 # a run made earlier
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# The function takes the name of its module, on purpose: `beacon.classify(text)`.
from beacon.classify import classify
from beacon.errors import BeaconError, UsageError
from beacon.records import Label
from beacon.study import Study
from beacon.version import __version__

if TYPE_CHECKING:
    from beacon.pipeline import run
    from beacon.run_folder import Run, open_run
    from beacon.study_file import load_study

__all__ = [
    "BeaconError",
    "Label",
    "Run",
    "Study",
    "UsageError",
    "__version__",
    "classify",
    "load_study",
    "open_run",
    "run",
]

_LATER = {
    "Run": "beacon.run_folder",
    "load_study": "beacon.study_file",
    "open_run": "beacon.run_folder",
    "run": "beacon.pipeline",
}
"""Names that need the store or the pipeline: imported on first use, so that import stays quick."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'beacon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
