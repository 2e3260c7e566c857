"""Certificate authority of one coordinator, and key pairs of nodes.

Members verify the TLS certificate against `ca.pem`. Private keys have mode 0600.
"""

from __future__ import annotations

import datetime
import inspect
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole

CERTIFICATE, KEY = "ca.pem", "ca.key"
YEAR = 365

_CURVE = ec.SECP384R1()
_SERVER_CURVE = ec.SECP256R1()  # signs every new connection in a third of the time
_PEM = serialization.Encoding.PEM
_USAGES = dict.fromkeys(inspect.signature(x509.KeyUsage).parameters, False)


@dataclass(frozen=True, eq=False)
class Authority:
    """Authority that signs the certificates of a coordinator."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str = "Quorank", days: int = 10 * YEAR) -> Authority:
        """Create an authority."""
        key = ec.generate_private_key(_CURVE)
        subject = _named(f"{name} authority")
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (x509.KeyUsage(**_USAGES | {"key_cert_sign": True, "crl_sign": True}), True),
        ]
        return cls(_signed(subject, subject, key.public_key(), days, extensions, key), key)

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """Read the authority of a folder."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
            key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
            fits = key.public_key() == certificate.public_key() and len(certificate.subject) == 1  # parsed lazily
        except Exception as error:  # the library raises several error classes
            reason = type(error).__name__
            sentence = f"no certificate authority can be read here ({reason}); expected {CERTIFICATE} and {KEY}"
            raise BadInput("authority.unreadable", sentence, f"{folder}") from None
        if not (fits and isinstance(key, ec.EllipticCurvePrivateKey)):
            sentence = f"{KEY} does not belong to {CERTIFICATE}; restore both from one copy"
            raise BadInput("authority.other-key", sentence, f"{folder}")
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        """Certificate that members trust, PEM."""
        return self.certificate.public_bytes(_PEM)

    def write(self, folder: Path) -> None:
        """Write both files; the key can sign anything in the coordinator's name."""
        write_private(folder / KEY, _key_bytes(self.key))
        write_whole(folder / CERTIFICATE, self.pem, durable=True)

    def server(self, hosts: Sequence[str], days: int = YEAR) -> tuple[bytes, bytes]:
        """Issue a server certificate for these names and addresses; returns (private key, certificate), PEM."""
        require(hosts, "certificate.no-host", "a server's certificate needs at least one name or address")
        key = ec.generate_private_key(_SERVER_CURVE)
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.SubjectAlternativeName([_alternative(host) for host in hosts]), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.KeyUsage(**_USAGES | {"digital_signature": True}), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False),
        ]
        issuer = self.certificate.subject
        certificate = _signed(_named(hosts[0]), issuer, key.public_key(), days, extensions, self.key)
        return _key_bytes(key), certificate.public_bytes(_PEM)


def days_left(certificate: Path) -> float:
    """Return the remaining days of a certificate; 0 where it cannot be read."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        return (found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).total_seconds() / 86400.0
    except Exception:  # the library raises several error classes
        return 0.0


def fit_together(certificate: Path, key: Path) -> bool:
    """Return whether two files are a certificate and its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ValueError):
        return False
    return True


def write_private(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, atomically and durably."""
    write_whole(path, content, durable=True, private=True)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: int,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    signer: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """Return a certificate with (extension, critical) pairs; valid from an hour ago, since clocks differ."""
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, hashes.SHA384())


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
