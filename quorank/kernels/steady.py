"""Environment variables for the same bits of NumPy and OpenBLAS on processors with and without 512-bit vectors.

They are read when NumPy is loaded, so the command line and `tasks.py` set them before. Import nothing large here.
"""

from __future__ import annotations

STEADY = {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}


def steady_environment() -> dict[str, str]:
    """Return the variables for this processor, which also keep OpenBLAS to 256-bit kernels."""
    try:
        with open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123  pathlib takes longer to import than all of this
            wide = b"avx512f" in file.read(1 << 14)
    except OSError:
        wide = False
    return STEADY | ({"OPENBLAS_CORETYPE": "Haswell"} if wide else {})
