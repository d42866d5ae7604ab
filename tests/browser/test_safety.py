"""Hostile records, logins, and a broker that goes away, in a real browser."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

from tests.browser.conftest import Served, Show, serve, serve_secured

HOSTILE = (
    '<img src=x onerror="window.hacked=1">',
    '<script>window.hacked=1</script><svg onload="window.hacked=1">',
    '{"<b>": "<script>window.hacked=1</script>", "__proto__": {"hacked": 1}}',
    "javascript:window.hacked=1",
    "\u202egnp.exe\u0000\u0007",
    "</td></table><h1>Owned</h1>",
    "[" * 5000,
)
BINARY = bytes(range(256))


def test_hostile_records_are_text_and_nothing_else(served: Served, show: Show, name: str) -> None:
    served.create(name)
    served.produce(name, *((text, text, [("<i>h</i>", text)]) for text in HOSTILE), (BINARY, BINARY, None))
    shown = show()
    page = shown.open(f"topics/{name}")
    rows = page.locator("tr.record-row")
    expect(rows).to_have_count(len(HOSTILE) + 1)
    for number in range(len(HOSTILE) + 1):
        rows.nth(number).click()
        expect(page.locator(".detail")).to_have_count(number + 1)
    expect(page.locator(".detail").filter(has_text="<script>").first).to_be_visible()
    assert page.locator("main img, main script, main svg, main iframe, main b, main i").count() == 0
    assert page.locator("main h1").count() == 1
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("({}).hacked") is None
    assert "\u202e" not in page.locator("main").inner_text()
    shown.check_access()
    shown.picture("hostile-records")
    served.create(f"{name}.group")
    served.produce(f"{name}.group", "x")
    served.consume('<img src=x onerror="window.hacked=1">', f"{name}.group", 1)
    shown.open("groups")
    page.get_by_role("link", name="<img src=x").click()
    expect(page.locator("main h1")).to_have_text('<img src=x onerror="window.hacked=1">')
    assert page.evaluate("window.hacked") is None


def test_a_page_that_would_run_markup_is_stopped_by_the_browser(show: Show) -> None:
    shown = show()
    page = shown.open()
    script = "() => { try { document.body.innerHTML = '<p>x</p>'; } catch (error) { return error.name; } }"
    assert page.evaluate(script) == "TypeError"
    page.evaluate("document.head.append(Object.assign(document.createElement('script'), {type: 'module'}))")
    page.wait_for_timeout(100)
    shown.problems.clear()  # the browser has said so, too


def test_the_page_stays_while_the_broker_is_away(show: Show, tmp_path: Path) -> None:
    first = serve(data=tmp_path / "data")
    port, console = first.bootstrap.rpartition(":")[2], first.url.rpartition(":")[2]
    first.create("kept")
    first.produce("kept", "before")
    shown = show(first.url)
    page = shown.open("topics/kept")
    expect(page.locator("tr.record-row")).to_have_count(1)
    page.get_by_role("button", name="Live tail").click()
    expect(page.get_by_text("waiting for records")).to_be_visible()
    first.stop()
    page.get_by_role("link", name="Topics").first.click()
    expect(page.locator("#top .state")).to_have_attribute("data-state", "down")
    expect(page.locator("main")).to_contain_text("does not answer")
    second = serve(data=tmp_path / "data", listen=f"127.0.0.1:{port}", console=f"127.0.0.1:{console}")
    try:
        expect(page.locator("#top .state")).to_have_attribute("data-state", "up")
        expect(page.get_by_role("link", name="kept")).to_be_visible()
        page.get_by_role("button", name="Create topic").click()
        shown.dialog().get_by_label("Name").fill("after")
        shown.dialog().get_by_role("button", name="Create", exact=True).click()
        shown.said("was created")  # with the new session of the new process
    finally:
        second.stop()


def test_a_user_logs_in_and_out(show: Show, tmp_path: Path) -> None:
    secured = serve_secured()
    try:
        shown = show(secured.url)
        page = shown.page
        page.goto(secured.url)
        dialog = shown.dialog()
        shown.check_access()
        dialog.get_by_label("User").fill("ann")
        dialog.get_by_label("Password").fill("guess")
        shown.picture("login")
        dialog.get_by_role("button", name="Log in").click()
        expect(dialog.get_by_role("alert")).to_be_visible()
        dialog.get_by_label("User").fill("admin")
        dialog.get_by_label("Password").fill("admin-secret")
        dialog.get_by_role("button", name="Log in").click()
        expect(page.locator("#top")).to_contain_text("admin")
        shown.open("access")
        page.get_by_role("button", name="Create ACL").click()
        dialog.get_by_label("Principal").fill("User:ann")
        dialog.get_by_label("Name", exact=True).fill("orders")
        dialog.get_by_role("button", name="Create", exact=True).click()
        shown.said("was created")
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-secret"}
        admin = AdminClient(
            {"bootstrap.servers": secured.bootstrap, "security.protocol": "SASL_PLAINTEXT", **login}
        )
        for future in admin.create_topics([NewTopic("orders", 1, 1), NewTopic("others", 1, 1)]).values():
            future.result()
        shown.open("topics/others/access")
        expect(page.locator("main")).to_contain_text("No ACL is about this topic")
        shown.open("topics/orders/access")
        expect(page.get_by_role("row").filter(has_text="User:ann")).to_contain_text("topic orders")
        page.get_by_role("button", name="Create ACL").click()
        expect(dialog.get_by_label("Name", exact=True)).to_have_value("orders")
        dialog.get_by_label("Principal").fill("User:bob")
        dialog.get_by_label("Operation").select_option("read")
        dialog.get_by_role("button", name="Create", exact=True).click()
        shown.said("was created")
        expect(page.get_by_role("row").filter(has_text="User:bob")).to_contain_text("allow read")
        shown.check_access()
        shown.picture("topic-access")
        page.get_by_role("button", name="Delete the ACL of User:ann").click()
        shown.confirm("User:ann", "Delete ACL")
        shown.said("was deleted")
        assert "admin-secret" not in page.content()
        assert page.evaluate("document.cookie") == ""
        assert "admin-secret" not in page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
        page.get_by_role("button", name="Log out").click()
        expect(dialog).to_contain_text("Log in")
        expect(page.locator("main")).not_to_contain_text("Overview")

        dialog.get_by_label("User").fill("ann")
        dialog.get_by_label("Password").fill("ann-secret")
        dialog.get_by_role("button", name="Log in").click()
        expect(page.locator("#top")).to_contain_text("ann")
        shown.open("log")
        expect(page.locator("main")).to_contain_text("this needs the right to alter the cluster")
        page.goto(f"{secured.url}/#/access")
        expect(page.locator("main")).to_contain_text("You may not do this with the cluster")
    finally:
        secured.stop()
