"""python -m compat.matrix --security: the stock clients in each protocol and mechanism that they know.

All clients use one broker with a listener for each protocol and an authorizer, and log in as a user with permissions only
for resources named `compat-...`; a client that is authenticated as another user fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from barnabas.network.kerberos import KerberosError, library
from compat.kafka import free_port
from compat.kit.certificates import Authority, CertificateError
from compat.kit.ending import rows_in_threads
from compat.kit.sides import PASSWORD, Side
from compat.kit.wire import Values
from compat.matrix import clients
from compat.matrix.brokers import ApacheKafka, Barnabas, Broker, BrokerError
from compat.matrix.channels import CHANNELS, GSSAPI, Channel, lack
from compat.matrix.clients import Verdict
from compat.matrix.outcomes import Outcomes
from compat.security.kdc import NAME, Realm, RealmError

CASES = ("create-topic", "produce-none", "commit-resume", "delete-topic")
"""Cases of each client unless others are named: every API that clients use most, and the group's coordinator."""
RECORDS = 2000
USER, ADMIN = "matrix", "admin"
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
STORE_PASSWORD = "changeit"
PREFIX = "compat-"
MODULES = "org.apache.kafka.common.security"
TOKENS = f"{MODULES}.oauthbearer"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SERVICE = "kafka/localhost"
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "CERTIFICATE": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "UNSECURED": "SASL_PLAINTEXT",
    "KERBEROS": "SASL_PLAINTEXT",
    "ENCRYPTED": "SASL_SSL",
}
OLD_JAVA = ("java-0.9", "java-0.10", "java-1.1")
"""They read no PEM (KIP-651)."""


@dataclass(frozen=True)
class Keys:
    """Files and tokens for the broker and its clients."""

    authority: Path
    broker: Path
    client: Path
    client_key: Path
    client_store: Path
    """The client's key and certificate in PKCS12."""
    trust_store: Path
    jwks: Path
    token: str
    token_file: Path
    realm: Realm | None
    """Realm with the user's and the broker's keys of Kerberos; None where no realm can be had."""


def make_keys(directory: Path, realm: Realm | None) -> Keys:
    """Make all of them below a directory. Raises CertificateError."""
    authority = Authority(directory, "ca")
    broker, client = authority.signed("broker"), authority.signed(USER)
    store, trust = directory / "client.p12", directory / "trust.p12"
    for command in (
        ["openssl", "pkcs12", "-export", "-in", client.pem, "-out", store, "-passout", f"pass:{STORE_PASSWORD}"],
        ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", authority.pem, "-keystore", trust,
         "-storetype", "PKCS12", "-storepass", STORE_PASSWORD],
    ):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CertificateError(f"{command[0]}: {done.stdout}{done.stderr}")
    key = RSAKey.generate_key(2048, {"kid": "one"})
    jwks, token_file = directory / "jwks.json", directory / "token.jwt"
    jwks.write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    now = int(time.time())
    claims = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 7200, "scope": "all"}
    token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)
    token_file.write_text(token)
    if realm is not None:
        for principal, name in ((SERVICE, "broker"), (USER, "client")):
            realm.keytab(principal).rename(realm.directory / f"{name}.keytab")
    return Keys(
        authority.pem,
        broker.pem,
        client.certificate,
        client.key,
        store,
        trust,
        jwks,
        token,
        token_file,
        realm,
    )


def broker_settings(ports: Mapping[str, int], keys: Keys) -> dict[str, str]:
    """Return the settings of a broker with all listeners."""
    addresses = ",".join(f"{name}://{_host(name)}:{port}" for name, port in ports.items())
    users = "".join(f' user_{name}="{PASSWORD}"' for name in (ADMIN, USER))
    oauth = f"{TOKENS}.OAuthBearerLoginModule required;"
    lines = {
        "listeners": addresses,
        "advertised.listeners": addresses,
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys.authority),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "listener.name.certificate.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": keys.jwks.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.unsecured.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.unsecured.oauthbearer.sasl.jaas.config": oauth,
        "listener.name.unsecured.oauthbearer.sasl.server.callback.handler.class": (
            f"{TOKENS}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        ),
    }
    if keys.realm is not None:
        lines |= {
            "listener.name.kerberos.sasl.enabled.mechanisms": GSSAPI,
            "listener.name.kerberos.gssapi.sasl.jaas.config": kerberos_module(keys.realm, "broker", SERVICE),
            "sasl.kerberos.service.name": "kafka",
        }
    for name in ("login", "encrypted"):
        prefix = f"listener.name.{name}"
        lines |= {
            f"{prefix}.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required{users};",
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": oauth,
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
                f"{TOKENS}.OAuthBearerValidatorCallbackHandler"
            ),
        }
    return lines


def prepare(ports: Mapping[str, int]) -> None:
    """Create the SCRAM user and the ACLs, as the administrator. Raises WireError, AssertionError."""
    import hashlib

    salt = b"salt of the matrix"
    upsertions = [
        {
            "Name": USER,
            "Mechanism": number,
            "Iterations": 4096,
            "Salt": salt,
            "SaltedPassword": hashlib.pbkdf2_hmac(kind, PASSWORD.encode(), salt, 4096),
        }
        for number, kind in ((1, "sha256"), (2, "sha512"))
    ]
    topic, group, cluster, transactional_id = 2, 3, 4, 5
    every, describe, idempotent_write = 2, 8, 12

    def acl(user: str, kind: int, name: str, pattern: int, operation: int) -> Values:
        return {
            "ResourceType": kind, "ResourceName": name, "ResourcePatternType": pattern, "Principal": f"User:{user}",
            "Host": "*", "Operation": operation, "PermissionType": 3,
        }  # fmt: skip

    acls = [
        acl(user, kind, PREFIX, 4, every)
        for user in (USER, "ANONYMOUS")  # who comes over TLS without a certificate
        for kind in (topic, group, transactional_id)
    ]
    acls += [
        acl(user, cluster, "kafka-cluster", 3, operation)
        for user in (USER, "ANONYMOUS")
        for operation in (describe, idempotent_write)
    ]
    with Side("", ports["PLAINTEXT"], ports["LOGIN"]).connect(user=ADMIN) as connection:
        for upsertion in upsertions:
            answer = connection.ask("AlterUserScramCredentials", 0, {"Upsertions": [upsertion]})
            assert not answer["Results"][0]["ErrorCode"], answer
        results = connection.ask("CreateAcls", 3, {"Creations": acls})["Results"]
        assert not any(result["ErrorCode"] for result in results), results


def environment(client: str, channel: Channel, keys: Keys, directory: Path) -> dict[str, str]:
    """Return the environment of a client for a channel (compat/clients/README.md)."""
    token = keys.token if channel.name.endswith("oauth") else ""
    variables = {
        "COMPAT_SECURITY_PROTOCOL": channel.protocol,
        "COMPAT_SASL_MECHANISM": channel.mechanism,
        "COMPAT_SASL_USER": USER,
        "COMPAT_SASL_PASSWORD": PASSWORD,
        "COMPAT_SASL_TOKEN": token,
        "COMPAT_SSL_CA": str(keys.authority),
    }
    if channel.mechanism == GSSAPI and keys.realm is not None:
        variables |= {
            **keys.realm.environment,
            "KRB5CCNAME": str(directory / f"{client}.tickets"),
            "COMPAT_SASL_KEYTAB": str(keys.realm.directory / "client.keytab"),
            "COMPAT_SASL_USER": f"{USER}@{NAME}",
            "JAVA_TOOL_OPTIONS": " ".join(
                (*keys.realm.java_options, f"-Djava.security.auth.login.config={_login_file(keys.realm)}")
            ),
        }
    if channel.certificate:
        variables |= {"COMPAT_SSL_CERTIFICATE": str(keys.client), "COMPAT_SSL_KEY": str(keys.client_key)}
    if client.startswith("java") or client == "kafka-tools":
        path = directory / f"{client}-{channel.name}.properties"
        lines = java_properties(client, channel, keys)
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        variables["COMPAT_PROPERTIES"] = str(path)
        if token:  # Kafka 4 reads tokens from nowhere else
            variables["JAVA_TOOL_OPTIONS"] = (
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.token_file.as_uri()}"
            )
    return variables


def java_properties(client: str, channel: Channel, keys: Keys) -> dict[str, str]:
    """Return a Java client's settings."""
    lines = {"security.protocol": channel.protocol}
    if client == "java-0.9":
        # Its consumer also looks up the coordinator of a group with an empty name, for which no ACL exists.
        lines["group.id"] = f"{PREFIX}{client}"
    if channel.has_tls and client in OLD_JAVA:
        lines |= {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(keys.trust_store),
            "ssl.truststore.password": STORE_PASSWORD,
        }
    elif channel.has_tls:
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(keys.authority)}
    if channel.certificate:
        lines |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(keys.client_store),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": STORE_PASSWORD,
        }
    if not channel.mechanism:
        return lines
    lines["sasl.mechanism"] = channel.mechanism
    if channel.mechanism == GSSAPI:  # its login module is in a file, which clients of 0.9 read too
        return {**lines, "sasl.kerberos.service.name": "kafka"}
    login = f'required username="{USER}" password="{PASSWORD}";'
    if channel.mechanism == "PLAIN":
        lines["sasl.jaas.config"] = f"{MODULES}.plain.PlainLoginModule {login}"
    elif channel.mechanism == "OAUTHBEARER" and channel.name.endswith("oauth"):
        lines |= {
            "sasl.jaas.config": f"{TOKENS}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{TOKENS}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": keys.token_file.as_uri(),
        }
    elif channel.mechanism == "OAUTHBEARER":
        claim = f'unsecuredLoginStringClaim_sub="{USER}"'
        lines["sasl.jaas.config"] = f"{TOKENS}.OAuthBearerLoginModule required {claim};"
    else:
        lines["sasl.jaas.config"] = f"{MODULES}.scram.ScramLoginModule {login}"
    return lines


def kerberos_module(realm: Realm, keytab: str, principal: str) -> str:
    """Return a login module of Java's with a key."""
    return (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{realm.directory / keytab}.keytab" principal="{principal}@{NAME}";'
    )


def _login_file(realm: Realm) -> Path:
    path = realm.directory / "client.jaas"
    path.write_text(f"KafkaClient {{\n  {kerberos_module(realm, 'client', USER)}\n}};\n")
    return path


def _host(listener: str) -> str:
    """Return the host name of a listener: Kerberos identifies the broker by its host's name."""
    return "localhost" if listener == "KERBEROS" else "127.0.0.1"


@dataclass(frozen=True)
class Wanted:
    """The options of a run."""

    clients: Sequence[str]
    channels: Sequence[str]
    cases: Sequence[str]
    records: int
    jobs: int
    against: str
    kept: Path | None = None
    """File of outcomes: channels that passed already are not run again."""


def run(request: Wanted, directory: Path, log: Callable[[str], Path]) -> Outcomes:
    """Run the clients; `log` says where what a client says is kept. Raises BrokerError, KafkaError, CertificateError."""
    with _realm(directory / "realm") as realm:
        return _run(request, directory, log, make_keys(directory / "keys", realm))


@contextmanager
def _realm(directory: Path) -> Iterator[Realm | None]:
    """Start a realm, to which this process belongs too; None where it, or the package for Kerberos, cannot be had."""
    try:
        library()
        realm = Realm(directory)
    except (RealmError, KerberosError) as error:
        print(f"without Kerberos: {error}")
        yield None
        return
    with realm:
        os.environ.update(realm.environment)
        yield realm


def _run(request: Wanted, directory: Path, log: Callable[[str], Path], keys: Keys) -> Outcomes:
    ports = {name: free_port() for name in PROTOCOLS if name != "KERBEROS" or keys.realm is not None}
    broker = _broker(request.against, directory / "broker", ports, keys)
    outcomes = Outcomes.kept(request.kept, request.against)
    broker.start()
    try:
        prepare(ports)
        pairs = [
            (client, CHANNELS[channel])
            for client in request.clients
            for channel in request.channels
            if (client, channel) not in outcomes.verdicts
        ]

        def one(pair: tuple[str, Channel]) -> Verdict:
            return _run_client(*pair, request, keys, ports, directory, log)

        with rows_in_threads(request.jobs) as pool:
            for (client, channel), verdict in zip(pairs, pool.map(one, pairs), strict=True):
                outcomes.verdicts[client, channel.name] = verdict
                if request.kept is not None:
                    outcomes.keep(request.kept, request.against)
                print(verdict.status, client, channel.name, verdict.detail[:300], flush=True)
    finally:
        try:
            broker.stop()
            complaints = broker.complaints()
        except BrokerError as error:
            complaints = [str(error)]
    if complaints:
        outcomes.verdicts["broker", ""] = Verdict(
            "FAIL", f"{len(complaints)} errors in its log, the first: {complaints[0]}"
        )
    return outcomes


def _run_client(
    client: str,
    channel: Channel,
    request: Wanted,
    keys: Keys,
    ports: Mapping[str, int],
    directory: Path,
    log: Callable[[str], Path],
) -> Verdict:
    """All cases of a client in one channel, as one verdict."""
    reason = lack(client, channel.name)
    if not reason and channel.mechanism == GSSAPI and keys.realm is None:
        reason = "no key distribution centre, or no package gssapi, is here"
    if reason:
        return Verdict("SKIP", reason)
    begun = time.monotonic()
    told = {
        "COMPAT_CASE_TIMEOUT_S": os.environ.get("COMPAT_CASE_TIMEOUT_S", "120"),
        "COMPAT_RECORDS": str(request.records),
        **environment(client, channel, keys, directory),
    }
    address = f"{_host(channel.listener)}:{ports[channel.listener]}"
    verdicts = clients.run(clients.program(client), address, request.cases, told, log(client))
    return _together(verdicts.items(), time.monotonic() - begun)


def _together(verdicts: Iterable[tuple[str, Verdict]], seconds: float) -> Verdict:
    every = list(verdicts)
    for case, verdict in every:
        if verdict.status == "FAIL":
            return Verdict("FAIL", f"{case}: {verdict.detail}")
    if all(verdict.status == "SKIP" for _, verdict in every):
        return Verdict("SKIP", every[0][1].detail)
    return Verdict("PASS", seconds=seconds)


def _broker(against: str, directory: Path, ports: Mapping[str, int], keys: Keys) -> Broker:
    """The broker under test. Raises KafkaError."""
    directory.mkdir()
    settings = {**broker_settings(ports, keys), "num.partitions": "3"}
    kind, _, version = against.partition("-")
    if kind == "barnabas":
        return Barnabas(directory, settings)
    controller = free_port()
    (directory / "controller.port").write_text(str(controller))
    settings["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
    settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    settings["super.users"] += ";User:ANONYMOUS"  # the broker to its own controller
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.jwks.as_uri()}"
    options = (allowed, *(keys.realm.java_options if keys.realm is not None else ()))
    return ApacheKafka(directory, version or "4.x", settings, port=ports["PLAINTEXT"], jvm_options=options)
