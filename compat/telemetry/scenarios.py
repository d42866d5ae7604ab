"""Requests of telemetry, right and wrong, each scenario on a connection of its own; the answers are compared.

The rule: a scenario is a function of a `Client` and returns nothing; every answer that the client gets is noted.
"""

from __future__ import annotations

import base64
import gzip
import time
from collections.abc import Callable
from typing import Any

from compat.kit.sides import Side
from compat.kit.wire import ZERO_UUID, Connection, Values, WireError

CLIENT_METRICS = 16
SET, DELETE = 0, 1
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
SETTLE_S = 5.0
DISCONNECTED_S = 0.5  # until Kafka has heard of it
BYTES_MAX = 4000
INTERVAL_S = 1.5


def _field(number: int, data: bytes) -> bytes:
    assert len(data) < 128, "one byte of length"
    return bytes([number << 3 | 2, len(data)]) + data


# MetricsData > resource_metrics > scope_metrics > metrics > name, gauge > data_points > as_double
METRICS = _field(1, _field(2, _field(2, _field(1, b"m") + _field(5, _field(1, b"\x21" + bytes(8))))))


def compressed(codec: int, data: bytes) -> bytes:
    """`data` as Kafka's clients compress it."""
    if codec == GZIP:
        return gzip.compress(data)
    if codec == SNAPPY:
        import snappy

        block = bytes(snappy.compress(data))
        return b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + len(block).to_bytes(4) + block
    if codec == LZ4:
        from lz4 import frame

        return bytes(frame.compress(data, block_linked=False, store_size=False))
    if codec == ZSTD:
        import zstandard

        return zstandard.compress(data)
    return data


class Client:
    """One client of one side, with everything that it was answered, by what it did."""

    def __init__(self, side: Side, number: int) -> None:
        self.side = side
        self.id = bytes(range(number, number + 16))
        self.answers: dict[str, Any] = {}
        self.subscription_id = 0
        self._connection: Connection | None = None

    def ask(self, label: str, api: str, version: int, values: Values) -> Values:
        """Ask, and note the answer; a connection that the broker closes is an answer too."""
        if self._connection is None:
            self._connection = self.side.connect()
        try:
            answer = self._connection.ask(api, version, values)
        except WireError as error:
            answer = {"connection": str(error)}
            self.disconnect()
        self.answers[label] = answer
        return answer

    def disconnect(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, label: str, instance_id: bytes | None = None) -> Values:
        """GetTelemetrySubscriptions; remembers the subscription's number."""
        answer = self.ask(label, "GetTelemetrySubscriptions", 0, {"ClientInstanceId": instance_id or self.id})
        if answer.get("ErrorCode") == 0:
            self.subscription_id = answer["SubscriptionId"]
        return answer

    def push(self, label: str, **changed: Any) -> Values:
        """PushTelemetry, right unless something is changed."""
        values = {
            "ClientInstanceId": self.id,
            "SubscriptionId": self.subscription_id,
            "Terminating": False,
            "CompressionType": NONE,
            "Metrics": METRICS,
            **changed,
        }
        return self.ask(label, "PushTelemetry", 0, values)


def subscribe(side: Side, name: str, settings: dict[str, str] | None) -> int:
    """Set a subscription's settings, or remove it; the error code."""
    names = ("metrics", "interval.ms", "match")
    fields = settings or {}
    configs = [
        {"Name": key, "ConfigOperation": SET if key in fields else DELETE, "Value": fields.get(key)}
        for key in names
    ]
    resource = {"ResourceType": CLIENT_METRICS, "ResourceName": name, "Configs": configs}
    with side.connect() as connection:
        answer = connection.ask("IncrementalAlterConfigs", 1, {"Resources": [resource]})
    code: int = answer["Responses"][0]["ErrorCode"]
    return code


def until_wanted(side: Side, metrics: list[str]) -> None:
    """Wait until a new client is asked for these metrics: Kafka's brokers learn of changes from their controller."""
    give_up = time.monotonic() + SETTLE_S
    while True:
        with side.connect() as connection:
            answer = connection.ask("GetTelemetrySubscriptions", 0, {"ClientInstanceId": ZERO_UUID})
        if sorted(answer["RequestedMetrics"]) == metrics or time.monotonic() > give_up:
            return
        time.sleep(0.05)


def wait_interval() -> None:
    time.sleep(INTERVAL_S + 0.05)


def first_contact(client: Client) -> None:
    new = client.get("a new client", ZERO_UUID)
    client.answers["ids that are new"] = new["ClientInstanceId"] not in (ZERO_UUID, client.id)
    client.get("a known client")
    client.get("at once again")
    wait_interval()
    client.get("after the interval")
    client.get("the id of the metadata topic", bytes(15) + b"\x01")


def pushes(client: Client) -> None:
    client.get("get")
    client.push("push")
    client.push("push at once again")
    client.get("get at once after a push")
    wait_interval()
    client.push("push after the interval")
    wait_interval()
    client.get("get after the interval")
    client.push("push after that get")
    client.push("nothing at once", Metrics=b"")
    wait_interval()
    client.push("nothing after the interval", Metrics=b"")


def without_asking(client: Client) -> None:
    client.push("unknown subscription", SubscriptionId=12345)
    client.get("get")
    client.push("push")


def last_push(client: Client) -> None:
    client.get("get")
    client.push("push")
    client.push("last push", Terminating=True)
    client.push("after the last push")
    client.push("after that", Terminating=True)
    client.push("and after that", Terminating=True)
    client.get("get")


def wrong_ids(client: Client) -> None:
    client.push("no id", ClientInstanceId=ZERO_UUID)
    client.push("the id of the metadata topic", ClientInstanceId=bytes(15) + b"\x01")


def wrong_subscription(client: Client) -> None:
    client.get("get")
    client.push("wrong subscription", SubscriptionId=client.subscription_id + 1)
    client.get("get after that")
    client.get("get after that again")
    client.push("push after that")


def wrong_compression(client: Client) -> None:
    client.get("get")
    for codec in (5, 127, -1):
        wait_interval()
        client.push(f"compression {codec}", CompressionType=codec)
        client.get(f"get after compression {codec}")


def compressions(client: Client) -> None:
    client.get("get")
    for codec in range(5):
        wait_interval()
        client.push(f"compression {codec}", CompressionType=codec, Metrics=compressed(codec, METRICS))


def unreadable(client: Client) -> None:
    client.get("get")
    for codec in range(5):
        wait_interval()
        client.push(f"no metrics {codec}", CompressionType=codec, Metrics=compressed(codec, b"\xff" * 30))
        client.get(f"get after no metrics {codec}")
        if codec:
            wait_interval()
            client.push(f"not compressed {codec}", CompressionType=codec, Metrics=b"\xff" * 30)
            wait_interval()
            cut = compressed(codec, METRICS * 20)[:-8]
            client.push(f"cut short {codec}", CompressionType=codec, Metrics=cut)
    wait_interval()
    client.push("good after all that")


def too_large(client: Client) -> None:
    client.get("get")
    client.push("too large", Metrics=METRICS * (BYTES_MAX // len(METRICS) + 1))
    client.get("get after too large")
    wait_interval()
    client.push("as large as allowed", Metrics=METRICS * (BYTES_MAX // len(METRICS)))
    for codec in range(1, 5):
        wait_interval()
        bomb = compressed(codec, METRICS * 2000)
        client.push(f"grows too large {codec}", CompressionType=codec, Metrics=bomb)


def changed_subscription(client: Client) -> None:
    client.get("get")
    client.push("push")
    assert subscribe(client.side, "base", {"metrics": "b.", "interval.ms": "60000"}) == 0
    until_wanted(client.side, ["b."])
    client.push("push for what was")
    client.get("get at once")
    client.push("push for what is")
    client.push("push at once again")


def new_connection(client: Client) -> None:
    client.get("get")
    client.push("push")
    client.disconnect()
    time.sleep(DISCONNECTED_S)
    client.push("push on a new connection")
    client.get("get on a new connection")
    client.disconnect()
    time.sleep(DISCONNECTED_S)
    client.get("get on another")


def matching(client: Client) -> None:
    """Subscriptions of several kinds together, and what each client of them is asked for."""
    texts = {
        "id": "client_id=ki.", "not whole": "client_id=ki", "nobody": "client_software_name=nobody",
        "software": "client_software_name=kit-.*,client_software_version=1\\..*",
        "any software": "client_software_name=.*", "unknown software": "client_software_version=unknown",
        "address": "client_source_address=127\\.0\\.0\\.1", "port": "client_source_port=[0-9]+",
        "instance": f"client_instance_id={base64.urlsafe_b64encode(client.id).decode()[:22]}",
        "java": "client_id=(?<name>ki).*",
    }  # fmt: skip
    for name, match in texts.items():
        code = subscribe(client.side, name, {"metrics": f"by.{name}", "interval.ms": "70000", "match": match})
        client.answers[f"subscribe {name}"] = code
    expected = ["b.", "by.any software", "by.unknown software", "by.address", "by.id", "by.java", "by.port"]
    until_wanted(client.side, sorted(expected))
    client.ask("versions", "ApiVersions", 3, {"ClientSoftwareName": "kit-x", "ClientSoftwareVersion": "1.2"})
    client.answers.pop("versions")
    client.get("all that match")
    client.disconnect()
    time.sleep(DISCONNECTED_S)
    client.get("software is not known")
    for name in texts:
        assert subscribe(client.side, name, None) == 0
    until_wanted(client.side, ["b."])


def intervals(client: Client) -> None:
    assert subscribe(client.side, "base", {"metrics": "*,x", "interval.ms": "3600000"}) == 0
    until_wanted(client.side, ["*"])
    client.get("all, once an hour")
    assert subscribe(client.side, "base", None) == 0
    until_wanted(client.side, [])
    client.get("nothing")


def wrong_settings(client: Client) -> None:
    for text in (
        "client_id",
        "client_id=",
        "=a",
        "nobody=a",
        "client_id=a=b",
        "client_id=(",
        "client_id = a ",
        "client_id=(?!x).*",
        r"client_id=(a)\1",
        "",
        ",",
    ):
        client.answers[f"match {text!r}"] = subscribe(client.side, "wrong", {"match": text})
    for text in ("99", "100", "3600000", "3600001", "x", "-1"):
        client.answers[f"interval {text}"] = subscribe(client.side, "wrong", {"interval.ms": text})
    for text in ("", ",", "*", "a,,b", "a, b"):
        client.answers[f"metrics {text!r}"] = subscribe(client.side, "wrong", {"metrics": text})
    client.answers["no name"] = subscribe(client.side, "", {"metrics": "a"})
    subscribe(client.side, "wrong", None)


SCENARIOS: tuple[Callable[[Client], None], ...] = (
    first_contact, pushes, without_asking, last_push, wrong_ids, wrong_subscription, wrong_compression, compressions,
    unreadable, too_large, new_connection, changed_subscription, matching, intervals, wrong_settings,
)  # fmt: skip
"""In this order: the last four change the subscription that the others have."""
