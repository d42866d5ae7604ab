"""A second listener, with TLS and a login, on a broker under measurement: the same settings for every peer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import Files, written

USER, PASSWORD = "bench", "bench-secret"
PROTOCOLS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


@dataclass(frozen=True)
class Secured:
    """A listener with a security protocol, and a certificate for 127.0.0.1."""

    protocol: str
    files: Files

    @classmethod
    def of(cls, protocol: str, directory: Path) -> Secured:
        """Make keys and certificates."""
        return cls(protocol, written(directory / "certificates"))

    def settings(self) -> dict[str, str]:
        """Settings of the broker, but for the list of its listeners."""
        name = self.protocol.lower()
        properties = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            + ",".join(f"{name}:{name}" for name in PROTOCOLS)
        }
        if self.protocol.startswith("SASL"):
            properties |= {
                "sasl.enabled.mechanisms": "PLAIN",
                f"listener.name.{name}.plain.sasl.jaas.config": JAAS,
            }
        if self.protocol.endswith("SSL"):
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.files.broker)}
        return properties

    def address(self, port: int) -> str:
        """The listener, as in `listeners`."""
        return f"{self.protocol}://127.0.0.1:{port}"

    @property
    def client(self) -> dict[str, object]:
        """Settings of librdkafka."""
        properties: dict[str, object] = {"security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            properties["ssl.ca.location"] = str(self.files.authority)
        if self.protocol.startswith("SASL"):
            properties |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        return properties
