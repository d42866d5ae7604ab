"""Every view of the console in a real browser, in both themes, on a phone, and for screen readers."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from tests.browser.conftest import Served, Show

VIEWS = {
    "": "Overview", "brokers": "Brokers", "brokers/1": "Broker 1", "quorum": "Controllers", "topics": "Topics",
    "topics/shown": "shown", "topics/shown/partitions": "shown", "topics/shown/settings": "shown",
    "topics/shown/groups": "shown",
    "topics/shown/producers": "shown", "topics/shown/access": "shown", "groups": "Consumer groups",
    "groups/readers": "readers", "transactions": "Transactions", "access": "Access", "access/users": "Access",
    "access/quotas": "Access", "access/tokens": "Access", "connections": "Clients", "requests": "Request tap",
    "metrics": "Metrics", "log": "Log", "control": "Test bench", "subjects": "Schemas",
    "subjects/orders-value": "orders-value", "topics/orders": "orders", "nowhere": "There is no such view",
}  # fmt: skip


HISTORY_MS_MAX = 120_000
"""Numbers are kept every ten seconds; rarer where a look at the cluster takes long, as on a machine with other work."""
PICTURED = {
    "": "overview",
    "topics/shown": "records",
    "topics/shown/groups": "consumers",
    "groups/readers": "group",
    "subjects/orders-value": "schema",
}
ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
  {"name": "id", "type": "long"}, {"name": "customer", "type": "string"}, {"name": "amount", "type": "double"},
  {"name": "items", "type": {"type": "array", "items": "string"}}]}"""
WIDER_ORDER = ORDER.replace(
    '"items": "string"}}', '"items": "string"}}, {"name": "note", "type": "string", "default": ""}'
)


@pytest.fixture(scope="module")
def filled(served: Served) -> Served:
    """Some topics with records, a group that lags, and an open transaction."""
    served.create("shown", 3)
    for number in range(5):
        served.create(f"more.{number}")
    served.produce("more.3", "x" * 5000)
    values = [
        {
            "id": number,
            "customer": "ann",
            "amount": number / 4,
            "paid": number % 2 == 0,
            "items": [{"sku": "A-1"}],
        }
        for number in range(60)
    ]
    rows = [(f"key-{row['id']}", json.dumps(row), [("trace-id", f"{row['id']:08x}")]) for row in values]
    served.produce("shown", *rows)
    served.consume("readers", "shown", 20)
    served.consume("billing", "shown", 60)
    served.create("orders", 2)
    orders = [{"id": number, "customer": "ann", "amount": 2.5, "items": ["A-1"]} for number in range(10)]
    served.produce_avro("orders", ORDER, *orders)
    served.produce_avro("orders", WIDER_ORDER, {**orders[0], "note": "by hand"})
    producer = Producer(
        {
            "bootstrap.servers": served.bootstrap,
            "transactional.id": "open",
            "client.id": "payer",
            "transaction.timeout.ms": 900_000,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("shown", "undecided", partition=0)
    producer.flush()
    served.open_producer = producer  # type: ignore[attr-defined]  # it stays open with the broker
    return served


def is_no_wider_than_the_screen(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)])
def test_every_view_is_there_for_everybody(filled: Served, show: Show, theme: str, width: int) -> None:
    shown = show(theme=theme, width=width, height=800)
    for path, title in VIEWS.items():
        page = shown.open(path)
        expect(page.locator("main h1")).to_have_text(title)
        expect(page.locator("main .loading")).to_have_count(0)
        if not path:
            expect(page.get_by_role("img", name="Plot over time").first).to_be_visible()
        expect(page.get_by_text("Reading …")).to_have_count(0)
        assert is_no_wider_than_the_screen(page), path
        shown.check_access()
        picture = PICTURED.get(path)
        if picture and (theme, width) in (("light", 1280), ("dark", 390)):
            shown.picture(picture if width == 1280 else f"{picture}-phone")


def test_overview_has_the_last_minutes_also_after_a_reload(served: Served, show: Show, name: str) -> None:
    served.create(name)
    served.produce(name, *(f"{number}" for number in range(10)))
    served.consume(f"readers of {name}", name, 6)
    page = show().open()
    tile = page.locator(".tile")
    for label, text in (
        ("Lag", "records, all groups"),
        ("Open transactions", ""),
        ("Disk", "free"),
        ("Stalls", "15"),
    ):
        expect(tile.filter(has_text=label).filter(has_text=text).first).to_be_visible()
    plot = page.get_by_role("img", name="Plot over time; now: records a second")
    expect(plot).to_be_visible()
    link = page.locator("section", has_text="Lag by group").get_by_role("link", name=f"readers of {name}")
    expect(link).to_be_visible(timeout=HISTORY_MS_MAX)
    samples = page.evaluate("fetch('/api/history').then((answer) => answer.json())")["samples"]
    page.reload()
    expect(plot).to_be_visible()
    again = page.evaluate("fetch('/api/history').then((answer) => answer.json())")["samples"]
    assert again[0] == samples[0], "the server keeps them"
    link.click()
    expect(page.locator("main h1")).to_have_text(f"readers of {name}")


def test_the_theme_is_chosen_and_kept(show: Show) -> None:
    page = show(theme="light").open()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) != light
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) != light


def test_views_are_reached_by_keys_alone(filled: Served, show: Show) -> None:
    page = show().open()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.locator("main h1")).to_have_text("Topics")
    expect(page.locator("main h1")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_placeholder("Filter topics")).to_be_focused()
    page.keyboard.type("shown")
    page.keyboard.press("Enter")  # opens the first of those that are left
    expect(page.locator("main h1")).to_have_text("shown")
    opener = page.locator("button.opener").first
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".detail")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_menu_of_a_phone_opens_and_closes(show: Show) -> None:
    page = show(width=390).open()
    nav = page.get_by_role("navigation", name="Views")
    expect(nav).to_be_hidden()
    page.get_by_role("button", name="Views").click()
    nav.get_by_role("link", name="Consumer groups").click()
    expect(page.locator("main h1")).to_have_text("Consumer groups")
    expect(nav).to_be_hidden()


def test_topics_are_filtered_sorted_and_turned_over(filled: Served, show: Show) -> None:
    shown = show()
    page = shown.open("topics")
    names = page.locator("tbody td.name a")
    page.get_by_placeholder("Filter topics").fill("more")
    expect(names).to_have_text([f"more.{number}" for number in range(5)])
    page.get_by_role("button", name="Name").click()
    expect(names.first).to_have_text("more.4")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Name")
    page.get_by_placeholder("Filter topics").fill("nothing like it")
    expect(page.get_by_text("Nothing matches.")).to_be_visible()
    page.get_by_placeholder("Filter topics").fill("more")
    page.get_by_role("button", name="Size").click()
    page.get_by_role("button", name="Size").click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Size")
    expect(page.locator("tbody td:nth-child(6)").first).to_have_text("5.0 KiB")
    expect(names.first).to_have_text("more.3")
    page.get_by_role("button", name="Rate").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Rate")
    expect(page.locator("tbody td:nth-child(7)").first).to_contain_text("/s")
    page.get_by_placeholder("Filter topics").fill("")
    page.get_by_label("Internal").check()
    expect(page.get_by_role("link", name="__consumer_offsets")).to_be_visible()


def test_what_clients_do_is_seen_as_it_happens(filled: Served, show: Show, name: str) -> None:
    shown = show()
    page = shown.open("requests")
    page.get_by_label("Topic").fill(name)
    page.get_by_label("API").fill("Produce")
    page.get_by_role("button", name="Watch").click()
    expect(page.get_by_text("Watching")).to_be_visible()
    filled.create(name)
    filled.produce(name, "seen")
    row = page.locator("tr.record-row").first
    expect(row).to_contain_text("Produce v")
    row.click()
    expect(page.locator(".detail")).to_contain_text(name)
    shown.picture("requests")
    shown.open("metrics")
    expect(page.locator(".plot canvas").first).to_be_visible()
    expect(page.locator(".plot").first).to_have_attribute("aria-label", re.compile(r"now: records in \d"))
    shown.check_access()
    shown.open("connections")
    expect(page.get_by_role("row").filter(has_text="payer").first).to_contain_text("rdkafka")
    shown.open("topics/shown/producers")
    expect(page.get_by_text("open since offset").first).to_be_visible()
    shown.open("transactions")
    expect(page.get_by_role("row", name="open Ongoing")).to_be_visible()
