"""Files of ours: they appear complete or not at all, are read within a bound, and where what can be made again is kept.

`documents`, `array_files` and `column_files` are the gate for what is inside of them: JSON and TOML, arrays, Parquet.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from quorank.errors import BadInput, first_line

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock

_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")
"""Names of temporary files: `.NAME.PROCESS.TOKEN.tmp`."""


def atomically(file: Path, save: Callable[[Path], object], *, durable: bool = False, private: bool = False) -> None:
    """Let `save` fill a temporary file beside `file` that takes its place when it is complete.

    `durable`: when this returns, the file is on disk under its name, also if the power fails now. `private`: it is its
    owner's alone (mode 0600) from its first byte on. The temporary file is locked for as long as this process fills it,
    so that `remove_leftovers` tells it from one that a killed process left.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        held = _made(temporary, 0o600 if private else 0o666)
        try:
            save(temporary)
            if durable:
                on_disk(temporary)
            temporary.replace(file)
        finally:
            os.close(held)
        if durable:
            on_disk(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _made(temporary: Path, mode: int) -> int:
    """An empty new file that is locked until the returned descriptor is closed."""
    held = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # a file system without locks
            flock(held, LOCK_EX | LOCK_NB)
    return held


def remove_leftovers(*folders: Path) -> list[Path]:
    """Delete the temporary files of `atomically` that processes which are gone left in these folders; return them."""
    removed = []
    for folder in folders:
        try:
            found = [path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name)]
        except OSError:
            continue
        removed += [path for path in found if _removed(path)]
    return removed


def _removed(path: Path) -> bool:
    """Delete one temporary file unless the process that fills it is alive."""
    try:
        if path.is_symlink() or not path.is_file():
            return False
        if sys.platform != "win32":
            held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                flock(held, LOCK_EX | LOCK_NB)
                path.unlink()
            finally:
                os.close(held)
        else:
            path.unlink()  # refused there while another process has it open
    except OSError:
        return False
    return True


def on_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path | str, content: bytes | str, *, durable: bool = False, private: bool = False) -> Path:
    """Write beside the target and rename: a reader, or a crash, never meets half a file.

    What was promised to somebody is written `durable`, which waits for the disk twice; what can be made again is not.
    What others on the machine must not read is `private`.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise BadInput("file.no-directory", f"the directory {target.parent} does not exist", str(target))
    if target.is_dir():
        raise BadInput("file.is-a-directory", "this is a directory; expected the name of a file", str(target))
    encoded = content if isinstance(content, bytes) else content.encode()
    try:
        atomically(target, lambda temporary: temporary.write_bytes(encoded), durable=durable, private=private)
    except PermissionError as error:
        raise BadInput("file.not-writable", f"cannot be written ({error.strerror})", str(target)) from None
    except OSError as error:  # a full disk does not say for which file
        raise OSError(error.errno, error.strerror or str(error), str(target)) from None
    return target


@contextlib.contextmanager
def new_folder(folder: Path, taken: str) -> Iterator[Path]:
    """Make a folder for its owner alone (mode 0700): filled under another name, it appears whole or not at all.

    Where it is there already it must be empty; `taken` is the sentence for one that is not.
    """
    target = folder.absolute()
    if not target.parent.is_dir():
        raise BadInput("folder.missing", f"the directory {target.parent} does not exist", str(folder))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput("folder.not-empty", taken, str(folder))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    temporary.mkdir(mode=0o700)
    try:
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            on_disk(path)
        temporary.rename(target)  # over an empty folder, if there is one
        on_disk(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


class ProcessLock:
    """A file that a process locks while it works, however it ends, and that says which process it is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Hold it inside the block; False where another process does."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                yield False
                return
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield True
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def process(self) -> int | None:
        """The process that holds it; None where none does."""
        try:
            descriptor = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            flock(descriptor, LOCK_SH | LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            return int(text) if text.isdecimal() else None
        else:
            return None
        finally:
            os.close(descriptor)


def make_private_folder(folder: Path) -> None:
    """Make a folder that its owner alone may look into (mode 0700), or make one that is there so."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise BadInput("folder.unwritable", f"cannot be created ({error.strerror})", str(folder)) from None


def read_whole(
    path: Path | str, most: int, digest: str | None = None, code: str = "file.damaged", advice: str = ""
) -> bytes:
    """Read a file of at most `most` bytes, and of this SHA-256 where one is known; what is no such file is refused.

    Nothing but an ordinary file is opened, and no more than `most` bytes of it are ever in memory. `advice` ends every
    refusal.
    """
    where = str(path)
    try:
        held = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise BadInput("file.missing", f"no such file{advice}", where) from None
    except (OSError, ValueError) as error:
        raise BadInput(code, f"cannot be read ({_reason(error)}){advice}", where) from None
    try:
        found = os.fstat(held)
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(code, f"this is no ordinary file{advice}", where)
        with os.fdopen(held, "rb", closefd=False) as file:
            content = file.read(min(found.st_size, most) + 1)
    except OSError as error:
        raise BadInput(code, f"cannot be read ({_reason(error)}){advice}", where) from None
    finally:
        os.close(held)
    if len(content) > most:
        raise BadInput("file.too-large", f"larger than {most:,} bytes, which no such file is{advice}", where)
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        sentence = f"damaged or exchanged: it is not what was written here last; restore it{advice}"
        raise BadInput(code, sentence, where)
    return content


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or first_line(error)


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
