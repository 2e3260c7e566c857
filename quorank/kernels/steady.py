"""Environment variables for the same bits of NumPy and OpenBLAS on processors with and without 512-bit vectors.

They are read when NumPy is loaded, so the command line and `tasks.py` set them before; a run of a program that does not
says so (`is_steady`). Import nothing large here.
"""

from __future__ import annotations

import os

STEADY = {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}


DIFFERENT = (
    "this processor's 512-bit vectors may give other last digits than the command line: NumPy was loaded without the "
    "settings of quorank.kernels.steady; summary.json says processor_dependent"
)
_BLAS = "OPENBLAS_CORETYPE"


def steady_environment() -> dict[str, str]:
    """Return the variables for this processor, which also keep OpenBLAS to 256-bit kernels."""
    return STEADY | ({_BLAS: "Haswell"} if _has_wide_vectors() else {})


def is_steady() -> bool:
    """Return whether NumPy and OpenBLAS of this process leave 512-bit vectors alone."""
    if not _has_wide_vectors():
        return True
    import numpy as np

    used = (np._core if hasattr(np, "_core") else np.core)._multiarray_umath.__cpu_features__
    return _BLAS in os.environ and not any(used.get(name) for name in STEADY["NPY_DISABLE_CPU_FEATURES"].split())


def _has_wide_vectors() -> bool:
    try:
        with open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123  pathlib takes longer to import than all of this
            return b"avx512f" in file.read(1 << 14)
    except OSError:
        return False
