"""Channels: the secure ways to connect, and the clients that do not support them.

The rule: a channel is a protocol with a mechanism or a certificate. What a client lacks is said here, once, with the
reason that a reader of the table sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch


@dataclass(frozen=True)
class Channel:
    """A way to connect: the broker's listener, its protocol, and the mechanism of SASL or a certificate."""

    name: str
    listener: str
    protocol: str
    mechanism: str = ""
    certificate: bool = False

    @property
    def has_tls(self) -> bool:
        """Return whether it is encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")


UNSECURED = "oauth-unsecured"
GSSAPI = "GSSAPI"
CHANNELS = {
    channel.name: channel
    for channel in (
        Channel("tls", "TLS", "SSL"),
        Channel("tls-certificate", "CERTIFICATE", "SSL", certificate=True),
        Channel("plain", "LOGIN", "SASL_PLAINTEXT", "PLAIN"),
        Channel("scram-256", "LOGIN", "SASL_PLAINTEXT", "SCRAM-SHA-256"),
        Channel("scram-512", "LOGIN", "SASL_PLAINTEXT", "SCRAM-SHA-512"),
        Channel("oauth", "LOGIN", "SASL_PLAINTEXT", "OAUTHBEARER"),
        Channel(UNSECURED, "UNSECURED", "SASL_PLAINTEXT", "OAUTHBEARER"),
        Channel("kerberos", "KERBEROS", "SASL_PLAINTEXT", GSSAPI),
        Channel("tls-plain", "ENCRYPTED", "SASL_SSL", "PLAIN"),
        Channel("tls-scram-256", "ENCRYPTED", "SASL_SSL", "SCRAM-SHA-256"),
        Channel("tls-scram-512", "ENCRYPTED", "SASL_SSL", "SCRAM-SHA-512"),
        Channel("tls-oauth", "ENCRYPTED", "SASL_SSL", "OAUTHBEARER"),
    )
}


@dataclass(frozen=True)
class Lack:
    """A lack of the clients with names that match: the channels that they cannot use, and the reason."""

    clients: str
    channels: str
    reason: str


OLD_NONCE = "librdkafka before 2.6.1 repeats its nonce, which Kafka refuses since 3.7.2 (CVE-2024-56128)"
LACKS = (
    Lack("kcat", "*scram*", OLD_NONCE),
    Lack("confluent-kafka-2.0.2", "*scram*", OLD_NONCE),
    Lack("java-0.8", "*", "the client knows neither TLS nor SASL"),
    Lack("java-0.9", "*plain", "the client knows GSSAPI only"),
    Lack("java-0.9", "*scram*", "the client knows GSSAPI only"),
    Lack("java-0.9", "*oauth*", "the client knows GSSAPI only"),
    Lack("java-0.10", "*oauth*", "the Java client knows OAUTHBEARER since 2.0"),
    Lack("java-1.1", "*oauth*", "the Java client knows OAUTHBEARER since 2.0"),
    Lack("java-2.8", "oauth", "the Java client takes tokens that it did not make itself since 3.1"),
    Lack("java-2.8", "tls-oauth", "the Java client takes tokens that it did not make itself since 3.1"),
    Lack("kafka-go", "*oauth*", "kafka-go has PLAIN and SCRAM"),
    Lack("kafka-python-1.4.7", "*scram*", "kafka-python knows SCRAM since 2.0"),
    Lack("kcat", "oauth", "kcat makes unsecured tokens only"),
    Lack("kcat", "tls-oauth", "kcat makes unsecured tokens only"),
    Lack("confluent-kafka*", "kerberos", "the wheel is built without Cyrus SASL"),
    Lack("kafka-python*", "kerberos", "it needs the package gssapi, compiled: see compat.security.kerberos"),
    Lack("aiokafka", "kerberos", "it needs the package gssapi, compiled"),
    Lack("kafka-go", "kerberos", "kafka-go has PLAIN and SCRAM"),
    Lack("kafkajs", "kerberos", "the client has no GSSAPI"),
    Lack("rskafka", "kerberos", "the client has no GSSAPI"),
    Lack("kafka-python*", UNSECURED, "the client does not make tokens"),
    Lack("aiokafka", UNSECURED, "the client does not make tokens"),
    Lack("franz-go", UNSECURED, "the client does not make tokens"),
    Lack("kafkajs", UNSECURED, "the client does not make tokens"),
    Lack("rskafka", UNSECURED, "the client does not make tokens"),
    Lack("sarama", UNSECURED, "the client does not make tokens"),
)


def lack(client: str, channel: str) -> str:
    """Return why a client cannot use a channel, empty if it can."""
    for row in LACKS:
        if fnmatch(client, row.clients) and fnmatch(channel, row.channels):
            return row.reason
    return ""
