"""`quorank coordinator`: run a federation of real devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quorank.cli import coordinator_process
from quorank.cli.display import print_result, say
from quorank.cli.options import Detach, FilesOut, Json, RunName
from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.service.home import Home
    from quorank.service.store.sql_store import SqlStore

app = typer.Typer(help="Run a federation of real devices.", no_args_is_help=True)

Folder = Annotated[Path, Argument(metavar="DIR", help="The service's folder.")]


@app.command()
def start(
    folder: Folder,
    experiment: Annotated[Path | None, Option(help="Experiment file, needed once to create the folder.")] = None,
    tune: Annotated[
        Path | None,
        Option(help="Tune a heuristic instead: its file, needed once (docs/tuning.md).", metavar="FILE.toml"),
    ] = None,
    host: Annotated[str | None, Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, Option(help="Port to listen on.", show_default="9092")] = None,
    address: Annotated[
        str | None,
        Option(
            "--address",
            "--url",
            help="host:port, or https://host[:port], at which devices reach the service; part of certificate and "
            "invitations.",
            show_default="HOST:PORT",
        ),
    ] = None,
    workers: Annotated[int | None, Option(help="Number of intake workers.", show_default="2")] = None,
    database: Annotated[
        str | None, Option(help="PostgreSQL database, for several hosts.", show_default="SQLite in DIR")
    ] = None,
    behind_proxy: Annotated[
        bool | None,
        Option(
            "--behind-proxy/--no-behind-proxy",
            help="Serve plain HTTP behind a proxy that terminates TLS and sets X-Forwarded-For.",
            show_default="--no-behind-proxy",
        ),
    ] = None,
    certificate: Annotated[
        str | None, Option(help="Certificate file (PEM).", show_default="from a private authority")
    ] = None,
    key: Annotated[str | None, Option(help="Key file of the certificate (PEM).")] = None,
    features: Annotated[
        int | None, Option(help="Number of features on the devices.", show_default="those of [data]")
    ] = None,
    run: RunName = None,
    enough: Annotated[
        float | None, Option(help="Fraction of the cohort that closes a round at once.", show_default="1")
    ] = None,
    least: Annotated[
        float | None, Option(help="Fraction of the cohort that closes a round at the deadline.", show_default="0.5")
    ] = None,
    deadline: Annotated[
        float | None, Option(help="Seconds until the deadline of a round.", show_default="3600")
    ] = None,
    pause: Annotated[
        float | None, Option(help="Polling interval of an idle device, seconds.", show_default="60")
    ] = None,
    report_epsilon: Annotated[
        float | None, Option(help="Devices report nDCG by clicks, with this ε for a report.", show_default="no reports")
    ] = None,
    total_epsilon: Annotated[
        float | None,
        Option(
            help="Upper bound on the ε of run, reports and rebuildings together, at the run's δ; a rebuilding "
            "beyond it is refused, and the ranker is reset.",
            show_default="that of run and reports alone",
        ),
    ] = None,
    enrolments: Annotated[
        int | None,
        Option(help="Maximum number of enrolments a minute from one address; 0 for no limit.", show_default="60"),
    ] = None,
    quiet_minutes: Annotated[
        float | None,
        Option(help="Minutes without any device after which /healthz reports a problem.", show_default="60"),
    ] = None,
    exit_when_done: Annotated[
        bool, Option("--exit-when-done", help="Stop after the last round; devices can then no longer leave.")
    ] = False,
    detach: Detach = False,
    json: Json = False,
) -> None:
    """Run a service; the first start creates its folder.

    A later start continues the run, also after a crash. After the last round
    the service runs until it is stopped, so that devices can leave. Without
    --detach it stays in the foreground and logs to stderr, as under systemd.
    """
    from quorank.service.home import SETTINGS, Home
    from quorank.service.supervisor import SUPERVISOR, start_service

    check_installed()
    given = {
        "host": host, "port": port, "address": address, "workers": workers, "database": database,
        "behind_proxy": behind_proxy, "certificate": _absolute(certificate), "key": _absolute(key), "enough": enough,
        "least": least, "deadline": deadline, "pause": pause, "total_epsilon": total_epsilon, "enrolments": enrolments,
        "quiet": quiet_minutes,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None}
    if tune is not None and not (folder / SETTINGS).is_file():
        sentence = "a folder runs a federation or a tuning; leave out what is not meant"
        require(experiment is None and features is None, "option.conflict", sentence, "--tune")
        home = _make_tuning(folder, tune, run, chosen)
    elif not (folder / SETTINGS).is_file():
        home = _make(folder, experiment, features, run, chosen | {"report_epsilon": report_epsilon or 0.0})
    else:
        home = Home.open(folder)
        once = {
            "experiment": experiment,
            "tune": tune,
            "features": features,
            "run": run,
            "report-epsilon": report_epsilon,
        }
        coordinator_process.change(home, chosen, once, "devices")
    more = ["--exit-when-done"] if exit_when_done else []
    if not json:
        say(f"the operator's page: {page_address(home)}")
    if detach:
        start_service(home, *more)
        _show(home, json)
    elif json:
        start_here(home, more)
        _show(home, json)
    else:
        replace_by([sys.executable, "-m", SUPERVISOR, str(home.path), *more])


def check_installed() -> None:
    """Raise BadInput if a dependency of the service is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("granian", "starlette", "jinja2", "prometheus_client") if find_spec(name) is None]
    sentence = f"a service needs {', '.join(missing)}; install it with: pip install 'quorank[service]'"
    require(not missing, "package.missing", sentence)


def start_here(home: Home, more: list[str]) -> None:
    """Run a service in this process until it is stopped."""
    from quorank.service.supervisor import supervise

    supervise(home, stay="--exit-when-done" not in more)


def replace_by(words: list[str]) -> None:
    """Replace this process by the supervisor, which needs a tenth of its memory."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(words[0], words)


def page_address(home: Home) -> str:
    """Return the address of the operator's page, with its token."""
    return f"{home.settings.url}/?token={home.token}"


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """Show rounds, cohort, pending devices, spent ε, rejected requests and problems."""
    from quorank.service.home import Home

    _show(Home.open(folder), json)


@app.command()
def stop(folder: Folder) -> None:
    """Stop a service; accepted replies are kept, and `start` continues."""
    from quorank.service.home import Home
    from quorank.service.overview import Overview

    home = Home.open(folder)
    coordinator_process.stop(home, folder)
    say(f"stopped after round {Overview(home).read().rounds}")


@app.command()
def invite(
    folder: Folder,
    names: Annotated[list[str] | None, Argument(metavar="NAMES", help="Names of the devices.")] = None,
    count: Annotated[int | None, Option(help="Number of devices, with numbered names.")] = None,
    out: Annotated[Path | None, Option(help="Output file, or a folder for several.", show_default="NAME.json")] = None,
    json: Json = False,
) -> None:
    """Write invitations of devices, each for one enrolment.

    An invitation holds a code and no key: its first user becomes the device.
    Send it over a private channel. A second use is rejected and shown by
    status.
    """
    from quorank.service.enrolment import invite as invite_one

    known = list(names or [])
    require(bool(known) != (count is not None), "option.conflict", "name the devices, or say how many with --count")
    with _opened(folder) as (home, store):
        if count is not None:
            require(1 <= count <= 100_000, "value.out-of-range", f"from 1 to 100000, got {count}", "--count")
            first = store.next_number() + 1
            known = [f"device-{number}" for number in range(first, first + count)]
        several = len(known) > 1 or count is not None
        if several and out is not None:
            out.mkdir(mode=0o700, exist_ok=True)
        made = []
        for name in known:
            file = Path(f"{name}.json") if out is None else out / f"{name}.json" if several or out.is_dir() else out
            member = invite_one(home, store, name, file)
            made.append({"name": member.name, "client": member.number, "file": str(file)})
            if not json:
                say(f"{name} is client {member.number}; its invitation is {file}")
    figures = {"invitations": made} if several else made[0]
    print_result(figures, json, lambda _: None)


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

    with _opened(folder) as (home, store):
        file = out or Path(f"{home.settings.run}.json")
        open_enrolment(home, store, quota, days, file)
    figures = {"file": str(file), "quota": quota, "days": days}
    print_result(figures, json, lambda _: say(f"{quota} devices may enrol within {days:g} days with {file}"))


@app.command()
def close(folder: Folder, json: Json = False) -> None:
    """Close open enrolment; enrolled devices stay."""
    with _opened(folder) as (_, store):
        ended = store.close_enrolment()
    print_result({"closed": ended}, json, lambda _: say(f"{ended} open enrolments have ended"))


@app.command()
def revoke(folder: Folder, name: Annotated[str, Argument(help="Name of the device.")]) -> None:
    """Revoke a device; its number is not reused."""
    with _opened(folder) as (_, store):
        member = store.revoke(name)
        store.note("member_revoked", client=member.number)
    say(f"{name} (client {member.number}) is refused from now on")


@app.command()
def token(folder: Folder, json: Json = False) -> None:
    """Print the address of the operator's page, with the token that opens it."""
    from quorank.service.home import Home

    home = Home.open(folder)
    figures = {"page": page_address(home), "token": home.token}
    print_result(figures, json, lambda _: print(page_address(home)))


@app.command()
def ranker(folder: Folder, out: Annotated[Path | None, Option(help="Output file.")] = None) -> None:
    """Print the ranker of the newest round, or write it to a file."""
    from quorank.files.atomic import write_whole
    from quorank.service.home import RANKER

    with _opened(folder) as (home, store):
        content = store.document(RANKER)
        path = home.path / RANKER
        if content is None and path.is_file():
            content = path.read_bytes()
    if content is None:
        raise BadInput("ranker.missing", "no round is done yet, so there is no ranker", f"{folder}")
    if out is None:
        print(content.decode())
    else:
        write_whole(out, content)
        say(f"the ranker is {out}")


@app.command()
def files(folder: Folder, out: FilesOut = None) -> None:
    """Write systemd units, a container file and an nginx configuration for this folder."""
    from quorank.cli import machine_files
    from quorank.service.home import Home

    home = Home.open(folder)
    for path in machine_files.write(home, out or home.path / "files"):
        print(path)


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
    database: Annotated[str | None, Option(help="Empty PostgreSQL database.", show_default="SQLite in DIR")] = None,
    skip: Annotated[
        int,
        Option(min=0, help="Number of rounds completed after the backup: their privacy is spent, their ranker lost."),
    ] = 0,
    json: Json = False,
) -> None:
    """Restore a service's folder and store from a backup.

    Devices answer no round twice. If all have answered rounds after the
    backup, pass their number with --skip; the next round would otherwise wait
    for ever. Stop the old service first, and never run both.
    """
    from dataclasses import replace

    from quorank.service.home import Home
    from quorank.service.store.backup import restore as bring_back

    found = bring_back(file, folder, database or "", skip)
    home = Home.open(folder)
    home.write_settings(replace(home.settings, database=database or ""))
    figures = {"folder": str(folder), "members": found.members, "files": found.files, "skipped": skip}
    print_result(figures, json, lambda _: say(f"{folder} has {found.members} members; start it to go on"))


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[Home, SqlStore]]:
    from quorank.service.home import Home

    home = Home.open(folder)
    store = home.store()
    try:
        yield home, store
    finally:
        store.close()


def _absolute(file: str | None) -> str | None:
    return str(Path(file).absolute()) if file else file


def _make(folder: Path, file: Path | None, features: int | None, run: str | None, chosen: dict[str, Any]) -> Home:
    from quorank.experiments.deployment import check_experiment, fitted_to_data
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import read_experiment_file, shipped_file
    from quorank.service.home import Home, Settings

    if file is None:
        sentence = "there is no coordinator here yet; say what it runs with --experiment FILE.toml"
        raise BadInput("coordinator.missing", sentence, f"{folder}")
    found = Experiment.read(read_experiment_file(shipped_file(file) or file))
    check_experiment(found)
    found, count = fitted_to_data(found) if features is None else (found, features)
    return Home.create(
        folder, found, Settings(run or file.stem, count, **coordinator_process.with_address(chosen, "devices"))
    )


def _make_tuning(folder: Path, file: Path, run: str | None, chosen: dict[str, Any]) -> Home:
    from quorank.service.holders.tuning import TuningHome, settings_of
    from quorank.tuning.field import read_field_tuning

    tuning = read_field_tuning(file)
    settings = settings_of(run or file.stem, tuning, **coordinator_process.with_address(chosen, "devices"))
    return TuningHome.make(folder, tuning, settings)


def _show(home: Home, json: bool) -> None:
    from quorank.cli.coordinator_display import show_status
    from quorank.service.overview import Overview

    show_status(Overview(home).read(), json)
