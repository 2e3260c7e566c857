"""Cost of a secure sum: seconds in one process, and bytes a client beside those of the update itself.

    python benchmarks/secure_sum.py [--clients 10 100 1000] [--length 136] [--dropouts 0.1] [--colluding 0.05]

One client in twenty leaves after it shared its secrets, before its masked input, and one in twenty after the input.
The yardstick of the same run, for the CPU seconds, is one X25519 key agreement: the protocol needs k + m a client.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood, neighbours_for
from quorank.privacy.secure_sum.in_process import SecureSumResult, secure_sum
from quorank.privacy.secure_sum.messages import AdvertiseKeys, MaskedInput, SecureSumMessage, ShareKeys, UnmaskReply

SENT = {AdvertiseKeys, ShareKeys, MaskedInput, UnmaskReply}
"""Messages of a client; the others are the server's."""


def agreement_seconds(repeats: int = 1000) -> float:
    """One X25519 key agreement: the best of five turns."""
    private, public = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(repeats):
            private.exchange(public)
        best = min(best, (time.perf_counter() - started) / repeats)
    return best


class Measured(NamedTuple):
    """Cost of one secure sum."""

    result: SecureSumResult
    seconds: float  # of all clients and the server, one after the other
    client_seconds: float
    sent: dict[str, float]  # mean bytes of each message of a client
    received: dict[str, float]  # mean bytes of each message of the server


def measured_sum(vectors: Mapping[int, np.ndarray], **options: Any) -> Measured:
    """Run `secure_sum`, with the time of each client's steps and the size of each message."""
    sizes: dict[type[SecureSumMessage], list[int]] = {}
    spent = [0.0]
    encode, decode = SecureSumMessage.to_bytes, SecureSumMessage.from_bytes.__func__

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            started = time.perf_counter()
            result = work(*args)
            spent[0] += time.perf_counter() - started
            return result

        return run

    def encoded(message: SecureSumMessage) -> bytes:
        raw = (timed(encode) if type(message) in SENT else encode)(message)
        sizes.setdefault(type(message), []).append(len(raw))
        return raw

    def decoded(kind: type[SecureSumMessage], raw: bytes) -> SecureSumMessage:
        return (decode if kind in SENT else timed(decode))(kind, raw)

    with ExitStack() as stack:
        for step in ("__init__", "advertise", "share", "mask", "unmask"):
            stack.enter_context(mock.patch.object(SecureClient, step, timed(getattr(SecureClient, step))))
        stack.enter_context(mock.patch.object(SecureSumMessage, "to_bytes", encoded))
        stack.enter_context(mock.patch.object(SecureSumMessage, "from_bytes", classmethod(decoded)))
        started = time.perf_counter()
        result = secure_sum(vectors, **options)
        seconds = time.perf_counter() - started
    mean = {kind: float(np.mean(lengths)) for kind, lengths in sizes.items()}
    sent, received = ({k.WORDS: v for k, v in mean.items() if (k in SENT) == own} for own in (True, False))
    return Measured(result, seconds, spent[0], sent, received)


def figures(
    clients: int = 1000, length: int = 136, repeats: int = 1, neighbourhood: Neighbourhood | None = None
) -> dict[str, Any]:
    """Seconds and bytes of one secure sum with 5 % leaving before the masked input and 5 % after."""
    numbers = np.random.default_rng(1).integers(0, 2**32, (clients, length), dtype=np.uint32)
    vectors = dict(enumerate(numbers))
    leaving = clients // 20
    secure_sum({name: vectors[name] for name in range(3)}, round_=0, session=b"warm")
    best, cpu = None, float("inf")
    for round_ in range(repeats):
        started = time.process_time()
        run = measured_sum(
            vectors,
            round_=round_,
            session=b"bench",
            neighbourhood=neighbourhood,
            dropped_before=range(leaving),
            dropped_after=range(leaving, 2 * leaving),
        )
        cpu = min(cpu, time.process_time() - started)
        assert np.array_equal(run.result.total, numbers[leaving:].sum(axis=0, dtype=np.uint32))
        if best is None or run.seconds < best.seconds:
            best = run
    assert best is not None
    plan, bytes_sent = neighbourhood or neighbours_for(clients), sum(best.sent.values())
    agreements = clients * plan.neighbours + (clients - leaving) * plan.masks
    return {
        "clients": clients,
        "length": length,
        "neighbours": plan.neighbours,
        "threshold": plan.threshold,
        "masks": plan.masks,
        "seconds": best.seconds,
        "cpu_seconds": cpu,
        "seconds_server": best.seconds - best.client_seconds,
        "milliseconds_per_client": best.client_seconds / clients * 1e3,
        "ratio_to_key_agreements": cpu / (agreements * agreement_seconds()),
        "bytes_sent_per_client": bytes_sent,
        "bytes_received_per_client": sum(best.received.values()),
        "bytes_by_message": {**best.sent, **best.received},
        "ratio_to_plain_float32_update": bytes_sent / (4 * length),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--length", type=int, default=136)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dropouts", type=float, default=0.1, help="the share of clients that may leave")
    parser.add_argument("--colluding", type=float, default=0.05, help="the share that may tell the server all")
    args = parser.parse_args()
    print("| clients | k, t, m | seconds | CPU seconds | server's seconds | ms a client | CPU / key agreements", end="")
    print(" | bytes sent | received | sent / plain float32 |")
    print("|---" * 10 + "|")
    for clients in args.clients:
        plan = neighbours_for(clients, args.dropouts, args.colluding)
        f = figures(clients, args.length, args.repeats, plan)
        cells = [
            f"{clients}",
            f"{f['neighbours']}, {f['threshold']}, {f['masks']}",
            f"{f['seconds']:.2f}",
            f"{f['cpu_seconds']:.2f}",
            f"{f['seconds_server']:.2f}",
            f"{f['milliseconds_per_client']:.1f}",
            f"{f['ratio_to_key_agreements']:.2f}",
            f"{f['bytes_sent_per_client']:.0f}",
            f"{f['bytes_received_per_client']:.0f}",
            f"{f['ratio_to_plain_float32_update']:.1f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
