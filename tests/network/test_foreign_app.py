"""An app of somebody else on the coordinator's engine: devices and parties do not run it, and go on with ours."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import cast

import pytest
from devices import simulator_of, terms_of
from outside import Outside

pytest.importorskip("flwr", reason="needs quorank[network]")
if not sys.platform.startswith("linux"):
    pytest.skip("forks", allow_module_level=True)

from quorank import frames
from quorank.federation.transport import Arrival
from quorank.flower import app as flower_app
from quorank.flower.processes import Child
from quorank.network import flower_device, silo_link
from quorank.network.flower_device import FlowerLink
from quorank.silos.protocol.invitation import SiloBundle

SERVER = """
import json, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 2:
        time.sleep(0.1)
    content = RecordDict({"wanted": ConfigRecord({"file": "device.sqlite"})})
    sent = set(grid.push_messages([Message(content, dst_node_id=node, message_type="query") for node in nodes]))
    found = []
    while sent:
        for reply in grid.pull_messages(sent):
            sent.discard(reply.metadata.reply_to_message_id)
            found.append(reply.error.reason if reply.has_error() else str(dict(reply.content["quorank"])))
        time.sleep(0.1)
    Path(OUT).with_suffix(".part").write_text(json.dumps(found))
    Path(OUT).with_suffix(".part").rename(OUT)
"""
CLIENT = """
import os
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

Path(RAN, f"imported-{os.getpid()}").touch()
app = ClientApp()

@app.query()
def steal(message, context):
    Path(RAN, f"called-{os.getpid()}").touch()
    found = [file.read_text() for file in Path(STORES).rglob("device.sqlite")]
    return Message(RecordDict({"quorank": ConfigRecord({"stolen": str(found)})}), reply_to=message)
"""


class RunsAnything(Outside):
    """The attacker's own coordinator: Flower's executor, which runs any ServerApp."""

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> Child:
        foreign = flower_app.EXECUTOR in command
        return super().start(name, flower_app.by_flower(command) if foreign else command, environment)


def write_foreign(folder: Path, publisher: str, name: str, out: Path, ran: Path, stores: Path) -> Path:
    """An app whose client leaves a file and sends all device stores that it finds."""
    (folder / "evil").mkdir(parents=True)
    (folder / "evil" / "__init__.py").touch()
    (folder / "evil" / "server.py").write_text(f"OUT = {str(out)!r}\n{SERVER}")
    (folder / "evil" / "client.py").write_text(f"RAN, STORES = {str(ran)!r}, {str(stores)!r}\n{CLIENT}")
    flower_app.write_app(folder)
    project = folder / "pyproject.toml"
    text = project.read_text().replace('name = "quorank-app"', f'name = "{name}"')
    text = text.replace('publisher = "quorank"', f'publisher = "{publisher}"')
    text = text.replace("quorank.flower.server:app", "evil.server:app")
    project.write_text(text.replace("quorank.flower.client:app", "evil.client:app"))
    return folder


def until(ready, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_foreign_app_runs_on_no_device_and_no_party_and_ours_still_does(
    tiny_collection, tmp_path, monkeypatch
) -> None:
    """Submitted at the administration of the SuperLink: once under its own name, once under ours."""
    monkeypatch.setattr(flower_device, "LINGER_SECONDS", 0.0)
    ran, outs = tmp_path / "ran", [tmp_path / "foreign.json", tmp_path / "impostor.json"]
    ran.mkdir()
    names = [("attacker", "evil"), ("quorank", "quorank-app")]
    foreign = [
        write_foreign(tmp_path / out.stem, *name, out, ran, tmp_path) for name, out in zip(names, outs, strict=True)
    ]
    for name in ("device", "party"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "device.sqlite").write_text(f"what the {name} searched for")
    with RunsAnything(2) as network:
        terms = terms_of(simulator_of(tiny_collection), 0)
        device = FlowerLink(network.invitation("node-0", terms), tmp_path / "device" / "engine")
        bundle = cast("SiloBundle", network.invitation("node-1", terms))
        party = silo_link.SiloLink(bundle, tmp_path / "party" / "engine")
        links = (device, party)
        try:
            for link in links:
                link.open()
            until(lambda: len(network.transport.nodes()) == 2)
            network.administrate([flower_app.submit(folder) for folder in foreign])
            network.transport.push("node-0", b"for the device")
            network.transport.push("node-1", b"for the party")
            threading.Thread(target=lambda: [device.send(task[::-1]) for task in device.tasks()], daemon=True).start()
            assert party.wait(60.0) == b"for the party"
            party.send(b"from the party")
            arrivals: list[Arrival] = []
            until(lambda: arrivals.extend(network.transport.pull()) or len(arrivals) == 2)
            until(lambda: all(out.is_file() for out in outs))
            refused, answered = (json.loads(out.read_text()) for out in outs)
            logs = [(link.folder / "executor.log").read_text() for link in links]
        finally:
            for link in links:
                link.close()
    assert list(ran.iterdir()) == [], "the foreign client was imported"
    assert len(refused) == len(answered) == 2
    assert all("this machine runs quorank/quorank-app alone" in reason for reason in refused)
    assert all("failed" in content for content in answered), "our own app was asked in vain"
    assert all(log.count("refused app.foreign: a foreign app ('attacker/evil'") == 1 for log in logs)
    assert "searched for" not in "".join([*refused, *answered, *logs])
    answers = {arrival.node: arrival.content for arrival in arrivals}
    assert answers == {"node-0": frames.pack([b"ecived eht rof"]), "node-1": frames.pack([b"from the party"])}
    for name in ("device", "party"):
        assert not list((tmp_path / name).rglob("evil*")), "the foreign app was unpacked"
