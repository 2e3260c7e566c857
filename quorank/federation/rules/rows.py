"""What every rule that sees single updates does first: refuse what it cannot use, and forget the order of the clients.

Robust rules ignore the weights. A client's number of interactions is its own claim, and a rule that believed it would
let one client outvote all others without sending anything unusual.
"""

from __future__ import annotations

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import BadInput, require


def check_byzantine(kind: str, byzantine: int) -> None:
    """The number m of clients that may be malicious, when a rule is built."""
    require(byzantine >= 0, f"byzantine must be at least 0, got {byzantine}")
    require(byzantine < 2**31, f"byzantine must be below 2^31, got {byzantine}: {kind} counts clients by it")


def check_cohort(kind: str, byzantine: int, n: int, least: int = 1) -> None:
    """Refuse a cohort of n clients in which m may be malicious, or which is smaller than the rule's `least`."""
    require(n >= 1, f"aggregation: {kind} needs the update of at least one client, got none")
    require(
        2 * byzantine < n,
        f"aggregation: no rule can tell {byzantine} malicious clients from the others in a cohort of {n}; "
        f"{kind} needs byzantine below half of the cohort",
    )
    require(
        n >= least,
        f"aggregation: {kind} with byzantine = {byzantine} needs at least {least} clients in a cohort, got {n}; "
        "take more clients or a smaller byzantine",
    )


def content_rows(kind: str, updates: Doubles, weights: Doubles) -> Doubles:
    """A copy of the updates, checked, its rows ordered by their bytes.

    After this nothing can depend on the order in which clients come, not even the rounding of a sum, and a tie between
    different updates is decided by what they hold. Equal rows may change places, which nobody can see.
    """
    rows = np.array(updates, dtype="<f8", order="C")
    require(
        rows.ndim == 2, f"aggregation: {kind} expects one row for each client, got the shape {rows.shape}"
    )
    claims = np.asarray(weights, dtype=np.float64)
    require(
        claims.shape == (len(rows),),
        f"aggregation: {kind} got {len(rows)} updates, but weights of the shape {claims.shape}",
    )
    require(
        bool(np.all(np.isfinite(claims)) and np.all(claims >= 0.0)),
        f"aggregation: {kind} expects weights that are finite and at least 0",
    )
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise BadInput(
            f"aggregation: the update in row {int(np.argmin(finite))} holds a number that is not finite; "
            f"leave such clients out before {kind} sees them"
        )
    rows += 0.0  # −0 and 0 are one number, and shall be one string of bytes
    order = sorted(range(len(rows)), key=lambda i: rows[i].tobytes())
    return rows[order]
