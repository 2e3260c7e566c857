"""One lying client in secure sums of 100: what it costs without a bound, with the bound, and with sums in groups.

    python benchmarks/lying_client.py [--data synthetic:mq2007 synthetic:mslr] [--rounds 300] [--seeds 5] [--jobs 2]
        [--groups 10] [--epsilon 8] [--defences NAME ...] [--out FILE.json]

The liar sends uniform words, or turns the opened sum round as far as it is still used, in every round it is in (all). It
tells a false share too: what that does to a single sum is printed first, with the protocol as it was (the sum moves as far
as words can) told from what it is (the share is left out, its holder named). nDCG@10 is that of the last ranker on the
test split, compared seed by seed with the mean over everybody that nobody attacks, ± the standard error over seeds.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from secure_sum import measured_sum

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood, neighbours_for
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.secure_sum.server import SecureServer

Tables = dict[str, Any]
LIES = {"nobody": None, "words": {"kind": "lies", "sends": "words"}, "worst": {"kind": "lies", "sends": "worst"}}
DEFENCES: dict[str, Tables] = {
    "nothing (before)": {"bounded": False},
    "bound": {},
    "bound, groups, mean": {"grouped": True},
    "bound, groups, trimmed mean": {"grouped": True, "rule": {"kind": "trimmed-mean", "byzantine": 1}},
    "bound, groups, trimmed mean of 2": {"grouped": True, "rule": {"kind": "trimmed-mean", "byzantine": 2}},
    "bound, groups, median": {"grouped": True, "rule": {"kind": "median"}},
    "bound, groups, geometric median": {"grouped": True, "rule": {"kind": "geometric-median"}},
}


def privacy_tables(noise: bool, groups: int, args: argparse.Namespace) -> Tables:
    """The privacy of a run, without playing every message: the sums are the same."""
    shared = {"masks": False, "groups": groups}
    if noise:
        return {"kind": "gaussian", "sum": "secure", "epsilon": args.epsilon, "clip": 0.05} | shared
    return {"kind": "secure-sum", "clip": args.clip} | shared


def tables_of(data: str, noise: bool, defence: str, lie: str, seed: int, args: argparse.Namespace) -> Tables:
    """The experiment of one cell."""
    how = DEFENCES[defence]
    groups = args.groups if how.get("grouped") else 1
    federation: Tables = {"clients": args.clients, "rounds": args.rounds, "interactions": 4}
    federation["aggregation"] = how.get("rule", {"kind": "mean"})
    tables: Tables = {
        "seed": seed,
        "data": {"source": data},
        "federation": federation,
        "privacy": privacy_tables(noise, groups, args),
        "evaluation": {"every": args.rounds},
    }
    hostile = LIES[lie]
    return tables if hostile is None else tables | {"attack": hostile | {"clients": 1}}


def run_once(job: tuple[Tables, bool]) -> list[float]:
    """[offline nDCG@10, rounds without a usable sum, seconds] of one run."""
    from quorank.experiments.runner import Runner

    tables, bounded = job
    plausible = IntegerSums.plausible
    if not bounded:
        IntegerSums.plausible = lambda self, words, present, noise: True  # type: ignore[method-assign]
    try:
        runner = Runner(Experiment.read(ExperimentFile(tables, "lying client")), threads=1)
        started = time.perf_counter()
        progress = runner.run()
        unused = float(np.sum(progress.values["update_norm"][: progress.done] == 0.0))
        return [progress.last("offline_ndcg@10"), unused, time.perf_counter() - started]
    finally:
        IntegerSums.plausible = plausible  # type: ignore[method-assign]


def false_share(clients: int = 100, length: int = 136) -> None:
    """Print what one false share does to a sum of 100."""
    rows = np.random.default_rng(1).integers(-1000, 1000, (clients, length)).astype(np.uint32)
    occasion, plan = Occasion(b"a lie", 0), neighbours_for(clients)
    lengths = {}
    for name, checked in (("as it was", False), ("as it is", True)):
        server = SecureServer(occasion, length, plan)
        if not checked:  # the sum before shares were committed to: nothing is compared with anything
            server._true = lambda *_: True  # type: ignore[method-assign]
            server._require_honest = lambda *_: None  # type: ignore[method-assign]
        members = [SecureClient(c, occasion, plan) for c in range(clients)]
        for member in members:
            server.receive_keys(member.advertise())
        for c, keys in server.key_lists().items():
            server.receive_shares(members[c].share(keys))
        for c, delivery in server.deliveries().items():
            server.receive_masked(members[c].mask(delivery, rows[c]))
        for c, request in server.unmask_requests().items():
            reply = members[c].unmask(request)
            if c == 0:
                reply = replace(reply, seeds=tuple((o, bytes(32) if o == 1 else s) for o, s in reply.seeds))
            server.receive_reply(reply)
        moved = (server.total() - rows.sum(axis=0, dtype=np.uint32)).view(np.int32).astype(np.float64)
        lengths[name] = math.sqrt(moved.dot(moved))
        print(f"one false share, {name}: the sum is moved by {lengths[name]:.3g}; named: {sorted(server.liars)}")


def costs(args: argparse.Namespace) -> None:
    """Print seconds and bytes of the sums of a cohort, whole and in groups."""
    rows = np.random.default_rng(1).integers(0, 2**32, (args.clients, 136), dtype=np.uint32)
    for groups in (1, args.groups):
        started, sent, received = time.process_time(), [], []
        for members in np.array_split(np.arange(args.clients), groups):
            plan: Neighbourhood = neighbours_for(len(members))
            vectors = {int(c): rows[c] for c in members}
            run = measured_sum(vectors, round_=0, session=b"costs", neighbourhood=plan)
            sent.append(sum(run.sent.values()))
            received.append(sum(run.received.values()))
        seconds = time.process_time() - started
        kept = f"{np.mean(sent):.0f} bytes sent and {np.mean(received):.0f} received by a client"
        print(f"{args.clients} clients in {groups} sums: {seconds:.2f} CPU seconds, {kept}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["synthetic:mq2007", "synthetic:mslr"])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--clip", type=float, default=0.3, help="of the runs without noise")
    parser.add_argument("--defences", nargs="+", choices=list(DEFENCES), default=list(DEFENCES), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="keeps the figures of runs, which are not made twice")
    args = parser.parse_args()
    false_share()
    costs(args)
    known: dict[str, list[float]] = json.loads(args.out.read_text()) if args.out and args.out.is_file() else {}
    cells = [
        (d, n, w, b)
        for d in args.data
        for n in (False, True)
        for w in {"bound": 0, **dict.fromkeys(args.defences)}
        for b in LIES
    ]
    jobs = {}
    for data, noise, defence, lie in cells:
        for seed in range(1, args.seeds + 1):
            tables = tables_of(data, noise, defence, lie, seed, args)
            bounded = DEFENCES[defence].get("bounded", True)
            jobs[data, noise, defence, lie, seed] = json.dumps([tables, bounded], sort_keys=True)
    wanted = [key for key in dict.fromkeys(jobs.values()) if key not in known]
    with ProcessPoolExecutor(args.jobs) as pool:
        for key, found in zip(wanted, pool.map(run_once, [tuple(json.loads(k)) for k in wanted]), strict=True):
            known[key] = found
            if args.out:
                args.out.write_text(json.dumps(known))
    for data in args.data:
        for noise in (False, True):
            print(f"\n{data}, {'ε = ' + format(args.epsilon, 'g') if noise else 'no noise'}: nDCG@10 (change in %)\n")
            print("| defence | nobody lies | uniform words | the worst | rounds unused | seconds |")
            print("|---|---|---|---|---|---|")
            seeds = range(1, args.seeds + 1)
            base = np.array([known[jobs[data, noise, "bound", "nobody", s]][0] for s in seeds])
            for defence in args.defences:
                line, unused, seconds = [], [], 0.0
                for lie in LIES:
                    found = np.array([known[jobs[data, noise, defence, lie, s]] for s in seeds])
                    change = 100.0 * (found[:, 0] / base - 1.0)
                    error = change.std(ddof=1) / math.sqrt(len(change)) if len(change) > 1 else math.nan
                    line.append(f"{found[:, 0].mean():.4f} ({change.mean():+.2f} ± {error:.2f})")
                    unused.append(f"{found[:, 1].mean():.0f}")
                    seconds = seconds or found[:, 2].mean()
                print(f"| {defence} | {' | '.join(line)} | {', '.join(unused)} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
