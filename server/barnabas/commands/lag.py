"""`barnabas lag`: the lag of groups, as a table or as metrics for Prometheus, printed once or served.

The rule: names of metrics are those of kafka_exporter, so that dashboards for it show them.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import click

from barnabas.client import ClientError, Endpoint
from barnabas.client import admin as administration
from barnabas.client.sockets import finished
from barnabas.commands.completing import group_names
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.groups import LAGS, lag_rows
from barnabas.commands.lagging import GroupLag, lags_of
from barnabas.commands.output import Table
from barnabas.commands.session import Session, asking, matching, regex
from barnabas.ending import end_signals
from barnabas.environment.terminal import visible_lines

GROUPS = Table(
    "groups",
    {
        "group": "group id",
        "kind": "classic, consumer, share or streams",
        "state": "state, as Kafka names it",
        "members": "number of members",
        "lag": "sum of the lags that are known",
        "error": "error; null for success",
    },
)


def _address(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`. Raises click.BadParameter."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)


@click.command("lag")
@click.argument("names", nargs=-1, shell_complete=group_names)
@regex
@click.option("--partitions", is_flag=True, help="Also the lag of each partition.")
@click.option("--metrics", is_flag=True, help="As text for Prometheus.")
@click.option(
    "--listen", type=_address, metavar="HOST:PORT", help="Serve the metrics here, measured at each request."
)
@asking(GROUPS, LAGS)
async def COMMAND(  # noqa: N802
    session: Session,
    names: tuple[str, ...],
    regex: bool,
    partitions: bool,
    metrics: bool,
    listen: tuple[str, int] | None,
) -> None:
    """Show how far groups are behind: all, or these."""
    if listen is not None and not metrics:
        raise click.UsageError("--listen goes with --metrics")
    if metrics:
        session.output.as_json = False
        await _tell_metrics(session, names, listen, is_regex=regex)
        return
    lags = await _measure(session, names, is_regex=regex)
    session.output.show(GROUPS, [_row(lag) for lag in lags.values()])
    if partitions or session.output.as_json:
        session.output.show(LAGS, lag_rows(lags.values()))


async def _tell_metrics(
    session: Session, names: tuple[str, ...], listen: tuple[str, int] | None, *, is_regex: bool
) -> None:
    """Print metrics, or serve them where an address is given."""
    if listen is not None:
        await _serve(session, names, listen, is_regex=is_regex)
        return
    from prometheus_client.exposition import generate_latest

    text = generate_latest(_Lags(await _measure(session, names, is_regex=is_regex))).decode()
    print(visible_lines(text) if sys.stdout.isatty() else text, end="")


async def _measure(session: Session, names: tuple[str, ...], *, is_regex: bool) -> dict[str, GroupLag]:
    """Measure lags. Raises CommandError for a missing group, ClientError for brokers that do not answer."""
    groups, failures = await session.admin.list_groups()
    if failures:
        raise next(iter(failures.values()))
    shown = matching(groups, names, is_regex=is_regex) if names else list(groups)
    missing = [name for name in shown if name not in groups]
    if missing:
        raise CommandError(
            f"there is no group {', '.join(missing)}; `barnabas groups list` shows what there is"
        )
    return await lags_of(session.admin, {name: groups[name] for name in shown})


def _row(lag: GroupLag) -> dict[str, Any]:
    info = lag.info
    row: dict[str, Any] = {"group": lag.listed.group_id, "kind": lag.listed.kind, "lag": lag.total}
    if isinstance(info, ClientError):
        return {**row, "error": name_of(info)}
    return {**row, "state": info.state, "members": len(info.members)}


async def _serve(
    session: Session, names: tuple[str, ...], listen: tuple[str, int], *, is_regex: bool
) -> None:
    """Serve metrics until a signal. Raises CommandError if the address cannot be used."""
    from prometheus_client.exposition import start_http_server

    turn = threading.Lock()

    class Collector:
        """Metrics of this moment, for the threads that answer."""

        def collect(self) -> Iterator[Any]:
            """Measure and yield them; a failure is an answer with status 500."""
            with turn:
                lags = finished(_measure(session, names, is_regex=is_regex))
            yield from families(lags)

    host, port = listen
    try:
        server, thread = start_http_server(port, host, registry=Collector())
    except OSError as error:
        raise CommandError(f"cannot listen on {Endpoint(host, port)}: {error.strerror}") from None
    ended = threading.Event()
    handlers = {number: signal.signal(number, lambda *_: ended.set()) for number in end_signals()}
    try:
        print(f"barnabas lag is ready: http://{Endpoint(host, server.server_port)}/metrics", flush=True)
        ended.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    server.shutdown()
    server.server_close()
    thread.join()


class _Lags:
    """Metrics that were measured."""

    def __init__(self, lags: dict[str, GroupLag]) -> None:
        self._lags = lags

    def collect(self) -> Iterable[Any]:
        """Return the families."""
        return families(self._lags)


def families(lags: dict[str, GroupLag]) -> list[Any]:
    """Return lags as families of prometheus_client."""
    from prometheus_client.core import GaugeMetricFamily

    of_partition = ["consumergroup", "topic", "partition"]
    current = GaugeMetricFamily(
        "kafka_consumergroup_current_offset", "Offset that the group has committed", labels=of_partition
    )
    lag = GaugeMetricFamily(
        "kafka_consumergroup_lag", "Records that the group is behind", labels=of_partition
    )
    end = GaugeMetricFamily(
        "kafka_topic_partition_current_offset", "Offset after the last record", labels=["topic", "partition"]
    )
    members = GaugeMetricFamily(
        "kafka_consumergroup_members", "Members of the group", labels=["consumergroup"]
    )
    ends: dict[tuple[str, int], int] = {}
    for name, group_lag in lags.items():
        if isinstance(group_lag.info, administration.GroupInfo):
            members.add_metric([name], len(group_lag.info.members))
        for row in group_lag.partitions:
            labels = [name, row.topic, str(row.partition)]
            if row.committed is not None:
                current.add_metric(labels, row.committed)
            if row.lag is not None:
                lag.add_metric(labels, row.lag)
            if row.latest is not None:
                ends[row.topic, row.partition] = row.latest
    for (topic, partition), offset in ends.items():
        end.add_metric([topic, str(partition)], offset)
    return [current, lag, end, members]
