"""`quorank coordinator`: run a federation of real devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quorank.cli import service
from quorank.cli.display import print_result, say
from quorank.cli.options import Json
from quorank.cli.service import Folder, opened
from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.service.home import Home

app = typer.Typer(help="Run a federation of real devices.", no_args_is_help=True)


@app.command()
def start(
    folder: Folder,
    experiment: service.Experiment = None,
    tune: Annotated[
        Path | None,
        Option(help="Tune a heuristic instead: its file, needed once (docs/tuning.md).", metavar="FILE.toml"),
    ] = None,
    host: service.Host = None,
    port: service.Port = None,
    address: service.Address = None,
    workers: service.Workers = None,
    database: service.Database = None,
    features: Annotated[
        int | None, Option(help="Number of features on the devices.", show_default="those of [data]")
    ] = None,
    run: service.RunName = None,
    assignments: service.SettingsSet = None,
    exit_when_done: Annotated[
        bool, Option("--exit-when-done", help="Stop after the last round; devices can then no longer leave.")
    ] = False,
    detach: service.Detach = False,
    json: Json = False,
) -> None:
    """Run a service; the first start creates its folder.

    A later start continues the run, also after a crash. After the last round
    the service runs until it is stopped, so that devices can leave. Without
    --detach it runs in the foreground and logs to stderr, as under systemd.
    """
    from quorank.service.home import SETTINGS, Home

    service.check_installed()
    chosen = service.read_settings(
        assignments, host=host, port=port, address=address, workers=workers, database=database
    )
    if (folder / SETTINGS).is_file():
        home = Home.open(folder)
        once = {"experiment": experiment, "tune": tune, "features": features, "run": run}
        service.change_settings(home, chosen, once)
    elif tune is not None:
        from quorank.service.holders.tuning import TuningHome, settings_of
        from quorank.tuning.field import read_field_tuning

        sentence = "a folder runs a federation or a tuning; give --experiment or --tune, not both"
        require(experiment is None and features is None, "option.conflict", sentence, "--tune")
        tuning = read_field_tuning(tune)
        settings = settings_of(run or tune.stem, tuning, **service.with_address(chosen))
        home = TuningHome.make(folder, tuning, settings)
    else:
        home = _make(folder, experiment, features, run, chosen)
    service.run_service(home, stay=not exit_when_done, detach=detach, json=json)


def _make(folder: Path, file: Path | None, features: int | None, run: str | None, chosen: dict[str, Any]) -> Home:
    from quorank.experiments.deployment import check_experiment, fitted_to_data
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import find_experiment_file
    from quorank.service.home import Home, Settings

    if file is None:
        sentence = "no service in this folder; create one with --experiment FILE.toml"
        raise BadInput("coordinator.missing", sentence, f"{folder}")
    found = Experiment.read(find_experiment_file(file))
    check_experiment(found)
    found, count = fitted_to_data(found) if features is None else (found, features)
    return Home.create(folder, found, Settings(run or file.stem, count, **service.with_address(chosen)))


@app.command()
def invite(
    folder: Folder,
    names: Annotated[list[str] | None, Argument(metavar="NAMES", help="Names of the devices.")] = None,
    count: Annotated[int | None, Option(help="Number of devices, with numbered names.")] = None,
    out: Annotated[Path | None, Option(help="Output file, or a folder for several.", show_default="NAME.json")] = None,
    json: Json = False,
) -> None:
    """Write invitations of devices, each for one enrolment.

    An invitation holds a code and no key: the first program that uses it
    becomes the device. Send it over a private channel. A second use is
    rejected and shown by `status`.
    """
    from quorank.service.enrolment import invite_all

    known = list(names or [])
    require(
        bool(known) != (count is not None),
        "option.conflict",
        "give either names of devices or their number with --count",
    )
    with opened(folder) as (home, store):
        if count is not None:
            require(1 <= count <= 100_000, "value.out-of-range", f"from 1 to 100000, got {count}", "--count")
            first = store.next_number() + 1
            known = [f"device-{number}" for number in range(first, first + count)]
        several = len(known) > 1 or count is not None
        if several and out is not None:
            out.mkdir(mode=0o700, exist_ok=True)
        place = Path() if out is None else out
        files = {name: place / f"{name}.json" if several or place.is_dir() else place for name in known}
        require(len(files) == len(known), "invitation.repeated", "the names of devices must differ")
        members = invite_all(home, store, files)
    made = [{"name": one.name, "client": one.number, "file": str(files[one.name])} for one in members]
    for figures in made if not json else ():
        say("{name} is client {client}; its invitation is {file}".format(**figures))
    print_result({"invitations": made} if several else made[0], json, lambda _: None)


@app.command("open")
def open_(
    folder: Folder,
    quota: Annotated[int, Option(help="Maximum number of devices that may enrol.")],
    days: Annotated[float, Option(help="Days until enrolment closes.")] = 30.0,
    out: Annotated[Path | None, Option(help="File for the invitation.", show_default="RUN.json")] = None,
    json: Json = False,
) -> None:
    """Open enrolment by token, with a quota and an end time.

    One person can enrol as often as the quota permits. Only limits on
    participation, clipping and robust aggregation bound the effect on the
    ranker.
    """
    from quorank.service.enrolment import open_enrolment

    with opened(folder) as (home, store):
        file = out or Path(f"{home.settings.run}.json")
        open_enrolment(home, store, quota, days, file)
    figures = {"file": str(file), "quota": quota, "days": days}
    print_result(figures, json, lambda _: say(f"{quota} devices may enrol within {days:g} days with {file}"))


@app.command()
def close(folder: Folder, json: Json = False) -> None:
    """Close open enrolment; enrolled devices stay."""
    with opened(folder) as (_, store):
        ended = store.close_enrolment()
    print_result({"closed": ended}, json, lambda _: say(f"{ended} open enrolments closed"))


@app.command()
def token(folder: Folder, json: Json = False) -> None:
    """Print the address of the operator's page, with the token that opens it."""
    from quorank.service.home import Home

    home = Home.open(folder)
    figures = {"page": service.page_address(home), "token": home.token}
    print_result(figures, json, lambda found: print(found["page"]))


@app.command()
def backup(folder: Folder, file: Annotated[Path, Argument(help="Output file.")], json: Json = False) -> None:
    """Write a service's folder and store to one file, also while it runs.

    The file holds all secrets of the service: protect it like the folder.
    """
    from quorank.service.home import Home
    from quorank.service.store.backup import backup as back_up

    home = Home.open(folder)
    found = back_up(home.path, home.settings.database, file)
    figures = {"file": str(file), "members": found.members, "files": found.files, "bytes": found.bytes}
    print_result(figures, json, lambda _: say(f"{file} holds {found.members} members and {found.files} files"))


@app.command()
def restore(
    file: Annotated[Path, Argument(help="Backup file.")],
    folder: Folder,
    skip: Annotated[
        int,
        Option(
            min=0,
            help="Number of rounds that may have been published since the backup, and count as spent; 0 states none.",
        ),
    ],
    database: Annotated[str, Option(help="Empty PostgreSQL database.", show_default="SQLite in DIR")] = "",
    old: Annotated[
        Path | None, Option(help="Folder of the old service.", show_default="where it was backed up")
    ] = None,
    lost: Annotated[
        bool, Option("--lost", help="The old service is lost: take its members from the backup, and revoke by hand.")
    ] = False,
    json: Json = False,
) -> None:
    """Restore a service's folder and store from a backup.

    Members come from the old service, so that members who were revoked or have
    left since the backup stay excluded. If that service is lost, pass --lost,
    and revoke them again before the start.

    State with --skip how many rounds may have been published since the backup,
    those of rebuildings included: their privacy is spent, their ranker is
    lost, and devices do not reply to them again. Stop the old service first,
    and never run both.
    """
    from dataclasses import replace

    from quorank.service.home import Home
    from quorank.service.store.backup import restore as bring_back

    found = bring_back(file, folder, database, skip=skip, old=old, lost=lost)
    home = Home.open(folder)
    home.write_settings(replace(home.settings, database=database))
    figures = {"folder": str(folder), "members": found.members, "files": found.files, "skipped": skip}
    print_result(
        figures,
        json,
        lambda _: say(f"{folder} has {found.members} members; continue with: quorank coordinator start {folder}"),
    )


for _verb in (service.status, service.stop, service.revoke, service.ranker, service.files):
    app.command()(_verb)
