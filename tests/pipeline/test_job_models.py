"""Each job that makes results, in Spark, against plain Python: the same from events that come in portions."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import pytest

from barnabas_pipeline.jobs.derived import Derived, DerivedJob
from barnabas_pipeline.jobs.feed import Feed
from barnabas_pipeline.jobs.monitor import Monitor
from barnabas_pipeline.jobs.rank import Rank
from barnabas_pipeline.jobs.report import report
from barnabas_pipeline.jobs.security import Rules, Security
from barnabas_pipeline.jobs.visitors import Visitors
from barnabas_pipeline.lake.iceberg import Lake
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import BUILT_IN
from barnabas_pipeline.simulate.model import DAY_MS, Event

from .tables import entry_of
from .written import append

DAY = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS
NAMES = ("a", "b", "c", "d")
Rows = list[dict[str, Any]]


def event(kind: str, ts: int, key: str, *, late_ms: int = 0, **fields: Any) -> Event:
    return Event(ts, ts + late_ms, kind, key, {"ts": ts, **fields})


def updated(spark: Any, job: DerivedJob, tmp_path: Path, events: list[Event]) -> Derived:
    """The results of events that came in two portions, in any order."""
    derived = Derived(job, lake=str(tmp_path / "lake"), root=str(tmp_path / "out"))
    for n, part in enumerate((events[::2], events[1::2])):
        append(tmp_path / "lake", part)
        assert derived.update(spark).is_replay is (n == 0)
    return derived


def wilson(successes: float, trials: float) -> float:
    """The lower end of the interval at 95 %, as textbooks have it."""
    if not trials:
        return 0.0
    z, share = 1.96, successes / trials
    middle = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, (middle - spread) / (1 + z * z / trials))


def test_rank_weighs_recent_events_and_last_votes(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(1)
    window, half_life = 600_000, 6 * HOUR_MS
    times = iter(draw.sample(range(DAY - 5 * HOUR_MS, DAY + 20 * HOUR_MS), 240))
    events = []
    for _ in range(80):
        item = draw.choice([*NAMES, None])
        views = {"session": "s", "ip": "i", "item": item, "url": "u", "status": draw.choice([200, 200, 404])}
        events.append(event("views", next(times), "k", **views, js=draw.choice([True, True, False])))
        events.append(event("clicks", next(times), "k", member="m", session="s", item=draw.choice(NAMES[1:])))
        member = draw.choice("wxyz")
        more = {"ip": "i", "item": draw.choice([*NAMES, "e"]), "vote": draw.choice([-1, 0, 1])}
        events.append(event("votes", next(times), member, member=member, **more))
    derived = updated(spark, Rank(window_ms=window, half_life_ms=half_life), tmp_path, events)

    def counts_as(seen_event: Event) -> bool:
        fields = seen_event.fields
        is_shown = seen_event.kind == "views" and fields["item"] and fields["status"] == 200 and fields["js"]
        return seen_event.kind == "clicks" or bool(is_shown)

    seen = [e for e in events if counts_as(e)]
    newest = max(e.ts - e.ts % window for e in seen)
    counts: Counter[tuple[str, str]] = Counter()
    weights: defaultdict[tuple[str, str], float] = defaultdict(float)
    for e in seen:
        counts[e.kind, e.fields["item"]] += 1
        weights[e.kind, e.fields["item"]] += 2 ** -((newest - (e.ts - e.ts % window)) / half_life)
    votes = {(e.fields["item"], e.key): e.fields["vote"] for e in sorted(events) if e.kind == "votes"}
    expected = {}
    for item in [*NAMES, "e"]:
        up, down = (sum(vote == way for (what, _), vote in votes.items() if what == item) for way in (1, -1))
        views, clicks = weights["views", item], weights["clicks", item]
        ctr, liked = wilson(min(clicks, views), views), wilson(up, up + down)
        expected[item] = [
            counts["views", item],
            counts["clicks", item],
            up,
            down,
            ctr,
            liked,
            0.7 * ctr + 0.3 * liked,
        ]
    rows = sorted(derived.result("rank").to_pylist(), key=lambda row: row["position"])
    names = ("views", "clicks", "votes_up", "votes_down", "ctr_low", "votes_low", "score")
    for row in rows:
        assert [row[name] for name in names] == pytest.approx(expected[row["item"]], abs=1e-5)
    assert [row["position"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows == sorted(rows, key=lambda row: (-row["score"], row["item"]))
    assert derived.job.messages(derived) == {row["item"]: row for row in rows}


def test_feed_has_the_newest_liked_items_of_followed_members(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(2)
    events = []
    for ts in draw.sample(range(DAY, DAY + DAY_MS), 80):
        voter, more = (
            draw.choice(NAMES),
            {"ip": "i", "item": f"i{draw.randrange(8)}", "vote": draw.choice([-1, 0, 1, 1])},
        )
        events.append(event("votes", ts, voter, member=voter, **more))
    follows = {"x": ["a", "b"], "y": ["c"], "a": ["a", "d", "nobody"], "z": []}
    derived = updated(spark, Feed(follows, items_max=3), tmp_path, events)
    expected: dict[str, list[Any]] = {}
    for member, followed in follows.items():
        liked: dict[str, Event] = {}
        for row in sorted(events, key=lambda row: row.ts):
            if row.fields["vote"] > 0 and row.key in followed:
                liked[row.fields["item"]] = row
        newest = sorted(liked.items(), key=lambda pair: -pair[1].ts)[:3]
        expected |= {member: [[item, row.key, row.ts] for item, row in newest]} if newest else {}
    assert derived.job.messages(derived) == expected
    rows = sorted(derived.result("feed").to_pylist(), key=lambda row: (row["member"], row["place"]))
    assert [row["place"] for row in rows] == [
        n + 1 for member in sorted(expected) for n in range(len(expected[member]))
    ]


def test_security_judges_each_minute_by_its_rules(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(3)
    rules = Rules(
        crawler_requests=4,
        crawler_urls=3,
        crawler_no_script_percent=75,
        rate_requests=7,
        spam_votes=2,
        login_failures=2,
    )
    events = []
    for _ in range(150):
        ts, name = DAY - 120_000 + draw.randrange(4 * 60_000), draw.choice(NAMES)
        fields = {"session": "s", "ip": name, "url": f"u{draw.randrange(4)}", "status": 200}
        events.append(event("views", ts, "k", **fields, js=draw.choice([False, False, False, True])))
        if draw.random() < 0.3:
            events.append(event("votes", ts, name, member=name, ip="i", item="x", vote=1))
            events.append(event("logins", ts, name, member=name, ip="i", ok=draw.random() < 0.3))
    minutes: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for row in events:
        subject = row.fields["ip"] if row.kind == "views" else row.key
        minutes[subject, row.ts // 60_000 * 60_000].append(row)
    broken: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for (subject, minute), of_minute in minutes.items():
        views = [row for row in of_minute if row.kind == "views"]
        plain = sum(not row.fields["js"] for row in views)
        failed = sum(not row.fields["ok"] for row in of_minute if row.kind == "logins")
        spam = sum(row.kind == "votes" for row in of_minute)
        urls = {row.fields["url"] for row in views}
        for kind, is_broken, worst in (
            ("crawler", len(views) >= 4 and len(urls) >= 3 and plain / len(views) >= 0.75, len(views)),
            ("rate", len(views) >= 7, len(views)),
            ("spam", spam >= 2, spam),
            ("guessing", failed >= 2, failed),
        ):
            if is_broken and subject != "d":
                broken[kind, subject].append((minute, worst))
    derived = updated(spark, Security(rules, allowed=("d",)), tmp_path, events)
    expected = {}
    for (kind, subject), minutes_of in broken.items():
        first = min(minutes_of)[0]
        name = hashlib.sha256(f"{kind}|{subject}|{first}".encode()).hexdigest()[:16]
        expected[name] = {
            "verdict_id": name, "kind": kind, "subject": subject, "first_minute": first, "minutes": len(minutes_of),
            "worst": max(worst for _, worst in minutes_of),
        }  # fmt: skip
    assert {alert["kind"] for alert in expected.values()} == {"crawler", "rate", "spam", "guessing"}
    assert derived.job.messages(derived) == expected


def test_monitor_rolls_up_windows_and_alerts_above_rules(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(4)
    events = []
    for _ in range(300):
        ts, late_ms = (
            DAY - 20 * 60_000 + draw.randrange(40 * 60_000),
            draw.choice([0, 59_999, 60_000, 60_001]),
        )
        where = {"service": draw.choice("st"), "host": "h"}
        if draw.random() < 0.6:
            value = draw.choice([0.5, 2.25, 9.125])
            events.append(
                event("metrics", ts, "k", late_ms=late_ms, **where, metric=draw.choice("mn"), value=value)
            )
        else:
            level = draw.choice(["error", "info"])
            events.append(event("logs", ts, "k", late_ms=late_ms, **where, level=level, message="x"))
    windows: defaultdict[tuple[str, str], defaultdict[int, list[Event]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in events:
        metric = row.fields["metric"] if row.kind == "metrics" else f"log_{row.fields['level']}"
        windows[row.fields["service"], metric][row.ts // 60_000 * 60_000].append(row)
    rules = {"m": 4.0, "log_error": 2.0}
    rollups, alerts = [], []
    for (service, metric), by_window in windows.items():
        numbers = []
        for n, (window, of_window) in enumerate(sorted(by_window.items())):
            values = [row.fields["value"] for row in of_window if "value" in row.fields]
            mean = sum(values) / len(values) if values else None
            late = sum(row.delivered - row.ts > 60_000 for row in of_window)
            rollups.append(
                (
                    window,
                    service,
                    metric,
                    len(of_window),
                    mean,
                    min(values, default=None),
                    max(values, default=None),
                    late,
                )
            )
            measure = len(of_window) if mean is None else mean
            if measure > rules.get(metric, 1e9):
                numbers.append((n, window, measure))
        for n, window, measure in numbers:
            if alerts and alerts[-1][:2] == [service, metric] and n - alerts[-1][-1] <= 3:
                alerts[-1][3:] = [window + 60_000, alerts[-1][4] + 1, max(alerts[-1][5], measure), n]
            else:
                alerts.append([service, metric, window, window + 60_000, 1, measure, n])
    derived = updated(spark, Monitor(window_ms=60_000, rules=rules), tmp_path, events)
    rows = [tuple(row.values()) for row in derived.result("rollups").to_pylist()]
    assert sorted(rows, key=repr) == sorted(rollups, key=repr)
    assert {result.split("/")[1][:10] for result in derived.store.state().results if "/" in result} == {
        "2023-11-14",
        "2023-11-15",
    }
    assert sorted(tuple(row.values()) for row in derived.result("alerts").to_pylist()) == sorted(
        tuple(alert[:-1]) for alert in alerts
    )
    assert 2 < len(alerts) < sum(alert[4] for alert in alerts), "some are of one window, some of several"
    assert {*derived.job.messages(derived)} == {f"{alert[0]}/{alert[1]}/{alert[2]}" for alert in alerts}


def test_visitors_are_counted_once_for_each_member(spark: Any, tmp_path: Path) -> None:
    table = Table(Lake(str(tmp_path / "lake")).place("profiles"))
    table.prepare(BUILT_IN["profiles"])
    table.commit(replace(entry_of(table, "load", BUILT_IN["profiles"]), topic="profiles"))
    nothing = Derived(Visitors(), lake=str(tmp_path / "lake"), root=str(tmp_path / "nothing"))
    assert nothing.update(spark).rows == {"visitors": 0}
    assert nothing.result("visitors").num_rows == 0
    draw = random.Random(5)
    events = [
        event("profiles", DAY + draw.randrange(DAY_MS), member, member=member, visitor=draw.choice(NAMES))
        for member in draw.choices("mnop", (6, 3, 2, 1), k=60)
    ]
    derived = updated(spark, Visitors(), tmp_path, events)
    expected = {}
    for member in "mnop":
        mine = [row for row in events if row.key == member]
        visitors = len({row.fields["visitor"] for row in mine})
        expected[member] = {
            "member": member,
            "views": len(mine),
            "visitors": visitors,
            "last": max(row.ts for row in mine),
        }
    assert derived.job.messages(derived) == expected
    nothing.update(spark)
    assert nothing.job.messages(nothing) == expected


def test_a_report_counts_the_events_of_its_day(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(6)
    events = []
    for n in range(120):
        ts, name = DAY - 2 * HOUR_MS + n * HOUR_MS // 4, draw.choice([*NAMES, None])
        fields = {
            "member": name,
            "session": draw.choice("st"),
            "ip": "i",
            "item": draw.choice([*NAMES, None]),
            "url": "u",
        }
        took = draw.choice([None, 1.5, 2.0, 10.25])
        events.append(
            event("views", ts, "k", **fields, status=draw.choice([200, 399, 400, 503]), took_ms=took)
        )
        who = {"member": "m", "session": "s"}
        events.append(event("clicks", ts, "k", **who, item=draw.choice(NAMES[:3])))
        events.append(event("votes", ts, "m", member="m", ip="i", item="x", vote=draw.choice([-1, 0, 1])))
        events.append(event("logins", ts, "m", member="m", ip="i", ok=draw.random() < 0.5))
    append(tmp_path / "lake", events)
    done = report(
        spark, lake=str(tmp_path / "lake"), out=str(tmp_path / "out"), day="2023-11-15", partial=True
    )
    mine = [row for row in events if DAY <= row.ts < DAY + DAY_MS]
    assert (done.hours, len(done.unsealed), done.rows_read) == (24, 4 * 24, len(mine))

    def table(name: str) -> Rows:
        return sorted(
            pq.read_table(tmp_path / "out" / "2023-11-15-partial" / f"{name}.parquet").to_pylist(), key=repr
        )

    def by_hour(kind: str, row_of: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> Rows:
        hours: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in mine:
            if row.kind == kind:
                hours[f"2023-11-15T{(row.ts - DAY) // HOUR_MS:02}"].append(row.fields)
        return sorted(({"hour": hour, **row_of(fields)} for hour, fields in hours.items()), key=repr)

    def traffic(fields: list[dict[str, Any]]) -> dict[str, Any]:
        took = [row["took_ms"] for row in fields if row["took_ms"] is not None]
        return {
            "views": len(fields),
            "members": len({row["member"] for row in fields} - {None}),
            "sessions": len({row["session"] for row in fields}),
            "errors": sum(row["status"] >= 400 for row in fields),
            "took_ms_median": median(took) if took else None,
        }

    assert table("traffic_by_hour") == by_hour("views", traffic)
    assert table("votes_by_hour") == by_hour(
        "votes",
        lambda fields: {
            "up": sum(row["vote"] > 0 for row in fields),
            "down": sum(row["vote"] < 0 for row in fields),
        },
    )
    assert table("logins_by_hour") == by_hour(
        "logins", lambda fields: {"logins": len(fields), "failed": sum(not row["ok"] for row in fields)}
    )
    of = {
        kind: Counter(row.fields["item"] for row in mine if row.kind == kind) for kind in ("views", "clicks")
    }
    assert table("top_items") == sorted(
        ({"item": item, "views": of["views"][item], "clicks": of["clicks"][item]} for item in NAMES), key=repr
    )
    codes = Counter(row.fields["status"] for row in mine if row.kind == "views")
    assert table("status_codes") == sorted(
        ({"status": code, "views": n} for code, n in codes.items()), key=repr
    )
