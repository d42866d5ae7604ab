"""Throughput of Kafka's own clients under a quota, from Apache Kafka and from Barnabas: python -m bench.quotas.

    python -m bench.quotas [--rates 1,10,100] [--seconds 25] [--version 4.x] [--one-by-one] [--load rdkafka]

Quotas are set and shown with kafka-configs; producer-perf-test and consumer-perf-test measure the throughput. Both brokers
run at the same time, and are loaded at the same time, or in turn with `--one-by-one`, as rates near the machine's limit
require. With `--load rdkafka` the clients are the C program of bench/client, which needs a tenth of the CPU. The exit
code is 1 if the throughput differs by more than 5 %, or only one of the clients was throttled.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.tools import build, loadgen
from compat.kafka.releases import release
from compat.kafka.tools import tool_command
from compat.kit.sides import Side, both

MB = 1024 * 1024
RECORD_BYTES = 10_000
TOLERANCE = 0.05
TIMEOUT_S = 170


@dataclass
class Got:
    """Throughput of a client in MB/s, and its metric of the throttle time in ms, 0 if it has none."""

    mb_per_s: float
    throttle_ms: float


class Client:
    """Kafka's tools against one broker."""

    def __init__(self, side: Side, version: str, directory: Path) -> None:
        self._release = release(version)
        self._bootstrap = f"127.0.0.1:{side.port}"
        self._directory = directory
        self.name = side.name

    def tool(self, name: str, *arguments: str) -> str:
        """Run a tool, and return its output."""
        command = tool_command(self._release, name, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def configs(self, *arguments: str) -> str:
        """Run kafka-configs for the quotas of a client id."""
        return self.tool("configs", "--bootstrap-server", self._bootstrap, *arguments)

    def limit(self, client_id: str, **quotas: int) -> str:
        """Set quotas, and return how they are described."""
        entity = ("--entity-type", "clients", "--entity-name", client_id)
        limits = ",".join(f"{name}={value}" for name, value in quotas.items())
        self.configs("--alter", *entity, "--add-config", limits)
        return self.configs("--describe", *entity)

    def create(self, topic: str) -> None:
        """Make a topic."""
        self.tool(
            "topics", "--bootstrap-server", self._bootstrap, "--create", "--topic", topic, "--partitions", "1",
            "--replication-factor", "1",
        )  # fmt: skip

    def produce(self, topic: str, client_id: str, count: int) -> Got:
        """Produce `count` records."""
        output = self.tool(
            "producer-perf-test", "--topic", topic, "--num-records", str(count), "--record-size", str(RECORD_BYTES),
            "--throughput", "-1", "--print-metrics", "--producer-props", f"bootstrap.servers={self._bootstrap}",
            f"client.id={client_id}", "acks=1", "batch.size=131072", "linger.ms=5", "request.timeout.ms=120000",
            "delivery.timeout.ms=160000", "max.block.ms=120000",
        )  # fmt: skip
        rates = re.findall(r"\(([\d.]+) MB/sec\)", output)
        return Got(float(rates[-1]), _metric(output, "produce-throttle-time-avg"))

    def consume(self, topic: str, client_id: str, count: int) -> Got:
        """Fetch `count` records."""
        properties = self._directory / f"{self.name}-{client_id}.properties"
        properties.write_text(f"client.id={client_id}\nmax.partition.fetch.bytes=1048576\n")
        output = self.tool(
            "consumer-perf-test", "--bootstrap-server", self._bootstrap, "--topic", topic, "--messages", str(count),
            "--consumer.config", str(properties), "--print-metrics", "--timeout", "60000", "--show-detailed-stats",
            "--reporting-interval", "1000",
        )  # fmt: skip
        return Got(_rate_of_details(output), _metric(output, "fetch-throttle-time-avg"))


class NativeClient(Client):
    """The same with librdkafka: small records, sent without batching, and a connection to each partition's leader."""

    def produce(self, topic: str, client_id: str, count: int) -> Got:
        return self._run("produce", topic, count, {"client.id": client_id, "acks": 1, "linger.ms": 5})

    def consume(self, topic: str, client_id: str, count: int) -> Got:
        settings = {"client.id": client_id, "queued.max.messages.kbytes": 4096}
        return self._run("consume", topic, count, settings)

    def _run(self, mode: str, topic: str, count: int, settings: dict[str, object]) -> Got:
        result = loadgen(
            mode, self._bootstrap, client={"message.timeout.ms": 120_000, **settings} if mode == "produce" else settings,
            topic=topic, size=RECORD_BYTES, count=count,
        )  # fmt: skip
        return Got(result["bytes_per_s"] / MB, result["throttle_ms_max"])


LOADS = {"java": Client, "rdkafka": NativeClient}


def _metric(output: str, name: str) -> float:
    """The largest value of a metric that is printed."""
    values = re.findall(rf"{name}:\{{[^}}]*\}}\s*:\s*([\d.]+|NaN)", output)
    return max((float(value) for value in values if value != "NaN"), default=0.0)


def _rate_of_details(output: str) -> float:
    """Return MB/s from the first report to the last: the start of the group does not count."""
    rows = [line.split(", ") for line in output.splitlines() if re.match(r"\d{4}-\d\d-\d\d ", line)]
    if len(rows) < 2:
        raise RuntimeError(f"too few reports:\n{output}")

    def seconds(text: str) -> float:
        hour, minute, second = text.rsplit(" ", 1)[1].replace(":", " ", 2).split(" ")
        whole, _, ms = second.replace(":", ".").partition(".")
        return int(hour) * 3600 + int(minute) * 60 + int(whole) + int(ms or 0) / 1000

    spent = seconds(rows[-1][0]) - seconds(rows[0][0])
    return (float(rows[-1][2]) - float(rows[0][2])) / spent


def main() -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="1,10,100", help="MB in a second")
    parser.add_argument("--seconds", type=int, default=25, help="how many seconds' worth is sent")
    parser.add_argument("--version", default="4.x")
    parser.add_argument("--one-by-one", action="store_true")
    parser.add_argument("--only", choices=("produce", "consume"))
    parser.add_argument("--load", choices=LOADS, default="java", help="whose clients")
    options = parser.parse_args()
    if options.load == "rdkafka":
        build()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="quotas-") as directory, both(version=options.version) as sides:
        clients = [LOADS[options.load](side, options.version, Path(directory)) for side in sides]
        with ThreadPoolExecutor(1 if options.one_by_one else len(clients)) as pool:
            for rate in map(int, options.rates.split(",")):
                name, count = f"perf-{rate}", rate * MB * options.seconds // RECORD_BYTES
                for described in pool.map(
                    lambda client, name=name, rate=rate: client.limit(
                        name, producer_byte_rate=rate * MB, consumer_byte_rate=rate * MB
                    ),
                    clients,
                ):
                    print(described.strip())
                list(pool.map(lambda client, name=name: client.create(name), clients))
                for kind in ("produce", "consume"):
                    if options.only not in (None, kind):
                        continue
                    theirs, ours = pool.map(
                        lambda client, kind=kind, name=name, count=count: getattr(client, kind)(
                            name, name, count
                        ),
                        clients,
                    )
                    ratio = ours.mb_per_s / theirs.mb_per_s
                    is_right = abs(ratio - 1) <= TOLERANCE and (ours.throttle_ms > 0) == (
                        theirs.throttle_ms > 0
                    )
                    bad += not is_right
                    print(
                        f"{kind} {rate} MB/s: Kafka {theirs.mb_per_s:.2f} MB/s (throttle {theirs.throttle_ms:.0f} ms), "
                        f"Barnabas {ours.mb_per_s:.2f} MB/s (throttle {ours.throttle_ms:.0f} ms): {ratio:.3f}"
                        f"{'' if is_right else '  NOT WITHIN 5 %'}",
                        flush=True,
                    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
