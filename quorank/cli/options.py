"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from quorank.errors import require

Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
Tag = Annotated[str, Option(help="Name of the run in the TREC file.")]
Fold = Annotated[int, Option(help="Fold of a collection with five folds.")]

# coordinators of devices and of parties
InsidePort = Annotated[int | None, Option(help="Loopback port of the engine.", show_default="9093")]
Proxy = Annotated[
    bool | None,
    Option(
        "--proxy/--no-proxy",
        help="Start the built-in proxy in front of the engine, or leave that to nginx.",
        show_default="--proxy",
    ),
]
RunName = Annotated[str | None, Option(help="Name of the run.", show_default="the file's name")]
MetricsPort = Annotated[int | None, Option(help="Serve /metrics and /health on this loopback port.")]
Detach = Annotated[bool, Option("--detach", help="Run in the background.")]
InvitationOut = Annotated[Path | None, Option(help="File for the invitation.", show_default="NAME.json")]
FilesOut = Annotated[Path | None, Option(help="Folder for the files.", show_default="DIR/files")]

# devices and parties that join
InvitationFile = Annotated[Path | None, Option(help="Invitation, needed once: the folder keeps it.")]
Consent = Annotated[Literal["on", "off"] | None, Option(help="Consent to take part, or withdraw.")]


def at_most_one(**flags: bool) -> str:
    """Return the name of the one flag that is set, or ""; raise BadInput for several."""
    given = [f"--{name}" for name, on in flags.items() if on]
    require(len(given) <= 1, "option.conflict", "choose one of them", " and ".join(given))
    return "".join(given)
