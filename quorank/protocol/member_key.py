"""What members and services sign with their long-term keys (`quorank.protocol.signing`)."""

from __future__ import annotations

import hashlib

from quorank.protocol.signing import PUBLIC as PUBLIC
from quorank.protocol.signing import SIGNATURE as SIGNATURE
from quorank.protocol.signing import MemberKey as MemberKey
from quorank.protocol.signing import is_signed as is_signed


def task_content(kind: str, body: bytes) -> bytes:
    """What a service signs of a task."""
    return f"quorank task 1\n{kind}\n{hashlib.sha256(body).hexdigest()}".encode()


def enrolment_content(service: bytes, code: bytes, key: bytes) -> bytes:
    """What a member signs when it enrols: that the key is its own, at this service, with this code or token."""
    return f"quorank enrol 1\n{service.hex()}\n{hashlib.sha256(code).hexdigest()}\n{key.hex()}".encode()
