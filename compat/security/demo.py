"""Output of `barnabas serve --demo-security`, used by clients as printed: python -m compat.security.demo.

Each section is put into a minimal program of its client, or into the configuration file of a tool; the writer writes, the
reader reads. The exit code is 1 if one of them does not work.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from barnabas.testing.running import import_path
from compat.kafka import KafkaError, free_port, release, tool_command
from compat.kit.ending import end_servers_at_sigterm
from compat.kit.sides import ROOT, StartError

CLIENTS = ROOT / "compat" / "clients"
TOOLS = ROOT / ".tools" / "clients"
TOPIC, READER = "demo", "bob"
PROGRAM_S = 240
"""Time that a client may take, with compiling it."""
STOP_S = 30


class DemoError(Exception):
    """A client has failed; the message has its output."""


class LacksError(Exception):
    """A client is not installed; the message says what is missing."""


@dataclass(frozen=True)
class Demo:
    """A running demonstration: what it has printed, and a directory for programs."""

    output: str
    directory: Path

    def section(self, title: str) -> str:
        """Return the printed lines below a title. Raises DemoError."""
        text = self.output.partition(f"# {title}")[2].partition("\n")[2].partition("\n\n")[0]
        if not text:
            raise DemoError(f"nothing is printed for {title}")
        return text

    def password(self, user: str) -> str:
        """Return the password that is printed for a user."""
        return dict(re.findall(r"^  (\w+) +(\S+)$", self.output, re.MULTILINE))[user]

    def as_reader(self, text: str) -> str:
        """Return settings of the writer alice with name and password of the reader bob."""
        return text.replace(self.password("alice"), self.password(READER)).replace("alice", READER)

    def file(self, name: str, text: str) -> Path:
        """Write a file; returns its path."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        return path

    def call(self, *command: str | Path, stdin: str = "", cwd: Path | None = None, **environment: str) -> str:
        """Run a program to its end; returns what it prints. Raises DemoError."""
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words, input=stdin, capture_output=True, text=True, check=False, cwd=cwd or self.directory,
                timeout=PROGRAM_S, env={**os.environ, **environment},
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"{words[0]} did not end in {PROGRAM_S} s: {error.stdout!r}") from None
        if done.returncode:
            raise DemoError(f"{' '.join(words)[:200]}: {(done.stdout + done.stderr)[-1500:]}")
        return done.stdout


@contextmanager
def running(directory: Path) -> Iterator[Demo]:
    """A demonstration at ports of its own. Raises StartError."""
    sasl, tls = free_port(), free_port()
    command = [
        sys.executable, "-m", "barnabas", "serve", "--demo-security", str(directory / "demo"),
        "--set", f"listeners=SASL_SSL://localhost:{sasl},SSL://localhost:{tls}",
    ]  # fmt: skip
    end_servers_at_sigterm()
    log = directory / "broker.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**os.environ, "PYTHONPATH": import_path()},
        )  # fmt: skip
    assert process.stdout is not None
    output = ""
    try:
        while not output.endswith("\n") or "barnabas is ready" not in output.splitlines()[-1]:
            line = process.stdout.readline()
            if not line:
                raise StartError(f"the demonstration does not start:\n{output}{log.read_text()}")
            output += line
        yield Demo(output, directory)
    finally:
        process.terminate()
        process.wait(STOP_S)
        process.stdout.close()


# --- one function for each client; each returns a line about its records -----------------------------------------------


def need(what: Path | str, how: str) -> None:
    """Raise LacksError where a file or a program is not there."""
    if not (what.exists() if isinstance(what, Path) else shutil.which(what)):
        raise LacksError(how)


def kcat(demo: Demo) -> str:
    """Write with kcat -F and a certificate, and read as bob."""
    need("kcat", "kcat (Debian: apt-get install kcat)")
    settings = demo.section("kcat -F FILE")
    writer = demo.file("kcat.conf", settings)
    demo.call("kcat", "-F", writer, "-P", "-t", TOPIC, stdin="kcat\n")
    reader = demo.file("kcat-reader.conf", demo.as_reader(settings))
    output = demo.call("kcat", "-F", reader, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q")
    group = demo.call(
        "kcat", "-F", reader, "-X", "auto.offset.reset=earliest", "-e", "-q", "-G", "demo-kcat", TOPIC
    )
    if "kcat" not in output.split() or "kcat" not in group.split():
        raise DemoError(f"kcat reads {output!r} and {group!r}")
    return "kcat"


def confluent(demo: Demo) -> str:
    """Write with confluent-kafka."""
    settings = dict(line.split("=", 1) for line in demo.section("librdkafka").splitlines())
    program = demo.file(
        "confluent.py",
        f"from confluent_kafka import Producer\nproducer = Producer({settings!r})\n"
        f"producer.produce({TOPIC!r}, b'confluent-kafka')\nassert producer.flush(30) == 0",
    )
    demo.call(sys.executable, program)
    return "confluent-kafka"


def java_tools(demo: Demo) -> str:
    """Write with the console producer, read with the console consumer as bob, list topics."""
    kafka = release("4.x")
    settings = demo.section("Java, Kafka's tools")
    address = dict(line.split("=", 1) for line in settings.splitlines())["bootstrap.servers"]
    writer = demo.file("java.properties", settings)
    reader = demo.file("java-reader.properties", demo.as_reader(settings))
    server = ("--bootstrap-server", address, "--command-config")
    demo.call(
        *tool_command(kafka, "console-producer", *server, str(writer), "--topic", TOPIC), stdin="java\n"
    )
    read = ("--topic", TOPIC, "--from-beginning", "--group", "demo-java", "--timeout-ms", "10000")
    output = demo.call(*tool_command(kafka, "console-consumer", *server, str(reader), *read))
    if "java" not in output.split():
        raise DemoError(f"the console consumer reads {output!r}")
    if demo.call(*tool_command(kafka, "topics", *server, str(writer), "--list")).split() != [TOPIC]:
        raise DemoError("kafka-topics does not list the one topic")
    return "java"


def java_certificate(demo: Demo) -> str:
    """Write with the console producer and a certificate."""
    settings = demo.section("Java with a certificate")
    address = dict(line.split("=", 1) for line in settings.splitlines())["bootstrap.servers"]
    file = demo.file("certificate.properties", settings)
    words = ("--bootstrap-server", address, "--command-config", str(file), "--topic", TOPIC)
    demo.call(*tool_command(release("4.x"), "console-producer", *words), stdin="certificate\n")
    return "certificate"


def kafka_python(demo: Demo) -> str:
    """Write with kafka-python."""
    program = demo.file(
        "kafka_python.py",
        f"from kafka import KafkaProducer\nproducer = {demo.section('kafka-python')}\n"
        f"producer.send({TOPIC!r}, b'kafka-python').get(30)\nproducer.close()",
    )
    demo.call(sys.executable, program)
    return "kafka-python"


def franz_go(demo: Demo) -> str:
    """Write with franz-go."""
    need("go", "Go 1.25 or newer (https://go.dev/dl)")
    place = demo.directory / "franz-go"
    place.mkdir()
    modules = (CLIENTS / "franz-go" / "go.mod").read_text()
    modules = modules.replace("../shared/go", str(CLIENTS / "shared" / "go"))
    (place / "go.mod").write_text(modules)
    shutil.copy(CLIENTS / "franz-go" / "go.sum", place)
    names = "context crypto/tls crypto/x509 os github.com/twmb/franz-go/pkg/kgo github.com/twmb/franz-go/pkg/sasl/scram"
    imports = "\n".join(f'\t"{name}"' for name in names.split())
    (place / "main.go").write_text(
        f"package main\n\nimport (\n{imports}\n)\n\nfunc main() {{\n{demo.section('franz-go')}\n"
        "if err != nil { panic(err) }\ndefer client.Close()\n"
        f'record := &kgo.Record{{Topic: "{TOPIC}", Value: []byte("franz-go")}}\n'
        "if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil { panic(err) }\n}\n"
    )
    demo.call("go", "run", ".", cwd=place, GOFLAGS="-mod=mod")
    return "franz-go"


def kafkajs(demo: Demo) -> str:
    """Write with kafkajs."""
    need("node", "Node.js 20 or newer (Debian: apt-get install nodejs npm)")
    modules = TOOLS / "kafkajs" / "node_modules"
    need(modules, "kafkajs: run compat/clients/kafkajs/run once")
    program = demo.file(
        "kafkajs.js",
        'const fs = require("fs");\nconst { Kafka } = require("kafkajs");\n'
        f"const kafka = {demo.section('kafkajs')};\n(async () => {{\nconst producer = kafka.producer();\n"
        "await producer.connect();\n"
        f"await producer.send({{ topic: '{TOPIC}', messages: [{{ value: 'kafkajs' }}] }});\n"
        "await producer.disconnect();\n})().catch((error) => { console.error(error); process.exit(1); });",
    )
    demo.call("node", program, NODE_PATH=str(modules))
    return "kafkajs"


def spark(demo: Demo) -> str:
    """Read what is there with Spark, as bob, once."""
    if importlib.util.find_spec("pyspark") is None:
        raise LacksError("pyspark: make test-pipeline sets it up")
    jars = sorted((ROOT / ".tools").glob("spark-connector-*/*.jar"))
    if not jars:
        raise LacksError("Spark's Kafka connector: make test-pipeline fetches it")
    out = demo.directory / "spark-out"
    program = demo.file(
        "spark.py",
        "from pyspark.sql import SparkSession\n"
        'spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")\n'
        f'    .config("spark.jars", {",".join(map(str, jars))!r}).getOrCreate())\n'
        'spark.sparkContext.setLogLevel("ERROR")\n'
        f"stream = {demo.section('Spark')}\n"
        'query = (stream.selectExpr("CAST(value AS STRING)").writeStream.trigger(availableNow=True)\n'
        f'    .format("text").option("path", {str(out)!r}).option("checkpointLocation", {str(out) + "-state"!r}).start())\n'
        "query.awaitTermination()",
    )
    demo.call(sys.executable, program, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    lines = {line for path in out.glob("part-*") for line in path.read_text().split()}
    if "kafka-python" not in lines:
        raise DemoError(f"Spark reads {sorted(lines)}")
    return f"reads {len(lines)} values"


TRIALS: dict[str, Callable[[Demo], str]] = {
    "kafka-python": kafka_python,
    "confluent-kafka": confluent,
    "kcat": kcat,
    "java": java_tools,
    "java-certificate": java_certificate,
    "franz-go": franz_go,
    "kafkajs": kafkajs,
    "spark": spark,
}


def main() -> int:
    """Try them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.demo", description=__doc__)
    parser.add_argument("--only", action="append", choices=TRIALS, help="only this client; may be repeated")
    options = parser.parse_args()
    failed = 0
    try:
        with tempfile.TemporaryDirectory(prefix="demo-") as name, running(Path(name)) as demo:
            for client in options.only or TRIALS:
                begun = time.monotonic()
                try:
                    verdict = f"PASS {client}: {TRIALS[client](demo)}"
                except (DemoError, KafkaError) as error:
                    failed += 1
                    verdict = f"FAIL {client}: {error}"
                except LacksError as missing:
                    verdict = f"SKIP {client}: {missing}"
                print(f"{verdict} ({time.monotonic() - begun:.1f} s)", flush=True)
    except StartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
