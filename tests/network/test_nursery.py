"""Processes that are split off from one that has their modules loaded: they are like any other, and none stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quorank.flower.processes import Processes

if not sys.platform.startswith("linux"):
    pytest.skip("forks", allow_module_level=True)

MODULE = "being.split"
BEING = """
import json, os, sys, time
LOADED_IN = os.getpid()
def main():
    word = sys.argv[1]
    print(json.dumps({"words": sys.argv, "home": os.environ.get("HOME_OF_IT"), "secret": os.environ.get("NOT_FOR_IT"),
        "folder": os.getcwd(), "group": os.getpgid(0), "pid": os.getpid(), "loaded in": LOADED_IN}), flush=True)
    if word == "stay":
        time.sleep(600)
    if word == "raise":
        raise RuntimeError("as it said")
    if word == "leave":
        sys.exit(7)
    if word == "say":
        sys.exit("a sentence")
    return 5 if word == "return" else None
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def variables(tmp_path) -> dict[str, str]:
    """An environment in which the module can be found."""
    (tmp_path / "being").mkdir()
    (tmp_path / "being" / "__init__.py").touch()
    (tmp_path / "being" / "split.py").write_text(BEING)
    here = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), here]), "NOT_FOR_IT": "yes"}


def command(word: str) -> list[str]:
    return [sys.executable, "-m", MODULE, word]


def told(child) -> dict[str, object]:
    found: dict[str, object] = json.loads(child.log.read_text().splitlines()[0])
    return found


def wait_until(condition, seconds=30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


def alive(process: int) -> bool:
    try:
        return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_has_its_own_words_environment_folder_log_and_group(tmp_path, variables) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with Processes(folder, prepared=(MODULE,)) as processes:
        processes.start("first", command("return"), variables)
        own = {**variables, "HOME_OF_IT": "here"}
        del own["NOT_FOR_IT"]
        codes = {"return": 5, "leave": 7, "raise": 1, "say": 1, "end": 0}
        children = {word: processes.start(word, command(word), own) for word in codes}
        assert wait_until(lambda: not any(child.running for child in children.values()))
        for word, code in codes.items():
            child = children[word]
            assert child.code == code, child.log.read_text()
            said = told(child)
            assert said["words"] == [MODULE, word]
            assert (said["home"], said["secret"], said["folder"]) == ("here", None, str(folder))
            assert said["pid"] == said["group"] == child.process.pid
        assert "RuntimeError: as it said" in children["raise"].log.read_text()
        nurseries = {told(child)["loaded in"] for child in children.values()}
        assert len(nurseries) == 1 and nurseries.isdisjoint(child.process.pid for child in children.values())
        nursery = int(str(nurseries.pop()))
        assert alive(nursery)
    assert not alive(nursery)


def test_what_is_not_prepared_is_started_as_ever(tmp_path, variables) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with Processes(folder, prepared=(MODULE,)) as processes:
        child = processes.start("other", [sys.executable, "-c", "print(41 + 1)"], variables)
        assert isinstance(child.process, subprocess.Popen)
        assert wait_until(lambda: child.code == 0) and child.last_words() == "42"
    with Processes(folder, prepared=("no.such.module", MODULE)) as processes:
        child = processes.start("alone", command("leave"), variables)
        assert wait_until(lambda: child.code == 7), "a nursery that cannot load stands in nobody's way"
        said = told(child)
        assert said["pid"] == said["loaded in"]


def test_ends_by_signals_and_a_nursery_that_is_killed(tmp_path, variables) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with Processes(folder, prepared=(MODULE,)) as processes:
        one, two = (processes.start(name, command("stay"), variables) for name in ("one", "two"))
        assert one.running and two.running
        one.signal(signal.SIGTERM)
        assert wait_until(lambda: one.code == -signal.SIGTERM) and two.running
        assert wait_until(two.log.read_text)
        os.kill(int(str(told(two)["loaded in"])), signal.SIGKILL)
        three = processes.start("three", command("stay"), variables)
        assert two.running and three.running
        assert wait_until(three.log.read_text)
        assert told(three)["loaded in"] not in (told(two)["loaded in"], told(three)["pid"])
        processes.kill("two")
        assert two.code == -signal.SIGKILL and not alive(two.process.pid) and three.running
    assert three.code == -signal.SIGKILL and not alive(three.process.pid)


def test_a_signal_reaches_a_process_that_has_just_begun(tmp_path, variables) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with Processes(folder, prepared=(MODULE,)) as processes:
        for number in range(10):
            child = processes.start(f"one-{number}", command("stay"), variables)
            child.signal(signal.SIGTERM)
            assert wait_until(lambda child=child: child.code == -signal.SIGTERM), number


PARENT = """
import os, sys, time
from pathlib import Path
from quorank.network.processes import Processes
processes = Processes(Path(sys.argv[1]), True, ("being.split",))
child = processes.start("one", [sys.executable, "-m", "being.split", "stay"], dict(os.environ))
print(child.process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_owner(number, tmp_path, variables) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    words = [sys.executable, "-c", PARENT, str(folder)]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables)
    assert parent.stdout is not None
    child, log = int(parent.stdout.readline()), folder / "one.log"
    assert wait_until(lambda: log.exists() and log.read_text().strip())
    nursery = json.loads(log.read_text())["loaded in"]
    assert alive(child) and alive(nursery) and nursery != child
    parent.send_signal(number)
    parent.communicate(timeout=30)
    assert wait_until(lambda: not alive(child) and not alive(nursery) and not folder.exists())
