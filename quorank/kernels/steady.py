"""Environment in which NumPy and its BLAS give the same bits on processors with and without 512-bit vectors.

NumPy's functions and OpenBLAS's sums have other last bits where vectors are wider. These variables are read when NumPy is
loaded, so whoever starts a process sets them first: the command line, and `tasks.py`. Import nothing large here.
"""

from __future__ import annotations

STEADY = {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}


def steady_environment() -> dict[str, str]:
    """Return the variables for this processor: OpenBLAS takes kernels of 256-bit vectors where it would take wider ones."""
    try:
        with open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123  pathlib takes longer to import than all of this
            wide = b"avx512f" in file.read(1 << 14)
    except OSError:
        wide = False
    return STEADY | ({"OPENBLAS_CORETYPE": "Haswell"} if wide else {})
