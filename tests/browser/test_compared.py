"""Two records of one key, and two versions of a schema, beside each other in a real browser."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from playwright.sync_api import expect

from tests.browser.conftest import Served, Show

TICKET = {"type": "record", "name": "Ticket", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "title", "type": "string"}, {"name": "owner", "type": "string"}]}  # fmt: skip

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
    cells = [row.get_by_role("cell").all_inner_texts() for row in table.get_by_role("row").all()[1:]]
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
    for side in page.locator(".beside .side").all():
        box = side.bounding_box()
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


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_two_versions_of_a_schema_are_beside_each_other(
    served: Served, show: Show, theme: str, width: int
) -> None:
    subject = f"tickets-{theme}-value"
    fields = TICKET["fields"]
    versions = [
        TICKET,
        {**TICKET, "fields": [*fields, {"name": "rank", "type": "int", "default": 0}]},
        {
            **TICKET,
            "fields": [*fields[:2], {"name": "due", "type": "string"}],
            "doc": '<img src=x onerror="window.hacked=1">',
        },
    ]
    with SchemaRegistryClient({"url": served.registry_url}) as client:
        client.set_compatibility(subject, "NONE")
        for version in versions:
            client.register_schema(subject, Schema(json.dumps(version), "AVRO"))
        client.set_compatibility(subject, "BACKWARD")
    shown = show(theme=theme, width=width, height=1100)
    page = shown.open(f"subjects/{subject}")
    card = page.locator("section.card").filter(
        has=page.get_by_role("heading", name="Versions beside each other")
    )
    expect(card.get_by_label("One version")).to_have_value("2")
    expect(card.get_by_label("The other version")).to_have_value("3")
    card.get_by_label("One version").select_option("3")
    card.get_by_role("button", name="Compare").click()
    expect(card).to_contain_text("Choose two versions that are not the same.")
    card.get_by_label("The other version").select_option("1")
    card.get_by_role("button", name="Compare").focus()
    page.keyboard.press("Enter")
    expect(card).to_contain_text("Version 3 after version 1: 3 lines added or removed.")
    table = card.get_by_role("table", name="Verdict of each level of compatibility")
    rows = [row.get_by_role("cell").all_inner_texts() for row in table.get_by_role("row").all()[1:]]
    assert rows == [
        ["BACKWARD this subject's", "breaks", "1"], ["FORWARD", "breaks", "1"], ["FULL", "breaks", "1"],
        ["BACKWARD_TRANSITIVE", "breaks", "1, 2"], ["FORWARD_TRANSITIVE", "breaks", "1, 2"],
        ["FULL_TRANSITIVE", "breaks", "1, 2"],
    ]  # fmt: skip
    reasons = card.get_by_role("list", name="What is broken").get_by_role("listitem")
    expect(reasons).to_have_count(2)
    expect(reasons.first).to_contain_text("READER_FIELD_MISSING_DEFAULT_VALUE")
    expect(reasons.first).to_contain_text(
        "BACKWARD, FULL, BACKWARD_TRANSITIVE (version 2), FULL_TRANSITIVE (version 2)"
    )
    lines = card.get_by_role("table", name="What differs between the two versions")
    expect(lines.get_by_role("row").filter(has_text='"name": "due"')).to_contain_text("added")
    expect(lines.get_by_role("row").filter(has_text='"name": "owner"')).to_contain_text("removed")
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.hacked") is None
    expect(card.get_by_role("region", name="Version 3")).to_contain_text('"due"')
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    shown.check_access()
    card.scroll_into_view_if_needed()
    page.evaluate("(one) => window.scrollBy(0, one.getBoundingClientRect().top - 70)", card.element_handle())
    shown.picture("schema-versions" if width == 1280 else "schema-versions-phone")
    card.get_by_label("The other version").select_option("2")
    card.get_by_label("One version").select_option("1")
    card.get_by_role("button", name="Compare").click()
    expect(card).to_contain_text("Version 2 after version 1")
    verdicts = [row.get_by_role("cell").nth(1).inner_text() for row in table.get_by_role("row").all()[1:]]
    assert verdicts == ["compatible"] * 6
