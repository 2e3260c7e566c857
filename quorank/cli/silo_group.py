"""`quorank silo start|invite|revoke|status|stop|ranker|files`: the service of a group."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quorank.cli import coordinator_process
from quorank.cli.coordinator import check_installed, page_address, start_here
from quorank.cli.display import print_result, say
from quorank.cli.options import Detach, FilesOut, InvitationOut, Json, RunName
from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.service.holders.group import SiloHome

Folder = Annotated[Path, Argument(metavar="DIR", help="Folder of the group.")]


def start(
    folder: Folder,
    experiment: Annotated[Path | None, Option(help="Group file; needed once, when the folder is created.")] = None,
    parties: Annotated[
        str | None, Option(help="Names of the parties, such as north,south,west, for a group with the defaults.")
    ] = None,
    search: Annotated[
        bool,
        Option(
            "--search", help="With --parties: they also search each other's documents until the service is stopped."
        ),
    ] = False,
    host: Annotated[str | None, Option(help="Interface on which to listen.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, Option(help="Port on which to listen.", show_default="9092")] = None,
    address: Annotated[
        str | None,
        Option(
            help="host:port at which parties reach the service; part of the certificate and the invitations.",
            show_default="HOST:PORT",
        ),
    ] = None,
    workers: Annotated[int | None, Option(help="Number of processes that handle requests.", show_default="1")] = None,
    database: Annotated[
        str | None, Option(help="Address of a PostgreSQL database.", show_default="SQLite in DIR")
    ] = None,
    behind_proxy: Annotated[
        bool | None, Option("--behind-proxy", help="Listen with plain HTTP behind a proxy that terminates TLS.")
    ] = None,
    run: RunName = None,
    pause: Annotated[
        float | None, Option(help="Seconds before a party that could not answer is asked again.", show_default="5")
    ] = None,
    detach: Detach = False,
    json: Json = False,
) -> None:
    """Run a group's service until its session is done or, if parties search, until it is stopped.

    It relays sealed envelopes between the parties and adds up masked sums; it
    sees no term, document or key. A later start continues the session, also
    after a kill. Without --detach it runs in the foreground, logging to stderr.
    """
    from quorank.service.holders.group import SiloHome
    from quorank.service.home import SETTINGS
    from quorank.service.supervisor import start_service

    check_installed()
    given = {
        "host": host, "port": port, "address": address, "workers": workers, "database": database,
        "behind_proxy": behind_proxy, "pause": pause,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None}
    if not (folder / SETTINGS).is_file():
        home = _make(folder, experiment, parties, run, chosen, search=search)
    else:
        home = SiloHome.open(folder)
        once = {"experiment": experiment, "parties": parties, "run": run, "search": search or None}
        coordinator_process.change(home, chosen, once, "parties")
    if home.group.seed is not None:
        say("a rehearsal: keys and noise follow from the seed, so nothing is secret")
    if not json:
        say(f"the operator's page: {page_address(home)}")
    if detach:
        start_service(home, "--exit-when-done")
    else:
        start_here(home, ["--exit-when-done"])
    if detach or json:
        _show(home, json)
    elif _is_done(home):
        print(f"the session is done; the ranker is {home.path / 'ranker.json'}")


def invite(
    folder: Folder,
    name: Annotated[str, Argument(help="Name of the party.")],
    out: InvitationOut = None,
    pin: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=HEX",
            help="Public identity of a party, as its owner confirmed it; stored for later invitations.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write a party's invitation, with a code that enrols it once.

    The first user of the file becomes the party: send it over a private
    channel and delete it here. A revoked party is invited again in the same
    way.
    """
    from quorank.service.holders.group import SiloHome
    from quorank.silos.session.terms import read_identities

    home = SiloHome.open(folder)
    file = out or Path(f"{name}.json")
    with closing(home.store()) as store:
        member = home.invite(store, name, file, read_identities(pin or [], home.group))
    pinned = sorted(party for party in home.identities if party != name)
    known = f"; it names the identities of {', '.join(pinned)}" if pinned else ""
    figures = {"name": name, "number": member.number, "file": str(file), "pinned": pinned}
    print_result(figures, json, lambda _: say(f"the invitation of {name} is {file}{known}"))


def revoke(folder: Folder, name: Annotated[str, Argument(help="Name of the party.")]) -> None:
    """Revoke a party; the session waits until it is invited again."""
    from quorank.service.holders.group import SiloHome

    with closing(SiloHome.open(folder).store()) as store:
        store.note("member_revoked", client=store.revoke(name).number)
    say(f"{name} is refused from now on")


def status(folder: Folder, json: Json = False) -> None:
    """Show phase, parties, pending answers, envelopes and bytes, turns and time left."""
    from quorank.service.holders.group import SiloHome

    _show(SiloHome.open(folder), json)


def stop(folder: Folder) -> None:
    """Stop a group's service; accepted answers are kept, and `start` continues."""
    from quorank.service.holders.group import SiloHome
    from quorank.service.overview import Overview

    home = SiloHome.open(folder)
    coordinator_process.stop(home, folder)
    say(f"stopped in the phase: {Overview(home).read().phase or 'not begun'}")


def ranker(folder: Folder, out: Annotated[Path | None, Option(help="Where to write it.")] = None) -> None:
    """Write the group's ranker, once the session is done."""
    from quorank.files.atomic import write_whole
    from quorank.service.holders.group import SiloHome
    from quorank.service.home import RANKER

    home = SiloHome.open(folder)
    file = home.path / RANKER
    require(file.is_file(), "ranker.missing", "the session is not done; status shows how far it is", f"{folder}")
    print(file if out is None else write_whole(out, file.read_bytes()))


def files(folder: Folder, out: FilesOut = None) -> None:
    """Write an nginx configuration and systemd units for this folder and for a party."""
    from quorank.cli import machine_files
    from quorank.service.holders.group import SiloHome

    home = SiloHome.open(folder)
    for path in machine_files.write(home, out or home.path / "files", machine_files.SILO_FILES):
        print(path)


def _make(
    folder: Path, file: Path | None, parties: str | None, run: str | None, chosen: dict[str, Any], *, search: bool
) -> SiloHome:
    from quorank.experiments.experiment_file import read_experiment_file, shipped_file
    from quorank.experiments.silo_experiment import read_group
    from quorank.service.holders.group import SiloHome, settings_of
    from quorank.silos.search.settings import SearchTerms
    from quorank.silos.session.terms import SiloTerms

    sentence = "there is no group here yet; say who takes part with --experiment FILE.toml or --parties NAME,NAME"
    require((file is None) != (parties is None), "group.missing", sentence, f"{folder}")
    sentence = "with a group file, searches are configured by its section [search]; leave out --search"
    require(file is None or not search, "option.conflict", sentence, "--search")
    if file is not None:
        terms = read_group(read_experiment_file(shipped_file(file) or file), run or file.stem)
    else:
        assert parties is not None
        names = tuple(name.strip() for name in parties.split(",") if name.strip())
        try:
            terms = SiloTerms(run or folder.absolute().name, names, search=SearchTerms() if search else None)
        except BadInput as error:
            raise error.at(f"--parties {parties}") from None
    return SiloHome.make(folder, terms, settings_of(terms.run, **coordinator_process.with_address(chosen, "parties")))


def _is_done(home: SiloHome) -> bool:
    with closing(home.store()) as store:
        found = store.publication()
    return found is not None and found.kind == "over"


def _show(home: SiloHome, json: bool) -> None:
    from quorank.cli.coordinator_display import show_status
    from quorank.service.overview import Overview

    show_status(Overview(home).read(), json)
