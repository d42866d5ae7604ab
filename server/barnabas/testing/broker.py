"""A broker controlled by a test: its address, its contents, recorded requests, and faults.

The rule: every method is one request of the control API, in this process or over HTTP; refused requests raise
ControlFailedError, expired timeouts TimeoutError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from barnabas.testing.records import Record, Request, to_json

TIMEOUT_S = 10.0
_NOT_IN_TIME = 408


class ControlFailedError(Exception):
    """The control API has refused a request; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Control(Protocol):
    """Access to a broker's control API from synchronous code."""

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        """Return status and JSON value of an answer."""

    def reach(self, answer: Mapping[str, Any]) -> Control:
        """Return the way to another broker, as `POST /v1/fork` and `GET /v1/cluster` describe it."""

    def close(self) -> None:
        """Release the broker."""


class KafkaBroker:
    """A broker under test. `bootstrap` is `host:port` for a client's bootstrap.servers.

    Records are given as bytes, as texts, or as mappings with `key`, `value`, `headers`, `timestamp`, `partition`.
    """

    def __init__(self, bootstrap: str, control: Control) -> None:
        self.bootstrap = bootstrap
        self.was_used = False
        """True once a test has had the broker since it was started; for the fixtures of pytest."""
        self._control = control

    def control(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send any request to the control API, as `control("POST", "/v1/faults", {...})`, and return its answer.

        Raises ControlFailedError, TimeoutError.
        """
        texts = {name: _query_text(value) for name, value in query.items() if value is not None}
        status, value = self._control.ask(method, path, texts, body)
        if status < 400:
            return value
        text = value.get("error", "") if isinstance(value, dict) else str(value)
        if status == _NOT_IN_TIME:
            raise TimeoutError(text)
        raise ControlFailedError(status, text)

    # --- topics and records ---------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        records: Iterable[Any] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a topic with settings of Kafka's and records."""
        body: dict[str, Any] = {"records": [_record(record) for record in records]}
        if partitions is not None:
            body["partitions"] = partitions
        if settings:
            body["settings"] = dict(settings)
        self.control("POST", f"/v1/topics/{quote(name, safe='')}", body)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.control("DELETE", f"/v1/topics/{quote(name, safe='')}")

    def topics(self) -> list[str]:
        """Return the names of all topics but the coordinators'."""
        return [topic["name"] for topic in self.control("GET", "/v1/topics")["topics"]]

    def topic(self, name: str) -> dict[str, Any]:
        """Return a topic's settings and the offsets of its partitions."""
        description: dict[str, Any] = self.control("GET", f"/v1/topics/{quote(name, safe='')}")
        return description

    def produce(self, topic: str, *records: Any) -> list[tuple[int, int]]:
        """Append records to a topic and return (partition, offset) of each."""
        body = {"records": [_record(record) for record in records]}
        answer = self.control("POST", f"/v1/topics/{quote(topic, safe='')}/records", body)
        return [(record["partition"], record["offset"]) for record in answer["records"]]

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int = 0,
        limit: int = 1000,
        committed: bool = True,
    ) -> list[Record]:
        """Return records of a topic as a consumer would be given them, partition by partition."""
        answer = self.control(
            "GET", f"/v1/topics/{quote(topic, safe='')}/records",
            partition=partition, offset=offset, limit=limit, committed=committed,
        )  # fmt: skip
        return [Record.of_json(record) for record in answer["records"]]

    def seed(self, seeds: Mapping[str, Any] | str | os.PathLike[str]) -> None:
        """Put topics, records, groups, ACLs, users and quotas into the broker: a mapping, or the path of a YAML file."""
        if isinstance(seeds, Mapping):
            self.control("POST", "/v1/seeds", dict(seeds))
            return
        from barnabas.tools.seeding.files import document_of

        self.control("POST", "/v1/seeds", document_of(Path(seeds)))

    # --- groups ---------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Return the ids of all groups."""
        return [group["group"] for group in self.control("GET", "/v1/groups")["groups"]]

    def group(self, group: str) -> dict[str, Any]:
        """Return a group's type, state, members, offsets and lag."""
        description: dict[str, Any] = self.control("GET", f"/v1/groups/{quote(group, safe='')}")
        return description

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets, by topic and partition."""
        return {
            (offset["topic"], offset["partition"]): offset["offset"]
            for offset in self.group(group)["offsets"]
        }

    def set_offsets(self, group: str, offsets: Mapping[str, Mapping[int, int | str]]) -> None:
        """Set a group's committed offsets: by topic and partition an offset, `earliest` or `latest`."""
        body = {topic: {str(index): offset for index, offset in of.items()} for topic, of in offsets.items()}
        self.control("PUT", f"/v1/groups/{quote(group, safe='')}/offsets", body)

    # --- waiting --------------------------------------------------------------------------------------------

    def wait_for_records(
        self,
        topic: str,
        count: int,
        *,
        partition: int | None = None,
        committed: bool = True,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """Wait until a topic has at least `count` records. Raises TimeoutError."""
        self.control(
            "GET", "/v1/wait/records",
            topic=topic, count=count, partition=partition, committed=committed, timeout_ms=_ms(timeout),
        )  # fmt: skip

    def wait_for_group(
        self, group: str, *, state: str = "Stable", members: int | None = None, timeout: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Wait until a group is in a state, with a number of members if it is set. Raises TimeoutError."""
        description: dict[str, Any] = self.control(
            "GET", "/v1/wait/group", group=group, state=state, members=members, timeout_ms=_ms(timeout)
        )
        return description

    def wait_until_read(
        self, group: str, topic: str | None = None, *, lag: int = 0, timeout: float = TIMEOUT_S
    ) -> None:
        """Wait until a group has committed all that there is. Raises TimeoutError."""
        self.control("GET", "/v1/wait/lag", group=group, topic=topic, lag=lag, timeout_ms=_ms(timeout))

    def wait_for_request(self, api: str, *, timeout: float = TIMEOUT_S, **match: Any) -> Request:
        """Wait for a request; an earlier one counts, too; `match` as in `requests`. Raises TimeoutError."""
        return Request.of_json(
            self.control("GET", "/v1/wait/request", api=api, timeout_ms=_ms(timeout), **match)
        )

    # --- recorded requests, and faults ----------------------------------------------------------------------

    def requests(self, api: str | None = None, **match: Any) -> list[Request]:
        """Return the recorded requests of clients, oldest first.

        `match`: version, client_id, topic, group, error_code, since (an id), limit.
        """
        return [
            Request.of_json(entry)
            for entry in self.control("GET", "/v1/requests", api=api, **match)["requests"]
        ]

    def forget_requests(self) -> None:
        """Forget recorded requests."""
        self.control("DELETE", "/v1/requests")

    def fault(self, rule: str | Mapping[str, Any]) -> dict[str, Any]:
        """Have the broker misbehave: `"Produce topic=t nth=3 -> error=NOT_LEADER_OR_FOLLOWER"`, or a rule as a mapping."""
        body = {"short": rule} if isinstance(rule, str) else dict(rule)
        created: dict[str, Any] = self.control("POST", "/v1/faults", body)
        return created

    def clear_faults(self) -> None:
        """Have it misbehave no longer."""
        self.control("DELETE", "/v1/faults")

    def advance_clock(self, seconds: float, *, keep_clients: bool = False) -> None:
        """Move the broker's clock ahead, by seconds: sessions, transactions, retention, offsets expire.

        With `keep_clients` the sessions of members and connections begin again. Not for `open_broker`: its clock is
        that of the test's loop.
        """
        self.control("POST", "/v1/clock/advance", {"ms": _ms(seconds), "keep_clients": keep_clients})

    def freeze_clock(self) -> None:
        """Stop the broker's clock; `advance_clock` moves it all the same."""
        self.control("POST", "/v1/clock/freeze")

    def resume_clock(self) -> None:
        """Resume the broker's clock."""
        self.control("POST", "/v1/clock/resume")

    def drive_clock(self, factor: float) -> None:
        """Run the broker's clock `factor` times as fast as real time."""
        self.control("POST", "/v1/clock/speed", {"factor": factor})

    def now_ms(self) -> int:
        """Return the broker's time, in milliseconds since 1970."""
        return int(self.control("GET", "/v1/clock")["now_ms"])

    # --- state ----------------------------------------------------------------------------------------------

    def snapshot(self, name: str, *, replace: bool = False) -> None:
        """Store the broker's contents under a name; it continues to serve."""
        self.control("POST", "/v1/snapshots", {"name": name, "replace": replace})

    def restore(self, name: str) -> None:
        """Go back to a snapshot. Connections are cut, the address stays."""
        self.control("POST", f"/v1/snapshots/{quote(name, safe='')}/restore")

    def set_baseline(self) -> None:
        """Make the broker's present contents the state that `reset` restores."""
        self.snapshot("initial", replace=True)

    def reset(self) -> None:
        """Restore the broker's initial contents; faults and recorded requests are removed, too."""
        self.control("POST", "/v1/reset")

    def fork(self, snapshot: str | None = None) -> KafkaBroker:
        """Start another broker with the same contents, or those of a snapshot; it ends with this one."""
        answer = self.control("POST", "/v1/fork", {} if snapshot is None else {"snapshot": snapshot})
        return KafkaBroker(answer["bootstrap"], self._control.reach(answer))

    def restart(self, *, down: float = 0.0) -> None:
        """Stop the broker cleanly and start it again, after `down` seconds."""
        self.control("POST", "/v1/broker/restart", {"down_ms": _ms(down)})

    def close(self) -> None:
        """End the broker, and remove its data."""
        self._control.close()

    def __enter__(self) -> KafkaBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncKafkaBroker:
    """The same broker for asynchronous tests (Trio, asyncio, AnyIO): each method of KafkaBroker, to be awaited.

    The event loop runs while a method waits, so that consumers in it are served.
    """

    def __init__(self, broker: KafkaBroker) -> None:
        self.blocking = broker

    @property
    def bootstrap(self) -> str:
        """`host:port` for a client's bootstrap.servers."""
        return self.blocking.bootstrap

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.blocking, name)

        async def call(*args: Any, **options: Any) -> Any:
            from barnabas.testing.running import in_thread

            return await in_thread(lambda: method(*args, **options))

        return call

    async def fork(self, snapshot: str | None = None) -> AsyncKafkaBroker:
        """Start another broker with the same contents, or those of a snapshot; it ends with this one."""
        from barnabas.testing.running import in_thread

        return AsyncKafkaBroker(await in_thread(lambda: self.blocking.fork(snapshot)))


def _record(record: Any) -> Any:
    if isinstance(record, Mapping):
        headers = record.get("headers")
        document = {name: to_json(value) for name, value in record.items() if name != "headers"}
        if headers is not None:
            pairs = headers.items() if isinstance(headers, Mapping) else headers
            document["headers"] = [{name: to_json(value)} for name, value in pairs]
        return document
    return {"value": to_json(record)}


def _query_text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
