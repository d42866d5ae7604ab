"""Stock clients that log in with Kerberos: kcat (librdkafka and Cyrus SASL), Kafka's console clients (Java), kafka-python.

The rule: each writes records and reads them back as alice, on each broker; with the name of another service it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compat.kafka import release
from compat.kafka.process import java_command
from compat.kafka.tools import TOOLS, TOOLS_3_9, TOOLS_JVM
from compat.kit.sides import Side
from compat.security.kdc import NAME, Realm, install

TIMEOUT_S = 90
RECORDS = [f"record {number}" for number in range(5)]
LINES = "".join(f"{record}\n" for record in RECORDS)
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PLUGIN = "libgssapiv2.so"
WRITE_AND_READ = """
import sys
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

bootstrap, service, topic = sys.argv[1:]
options = {
    "bootstrap_servers": bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_service_name": service,
}
producer = KafkaProducer(**options, max_block_ms=15000)
for line in sys.stdin:
    producer.send(topic, line.rstrip().encode()).get(15)
consumer = KafkaConsumer(**options, consumer_timeout_ms=15000)
consumer.assign([TopicPartition(topic, 0)])
consumer.seek_to_beginning()
for _ in range(5):
    print(next(consumer).value.decode())
"""
Client = Callable[[str, Side, Realm, str, Path], list[str]]
"""Returns the lines that were read: by (version of Kafka, side, realm, service, directory)."""


def run(command: list[str], environment: dict[str, str], lines: str = "") -> list[str]:
    """Run a client to its end; returns what it has written, or `failed` as its only line."""
    try:
        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            env={**os.environ, **environment},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ["failed: no end in time"]
    return done.stdout.splitlines() if done.returncode == 0 else ["failed"]


def kcat(_version: str, side: Side, realm: Realm, service: str, directory: Path) -> list[str]:
    """Debian's librdkafka, which calls kinit by itself."""
    options = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "GSSAPI", "sasl.kerberos.service.name": service,
        "sasl.kerberos.keytab": str(realm.directory / "client.keytab"), "sasl.kerberos.principal": f"alice@{NAME}",
        "message.timeout.ms": "10000", "topic.metadata.refresh.interval.ms": "500",
    }  # fmt: skip
    environment = {"KRB5CCNAME": str(directory / "tickets")}
    command = ["kcat", "-b", f"localhost:{side.sasl_port}", "-t", "by-kcat", "-q"]
    for name, value in options.items():
        command += ["-X", f"{name}={value}"]
    wrote = run([*command, "-P"], environment, LINES)
    return wrote or run([*command, "-C", "-c", str(len(RECORDS)), "-o", "beginning", "-p", "0"], environment)


def java(version: str, side: Side, realm: Realm, service: str, directory: Path) -> list[str]:
    """Kafka's console clients."""
    config = directory / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        f"sasl.kerberos.service.name={service}\nmax.block.ms=15000\nrequest.timeout.ms=10000\n"
        f"sasl.jaas.config={MODULE} required useKeyTab=true storeKey=true "
        f'keyTab="{realm.directory / "client.keytab"}" principal="alice@{NAME}";\n'
    )
    of = release(version)
    names = {**TOOLS, **(TOOLS_3_9 if of.line == "3.9" else {})}
    common = ("--bootstrap-server", f"localhost:{side.sasl_port}", "--topic", "by-java")
    options = TOOLS_JVM + realm.java_options
    is_old = of.line == "3.9"
    producer, consumer = ("--producer.config", "--consumer.config") if is_old else ("--command-config",) * 2
    writer = java_command(of, names["console-producer"], *common, producer, str(config), options=options)
    reader = java_command(
        of, names["console-consumer"], *common, consumer, str(config), "--from-beginning",
        "--max-messages", str(len(RECORDS)), "--timeout-ms", "15000", options=options,
    )  # fmt: skip
    wrote = [line for line in run(writer, {}, LINES) if line == "failed"]
    return wrote or run(reader, {}) or ["failed"]  # the tools end with 0 all the same


def kafka_python(_version: str, side: Side, realm: Realm, service: str, _directory: Path) -> list[str]:
    """It takes tickets that are there."""
    command = [
        sys.executable,
        "-c",
        WRITE_AND_READ,
        f"localhost:{side.sasl_port}",
        service,
        "by-kafka-python",
    ]
    return run(command, {"KRB5CCNAME": str(realm.directory / "client.tickets")}, LINES)


CLIENTS: dict[str, Client] = {"kcat": kcat, "java": java, "kafka-python": kafka_python}


def prepare(realm: Realm) -> None:
    """See that everything is there that clients need. Raises RealmError."""
    if shutil.which("kcat") is None:
        install("kcat")
    if not any(Path("/usr/lib").glob(f"*/sasl2/{PLUGIN}")):
        install("libsasl2-modules-gssapi-mit")
    realm.keytab("alice").rename(realm.directory / "client.keytab")
    realm.tickets("alice").rename(realm.directory / "client.tickets")
    realm.keytab("wrong/localhost")


def compare_clients(version: str, sides: tuple[Side, Side], realm: Realm) -> int:
    """Have each client write and read on both sides; returns how many did not do as they should."""
    prepare(realm)
    bad = 0
    for name, client in CLIENTS.items():
        for service, expected in (("kafka", RECORDS), ("wrong", ["failed"])):

            def seen_on(side: Side) -> list[str]:
                directory = realm.directory / f"{name}-{service}-{side.name}"  # noqa: B023
                directory.mkdir()
                return client(version, side, realm, service, directory)  # noqa: B023

            with ThreadPoolExecutor(2) as pool:
                theirs, ours = pool.map(seen_on, sides)
            is_right = theirs == ours == expected
            bad += not is_right
            print(f"{'same' if is_right else 'differs'}: {name} of service {service}: {len(ours)} lines")
            if not is_right:
                print(f"  Kafka    {theirs}\n  Barnabas {ours}")
    return bad
