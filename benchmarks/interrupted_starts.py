"""Ctrl-C at random moments of a start: how often it is answered as it should be.

    python benchmarks/interrupted_starts.py --tries 200
    python benchmarks/interrupted_starts.py --tries 200 --held    as `python3 tasks.py quorank` starts it

A try starts a command, sends SIGINT after 0 to 1.5 s, and looks at how it ended: with exit code 130 and one line that says
so, or with the result where it was faster. Before Python listens for signals a process is ended by the system, without a
word (−2); "before" is Python's own traceback from its start, before the first lines of ours have run. With --held a signal
waits until the command listens, so that there is no such moment. Anything else is not clean: a traceback of ours, an abort,
more lines than one.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

LONGEST = 1.5
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("run", "small.toml", "--out", "{out}", "--quiet"),
    ("run", "small.toml", "--out", "{out}", "--quiet", "--threads", "2"),
    ("data", "list"),
    ("evaluate", "missing.json", "--data", "synthetic:mq2007"),
    ("privacy", "plan", "--help"),
)
SMALL = '[data]\nsource = "synthetic:mq2007"\nqueries = 60\n[federation]\nclients = 20\nrounds = 2000\n'


def outcome(folder: Path, words: tuple[str, ...], after: float, number: int, held: bool) -> tuple[str, str]:
    """Return "clean" or what was wrong, and what was printed."""
    arguments = [word.format(out=f"run-{number}") for word in words]
    process = subprocess.Popen(
        [sys.executable, "-m", "quorank.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "QUORANK_HOME": str(folder / "home")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=_hold if held else None,
    )
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "hangs", ""
    return judged(process.returncode, said.decode(errors="replace")), said.decode(errors="replace")


def judged(code: int, said: str) -> str:
    """Return what is wrong with how a command ended; "clean" where nothing is."""
    if "Traceback" in said or "KeyboardInterrupt" in said or "Exception ignored" in said:
        places = [line.split('"')[1] for line in said.splitlines() if line.lstrip().startswith('File "')]
        first = all(place.startswith("<frozen") or place.endswith(("cli/main.py", "cli/start.py")) for place in places)
        return "before" if first and len(places) > 0 else "traceback"
    if code in (-signal.SIGABRT, -signal.SIGSEGV) or "double free" in said or "Fatal" in said:
        return "crash"
    if code not in (0, 2, 130, -signal.SIGINT):
        return f"code {code}"
    stopped = [line for line in said.splitlines() if line.startswith("quorank: stopped")]
    return "clean" if code != 130 or len(stopped) == 1 else "lines"


def _hold() -> None:
    """In a new process: let Ctrl-C wait until it is listened for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def main() -> None:
    """Try, and print how often each outcome was met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held", action="store_true")
    chosen = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so would a child
    moments, found = random.Random(chosen.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small.toml").write_text(SMALL)
        for number in range(chosen.tries):
            after = moments.uniform(0.0, LONGEST)
            how, said = outcome(folder, COMMANDS[number % len(COMMANDS)], after, number, chosen.held)
            found[how] += 1
            if how != "clean":
                print(f"{how} after {after:.3f} s: {COMMANDS[number % len(COMMANDS)]}\n{said}")
        left = [path.name for path in folder.rglob("*.tmp")]
    print(f"{chosen.tries} tries: " + ", ".join(f"{count} {how}" for how, count in found.most_common()))
    print(f"temporary files left: {len(left)}")


if __name__ == "__main__":
    main()
