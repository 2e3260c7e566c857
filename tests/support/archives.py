"""Archives with members of any name and kind, sound or not."""

from __future__ import annotations

import io
import tarfile
import warnings
import zipfile


def zipped(*members: tuple[str, bytes], mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, content in members:
            info = zipfile.ZipInfo("x")
            info.filename = info.orig_filename = name
            info.external_attr, info.compress_type = mode << 16, method
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a name that stands twice
                packed.writestr(info, content)
    return out.getvalue()


def tarred(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, packing: str = "", **more: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{packing}", format=tarfile.PAX_FORMAT) as packed:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content) if kind == tarfile.REGTYPE else 0, "/etc/passwd"
            info.pax_headers = more
            packed.addfile(info, io.BytesIO(content))
    return out.getvalue()
