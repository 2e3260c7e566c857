"""The same seed gives the same bits: with any number of threads, any chunking, any combination of parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quick_runs import run_quickly
from small_runs import experiment, played

from quorank.kernels.steady import steady_environment

LEARNERS = {
    "pdgd": ["learner=pdgd"],
    "pdgd batch": ["learner=pdgd", "learner.step=batch"],
    "pairrank": ["learner=pairrank"],
    "evolution": ["learner=evolution"],
    "evolution ndcg": ["learner=evolution", "learner.metric=ndcg"],
    "response": ["learner=evolution", "privacy=randomised-response"],
    "response per interaction": ["learner=evolution", "privacy=randomised-response", "privacy.per=interaction"],
}
RANKERS = {"linear": [], "mlp": ["ranker=mlp", "ranker.hidden=5"]}
SERVERS = ["add", "momentum", "adam"]
PARTICIPATIONS = ["full", '{ kind = "sampled", cohort = 7 }', '{ kind = "arrivals", enough = 7, least = 2, rest = 1 }']


@pytest.mark.parametrize(("number", "learner"), [*enumerate(LEARNERS)])
@pytest.mark.parametrize("server", SERVERS)
def test_neither_threads_nor_chunks_change_a_bit(number: int, learner: str, server: str) -> None:
    """Every learner with every server; each pair of them meets one ranker and one participation."""
    at = number + SERVERS.index(server)
    ranker, participation = [*RANKERS][at % 2], PARTICIPATIONS[at % 3]
    parts = [*LEARNERS[learner], *RANKERS[ranker]]
    places = [f"federation.server={server}", f"federation.participation={participation}"]
    chosen = experiment(*parts, *places, "federation.rounds=5", "evaluation.every=2")
    alone = played(chosen, threads=1)
    for threads, chunk in ((2, None), (1, 1), (2, 3), (3, 6), (1, 20), (2, 1000)):
        assert played(chosen, threads=threads, chunk=chunk) == alone, (threads, chunk)


@pytest.mark.parametrize("ranker", RANKERS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_another_seed_gives_another_run(learner: str, ranker: str) -> None:
    parts = [*LEARNERS[learner], *RANKERS[ranker], "federation.rounds=3"]
    found = [played(experiment(*parts, f"seed={seed}"), threads=1) for seed in (1, 2, 1, 2**32 + 1)]
    assert found[0] == found[2]
    rankers, histories = {ranker for ranker, _ in found}, {history for _, history in found}
    assert len(rankers) == len(histories) == 3


@pytest.mark.slow
@pytest.mark.parametrize("steady", [False, True])
def test_a_program_whose_bits_are_not_the_command_line_s_is_told(tmp_path: Path, *, steady: bool) -> None:
    """A program loads NumPy as it likes; its run has the bits of the command line, or says that they are others."""
    text = """import quorank as qr, sys
    qr.run({"data": {"source": "synthetic:mq2007", "queries": 60}, "federation": {"rounds": 6}}, out=sys.argv[1])"""
    known = steady_environment()
    plain = {name: value for name, value in os.environ.items() if name not in known}
    words = [sys.executable, "-c", text.replace("\n    ", "\n"), str(tmp_path / "run")]
    done = subprocess.run(words, env=plain | (known if steady else {}), capture_output=True, text=True, check=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    differs = not steady and "OPENBLAS_CORETYPE" in known
    assert summary.get("processor_dependent", False) is differs
    assert ("processor_dependent" in done.stderr) is differs


def test_more_rounds_begin_like_fewer(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for rounds in (5, 12):
        run_quickly(experiment(f"federation.rounds={rounds}"), tmp_path / str(rounds))
    short, long = (pq.read_table(tmp_path / name / "history.parquet") for name in ("5", "12"))
    assert long.slice(0, 5).equals(short)


def test_the_ranker_file_says_how_to_score_and_nothing_about_when(tmp_path: Path) -> None:
    run_quickly(experiment("federation.rounds=1"), tmp_path / "run")
    content = json.loads((tmp_path / "run" / "ranker.json").read_text())
    described = {"feature_names", "missing", "normalisation", "origin", "digest"}
    assert set(content) == {"format", "ranker", "n_features", "parameters"} | described
    assert (content["n_features"], len(content["parameters"]), len(content["feature_names"])) == (46, 46, 46)
    assert content["ranker"] == {"kind": "linear"} and content["normalisation"] == {"kind": "query"}
    assert set(content["origin"]) == {"by", "experiment", "seed", "rounds", "privacy"}
