"""Compiled code and the layers below it: Numba, addressed random numbers, array types, processes."""
