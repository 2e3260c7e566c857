"""A network whose nodes are elsewhere: the coordinator's half of Flower, with keys that devices are invited by."""

from __future__ import annotations

from quorank.federation.bundle import Bundle
from quorank.federation.terms import Terms
from quorank.flower import app as flower_app
from quorank.flower.network import FlowerNetwork


class Outside(FlowerNetwork):
    """Used as a context, like the network that it is made of."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes, lambda path: [])

    def alive(self, name: str) -> bool:
        return True

    def _bring_up(self) -> None:
        folder = self.folder
        home = flower_app.environment(folder / "home", QUORANK_COORDINATOR=str(self.transport.path))
        link = self.commands.superlink(folder / "server.pem", folder / "server.key", folder / "state.db")
        self.start("superlink", link, home)
        self.start("executor", self.commands.server_executor(), home)
        self._wait("superlink", self._healthy)
        orders = [flower_app.register(folder / f"{name}.pub", name) for name in self.names]
        found = self.administrate([*orders, flower_app.submit(folder / "app")], wait=True)
        for name, answer in zip(self.names, found, strict=False):
            self.transport.ids[name] = int(answer["node-id"])
        self._wait("the coordinator's app", lambda: self.transport.connected)

    def invitation(self, name: str, terms: Terms) -> Bundle:
        certificate, key = self.commands.certificate.read_text(), (self.folder / f"{name}.key").read_text()
        return Bundle(name, self.commands.address, certificate, key, terms)

    def public(self, name: str) -> bytes:
        return (self.folder / f"{name}.pub").read_bytes()
