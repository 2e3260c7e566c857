"""`quorank search`: search of a person's own files, mail and browser history, which learns from every choice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Context, Option

from quorank.cli.display import print_lines, print_result, print_rows, print_text, rows_of, say, table_of, timestamp
from quorank.cli.options import Json, Quiet
from quorank.errors import printable, require

if TYPE_CHECKING:
    from quorank.search.index import UpdateReport
    from quorank.search.personal_search import PersonalSearch
    from quorank.search.sources import Source

app = typer.Typer(
    help="Search your own files, mail and browser history; the ranking learns from your choices on this machine.",
    no_args_is_help=True,
)
COUNTS = ("added", "changed", "removed", "unchanged")
TEXT_WIDTH = 66
"""Characters of a result's second line."""


@app.callback()
def search(
    context: Context,
    home: Annotated[
        Path | None,
        Option(help="Folder of the search.", show_default="quorank/search in the data folder of this account"),
    ] = None,
) -> None:
    """Search your own documents."""
    context.obj = home


@contextmanager
def _opened(context: Context) -> Iterator[PersonalSearch]:
    from quorank.search.personal_search import PersonalSearch

    with PersonalSearch.open(context.obj) as found:
        yield found


@app.command()
def add(
    context: Context,
    path: Annotated[
        list[Path] | None, Argument(metavar="PATH", help="Folders of documents, mailboxes or browser profiles.")
    ] = None,
    mbox: Annotated[list[Path] | None, Option(help="Mailbox (mbox), maildir, or a folder of these.")] = None,
    firefox: Annotated[bool, Option("--firefox", help="History and bookmarks of Firefox.")] = False,
    chromium: Annotated[
        bool, Option("--chromium", help="History and bookmarks of Chromium, Chrome, Edge, Brave and others.")
    ] = False,
    language: Annotated[str | None, Option(help="Language of stems and stop words.", show_default="english")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Index folders, mail and browser history, or update all sources.

    Unreadable files are skipped and listed with the reason. The index is in a
    folder that only you can read.
    """
    from quorank.search.home import SearchHome

    if language is not None:
        chosen = SearchHome.open(context.obj)
        chosen.write_settings(replace(chosen.settings(), language=language))  # type: ignore[arg-type]
    with _opened(context) as opened:
        sources = list(_sources(path or (), mbox or (), firefox=firefox, chromium=chromium))
        known = [(stored.id, opened.source(stored.id)) for stored in opened.index.sources()] if not sources else []
        sentence = "nothing to index; give a folder, --mbox PATH, --firefox or --chromium"
        require(sources or known, "source.missing", sentence)
        reports = []
        for number, source in known or [(opened.add(source), source) for source in sources]:
            report = opened.update(number, None if quiet or json else _progress(source.name))
            counts = {name: getattr(report, name) for name in (*COUNTS, "skipped", "seconds")}
            log = [asdict(entry) for entry in opened.index.skipped(number)]
            reports.append({"source": source.name, "kind": source.kind, **counts, "log": log})
    print_result({"sources": reports}, json, _show_added)


def _sources(paths: Any, mailboxes: Any, *, firefox: bool, chromium: bool) -> Iterator[Source]:
    from quorank.search.sources import ChromiumSource, FirefoxSource, MailSource, source_at

    for path in paths:
        yield source_at(path)
    for path in mailboxes:
        require(path.expanduser().exists(), "file.missing", "no such file or folder", f"--mbox {path}")
        yield MailSource(str(path.absolute()))
    browsers: dict[str, Any] = {"--firefox": (firefox, FirefoxSource), "--chromium": (chromium, ChromiumSource)}
    for name, (chosen, source) in browsers.items():
        profiles = source.profiles() if chosen else []
        require(profiles or not chosen, "file.missing", "no profile in the usual places; give its folder as PATH", name)
        yield from (source(str(profile)) for profile in profiles)


def _progress(name: str) -> Callable[[UpdateReport], None]:
    shown = 0.0

    def tell(report: UpdateReport) -> None:
        nonlocal shown
        if report.seconds - shown >= 2.0:
            shown, done = report.seconds, report.added + report.changed + report.unchanged
            say(f"{printable(name)}: {done:,} documents, {report.skipped:,} skipped")

    return tell


def _show_added(figures: dict[str, Any]) -> None:
    for source in figures["sources"]:
        counts = ", ".join(f"{source[name]:,} {name}" for name in COUNTS if source[name])
        print(f"{printable(source['source'])}: {counts or 'no documents'} ({source['seconds']:.1f} s)")
        for entry in source["log"][:10]:
            print(f"  skipped: {printable(entry['key'])}: {printable(entry['sentence'])}")
        if len(source["log"]) > 10:
            print(f"  … and {len(source['log']) - 10:,} more; `quorank search status --log` lists them")


@app.command()
def find(
    context: Context,
    query: Annotated[
        list[str], Argument(help='Words, "phrases", title:word, source:mail, type:pdf, since:7d, before:2024-05.')
    ],
    limit: Annotated[int, Option(min=1, max=200, help="Maximum number of results.")] = 10,
    json: Json = False,
) -> None:
    """Search, with the best results first."""
    with _opened(context) as opened:
        page = opened.find(" ".join(query), limit=limit)
        empty = opened.index.count() == 0

    def show(figures: Any) -> None:
        if not page.results:
            print("Nothing is indexed yet: quorank search add FOLDER" if empty else "Nothing found.")
        for number, result in enumerate(page.results, 1):
            text = printable(" ".join("".join(piece.text for piece in result.snippet).split()))
            print(f"{number:2}. {printable(result.title or result.name)}  [{result.source}, {result.band}]")
            print(f"    {printable(result.path)}" + (f"\n    {text[:TEXT_WIDTH]}" if text else ""))

    print_result(page.table(), json, show)


@app.command()
def why(
    context: Context,
    query: Annotated[list[str], Argument(help="Query.")],
    limit: Annotated[int, Option(min=1, max=50, help="Maximum number of results.")] = 5,
    json: Json = False,
) -> None:
    """Explain the position of each result: band, habit, and each feature's share of the score."""
    with _opened(context) as opened:
        page = opened.find(" ".join(query), limit=limit)
    print_result({"results": [result.explained_table() for result in page.results]}, json, _show_reasons)


def _show_reasons(figures: dict[str, Any]) -> None:
    for number, reason in enumerate(figures["results"], 1):
        print(f"{number}. {printable(reason['title'])}  [{reason['band']}, score {reason['score']:.2f}]")
        if reason["habit"]:
            print(f"   first in its band: {reason['habit']}")
        for share in reason["features"][:6]:
            print(f"   {share['share']:+7.2f}  {share['feature']} ({share['value']:.2f} × {share['weight']:.2f})")
    if not figures["results"]:
        print("Nothing found.")


@app.command()
def forget(
    context: Context,
    path: Annotated[list[str] | None, Argument(metavar="PATH", help="Documents to forget, by path or address.")] = None,
    query: Annotated[list[str] | None, Option(help="Forget the choices for this query.")] = None,
    learned: Annotated[bool, Option("--learned", help="Forget all choices and restore the shipped ranker.")] = False,
    all_: Annotated[bool, Option("--all", help="Forget everything: documents, sources, choices.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Erase documents, choices, or everything from the search's folder.

    Your own files are not changed. A forgotten document is not indexed again.
    """
    sentence = "nothing to forget; give paths, --query TEXT, --learned or --all"
    require(path or query or learned or all_, "option.missing", sentence)
    if (all_ or learned) and not yes:
        what = "all documents, sources and choices" if all_ else "all choices"
        require(
            sys.stdin.isatty(), "option.missing", f"this forgets {what}; add --yes", "--all" if all_ else "--learned"
        )
        typer.confirm(f"Forget {what}?", abort=True)
    done: dict[str, Any] = {"documents": 0, "choices": 0}
    with _opened(context) as opened:
        for each in path or ():
            documents = opened.index.at_path(each)
            require(documents, "document.missing", "not in the index; `quorank search find` shows paths", each)
            opened.forget_documents(documents)
            done["documents"] += len(documents)
        for text in query or ():
            done["choices"] += opened.forget_query(text)
        if learned:
            done["choices"] += opened.reset()
        if all_:
            done = {"documents": opened.index.count(), "choices": len(opened.history.choices())}
            opened.forget_all()
    print_result(done, json, lambda d: print(f"forgotten: {d['documents']:,} documents, {d['choices']:,} choices"))


@app.command()
def status(
    context: Context,
    log: Annotated[bool, Option("--log", help="Also list skipped documents, with the reasons.")] = False,
    json: Json = False,
) -> None:
    """Show sources, choices, the ranker in use, and the federation."""
    with _opened(context) as opened:
        figures = opened.status()
        if log:
            for source in figures["sources"]:
                source["log"] = [asdict(entry) for entry in opened.index.skipped(source["number"])]
    print_result(figures, json, _show_status)


STATUS = """
documents | {documents:,} | {folder}
choices | {choices:,} | ranker: {ranker}
federation | {federation[releases]:,} releases | {federation[run]}, consent {consent}
"""


def _show_status(figures: dict[str, Any]) -> None:
    consent = "on" if (figures["federation"] or {}).get("consent") else "off"
    print_rows(*rows_of(STATUS, figures | {"consent": consent}))
    rows = []
    for source in figures["sources"]:
        read = timestamp(source["updated"]) if source["updated"] else "not yet"
        counts = f"{source['documents']:,}", f"{source['skipped']:,}"
        rows.append((printable(source["name"]), source["kind"], *counts, read))
    print_text(table_of(("", "kind", "documents", "skipped", "read"), rows, padding=(0, 2, 0, 0)))
    for source in figures["sources"]:
        for entry in source.get("log", ()):
            print(f"{printable(entry['key'])}: {entry['code']}: {printable(entry['sentence'])}")


@app.command()
def join(
    context: Context,
    invitation: Annotated[Path, Argument(help="Invitation from the operator of a federation.")],
    consent: Annotated[bool, Option("--consent", help="Agree to take part now; otherwise on the page.")] = False,
    json: Json = False,
) -> None:
    """Join a federation of searches, which trains one shared ranker from many people's choices.

    Nothing is sent before you consent, and then only releases. The page
    "Learned" lists all of them, and lets you withdraw.
    """
    with _opened(context) as opened:
        opened.membership.join(invitation)
        if consent:
            opened.membership.consent(True)
        figures = opened.membership.status() or {}
    told = "joined {run}; consent is {on}; a release needs {needed} choices, and `quorank search serve` sends it"
    on = "on" if figures.get("consent") else "off, so nothing is sent"
    print_result(figures, json, lambda found: print_lines(told.format(on=on, **found)))


@app.command()
def serve(
    context: Context,
    port: Annotated[int, Option(min=0, max=65535, help="Loopback port; 0 takes a free one.")] = 0,
    browser: Annotated[bool, Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Serve the page on this machine only, update the index, and take part in a joined federation."""
    from quorank.search.pages.server import serve_forever

    serve_forever(context.obj, port=port, browser=browser, say=say)


@app.command()
def demo(
    persons: Annotated[int, Option(help="Number of persons, 2 to 6.")] = 3,
    documents: Annotated[int, Option(help="Number of documents per person.")] = 400,
    queries: Annotated[int, Option(help="Queries per person and day.")] = 20,
    days_alone: Annotated[int, Option(help="Days before the persons join.")] = 2,
    days: Annotated[int, Option(help="Days after the persons have joined.")] = 6,
    seed: Annotated[int, Option(help="Random seed.")] = 1,
    out: Annotated[
        Path | None,
        Option(help="Folder for all data, which is kept.", show_default="a temporary one, removed at the end"),
    ] = None,
    once: Annotated[bool, Option("--once", help="Exit after the last day instead of serving the pages.")] = False,
    json: Json = False,
) -> None:
    """Run a demonstration with simulated persons who search alone and in a federation.

    Each has notes, searches through a real page, and joins a real service
    on this machine. At the end it prints the metrics of their lists and
    serves all pages until Ctrl-C.
    """
    import tempfile
    import time
    from contextlib import ExitStack

    from quorank.cli.display import compiling, progress_lines
    from quorank.cli.service import check_installed
    from quorank.files.atomic import make_folder
    from quorank.kernels.process import interruptible

    check_installed()
    from quorank.search.demo.demonstration import DemoPlan, run_demo

    told = compiling()
    plan = DemoPlan(persons, documents, queries, days_alone, days, seed)
    with ExitStack() as stack:
        if out is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorank-search-")))
        else:
            folder = out.absolute()
            empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
            require(empty, "folder.not-empty", "is not empty; choose another one", f"--out {out}")
            make_folder(folder, private=True)
        asked, progress = stack.enter_context(interruptible()), progress_lines("percent done:")

        def tell(done: int, total: int) -> None:
            if asked():
                raise KeyboardInterrupt
            progress(100 * done // total, 100)

        told()
        shown = stack.enter_context(run_demo(plan, folder, say=say, tell=tell))
        print_result(shown, json, _show_demo)
        if not once:
            say(f"everything is in {folder}; press Ctrl-C to end" + ("" if out else ", which removes it"))
            sys.stdout.flush()
            while not asked():
                time.sleep(0.2)


def _show_demo(figures: dict[str, Any]) -> None:
    columns, persons = {"first": "first day", "alone": "last day, alone", "together": "together"}, figures["persons"]
    rows = [[person["name"], *(f"{person[moment]:.3f}" for moment in columns)] for person in persons]
    print_text(table_of(("nDCG@10", *columns.values()), rows, "right", padding=(0, 2, 0, 0)))
    learned, joining = (
        f"{figures[name]['mean']:+.3f} ± {figures[name]['error']:.3f}" for name in ("learned", "joining")
    )
    print(f"lists shown: {learned} from the first day to the last; {joining} by joining")
    sent = ", ".join(f"{one['name']} {one['releases']} of {one['bytes_sent']:,} bytes in all" for one in persons)
    print(
        f"{figures['service']['rounds']} rounds; releases: {sent}; no noise: with few persons it would drown the updates"
    )
    quick = figures["milliseconds"]
    print(f"a search takes {quick['median']:.0f} ms, at most {quick['p95']:.0f} in 95 %")
    for one in persons:
        print(f"{one['name']}: {one['page']}  try: {one['try']}")
    print(f"operator: {figures['service']['page']}  (self-signed certificate: the browser shows a warning)")
