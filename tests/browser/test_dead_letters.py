"""Dead letters in a real browser: what is shown of them, and what a stock client reads after a redrive."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import expect

from tests.browser.conftest import SECONDS_MAX, Served, Show


def origin(topic: str, partition: int, offset: int) -> list[tuple[str, bytes]]:
    """Return the headers that a share group's queue has."""
    values = {"topic": topic, "partition": partition, "offset": offset, "group": "billing"}
    values |= {"delivery.count": 5, "message": "Offset delivery count exceeded the threshold."}
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in values.items()]


def read(served: Served, topic: str, count: int) -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": "looks"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = [consumer.poll(SECONDS_MAX) for _ in range(count)]
    consumer.close()
    return [(message.key(), message.value(), message.headers()) for message in messages]


def test_letters_are_chosen_and_sent_again(served: Served, show: Show) -> None:
    served.create("invoices")
    served.create("dlq.billing")
    orders = [(f"k{number}", f'{{"total": {number}}}', [("trace", str(number))]) for number in range(3)]
    served.produce("invoices", *orders)
    served.produce(
        "dlq.billing",
        *((key, value, origin("invoices", 0, number)) for number, (key, value, _) in enumerate(orders)),
        (None, None, origin("gone", 0, 7)),
        "no letter",
    )
    shown = show()
    page = shown.open("topics/dlq.billing")
    expect(page.locator("tr.record-row")).to_have_count(5)
    bar = page.get_by_role("group", name="Dead letters")
    expect(bar).to_contain_text("0 of 4 dead letters")
    expect(bar.get_by_role("button", name="Redrive")).to_be_disabled()
    page.get_by_label("Choose 0:2").check()
    expect(bar).to_contain_text("1 of 4 dead letters")
    expect(page.locator("tr.opened")).to_have_count(0)  # the box does not open the record
    page.get_by_label("All that are shown").check()
    expect(bar).to_contain_text("4 of 4 dead letters")
    page.get_by_label("Choose 0:0").uncheck()
    shown.check_access()
    bar.get_by_role("button", name="Redrive").click()
    dialog = shown.dialog()
    expect(dialog).to_contain_text("1 dead letter of 3 will not be sent.")
    expect(dialog.get_by_role("row", name="0:3")).to_contain_text("There is no topic 'gone'")
    expect(dialog.get_by_role("row", name="0:1")).to_contain_text("invoices-0, offset 1")
    shown.check_access()
    shown.picture("redrive")
    dialog.get_by_role("button", name="Redrive").click()
    expect(dialog.get_by_role("heading")).to_have_text("2 of 3 sent")
    expect(dialog.get_by_role("row", name="0:3")).to_contain_text("not sent")
    dialog.get_by_role("button", name="Close").click()
    shown.is_settled()
    expect(bar).to_contain_text("1 of 4 dead letters")  # the one that was not sent
    sent = sorted(
        (key.encode(), value.encode(), [("trace", headers[0][1].encode())]) for key, value, headers in orders
    )
    assert sorted(read(served, "invoices", 5)[3:]) == sent[1:]


def test_open_letter_leads_to_its_record_and_elsewhere(served: Served, show: Show) -> None:
    for topic in ("payments", "dlq.payments", "later"):
        served.create(topic)
    served.produce("payments", ("k", "v", [("trace", "7")]))
    served.produce("dlq.payments", ("k", "v", origin("payments", 0, 0)))
    shown = show()
    page = shown.open("topics/dlq.payments")
    page.locator("button.opener").first.click()
    expect(page.locator("tr.opened")).to_contain_text(
        "Dead letter of payments-0, offset 0, given up by share group billing: Offset delivery count exceeded"
    )
    page.locator("tr.opened").get_by_role("button", name="Redrive").click()
    dialog = shown.dialog()
    dialog.get_by_label("Send to").fill("nowhere")
    dialog.get_by_label("Send to").press("Tab")
    expect(dialog.get_by_role("row", name="0:0")).to_contain_text("There is no topic 'nowhere'")
    dialog.get_by_label("Send to").fill("later")
    dialog.get_by_role("button", name="Redrive").click()
    expect(dialog.get_by_role("heading")).to_have_text("1 of 1 sent")
    dialog.get_by_role("button", name="Close").click()
    shown.is_settled()
    assert read(served, "later", 1) == [(b"k", b"v", [("trace", b"7")])]
    page.get_by_role("link", name="payments-0, offset 0").click()
    expect(page.locator("main h1")).to_have_text("payments")
    expect(page.locator("tr.opened")).to_contain_text("trace")
