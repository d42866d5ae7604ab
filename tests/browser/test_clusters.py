"""Several clusters in one console, and Kafka Connect: each act, what is refused, and what one that is gone leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Served, Show
from tests.browser.test_states import console_beside
from tests.support.connect_workers import TRACE, Worker, worker

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def workers() -> Iterator[Worker]:
    """A worker of Kafka Connect."""
    with worker() as state:
        yield state


@pytest.fixture(scope="module")
def console(served: Served, workers: Worker) -> Iterator[str]:
    """A console of a cluster with Connect, of the same one under another name, and of one that is gone."""
    options = [
        f"--cluster=shop={served.bootstrap}",
        f"--cluster=again={served.bootstrap}",
        "--cluster=gone=127.0.0.1:1",
    ]
    options += [f"--connect=files={workers.url}", "--connect=shop/away=http://127.0.0.1:1"]
    with console_beside("", *options) as url:
        yield url


@pytest.mark.parametrize(("theme", "size"), [("light", {}), ("dark", {}), ("light", PHONE)])
def test_cluster_that_is_gone_holds_up_no_other(
    console: str, show: Show, theme: str, size: dict[str, int]
) -> None:
    shown = show(f"{console}/clusters/shop", theme=theme, **size)
    page = shown.open("clusters")
    table = page.get_by_role("table", name="Clusters")
    expect(table.get_by_role("row").filter(has_text="shop")).to_contain_text("all partitions in sync")
    expect(table.get_by_role("row").filter(has_text="gone")).to_contain_text("nothing listens there")
    shown.check_access()
    if theme == "light":
        shown.picture("clusters-phone" if size else "clusters")
    page.get_by_label("Cluster", exact=True).select_option("gone")
    expect(page).to_have_title("Overview · gone · Barnabas console")
    expect(page.locator("main")).to_contain_text("nothing listens there")
    page.go_back()
    expect(page.get_by_label("Cluster", exact=True)).to_have_value("shop")
    table.get_by_role("link", name="again").click()
    expect(page).to_have_title("Overview · again · Barnabas console")
    assert page.url == f"{console}/clusters/again/#/"


def test_address_without_a_cluster_leads_to_the_first(console: str, show: Show) -> None:
    shown = show(console)
    page = shown.open("topics")
    expect(page.locator("h1")).to_have_text("Topics")
    assert page.url.startswith(f"{console}/clusters/shop/")
    page.goto(f"{console}/clusters/none/")
    expect(page.locator("body")).to_contain_text("the clusters are at /clusters/NAME/: shop, again, gone")


def test_connector_from_its_making_to_its_end(console: str, workers: Worker, show: Show) -> None:
    name = "lines-to-topic"
    shown = show(f"{console}/clusters/shop")
    page = shown.open("connect")
    page.get_by_role("button", name="Create connector").click()
    dialog = shown.dialog()
    dialog.get_by_label("Name", exact=True).fill(name)
    dialog.get_by_label("Plugin").select_option(label="FileStreamSourceConnector (source, 4.3.1)")
    config = dialog.get_by_label("Config")
    expect(config).to_have_value('{\n  "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",\n'
                                 '  "tasks.max": "1",\n  "topic": ""\n}')  # fmt: skip
    shown.check_access()
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("The plugin refuses 1 setting.")
    expect(dialog).to_contain_text('Missing required configuration "topic"')
    shown.picture("connect-create")
    config.fill(
        "connector.class=org.apache.kafka.connect.file.FileStreamSourceConnector\ntopic = lines\npin=4711\nfile=/x"
    )
    dialog.get_by_role("button", name="Check").click()
    expect(dialog).to_contain_text("The plugin accepts this config.")
    dialog.get_by_role("button", name="Create", exact=True).click()
    shown.said(f"Connector {name} was created.")
    shown.is_settled()

    page.get_by_role("link", name=name).click()
    main = page.locator("main")
    expect(
        main.get_by_role("table", name="Config").get_by_role("row").filter(has_text="pin")
    ).to_contain_text("********")
    for act, state in (
        ("Pause", "paused"),
        ("Resume", "running"),
        ("Stop", "stopped"),
        ("Resume", "running"),
    ):
        page.get_by_role("button", name=act, exact=True).click()
        expect(main.locator(".tile").filter(has_text="State")).to_contain_text(state)
    page.get_by_role("button", name="Edit config").click()
    config.fill(config.input_value().replace('"/x"', '"/y"'))
    dialog.get_by_role("button", name="Save").click()
    shown.said("was saved")
    assert (workers.configs[name]["file"], workers.configs[name]["pin"]) == ("/y", "4711")
    page.get_by_role("button", name="Delete connector").click()
    shown.confirm(name, "Delete connector")
    shown.said(f"Connector {name} was deleted.")
    assert name not in workers.configs


@pytest.mark.parametrize(
    ("name", "theme", "size"),
    [("payments-in", "light", {}), ("orders-in", "dark", {}), ("clicks-in", "light", PHONE)],
)
def test_failed_task_says_why_and_is_restarted(
    console: str, workers: Worker, show: Show, name: str, theme: str, size: dict[str, int]
) -> None:
    workers.add(name, trace=TRACE, password="hunter2")
    shown = show(f"{console}/clusters/shop", theme=theme, **size)
    page = shown.open("connect?state=FAILED")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name))
    expect(row).to_contain_text("1 failed")
    shown.check_access()
    if theme == "light":
        shown.picture("connect-phone" if size else "connect")
    row.get_by_role("link").click()
    page.get_by_text("ConnectException: no file").first.click()
    expect(page.locator(".trace pre")).to_contain_text("at java.base/java.lang.Thread.run")
    shown.check_access()
    if theme == "light":
        shown.picture("connector-phone" if size else "connector")
    assert "hunter2" not in page.content()
    page.go_back()
    expect(page.get_by_label("State")).to_have_value("FAILED")
    page.go_forward()
    page.get_by_role("button", name="Restart", exact=True).first.click()
    dialog = shown.dialog()
    dialog.get_by_role("button", name="Restart").click()
    shown.said("restarts")
    assert any("onlyFailed=true" in request for request in workers.asked)
    expect(page.get_by_role("table", name="Tasks")).to_contain_text("running")


def test_workers_that_are_gone_are_told_apart(console: str, show: Show) -> None:
    shown = show(f"{console}/clusters/shop")
    page = shown.open("connect")
    page.get_by_label("Connect cluster").select_option("away")
    expect(page.locator("main")).to_contain_text("Kafka Connect: http://127.0.0.1:1 cannot be reached")
    expect(page.locator(".state")).to_have_text("connected")
    shown.check_access()
    page.goto(f"{console}/clusters/again/#/connect")
    expect(page.locator("#nav")).not_to_contain_text("Kafka Connect")


def test_console_that_is_read_only_refuses_acts(
    served: Served, workers: Worker, show: Show, name: str
) -> None:
    workers.add(name)
    with console_beside(served.bootstrap, "--read-only", "--connect", workers.url) as url:
        shown = show(url)
        page = shown.open(f"connect/connect/{name}")
        expect(page.locator("#top")).to_contain_text("read-only")
        page.get_by_role("button", name="Pause").click()
        shown.said("this console changes nothing: it was started with --read-only")
        assert workers.states[name] == "RUNNING"


def test_keys_lead_to_views_and_through_lists(served: Served, show: Show, name: str) -> None:
    for number in range(3):
        served.create(f"{name}-{number}")
    shown = show()
    page = shown.open()
    for keys, title in (
        ("gg", "Consumer groups"),
        ("gs", "Schemas"),
        ("gr", "Request tap"),
        ("gt", "Topics"),
    ):
        page.keyboard.type(keys)
        expect(page.locator("main h1")).to_have_text(title)
    page.keyboard.press("/")
    page.keyboard.type(name)
    expect(page.get_by_placeholder("Filter topics")).to_have_value(name)
    expect(page.get_by_role("table")).not_to_contain_text("shown")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator("main h1").focus()
    for keys, number in (("j", 0), ("j", 1), ("jj", 2), ("k", 1)):
        page.keyboard.type(keys)
        expect(page.get_by_role("link", name=f"{name}-{number}")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text(f"{name}-1")
    page.keyboard.press("?")
    expect(shown.dialog()).to_contain_text("next row of a list")
    assert [button.inner_text() for button in shown.dialog().get_by_role("button").all()] == ["Close"]
    shown.check_access()
