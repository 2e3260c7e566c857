"""Count the files of the package that one search or one reply enters: `python benchmarks/files_entered.py [KEY=VALUE...]`.

One client of the shipped experiment `fpdgd` searches once: the files of the whole command, from its words to its report,
and those of the round alone. With the word `device`, an enrolled device opens its folder, learns from a search and answers
one task over HTTPS, with a real service in other processes. A file counts if a function of it runs, module and class bodies
aside; a kernel counts with the kernels that it names. Prints a JSON object with numbers and files.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import quorank
from quorank.kernels.compiled import Kernel

PACKAGE = f"{Path(quorank.__file__).parent}{os.sep}"
SMALLEST = ("federation.clients=1", "federation.rounds=1", "federation.interactions=1")
OPTIMISED = 1  # CO_OPTIMIZED: set for functions, not for module and class bodies
QUORANK = (sys.executable, "-m", "quorank.cli.main")
EXPERIMENT = '[data]\nsource = "synthetic:mq2007"\n[federation]\nclients = 2\ninteractions = 1\n'


def is_import(frame: FrameType | None) -> bool:
    """Return whether a frame runs below the body of one of the package's modules."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def files_entered(work: Callable[[], object]) -> list[str]:
    """Return the files whose functions run during some work, by their path in the package."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        name = code.co_filename
        new = event == "call" and code.co_flags & OPTIMISED and name not in files
        if new and name.startswith(PACKAGE) and name.endswith(".py") and not is_import(frame):
            files.add(name)

    def note_kernels(kernel: Kernel, seen: set[int]) -> None:
        function = kernel.py_func
        seen.add(id(kernel))
        files.add(function.__code__.co_filename)
        enclosed = [cell.cell_contents for cell in function.__closure__ or ()]
        for called in [*map(function.__globals__.get, function.__code__.co_names), *enclosed]:
            if isinstance(called, Kernel) and id(called) not in seen:
                note_kernels(called, seen)

    def call(kernel: Kernel, *arguments: Any) -> Any:
        note_kernels(kernel, set())
        return compiled_call(kernel, *arguments)

    compiled_call, Kernel.__call__ = Kernel.__call__, call  # type: ignore[method-assign]
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        Kernel.__call__ = compiled_call  # type: ignore[method-assign]
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(name.removeprefix(PACKAGE) for name in files)


def search(folder: Path, settings: list[str]) -> list[str]:
    """Trace one search of a run."""
    from quorank.cli.main import application

    words = ["run", "fpdgd", "--out", str(folder / "run"), "--quiet", "--json"]
    words += [word for setting in (*SMALLEST, *settings) for word in ("--set", setting)]

    def work() -> None:
        try:
            with redirect_stdout(sys.stderr):
                application()(words, standalone_mode=False)
        except SystemExit as ended:
            assert not ended.code, ended.code

    return files_entered(work)


def one_round(settings: list[str]) -> list[str]:
    """Trace the round of the same run, with the data and kernels at hand."""
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import find_experiment_file, set_values
    from quorank.experiments.runner import Runner

    rounds = Runner(Experiment.read(set_values(find_experiment_file("fpdgd"), [*SMALLEST, *settings]))).rounds
    state = rounds.initial()
    rounds.start(state)
    return files_entered(lambda: rounds.play(state))


def reply(folder: Path) -> list[str]:
    """Trace one reply of a device that has enrolled."""
    from quorank.member import Client, Policy

    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "my.toml").write_text(EXPERIMENT, encoding="utf-8")
    start = ("--experiment", "my.toml", "--address", address, "--port", address.rpartition(":")[2])
    with subprocess.Popen([*QUORANK, "coordinator", "start", "hub", *start], cwd=folder, stdout=2) as service:
        try:
            while not (folder / "hub" / "supervisor.json").is_file():
                assert service.poll() is None
                time.sleep(0.2)
            subprocess.run([*QUORANK, "coordinator", "invite", "hub", "anna"], cwd=folder, stdout=2, check=True)
            trial = Policy(cohort=1, searches=1, unstated=True)  # one device, without privacy
            with Client.open(folder / "device", folder / "anna.json", policy=trial) as client:
                client.consent(True)
                while client.sync(force=True).code != "device.waiting":
                    time.sleep(0.2)

            def work() -> None:
                with Client.open(folder / "device") as client:
                    client.record(
                        client.rank([[float(row == at) for at in range(46)] for row in range(12)]), [True] * 10
                    )
                    report = client.sync(force=True)
                assert report.outcome == "sent", report

            return files_entered(work)
        finally:
            service.terminate()


def main() -> None:
    """Trace a run or a device's reply and print the list."""
    with tempfile.TemporaryDirectory() as name:
        folder, words = Path(name), sys.argv[1:]
        if words == ["device"]:
            traces = {"reply": reply(folder)}
        else:
            traces = {"command": search(folder, words), "round": one_round(words)}
    print(json.dumps({name: {"count": len(files), "files": files} for name, files in traces.items()}, indent=1))


if __name__ == "__main__":
    main()
