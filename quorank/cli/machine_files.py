"""Files for the machine of a service: units for systemd, a container file, and a reverse proxy for nginx.

The units do not set MemoryDenyWriteExecute, because compiled kernels are written to memory and then run.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path
from urllib.parse import urlsplit

from quorank.errors import require
from quorank.files.atomic import write_whole
from quorank.reports.page import environment
from quorank.service.home import Home

DEVICES = {
    "nginx.conf": "nginx.conf",
    "quorank-coordinator.service": "service.service",
    "quorank-join.service": "member.service",
    "Containerfile": "Containerfile",
}
PARTIES = {
    "nginx.conf": "nginx.conf",
    "quorank-silo.service": "service.service",
    "quorank-party.service": "member.service",
}
"""Templates of the files for a service of devices, and of a group."""
STATE_ROOT = Path("/var/lib")
"""Folder in which systemd keeps the state of services (StateDirectory=)."""
_PLAIN = re.compile(r"[A-Za-z0-9._/+:\[\]-]+")


def write(home: Home, out: Path) -> list[Path]:
    """Write the files of a service into a folder; configuration files cannot quote, so each value must be plain."""
    settings, folder, group = home.settings, home.path, home.settings.kind == "silo"
    script = Path(sysconfig.get_path("scripts")) / "quorank"
    command = [str(script)] if script.exists() else [sys.executable, "-m", "quorank.cli.main"]
    values = {
        "listen": f"{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}",
        "name": urlsplit(settings.url).hostname or "localhost",
        "address": settings.address,
        "port": str(settings.port),
        "scheme": "http" if settings.behind_proxy else "https",
        "folder": str(folder),
    }
    sentence = "has blanks, quotes or the like, which configuration files cannot hold; choose a folder without them"
    for key, value in [*values.items(), *(("command", word) for word in command)]:
        require(_PLAIN.fullmatch(value), "value.not-plain", sentence, f"{key} {value!r}")
    # homes are hidden from a unit, or read-only if the installation or the folder is in one
    homes = (Path("/home"), Path("~root").expanduser())
    inside = any(path.is_relative_to(home) for path in (folder, Path(command[0])) for home in homes)
    state = f"ReadWritePaths={folder}"
    if folder.is_relative_to(STATE_ROOT) and folder != STATE_ROOT:
        state = f"StateDirectory={folder.relative_to(STATE_ROOT)}\nStateDirectoryMode=0700"
    values |= {
        "quorank": " ".join(command),
        "state": state,
        "homes": "read-only" if inside else "yes",
        "verb": "silo" if group else "coordinator",
        "member": "party" if group else "device",
    }
    names = PARTIES if group else DEVICES
    templates = {name: environment("quorank.cli").get_template(file) for name, file in names.items()}
    require(out.is_dir() or not out.exists(), "folder.is-file", "this is a file; expected a directory", f"{out}")
    sentence = f"the directory {out.absolute().parent} does not exist"
    require(out.absolute().parent.is_dir(), "folder.missing", sentence, f"{out}")
    out.mkdir(exist_ok=True)
    return [write_whole(out / name, template.render(values)) for name, template in templates.items()]
