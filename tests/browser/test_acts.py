"""Every act of the console in a real browser: what it asks before, and what stock clients see after."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from playwright.sync_api import expect

from tests.browser.conftest import SECONDS_MAX, Served, Show

CLICK = """{"type": "record", "name": "Click",
  "fields": [{"name": "page", "type": "string"}, {"name": "seconds", "type": "double"}]}"""


def ends(served: Served, topic: str, partition: int = 0) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": "looks"})
    offsets = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)
    consumer.close()
    return int(offsets[0]), int(offsets[1])


def test_a_topic_from_its_making_to_its_end(served: Served, show: Show, name: str) -> None:
    shown = show()
    page = shown.open("topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = shown.dialog()
    shown.check_access()
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("Other settings").fill("retention.ms=123456")
    shown.picture("create-topic")
    dialog.get_by_role("button", name="Create", exact=True).click()
    shown.said("was created")
    assert len(served.admin.list_topics(timeout=SECONDS_MAX).topics[name].partitions) == 2

    page.get_by_role("button", name="Create topic").click()
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"There is a topic '{name}' already")
    dialog.get_by_role("button", name="Cancel").click()
    shown.is_settled()

    shown.open(f"topics/{name}")
    page.get_by_role("button", name="Add partitions").click()
    dialog.get_by_label("Partitions in all").fill("3")
    dialog.get_by_role("button", name="Add", exact=True).click()
    shown.said("has 3 partitions")

    page.get_by_role("link", name="Settings").click()
    page.get_by_placeholder("Filter settings").fill("retention.ms")
    page.get_by_role("button", name="Change retention.ms").first.click()
    dialog.get_by_label("New value").fill("654321")
    dialog.get_by_role("button", name="Save").click()
    shown.said("was changed")
    resource = ConfigResource(ResourceType.TOPIC, name)
    (future,) = served.admin.describe_configs([resource]).values()
    assert future.result()["retention.ms"].value == "654321"

    served.produce(name, *(f"value {number}" for number in range(5)))
    held = sum(ends(served, name, number)[1] for number in range(3))
    page.get_by_role("button", name="Delete records").click()
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_contain_text(f"{held} records of {name} will be deleted. This cannot be undone.")
    shown.picture("delete-records")
    shown.confirm(name, "Delete records")
    shown.said("records deleted")
    assert [ends(served, name, number)[0] for number in range(3)] == [
        ends(served, name, number)[1] for number in range(3)
    ]

    page.get_by_role("button", name="Delete topic").click()
    expect(dialog).to_contain_text("This cannot be undone")
    shown.confirm(name, "Delete topic")
    shown.said("was deleted")
    expect(page.locator("main h1")).to_have_text("Topics")
    assert name not in served.admin.list_topics(timeout=SECONDS_MAX).topics


def test_a_record_is_sent_and_read_by_a_stock_client(
    served: Served, show: Show, name: str, tmp_path: Path
) -> None:
    served.create(name)
    shown = show()
    page = shown.open(f"topics/{name}")
    page.get_by_role("button", name="Produce").click()
    dialog = shown.dialog()
    dialog.get_by_label("Key", exact=True).fill("k")
    dialog.get_by_label("Value", exact=True).fill('{"n": 1}')
    dialog.get_by_label("Headers").fill("trace=7")
    dialog.get_by_role("button", name="Send").click()
    shown.said("partition 0, offset 0")
    expect(page.locator("tr.record-row")).to_have_count(1)

    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\nthree\n")
    page.get_by_role("button", name="Produce").click()
    dialog.get_by_label("Or from a file").set_input_files(lines)
    dialog.get_by_role("button", name="Send").click()
    shown.said("3 records sent")
    expect(page.locator("tr.record-row")).to_have_count(4)

    consumer = Consumer(
        {"bootstrap.servers": served.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    messages = [consumer.poll(SECONDS_MAX) for _ in range(4)]
    assert [message.value() for message in messages] == [b'{"n": 1}', b"one", b"two", b"three"]
    assert (messages[0].key(), messages[0].headers()) == (b"k", [("trace", b"7")])
    consumer.close()


def test_a_record_is_written_by_the_registrys_schema(served: Served, show: Show) -> None:
    name = "clicks"
    served.create(name)
    shown = show()
    page = shown.open("subjects")
    page.get_by_role("button", name="Register schema").click()
    dialog = shown.dialog()
    dialog.get_by_label("Subject").fill(f"{name}-value")
    dialog.get_by_label("Schema", exact=True).fill(CLICK)
    shown.check_access()
    dialog.get_by_role("button", name="Register").click()
    shown.said("was registered")
    shown.open(f"topics/{name}")
    page.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_label("Value is")).to_have_value("latest")
    dialog.get_by_label("Value", exact=True).fill('{"page": 7}')
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("alert")).to_contain_text("does not fit the schema")
    dialog.get_by_label("Value", exact=True).fill('{"page": "/start", "seconds": 1.5}')
    shown.check_access()
    shown.picture("produce-by-schema")
    dialog.get_by_role("button", name="Send").click()
    shown.said("partition 0, offset 0")
    row = page.locator("tr.record-row")
    expect(row).to_contain_text('{"page": "/start", "seconds": 1.5}')
    row.click()
    expect(page.locator(".detail")).to_contain_text("AVRO")
    shown.picture("decoded-record")

    consumer = Consumer(
        {"bootstrap.servers": served.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    message = consumer.poll(SECONDS_MAX)
    consumer.close()
    with SchemaRegistryClient({"url": served.registry_url}) as client:
        value = AvroDeserializer(client)(message.value(), SerializationContext(name, MessageField.VALUE))
    assert value == {"page": "/start", "seconds": 1.5}

    page.goto(f"{shown.url}/#/subjects/{name}-value")
    page.get_by_role("button", name="Delete subject").click()
    shown.confirm(f"{name}-value", "Delete subject")
    shown.said("was deleted")


def test_a_record_is_copied_linked_and_sent_again(served: Served, show: Show, name: str) -> None:
    served.create(name, 2)
    served.produce(name, ("k", '{"n": 12345678901234567890}', [("trace", b"7"), ("raw", b"\xff\x00")]))
    served.produce(name, (b"\xfe", b"\xff\x01", None))
    shown = show()
    page = shown.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.open(f"topics/{name}")
    page.locator("tr.record-row").filter(has_text="12345678901234567890").click()
    detail = page.locator(".detail")
    copied = "navigator.clipboard.readText()"
    detail.get_by_role("button", name="Copy value").click()
    shown.said("The value was copied")
    assert page.evaluate(copied) == '{"n": 12345678901234567890}', "its numbers are not rounded"
    detail.get_by_role("button", name="Copy key").click()
    shown.said("The key was copied")
    assert page.evaluate(copied) == "k"
    detail.get_by_role("button", name="Copy as JSON").click()
    shown.said("The record was copied")
    record = json.loads(page.evaluate(copied))
    assert (record["key"], record["headers"][0]) == ("k", {"name": "trace", "value": "7"})
    detail.get_by_role("button", name="Copy link").click()
    shown.said("address was copied")
    link = page.evaluate(copied)
    assert link.endswith(f"#/topics/{name}?partition={record['partition']}&offset={record['offset']}")
    shown.check_access()
    shown.picture("record")

    detail.get_by_role("button", name="Produce again").click()
    dialog = shown.dialog()
    expect(dialog.get_by_label("Value", exact=True)).to_have_value('{"n": 12345678901234567890}')
    dialog.get_by_role("button", name="Send").click()
    shown.said("Sent: partition")
    expect(page.locator("tr.record-row")).to_have_count(3)
    page.locator("tr.record-row").filter(has_not_text="12345678901234567890").click()
    detail.get_by_role("button", name="Produce again").click()
    expect(dialog.get_by_label("Value", exact=True)).to_have_value("/wE=")
    dialog.get_by_role("button", name="Send").click()
    shown.said("Sent: partition")
    records = read(served, name, 4)
    assert sorted(records, key=repr) == sorted(
        [(b"k", b'{"n": 12345678901234567890}', [("trace", b"7"), ("raw", b"\xff\x00")])] * 2
        + [(b"\xfe", b"\xff\x01", None)] * 2,
        key=repr,
    )

    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(".detail")).to_contain_text("12345678901234567890")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as without TLS
    page.locator(".detail").get_by_role("button", name="Copy key").click()
    shown.said("The key was copied")


def read(served: Served, topic: str, count: int) -> list[tuple[object, object, object]]:
    """Return key, value and headers of so many records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": served.bootstrap, "group.id": f"{topic}-r", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    records = []
    while len(records) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        records.append((message.key(), message.value(), message.headers()))
    consumer.close()
    return records


def test_the_offset_of_one_partition_is_set(served: Served, show: Show, name: str) -> None:
    served.create(name, 2)
    served.produce(name, *(f"{number}" for number in range(10)))
    served.consume(name, name, 10)
    shown = show()
    page = shown.open(f"topics/{name}/groups")
    row = page.get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text("Empty")
    shown.check_access()
    row.get_by_role("link").click()
    before = {index: ends(served, name, index)[1] for index in range(2)}
    held = max(before, key=before.__getitem__)
    page.get_by_role("button", name=f"Set the offset of {name}-{held}").click()
    dialog = shown.dialog()
    expect(dialog.get_by_label("Topics")).to_have_value(f"{name}:{held}")
    expect(dialog.get_by_label("Value")).to_have_value(str(before[held]))
    dialog.get_by_label("Value").fill("0")
    dialog.get_by_role("button", name="Continue").click()
    shown.confirm(name, "Reset offsets")
    shown.said("were set")
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": name})
    committed = consumer.committed([TopicPartition(name, index) for index in range(2)], timeout=SECONDS_MAX)
    consumer.close()
    kept = [before[place.partition] if before[place.partition] else -1001 for place in committed]
    assert [place.offset for place in committed] == [
        0 if number == held else offset for number, offset in enumerate(kept)
    ]


def test_records_are_searched_followed_and_saved(served: Served, show: Show, name: str) -> None:
    served.create(name, 2)
    served.produce(name, *((f"key-{number}", f"value {number}", None) for number in range(400)))
    shown = show()
    page = shown.open(f"topics/{name}")
    rows = page.locator("tr.record-row")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_role("button", name="Newer")).to_be_enabled()

    page.get_by_label("Search for").fill("value 39")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(11)
    expect(page.get_by_text("11 found in 400 of 400 records")).to_be_visible()
    expect(rows.first).to_contain_text("value 399")  # the newest first
    page.reload()
    expect(rows).to_have_count(11)  # the search is in the address
    expect(page.get_by_label("Search for")).to_have_value("value 39")
    page.get_by_label("Search for").fill(r"key-1\d\d")
    page.get_by_label("Search by").select_option("regex")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(100)
    page.get_by_label("Search for").fill("(")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("not a regular expression").first).to_be_visible()
    page.get_by_label("Search for").fill("")
    page.get_by_label("Search by").select_option("text")

    page.get_by_label("Where to begin").select_option("offset")
    page.get_by_label("Offset").fill("3")
    page.get_by_label("Partition", exact=True).select_option("1")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("button.opener").first).to_have_text("1:3")

    page.get_by_label("Partition", exact=True).select_option("")
    page.get_by_role("button", name="Live tail").click()
    expect(page.get_by_text("waiting for records")).to_be_visible()
    served.produce(name, ("k", "fresh one", None), ("k", "fresh two", None))
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("fresh two")
    shown.check_access()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped.")).to_be_visible()

    page.get_by_label("Where to begin").select_option("oldest")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith('"partition","offset"')
    assert len(lines) == 403


def test_a_search_is_broken_off(served: Served, show: Show, name: str) -> None:
    served.create(name)
    producer = Producer({"bootstrap.servers": served.bootstrap, "compression.type": "lz4", "linger.ms": 50})
    for number in range(60_000):
        producer.produce(name, f"value {number}")
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()
    page = show().open(f"topics/{name}")
    page.get_by_label("Search for").fill("not there")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped.")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_be_hidden()


def test_offsets_of_a_group_are_reset_and_the_group_deleted(served: Served, show: Show, name: str) -> None:
    served.create(name)
    served.produce(name, *(f"{number}" for number in range(10)))
    served.consume(name, name, 6)
    shown = show()
    page = shown.open(f"groups/{name}")
    expect(page.locator(".tile").filter(has_text="Lag")).to_contain_text("4")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = shown.dialog()
    dialog.get_by_label("Read on from").select_option("offset")
    dialog.get_by_label("Value").fill("2")
    dialog.get_by_role("button", name="Show what would be set").click()
    expect(dialog.get_by_role("row").filter(has_text=f"{name}-0")).to_contain_text("6")
    shown.check_access()
    shown.picture("reset-offsets")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_contain_text("read again, or skipped")
    shown.confirm(name, "Reset offsets")
    shown.said("were set")
    expect(page.locator(".tile").filter(has_text="Lag")).to_contain_text("8")

    page.get_by_role("button", name="Delete group").click()
    shown.confirm(name, "Delete group")
    shown.said("was deleted")
    expect(page.locator("main h1")).to_have_text("Consumer groups")


def test_a_transaction_that_hangs_is_aborted(served: Served, show: Show, name: str) -> None:
    served.create(name)
    producer = Producer({"bootstrap.servers": served.bootstrap, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, "undecided", partition=0)
    producer.flush()
    shown = show()
    page = shown.open("transactions?open=true")
    page.get_by_role("row").filter(has_text=name).get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"topics/{name}/producers$"))
    page.get_by_role("button", name="Abort").click()
    expect(shown.dialog()).to_contain_text("will be aborted")
    shown.confirm(f"{name}-0", "Abort transaction")
    shown.said("was aborted")
    expect(page.get_by_text("open since offset")).to_have_count(0)


def test_users_and_quotas_are_edited(served: Served, show: Show, name: str) -> None:
    shown = show()
    page = shown.open("access/users")
    page.get_by_role("button", name="Set password").click()
    dialog = shown.dialog()
    dialog.get_by_label("User").fill("ann")
    dialog.get_by_label("Password").fill("secret")
    dialog.get_by_role("button", name="Save").click()
    shown.said("was set")
    assert "secret" not in page.content()
    page.get_by_role("button", name="Delete SCRAM-SHA-512 of ann").click()
    shown.confirm("ann", "Delete password")
    shown.said("was deleted")

    shown.open("access/quotas")
    page.get_by_role("button", name="Set quota").click()
    dialog.get_by_label("client-id").fill("slow-client")
    dialog.get_by_label("producer_byte_rate").fill("1000")
    dialog.get_by_role("button", name="Save").click()
    shown.said("were changed")
    page.get_by_role("button", name="Change quotas of client-id slow-client").click()
    dialog.get_by_label("producer_byte_rate").fill("")
    dialog.get_by_role("button", name="Save").click()
    shown.said("were changed")
    expect(page.get_by_text("No quotas yet.")).to_be_visible()


def test_the_bench_commits_faults_moves_the_clock_and_goes_back(
    served: Served, show: Show, name: str
) -> None:
    served.create(name)
    served.produce(name, "kept")
    shown = show()
    page = shown.open("control")
    page.get_by_role("button", name="Add fault").click()
    dialog = shown.dialog()
    dialog.get_by_label("Rule").fill(f"Produce topic={name} times=1 -> error=INVALID_RECORD")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("INVALID_RECORD")).to_be_visible()
    shown.picture("test-bench")
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": served.bootstrap})
    producer.produce(name, "refused", on_delivery=lambda error, _: failures.append(error))
    producer.flush(SECONDS_MAX)
    assert failures[0] is not None
    shown.open("control")
    page.get_by_role("button", name="Remove").first.click()
    expect(page.get_by_text("No faults.")).to_be_visible()

    page.get_by_role("button", name="Take snapshot").click()
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_role("button", name="Take", exact=True).click()
    expect(page.get_by_role("row").filter(has_text=name)).to_be_visible()
    served.produce(name, "lost")
    assert ends(served, name) == (0, 2)
    page.get_by_role("row").filter(has_text=name).get_by_role("button", name="Restore").click()
    expect(dialog).to_contain_text("all that came since is lost")
    shown.confirm(name, "Restore")
    shown.said("holds what")
    deadline = time.monotonic() + SECONDS_MAX
    while ends(served, name) != (0, 1):
        assert time.monotonic() < deadline
        time.sleep(0.1)

    shown.open("control")
    page.get_by_label("Seconds to advance").fill("3600")
    page.get_by_role("button", name="Advance").click()
    expect(page.locator("dd").filter(has_text="60 min")).to_be_visible()  # ahead of this machine
