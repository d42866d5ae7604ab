"""The console says what it cannot show, a cluster that is gone or a refused view, and keeps what is open in place."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, Route, expect

from barnabas.testing.running import import_path
from tests.browser.conftest import ROOT, SECONDS_MAX, Served, Show, serve, serve_secured

STOPPED_MS = 20_000
"""A cluster that accepts connections and does not answer is called so after 15 s."""


@contextmanager
def console_beside(bootstrap: str, *options: str) -> Iterator[str]:
    """Start `barnabas console` beside a cluster, or beside those of the options; yields its URL."""
    where = ["--bootstrap", bootstrap] if bootstrap else []
    command = [sys.executable, "-m", "barnabas", "console", *where, "--listen", "127.0.0.1:0", *options]
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    words = dict(word.split("=", 1) for word in process.stdout.readline().split() if "=" in word)
    try:
        yield words["console"]
    finally:
        process.terminate()
        process.wait(SECONDS_MAX)
        process.stdout.close()


@pytest.mark.parametrize(
    ("view", "number"),
    [
        ("", signal.SIGKILL),
        ("topics", signal.SIGKILL),
        ("topics/orders/partitions", signal.SIGKILL),
        ("", signal.SIGSTOP),
    ],
)
def test_dead_cluster_is_not_called_healthy(show: Show, view: str, number: signal.Signals) -> None:
    broker = serve("--topic", "orders:3")
    try:
        with console_beside(broker.bootstrap) as url:
            shown = show(url)
            page = shown.open(view)
            expect(page.locator("main tbody tr").first).to_be_visible()
            expect(page.locator("#top .state")).to_have_text("connected")
            os.kill(broker.process.pid, number)
            expect(page.locator("#top .state")).to_have_text("no answer", timeout=STOPPED_MS + 10_000)
            if number == signal.SIGKILL:
                expect(page.locator("main")).not_to_contain_text("in sync")
            page.wait_for_timeout(
                2_000
            )  # requests that are answered by the console alone do not turn it round
            expect(page.locator("#top .state")).to_have_text("no answer")
            shown.problems.clear()
    finally:
        broker.process.kill()
        broker.stop()


def test_history_in_memory_does_not_call_a_dead_cluster_healthy(served: Served, show: Show) -> None:
    shown = show()
    shown.page.clock.install()
    page = shown.open("")
    expect(page.locator("#top .state")).to_have_text("connected")
    page.route(re.compile(r"/api/(?!history|session)"), lambda _: None)  # asked for, and never answered
    with page.expect_request("**/api/overview"):
        page.clock.run_for(5_000)
    page.evaluate("""() => {
        const state = document.querySelector("#top .state");
        window.texts = [];
        new MutationObserver(() => window.texts.push(state.innerText)).observe(state, { attributes: true });
    }""")
    with page.expect_response("**/api/history"):
        page.clock.run_for(STOPPED_MS)
    with page.expect_response("**/api/history"):
        page.clock.run_for(10_000)
    page.wait_for_timeout(200)
    assert {*page.evaluate("window.texts")} == {"no answer"}
    shown.problems.clear()


def test_view_that_is_left_while_an_answer_comes_is_no_error(show: Show) -> None:
    shown = show()
    page = shown.open("access/users")
    page.evaluate(
        """() => {
            const real = window.fetch, aborted = () => new DOMException("left", "AbortError");
            window.fetch = async (url, options) => {
                const answer = await real(url, options);
                if (options.method === "GET" && url.endsWith("/api/users"))
                    answer.json = () => new Promise((_, no) => options.signal.onabort = () => no(aborted()));
                return answer;
            };
        }"""
    )
    page.get_by_role("button", name="Set password").click()
    dialog = shown.dialog()
    dialog.get_by_label("User").fill("left")
    dialog.get_by_label("Password").fill("secret")
    with page.expect_response("**/api/users"):
        dialog.get_by_role("button", name="Save").click()
    page.wait_for_timeout(200)
    shown.open("access/quotas")
    expect(page.get_by_role("button", name="Set quota")).to_be_visible()


def test_refused_views_say_so(show: Show) -> None:
    secured = serve_secured()
    try:
        shown = show(secured.url)
        shown.page.goto(secured.url)
        dialog = shown.dialog()
        dialog.get_by_label("User").fill("ann")
        dialog.get_by_label("Password").fill("ann-secret")
        dialog.get_by_role("button", name="Log in").click()
        expect(shown.page.locator("#top")).to_contain_text("ann")
        for view in ("log", "requests"):
            page = shown.open(view)
            expect(page.locator("main .notice.bad")).to_contain_text("needs the right to")
            for text in ("Nothing was logged", "Connecting again", "Waiting for requests"):
                expect(page.locator("main")).not_to_contain_text(text)
        expect(shown.open("topics").locator("main")).to_contain_text("No topics that ann may see")
        expect(shown.open("groups").locator("main")).to_contain_text("No groups that ann may see")
        shown.problems.clear()  # the browser reports each status 403
    finally:
        secured.stop()


def test_addresses_keep_filter_order_and_page_of_a_table(served: Served, show: Show, name: str) -> None:
    name = name[:30]
    for number in range(27):
        served.create(f"{name}-{number:02}", 1 + number % 2)
    page = show().open("topics")
    rows = page.locator("main tbody tr")
    page.get_by_label("Filter topics").fill(f"{name}-")
    expect(page.get_by_text("1 to 25 of 27 topics")).to_be_visible()
    page.get_by_role("button", name="Partitions").click()
    page.get_by_role("button", name="Partitions").click()
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(2)
    page.get_by_label("Internal").check()
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(2)
    page.reload()
    expect(rows).to_have_count(2)
    expect(page.get_by_label("Filter topics")).to_have_value(f"{name}-")
    expect(page.get_by_label("Internal")).to_be_checked()
    expect(page.locator("th", has_text="Partitions")).to_have_attribute("aria-sort", "descending")
    rows.first.get_by_role("link").click()
    expect(page.locator("main h1")).to_contain_text(name)
    page.go_back()
    expect(rows).to_have_count(2)


def test_pages_of_records_are_gone_back_to(served: Served, show: Show, name: str) -> None:
    served.create(name)
    served.produce(name, *(f"value {number}" for number in range(120)))
    page = show().open(f"topics/{name}")
    first = page.locator("button.opener").first
    expect(first).to_have_text("0:119")
    page.get_by_role("button", name="Older").click()
    expect(first).to_have_text("0:69")
    page.reload()
    expect(first).to_have_text("0:69")
    page.get_by_role("button", name="Older").click()
    expect(first).to_have_text("0:19")
    page.go_back()
    expect(first).to_have_text("0:69")
    page.go_back()
    expect(first).to_have_text("0:119")


def test_settings_are_read_and_typed_as_people_say_them(served: Served, show: Show, name: str) -> None:
    served.create(name, retention_ms="604800000", max_message_bytes="1048588")
    shown = show()
    page = shown.open(f"topics/{name}/settings")
    rows = page.locator("main tbody tr")
    expect(rows.nth(0)).to_contain_text("max.message.bytes")  # those that are set come first
    expect(rows.nth(0)).to_contain_text("about 1 MiB")
    expect(rows.nth(1)).to_contain_text("604800000")
    expect(rows.nth(1)).to_contain_text("7 days")
    expect(rows.filter(has_text="flush.messages")).not_to_contain_text("no limit")
    expect(rows.filter(has_text="flush.ms")).to_contain_text("no limit")
    page.get_by_role("button", name="Change retention.ms").click()
    dialog = shown.dialog()
    dialog.get_by_label("New value").fill("36 hours")
    expect(dialog).to_contain_text("= 129600000, 1 day 12 hours")
    dialog.get_by_role("button", name="Save").click()
    shown.said("was changed")
    expect(rows.nth(1)).to_contain_text("1 day 12 hours")
    page.get_by_role("button", name="Change segment.bytes").click()
    dialog.get_by_label("New value").fill("0.5 GiB")
    dialog.get_by_role("button", name="Save").click()
    shown.said("was changed")
    expect(rows.filter(has_text="segment.bytes").first).to_contain_text("512 MiB")
    shown.check_access()


def test_several_topics_are_emptied_and_deleted(served: Served, show: Show) -> None:
    name = "several"
    for number in range(4):
        served.create(f"{name}-{number}")
        served.produce(f"{name}-{number}", *("value",) * (number + 1))
    shown = show()
    page = shown.open(f"topics?filter={name}-")
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(4)
    for number in (1, 2):
        page.get_by_role("checkbox", name=f"Choose {name}-{number}").check()
    expect(page.get_by_text("2 topics chosen")).to_be_visible()
    shown.check_access()
    page.get_by_role("button", name="Delete records").click()
    dialog = shown.dialog()
    expect(dialog).to_contain_text("2 topics will lose all their records: 5 records")
    expect(dialog.get_by_role("list", name="Topics").get_by_role("listitem")).to_have_text(
        [f"{name}-1", f"{name}-2"]
    )
    shown.check_access()
    shown.confirm("2 topics", "Delete records")
    shown.said("2 topics emptied.")
    expect(rows.filter(has_text=f"{name}-1").locator("td").nth(4)).to_have_text("0")
    for number in (1, 3):
        page.get_by_role("checkbox", name=f"Choose {name}-{number}").check()
    served.admin.delete_topics([f"{name}-3"])[f"{name}-3"].result()
    page.get_by_role("button", name="Delete topics").click()
    shown.confirm("2 topics", "Delete topics")
    shown.said("1 topic deleted.")
    expect(rows).to_have_count(2)
    shown.problems.clear()


def test_back_closes_an_open_dialog(served: Served, show: Show, name: str) -> None:
    served.create(name)
    shown = show()
    shown.open("topics")
    page = shown.open(f"topics/{name}")
    page.get_by_role("button", name="Delete topic").click()
    expect(shown.dialog()).to_be_visible()
    page.go_back()
    expect(shown.dialog()).to_have_count(0)
    expect(page.locator("main h1")).to_have_text(name)
    page.get_by_role("button", name="Delete topic").click()
    shown.dialog().get_by_role("button", name="Cancel").click()
    shown.is_settled()
    page.go_back()
    expect(page.locator("main h1")).to_have_text("Topics")


def test_watch_that_has_not_begun_says_connecting(served: Served, show: Show, name: str) -> None:
    page = show().open("requests")
    expect(page.get_by_text("Watching")).to_be_visible()
    waiting: list[Route] = []
    page.route("**/api/requests?*", lambda route: waiting.append(route))
    page.get_by_label("Topic", exact=True).fill(name)
    page.get_by_role("button", name="Watch").click()
    expect(page.get_by_text("Connecting")).to_be_visible()
    expect(page.get_by_text("Watching")).to_have_count(0)
    waiting[0].continue_()
    expect(page.get_by_text("Watching")).to_be_visible()


def test_opened_request_stays_where_it_is(served: Served, show: Show, name: str) -> None:
    served.create(name)
    shown = show()
    page = shown.open("requests")
    page.get_by_label("Topic", exact=True).fill(name)
    page.get_by_role("button", name="Watch").click()
    expect(page.get_by_text("Watching")).to_be_visible()
    producer = Producer({"bootstrap.servers": served.bootstrap, "linger.ms": 0})

    def produce(count: int) -> None:
        for number in range(count):
            producer.produce(name, json.dumps(number))
            producer.flush(SECONDS_MAX)

    produce(5)
    row = page.locator("main tbody tr", has_text="Produce").first
    row.click()
    before = page.locator(".detail").bounding_box()
    produce(400)
    expect(page.get_by_text("newer ones appear")).to_contain_text("300 newer")
    assert page.locator(".detail").bounding_box() == before
    page.locator("main tr.record-row:has(+ tr.opened)").click()
    expect(page.locator("main tr.record-row")).to_have_count(300)
    expect(page.get_by_text("newer ones appear")).to_have_count(0)


def right_edge(page: Page, heading: str) -> float:
    box = page.get_by_role("columnheader", name=heading).bounding_box()
    assert box is not None
    return box["x"] + box["width"]


def test_lag_of_groups_is_on_a_phones_screen(served: Served, show: Show) -> None:
    served.create("stock")
    served.produce("stock", "a", "b")
    served.consume("warehouse-etl-nightly", "stock", 1)
    page = show(width=390).open("groups")
    expect(page.get_by_role("link", name="warehouse-etl-nightly")).to_be_visible()
    assert right_edge(page, "Lag") <= 390


def test_line_of_the_log_is_readable_on_a_phone(served: Served, show: Show) -> None:
    page = show(width=390).open("log")
    # In the page itself, since lines are drawn anew: one that was located before has no width.
    page.wait_for_function(
        "document.querySelector('main tbody tr td:last-child')?.getBoundingClientRect().width >= 300"
    )


def test_names_of_settings_break_between_words(show: Show) -> None:
    page = show(width=1440).open("brokers/1")
    expect(page.locator("td.setting").first).to_be_visible()
    widths = page.evaluate(
        "[...document.querySelectorAll('td.setting')].map((cell) => cell.scrollWidth - cell.clientWidth)"
    )
    assert max(widths) <= 0
    assert page.evaluate("document.querySelector('td.setting').clientWidth") >= 360
