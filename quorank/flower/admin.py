"""Several commands of Flower's own command line in one process, since each start of it costs a second.

`python -m quorank.flower.admin OUT COMMAND…` with each command a list of words in JSON; what they print as JSON is
written to OUT as one list.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import click
from flwr.cli.app import app

from quorank.files.atomic import write_whole


def main() -> None:
    """Run the commands one after the other; one that fails answers with {"success": False}, and the next is run."""
    found: list[dict[str, Any]] = []
    for command in map(json.loads, sys.argv[2:]):
        printed = io.StringIO()
        try:
            sys.stdout = sys.__stdout__ = printed  # type: ignore[assignment,misc]  # Flower prints JSON to the latter
            app([*command, "--format", "json"], standalone_mode=False)
            text = printed.getvalue()
            found.append(json.loads(text[text.index("{") :]))
        except (click.ClickException, click.exceptions.Exit, SystemExit, ValueError) as error:
            print(f"{command[0]}: {error} {printed.getvalue()}", file=sys.stderr)
            found.append({"success": False})
    write_whole(sys.argv[1], json.dumps(found))


if __name__ == "__main__":
    main()
