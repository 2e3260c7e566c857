"""Light devices tune a heuristic over HTTPS on this machine, and reach the versions of `quorank tune simulate` to the bit.

    python benchmarks/tuned_fleet.py [--devices 1000] [--iterations 12] [--seed 1]

The service runs as an operator starts it (`quorank coordinator start DIR --tune`), in processes of its own, with TLS. Each
device has a key of its own, opens a new connection for every request, asks for the version, computes its update from one
search of the simulation and sends it. Prints the time of a version, and whether every file of weights equals the
simulation's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from quorank.protocol.http_client import ServiceClient, ServiceRefusal
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.service.enrolment import open_enrolment
from quorank.service.home import Home
from quorank.tuning.field import DeviceSums, read_field_tuning, read_task
from quorank.tuning.heuristics.constraints import random_weights
from quorank.tuning.histories.scenarios import SCENARIOS
from quorank.tuning.models import read_model
from quorank.tuning.rules import Count
from quorank.tuning.searches import slice_searches
from quorank.tuning.simulation import Tuning, simulate_tuning

AT_ONCE = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=9377)
    args = parser.parse_args()
    people = Tuning(people="others", iterations=args.iterations, held_out=2000, seed=args.seed)
    tuning = replace(people, closing=Count(args.devices))
    simulated = simulate_tuning(tuning)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tune.toml"
        file.write_text(f"iterations = {args.iterations}\nclosing = {{ kind = 'count', updates = {args.devices} }}\n")
        start = ["coordinator", "start", f"{folder}/service", "--tune", str(file), "--port", str(args.port)]
        command = [sys.executable, "-m", "quorank.cli.main", *start, "--set", "enrolments=0", "--run", "run"]
        service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            play(Path(folder), tuning, read_field_tuning(file).terms("run"), args.devices)
        finally:
            service.terminate()
            service.wait(60)
        same = [
            read_model(Path(folder) / "service" / "versions" / f"weights-{version:06d}.json") == model
            for version, model in enumerate(simulated.models, 1)
        ]
    first, last = simulated.accuracy[0], simulated.accuracy[-1]
    print(f"versions equal to the simulation's, to the bit: {sum(same)} of {len(same)}")
    print(f"rank accuracy of the simulation: {first:.4f} at first, {last:.4f} at last")


def play(folder: Path, tuning: Tuning, terms, devices: int) -> None:
    """Enrol all devices, and let them answer version after version."""
    scenario = SCENARIOS[tuning.heuristic]
    heuristic = scenario.heuristic
    truth = random_weights(heuristic, tuning.seed, 1)  # what these people follow
    while not (folder / "service" / "supervisor.json").exists():
        time.sleep(0.1)
    home = Home.open(folder / "service")
    store = home.store()
    invitation: Invitation = open_enrolment(home, store, devices, 1.0, folder / "invitation.json")
    lines = []
    began = time.monotonic()
    for _ in range(devices):  # one after the other: the number of a device is that of its searches
        line = ServiceClient(invitation.url, invitation.service, invitation.certificate, keep=False)
        while True:
            try:
                line.enrol(invitation, MemberKey.create())
                break
            except Exception as error:
                if time.monotonic() - began > 60:
                    raise error
                time.sleep(0.2)
        lines.append(line)
    print(f"{devices} devices enrolled in {time.monotonic() - began:.1f} s", flush=True)
    for version in range(tuning.iterations):
        searches = scenario.searches(tuning.seed, devices, version * devices, truth, tuning.sigma)

        def answer(line: ServiceClient, version: int = version, searches=searches) -> None:
            while (served := line.task()).round < version or served.content is None:
                time.sleep(0.05)
            task = read_task(served.content, "run", heuristic)
            own = slice_searches(searches, line.member, line.member + 1)
            sums = DeviceSums.empty(version, len(heuristic.weights)).add(heuristic, terms, task, own)
            content = sums.reply(replace(terms, client=line.member))
            while True:
                try:
                    line.reply(content)
                    return
                except ServiceRefusal as error:  # a worker that has not seen the new version yet
                    if error.code != "reply.other-round":
                        raise
                    time.sleep(0.2)

        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(answer, lines))
        print(f"version {version + 1}: {time.monotonic() - began:.1f} s", flush=True)
    while (folder / "service" / "versions" / f"weights-{tuning.iterations:06d}.json").exists() is False:
        time.sleep(0.1)
    store.close()


if __name__ == "__main__":
    main()
