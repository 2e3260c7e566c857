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

# devices and parties that join
InvitationFile = Annotated[Path | None, Option(help="Invitation file; needed once.")]
Consent = Annotated[Literal["on", "off"] | None, Option(help="Give or withdraw consent to take part.")]


def at_most_one(**flags: bool) -> str:
    """Return the name of the one flag that is set, or ""; raise BadInput for several."""
    given = [f"--{name}" for name, on in flags.items() if on]
    require(len(given) <= 1, "option.conflict", "choose one of them", " and ".join(given))
    return "".join(given)
