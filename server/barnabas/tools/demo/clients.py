"""The settings with which stock clients log in to the broker of a demonstration, ready to be copied. Pure text.

The rule: every setting is written in full, with the paths and the password of this demonstration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.tools.demo.security import PREFIX, READER, USERS, WRITER

if TYPE_CHECKING:
    from barnabas.tools.demo.security import Demo

LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def librdkafka(demo: Demo, user: str, address: str) -> str:
    """Return the settings of librdkafka, kcat and its bindings."""
    return _lines(
        *_login(address),
        f"sasl.username={user}",
        f"sasl.password={demo.passwords[user]}",
        f"ssl.ca.location={demo.authority}",
    )


def librdkafka_with_certificate(demo: Demo, user: str, address: str) -> str:
    """Return the settings of librdkafka that shows a certificate; before 2.6.1 it cannot log in with SCRAM."""
    return _lines(
        f"bootstrap.servers={address}",
        "security.protocol=SSL",
        f"ssl.ca.location={demo.authority}",
        f"ssl.certificate.location={demo.key_store(user)}",
        f"ssl.key.location={demo.key_store(user)}",
    )


def java(demo: Demo, user: str, address: str) -> str:
    """Return the settings of Java clients and Kafka's tools (`--command-config`)."""
    return _lines(
        *_login(address),
        f'sasl.jaas.config={LOGIN_MODULE} required username="{user}" password="{demo.passwords[user]}";',
        *_java_trust(demo),
    )


def java_with_certificate(demo: Demo, user: str, address: str) -> str:
    """Return the settings of Java clients that show a certificate."""
    return _lines(
        f"bootstrap.servers={address}",
        "security.protocol=SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={demo.key_store(user)}",
        *_java_trust(demo),
    )


def _lines(*lines: str) -> str:
    return "\n".join(lines)


def _login(address: str) -> tuple[str, ...]:
    return (
        f"bootstrap.servers={address}",
        "security.protocol=SASL_SSL",
        "sasl.mechanism=SCRAM-SHA-512",
    )


def _java_trust(demo: Demo) -> tuple[str, ...]:
    return ("ssl.truststore.type=PEM", f"ssl.truststore.location={demo.authority}")


def kafka_python(demo: Demo, user: str, address: str) -> str:
    """Return a call of kafka-python."""
    return (
        f'KafkaProducer(bootstrap_servers="{address}", security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512",\n'
        f'              sasl_plain_username="{user}", sasl_plain_password="{demo.passwords[user]}",\n'
        f'              ssl_cafile="{demo.authority}")'
    )


def franz_go(demo: Demo, user: str, address: str) -> str:
    """Return the options of franz-go."""
    return (
        f'pem, _ := os.ReadFile("{demo.authority}")\n'
        "pool := x509.NewCertPool(); pool.AppendCertsFromPEM(pem)\n"
        f'client, err := kgo.NewClient(kgo.SeedBrokers("{address}"),\n'
        "    kgo.DialTLSConfig(&tls.Config{RootCAs: pool}),\n"
        f'    kgo.SASL(scram.Auth{{User: "{user}", Pass: "{demo.passwords[user]}"}}.AsSha512Mechanism()))'
    )


def kafkajs(demo: Demo, user: str, address: str) -> str:
    """Return the options of kafkajs."""
    return (
        f"new Kafka({{ brokers: ['{address}'], ssl: {{ ca: [fs.readFileSync('{demo.authority}')] }},\n"
        f"  sasl: {{ mechanism: 'scram-sha-512', username: '{user}', password: '{demo.passwords[user]}' }} }})"
    )


def spark(demo: Demo, user: str, address: str) -> str:
    """Return a reader of Spark's Kafka source, in parentheses: so the lines are both Python and Scala."""
    return _lines(
        '(spark.readStream.format("kafka")',
        *(
            f"  .option({_quoted(name, 'kafka.')}, {_quoted(value)})"
            for name, _, value in (line.partition("=") for line in java(demo, user, address).split("\n"))
        ),
        '  .option("startingOffsets", "earliest")',
        f'  .option("subscribe", "{PREFIX}").option("kafka.group.id", "{PREFIX}").load())',
    )


def _quoted(text: str, before: str = "") -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{before}{escaped}"'


CLIENTS: tuple[tuple[str, str, Callable[[Demo, str, str], str]], ...] = (
    ("librdkafka since 2.6.1, confluent-kafka", WRITER, librdkafka),
    ("Java, Kafka's tools (--command-config FILE)", WRITER, java),
    ("kafka-python", WRITER, kafka_python),
    ("franz-go", WRITER, franz_go),
    ("kafkajs", WRITER, kafkajs),
    ("Spark", READER, spark),
)


def instructions(demo: Demo, sasl_address: str, ssl_address: str) -> str:
    """Return the instructions for a user; an address is empty if no listener has that security protocol."""
    people = "\n".join(f"  {user:6} {demo.passwords[user]}" for user in USERS)
    ways = [("SCRAM-SHA-512", sasl_address), ("certificates", ssl_address)]
    where = (
        ", ".join(f"{way} at {address}" for way, address in ways if address) or "no listener asks for them"
    )
    parts = [
        f"Users and passwords ({where}):\n{people}",
        f"admin may do everything, alice may write to topics {PREFIX}*, bob may read them in groups {PREFIX}*.",
    ]
    if sasl_address:
        parts += [f"# {title}\n{write(demo, user, sasl_address)}" for title, user, write in CLIENTS]
    if ssl_address:
        certificate = librdkafka_with_certificate(demo, WRITER, ssl_address)
        parts.append(f"# kcat -F FILE and any librdkafka with a certificate\n{certificate}")
        parts.append(f"# Java with a certificate\n{java_with_certificate(demo, WRITER, ssl_address)}")
    parts.append(f"Everything is in {demo.directory}; a second start uses it again.")
    return "\n\n".join(parts) + "\n"
