"""Atomic writes, bounded reads and locks of our own files.

`documents`, `npz` and `arrow` check the content: JSON and TOML, arrays, Parquet.
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

from quorank.errors import BadInput, first_line, require

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock

_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")  # names of temporary files: `.NAME.PROCESS.TOKEN.tmp`


def atomically(file: Path, save: Callable[[Path], object], *, durable: bool = False, private: bool = False) -> None:
    """Fill a temporary file with `save` and rename it to `file`.

    Args:
        file: Target, which is replaced.
        save: Function that writes the temporary file of the given path.
        durable: Sync the content and the name to disk before returning.
        private: Create the file with mode 0600.

    The temporary file is locked while this process fills it, so that `remove_leftovers` spares it.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        held = os.open(temporary, flags, 0o600 if private else 0o666)
        try:
            if sys.platform != "win32":
                with contextlib.suppress(OSError):  # a file system without locks
                    flock(held, LOCK_EX | LOCK_NB)
            save(temporary)
            if durable:
                sync_to_disk(temporary)
            temporary.replace(file)
        finally:
            os.close(held)
        if durable:
            sync_to_disk(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(*folders: Path) -> list[Path]:
    """Delete the temporary files that killed processes left in these directories; return their paths."""
    removed = []
    for folder in folders:
        try:
            found = [path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name)]
        except OSError:
            continue
        removed += [path for path in found if _remove_unlocked(path)]
    return removed


def _remove_unlocked(path: Path) -> bool:
    """Delete a temporary file unless a living process fills it; return whether it was deleted."""
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


def sync_to_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path | str, content: bytes | str, *, durable: bool = False, private: bool = False) -> Path:
    """Write a file atomically: readers and crashes see the old or the new content.

    Args:
        path: Target, whose directory exists.
        content: Bytes, or a string to be encoded as UTF-8.
        durable: Sync content and name to disk before returning; needed only for confirmed content.
        private: Create the file with mode 0600.

    Raises:
        BadInput: The directory is missing or not writable, or the target is a directory.
        OSError: The disk is full; names the target.
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


def export_file(path: Path, save: Callable[[Path], object]) -> None:
    """Fill a file of the user with `save`, atomically; create its directory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomically(path, save)
    except OSError as error:
        raise BadInput("file.unwritable", f"cannot be written: {error.strerror}", f"{path}") from None


@contextlib.contextmanager
def new_folder(folder: Path, taken: str) -> Iterator[Path]:
    """Yield a temporary directory (mode 0700) that is renamed to `folder` when the block succeeds.

    An existing directory must be empty; `taken` is the sentence for one that is not.
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
            sync_to_disk(path)
        temporary.rename(target)  # over an empty folder, if there is one
        sync_to_disk(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


class ProcessLock:
    """Lock file of one process that names its holder; it is released however the process ends.

    Not filelock 4.2: it does not name the holder, and its import takes 11 ms of every start.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._descriptor = path, -1

    def acquire(self) -> bool:
        """Acquire the lock for this process; return False if another process holds it."""
        if self._descriptor >= 0:
            return True
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        if os.fstat(descriptor).st_nlink == 0:  # its holder has just deleted it, and others may hold a new one
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # on a full disk the lock is held without a name
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return True

    def release(self) -> None:
        """Release the lock if this process holds it."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    @contextlib.contextmanager
    def hold(self, busy: str = "") -> Iterator[bool]:
        """Hold the lock inside the block. If another process holds it: raise `folder.busy` with `busy`, or yield False."""
        acquired = self.acquire()
        if busy and not acquired:
            raise BadInput("folder.busy", busy, f"{self.path.parent}")
        try:
            yield acquired
        finally:
            if acquired:
                self.release()

    def holder(self) -> int | None:
        """Return the process id of the holder, or None."""
        try:
            descriptor = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            flock(descriptor, LOCK_SH | LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            return int(text) if text.isdecimal() else None
        finally:
            os.close(descriptor)
        return None


def make_folder(folder: Path, *, private: bool = False) -> None:
    """Create a directory and its parents; a private one gets mode 0700, also if it exists.

    Raises:
        BadInput: `folder.not-private` for files in a private folder that others may write to, who may have planted them;
            `folder.unwritable`.
    """
    try:
        folder.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
        if private:
            check_private(folder)
            if folder.stat().st_mode & 0o077:
                folder.chmod(0o700)
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise BadInput("folder.unwritable", f"cannot be created ({_reason(error)})", str(folder)) from None


def check_private(folder: Path) -> None:
    """Raise BadInput (`folder.not-private`) for a directory with files that others may have planted."""
    found = folder.stat()
    foreign = found.st_mode & 0o022 or found.st_uid != os.geteuid()
    sentence = "others may write to this folder, and it holds files; remove what is not yours, and allow it only to you"
    require(not foreign or not any(folder.iterdir()), "folder.not-private", sentence, str(folder))


def read_whole(
    path: Path | str, most: int, digest: str | None = None, code: str = "file.damaged", advice: str = ""
) -> bytes:
    """Read a regular file of at most `most` bytes.

    Args:
        path: File; pipes and devices are rejected without waiting for them.
        most: Upper bound on the bytes in memory.
        digest: Expected SHA-256 in hexadecimal.
        code: Code of errors other than `file.missing` and `file.too-large`.
        advice: End of every error's sentence.
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
            raise BadInput(code, f"is not a regular file{advice}", where)
        with os.fdopen(held, "rb", closefd=False) as file:
            content = file.read(min(found.st_size, most) + 1)
    except OSError as error:
        raise BadInput(code, f"cannot be read ({_reason(error)}){advice}", where) from None
    finally:
        os.close(held)
    if len(content) > most:
        raise BadInput("file.too-large", f"larger than {most:,} bytes, the limit of such a file{advice}", where)
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        sentence = f"damaged or exchanged: its digest is not the recorded one; restore it{advice}"
        raise BadInput(code, sentence, where)
    return content


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or first_line(error)


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a content in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def expand_home(path: Path | str) -> Path:
    """Return a path with ~ expanded; that of an unknown user is kept."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
