"""Start of a service, and the verbs that services of devices and of groups share."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option

from quorank.cli.display import print_result, print_rows, rows_of, say
from quorank.cli.options import Json
from quorank.errors import BadInput, require, suggest

if TYPE_CHECKING:
    from quorank.service.dashboard.status import Status
    from quorank.service.home import Home
    from quorank.service.store.sql_store import SqlStore

Folder = Annotated[Path, Argument(metavar="DIR", help="The service's folder.")]
Experiment = Annotated[Path | None, Option(help="Experiment file, needed once to create the folder.")]
Host = Annotated[str | None, Option(help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[int | None, Option(help="Port to listen on.", show_default="9092")]
Address = Annotated[
    str | None,
    Option(
        "--address",
        "--url",
        help="host:port, or https://host[:port], at which members reach the service; part of certificate and invitations.",
        show_default="HOST:PORT",
    ),
]
Workers = Annotated[int | None, Option(help="Number of intake workers.", show_default="2, and 1 for a group")]
Database = Annotated[str | None, Option(help="PostgreSQL database, for several hosts.", show_default="SQLite in DIR")]
SettingsSet = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="KEY=VALUE", help="Another setting, such as deadline=600 (docs/deployment.md). Repeatable."
    ),
]
RunName = Annotated[str | None, Option(help="Name of the run.", show_default="the file's name")]
Detach = Annotated[bool, Option("--detach", help="Run in the background.")]

FIXED = ("run", "n_features", "report_epsilon", "attester", "kind")
"""Settings of new folders only."""
STOP_SECONDS = 60.0


def check_installed() -> None:
    """Raise BadInput if a dependency of the service is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("granian", "starlette", "prometheus_client") if find_spec(name) is None]
    sentence = f"a service needs {', '.join(missing)}; install it with: pip install 'quorank[service]'"
    require(not missing, "package.missing", sentence)


def read_settings(assignments: list[str] | None, **options: Any) -> dict[str, Any]:
    """Return the settings that options and `--set` choose."""
    from quorank.experiments.experiment_file import ExperimentFile, set_values
    from quorank.files.codec import decode
    from quorank.service.home import Settings

    known, chosen = get_type_hints(Settings), {name: value for name, value in options.items() if value is not None}
    for name, value in set_values(ExperimentFile({}, "--set"), assignments or []).tables.items():
        sentence = f"unknown setting {name!r}{suggest(name, known)}; known: {', '.join(known)}"
        require(name in known, "key.unknown", sentence, "--set")
        chosen[name] = decode(known[name], value, f"--set {name}")
    return chosen | {name: str(Path(chosen[name]).absolute()) for name in ("certificate", "key") if chosen.get(name)}


def with_address(chosen: dict[str, Any]) -> dict[str, Any]:
    """Add the address at which members reach the service."""
    host, port = chosen.get("host", "127.0.0.1"), chosen.get("port", 9092)
    sentence = f"--host {host} listens on all addresses; give the one at which members reach the service with --address"
    require("address" in chosen or host not in ("0.0.0.0", "::", ""), "address.every", sentence)
    return {"address": f"{host}:{port}", **chosen}


def change_settings(home: Home, chosen: dict[str, Any], once: Mapping[str, object]) -> None:
    """Change the settings of an existing folder; FIXED ones and the options in `once` apply to new folders only."""
    from dataclasses import replace

    home.check_stopped()
    fixed = [f"--{name}" for name, value in once.items() if value]
    refused = ", ".join(fixed + [f"--set {name}" for name in FIXED if name in chosen])
    sentence = "fixed when the folder was created; leave the option out, or choose another folder"
    require(not refused, "option.fixed", sentence, refused)
    settings = home.settings
    if ("host" in chosen or "port" in chosen) and settings.address == f"{settings.host}:{settings.port}":
        chosen = with_address({"host": settings.host, "port": settings.port, **chosen})
    home.change(replace(settings, **chosen))


def run_service(home: Home, *, stay: bool, detach: bool, json: bool) -> None:
    """Run a service in the foreground or in the background."""
    from quorank.service.supervisor import SUPERVISOR, start_service, supervise

    more = [] if stay else ["--exit-when-done"]
    if not json:
        say(f"the operator's page: {page_address(home)}")
    if detach:
        start_service(home, *more)
    elif json:
        supervise(home, stay=stay)
    else:
        replace_by([sys.executable, "-m", SUPERVISOR, str(home.path), *more])
        return
    status(home.path, json)


def replace_by(words: list[str]) -> None:
    """Replace this process by the supervisor, which needs a tenth of its memory."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(words[0], words)


def page_address(home: Home) -> str:
    """Return the address of the operator's page, with its token."""
    return f"{home.settings.url}/?token={home.token}"


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Home, SqlStore]]:
    """Open a folder and its store."""
    from quorank.service.home import Home

    home = Home.open(folder)
    store = home.store()
    try:
        yield home, store
    finally:
        store.close()


def status(folder: Folder, json: Json = False) -> None:
    """Show rounds, members, pending replies, spent ε, rejected requests and problems."""
    from quorank.service.home import Home
    from quorank.service.overview import Overview

    show_status(Overview(Home.open(folder)).read(), json)


def stop(folder: Folder) -> None:
    """Stop a service; accepted replies are kept, and `start` continues."""
    from quorank.service.home import Home

    home = Home.open(folder)
    number, end = home.process(), time.monotonic() + STOP_SECONDS
    if number is None:
        raise BadInput("coordinator.not-running", "the service is not running", f"{folder}")
    os.kill(number, signal.SIGTERM)
    while home.process() is not None:
        late = f"process {number} has not ended within {STOP_SECONDS:g} s"
        require(time.monotonic() <= end, "coordinator.not-ended", late, f"{folder}")
        time.sleep(0.1)
    say("stopped")


def revoke(folder: Folder, name: Annotated[str, Argument(help="Name of the member.")]) -> None:
    """Revoke a member; the number of a device is not reused, and a party may be invited again."""
    with opened(folder) as (_, store):
        member = store.revoke(name)
        store.note("member_revoked", client=member.number)
    say(f"{name} (client {member.number}) is revoked; its requests are rejected")


def ranker(folder: Folder, out: Annotated[Path | None, Option(help="Output file.")] = None) -> None:
    """Print the newest ranker, or write it to a file."""
    from quorank.files.atomic import write_whole
    from quorank.service.home import RANKER

    with opened(folder) as (home, store):
        content, path = store.document(RANKER), home.path / RANKER
    if content is None and path.is_file():
        content = path.read_bytes()
    if content is None:
        raise BadInput("ranker.missing", "no ranker yet; `status` shows the completed rounds", f"{folder}")
    print(content.decode() if out is None else write_whole(out, content))


def files(
    folder: Folder, out: Annotated[Path | None, Option(help="Folder for the files.", show_default="DIR/files")] = None
) -> None:
    """Write systemd units, an nginx configuration and, for devices, a container file for this folder."""
    from quorank.cli.machine_files import write
    from quorank.service.home import Home

    home = Home.open(folder)
    for path in write(home, out or home.path / "files"):
        print(path)


# ------------------------------------------------------------ status

STATUS = """
{state} | | {run}{address}
uptime | {uptime_seconds:,.0f} s | {process}
rehearsal | | {rehearsal_note}
phase | | {phase}
{unit} | {rounds:,} | {planned}
last round | {last_round_seconds:,.1f} s | {left}
cohort | {cohort:,} | clients; {needed:,} replies needed, {replies:,} received{waiting}
enrolled | {counts[enrolled]:,} | {counts[seen]:,} online, {counts[invited]:,} invited, {counts[left]:,} left, \
{counts[revoked]:,} revoked{invite}
withheld | | {withheld}
accepted | {accepted:,} | replies
rejected | {refused_count:,} | {refused_codes}
requests | {requests:,} | answered{latency}
ε | {epsilon_spent:.4g} | spent{epsilon_planned_note}, δ = {epsilon_delta:g}, unit: {epsilon_unit}, {epsilon_horizon}
ε | none | spent: {unspent}
quality | {quality_value} | {quality_note}
"""
NAMED = 12
"""Maximum number of pending members that are named."""


def show_status(status: Status, as_json: bool) -> None:
    """Print the status, as JSON or for people, wrapped to the terminal."""
    print_result(status.table(), as_json, lambda _: print_rows(*status_rows(status)))


def status_rows(status: Status) -> list[tuple[str, ...]]:
    """Return the status in rows of name, value and explanation."""
    parties, pending = status.kind == "parties", [str(member.client) for member in status.members if member.waiting]
    value, note = ("none", "no reports") if status.quality is None else status.quality.words()
    words: dict[str, Any] = {
        "unit": {"parties": "turns", "tuning": "versions"}.get(status.kind, "rounds"),
        "address": "" if status.address is None else f", reached at {status.address}",
        "process": "not running" if status.process is None else f"process {status.process}",
        "rehearsal_note": "keys and noise follow from the seed: nothing is secret" if status.rehearsal else None,
        "planned": "done" if status.rounds_planned is None else f"of {status.rounds_planned:,}",
        "left": "" if status.seconds_left is None else f"about {status.seconds_left:,.0f} s left",
        "waiting": f"; pending: {', '.join(pending[:NAMED])}{' …' * (len(pending) > NAMED)}" if pending else "",
        "invite": "" if status.counts.enrolled else "; no device has enrolled: quorank coordinator invite DIR NAME",
        "refused_count": sum(status.refused.values()),
        "refused_codes": ", ".join(f"{code} {count:,}" for code, count in sorted(status.refused.items())) or "nothing",
        "epsilon_planned_note": "" if status.epsilon_planned is None else f" of {status.epsilon_planned:.4g} planned",
        "latency": "" if status.request_latency is None else f", {1000 * status.request_latency:.3g} ms on average",
        "unspent": "no accounting" if status.rounds else "no completed round",
        "quality_value": value,
        "quality_note": note,
    }
    if parties:
        words |= dict.fromkeys(("epsilon_spent", "unspent", "quality_value", "cohort", "accepted", "invite"))
        words["invite"] = ""
    if status.epsilon_spent is not None:
        words["unspent"] = None
    if status.withheld is not None:
        words |= {"accepted": None, "waiting": ""}
    rows = rows_of(STATUS, asdict(status) | words)
    problems = [(problem.code, "!", problem.sentence) for problem in status.problems]
    if (stall := status.stall()) is not None:
        problems.append(("round.stalled", "!", stall))
    rows[1:1] = problems
    for member in status.members if parties else ():
        waits = ": the session waits for its reply" if member.waiting else ""
        rows.append((member.name or f"{member.client}", "", f"{member.state}, {member.phase or 'not begun'}{waits}"))
    for kind, sums in status.traffic.items():
        rows.append((kind, f"{sums.get('envelopes', 0):,}", f"envelopes, {sums.get('bytes', 0):,} bytes"))
    for weight in status.weights:
        bounds = f"shipped {weight.shipped:.4g}, between {weight.lower:.4g} and {weight.upper:.4g}"
        rows.append((weight.name, f"{weight.value:.4g}", bounds))
    known = "".join(f"; {count:,} × {version}" for version, count in sorted(status.versions.members.items()))
    return [*rows, ("version", status.versions.service, f"protocol {status.versions.protocol}{known}")]
