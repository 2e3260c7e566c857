"""Some hundred light devices against a real SuperLink, without a process for each of them.

The network is the one of `flower_network`: TLS, registered keys, the state in SQLite, the ServerApp that bridges to the
coordinator. In place of a SuperNode with its executor, and of a new process for every task, each device is a thread of one
process that speaks to the SuperLink's fleet API through Flower's own connection and looks for a message as often as a
SuperNode does. So the SuperLink's load is that of as many real devices, and theirs is not measured.

`http_request_response` and the functions around it are not a public interface of Flower: this module is for measuring.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from quorank import frames
from quorank.certificates import CERTIFICATE
from quorank.draws import Purpose, uniforms
from quorank.errors import require_range
from quorank.federation import wire
from quorank.federation.transport import Arrival
from quorank.files import write_whole
from quorank.flower.network import FlowerNetwork
from quorank.flower.worker import ANSWER_WORD
from quorank.network.light_devices import Devices, DeviceTraffic
from quorank.network.load import Clock, TimedTransport, coordinator_of, peak, per_device, play, resident, warm

LOOK_SECONDS = 3.0
"""A SuperNode looks for a message so often."""

STARTED_AT_ONCE = 20
MOST_DEVICES = 1000
PATIENCE = 120.0
IDLE_SECONDS = 10.0
_ORDERS = "devices.json"


@dataclass(eq=False)
class LightNetwork(FlowerNetwork):
    """A Flower network whose nodes are all threads of the process that elsewhere plays the clients."""

    traffic: DeviceTraffic = field(default_factory=DeviceTraffic)

    def start_node(self, name: str, key: Path, port: int) -> None:
        """All begin when the last one is registered."""
        if name == self.names[-1]:
            orders = {"address": self.commands.address, "traffic": asdict(self.traffic)}
            write_whole(self.folder / _ORDERS, json.dumps(orders))

    def alive(self, name: str) -> bool:
        return self.processes.running("worker")


def superlink_load(traffic: DeviceTraffic, seconds: float = 600.0, idle: float = IDLE_SECONDS) -> dict[str, Any]:
    """Rounds of light devices over a SuperLink on this machine; ends after so many seconds in the middle of a round.

    For `idle` seconds before, the devices have nothing to do but to look for messages.
    """
    require_range("devices", traffic.devices, most=MOST_DEVICES)
    watch, started = Clock(), time.perf_counter()
    network = LightNetwork(traffic.devices, _command, traffic=traffic)
    with tempfile.TemporaryDirectory() as folder, network:
        up = time.perf_counter() - started
        coordinator = coordinator_of(traffic, Path(folder), watch=watch)
        warm(traffic, Path(folder))
        before, counted = resident(), _Counted(TimedTransport(network.transport, watch))
        link = network.processes.children["superlink"].process.pid
        computed = cpu_seconds(link)
        time.sleep(idle)
        resting = (cpu_seconds(link) - computed) / idle
        computed, began, fault = cpu_seconds(link), time.perf_counter(), ""
        try:
            stop = lambda: time.perf_counter() - began > seconds  # noqa: E731
            play(coordinator, counted, traffic, time.sleep, patience=PATIENCE, stop=stop, tend=network.tend)
        except Exception as error:  # where it breaks is what is looked for
            fault = f"{type(error).__name__}: {error}"
        took = time.perf_counter() - began
        return {
            **asdict(traffic),
            "seconds_to_start": up,
            "rounds_done": coordinator.state.round,
            "seconds": took,
            "rounds_per_hour": 3600.0 * coordinator.state.round / took,
            "accepted": coordinator.accepted,
            "accepted_per_second": coordinator.accepted / took,
            "refused": dict(coordinator.refused),
            **per_device(counted.sent, counted.came, traffic),
            "coordinator_memory_bytes": max(0, peak() - before),
            "superlink_memory_bytes": peak(link),
            "superlink_cores_idle": resting,  # of computing per second while devices only look for messages
            "superlink_cores": (cpu_seconds(link) - computed) / took,
            "superlink_cpu_seconds_per_reply": (cpu_seconds(link) - computed) / max(1, coordinator.accepted),
            "devices_cpu_seconds": cpu_seconds(network.processes.children["worker"].process.pid),
            "state_bytes": sum(file.stat().st_size for file in network.folder.glob("state.db*")),
            "device_faults": len(network.processes.children["worker"].log.read_text().splitlines()),
            "fault": fault,
        }


@dataclass(eq=False)
class _Counted:
    """Counts the bytes that the coordinator hands over and gets."""

    transport: TimedTransport
    sent: int = 0
    came: int = 0

    def nodes(self) -> Any:
        return self.transport.nodes()

    def push(self, node: str, content: bytes) -> str:
        self.sent += len(content)
        return self.transport.push(node, content)

    def pull(self) -> list[Arrival]:
        arrivals = self.transport.pull()
        self.came += sum(len(arrival.content) for arrival in arrivals if isinstance(arrival.content, bytes))
        return arrivals

    def forget(self, message: str) -> None:
        self.transport.forget(message)


def cpu_seconds(process: int) -> float:
    """What a process has computed so far; 0 where the system does not say."""
    try:
        words = Path("/proc", str(process), "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / 100.0


def _command(path: Path) -> list[str]:
    return [sys.executable, "-m", "quorank.network.flower_load", "devices", str(path)]


def live_all(path: Path) -> None:
    """The devices' process: `path` is where the network waits for a file, its folder holds keys and orders."""
    folder, orders = path.parent, path.parent / _ORDERS
    path.touch()
    while not orders.is_file():
        time.sleep(0.1)
    found = json.loads(orders.read_text())
    traffic = DeviceTraffic(**found["traffic"])
    devices, few = Devices(traffic), threading.Semaphore(STARTED_AT_ONCE)
    for client, name in enumerate(traffic.names):
        device = LoadDevice(client, devices, found["address"], folder / CERTIFICATE, folder / f"{name}.key", few)
        threading.Thread(target=device.live, daemon=True).start()
    threading.Event().wait()


@dataclass(eq=False)
class LoadDevice:
    """One light device on a SuperLink."""

    client: int
    devices: Devices
    address: str
    certificate: Path
    key: Path
    few: threading.Semaphore  # so many may say hello at once

    def live(self) -> None:
        """Answer tasks until the process ends; whatever fails is tried again."""
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.supernode.fleet_http_connection import http_request_response

        private: Any = load_ssh_private_key(self.key.read_bytes(), None)
        with contextlib.ExitStack() as stack:
            with self.few:
                keys = private, private.public_key()
                line = http_request_response(self.address, False, str(self.certificate), keys)
                _, receive, send, _, _, pull, push, confirm = stack.enter_context(line)
            wait = LOOK_SECONDS * float(uniforms(0, Purpose.TRAFFIC, 1, client=self.client)[0])
            while True:
                time.sleep(wait)
                wait = LOOK_SECONDS
                try:
                    found = receive()
                    if found is not None:
                        message, tree = found
                        self.answer(message, tree, send, pull, push, confirm)
                        wait = 0.0
                except Exception as error:  # a device goes on
                    print(f"device {self.client}: {type(error).__name__}: {error}", file=sys.stderr)

    def answer(
        self,
        message: Any,
        tree: Any,
        send: Callable[..., tuple[set[str], str]],
        pull: Callable[[int, str], bytes],
        push: Callable[[int, str, str, bytes], None],
        confirm: Callable[[int, str], None],
    ) -> None:
        """Fetch a task, and send what the device makes of it: once, twice or never."""
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.supercore.inflatable import inflatable_object as objects
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects

        run, traffic = message.metadata.run_id, self.devices.traffic
        wanted = [part.object_id for part in objects.iterate_object_tree(tree)]
        contents = pull_objects(wanted, pull_object_fn=lambda name: pull(run, name))  # waits for what is not there yet
        whole: Any = inflate_object_from_contents(message.metadata.message_id, contents)
        confirm(run, message.metadata.message_id)
        task = whole.content["quorank"]["content"]
        round_ = wire.decode_task(task).round
        chance, again = uniforms(traffic.seed, Purpose.TRAFFIC, 2, client=self.client, round_=round_)
        if chance < traffic.drop:
            return
        content = frames.pack([ANSWER_WORD, self.devices.answer(f"node-{self.client}", task)])
        reply = Message(RecordDict({"quorank": ConfigRecord({"content": content})}), reply_to=message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        parts = objects.get_all_nested_objects(reply)
        for _ in range(2 if again < traffic.twice else 1):
            missing, session = send(reply, objects.get_object_tree(reply), 0.0)
            for name in missing:
                push(run, session, name, parts[name].deflate())


def main(arguments: list[str]) -> None:
    """`flower_load load TABLE [SECONDS]`: TABLE holds fields of `DeviceTraffic` in JSON; prints the figures."""
    kind, text, *rest = arguments
    if kind == "devices":
        live_all(Path(text))
    else:
        print(json.dumps(superlink_load(DeviceTraffic(**json.loads(text)), *map(float, rest))))


if __name__ == "__main__":
    main(sys.argv[1:])
