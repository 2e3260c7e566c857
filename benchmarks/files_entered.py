"""Count the files of the package that one search enters: `python benchmarks/files_entered.py [KEY=VALUE...]`.

One client of the shipped experiment `fpdgd` searches once. A file counts if a function of it runs, module and class bodies
aside; a kernel counts with the kernels that it names. Prints a JSON object with the number and the files.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import quorank
from quorank.cli.main import app
from quorank.kernels.compiled import Kernel

PACKAGE = f"{Path(quorank.__file__).parent}{os.sep}"
SMALLEST = ("federation.clients=1", "federation.rounds=1", "federation.interactions=1")
OPTIMISED = 1  # CO_OPTIMIZED: set for functions, not for module and class bodies


def is_import(frame: FrameType | None) -> bool:
    """Return whether a frame runs below the body of one of the package's modules."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def files_entered(arguments: list[str]) -> list[str]:
    """Return the files whose functions run during a command, by their path in the package."""
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
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, Kernel) and id(called) not in seen:
                note_kernels(called, seen)

    def call(kernel: Kernel, *arguments: Any) -> Any:
        note_kernels(kernel, set())
        return compiled_call(kernel, *arguments)

    compiled_call, Kernel.__call__ = Kernel.__call__, call  # type: ignore[method-assign]
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        app(arguments, standalone_mode=False)
    except SystemExit as ended:
        assert not ended.code, ended.code
    finally:
        Kernel.__call__ = compiled_call  # type: ignore[method-assign]
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(name.removeprefix(PACKAGE) for name in files)


def main() -> None:
    """Trace a run and print the list."""
    settings = [word for setting in (*SMALLEST, *sys.argv[1:]) for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        files = files_entered(["run", "fpdgd", *settings, "--out", str(Path(folder) / "run"), "--quiet", "--json"])
    print(json.dumps({"count": len(files), "files": files}, indent=1))


if __name__ == "__main__":
    main()
