"""`quorank coordinator`: run a federation with real devices: start, invite, revoke, status, stop, files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quorank.cli import coordinators
from quorank.cli.display import print_figures, say
from quorank.cli.options import Detach, FilesOut, InsidePort, InvitationOut, Json, MetricsPort, Proxy, RunName
from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.service.home import Home

app = typer.Typer(help="Coordinate real devices: start, invite, revoke, status, stop.", no_args_is_help=True)

Folder = Annotated[Path, Argument(metavar="DIR", help="The coordinator's folder.")]


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
    inside_port: InsidePort = None,
    proxy: Proxy = None,
    features: Annotated[
        int | None, Option(help="Features of a document on the devices.", show_default="those of [data]")
    ] = None,
    run: RunName = None,
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
    total_epsilon: Annotated[
        float | None,
        Option(
            help="ε that run, reports and rebuildings after leavers may reach together, at the run's δ; a rebuilding "
            "beyond it is refused, and the ranker starts anew.",
            show_default="that of run and reports alone",
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    asynchronous: Annotated[
        float | None,
        Option(
            help="Share of a cohort whose replies, however old, end a round; 0 waits for --enough.", show_default="0"
        ),
    ] = None,
    exit_when_done: Annotated[
        bool, Option("--exit-when-done", help="End after the last round; then no device can leave any more.")
    ] = False,
    detach: Detach = False,
    json: Json = False,
) -> None:
    """Run a coordinator; the first start makes its folder.

    It goes on where it stood, also after it was killed. After the last round
    it stays, so that devices hear of it and can leave, until it is stopped.
    Without --detach it is in the foreground, as systemd wants it, and logs to
    stderr.
    """
    from quorank.flower.app import check_installed
    from quorank.service.home import SETTINGS, Home

    check_installed()
    given = {
        "host": host, "port": port, "address": address, "inside": inside_port, "proxy": proxy, "enough": enough,
        "least": least, "deadline": deadline, "pause": pause, "asynchronous": asynchronous, "total_epsilon": total_epsilon,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None}
    if not (folder / SETTINGS).is_file():
        home = _make(folder, experiment, features, run, chosen | {"report_epsilon": report_epsilon or 0.0})
    else:
        home = Home.open(folder)
        number = home.process()
        running = f"its coordinator runs already (process {number}); stop it with: quorank coordinator stop {folder}"
        require(number is None, "coordinator.running", running, f"{folder}")
        once = {"experiment": experiment, "features": features, "run": run, "report-epsilon": report_epsilon}
        coordinators.change(home, chosen, once, "devices")
    if detach:
        from quorank.service.detaching import detach as start_detached

        more = ["--exit-when-done"] if exit_when_done else []
        start_detached(home, "quorank.network.service_run", metrics_port, *more)
        _show(home, json)
        return
    from quorank.network.service_run import run as run_service
    from quorank.service.observe import EventLog

    done = run_service(home, EventLog(sys.stderr), metrics_port, stay=not exit_when_done)
    if json:
        _show(home, json)
    elif done:
        print(f"all rounds are done; the ranker is {home.path / 'ranker.json'}")


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """Rounds, cohort, who is waited for, ε spent, refused updates."""
    from quorank.service.home import Home

    _show(Home.open(folder), json)


@app.command()
def stop(folder: Folder) -> None:
    """Stop a coordinator; what it has accepted is kept, and `start` goes on."""
    from quorank.service.home import Home

    told = coordinators.stop(Home.open(folder), folder)
    say(f"stopped after round {told.get('rounds', 0)}")


@app.command()
def invite(
    folder: Folder,
    name: Annotated[str, Argument(help="A name for the device.")],
    out: InvitationOut = None,
    json: Json = False,
) -> None:
    """Invite a device: writes its invitation, which holds its private key.

    Whoever has the file can speak in the device's name: hand it over by a
    way that others cannot read, and delete it here.
    """
    from quorank.service import members as service_members
    from quorank.service.home import Home

    file = out or Path(f"{name}.json")
    member = service_members.invite(Home.open(folder), name, file)
    figures = {"name": member.name, "client": member.client, "file": str(file)}
    print_figures(figures, json, lambda _: say(f"{name} is client {member.client}; its invitation is {file}"))


@app.command()
def revoke(folder: Folder, name: Annotated[str, Argument(help="The device's name.")]) -> None:
    """Refuse a device from now on; a new invitation gives the name its number back."""
    from quorank.service import members as service_members
    from quorank.service.home import Home

    member = service_members.revoke(Home.open(folder), name)
    say(f"{name} (client {member.client}) is refused from now on")


@app.command()
def files(folder: Folder, out: FilesOut = None) -> None:
    """Write an nginx configuration and systemd units for this folder."""
    from quorank.service import units
    from quorank.service.home import Home

    home = Home.open(folder)
    for path in units.write(home, out or home.path / "files"):
        print(path)


def _make(folder: Path, file: Path | None, features: int | None, run: str | None, chosen: dict[str, Any]) -> Home:
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import read_experiment_file, shipped_file
    from quorank.service.home import Home, Settings, check_experiment, features_of

    if file is None:
        sentence = "there is no coordinator here yet; say what it runs with --experiment FILE.toml"
        raise BadInput("coordinator.missing", sentence, f"{folder}")
    found = Experiment.read(read_experiment_file(shipped_file(file) or file))
    check_experiment(found)
    count = features_of(found) if features is None else features
    return Home.create(folder, found, Settings(run or file.stem, count, **coordinators.with_address(chosen, "devices")))


def _show(home: Home, json: bool) -> None:
    from quorank.cli.coordinator_display import print_status, readable_status, status_of

    with readable_status(home):
        table = status_of(home)
    with readable_status(home):
        print_figures(table, json, print_status)
