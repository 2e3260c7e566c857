"""The command line: one module a verb. Messages go to stderr, results to stdout; bad input exits with 2."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quorank import __version__
from quorank.cli import (
    bench,
    compare,
    coordinator,
    data,
    demo,
    evaluate,
    join,
    privacy,
    report,
    reproduce,
    run,
    silo,
    tune,
    unlearn,
)
from quorank.errors import BadInput, Interrupted

app = typer.Typer(
    name="quorank",
    help="Learn one ranker from many people's searches, without collecting them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _quorank(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command()(demo.demo)
app.command()(run.run)
app.command()(bench.bench)
app.add_typer(data.app, name="data")
app.command()(compare.compare)
app.command()(report.report)
app.command()(evaluate.evaluate)
app.command()(reproduce.reproduce)
app.add_typer(privacy.app, name="privacy")
app.command()(unlearn.unlearn)
app.add_typer(silo.app, name="silo")
app.add_typer(tune.app, name="tune")
app.add_typer(coordinator.app, name="coordinator")
app.command()(join.join)


def main() -> None:
    """The entry point: every refusal is one sentence."""
    try:
        app()
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as stopped:
        print(f"quorank: stopped after round {stopped.round} of {stopped.rounds}", file=sys.stderr)
        sys.exit(130)
    except KeyboardInterrupt:
        print("quorank: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
