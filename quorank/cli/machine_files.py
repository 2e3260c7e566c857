"""Files for the machine of a service: units for systemd, a container file, and a reverse proxy for nginx.

The templates are in `files/`; paths and ports of the folder are filled in here. The units do not set
MemoryDenyWriteExecute, because compiled kernels are written to memory and then run.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from quorank.errors import require
from quorank.files.atomic import write_whole
from quorank.service.home import Home

TEMPLATES = Path(__file__).parent / "files"
FILES = ("nginx.conf", "quorank-coordinator.service", "quorank-join.service", "Containerfile")
SILO_FILES = ("nginx.conf", "quorank-silo.service", "quorank-party.service")
"""Files for a coordinator of devices, and for one of parties."""

STATE_ROOT = Path("/var/lib")
"""Folder in which systemd keeps the state of services (StateDirectory=)."""

_MARK = re.compile(r"@([A-Z]+)@")
_PLAIN = re.compile(r"[A-Za-z0-9._/+:\[\]-]+")


def render(home: Home, name: str) -> str:
    """Return one of the files for a folder."""
    known = dict.fromkeys((*FILES, *SILO_FILES))
    require(name in known, "template.unknown", f"expected {', '.join(known)}", f"{name}")
    settings, folder = home.settings, home.path
    host = settings.host if ":" not in settings.host else f"[{settings.host}]"
    values = {
        "LISTEN": f"{host}:{settings.port}",
        "NAME": urlsplit(settings.url).hostname or "localhost",
        "ADDRESS": settings.address,
        "PORT": str(settings.port),
        "SCHEME": "http" if settings.behind_proxy else "https",
        "FOLDER": str(folder),
    }
    command = executable()
    for key, value in [*values.items(), *(("command", word) for word in command)]:
        require(
            _PLAIN.fullmatch(value),
            "value.not-plain",
            "has blanks, quotes or the like, which configuration files cannot hold; choose a folder without them",
            f"{key.lower()} {value!r}",
        )
    values |= {"STATE": _state(folder), "QUORANK": " ".join(command)}
    values["HARDENING"] = _hardening([folder, Path(command[0])])
    template = (TEMPLATES / name).read_text(encoding="utf-8")
    return _MARK.sub(lambda mark: values[mark[1]], template)


def write(home: Home, out: Path, names: Sequence[str] = FILES) -> list[Path]:
    """Write files into a folder."""
    texts = {name: render(home, name) for name in names}
    require(out.is_dir() or not out.exists(), "folder.is-file", "this is a file; expected a directory", f"{out}")
    require(
        out.absolute().parent.is_dir(),
        "folder.missing",
        f"the directory {out.absolute().parent} does not exist",
        f"{out}",
    )
    out.mkdir(exist_ok=True)
    return [write_whole(out / name, text) for name, text in texts.items()]


def executable() -> list[str]:
    """Return the command of this installation."""
    script = Path(sysconfig.get_path("scripts")) / "quorank"
    return [str(script)] if script.exists() else [sys.executable, "-m", "quorank.cli.main"]


def _hardening(needed: list[Path]) -> str:
    """Return the restrictions of the units; homes are hidden, or read-only if the installation is in one."""
    text = (TEMPLATES / "hardening.conf").read_text(encoding="utf-8").strip()
    homes = (Path("/home"), Path("~root").expanduser())
    inside = any(path.is_relative_to(home) for path in needed for home in homes)
    return text.replace("ProtectHome=yes", "ProtectHome=read-only") if inside else text


def _state(folder: Path) -> str:
    """Return the setting that lets the unit write to the coordinator's folder and to nothing else."""
    if folder.is_relative_to(STATE_ROOT) and folder != STATE_ROOT:
        return f"StateDirectory={folder.relative_to(STATE_ROOT)}\nStateDirectoryMode=0700"
    return f"ReadWritePaths={folder}"
