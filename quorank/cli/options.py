"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from quorank.errors import require

Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
FiguresJson = Annotated[bool, Option("--json", help="Print the figures as JSON, alone, on stdout.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress.")]
Tag = Annotated[str, Option(help="Name of the run in a TREC file.")]
Fold = Annotated[int, Option(help="Fold of a collection in five folds.")]

# coordinators, of devices and of parties
InsidePort = Annotated[int | None, Option(help="Loopback port of the engine.", show_default="9093")]
Proxy = Annotated[
    bool | None,
    Option(
        "--proxy/--no-proxy",
        help="Whether the built-in proxy stands before the engine, or nginx does.",
        show_default="--proxy",
    ),
]
RunName = Annotated[str | None, Option(help="Name of the run.", show_default="the file's name")]
MetricsPort = Annotated[int | None, Option(help="Serve /metrics and /health on this loopback port.")]
Detach = Annotated[bool, Option("--detach", help="Run in the background.")]
InvitationOut = Annotated[Path | None, Option(help="Where to write the invitation.", show_default="NAME.json")]
FilesOut = Annotated[Path | None, Option(help="Where to write them.", show_default="DIR/files")]

# devices and parties that join
InvitationFile = Annotated[Path | None, Option(help="The invitation; it is kept in the folder, so it is needed once.")]
Consent = Annotated[Literal["on", "off"] | None, Option(help="Agree to take part, or withdraw, at any time.")]


def at_most_one(**flags: bool) -> str:
    """Return which one of these flags was given, "" for none; several are refused."""
    given = [f"--{name}" for name, on in flags.items() if on]
    require(len(given) <= 1, "option.conflict", "choose one of them", " and ".join(given))
    return "".join(given)
