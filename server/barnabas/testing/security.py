"""Settings of a test broker with TLS, logins or both, and generated certificates and passwords for its clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = "broker"
USERS = ("alice", "bob")
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISM = "PLAIN"


@dataclass(frozen=True, slots=True)
class Security:
    """Security of a test broker: its settings (`kafka_settings` of pytest), and the credentials of clients."""

    protocol: str
    """One of PROTOCOLS, a client's security.protocol."""
    settings: Mapping[str, str]
    passwords: Mapping[str, str]
    """Passwords of the users, for the mechanism PLAIN; none for SSL."""
    authority: Path | None
    """The certificate that clients must trust (PEM), where TLS is spoken."""
    certificates: Mapping[str, Path]
    """Key and certificate of each user, in one PEM file; empty without TLS."""

    def as_json(self) -> dict[str, Any]:
        """Return it as in the ready line of `barnabas test-server`."""
        return {
            "protocol": self.protocol,
            "mechanism": MECHANISM if self.passwords else None,
            "passwords": dict(self.passwords),
            "ca": str(self.authority) if self.authority else None,
            "certificates": {user: str(path) for user, path in self.certificates.items()},
        }


def secured(protocol: str, directory: str | os.PathLike[str], listen: str = "127.0.0.1:0") -> Security:
    """Return the security of a test broker by a protocol, with files in a directory. Raises ValueError, OSError."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"{protocol!r} is none of {', '.join(PROTOCOLS)}")
    settings = {"listeners": f"{protocol}://{listen}", "security.inter.broker.protocol": protocol}
    passwords: dict[str, str] = {}
    certificates: dict[str, Path] = {}
    authority = None
    if protocol.startswith("SASL"):
        passwords = {user: f"{user}-secret" for user in USERS}
        users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
        settings |= {
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="{SERVER}" password="{SERVER}-secret" user_{SERVER}="{SERVER}-secret" {users};'
            ),
        }
    if protocol.endswith("SSL"):
        from barnabas.network.certificates import AUTHORITY, make_all  # which needs the extra `security`

        tls = Path(directory) / "tls"
        make_all(tls, SERVER, USERS, authority_name="Barnabas test CA")
        authority = tls / f"{AUTHORITY}.crt"
        certificates = {user: tls / f"{user}.pem" for user in USERS}
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tls / f"{SERVER}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority),
            "ssl.client.auth": "requested",
        }
    return Security(protocol, settings, passwords, authority, certificates)
