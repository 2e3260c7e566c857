"""A target: a function from bytes that may raise nothing but BadInput, with its limits and the shape of its inputs."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
_MARK = b"sha256:"
VALID = "valid"
"""Names of seeds that a target must take without a refusal begin so."""


@dataclass(frozen=True)
class Target:
    """Parser with its limits."""

    name: str
    run: Callable[[bytes], object]
    shape: str = "bytes"  # how inputs are changed (`mutations.SHAPES`)
    words: tuple[bytes, ...] = ()  # of the parser's language
    seconds: float = 5.0  # of processor time, for one input
    megabytes: int = 512  # beyond what the process has when it starts
    made: Callable[[], dict[str, bytes]] | None = None  # inputs too large for the corpus, tried first

    @property
    def folder(self) -> Path:
        """Folder of the target's inputs."""
        return CORPUS / self.name

    def seeds(self) -> dict[str, bytes]:
        """The inputs of the corpus by name."""
        return {file.name: file.read_bytes() for file in sorted(self.folder.glob("*")) if file.is_file()}


TARGETS: dict[str, Target] = {}


def target(
    name: str,
    shape: str = "bytes",
    words: tuple[bytes, ...] = (),
    *,
    seconds: float = 5.0,
    megabytes: int = 512,
    made: Callable[[], dict[str, bytes]] | None = None,
) -> Callable[[Callable[[bytes], object]], Callable[[bytes], object]]:
    """Register a function as a target."""

    def register(run: Callable[[bytes], object]) -> Callable[[bytes], object]:
        assert name not in TARGETS, name
        TARGETS[name] = Target(name, run, shape, words, seconds, megabytes, made)
        return run

    return register


@cache
def _scratch(process: int) -> Path:
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix=f"quorank-fuzz-{process}-", dir=memory if os.access(memory, os.W_OK) else None))


def scratch() -> Path:
    """An empty folder of this process, in memory where there is such a place."""
    folder = _scratch(os.getpid())
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)  # noqa: PTH108
    return folder


def remove_scratch() -> None:
    """Delete the folder of this process."""
    shutil.rmtree(_scratch(os.getpid()), ignore_errors=True)


def as_file(data: bytes, name: str) -> Path:
    """The input as the only file of the scratch folder."""
    path = scratch() / name
    path.write_bytes(data)
    return path


def sealed_archive(data: bytes) -> bytes:
    """The input with the digest that an archive of arrays ends with (`files.npz`), where it ends like one."""
    body = data[:-64]
    if not body.endswith(_MARK):
        if not data.endswith(b"\0\0"):  # the length of a zip's comment
            return data
        body = data[:-2] + (len(_MARK) + 64).to_bytes(2, "little") + _MARK
    return body + hashlib.sha256(body).hexdigest().encode()


def as_folder(data: bytes, folder: Path) -> Path:
    """Several files in one input: each begins behind a line `=== name`; names are made harmless."""
    folder.mkdir(parents=True, exist_ok=True)
    for piece in data.split(b"=== ")[1:]:
        name, _, content = piece.partition(b"\n")
        plain = (
            "".join(c for c in name.decode("ascii", "replace") if c.isalnum() or c in "._-/")[:60].strip("/.") or "x"
        )
        path = folder / Path(*[part for part in plain.split("/") if part.strip(".")])
        if path != folder and not path.exists() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder
