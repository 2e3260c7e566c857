"""What clients keep of a run for unlearning: every Δt-th update, once each, also after a resume."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import Quorank
from quick_runs import run_quickly, stopped_run
from unlearning_runs import FILE, experiment, kept, made

from quorank.errors import BadInput
from quorank.experiments import runner
from quorank.experiments.kept_updates import KeptUpdates


def test_a_run_keeps_every_tenth_update_of_each_client_as_it_was_sent() -> None:
    folder = made()
    assert sorted(kept(folder)) == [f"{c}.npz" for c in range(6)]
    chosen = experiment()
    assert chosen.keep_every == 10 and "keep_every = 10" in (folder / "run.toml").read_text()
    played, seen = runner.Runner(chosen, 1), {}
    simulator, state = played.simulator, played.simulator.initial()
    for t in range(40):
        gathered = simulator.gather(state, sent=lambda clients, rows, t=t: seen.update({t + 1: rows.copy()}))
        state, _ = chosen.federation.round(state, gathered)
    for client in range(6):
        with np.load(folder / "clients" / f"{client}.npz") as saved:
            assert saved["rounds"].tolist() == [1, 11, 21, 31] and saved["updates"].dtype == np.float32
            expected = np.array([seen[t][client] for t in (1, 11, 21, 31)], dtype=np.float32)
            np.testing.assert_array_equal(saved["updates"], expected)
    ranker = json.loads((folder / "ranker.json").read_text())["parameters"]
    assert ranker == state.theta.tolist()  # keeping changes nothing


PRIVATE = '[privacy]\nkind = "gaussian"\nnoise_multiplier = 1.0\n'


def test_a_private_run_that_keeps_updates_says_so_and_keeps_them_from_others(quorank: Quorank) -> None:
    short = FILE.replace("rounds = 40", "rounds = 3")
    Path("kept.toml").write_text(short + PRIVATE)
    outcome = quorank("run", "kept.toml", "--out", "made", "-q")
    assert outcome.code == 0 and "warning" in outcome.err and "raw updates are kept" in outcome.err
    assert (Path("made") / "clients").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (Path("made") / "clients").iterdir()} == {0o600}
    Path("none.toml").write_text(short.replace("keep_every = 10\n", "") + PRIVATE)
    outcome = quorank("run", "none.toml", "--out", "none", "-q")
    assert "warning" not in outcome.err and not (Path("none") / "clients").exists()
    told = quorank("unlearn", "none", "--client", 1, "--method", "published").refused()
    assert "kept no updates; use --method fresh, or run it again" in told


@pytest.mark.parametrize("part", ["", '\nparticipation = { kind = "sampled", cohort = 3 }\nkeep_every = 4'])
def test_resumed_runs_keep_neither_more_nor_less(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    whole = kept(made("whole", part))
    folder, chosen = Path("pieces"), experiment(part)
    for before, stop in pairwise((0, 1, 10, 11, 25)):
        monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", -1.0 if stop == 11 else 20.0)
        stopped_run(chosen, folder, stop - before, threads=1, resume=before > 0)
    run_quickly(chosen, folder, threads=2, resume=True)
    assert kept(folder) == whole


def test_updates_kept_after_the_last_checkpoint_are_dropped_and_missing_ones_refused() -> None:
    folder, chosen = Path("cut"), experiment()
    stopped_run(chosen, folder, 15)
    later = KeptUpdates(10, folder)
    later.restore(15, 6, 46, 1000)
    assert [*later.rows[0]] == [1, 11]
    later.keep(21, np.arange(6), np.ones((6, 46)))  # as if the run was killed after writing, before its checkpoint
    later.write()
    copy = shutil.copytree(folder, "copy")
    run_quickly(chosen, folder, resume=True)
    assert kept(folder) == kept(made("whole"))
    (Path(copy) / "clients" / "4.npz").unlink()
    with pytest.raises(BadInput, match=r"4\.npz: updates that client 4 kept before the checkpoint are missing"):
        run_quickly(chosen, Path(copy), resume=True)
