"""Checked reading of JSON and TOML: size, nesting, numbers, repeated keys, and the dataclass or annotation to decode into.

`read_json` and `read_toml` read a file, `parse_json` and `parse_toml` parse bytes in memory. The manifest of a directory,
written last, holds the SHA-256 of each of its files. It detects damaged, exchanged and added files, but not the changes of
a person who may also write the manifest.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from quorank.errors import BadInput, brief
from quorank.files.atomic import read_whole, write_whole
from quorank.files.codec import Length, decode, encode

LARGEST = 1 << 26  # bytes of a JSON file by default
LARGEST_TOML = 1 << 21  # characters of a TOML file, enough for a ranker's 50,000 initial parameters
DEEPEST = 32  # nesting of lists and tables
LONGEST_NUMBER, LONGEST_STRING = 40, 1 << 12  # digits of an integer, and characters of a string in a TOML file
MANIFEST, FORMAT = "manifest.json", "quorank-manifest/1"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def json_bytes(content: Any) -> bytes:
    """Encode a value or a dataclass as the JSON files of a run are written."""
    return (json.dumps(encode(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(
    path: Path,
    hint: Any = dict[str, Any],
    *,
    most: int = LARGEST,
    digest: str | None = None,
    code: str = "file.damaged",
    advice: str = "",
) -> Any:
    """Read a JSON file; `code` and `advice` are as in `parse_json`."""
    content = read_whole(path, most, digest, code, advice)
    return parse_json(content, hint, str(path), code=code, advice=advice)


def parse_json(
    content: bytes | str, hint: Any = dict[str, Any], where: str = "", *, code: str = "file.damaged", advice: str = ""
) -> Any:
    """Parse JSON from an untrusted source and decode it.

    Args:
        content: Document; bytes must be UTF-8.
        hint: A dataclass or annotation for `codec.decode`; by default a table of anything.
        where: Name of the file in errors.
        code: Code of every error.
        advice: End of every error's sentence.

    Raises:
        BadInput: The content is not JSON, repeats a key, holds NaN, infinity or a number of too many digits, is nested
            too deeply, or does not fit `hint`.

    >>> parse_json(b'{"rounds": 1, "rounds": 2}', where="run.json")
    Traceback (most recent call last):
    quorank.errors.BadInput: run.json: damaged: the key 'rounds' occurs twice
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_not_a_number, parse_int=_parse_integer, parse_float=_finite
        )
        _check_nesting(value)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise BadInput(code, f"damaged: not UTF-8{advice}", where) from None
    except json.JSONDecodeError as error:
        raise BadInput(code, f"damaged: not readable as JSON ({error}){advice}", where) from None
    except ValueError as error:
        raise BadInput(code, f"damaged: {error}{advice}", where) from None
    except (RecursionError, MemoryError):
        raise BadInput(code, f"damaged: nested too deep{advice}", where) from None
    return decode_document(hint, value, where, code=code, advice=advice)


def load_json(text: str | bytes) -> Any:
    """Parse JSON of another program, in which keys may repeat; raise ValueError for anything else.

    Nesting is limited by Python's recursion limit and integers by its limit of digits. Memory is up to thirty times the
    text's, which callers bound.
    """
    try:
        return json.loads(text, parse_constant=_not_a_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def decode_document(hint: Any, value: object, where: str, *, code: str = "file.damaged", advice: str = "") -> Any:
    """Decode a parsed document of the file `where`; every error has the same code and names the key."""
    try:
        return decode(hint, value)
    except BadInput as error:
        raise BadInput(code, f"damaged: {error}{advice}", where) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {brief(twice)} occurs twice")
    return table


def _not_a_number(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _parse_integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is too large a number")
    return value


def _check_nesting(value: object) -> None:
    """Reject too deep a nesting, without recursion."""
    level: list[object] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def read_toml(path: Path, *, code: str = "file.not-toml", advice: str = "") -> dict[str, Any]:
    """Read a TOML file; `code` is that of a file which is not TOML, `advice` as in `parse_json`."""
    return parse_toml(read_toml_text(path, advice=advice), str(path), code)


def read_toml_text(path: Path, digest: str | None = None, code: str = "file.unreadable", advice: str = "") -> str:
    """Read the text of a TOML file without parsing it; `code` is that of an unreadable file."""
    try:
        return read_whole(path, LARGEST_TOML, digest, code, advice).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(code, f"cannot be read as text ({error}){advice}", str(path)) from None


def parse_toml(text: str, where: str, code: str = "file.not-toml") -> dict[str, Any]:
    """Parse TOML within bounds of size, nesting, digits and strings."""
    if len(text) > LARGEST_TOML:
        raise BadInput("toml.too-large", f"larger than {LARGEST_TOML:,} characters, the limit of such a file", where)
    if _longest_key(text) > DEEPEST:
        raise BadInput("toml.too-deep", f"has a key of more than {DEEPEST} parts", where)
    try:
        tables = tomllib.loads(text)
        _check_nesting(tables)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(code, f"not a TOML file: {error}", where) from None
    except (RecursionError, MemoryError):
        raise BadInput("toml.too-deep", "is nested too deep", where) from None
    except ValueError:  # Python's own limit for the digits of a number
        raise BadInput("toml.too-many-digits", "holds a number of too many digits", where) from None
    _check_scalars(tables, where)
    return tables


def _longest_key(text: str) -> int:
    """Return an upper bound on the parts of the longest dotted key, in which tomllib's time is quadratic.

    Keys precede = and are in the headers of tables; dots in strings and numbers do not count.
    """
    plain = re.sub(r"\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?", "", text)
    pieces = re.split(r"[\n,{]", plain)
    keys = (piece.partition("=")[0] for piece in pieces if "=" in piece or piece.lstrip().startswith("["))
    return max((key.count(".") + 1 for key in keys), default=0)


def _check_scalars(value: object, where: str, key: str = "") -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_scalars(inner, where, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            _check_scalars(inner, where, key)
    elif isinstance(value, int) and abs(value) >= 1 << 64:
        raise BadInput("value.out-of-range", f"{brief(value)} is too large a number", key).at(where)
    elif isinstance(value, str) and len(value) > LONGEST_STRING:
        sentence = f"a string of {len(value):,} characters; expected at most {LONGEST_STRING:,}"
        raise BadInput("value.out-of-range", sentence, key).at(where)


class _Manifest(TypedDict):
    format: Literal["quorank-manifest/1"]
    files: dict[str, Annotated[str, Length(64, 64)]]


def write_manifest(folder: Path, digests: Mapping[str, str]) -> None:
    """Write the manifest of files from their digests by name."""
    content = {"format": FORMAT, "files": dict(sorted(digests.items()))}
    write_whole(folder / MANIFEST, json_bytes(content))


def read_manifest(folder: Path) -> dict[str, str] | None:
    """Return the digests of a directory's files by name; None without a manifest."""
    path = folder / MANIFEST
    if not (path.exists() or path.is_symlink()):
        return None
    files: dict[str, str] = read_json(path, _Manifest)["files"]
    return files


def digest_of(digests: Mapping[str, str] | None, folder: Path, name: str) -> str | None:
    """Return the expected digest of a file; None without a manifest. A file that is not in the manifest is rejected."""
    if digests is None:
        return None
    if name not in digests:
        sentence = "is not in the manifest of its folder, so it was added later; remove it"
        raise BadInput("file.damaged", sentence, str(folder / name))
    return digests[name]
