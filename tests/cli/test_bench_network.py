"""quorank bench --network: figures that fit together, and a sentence for what cannot be measured."""

from __future__ import annotations

import importlib.metadata
import io
import json

import pytest

from quorank.cli import bench_network as command
from quorank.errors import BadInput

TINY = {"devices": 40, "parameters": 5, "rounds": 1}


def figures_of_flower(nodes: int) -> dict:
    from quorank.network.flower_bench import RATIOS

    ours, theirs = dict.fromkeys(RATIOS, 3.0), dict.fromkeys(RATIOS, 2.0)
    return {"nodes": nodes, "ours": ours, "fedavg": theirs, "ratios": dict.fromkeys(RATIOS, 1.5)}


def test_figures_are_json_alone_on_stdout(capsys, monkeypatch) -> None:
    monkeypatch.setattr(command, "_flower", figures_of_flower)
    monkeypatch.setattr(command, "LOADS", {"coordinator": ("coordinator", TINY), "driver": ("driver", TINY)})
    command.bench_network(json=True)
    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    assert figures["missing"] == {}
    assert figures["coordinator"]["devices"] == 40
    assert figures["driver"]["bytes_to_device"] > 8 * 5 * 0.5
    assert figures["flower"]["ratios"]["seconds_per_round"] == 1.5
    assert "measuring" in printed.err


def test_what_cannot_be_measured_is_a_sentence(capsys, monkeypatch) -> None:
    def missing(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(command, "LOADS", {})
    monkeypatch.setattr("quorank.flower.app.importlib.metadata.version", missing)
    command.bench_network(json=True)
    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    assert figures["flower"] is None
    assert "install quorank[network]" in figures["missing"]["flower"]
    assert "install quorank[network]" in printed.err


def test_a_load_that_fails_or_takes_too_long_is_a_sentence(monkeypatch) -> None:
    with pytest.raises(BadInput, match="could not be measured"):
        command._load("coordinator", {"devices": 0})
    monkeypatch.setattr(command, "SECONDS", 0.01)
    with pytest.raises(BadInput, match="given up"):
        command._load("coordinator", TINY)


def test_the_table_holds_every_figure_and_every_absence() -> None:
    from rich.console import Console

    load = {
        "devices": 10, "parameters": 5, "rounds_per_hour": 1234.0, "accepted_per_second": 5.0,
        "memory_bytes": 2e6, "journal_bytes": 3e6,
    }  # fmt: skip
    figures = dict.fromkeys(command.LOADS, load) | {"flower": figures_of_flower(4), "missing": {}}
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(command.network_table(figures))
    text = console.export_text()
    assert text.count("1,234 rounds/h") == len(command.LOADS)
    assert "FedAvg 2.0" in text and "1.50 ×" in text
    console.print(command.network_table(figures | {"flower": None, "missing": {"flower": "flwr is absent"}}))
    assert "flwr is absent" in console.export_text()
