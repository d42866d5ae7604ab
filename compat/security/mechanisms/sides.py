"""Apache Kafka and Barnabas with listeners of every protocol, the same users, keys and certificates.

The rule: both read the same lines but for ports and directories; users and delegation tokens are made with the APIs of
both.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from joserfc.jwk import KeySet, RSAKey

from compat.kafka import RealKafka, free_port
from compat.kafka.broker import COMMON_SETTINGS
from compat.kafka.process import LIGHT_JVM
from compat.kit.certificates import Authority, Signed
from compat.kit.sides import barnabas
from compat.kit.wire import Connection
from compat.security.mechanisms.clients import SALT, salted

PASSWORDS = {"alice": "wonder land", "bob": "builder", "carol": "only-512", "a=b,c": "escaped"}
FAILURE_DELAY_MS = 600
LIFETIME_MS = 3000
"""After how long a login ends at the listener AGAIN."""
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
SIGNED_TOKENS = f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler"
UNSECURED_TOKENS = f"{OAUTH_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "LOGIN": "SASL_PLAINTEXT",
    "AGAIN": "SASL_PLAINTEXT",
    "UNSECURED": "SASL_PLAINTEXT",
    "ENCRYPTED": "SASL_SSL",
    "NONE": "SSL",
    "REQUESTED": "SSL",
    "REQUIRED": "SSL",
}


@dataclass(frozen=True)
class Keys:
    """Keys and certificates of brokers and clients."""

    authority: Authority
    stranger: Authority
    broker: Signed
    client: Signed
    """CN=Alice, signed by the authority that the brokers trust."""
    expired: Signed
    unknown: Signed
    """CN=Alice, signed by another authority."""
    token_key: RSAKey
    other_key: RSAKey
    """A key that brokers do not know."""
    jwks: Path


@dataclass
class Secured:
    """A broker: its name, the port of each listener, the keys of both, and a delegation token of alice's."""

    name: str
    ports: Mapping[str, int]
    keys: Keys
    token: tuple[str, bytes] = ("", b"")
    """Id and HMAC of a delegation token of alice's."""


def make_keys(directory: Path) -> Keys:
    """Make all keys below a directory."""
    authority, stranger = Authority(directory, "ca"), Authority(directory, "stranger")
    token_key = RSAKey.generate_key(2048, {"kid": "one"})
    jwks = directory / "jwks.json"
    jwks.write_text(json.dumps(KeySet([token_key]).as_dict(private=False)))
    return Keys(
        authority,
        stranger,
        authority.signed("broker"),
        authority.signed("Alice"),
        authority.signed("Expired", days=-1),
        stranger.signed("Alice", file="alice-of-stranger"),
        token_key,
        RSAKey.generate_key(2048, {"kid": "two"}),
        jwks,
    )


def settings(ports: Mapping[str, int], keys: Keys, controller_port: int = 0) -> dict[str, str]:
    """Return the settings of a broker with these ports; of a Kafka in KRaft mode with a `controller_port`."""
    addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    users = "".join(f' user_{name}="{PASSWORDS[name]}"' for name in ("alice", "bob"))
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
    lines = {
        "listeners": addresses,
        "advertised.listeners": addresses,
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.unsecured.sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": str(FAILURE_DELAY_MS),
        "delegation.token.secret.key": "a secret of all brokers",
        "sasl.oauthbearer.jwks.endpoint.url": keys.jwks.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys.broker.pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys.authority.pem),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/L,DEFAULT",
        "listener.name.none.ssl.client.auth": "none",
        "listener.name.requested.ssl.client.auth": "requested",
        "listener.name.required.ssl.client.auth": "required",
        "auto.create.topics.enable": "false",
    }
    for name in ("login", "again", "encrypted"):
        prefix = f"listener.name.{name}"
        lines |= {
            f"{prefix}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required{users};",
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required;",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": SIGNED_TOKENS,
        }
    lines |= {
        "listener.name.unsecured.oauthbearer.sasl.jaas.config": f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required;",
        "listener.name.unsecured.oauthbearer.sasl.server.callback.handler.class": UNSECURED_TOKENS,
    }
    for mechanism in MECHANISMS:
        lines[f"listener.name.again.{mechanism.lower()}.connections.max.reauth.ms"] = str(LIFETIME_MS)
    if controller_port:
        lines["listeners"] += f",CONTROLLER://127.0.0.1:{controller_port}"
        lines["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    return lines


@contextmanager
def both(version: str) -> Iterator[tuple[Secured, Secured]]:
    """(Apache Kafka, Barnabas), running, with the same users. Raises KafkaError, StartError, WireError."""
    with tempfile.TemporaryDirectory(prefix="mechanisms-") as name:
        directory = Path(name)
        keys = make_keys(directory / "keys")
        data = directory / "kafka"
        data.mkdir()
        controller_port = free_port()
        (data / "controller.port").write_text(str(controller_port))
        ports = {name: free_port() for name in LISTENERS}
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.jwks.as_uri()}"
        kafka = RealKafka(
            version,
            ports["PLAINTEXT"],
            data=data,
            settings=settings(ports, keys, controller_port),
            jvm_options=(*LIGHT_JVM, allowed),
        )
        with kafka:
            theirs = Secured("Kafka", ports, keys)
            ports = {name: free_port() for name in LISTENERS}
            properties = directory / "server.properties"
            lines = {
                **COMMON_SETTINGS,
                "broker.id": "1",
                "log.dirs": str(directory / "barnabas"),
                **settings(ports, keys),
            }
            properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            with barnabas(properties):
                ours = Secured("Barnabas", ports, keys)
                for side in (theirs, ours):
                    prepare(side)
                yield theirs, ours


def prepare(side: Secured) -> None:
    """Make the users, and a delegation token of alice's. Raises WireError, AssertionError."""
    users = [
        (user, mechanism)
        for user in PASSWORDS
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        if (user, mechanism) != ("carol", "SCRAM-SHA-256")
    ]
    with Connection("127.0.0.1", side.ports["PLAINTEXT"]) as connection:
        for user, mechanism in users:
            upsertion = {
                "Name": user,
                "Mechanism": 1 if mechanism == "SCRAM-SHA-256" else 2,
                "Iterations": 4096,
                "Salt": SALT,
                "SaltedPassword": salted(mechanism, PASSWORDS[user]),
            }
            values = {"Deletions": [], "Upsertions": [upsertion]}
            answer = connection.ask("AlterUserScramCredentials", 0, values)
            assert not answer["Results"][0]["ErrorCode"], answer
    with Connection("127.0.0.1", side.ports["LOGIN"]) as connection:
        connection.ask("SaslHandshake", 1, {"Mechanism": "PLAIN"})
        token = f"\0alice\0{PASSWORDS['alice']}".encode()
        assert not connection.ask("SaslAuthenticate", 2, {"AuthBytes": token})["ErrorCode"]
        answer = connection.ask("CreateDelegationToken", 2, {"Renewers": [], "MaxLifetimeMs": -1})
        assert not answer["ErrorCode"], answer
        side.token = answer["TokenId"], answer["Hmac"]
