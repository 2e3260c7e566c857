"""Entry point of the command line: what must be in place before anything large is imported, and how the process ends.

Ctrl-C is answered with one line and exit code 130 from here on: during imports at once, since nothing is begun then and an
import that is broken off may leave a library in pieces; later by KeyboardInterrupt, so that what is open is closed. The
process ends without Python's finalisation, in which threads of compiled code and their libraries would be taken down in
any order.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # signal itself takes half as long as Python to start
import os
import sys

from quorank.kernels.steady import steady_environment

TYPE_CHECKING = False  # as typing has it, which is not imported here for the same reason
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

STOPPED = 130
_IMPORTING = "<frozen importlib._bootstrap>"
_PLAIN = {
    "ε": "epsilon", "δ": "delta", "η": "eta", "θ": "theta", "σ": "sigma", "Σ": "sum", "γ": "gamma", "Δ": "Delta",
    "≤": "<=", "≥": ">=", "≈": "~", "×": "x", "−": "-", "–": "-", "—": "-", "…": "...", "·": "*", "→": "->", "∞": "inf",
    "“": '"', "”": '"', "‘": "'", "’": "'", "±": "+-", "′": "'", "ᵗ": "^t", "⁻": "-", "¹": "1", "µ": "u",
}  # fmt: skip
"""What stands for signs that a terminal cannot show."""


def main() -> NoReturn:
    """Run the command line as a process of its own."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as behind nohup
        signal.signal(signal.SIGINT, _early)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    show_anything()
    for name, value in steady_environment().items():
        os.environ.setdefault(name, value)
    sys.unraisablehook = _unraisable
    code = 1
    try:
        from importlib import import_module

        command = import_module("quorank.cli.main").main
        if signal.getsignal(signal.SIGINT) is _early:
            signal.signal(signal.SIGINT, _interrupted)
        command()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:  # between two commands' own answers to it
        stop_at_once()
    except BaseException:
        import traceback

        traceback.print_exc()
    end(code)


def _early(number: int, frame: FrameType | None) -> None:
    """Answer Ctrl-C before there is a command."""
    stop_at_once()


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Answer Ctrl-C: at once where something is being imported, else as Python does."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            stop_at_once()
        frame = frame.f_back
    raise KeyboardInterrupt


def _unraisable(what: Any) -> None:
    """An exception that nobody can catch, as in the end of an object: Ctrl-C is still Ctrl-C there."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        stop_at_once()
    sys.__unraisablehook__(what)


def stop_at_once() -> NoReturn:
    """End with the one line of an interruption; a cursor that a progress bar hid is shown again."""
    shown = b"\x1b[?25h" if os.isatty(2) else b""
    os.write(2, shown + b"quorank: stopped\n")
    os._exit(STOPPED)


def end(code: int) -> NoReturn:
    """End the process with what it printed and its exit functions, but without taking Python down."""
    import atexit

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BrokenPipeError:
            code = code or 141
        except OSError as error:
            os.write(2, f"quorank: {error}\n".encode(errors="replace"))
            code = code or 1
    os._exit(code & 0xFF)


def show_anything() -> None:
    """Let both outputs take every sign: what their encoding lacks is written in letters (ε as epsilon), or as a code."""
    import codecs

    codecs.register_error("quorank-plain", _in_letters)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="quorank-plain")


def _in_letters(error: UnicodeError) -> tuple[str, int]:
    """What stands for signs that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    shown = (_PLAIN.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in lacking)
    return "".join(shown), error.end


if __name__ == "__main__":
    main()
