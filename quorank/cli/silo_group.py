"""`quorank silo start|invite|revoke|status|stop|files`: where the parties of a group meet."""

from __future__ import annotations

import json as json_
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.network.service_files import Settings
    from quorank.network.silo_home import SiloHome

Folder = Annotated[Path, Argument(metavar="DIR", help="The group's folder.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
STOP_SECONDS = 60.0


def start(
    folder: Folder,
    experiment: Annotated[
        Path | None, Option(help="File with the parties and what they settle; needed once, when the folder is made.")
    ] = None,
    parties: Annotated[
        str | None, Option(help="Or only their names, such as north,south,west, with the defaults.")
    ] = None,
    host: Annotated[str | None, Option(help="Where to listen for parties.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, Option(help="The port for parties.", show_default="9092")] = None,
    address: Annotated[
        str | None,
        Option(
            help="host:port under which parties reach it; it goes into certificate and invitations.",
            show_default="HOST:PORT",
        ),
    ] = None,
    inside_port: Annotated[int | None, Option(help="Loopback port of the engine.", show_default="9093")] = None,
    proxy: Annotated[
        bool | None,
        Option(
            "--proxy/--no-proxy",
            help="Whether the built-in proxy stands before the engine, or nginx does.",
            show_default="--proxy",
        ),
    ] = None,
    run: Annotated[str | None, Option(help="Name of the run.", show_default="the file's name")] = None,
    pause: Annotated[
        float | None, Option(help="Seconds before a party that cannot answer yet is asked again.", show_default="5")
    ] = None,
    metrics_port: Annotated[int | None, Option(help="Serve /metrics and /health on this loopback port.")] = None,
    detach: Annotated[bool, Option("--detach", help="Run in the background.")] = False,
    json: Json = False,
) -> None:
    """Run a group's coordinator until its session is done; the first start makes its folder.

    It carries sealed envelopes between the parties and adds up parameters; it
    sees no term, document or key. It goes on where it stood, also after it was
    killed. Without --detach it stays in the foreground and logs to stderr.
    """
    from quorank.network import silo_run
    from quorank.network.flower_app import check_installed
    from quorank.network.observe import EventLog
    from quorank.network.silo_home import SETTINGS, SiloHome

    check_installed()
    given = {"host": host, "port": port, "address": address, "inside": inside_port, "proxy": proxy, "pause": pause}
    chosen = {name: value for name, value in given.items() if value is not None}
    if not (folder / SETTINGS).is_file():
        home = _make(folder, experiment, parties, run, chosen)
    else:
        home = SiloHome.open(folder)
        home.check_stopped()
        fixed = [n for n, v in (("--experiment", experiment), ("--parties", parties), ("--run", run)) if v]
        require(
            not fixed,
            "option.fixed",
            "fixed when the folder was made; leave it out to go on, or choose another folder",
            f"{', '.join(fixed)}",
        )
        home.change(_changed(home.settings, chosen))
    if home.group.seed is not None:
        print("a rehearsal: keys and noise follow from the seed, so nothing is secret", file=sys.stderr)
    if detach:
        from quorank.network.detaching import detach as start_detached

        start_detached(home, "quorank.network.silo_run", metrics_port)
        _show(home, json)
        return
    done = silo_run.run(home, EventLog(sys.stderr), metrics_port)
    if json:
        _show(home, json)
    elif done:
        print(f"the session is done; the ranker is {home.path / 'ranker.json'}")


def invite(
    folder: Folder,
    name: Annotated[str, Argument(help="The party, one of the group's.")],
    out: Annotated[Path | None, Option(help="Where to write the invitation.", show_default="NAME.json")] = None,
    pin: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=HEX", help="Public identity of a party, as its owner told it; kept for later invitations."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Invite a party: writes its invitation, which holds its node's private key.

    Whoever has the file can take the party's place at the coordinator: hand
    it over by a way that others cannot read, and delete it here.
    """
    from quorank.network.silo_bundle import read_identities
    from quorank.network.silo_home import SiloHome

    home = SiloHome.open(folder)
    file = Path(f"{name}.json") if out is None else out
    member = home.invite(name, file, read_identities(pin or [], home.group))
    pinned = sorted(party for party in home.identities if party != name)
    if json:
        print(json_.dumps({"name": name, "number": member.client, "file": str(file), "pinned": pinned}))
    else:
        known = f"; it names the identities of {', '.join(pinned)}" if pinned else ""
        print(f"the invitation of {name} is {file}{known}", file=sys.stderr)


def revoke(folder: Folder, name: Annotated[str, Argument(help="The party.")]) -> None:
    """Refuse a party's node from now on; the session waits until it is invited again."""
    from quorank.network.silo_home import SiloHome

    SiloHome.open(folder).revoke(name)
    print(f"{name} is refused from now on", file=sys.stderr)


def status(folder: Folder, json: Json = False) -> None:
    """Phase, parties, who is waited for, envelopes and bytes, turns, time left."""
    from quorank.network.silo_home import SiloHome

    _show(SiloHome.open(folder), json)


def stop(folder: Folder) -> None:
    """Stop a group's coordinator; what it has accepted is kept, and `start` goes on."""
    import os
    import signal
    import time

    from quorank.network.silo_home import SiloHome

    home = SiloHome.open(folder)
    number = home.process()
    if number is None:
        raise BadInput("coordinator.not-running", "its coordinator does not run", f"{folder}")
    os.kill(number, signal.SIGTERM)
    end = time.monotonic() + STOP_SECONDS
    while home.process() is not None:
        if time.monotonic() > end:
            raise BadInput(
                "coordinator.not-ended", f"process {number} has not ended within {STOP_SECONDS:g} s", f"{folder}"
            )
        time.sleep(0.1)
    print(f"stopped in the phase: {home.last_status().get('phase', 'not begun')}", file=sys.stderr)


def files(
    folder: Folder, out: Annotated[Path | None, Option(help="Where to write them.", show_default="DIR/files")] = None
) -> None:
    """Write an nginx configuration and systemd units for this folder and for a party."""
    from quorank.network import units
    from quorank.network.silo_home import SiloHome

    home = SiloHome.open(folder)
    for path in units.write(home, home.path / "files" if out is None else out, units.SILO_FILES):
        print(path)


def _make(folder: Path, file: Path | None, parties: str | None, run: str | None, chosen: dict[str, Any]) -> SiloHome:
    from quorank.experiments.experiment_file import read_experiment_file, shipped_file
    from quorank.network.silo_experiment import group_of, read_group
    from quorank.network.silo_home import SiloHome, settings_of

    require(
        (file is None) != (parties is None),
        "group.missing",
        "there is no group here yet; say who takes part with --experiment FILE.toml or --parties NAME,NAME",
        f"{folder}",
    )
    if file is not None:
        terms = read_group(read_experiment_file(shipped_file(file) or file), run or file.stem)
    else:
        assert parties is not None
        names = tuple(name.strip() for name in parties.split(",") if name.strip())
        try:
            terms = group_of(names, run or folder.absolute().name)
        except BadInput as error:
            raise error.at(f"--parties {parties}") from None
    if "address" not in chosen:
        chosen["address"] = _default_address(chosen)
    return SiloHome.make(folder, terms, settings_of(terms.run, **chosen))


def _default_address(chosen: dict[str, Any]) -> str:
    host, port = chosen.get("host", "127.0.0.1"), chosen.get("port", 9092)
    require(
        host not in ("0.0.0.0", "::", ""),
        "address.every",
        f"--host {host} is every address of this machine; say with --address under which one parties reach it",
    )
    return f"{host}:{port}"


def _changed(settings: Settings, chosen: dict[str, Any]) -> Settings:
    from dataclasses import replace

    moved = "address" not in chosen and ("host" in chosen or "port" in chosen)
    if moved and settings.address == f"{settings.host}:{settings.port}":
        chosen["address"] = _default_address({"host": settings.host, "port": settings.port, **chosen})
    return replace(settings, **chosen)


def _show(home: SiloHome, json: bool) -> None:
    from quorank.cli.silo_display import print_status, status_of

    table = status_of(home)
    if json:
        print(json_.dumps(table))
    else:
        print_status(table)
