"""`quorank silo start` and `quorank silo invite`: the service of a group."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quorank.cli import service
from quorank.cli.display import print_result, say
from quorank.cli.options import Json
from quorank.cli.service import Folder
from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.service.holders.group import SiloHome


def start(
    folder: Folder,
    experiment: service.Experiment = None,
    parties: Annotated[
        str | None, Option(help="Names of the parties, such as north,south,west, for a group with the defaults.")
    ] = None,
    search: Annotated[
        bool,
        Option(
            "--search", help="With --parties: they also search each other's documents until the service is stopped."
        ),
    ] = False,
    host: service.Host = None,
    port: service.Port = None,
    address: service.Address = None,
    workers: service.Workers = None,
    database: service.Database = None,
    run: service.RunName = None,
    assignments: service.SettingsSet = None,
    detach: service.Detach = False,
    json: Json = False,
) -> None:
    """Run a group's service until its session is done or, if parties search, until it is stopped.

    It relays sealed envelopes between the parties and adds up masked sums; it
    sees no term, document or key. A later start continues the session, also
    after a kill. Without --detach it runs in the foreground, logging to stderr.
    """
    from quorank.service.holders.group import SiloHome
    from quorank.service.home import SETTINGS

    service.check_installed()
    chosen = service.read_settings(
        assignments, host=host, port=port, address=address, workers=workers, database=database
    )
    if (folder / SETTINGS).is_file():
        home = SiloHome.open(folder)
        once = {"experiment": experiment, "parties": parties, "run": run, "search": search}
        service.change_settings(home, chosen, once)
    else:
        home = _make(folder, experiment, parties, run, chosen, search=search)
    if home.group.seed is not None:
        say("a rehearsal: keys and noise follow from the seed, so nothing is secret")
    service.run_service(home, stay=False, detach=detach, json=json)


def _make(
    folder: Path, file: Path | None, parties: str | None, run: str | None, chosen: dict[str, Any], *, search: bool
) -> SiloHome:
    from quorank.experiments.experiment_file import find_experiment_file
    from quorank.experiments.silo_experiment import read_group
    from quorank.service.holders.group import SiloHome, settings_of
    from quorank.silos.search.settings import SearchTerms
    from quorank.silos.session.terms import SiloTerms

    sentence = "there is no group here yet; say who takes part with --experiment FILE.toml or --parties NAME,NAME"
    require((file is None) != (parties is None), "group.missing", sentence, f"{folder}")
    sentence = "with a group file, searches are configured by its section [search]; leave out --search"
    require(file is None or not search, "option.conflict", sentence, "--search")
    if file is not None:
        terms = read_group(find_experiment_file(file), run or file.stem)
    else:
        names = tuple(name.strip() for name in (parties or "").split(",") if name.strip())
        try:
            terms = SiloTerms(run or folder.absolute().name, names, search=SearchTerms() if search else None)
        except BadInput as error:
            raise error.at(f"--parties {parties}") from None
    return SiloHome.make(folder, terms, settings_of(terms.run, **service.with_address(chosen)))


def invite(
    folder: Folder,
    name: Annotated[str, Argument(help="Name of the party.")],
    out: Annotated[Path | None, Option(help="File for the invitation.", show_default="NAME.json")] = None,
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
