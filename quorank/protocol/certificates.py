"""Certificate authority of one coordinator, and key pairs of nodes.

Members verify the TLS certificate against `ca.pem`. Private keys have mode 0600.
"""

from __future__ import annotations

import datetime
import inspect
import ipaddress
import math
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quorank.errors import BadInput
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
    def create(cls) -> Authority:
        """Create an authority."""
        key, subject = ec.generate_private_key(_CURVE), _named("Quorank authority")
        certificate = (
            _unsigned(subject, subject, key.public_key(), 10 * YEAR)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**_USAGES | {"key_cert_sign": True, "crl_sign": True}), critical=True)
        )
        return cls(certificate.sign(key, hashes.SHA384()), key)

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

    def server(self, hosts: Sequence[str]) -> tuple[bytes, bytes]:
        """Issue a server certificate for these names and addresses; returns (private key, certificate), PEM."""
        key, issuer = ec.generate_private_key(_SERVER_CURVE), self.key.public_key()
        certificate = (
            _unsigned(_named(hosts[0]), self.certificate.subject, key.public_key(), YEAR)
            .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**_USAGES | {"digital_signature": True}), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        )
        return _key_bytes(key), certificate.sign(self.key, hashes.SHA384()).public_bytes(_PEM)


def days_left(certificate: Path) -> float:
    """Return the remaining days of a certificate; -inf where it cannot be read."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        return (found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).total_seconds() / 86400.0
    except Exception:  # the library raises several error classes
        return -math.inf


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


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    """Begin a certificate that is valid from an hour ago, since clocks differ."""
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    return builder.not_valid_after(now + datetime.timedelta(days=days))


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
