"""Command line: one module for each verb; messages go to stderr, results to stdout; bad input exits with 2."""

from __future__ import annotations

if __name__ == "__main__":  # before anything large is imported
    from quorank.cli.start import main as start

    start()

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from typer import Option

from quorank import __version__
from quorank.cli import (
    bench,
    compare,
    coordinator,
    data,
    demo,
    evaluate,
    export,
    join,
    predict,
    privacy,
    reproduce,
    run,
    search,
    silo,
    tune,
    unlearn,
)
from quorank.errors import BadInput, Interrupted

VERBS: dict[str, Callable[..., None] | typer.Typer] = {
    "demo": demo.demo,
    "run": run.run,
    "bench": bench.bench,
    "data": data.app,
    "compare": compare.compare,
    "report": compare.report,
    "evaluate": evaluate.evaluate,
    "predict": predict.predict,
    "export": export.app,
    "reproduce": reproduce.reproduce,
    "privacy": privacy.app,
    "unlearn": unlearn.unlearn,
    "search": search.app,
    "silo": silo.app,
    "tune": tune.app,
    "coordinator": coordinator.app,
    "join": join.join,
}


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


def _quorank(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def application(*names: str) -> typer.Typer:
    """Return a command line with some of the verbs."""
    program = typer.Typer(
        name="quorank",
        help="Learn one ranker from many people's searches, without collecting them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_quorank)
    for name in names:
        verb = VERBS[name]
        if isinstance(verb, typer.Typer):
            program.add_typer(verb, name=name)
        else:
            program.command(name)(verb)
    return program


app = application(*VERBS)


def main() -> None:
    """Run the command line; bad input ends in one sentence."""
    asked = sys.argv[1:2]
    try:
        # reading the options of all verbs takes longer than most verbs
        (application(*asked) if asked and asked[0] in VERBS else app)()
    except BadInput as error:
        print(f"quorank: {' '.join(f'{error}'.split())}", file=sys.stderr)  # one line, even if it quotes several
        sys.exit(2)
    except Interrupted as stopped:
        print(f"quorank: stopped after round {stopped.round} of {stopped.rounds}", file=sys.stderr)
        sys.exit(130)
    except KeyboardInterrupt:
        print("quorank: stopped", file=sys.stderr)
        sys.exit(130)
    except SystemExit as ended:
        if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):  # Typer prints nothing
            print("quorank: stopped", file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("quorank: there is not enough memory for this", file=sys.stderr)
        sys.exit(1)
