"""Checks of a new key store that replaces a listener's while the broker runs (KIP-226).

The rule: clients know the broker by the names in its certificate, so a new certificate must have the same subject and all
alternative names of the old one, unless `ssl.allow.dn.changes` and `ssl.allow.san.changes` allow others. These are
Apache Kafka's checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.network.tls_stores import TlsError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, GeneralName, Name

    from barnabas.network.tls_context import ServerTls


def check_replacement(
    old: ServerTls, new: ServerTls, *, subject_may_change: bool, alternative_names_may_change: bool
) -> None:
    """Check that `new` may replace `old` for accepting connections.

    Raises TlsError if the certificate has another distinguished name or lacks an alternative name, or if only the new one
    has a trust store.
    """
    if new.has_trust_store and not old.has_trust_store:
        raise TlsError(
            "ssl.truststore: a listener that began without a trust store gets one by a restart only"
        )
    if new.certificate == old.certificate:
        return
    before, after = _parsed(old.certificate), _parsed(new.certificate)
    if not subject_may_change and _canonical(before.subject) != _canonical(after.subject):
        raise TlsError(
            f"ssl.keystore: the certificate in use is for {before.subject.rfc4514_string()}, the new one for "
            f"{after.subject.rfc4514_string()}; ssl.allow.dn.changes=true, set at the start, allows that"
        )
    missing = _alternative_names(before) - _alternative_names(after)
    if missing and not alternative_names_may_change:
        raise TlsError(
            f"ssl.keystore: the new certificate lacks {', '.join(sorted(map(_shown, missing)))}, which the one in use "
            "has as an alternative name; ssl.allow.san.changes=true, set at the start, allows that"
        )


def _parsed(pem: str) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise TlsError(f"ssl.keystore: the names in the certificate cannot be read ({error})") from None


def _canonical(name: Name) -> list[frozenset[tuple[str, str | bytes]]]:
    """Return a distinguished name such that names that differ in case or spaces only are the same, as in Java."""
    return [
        frozenset(
            (
                attribute.oid.dotted_string,
                attribute.value if isinstance(attribute.value, bytes) else _folded(attribute.value),
            )
            for attribute in part
        )
        for part in name.rdns
    ]


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _alternative_names(certificate: Certificate) -> set[GeneralName]:
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    try:
        return set(certificate.extensions.get_extension_for_class(SubjectAlternativeName).value)
    except ExtensionNotFound:
        return set()
    except ValueError as error:
        raise TlsError(f"ssl.keystore: the names in the certificate cannot be read ({error})") from None


def _shown(name: GeneralName) -> str:
    return f"{type(name).__name__} {name.value}"
