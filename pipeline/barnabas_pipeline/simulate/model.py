"""The simulated site: members with sessions, items with a quality, crawlers, spammers, services with incidents.

The rule: the facts that a job must find are decided first and written into `Truth`; events show them only through noise.

Popularity of items and activity of members follow Zipf's law, sessions arrive by the time of day, and a part of the
events is delivered late.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import cos, pi
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barnabas_pipeline.data_types import Document

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LATE_HOURS_MAX = 3.0
KINDS = ("views", "clicks", "votes", "logins", "metrics", "profiles", "logs")
SERVICES = ("frontend", "search", "feed", "votes", "login")
AGENTS = (
    "Mozilla/5.0 (X11; Linux)",
    "Mozilla/5.0 (Macintosh)",
    "Mozilla/5.0 (iPhone)",
    "Mozilla/5.0 (Windows)",
)


class Event(NamedTuple):
    """An event: its time and its delivery (both ms since 1970), its kind, its key and its fields."""

    ts: int
    delivered: int
    kind: str
    key: str
    fields: Document

    @property
    def value(self) -> bytes:
        """The JSON to send."""
        return json.dumps(self.fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Site:
    """The size and habits of the site; `events` is the approximate number of events."""

    seed: int = 1
    events: int = 20_000
    start_ms: int = 1_700_000_000_000 // HOUR_MS * HOUR_MS
    hours: float = 4.0
    members: int = 500
    items: int = 300
    crawlers: int = 5
    spammers: int = 4
    late_fraction: float = 0.02
    late_hours_max: float = LATE_HOURS_MAX
    follows_mean: int = 12


@dataclass(slots=True)
class Truth:
    """The true facts behind the events."""

    crawlers: list[str] = field(default_factory=list)
    spammers: list[str] = field(default_factory=list)
    spammed_items: list[str] = field(default_factory=list)
    quality: dict[str, float] = field(default_factory=dict)
    incidents: list[Document] = field(default_factory=list)
    follows: dict[str, list[str]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the JSON form, from which jobs read the truth for scores, and feed the followed members."""
        return json.dumps(asdict(self), sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Truth:
        """Parse the result of `to_json`."""
        return cls(**json.loads(text))


class Simulation:
    """The events of a site in the order of delivery; `truth` is known from the start."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._random = np.random.default_rng(site.seed)
        self.truth = Truth()
        self._end_ms = site.start_ms + int(site.hours * HOUR_MS)
        self._member_weights = _zipf(site.members, 0.8)
        self._item_weights = _zipf(site.items, 1.05)
        self._decide()

    def _decide(self) -> None:
        site, random = self.site, self._random
        for item in range(site.items):
            self.truth.quality[_item(item)] = round(float(random.beta(2, 6)), 4)
        self.truth.crawlers = [f"198.51.100.{n + 1}" for n in range(site.crawlers)]
        self.truth.spammers = sorted(
            _member(int(n)) for n in random.permutation(site.members)[: site.spammers]
        )
        worst = sorted(self.truth.quality, key=lambda item: (self.truth.quality[item], item))
        self.truth.spammed_items = sorted(worst[: max(1, site.spammers // 2)])
        for member in range(site.members):
            count = min(site.members - 1, int(random.poisson(site.follows_mean)))
            chosen = random.choice(site.members, count, replace=False, p=self._member_weights)
            self.truth.follows[_member(member)] = sorted(_member(int(n)) for n in chosen if n != member)
        service = SERVICES[int(random.integers(len(SERVICES)))]
        begin = site.start_ms + int(site.hours * HOUR_MS * 0.6) // 60_000 * 60_000
        self.truth.incidents = [{"service": service, "start": begin, "end": begin + 10 * 60_000}]

    def events(self) -> list[Event]:
        """Return all events by delivery time. Metrics, crawlers and spammers have a tenth of the budget each.

        A twentieth of profile views and a twentieth of log lines come in addition.
        """
        budget = self.site.events
        events: list[Event] = []
        for source, share in (
            (self._crawling(budget // 10), budget // 10),
            (self._spamming(budget // 10), budget // 10),
            (self._metrics(budget // 10), budget // 10),
            (self._sessions(), budget - 3 * (budget // 10)),
            (self._profiles(), budget // 20),
            (self._logs(), budget // 20),
        ):
            for count, event in enumerate(source):
                if count >= share:
                    break
                events.append(self._deliver(event))
        events.sort(key=lambda event: (event.delivered, event.kind, event.key, event.value))
        return events

    def _deliver(self, event: Event) -> Event:
        delay = int(self._random.exponential(300.0))
        if self._random.random() < self.site.late_fraction:
            delay = int(self._random.random() * self.site.late_hours_max * HOUR_MS)
        return event._replace(delivered=event.ts + delay)

    # --- people ---------------------------------------------------------------------------------------------

    def _sessions(self) -> Iterator[Event]:
        site, random = self.site, self._random
        number = 0
        while True:
            at = self._time_of_day()
            member = int(random.choice(site.members, p=self._member_weights))
            number += 1
            session = f"s{number}"
            ip = f"10.{member % 200}.{member // 200}.{int(random.integers(1, 4))}"
            agent = AGENTS[member % len(AGENTS)]
            if random.random() < 0.5:
                ok = bool(random.random() < 0.97)
                fields = {"ts": at, "member": _member(member), "ip": ip, "ok": ok}
                yield Event(at, at, "logins", _member(member), fields)
            for item in random.choice(
                site.items, 1 + int(random.geometric(0.2)), p=self._item_weights
            ).tolist():
                at += 500 + int(random.exponential(8_000))
                if at >= self._end_ms:
                    break
                yield from self._one_view(at, member, session, ip, agent, _item(item))

    def _one_view(
        self, at: int, member: int, session: str, ip: str, agent: str, item: str
    ) -> Iterator[Event]:
        random = self._random
        name = _member(member)
        status = 200 if random.random() < 0.99 else 404
        view = {
            "ts": at, "member": name, "session": session, "ip": ip, "item": item, "url": f"/item/{item}",
            "status": status, "took_ms": round(float(random.lognormal(3.0, 0.5)), 1), "js": True, "agent": agent,
        }  # fmt: skip
        yield Event(at, at, "views", name, view)
        quality = self.truth.quality[item]
        if random.random() < quality:
            later = at + 300 + int(random.exponential(2_000))
            yield Event(
                later, later, "clicks", name, {"ts": later, "member": name, "session": session, "item": item}
            )
        if random.random() < 0.15:
            later = at + 500 + int(random.exponential(3_000))
            vote = 1 if random.random() < 0.15 + 0.8 * min(1.0, quality * 2) else -1
            fields = {"ts": later, "member": name, "ip": ip, "item": item, "vote": vote}
            yield Event(later, later, "votes", item, fields)

    def _time_of_day(self) -> int:
        """Return a random time within the span, least likely at four in the morning, most likely twelve hours later."""
        while True:
            at = self.site.start_ms + int(self._random.random() * (self._end_ms - self.site.start_ms))
            hour = at % DAY_MS / HOUR_MS
            if self._random.random() < 0.55 - 0.45 * cos((hour - 4) / 24 * 2 * pi):
                return at

    # --- others ---------------------------------------------------------------------------------------------

    def _crawling(self, budget: int) -> Iterator[Event]:
        """Yield page views of crawlers: bursts of many pages, some of them deleted, without scripts."""
        random = self._random
        for ip in self.truth.crawlers * (1 + budget):
            at = self.site.start_ms + int(random.random() * (self._end_ms - self.site.start_ms - 120_000))
            for _ in range(int(random.integers(60, 120))):
                at += int(random.exponential(400)) + 1
                page = int(random.integers(self.site.items * 2))
                gone = page >= self.site.items
                view = {
                    "ts": at, "member": None, "session": f"c-{ip}", "ip": ip,
                    "item": None if gone else _item(page), "url": f"/item/{_item(page)}",
                    "status": 404 if gone else 200, "took_ms": round(float(random.lognormal(2.0, 0.3)), 1),
                    "js": False, "agent": "Mozilla/5.0 (compatible)",
                }  # fmt: skip
                yield Event(at, at, "views", ip, view)

    def _spamming(self, budget: int) -> Iterator[Event]:
        """Yield events of members that praise bad items, many times a minute, after guessing passwords."""
        random = self._random
        for name in self.truth.spammers * (1 + budget):
            at = self.site.start_ms + int(random.random() * (self._end_ms - self.site.start_ms - 120_000))
            ip = f"203.0.113.{self.truth.spammers.index(name) + 1}"
            for attempt in range(8):
                at += int(random.exponential(500)) + 1
                fields: Document = {"ts": at, "member": name, "ip": ip, "ok": attempt == 7}
                yield Event(at, at, "logins", name, fields)
            for _ in range(int(random.integers(25, 50))):
                at += int(random.exponential(700)) + 1
                item = self.truth.spammed_items[int(random.integers(len(self.truth.spammed_items)))]
                fields = {"ts": at, "member": name, "ip": ip, "item": item, "vote": 1}
                yield Event(at, at, "votes", item, fields)

    def _metrics(self, budget: int) -> Iterator[Event]:
        random = self._random
        hosts = 2
        step = max(1_000, int(self.site.hours * HOUR_MS * len(SERVICES) * hosts * 2 / max(budget, 1)))
        for at in range(self.site.start_ms, self._end_ms, step):
            for service in SERVICES:
                bad = any(
                    incident["service"] == service and incident["start"] <= at < incident["end"]
                    for incident in self.truth.incidents
                )
                for host in range(hosts):
                    name = f"{service}-{host}"
                    latency = round(float(random.lognormal(3.0 + 2.0 * bad, 0.25)), 2)
                    errors = round(float(random.poisson(30 if bad else 1)), 1)
                    for metric, value in (("latency_ms", latency), ("errors", errors)):
                        fields = {
                            "ts": at,
                            "service": service,
                            "host": name,
                            "metric": metric,
                            "value": value,
                        }
                        yield Event(at, at, "metrics", name, fields)

    def _profiles(self) -> Iterator[Event]:
        """Yield views of profiles, more of active members; the key is the viewed member."""
        site, random = self.site, self._random
        while True:
            at = self._time_of_day()
            member, visitor = random.choice(site.members, 2, replace=False, p=self._member_weights).tolist()
            fields = {"ts": at, "member": _member(member), "visitor": _member(visitor)}
            yield Event(at, at, "profiles", _member(member), fields)

    def _logs(self) -> Iterator[Event]:
        """Yield lines of the services' logs; half of them are of incidents, and most lines of incidents are errors."""
        site, random = self.site, self._random
        while True:
            for incident in self.truth.incidents:
                at = incident["start"] + int(random.random() * (incident["end"] - incident["start"]))
                yield self._line(at, incident["service"], "error" if random.random() < 0.9 else "warn")
            at = site.start_ms + int(random.random() * (self._end_ms - site.start_ms))
            service = SERVICES[int(random.integers(len(SERVICES)))]
            yield self._line(at, service, "warn" if random.random() < 0.05 else "info")

    def _line(self, at: int, service: str, level: str) -> Event:
        host = f"{service}-{int(self._random.integers(2))}"
        text = "no answer in time" if level == "error" else "a call was slow" if level == "warn" else "served"
        fields = {"ts": at, "service": service, "host": host, "level": level, "message": text}
        return Event(at, at, "logs", host, fields)


def _zipf(count: int, exponent: float) -> NDArray[np.float64]:
    weights = 1.0 / np.arange(1, count + 1) ** exponent
    return weights / weights.sum()


def _member(number: int) -> str:
    return f"m{number}"


def _item(number: int) -> str:
    return f"i{number}"
