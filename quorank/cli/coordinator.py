"""`quorank coordinator`: run a federation with real devices: start, invite, open, revoke, status, stop, files, backup."""

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

app = typer.Typer(help="Coordinate real devices: start, invite, open, revoke, status, stop.", no_args_is_help=True)

Folder = Annotated[Path, Argument(metavar="DIR", help="The service's folder.")]


@app.command()
def start(
    folder: Folder,
    experiment: Annotated[Path | None, Option(help="Experiment file; needed once, when the folder is made.")] = None,
    tune: Annotated[
        Path | None,
        Option(help="Tune a heuristic instead: what, and how; needed once (docs/tuning.md).", metavar="FILE.toml"),
    ] = None,
    host: Annotated[str | None, Option(help="Where to listen.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, Option(help="The one port that is opened.", show_default="9092")] = None,
    address: Annotated[
        str | None,
        Option(
            "--address",
            "--url",
            help="host:port, or https://host[:port], under which devices reach it; it goes into certificate and "
            "invitations.",
            show_default="HOST:PORT",
        ),
    ] = None,
    workers: Annotated[int | None, Option(help="Processes that take requests.", show_default="2")] = None,
    database: Annotated[
        str | None, Option(help="Address of a PostgreSQL database, for several hosts.", show_default="SQLite in DIR")
    ] = None,
    behind_proxy: Annotated[
        bool | None,
        Option(
            "--behind-proxy/--no-behind-proxy",
            help="Plain HTTP for a proxy that ends TLS and says in X-Forwarded-For who asks.",
            show_default="--no-behind-proxy",
        ),
    ] = None,
    certificate: Annotated[
        str | None, Option(help="File of a certificate of yours (PEM).", show_default="of an own authority")
    ] = None,
    key: Annotated[str | None, Option(help="File of its key (PEM).")] = None,
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
        float | None, Option(help="Seconds after which a device asks again where nothing is due.", show_default="60")
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
    enrolments: Annotated[
        int | None, Option(help="Enrolments a minute from one address; 0: any.", show_default="60")
    ] = None,
    quiet_minutes: Annotated[
        float | None, Option(help="Without any device for so long, /healthz says so.", show_default="60")
    ] = None,
    exit_when_done: Annotated[
        bool, Option("--exit-when-done", help="End after the last round; then no device can leave any more.")
    ] = False,
    detach: Detach = False,
    json: Json = False,
) -> None:
    """Run a service; the first start makes its folder.

    It goes on where it stood, also after it was killed. After the last round
    it stays, so that devices hear of it and can leave, until it is stopped.
    Without --detach it is in the foreground, as systemd wants it, and logs to
    stderr.
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
    """Refuse where what a service needs is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("granian", "starlette", "jinja2", "prometheus_client") if find_spec(name) is None]
    sentence = f"a service needs {', '.join(missing)}; install it with: pip install 'quorank[service]'"
    require(not missing, "package.missing", sentence)


def start_here(home: Home, more: list[str]) -> None:
    """Run a service in this process until it is stopped."""
    from quorank.service.supervisor import supervise

    supervise(home, stay="--exit-when-done" not in more)


def replace_by(words: list[str]) -> None:
    """Become the process that watches over the service: it needs a tenth of this one's memory."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(words[0], words)


def page_address(home: Home) -> str:
    """Where the operator's page is, with what opens it."""
    return f"{home.settings.url}/?token={home.token}"


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """Rounds, cohort, who is waited for, ε spent, refused requests, problems."""
    from quorank.service.home import Home

    _show(Home.open(folder), json)


@app.command()
def stop(folder: Folder) -> None:
    """Stop a service; what it has accepted is kept, and `start` goes on."""
    from quorank.service.home import Home
    from quorank.service.overview import Overview

    home = Home.open(folder)
    coordinator_process.stop(home, folder)
    say(f"stopped after round {Overview(home).read().rounds}")


@app.command()
def invite(
    folder: Folder,
    names: Annotated[list[str] | None, Argument(metavar="NAMES", help="A name for each device.")] = None,
    count: Annotated[int | None, Option(help="So many devices, with names by number.")] = None,
    out: Annotated[
        Path | None, Option(help="Where to write: a file, or a folder for several.", show_default="NAME.json")
    ] = None,
    json: Json = False,
) -> None:
    """Invite devices: writes their invitations, each good for one enrolment.

    An invitation holds no key, but a code: whoever uses it first is the
    device. Hand it over by a way that others cannot read; a second use is
    refused, and status tells of it.
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
    quota: Annotated[int, Option(help="So many devices may enrol.")],
    days: Annotated[float, Option(help="For so long.")] = 30.0,
    out: Annotated[Path | None, Option(help="Where to write the invitation.", show_default="RUN.json")] = None,
    json: Json = False,
) -> None:
    """Let whoever has the invitation that is written enrol.

    One person can enrol as often as the quota lets them: what that can do to
    the ranker is bounded by how often a device may take part, by clipping and
    by robust aggregation, and by nothing else.
    """
    from quorank.service.enrolment import open_enrolment

    with _opened(folder) as (home, store):
        file = out or Path(f"{home.settings.run}.json")
        open_enrolment(home, store, quota, days, file)
    figures = {"file": str(file), "quota": quota, "days": days}
    print_result(figures, json, lambda _: say(f"{quota} devices may enrol within {days:g} days with {file}"))


@app.command()
def close(folder: Folder, json: Json = False) -> None:
    """End open enrolment; who has enrolled stays."""
    with _opened(folder) as (_, store):
        ended = store.close_enrolment()
    print_result({"closed": ended}, json, lambda _: say(f"{ended} open enrolments have ended"))


@app.command()
def revoke(folder: Folder, name: Annotated[str, Argument(help="The device's name.")]) -> None:
    """Refuse a device from now on; its number is not given again."""
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
def ranker(folder: Folder, out: Annotated[Path | None, Option(help="Where to write it.")] = None) -> None:
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
def backup(folder: Folder, file: Annotated[Path, Argument(help="Where to write it.")], json: Json = False) -> None:
    """Write a service's folder and store into one file, also while it runs.

    The file holds all secrets of the service: keep it as the folder is kept.
    """
    from quorank.service.home import Home
    from quorank.service.store.backup import backup as back_up

    home = Home.open(folder)
    found = back_up(home.path, home.settings.database, file)
    figures = {"file": str(file), "members": found.members, "files": found.files, "bytes": found.bytes}
    print_result(figures, json, lambda _: say(f"{file} holds {found.members} members and {found.files} files"))


@app.command()
def restore(
    file: Annotated[Path, Argument(help="A backup.")],
    folder: Folder,
    database: Annotated[
        str | None, Option(help="Address of an empty PostgreSQL database.", show_default="SQLite in DIR")
    ] = None,
    skip: Annotated[
        int, Option(min=0, help="So many rounds after the backup are over: their privacy is spent, their ranker lost.")
    ] = 0,
    json: Json = False,
) -> None:
    """Make a service's folder and store from a backup; `start` goes on from its moment.

    Devices that have gone further since answer no round a second time: where
    all have, the next round would wait for ever, unless --skip passes over
    those that they have answered. Never run the old service beside it: stop
    that first.
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
