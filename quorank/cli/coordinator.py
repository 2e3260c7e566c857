"""`quorank coordinator`: run a federation with real devices: start, invite, revoke, status, stop, files."""

from __future__ import annotations

import json as json_
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.network.service_files import Home, Settings

app = typer.Typer(help="Coordinate real devices: start, invite, revoke, status, stop.", no_args_is_help=True)

Folder = Annotated[Path, Argument(metavar="DIR", help="The coordinator's folder.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
STOP_SECONDS = 60.0


@app.command()
def start(
    folder: Folder,
    experiment: Annotated[Path | None, Option(help="Experiment file; needed once, when the folder is made.")] = None,
    host: Annotated[str | None, Option(help="Where to listen for devices.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, Option(help="The port for devices.", show_default="9092")] = None,
    address: Annotated[
        str | None,
        Option(
            help="host:port under which devices reach it; it goes into certificate and invitations.",
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
    features: Annotated[
        int | None, Option(help="Features of a document on the devices.", show_default="those of [data]")
    ] = None,
    run: Annotated[str | None, Option(help="Name of the run.", show_default="the file's name")] = None,
    enough: Annotated[float | None, Option(help="Share of the cohort that ends a round.", show_default="1")] = None,
    least: Annotated[float | None, Option(help="Share that ends it after the deadline.", show_default="0.5")] = None,
    deadline: Annotated[
        float | None, Option(help="Seconds that a round waits for the rest.", show_default="3600")
    ] = None,
    pause: Annotated[
        float | None, Option(help="Seconds before a device without news is asked again.", show_default="60")
    ] = None,
    report_epsilon: Annotated[
        float | None, Option(help="Devices report nDCG by clicks, each time at this ε.", show_default="no reports")
    ] = None,
    metrics_port: Annotated[int | None, Option(help="Serve /metrics and /health on this loopback port.")] = None,
    asynchronous: Annotated[
        float | None,
        Option(
            help="Share of a cohort whose replies, however old, end a round; 0 waits for --enough.", show_default="0"
        ),
    ] = None,
    exit_when_done: Annotated[
        bool, Option("--exit-when-done", help="End after the last round; then no device can leave any more.")
    ] = False,
    detach: Annotated[bool, Option("--detach", help="Run in the background.")] = False,
    json: Json = False,
) -> None:
    """Run a coordinator; the first start makes its folder.

    It goes on where it stood, also after it was killed. After the last round
    it stays, so that devices hear of it and can leave, until it is stopped.
    Without --detach it is in the foreground, as systemd wants it, and logs to
    stderr.
    """
    from quorank.network.flower_app import check_installed
    from quorank.network.service_files import Home

    check_installed()
    given = {
        "host": host, "port": port, "address": address, "inside": inside_port, "proxy": proxy, "enough": enough,
        "least": least, "deadline": deadline, "pause": pause, "asynchronous": asynchronous,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None}
    if not _made(folder):
        home = _make(folder, experiment, features, run, chosen | {"report_epsilon": report_epsilon or 0.0})
    else:
        home = Home.open(folder)
        number = home.process()
        require(
            number is None,
            "coordinator.running",
            f"its coordinator runs already (process {number}); stop it with: quorank coordinator stop {folder}",
            f"{folder}",
        )
        once = {"experiment": experiment, "features": features, "run": run, "report-epsilon": report_epsilon}
        fixed = [f"--{name}" for name, value in once.items() if value]
        require(
            not fixed,
            "option.fixed",
            "fixed when the folder was made; leave it out to go on, or choose another folder",
            f"{', '.join(fixed)}",
        )
        home.change(_changed(home.settings, chosen))
    if detach:
        from quorank.network.detaching import detach as start_detached

        more = ["--exit-when-done"] if exit_when_done else []
        start_detached(home, "quorank.network.service_run", metrics_port, *more)
        _show(home, json)
        return
    from quorank.network.observe import EventLog
    from quorank.network.service_run import run as run_service

    done = run_service(home, EventLog(sys.stderr), metrics_port, stay=not exit_when_done)
    if json:
        _show(home, json)
    elif done:
        print(f"all rounds are done; the ranker is {home.path / 'ranker.json'}")


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """Rounds, cohort, who is waited for, ε spent, refused updates."""
    from quorank.network.service_files import Home

    _show(Home.open(folder), json)


@app.command()
def stop(folder: Folder) -> None:
    """Stop a coordinator; what it has accepted is kept, and `start` goes on."""
    import os
    import signal
    import time

    from quorank.network.service_files import Home

    home = Home.open(folder)
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
    print(f"stopped after round {home.last_status().get('rounds', 0)}", file=sys.stderr)


@app.command()
def invite(
    folder: Folder,
    name: Annotated[str, Argument(help="A name for the device.")],
    out: Annotated[Path | None, Option(help="Where to write the invitation.", show_default="NAME.json")] = None,
    json: Json = False,
) -> None:
    """Invite a device: writes its invitation, which holds its private key.

    Whoever has the file can speak in the device's name: hand it over by a
    way that others cannot read, and delete it here.
    """
    from quorank.network import service_members
    from quorank.network.service_files import Home

    file = Path(f"{name}.json") if out is None else out
    member = service_members.invite(Home.open(folder), name, file)
    if json:
        print(json_.dumps({"name": member.name, "client": member.client, "file": str(file)}))
    else:
        print(f"{name} is client {member.client}; its invitation is {file}", file=sys.stderr)


@app.command()
def revoke(folder: Folder, name: Annotated[str, Argument(help="The device's name.")]) -> None:
    """Refuse a device from now on; a new invitation gives the name its number back."""
    from quorank.network import service_members
    from quorank.network.service_files import Home

    member = service_members.revoke(Home.open(folder), name)
    print(f"{name} (client {member.client}) is refused from now on", file=sys.stderr)


@app.command()
def files(
    folder: Folder, out: Annotated[Path | None, Option(help="Where to write them.", show_default="DIR/files")] = None
) -> None:
    """Write an nginx configuration and systemd units for this folder."""
    from quorank.network import units
    from quorank.network.service_files import Home

    home = Home.open(folder)
    for path in units.write(home, home.path / "files" if out is None else out):
        print(path)


def _made(folder: Path) -> bool:
    from quorank.network.service_files import SETTINGS

    return (folder / SETTINGS).is_file()


def _make(folder: Path, file: Path | None, features: int | None, run: str | None, chosen: dict[str, Any]) -> Home:
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import read_experiment_file, shipped_file
    from quorank.network.service_files import Home, Settings, check_experiment, features_of

    if file is None:
        raise BadInput(
            "coordinator.missing",
            "there is no coordinator here yet; say what it runs with --experiment FILE.toml",
            f"{folder}",
        )
    found = Experiment.read(read_experiment_file(shipped_file(file) or file))
    check_experiment(found)
    count = features_of(found) if features is None else features
    if "address" not in chosen:
        chosen["address"] = _default_address(chosen)
    return Home.create(folder, found, Settings(run or file.stem, count, **chosen))


def _default_address(chosen: dict[str, Any]) -> str:
    host, port = chosen.get("host", "127.0.0.1"), chosen.get("port", 9092)
    require(
        host not in ("0.0.0.0", "::", ""),
        "address.every",
        f"--host {host} is every address of this machine; say with --address under which one devices reach it",
    )
    return f"{host}:{port}"


def _changed(settings: Settings, chosen: dict[str, Any]) -> Settings:
    from dataclasses import replace

    moved = "address" not in chosen and ("host" in chosen or "port" in chosen)
    if moved and settings.address == f"{settings.host}:{settings.port}":
        chosen["address"] = _default_address({"host": settings.host, "port": settings.port, **chosen})
    return replace(settings, **chosen)


def _show(home: Home, json: bool) -> None:
    from quorank.cli.coordinator_display import print_status, status_of

    table, met = status_of(home), _identities(home)
    for member in table["members"]:
        member["identity"] = met.get(member["client"])
    if json:
        print(json_.dumps(table))
    else:
        print_status(table)


def _identities(home: Home) -> dict[int, str]:
    """What each client signs its secure sums with, to be compared by voice."""
    from quorank.network.identities import known
    from quorank.network.service_members import members

    nodes = {member.client: member.label for member in members(home) if member.admitted}
    return {client: key.hex() for client, key in known(home.path, nodes).items()}
