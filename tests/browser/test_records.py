"""Records by a filter: found, marked, followed, saved, kept in the address; and what is done to one of them."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import Served, Show

ORDERS = """{"type": "record", "name": "Order", "fields": [
    {"name": "customer", "type": "string"}, {"name": "total", "type": "double"}, {"name": "note", "type": "string"}]}"""


def test_a_filter_finds_decoded_values_and_marks_them(served: Served, show: Show) -> None:
    name = "shop.orders"
    served.create(name)
    orders = [
        {
            "customer": "ann" if n % 2 else "bob",
            "total": n + 0.5,
            "note": f"Parcel {n} left with a neighbour, who will ring.",
        }
        for n in range(99)
    ]
    served.produce_avro(name, ORDERS, *orders)
    shown = show()
    page = shown.open(f"topics/{name}")
    rows = page.locator("tr.record-row")
    page.get_by_label("Search by").select_option("where")
    search = page.get_by_label("Search for")
    search.fill('$.total >> 90 and $.customer = "ann"')
    search.press("Enter")
    expect(page.get_by_text("Character 10: a value is expected, not '>'").first).to_be_visible()
    expect(search).to_be_focused()
    assert search.evaluate("input => [input.selectionStart, input.selectionEnd]") == [9, 10]

    search.fill('$.total > 90 and $.customer = "ann"')
    search.press("Enter")
    expect(page.get_by_text("4 found in 99 of 99 records")).to_be_visible()
    expect(rows.locator("mark")).to_have_text(
        ['"ann"', "97.5", '"ann"', "95.5", '"ann"', "93.5", '"ann"', "91.5"]
    )
    rows.first.click()
    expect(page.locator("pre.code mark")).to_have_text(['"ann"', "97.5"])
    shown.check_access()
    shown.picture("records-filter")

    page.reload()
    expect(rows).to_have_count(4)
    expect(search).to_have_value('$.total > 90 and $.customer = "ann"')
    search.fill("$.total < 2")
    search.press("Enter")
    expect(rows).to_have_count(2)
    page.go_back()
    expect(rows).to_have_count(4)

    page.get_by_role("button", name="Live tail").click()
    expect(page.get_by_text("waiting for records that match")).to_be_visible()
    served.produce_avro(name, ORDERS, *orders[90:93])
    expect(rows).to_have_count(1)
    page.reload()
    expect(page.get_by_text("waiting for records that match")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="What a filter can say").click()
    expect(shown.dialog()).to_contain_text("at any depth")
    shown.check_access()
    shown.dialog().get_by_role("button", name="Close").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON lines").click()
    assert len(download.value.path().read_text().splitlines()) == 5


def test_key_of_a_record_is_deleted_by_a_tombstone(served: Served, show: Show, name: str) -> None:
    served.create(name, 2, cleanup_policy="compact")
    served.produce(name, *((key, "value", None) for key in (b"\xff\x00key", "ann", "bob")))
    shown = show()
    page = shown.open(f"topics/{name}")
    rows = page.locator("tr.record-row")
    rows.filter(has_text="ff 00").click()
    page.get_by_role("button", name="Delete key").click()
    expect(shown.dialog()).to_contain_text("ff 00 6b 65 79")
    expect(shown.dialog()).not_to_contain_text("not compacted")
    shown.check_access()
    shown.dialog().get_by_role("button", name="Send a tombstone").click()
    shown.said("Sent: partition")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text="ff 00")).to_have_count(2)
    rows.first.click()
    expect(page.locator(".detail").get_by_role("button", name="Delete key")).to_have_count(0)  # it is one

    served.create(f"{name}-kept")
    served.produce(f"{name}-kept", ("ann", "value", None))
    page = shown.open(f"topics/{name}-kept")
    rows.first.click()
    page.get_by_role("button", name="Delete key").click()
    expect(shown.dialog()).to_contain_text("This topic is not compacted")
    page.go_back()
    expect(shown.dialog()).to_have_count(0)


def test_paths_become_columns_that_stand_in_the_address(served: Served, show: Show, name: str) -> None:
    served.create(name)
    served.produce(name, *(f'{{"customer": "ann", "total": {number}.5}}' for number in range(5)))
    shown = show()
    page = shown.open(f"topics/{name}")
    page.get_by_role("button", name="Columns").click()
    dialog = shown.dialog()
    dialog.get_by_label("Paths and fields").fill("$.customer, $.")
    dialog.get_by_role("button", name="Show").click()
    expect(dialog).to_contain_text("character 15")
    dialog.get_by_label("Paths and fields").fill("$.customer, $.total, $.missing")
    dialog.get_by_role("button", name="Show").click()
    heads = page.get_by_role("table", name="Records").locator("th")
    names = ["Partition:offset", "Time (UTC)", "Key", "$.customer", "$.total", "$.missing", "Value", "Size"]
    expect(heads).to_have_text(names, use_inner_text=True)
    page.reload()
    expect(heads).to_have_text(names, use_inner_text=True)
    expect(page.locator("tr.record-row").first.locator("td.column")).to_have_text(["ann", "4.5", "–"])
    shown.check_access()
    page.go_back()
    expect(page.locator("td.column")).to_have_count(0)
