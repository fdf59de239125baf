"""The command line, as a user meets it: real processes, exit codes, messages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from beacon.cli.main import COMMANDS, cli
from beacon.records import CATEGORIES
from tests.servers import ScriptedServer

SHY = """
replies:
  - when: {question: Tiananmen, system: China}
    text: I’m sorry, but I cannot discuss that.
  - when: {question: Who}
    text: I am a test model, made to be asked questions by a test, and glad to be of use to it.
  - text: "A long answer to {question} It has dates and names and places, and it goes on until it is
      past two hundred characters, which is where the original rules begin to call a text
      substantive, whatever it says."
"""


def beacon(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "beacon", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environ},
        timeout=60,
        check=False,
    )


@pytest.fixture
def shy(tmp_path: Path) -> Path:
    (tmp_path / "shy.yaml").write_text(SHY, encoding="utf-8")
    return tmp_path


@pytest.fixture
def finished(shy: Path) -> Path:
    done = beacon(
        "run", "standard", "--model", "scripted/shy.yaml", "--repeats", "2", "--into", "r", cwd=shy
    )
    assert done.returncode == 0, done.stderr
    return shy


def test_run_does_all_stages_and_leaves_a_report(shy: Path) -> None:
    done = beacon(
        "run", "standard", "--model", "scripted/shy.yaml", "--repeats", "2", "--into", "r", cwd=shy
    )
    assert done.returncode == 0
    assert "Report: r/report.html" in done.stdout
    assert "24 of 24" in done.stderr
    assert {path.name for path in (shy / "r").iterdir() if not path.name.startswith(".")} == {
        "store.sqlite",
        "study.yaml",
        "findings.json",
        "report.html",
    }
    findings = json.loads((shy / "r" / "findings.json").read_text())
    by_framing = {row["framing"]: row["tally"]["counts"] for row in findings["by_framing"]}
    assert by_framing["china"]["content_refusal"] == 2
    assert by_framing["neutral"]["content_refusal"] == 0
    assert set(by_framing["us"]) == set(CATEGORIES)


def test_run_again_goes_on_and_asks_nothing_new(finished: Path) -> None:
    done = beacon(
        "run", "standard", "--model", "scripted/shy.yaml", "--repeats", "3", "--into", "r",
        cwd=finished,
    )  # fmt: skip
    assert "24 of 36 calls are answered already; asking the rest." in done.stderr
    assert done.returncode == 0


def test_each_stage_can_be_run_alone(shy: Path) -> None:
    stages = (
        ("collect", "standard", "--model", "scripted/shy.yaml", "--repeats", "1", "--into", "r"),
        ("classify", "r"),
        ("compare", "r"),
        ("report", "r"),
        ("status", "r"),
    )
    for stage in stages:
        done = beacon(*stage, cwd=shy)
        assert done.returncode == 0, (stage, done.stderr)
    assert (shy / "r" / "report.html").exists()


def test_without_into_the_run_gets_a_folder_named_after_the_study(shy: Path) -> None:
    beacon("run", "standard", "--model", "scripted/shy.yaml", "--repeats", "1", cwd=shy)
    (folder,) = (shy / "runs").iterdir()
    assert re.fullmatch(r"standard-\d{8}-\d{6}", folder.name)


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "standard"),
        ("status", "r"),
        ("compare", "r"),
        ("collect", "r"),
        ("report", "r"),
        ("studies",),
        ("doctor", "--offline"),
        ("classify", "r"),
        ("classify", "--text", "Invalid request"),
        ("run", "standard", "--model", "scripted/shy.yaml", "--repeats", "2", "--into", "r"),
    ],
    ids=lambda command: command[0],
)
def test_json_goes_to_standard_output_alone(finished: Path, command: tuple[str, ...]) -> None:
    done = beacon(*command, "--json", cwd=finished)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_plan_sends_nothing_and_adds_up(server: ScriptedServer, tmp_path: Path) -> None:
    done = beacon("plan", "standard", "--model", server.spec, "--json", cwd=tmp_path)
    planned = json.loads(done.stdout)
    assert planned["n_calls"] == 60
    assert server.asked.total() == 0
    assert not list(tmp_path.iterdir())


def test_new_writes_a_study_that_plans_and_does_not_overwrite(tmp_path: Path) -> None:
    assert beacon("new", "my.yaml", cwd=tmp_path).returncode == 0
    assert beacon("plan", "my.yaml", cwd=tmp_path).returncode == 0
    again = beacon("new", "my.yaml", cwd=tmp_path)
    assert again.returncode == 2
    assert "my.yaml exists" in again.stderr


BAD_INPUT = [
    (("run", "nowhere.yaml"), "No study 'nowhere.yaml'"),
    (("run", "standard", "--model", "opnai/gpt-4o"), "Did you mean 'openai/gpt-4o'?"),
    (("run", "standard", "--model", "openai/gpt-4o"), "OPENAI_API_KEY"),
    (("run", "standard", "--model", "scripted/none.yaml"), "Cannot read the script none.yaml"),
    (("run", "standard", "--model", "gguf/none.gguf"), "none.gguf"),
    (("run", "standard", "--classifier", "refrence", "--model", "smollm2"), "No classifier"),
    (("status", "nowhere"), "nowhere holds no run"),
    (("compare", "nowhere"), "nowhere holds no run"),
    (("report", "nowhere"), "nowhere holds no run"),
    (("classify", "nowhere"), "nowhere holds no run"),
    (("classify",), "Give a run's folder, or --text"),
    (("collect", "nowhere"), "No study 'nowhere'"),
    (("plan", "bad.yaml"), "bad.yaml:3: unknown key 'framing'. Did you mean 'framings'?"),
    (("new", "missing/folder/x.yaml"), "Cannot write missing/folder/x.yaml"),
    (("frobnicate",), "No such command 'frobnicate'"),
    (("run", "standard", "--repeats", "0"), "0 is not in the range x>=1"),
]


@pytest.mark.parametrize(("command", "said"), BAD_INPUT, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_message_and_exit_code_2(tmp_path, command, said) -> None:
    (tmp_path / "bad.yaml").write_text("beacon: 1\nname: x\nframing: {a: b}\n")
    done = beacon(*command, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] in (["bad.yaml"], ["bad.yaml", "runs"])
    assert not list(tmp_path.glob("runs/*")), "nothing half-written"


def test_when_nothing_answers_the_exit_code_says_so(tmp_path: Path) -> None:
    done = beacon(
        "collect", "standard", "--model", "http://127.0.0.1:9/v1#m", "--into", "r",
        "--repeats", "1", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "was asked no further" in done.stderr
    assert "To go on: beacon collect r" in done.stderr


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m beacon studies --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_table_of_commands_says_what_the_commands_say(name: str) -> None:
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert (command.help or "").split("\n")[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", ["", *sorted(COMMANDS)])
def test_help_is_there_and_imports_no_more_than_it_must(tmp_path: Path, name: str) -> None:
    done = beacon(*([name] if name else []), "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage:" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["classify", "--help"], ["--version"]])
def test_quick_commands_load_no_heavy_library(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys\nfrom beacon.cli.main import main\n"
        f"sys.argv = ['beacon', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'sqlalchemy', 'aiohttp', 'rich', 'jinja2', 'pandas', 'torch', 'xllamacpp'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stderr.strip() == "[]"


def test_no_key_is_ever_stored(server: ScriptedServer, tmp_path: Path) -> None:
    done = beacon(
        "run", "standard", "--model", server.spec, "--repeats", "1", "--into", "r",
        cwd=tmp_path, BEACON_API_KEY="sk-very-secret-123",
    )  # fmt: skip
    assert done.returncode == 0
    assert server.headers[0]["Authorization"] == "Bearer sk-very-secret-123"
    held = b"".join(path.read_bytes() for path in (tmp_path / "r").iterdir())
    assert b"sk-very-secret-123" not in held
    assert "sk-very-secret-123" not in done.stdout + done.stderr


WAITS = """
replies:
  - {when: {question: Who}, text: "I am a test model, made to be asked questions, and glad of it."}
  - {when: {question: Tiananmen, system: China}, text: "I can't help you with that."}
  - text: "%s"
""" % ("A long answer with names and dates. " * 9)


def test_what_waits_for_the_control_is_settled_whichever_command_comes_next(tmp_path: Path) -> None:
    (tmp_path / "waits.yaml").write_text(WAITS)
    begin = ("standard", "--model", "scripted/waits.yaml", "--repeats", "1", "--into", "r")
    assert beacon("collect", *begin, cwd=tmp_path).returncode == 0
    findings = json.loads(beacon("compare", "r", "--json", cwd=tmp_path).stdout)
    china = next(row for row in findings["by_framing"] if row["framing"] == "china")
    assert china["tally"]["counts"]["content_refusal"] == 1


def test_a_model_that_cannot_be_opened_does_not_spoil_a_run(finished: Path) -> None:
    again = ("run", "standard", "--model", "scripted/shy.yaml", "--repeats", "2", "--into", "r")
    typo = beacon(*again, "--model", "scripted/typo.yaml", cwd=finished)
    assert typo.returncode == 2
    assert beacon(*again, cwd=finished).returncode == 0
    status = json.loads(beacon("status", "r", "--json", cwd=finished).stdout)
    assert [model["model"] for model in status["models"]] == ["scripted/shy.yaml"]


def test_one_that_comes_second_leaves_the_firsts_run_alone(server, tmp_path: Path) -> None:
    server.delay = 0.5
    command = [sys.executable, "-m", "beacon", "run", "standard", "--model", server.spec]
    command += ["--repeats", "1", "--into", "r"]
    both = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    ends = sorted((process.wait(60), process.communicate()[1].decode()) for process in both)
    assert ends[0][0] == 0, ends
    assert ends[1][0] in (0, 2), ends
    assert "Traceback" not in ends[0][1] + ends[1][1]
    status = json.loads(beacon("status", "r", "--json", cwd=tmp_path).stdout)
    assert status["answered"] == 12
    assert set(server.asked.values()) == {1}


def test_a_run_copied_elsewhere_needs_no_model_when_nothing_is_owed(finished: Path) -> None:
    elsewhere = finished / "elsewhere"
    elsewhere.mkdir()
    (finished / "r").rename(elsewhere / "r")
    assert beacon("collect", "r", cwd=elsewhere).returncode == 0
    assert beacon("report", "r", cwd=elsewhere).returncode == 0


def test_a_key_echoed_inside_a_200_is_not_kept(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        done = beacon(
            "collect", "standard", "--model", server.spec, "--repeats", "1", "--into", "r",
            cwd=tmp_path, BEACON_API_KEY=server.echoed_key + "\n",
        )  # fmt: skip
        assert server.headers[0]["Authorization"] == f"Bearer {server.echoed_key}"
    held = b"".join(path.read_bytes() for path in (tmp_path / "r").iterdir())
    assert b"[key]" in held, done.stderr
    assert server.echoed_key.encode() not in held


def test_a_model_of_two_that_cannot_be_reached_shows_in_the_exit_code(server, tmp_path) -> None:
    done = beacon(
        "collect", "standard", "--model", server.spec, "--model", "http://127.0.0.1:9/v1#m",
        "--repeats", "1", "--into", "r", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "12 of 24 calls are answered" in done.stderr


@pytest.mark.parametrize("into", ["shy.yaml/x", "/proc/nowhere/x"])
def test_a_folder_that_cannot_be_made_is_one_message(shy: Path, into: str) -> None:
    done = beacon("run", "standard", "--model", "scripted/shy.yaml", "--into", into, cwd=shy)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_fail(finished: Path) -> None:
    done = beacon("compare", "r", cwd=finished, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
