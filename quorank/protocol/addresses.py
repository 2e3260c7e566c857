"""Addresses of services, as people and invitations write them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from quorank.errors import require


def check_url(url: str) -> None:
    """`https://host[:port]`, or http for a service on this machine."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    good = parts.scheme == "https" or (parts.scheme == "http" and here)
    plain = parts.hostname and not parts.username and parts.path in ("", "/") and not parts.query and not parts.fragment
    require(
        good and plain and (port is None or port > 0) and url.isprintable() and " " not in url,
        "address.malformed",
        f"{url[:100]!r} is not an address; expected https://host:port, such as https://search.example.org:9092",
    )


def network_of(address: str) -> str:
    """Whom an address stands for: of IPv6 a network of 64 bits, since whoever has one address of it has all."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else found.packed[:8].hex(":", 2)
