"""Command line: one module for each verb; messages go to stderr, results to stdout; bad input exits with 2."""

from __future__ import annotations

if __name__ == "__main__":  # before anything large is imported
    from quorank.cli.start import main as start

    start()

import sys
from importlib import import_module
from typing import Annotated

import typer
from typer import Option

from quorank import __version__
from quorank.errors import BadInput, Interrupted, printable

VERBS = (
    "demo", "run", "bench", "data", "compare", "report", "evaluate", "predict", "export", "reproduce", "privacy",
    "unlearn", "search", "silo", "tune", "coordinator", "join",
)  # fmt: skip


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


def _quorank(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def application(*names: str) -> typer.Typer:
    """Return a command line with some of the verbs, by default all of them; only their modules are imported."""
    program = typer.Typer(
        name="quorank",
        help="Learn one ranker from many people's searches, without collecting them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_quorank)
    for name in names or VERBS:
        module = import_module(f"quorank.cli.{'compare' if name == 'report' else name}")
        if hasattr(module, "app"):
            program.add_typer(module.app, name=name)
        else:
            program.command(name)(getattr(module, name))
    return program


def main() -> None:
    """Run the command line; bad input ends in one sentence."""
    try:
        application(*(name for name in sys.argv[1:2] if name in VERBS))()
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
        print(f"quorank: {printable(str(error))}", file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("quorank: not enough memory", file=sys.stderr)
        sys.exit(1)
