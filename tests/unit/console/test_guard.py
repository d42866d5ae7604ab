"""Which requests a console answers at all."""

import pytest

from barnabas.console.guard import HEADERS, POLICY, Guard, cookie_of

LOCAL = Guard(["127.0.0.1"], is_local=True)
OPEN = Guard(["0.0.0.0", "kafka-1"], ["https://kafka.example"], is_local=False)


def refused(guard: Guard, method: str = "GET", **headers: str) -> str:
    return guard.refusal(method, {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("host", ["localhost:9080", "127.0.0.1:9080", "[::1]:9080", "LOCALHOST:9080"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert refused(LOCAL, host=host) == ""
    assert (
        refused(LOCAL, "POST", host=host, origin=f"http://{host}".lower(), sec_fetch_site="same-origin") == ""
    )


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:9080",
        "127.0.0.1.evil.example",
        "",
        "192.168.0.7:9080",
        "a@localhost:9080",
        "localhost:x",
    ],
)
def test_foreign_name_that_resolves_here_is_refused(host: str) -> None:
    assert "host" in refused(LOCAL, host=host)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:9081", "https://localhost:9080", ""]
)
def test_the_page_of_another_site_is_refused(origin: str) -> None:
    for method in ("GET", "POST"):
        assert "other sites" in refused(LOCAL, method, host="localhost:9080", origin=origin)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_browser_says_of_another_site_is_believed(site: str) -> None:
    assert "other sites" in refused(LOCAL, host="localhost:9080", sec_fetch_site=site)


def test_a_browser_that_hides_its_origin_changes_nothing() -> None:
    assert refused(LOCAL, "POST", host="localhost:9080", sec_fetch_site="same-origin") != ""
    assert refused(LOCAL, "POST", host="localhost:9080") == ""  # a program, which no page can make do so


def test_remote_host_names_and_addresses_are_answered() -> None:
    assert refused(OPEN, host="10.1.2.3:9080") == ""
    assert refused(OPEN, host="kafka-1:9080") == ""
    assert "host" in refused(OPEN, host="evil.example:9080")


def test_a_proxy_is_answered_under_its_own_name() -> None:
    assert refused(OPEN, "POST", host="kafka.example", origin="https://kafka.example") == ""
    assert refused(OPEN, "POST", host="127.0.0.1:9080", origin="https://kafka.example") == ""
    assert "other sites" in refused(OPEN, "POST", host="kafka.example", origin="https://evil.example")


def test_browser_may_run_only_the_pages_own_scripts() -> None:
    headers = dict(HEADERS)
    assert headers["Content-Security-Policy"] == POLICY
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert "unsafe" not in POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    ("header", "value"), [("a=1; b=2", "2"), ("b=2", "2"), ("bb=3; b=2=2", "2=2"), ("a=1", ""), ("", "")]
)
def test_a_cookie_is_found_by_its_whole_name(header: str, value: str) -> None:
    assert cookie_of(header, "b") == value
