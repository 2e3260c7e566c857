"""Entry point of the command line: signals, output encoding and BLAS settings before large imports, and process exit.

Ctrl-C prints one line and exits with 130. During imports it exits at once, since an interrupted import may leave a library
half loaded; later it raises KeyboardInterrupt, so that open files are closed. The process ends without Python's
finalisation, which would stop threads of compiled code and their libraries in any order.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # signal takes half as long to import as Python to start
import os
import sys

from quorank.kernels.steady import steady_environment

TYPE_CHECKING = False  # typing is slow to import too
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

STOPPED = 130
_IMPORTING = "<frozen importlib._bootstrap>"


def main() -> NoReturn:
    """Run the command line and end the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless it is ignored, as under nohup
        signal.signal(signal.SIGINT, _early)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for stream in (sys.stdout, sys.stderr):  # signs that an encoding lacks are escaped
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
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
    except KeyboardInterrupt:  # outside of a command's own handler
        stop_at_once()
    except BaseException:
        import traceback

        traceback.print_exc()
    end(code)


def _early(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C before a command is imported."""
    stop_at_once()


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C: exit at once during an import, else raise KeyboardInterrupt."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            stop_at_once()
        frame = frame.f_back
    raise KeyboardInterrupt


def _unraisable(event: Any) -> None:
    """Handle Ctrl-C where an exception cannot be raised, as in a finaliser."""
    if isinstance(event.exc_value, KeyboardInterrupt):
        stop_at_once()
    sys.__unraisablehook__(event)


def stop_at_once() -> NoReturn:
    """Print the line of an interruption, and exit."""
    os.write(2, b"quorank: stopped\n")
    os._exit(STOPPED)


def end(code: int) -> NoReturn:
    """Run exit functions, flush outputs and exit without Python's finalisation."""
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


if __name__ == "__main__":
    main()
