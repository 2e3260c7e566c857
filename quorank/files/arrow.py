"""Parquet and Arrow files: our own columns of numbers, and untrusted tables.

An untrusted file is decoded by a separate process with a memory limit, which sends record batches through a pipe: on some
damaged files the library aborts or unpacks a few bytes to gigabytes. The process takes 0.15 s to start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, first_line, require
from quorank.files.atomic import read_whole
from quorank.files.untrusted import BYTES_VARIABLE, RATIO_VARIABLE, file_size, limits_from_environment
from quorank.kernels.arrays import Doubles

LARGEST = 1 << 30  # bytes of one of our own Parquet files
MEMORY = 4 << 30  # limit on the memory of the process that decodes an untrusted file, bytes, without the mapped file


def parquet_bytes(columns: Mapping[str, npt.NDArray[np.generic]]) -> bytes:
    """Encode columns of equal length as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(dict(columns)), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_columns(path: Path, required: tuple[str, ...], *, digest: str | None = None) -> dict[str, Doubles]:
    """Read the numeric columns of one of our own Parquet files as float64; nulls are NaN.

    Args:
        path: File that `parquet_bytes` wrote.
        required: Columns that must be there.
        digest: SHA-256 of the file from its manifest. It is what makes the file trusted.

    Raises:
        BadInput: `file.missing`, `file.too-large` or `file.damaged`.
    """
    content = read_whole(path, LARGEST, digest)

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(content), use_threads=False)
        columns = {
            name: np.array(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
            for name in table.column_names
        }
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, OverflowError, MemoryError) as cause:
        sentence = f"damaged: not readable as Parquet ({type(cause).__name__}: {first_line(cause)})"
        raise BadInput("file.damaged", sentence, str(path)) from None
    missing = [name for name in required if name not in columns]
    require(not missing, "file.damaged", f"damaged: column {', '.join(missing)} is missing", str(path))
    return columns


def untrusted_batches(
    path: Path, form: Literal["parquet", "feather"], columns: Sequence[str] = (), code: str = "file.damaged"
) -> Iterator[Any]:
    """Yield the record batches of an untrusted Parquet or Feather file (version 2), at least an empty one.

    Args:
        path: File.
        form: Expected format.
        columns: Columns to read if the file has them; all by default.
        code: Code of an error about the content.

    Raises:
        BadInput: The file is damaged, or unpacks to more than the limits of `untrusted` allow.
    """
    import pyarrow as pa

    most = limits_from_environment().most(file_size(path, f"expected a {form} file"))
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "quorank.files.arrow", form, str(path), *columns],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        fault, total, empty = "", -1, None
        try:
            try:
                stream = pa.ipc.open_stream(process.stdout)
                for batch in stream:
                    total = max(total, 0) + batch.nbytes
                    sentence = f"unpacks to more than {most:,} bytes, far more than its size"
                    hint = f"if you trust it, raise {RATIO_VARIABLE} or {BYTES_VARIABLE}"
                    require(total <= most, "file.too-large", f"{sentence}; {hint}", f"{path}")
                    yield batch
                if total < 0:
                    empty = pa.RecordBatch.from_pylist([], stream.schema)
            except BadInput:
                raise
            except Exception as error:  # the library raises many kinds of errors over a strange schema
                fault = first_line(error)
            message = process.stderr.read().decode(errors="replace").strip().partition("\n")[0]
            if process.wait() != 0 or fault:  # a stream that is cut off ends without an error
                sentence = f"is not readable as {form} ({message[:200] or fault or 'its reader ended'})"
                raise BadInput(code, sentence, f"{path}")
            if empty is not None:
                yield empty
        finally:
            process.kill()


def _send_batches(form: str, path: str, columns: Sequence[str]) -> None:
    """Decode a file within the limits of this process, and write its batches to standard output."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import pyarrow as pa
    import pyarrow.parquet as pq

    if form == "parquet":
        file = pq.ParquetFile(path, memory_map=True)
        schema, batches = file.schema_arrow, file.iter_batches(use_threads=False)
    else:
        whole = pa.ipc.open_file(pa.memory_map(path)).schema
        wanted = [at for at, name in enumerate(whole.names) if not columns or name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        reader = pa.ipc.open_file(pa.memory_map(path), options=options)
        schema, batches = reader.schema, (reader.get_batch(number) for number in range(reader.num_record_batches))
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as out:
        for batch in batches:
            batch.validate(full=True)
            out.write_batch(batch)


if __name__ == "__main__":
    try:
        _send_batches(sys.argv[1], sys.argv[2], sys.argv[3:])
    except Exception as error:
        sys.exit(first_line(error))
