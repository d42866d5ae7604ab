"""Two records of one key, and two versions of a schema, beside each other in a real browser."""

from __future__ import annotations

import json

from confluent_kafka import Producer
from playwright.sync_api import expect

from tests.browser.conftest import Served, Show

PRICE = {
    "sku": "A-1",
    "price": {"amount": 12.5, "currency": "EUR"},
    "tags": ["new"],
    "stock": 12345678901234567890,
}
HOSTILE = '<img src=x onerror="window.hacked=1">'


def test_a_record_is_beside_the_previous_of_its_key(served: Served, show: Show) -> None:
    name = "prices"
    served.create(name, cleanup_policy="compact")
    later = {
        **PRICE,
        "price": {"amount": 9.95, "currency": "EUR"},
        "tags": ["new", "sale"],
        "stock": 12345678901234567891,
    }
    later[HOSTILE] = "\u202e<b>"
    served.produce(
        name,
        ("A-1", json.dumps(PRICE), None),
        ("A-2", "plain\none", None),
        *((f"B-{number}", "{}", None) for number in range(30)),
    )
    served.produce(name, ("A-2", "plain\ntwo", None), ("A-1", json.dumps(later), None))
    shown = show(height=1000)
    page = shown.open(f"topics/{name}")
    opener = page.get_by_role("button", name="0:33, partition and offset")
    opener.focus()
    page.keyboard.press("p")
    beside = page.locator(".beside")
    expect(beside).to_contain_text("Found at offset 0: 4 differences.")
    expect(beside.get_by_role("region", name="Previous value")).to_contain_text("12.5")
    expect(beside.get_by_role("region", name="This value")).to_contain_text("9.95")
    table = beside.get_by_role("table", name="What differs between the two values")
    cells = [row.get_by_role("cell").all_inner_texts() for row in table.get_by_role("row").all()[1:]]
    assert cells == [
        ["$.price.amount", "changed", "12.5", "9.95"],
        ["$.tags[1]", "added", "–", '"sale"'],
        ["$.stock", "changed", "12345678901234567890", "12345678901234567891"],
        [f"$[{json.dumps(HOSTILE)}]", "added", "–", '"\\u202e<b>"'],
    ]
    assert page.locator("main img, main b").count() == 0
    assert page.evaluate("window.hacked") is None
    shown.check_access()
    beside.scroll_into_view_if_needed()
    shown.picture("record-beside")
    opener.press("Enter")
    expect(beside).to_have_count(0)

    row = page.get_by_role("button", name="0:32, partition and offset")
    row.click()
    page.get_by_role("button", name="Beside the previous of its key").click()
    expect(beside).to_contain_text("Found at offset 1: 2 lines added or removed.")
    table = beside.get_by_role("table", name="What differs between the two values")
    cells = [one.get_by_role("cell").all_inner_texts() for one in table.get_by_role("row").all()[1:]]
    assert cells == [["1", "1", "", "plain"], ["2", "", "− removed", "one"], ["", "2", "+ added", "two"]]
    row.click()
    served.produce(name, ("A-3", "first", None))
    shown.open("topics")
    shown.open(f"topics/{name}")
    page.get_by_role("button", name="0:34, partition and offset").click()
    page.get_by_role("button", name="Beside the previous of its key").click()
    expect(beside).to_contain_text(
        "has no earlier record of this key: 34 records before offset 34 were looked at"
    )
    expect(beside.get_by_role("progressbar")).to_have_count(0)


def test_the_previous_of_a_key_is_on_a_phone_no_wider_than_it(served: Served, show: Show, name: str) -> None:
    served.create(name)
    for number in range(2):
        served.produce(name, ("k", json.dumps({f"{'long' * 20}{number}": "x" * 300}), None))
    served.produce(name, "of no key")
    shown = show(width=390)
    page = shown.open(f"topics/{name}")
    page.get_by_role("button", name="0:1, partition and offset").click()
    page.get_by_role("button", name="Beside the previous of its key").click()
    expect(page.locator(".beside")).to_contain_text("Found at offset 0: 2 differences.")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    for one in page.locator(".beside .side").all():
        box = one.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    shown.check_access()
    page.get_by_role("button", name="0:1, partition and offset").click()
    page.get_by_role("button", name="0:2, partition and offset").click()
    expect(page.get_by_role("button", name="Copy value")).to_have_count(1)
    expect(page.get_by_role("button", name="Beside the previous of its key")).to_have_count(0)


def test_the_search_for_the_previous_of_a_key_is_broken_off(served: Served, show: Show, name: str) -> None:
    served.create(name)
    producer = Producer({"bootstrap.servers": served.bootstrap, "compression.type": "lz4", "linger.ms": 50})
    for number in range(60_000):
        producer.produce(name, f"value {number}", key=f"{number}")
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()
    page = show().open(f"topics/{name}")
    page.get_by_role("button", name="0:59999, partition and offset").click()
    page.get_by_role("button", name="Beside the previous of its key").click()
    beside = page.locator(".beside")
    expect(beside).to_contain_text("offsets")
    expect(
        beside.get_by_role("progressbar", name="Progress of the search for the previous record")
    ).to_be_visible()
    beside.get_by_role("button", name="Stop looking").click()
    expect(beside).to_contain_text("Stopped.")
    expect(beside.get_by_role("progressbar")).to_have_count(0)
