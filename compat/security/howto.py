"""Examples of docs/how-to/security.md, run as printed: python -m compat.security.howto [--only SECTION].

Each section's settings start a broker, its commands are run, and the settings of its clients are given to them. Replaced
are hosts and ports (localhost, free ones), the files of /etc/barnabas, the realm EXAMPLE, and https://issuer.example, which
is an identity provider on loopback. The exit code is 1 when something does not work.
"""

from __future__ import annotations

import argparse
import ast
import http.server
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from barnabas.network.kerberos import KerberosError, library
from barnabas.testing.running import import_path
from compat.kafka import KafkaError, free_port, release, tool_command
from compat.kit.certificates import Authority
from compat.kit.sides import ROOT, StartError, barnabas
from compat.security.kdc import NAME, Realm, RealmError

PAGE = ROOT / "docs" / "how-to" / "security.md"
TLS = "TLS"
PROGRAM_S = 60
TOPIC = "howto"
TOKEN_LINE = re.compile(r"^(\S{22})\s+(\S{88})\s", re.MULTILINE)
WRITES_AND_READS = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
settings, topic = eval(sys.argv[1]), sys.argv[2]
producer = Producer(settings)
producer.produce(topic, b"librdkafka")
assert producer.flush(30) == 0, "not acknowledged"
consumer = Consumer({**settings, "group.id": "howto", "enable.auto.commit": False})
consumer.assign([TopicPartition(topic, 0, 0)])
message = consumer.poll(30)
assert message is not None and not message.error(), message and message.error()
consumer.close()
"""
KAFKA_PYTHON = """
import sys
from kafka import KafkaProducer
producer = KafkaProducer(**eval(sys.argv[1]))
producer.send(sys.argv[2], b"kafka-python").get(30)
producer.close()
"""


class HowtoError(Exception):
    """A printed example does not work; the message says which."""


# --- the page --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """A part of the page: its text, from which settings, commands and clients are read."""

    title: str
    text: str

    def settings(self) -> str:
        """Return the lines of its settings file. Raises HowtoError."""
        for block in self._blocks():
            if "listeners=" in block:
                return block
        raise HowtoError(f"{self.title}: no settings are printed")

    def commands(self) -> list[list[str]]:
        """Return the words of its commands; `...` stands for the first three of the first one's options."""
        lines: list[list[str]] = []
        for block in self._blocks():
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if not words or not re.fullmatch(r"barnabas|kafka-[a-z-]+\.sh", words[0]):
                    continue
                if "..." in words:
                    begin = next(line for line in lines if line[0] == words[0])
                    at = words.index("...")
                    words[at : at + 1] = begin[1:5]
                lines.append(words)
        return lines

    def client(self, name: str) -> dict[str, str]:
        """Return the settings that the table names for a client; none where there is no such row."""
        row = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", self.text, re.MULTILINE)
        return dict(re.findall(r"`([\w.]+)=([^`]*)`", row[1])) if row else {}

    def _blocks(self) -> Iterator[str]:
        for match in re.finditer(r"(?:^    .*\n)+", self.text, re.MULTILINE):
            yield re.sub(r"(?m)^    ", "", match[0])


def sections() -> dict[str, Section]:
    """Return the parts of the page by the first word of their titles."""
    texts = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        texts[title.partition(":")[0]] = Section(title, text)
    return texts


# --- the environment of the examples -----------------------------------------------------------------------------------


class Issuer:
    """An identity provider: `/keys` has its keys, `/token` gives a token for a client id and secret."""

    def __init__(self) -> None:
        key = RSAKey.generate_key(2048, {"kid": "one"})
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(KeySet([key]).as_dict(private=False))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                now = int(time.time())
                claims = {"sub": "alice", "iss": issuer.url, "aud": "kafka", "iat": now, "exp": now + 3600}
                token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)
                self._answer({"access_token": token, "token_type": "Bearer", "expires_in": 3600})

            def _answer(self, value: object) -> None:
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Do not answer any more."""
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Trial:
    """One section with its broker, in a directory of its own."""

    section: Section
    tls: Section
    directory: Path
    port: int = field(default_factory=free_port)
    issuer: Issuer | None = None
    realm: Realm | None = None
    token: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        authority = Authority(self.directory, "ca")
        (self.directory / "ca.crt").write_text(authority.pem.read_text())
        authority.signed("broker")
        alice = authority.signed("alice")
        (self.directory / "alice.key").write_text(alice.key.read_text())

    @property
    def properties(self) -> Path:
        """The settings file."""
        return self.directory / "server.properties"

    def replaced(self, text: str) -> str:
        """Return a printed text with the hosts, ports and files of this machine."""
        text = re.sub(r"://(?:localhost|broker\.example)?:\d+", f"://localhost:{self.port}", text)
        text = re.sub(r"\blocalhost:909\d", f"localhost:{self.port}", text).replace(
            "broker.example", "localhost"
        )
        text = text.replace("/etc/barnabas/", f"{self.directory}/").replace("TOKENID", self.token[0])
        text = re.sub(r"\bHMAC\b", self.token[1].replace("\\", r"\\"), text) if self.token[1] else text
        text = re.sub(r"\b((?:ca|alice)\.(?:crt|key|pem)|alice\.keytab)\b", rf"{self.directory}/\1", text)
        text = text.replace(f"{self.directory}/{self.directory}/", f"{self.directory}/")
        if self.issuer is not None:
            text = text.replace("https://issuer.example", self.issuer.url)
        return re.sub(r"@EXAMPLE\b", f"@{NAME}", text)

    def client(self, name: str) -> dict[str, str]:
        """Return a client's settings: those of TLS without a certificate of its own, and the section's."""
        own = self.section.client(name)
        if not own:
            return {}
        shared = self.tls.client(name) if self.section is not self.tls else {}
        shared = {
            key: value
            for key, value in shared.items()
            if not re.search(r"keystore|certificate|ssl\.key", key)
        }
        properties = {key: self.replaced(value) for key, value in {**shared, **own}.items()}
        return {"bootstrap.servers": f"localhost:{self.port}", **properties}

    def environment(self) -> dict[str, str]:
        """Return additional environment variables of programs."""
        variables = dict(os.environ)
        if self.realm is not None:
            variables |= self.realm.environment
            variables["KRB5CCNAME"] = str(self.directory / "alice.tickets")
            variables["JAVA_TOOL_OPTIONS"] = " ".join(self.realm.java_options)
        if self.issuer is not None:
            option = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.issuer.url}/token"
            variables["JAVA_TOOL_OPTIONS"] = option
        return variables

    def call(self, *words: str, stdin: str = "") -> str:
        """Run a program; returns what it prints. Raises HowtoError."""
        try:
            done = subprocess.run(
                words, input=stdin, capture_output=True, text=True, check=False, timeout=PROGRAM_S,
                env={**self.environment(), "PYTHONPATH": import_path()}, cwd=self.directory,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise HowtoError(
                f"{self.section.title}: {words[0]} did not end: {str(error.stderr)[-1500:]}"
            ) from None
        output = f"{done.stdout}{done.stderr}"
        if done.returncode or "Error while executing" in output:
            raise HowtoError(f"{self.section.title}: {' '.join(words)[-300:]}: {output[-1500:]}")
        return done.stdout

    def command(self, words: list[str]) -> str:
        """Run a printed command."""
        words = [self.replaced(word) for word in words]
        if words[0] == "barnabas":
            return self.call(sys.executable, "-m", *words)
        name = words[0].removeprefix("kafka-").removesuffix(".sh")
        output = self.call(*tool_command(release("4.x"), name, *words[1:]))
        token = TOKEN_LINE.search(output)
        if "--create" in words and token:
            self.token = token[1], token[2]
        return output

    def java_file(self, name: str, settings: dict[str, str]) -> Path:
        """Write settings for Kafka's tools."""
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


# --- clients ----------------------------------------------------------------------------------------------------------


def librdkafka(trial: Trial) -> None:
    """Write a record and read it; with Kerberos by kcat, which has a library for it."""
    settings = trial.client("librdkafka")
    if settings.get("sasl.mechanism") != "GSSAPI":
        trial.call(sys.executable, "-c", WRITES_AND_READS, repr(settings), TOPIC)
        return
    options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    trial.call("kcat", "-P", "-t", TOPIC, *options, stdin="kcat\n")
    if "kcat" not in trial.call("kcat", "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q", *options).split():
        raise HowtoError(f"{trial.section.title}: kcat does not read what it wrote")


def java(trial: Trial) -> None:
    """Write a record and read it with Kafka's tools."""
    file = str(trial.java_file("java", trial.client("Java")))
    words = ("--bootstrap-server", f"localhost:{trial.port}", "--command-config", file, "--topic", TOPIC)
    trial.call(*tool_command(release("4.x"), "console-producer", *words), stdin="java\n")
    read = ("--from-beginning", "--timeout-ms", "15000")
    if "java" not in trial.call(*tool_command(release("4.x"), "console-consumer", *words, *read)).split():
        raise HowtoError(f"{trial.section.title}: the console consumer does not read what was written")


def kafka_python(trial: Trial) -> None:
    """Write a record, with a ticket that kinit got."""
    settings = {key: ast.literal_eval(value) for key, value in trial.section.client("kafka-python").items()}
    ready = {"bootstrap_servers": f"localhost:{trial.port}", "security_protocol": "SASL_SSL"}
    ready["ssl_cafile"] = str(trial.directory / "ca.crt")
    trial.call(sys.executable, "-c", KAFKA_PYTHON, repr({**ready, **settings}), TOPIC)


CLIENTS: dict[str, Callable[[Trial], None]] = {
    "librdkafka": librdkafka,
    "Java": java,
    "kafka-python": kafka_python,
}


# --- what a section needs besides -------------------------------------------------------------------------------------


@contextmanager
def around(trial: Trial) -> Iterator[None]:
    """Run the identity provider or the realm that a section needs. Raises RealmError, KerberosError."""
    settings = trial.section.settings()
    if "issuer.example" in settings:
        trial.issuer = Issuer()
        yield
        trial.issuer.close()
    elif "GSSAPI" in settings:
        library()
        with Realm(trial.directory / "realm") as realm:
            trial.realm = realm
            realm.keytab("kafka/localhost").rename(trial.directory / "kafka.keytab")
            realm.keytab("alice").rename(trial.directory / "alice.keytab")
            realm.tickets("alice").rename(trial.directory / "alice.tickets")
            before = {key: os.environ.get(key) for key in realm.environment}
            os.environ.update(realm.environment)
            try:
                yield
            finally:
                for key, value in before.items():
                    os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)
    else:
        yield


def users(trial: Trial, scram: Section) -> None:
    """Create the users that a section assumes, as in the section about SCRAM, and the files of their tools."""
    settings = trial.section.settings()
    if "SCRAM" not in settings:
        trial.java_file("admin", trial.client("Java"))
        return
    mechanism = re.search(r"sasl\.enabled\.mechanisms=(\S+)", settings)
    assert mechanism is not None
    java_of_scram = Trial.client(trial, "Java") if trial.section is scram else None
    row = java_of_scram or {
        **{
            key: trial.replaced(value)
            for key, value in trial.tls.client("Java").items()
            if "keystore" not in key
        },
        **{key: trial.replaced(value) for key, value in scram.client("Java").items()},
    }
    row["sasl.mechanism"] = mechanism[1]
    for user in ("admin", "alice"):
        jaas = row["sasl.jaas.config"].replace("alice", user)
        trial.java_file(user, {**row, "sasl.jaas.config": jaas})
    if trial.section is scram:
        return  # its own commands make them
    words = ["barnabas", "storage", "format", "--config", "server.properties", "--add-scram"]
    trial.command([*words, f"{mechanism[1]}=[name=alice,password=alice-secret]"])


def run(section: Section, every: dict[str, Section], directory: Path) -> str:
    """Try a section; returns what was tried. Raises HowtoError, StartError, KafkaError, RealmError, KerberosError."""
    trial = Trial(section, every[TLS], directory)
    with around(trial):
        trial.properties.write_text(f"log.dirs={directory / 'data'}\n{trial.replaced(section.settings())}\n")
        users(trial, every["SCRAM"])
        commands = section.commands()
        done = [words for words in commands if words[0] == "barnabas"]
        for words in done:
            trial.command(words)
        names = [" ".join(words[:3]) for words in done]
        with barnabas(trial.properties):
            later = [words for words in commands if words[0] != "barnabas"]
            last = [words for words in later if "--delete-config" in words or "--expire" in words]
            for words in later:
                if words not in last:
                    trial.command(words)
            for name, client in CLIENTS.items():
                if section.client(name):
                    client(trial)
                    names.append(name)
            for words in last:
                trial.command(words)
            names += [words[0] for words in later]
    return ", ".join(names)


def main() -> int:
    """Try all; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.howto", description=__doc__)
    every = sections()
    names = [name for name, doc in every.items() if "    listeners=" in doc.text and "| Client |" in doc.text]
    parser.add_argument("--only", action="append", choices=names, help="only this section; may be repeated")
    failed = 0
    for name in parser.parse_args().only or names:
        begun = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="howto-") as directory:
                verdict = f"PASS {name}: {run(every[name], every, Path(directory))}"
        except (RealmError, KerberosError) as missing:
            verdict = f"SKIP {name}: {missing}"
        except (HowtoError, StartError, KafkaError) as error:
            failed += 1
            verdict = f"FAIL {name}: {error}"
        print(f"{verdict} ({time.monotonic() - begun:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
