"""Routes over the inside of the broker: clients, requests, metrics, log, faults, clock, snapshots."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from barnabas.console.base import Call, ConsoleError, Events, Parameter, Route, Send, as_json
from barnabas.console.exposed import families_of
from barnabas.console.live import CONNECTIONS, CONTROL, LOG, METRICS, REQUESTS, Live, Seen, check_view
from barnabas.console.paging import QUERY, page_of

REQUESTS_PER_TURN = 50
TURN_SECONDS = 0.5
NAMES_SECONDS_MAX = 15.0
"""Age of the names of metrics; the history takes metrics more often than that."""
EVENT_BYTES = 256 << 10
"""Size of an event at which the next one begins."""
STEERED = ("faults", "clock", "snapshots", "reset")
"""Parts of the control API that the console passes on."""


def _live(call: Call) -> Live:
    live = call.backend.live
    assert live is not None, "the route names its view"
    return live


async def list_connections(call: Call) -> object:
    """Return a page of the connections of clients."""
    rows = _live(call).connections()
    page = page_of(
        call,
        rows,
        {
            "client_id": lambda row: (row["client_id"] or "", row["id"]),
            "software": lambda row: (row["software"], row["id"]),
            "rate": lambda row: (row["rate"] or 0.0, row["id"]),
            "id": lambda row: row["id"],
        },
        lambda row: f"{row['client_id']} {row['software']} {row['peer']} {row['principal']}",
    )
    return page.as_json(page.rows)


async def tap_requests(call: Call) -> object:
    """Return requests with their responses, as a stream of events."""
    live, filters = _live(call), dict(call.query)

    async def work(send: Send) -> None:
        async with live.watching() as watch:
            await send("begun", {})
            seen: set[int] = set()
            while not watch.is_over:
                await check_view(call.backend, REQUESTS)  # a right may be taken away meanwhile
                for requests in await _as_json(watch.find(filters, seen, REQUESTS_PER_TURN)):
                    await send("requests", requests)
                await trio.sleep(TURN_SECONDS)

    return Events(work)


async def _as_json(requests: Sequence[Seen]) -> list[bytes]:
    """Return requests as JSON events, as many as their size allows; each is encoded in a separate turn."""
    events: list[bytes] = []
    texts: list[bytes] = []
    for request in requests:
        texts.append(as_json({**request.at_a_glance(), **request.as_json()}))
        await trio.lowlevel.checkpoint()
        if sum(map(len, texts)) >= EVENT_BYTES or request is requests[-1]:
            events.append(b'{"requests":[%s]}' % b",".join(texts))
            texts = []
    return events


async def show_metrics(call: Call) -> object:
    """Return the broker's metrics: families, and samples of the requested ones."""
    names = tuple(filter(None, call.query.get("names", "").split(",")))
    families = await _live(call).metrics(seconds_max=0.0 if names else NAMES_SECONDS_MAX)
    return {"families": families_of(families, names)}


async def metrics_history(call: Call) -> object:
    """Return sums of the metrics that are plotted without being asked for, over the last 15 minutes."""
    samples = await _live(call).metrics_history.samples()
    return {"samples": [{"at": sample.at_ms, "sums": sample.values} for sample in samples]}


async def show_log(call: Call) -> object:
    """Return the newest lines of the broker's log."""
    return {"lines": _live(call).log_lines(call.whole("since", 0))}


async def steer(call: Call) -> object:
    """Pass a request on to the control API."""
    path = call.path["rest"]
    if path.split("/")[0] not in STEERED:
        raise ConsoleError(404, f"the console controls only {', '.join(STEERED)}")
    body = {name: value for name, value in call.body.items() if name not in ("method", "confirm")} or None
    method = call.field("method", str, "GET")
    if path.endswith("/restore") or path == "reset":
        call.confirmed(path)
    status, value = await _live(call).control(method, f"/v1/{path}", {}, body)
    if status >= 400:
        raise ConsoleError(status, value["error"] if isinstance(value, dict) else str(value))
    return value


ROUTES = (
    Route("GET", "/api/connections", list_connections, "A page of clients: software, user, requests a second, warnings",
          query=QUERY, view=CONNECTIONS),
    Route("GET", "/api/requests", tap_requests, "Requests with their answers, decoded: events `begun` and `requests`",
          query=(Parameter("api", "as Produce (all)"), Parameter("client_id", "a pattern with * and ? (all)"),
                 Parameter("topic", "a pattern (all)"), Parameter("group", "a pattern (all)"),
                 Parameter("errors", "true for those alone that have failed (false)")), view=REQUESTS),
    Route("GET", "/api/metrics", show_metrics, "Names of metrics, and samples of those asked for, all topics together",
          query=(Parameter("names", "with commas between them (none)"),), view=METRICS),
    Route("GET", "/api/metrics/history", metrics_history,
          "Sums of those metrics that the page plots by itself, over the last 15 minutes", view=METRICS),
    Route("GET", "/api/log", show_log, "The broker's log",
          query=(Parameter("since", "lines after this number (0)"),), view=LOG),
    Route("POST", "/api/control/{rest}", steer, "Faults, clock and snapshots: a request of the control API",
          body=(Parameter("method", "of that request (GET)"),
                Parameter("confirm", "its path, where it destroys something")),
          view=CONTROL),
)  # fmt: skip
