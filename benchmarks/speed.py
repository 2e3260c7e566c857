"""Speed on this machine, every figure next to a yardstick measured in the same run.

Machines are shared and noisy: contenders take turns, and each keeps its best time.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from quorank.data import Collection, DataSource, RankingData, load, write_letor
from quorank.engines.process import Simulator
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.runner import Runner
from quorank.federation import Add, Federation
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.kernels.compiled import kernel
from quorank.learning import PDGD, Simulation
from quorank.learning.client_loop import SIDE_BY_SIDE
from quorank.metrics.evaluator import ideal_dcg
from quorank.rankers import Linear
from quorank.rankers.scoring import LANES, dot_lanes, score_lists
from quorank.users import Cascade

Say = Callable[[str], None]
WORKLOADS = {"mq2007": DataSource("synthetic:mq2007"), "mslr": DataSource("synthetic:mslr", queries=6000)}


def best_of(contenders: dict[str, Callable[[], float]], seconds: float) -> dict[str, float]:
    """Let contenders take turns until each has had its time; each returns its cost, and the least is kept."""
    best = dict.fromkeys(contenders, float("inf"))
    spent = dict.fromkeys(contenders, 0.0)
    turns = 0
    while turns < 3 or min(spent.values()) < seconds:
        turns += 1
        for name, run in contenders.items():
            if turns > 3 and spent[name] >= seconds:
                continue
            started = time.perf_counter()
            best[name] = min(best[name], run())
            spent[name] += time.perf_counter() - started
    return best


def timed(action: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    action()
    return clock() - started


@kernel
def _read_all(block: Floats, ones: Floats) -> float:
    """Read an array from its start to its end, doing nothing but adding up."""
    total = np.float32(0.0)
    step = len(ones)
    for start in range(0, block.size - step + 1, step):
        total += dot_lanes(block, start, ones, 0, step)
    return total


@kernel
def _read_lists(padded: Floats, offsets: Integers, queries: Integers, ones: Floats, scores: Floats) -> None:
    """Read whole candidate lists in a random order, as a simulation must, doing nothing but adding up."""
    side, nothing = len(ones), np.zeros(0, dtype=np.float32)
    starts, lengths = np.zeros(side, dtype=np.int64), np.zeros(side, dtype=np.int64)
    for i in range(0, len(queries) - side + 1, side):
        for g in range(side):
            starts[g] = offsets[queries[i + g]]
            lengths[g] = offsets[queries[i + g] + 1] - starts[g]
        score_lists(ones, 0, padded, starts, lengths, scores, nothing)


def numpy_rounds(
    reference: Any,
    collection: Collection,
    theta: Doubles,
    clients: int,
    interactions: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds per round of `reference` from θ, over 100 interactions, with perfect users."""
    data, tables, rng = collection.train, Cascade("perfect").tables(collection.grades, 10), np.random.default_rng(1)
    lists = reference.Lists(np.ascontiguousarray(data.features), data.labels, data.offsets, ideal_dcg(data, 10))
    rounds = 100 // (clients * interactions)

    def play() -> None:
        for _ in range(rounds):
            reference.federated_round(lists, theta, clients, interactions, (tables.click, tables.stop), rng)

    return timed(play, clock) / rounds


def workload(name: str, reference: Any) -> Callable[[float], dict[str, Any]]:
    """PDGD with a linear ranker and perfect users: the compiled cohort against NumPy and against memory.

    What is returned measures for so many seconds a contender, and gives the figures of all that it has measured so far:
    on a shared machine what memory gives changes from minute to minute, and the best time is kept.
    """
    collection = load(WORKLOADS[name]).resident()
    data = collection.train
    users, theta = Cascade("perfect"), _trained(collection)
    federation = Federation(clients=1000 if name == "mslr" else 2000, interactions=4)
    interactions = federation.clients * federation.interactions

    def run_cohort(threads: int) -> Callable[[], float]:
        simulator = Simulator(federation, Simulation(data, Linear(), users, collection.grades, 1), threads)
        state = federation.start(theta)
        simulator.gather(state)
        return lambda: timed(lambda: simulator.gather(state)) / interactions

    queries = np.random.default_rng(2).integers(data.n_queries, size=4 * (interactions // 4))

    def read_lists(side: int, order: Integers = queries) -> None:
        ones = np.ones((side, data.padded.shape[1]), dtype=np.float32)
        sums = np.empty((side, data.longest), dtype=np.float32)
        _read_lists(data.padded, data.offsets, order, ones, sums)

    def read_lists_twice() -> None:
        # in another order, or the second thread would find in the shared cache what the first has read
        other = Thread(target=read_lists, args=(SIDE_BY_SIDE, queries[::-1].copy()))
        other.start()
        read_lists(SIDE_BY_SIDE)
        other.join()

    read_lists(1)
    big = np.ones(1 << 26, dtype=np.float32)
    ones = np.ones(128 * LANES, dtype=np.float32)
    _read_all(big[: 1 << 12], ones)

    def read_halves() -> None:
        half = len(big) // 2
        other = Thread(target=_read_all, args=(big[half:], ones))
        other.start()
        _read_all(big[:half], ones)
        other.join()

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    contenders = {
        "one": run_cohort(1),
        "reference": lambda: numpy_rounds(reference, collection, theta, 25, 4) / 100,
        "lists": lambda: timed(lambda: read_lists(1)),
        "side by side": lambda: timed(lambda: read_lists(SIDE_BY_SIDE)),
        "memory": lambda: timed(lambda: _read_all(big, ones)),
    }
    if cores > 1:
        contenders["two"] = run_cohort(2)
        contenders["memory, two"] = lambda: timed(read_halves)
        contenders["lists, two"] = lambda: timed(read_lists_twice) / 2
    best = dict.fromkeys(contenders, float("inf"))
    rows = np.diff(data.offsets)[queries].sum()
    list_bytes = float(rows * data.padded.shape[1] * 4)

    def measure(seconds: float) -> dict[str, Any]:
        for contender, cost in best_of(contenders, seconds).items():
            best[contender] = min(best[contender], cost)
        return _figures(best, data, float(big.nbytes), list_bytes)

    return measure


def _figures(best: dict[str, float], data: RankingData, whole: float, list_bytes: float) -> dict[str, Any]:
    """From the best time of each contender; `whole` bytes are a straight read, `list_bytes` one of lists."""
    bytes_read = data.padded.nbytes / data.n_queries
    # memory's bandwidth is that of a straight read, the most it gives; a simulation reads whole lists in a random
    # order, one by one or several at a time, and those two say how much of the distance is due to that
    bandwidth = {
        "memory_bandwidth": whole / best["memory"],
        "side_by_side_bandwidth": list_bytes / best["side by side"],
        "list_by_list_bandwidth": list_bytes / best["lists"],
    }
    figures = {
        "interactions_per_second": 1.0 / best["one"],
        "reference_interactions_per_second": 1.0 / best["reference"],
        "speedup": best["reference"] / best["one"],
        "interactions_per_second_two_threads": 1.0 / best["two"] if "two" in best else None,
        "two_threads_speedup": best["one"] / best["two"] if "two" in best else None,
        "read_bytes_per_second": bytes_read / best["one"],
        **_shares(bandwidth, bytes_read / best["one"], "one_thread"),
    }
    if "two" in best:
        together = {
            "memory_bandwidth": whole / best["memory, two"],
            "side_by_side_bandwidth": list_bytes / best["lists, two"],
        }
        figures["read_bytes_per_second_two_threads"] = bytes_read / best["two"]
        figures |= _shares(together, bytes_read / best["two"], "two_threads")
    figures["memory_bandwidth_share"] = figures["memory_bandwidth_share_one_thread"]
    return figures | {
        "documents_per_list": data.n_rows / data.n_queries,
        "features": data.n_features,
        "queries": data.n_queries,
    }


def _shares(bandwidth: dict[str, float], read: float, threads: str) -> dict[str, float]:
    """Each bandwidth, and which share of it the simulation reads with as many threads."""
    figures = {f"{way}_bytes_per_second_{threads}": rate for way, rate in bandwidth.items()}
    return figures | {f"{way}_share_{threads}": read / rate for way, rate in bandwidth.items()}


def _trained(collection: Collection) -> Doubles:
    """A ranker that has learned a little: from zero parameters all lists are equally likely."""
    simulator = Simulator(
        Federation(clients=100), Simulation(collection.train, Linear(), Cascade(), collection.grades, 1)
    )
    state = simulator.initial()
    for _ in range(30):
        state, _ = simulator.federation.round(state, simulator.gather(state))
    return state.theta


def by_clients(say: Say) -> dict[str, Any]:
    """Time per interaction and memory from 10 to 100,000 clients (generated MQ2007-like lists, B = 4, one thread)."""
    collection = load(WORKLOADS["mq2007"]).resident()
    theta = _trained(collection)
    figures = {}
    for clients in (10, 100, 1_000, 10_000, 100_000):
        federation = Federation(clients=clients, server=Add(step=1e-12))  # the ranker stays as it is
        simulator = Simulator(federation, Simulation(collection.train, Linear(), Cascade(), collection.grades, 1))
        state = federation.start(theta)
        simulator.warm(state)
        repeats = max(1, 20_000 // clients)
        turns = 5 if clients < 50_000 else 2
        rounds = []
        for _ in range(turns):
            started = time.perf_counter()
            for _ in range(repeats):
                state, _ = federation.round(state, simulator.gather(state))
            rounds.append((time.perf_counter() - started) / repeats)
        fresh = Simulator(federation, simulator.simulation)
        tracemalloc.start()
        federation.round(state, fresh.gather(state))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        figures[str(clients)] = {
            "microseconds_per_interaction": min(rounds) / (clients * federation.interactions) * 1e6,
            "peak_bytes": peak,  # of all arrays of a round
        }
        say(f"{clients:>7,} clients: {figures[str(clients)]['microseconds_per_interaction']:.2f} µs per interaction")
    slowest = max(f["microseconds_per_interaction"] for f in figures.values())
    fastest = min(f["microseconds_per_interaction"] for f in figures.values())
    return {"by_clients": figures, "slowest_over_fastest": slowest / fastest}


def single_client(reference: Any, seconds: float = 4.0) -> dict[str, Any]:
    """Rounds per second of a whole run of one client and one interaction per round, as in online learning to rank.

    20,000 rounds on generated MQ2007-like lists, with the metrics of each and an evaluation after the last, one thread,
    against `reference` from the ranker that was learned; seconds of the processor.
    """
    plan, rounds = EvaluationPlan(every=20_000), 20_000
    experiment = Experiment(WORKLOADS["mq2007"], federation=Federation(1, 1), rounds=rounds, evaluation=plan)
    runner = Runner(experiment, threads=1)
    runner.run()
    theta = runner.ranker

    def run() -> float:
        runner.state = runner.progress = None
        return timed(runner.run, time.process_time) / rounds

    def run_reference() -> float:
        return numpy_rounds(reference, runner.collection, theta, 1, 1, time.process_time)

    best = best_of({"run": run, "reference": run_reference}, seconds)
    rates = {"rounds_per_second": 1.0 / best["run"], "reference_rounds_per_second": 1.0 / best["reference"]}
    return {**rates, "speedup": best["reference"] / best["run"]}


def evaluation() -> dict[str, Any]:
    """The published MSLR setting, 1,000 clients × 2 × 200 rounds, with the whole test split judged after every round."""
    experiment = Experiment(
        WORKLOADS["mslr"], federation=Federation(1000, 2, PDGD()), rounds=200, evaluation=EvaluationPlan(every=1)
    )
    runner = Runner(experiment)
    progress = runner.run()
    return {
        "train_seconds": progress.train_seconds,
        "evaluate_seconds": progress.evaluate_seconds,
        "evaluate_over_train": progress.evaluate_seconds / progress.train_seconds,
        "test_queries": runner.collection.test.n_queries,
    }


def published() -> dict[str, Any]:
    """The published MQ2007 setting on generated data: 1,000 clients × 4 × 1,000 rounds, evaluated every round."""
    runner = Runner(Experiment())
    seconds = timed(runner.run)
    assert runner.progress is not None
    return {
        "seconds": seconds,
        "interactions": runner.progress.interactions,
        "ndcg@10": runner.progress.last("offline_ndcg@10"),
    }


def reader(say: Say) -> dict[str, Any]:
    """LETOR text against scikit-learn's svmlight reader, and the second load of the same file."""
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        say("reader: not compared, scikit-learn is missing (install quorank[bench])")
        return {}
    figures = {}
    for name, queries in (("mq2007", None), ("mslr", 200)):
        train = load(DataSource(f"synthetic:{name}", queries=queries)).train
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            for split in ("train", "test"):
                write_letor(train, folder / f"{split}.txt")
            figures[name] = _reader_figures(folder / "train.txt", load_svmlight_file)
        say(f"{name}: text {figures[name]['parse_speedup']:.0f} ×, cached {figures[name]['cached_speedup']:.0f} ×")
    return figures


def _reader_figures(path: Path, load_svmlight_file: Callable[..., Any]) -> dict[str, Any]:
    from quorank.data import read_letor

    read_letor(path)
    before = os.environ.get("QUORANK_CACHE")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["QUORANK_CACHE"] = cache
        try:
            source = DataSource(str(path.parent))
            os.utime(path, (0, 0))  # an old file, whose date alone says that it has not changed
            os.utime(path.with_name("test.txt"), (0, 0))
            load(source)
            best = best_of(
                {
                    "sklearn": lambda: timed(lambda: load_svmlight_file(str(path), query_id=True)),
                    "text": lambda: timed(lambda: read_letor(path)),
                    # two files, train and test, in one load
                    "cached": lambda: timed(lambda: load(source)) / 2,
                },
                1.0,
            )
        finally:
            gc.collect()
            os.environ.pop("QUORANK_CACHE", None)
            if before is not None:
                os.environ["QUORANK_CACHE"] = before
    size = path.stat().st_size
    return {
        "megabytes": size / 1e6,
        "sklearn_megabytes_per_second": size / best["sklearn"] / 1e6,
        "megabytes_per_second": size / best["text"] / 1e6,
        "parse_speedup": best["sklearn"] / best["text"],
        "cached_seconds": best["cached"],
        "cached_speedup": best["sklearn"] / best["cached"],
    }


def start_up() -> dict[str, Any]:
    """From the command to the end of the first round, when everything is compiled already."""
    command = [
        sys.executable, "-c",
        "import sys, time; from quorank.cli.main import main; from quorank.experiments import runner\n"
        "first = runner.Progress.record\n"
        "def record(self, report):\n"
        "    first(self, report); print(time.time(), flush=True); import os; os._exit(0)\n"
        "runner.Progress.record = record\n"
        "sys.argv = ['quorank', 'run', 'fpdgd', '--out', sys.argv[1], '--quiet']; main()",
    ]  # fmt: skip
    taken = []
    for _ in range(4):
        with tempfile.TemporaryDirectory() as scratch:
            started = time.time()
            result = subprocess.run([*command, f"{scratch}/run"], capture_output=True, text=True, check=True)
            taken.append(float(result.stdout.split()[-1]) - started)
    return {"seconds_to_first_round": min(taken[1:])}
