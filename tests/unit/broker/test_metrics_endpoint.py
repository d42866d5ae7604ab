"""The metrics endpoint over real sockets: what it shows, and what readers can do wrong."""

import logging
import re
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from barnabas.broker.controller_node import controller
from barnabas.broker.startup import StartupError
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.metrics.text import Text
from barnabas.tools.localcluster.quorum import Node, prepare, settings_of_node
from barnabas.tools.logtool.storage_command import format_node
from tests.support.brokers import serving
from tests.support.systems import IS_BSD

pytest.importorskip("h11", reason="h11 is not installed")

from barnabas.broker import metrics_endpoint

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")


def with_metrics(directory, listener="127.0.0.1:0"):
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": listener}
    return BrokerConfig({"log.dirs": str(directory / "logs"), **settings})


@asynccontextmanager
async def running(directory):
    async with serving(with_metrics(directory)) as broker:
        yield broker


async def exchange(broker, request):
    """Send bytes and the end of them, and read until the endpoint closes."""
    host, port = broker.metrics_address.url.removeprefix("http://").removesuffix("/metrics").split(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        await stream.send_all(request)
        await stream.send_eof()
        return b"".join([chunk async for chunk in stream])


def get(target="/metrics", method="GET", **headers):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode()


def parsed(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), answer
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parser.text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


async def test_the_broker_is_shown_under_the_names_that_people_know(tmp_path):
    async with running(tmp_path) as broker:
        await broker.services.topic_creation.ensure("castle")
        values = parsed(await exchange(broker, get()))
    assert values["kafka_server_replicamanager_partitioncount",] == 1
    assert values["kafka_server_replicamanager_leadercount",] == 1
    assert values["kafka_controller_kafkacontroller_offlinepartitionscount",] == 0
    assert values["kafka_log_log_size", "0", "castle"] == 0
    assert values["kafka_server_brokertopicmetrics_bytesin_total", "castle"] == 0
    assert values["kafka_server_socket_server_metrics_connection_count", "PLAINTEXT"] == 0
    assert values["kafka_server_group_coordinator_metrics_group_count", "consumer"] == 0
    if IS_BSD:  # `prometheus-client` reads /proc
        assert not any(name.startswith("process_") for name, *_ in values)
    else:
        assert values["process_resident_memory_bytes",] > 1_000_000


def documented(name: str, rows: list[list[str]]) -> bool:
    """Return whether a row of docs/metrics.md has the metric, by its name or as `..._end` in its family."""
    family = name.split("_")[:2]
    return any(
        name == cell
        or (cell.startswith("...") and name.endswith(cell[3:]) and family == row[0].split("_")[:2])
        for row in rows
        for cell in row
    )


def undocumented(names):
    page = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
    rows = [re.findall(r"`([\w.]+)`", line) for line in page.splitlines() if re.match(r"\| `\w+", line)]
    return {re.sub(r"_(created|count|sum)$", "", name) for name in names if not documented(name, rows)}


async def test_every_metric_of_the_broker_is_in_its_page(tmp_path):
    async with running(tmp_path) as broker:
        await broker.services.topic_creation.ensure("castle")
        names = {name for name, *_ in parsed(await exchange(broker, get()))}
    assert len(names) > 40
    assert undocumented(names) == set()


@asynccontextmanager
async def voting(directory, listeners):
    """A node that is a quorum by itself: a controller, and a broker if it has listeners for clients."""
    quorum = prepare(directory, [1])
    shared = {"metrics.listener": "127.0.0.1:0", "offsets.topic.replication.factor": "1"}
    texts = settings_of_node(quorum, Node(1, (str(directory / "logs"),), listeners), shared)
    config = BrokerConfig(texts)
    format_node(config, quorum.cluster_id)
    async with AsyncExitStack() as stack:
        if listeners:
            yield await stack.enter_async_context(serving(config))
            return
        node = await stack.enter_async_context(controller(config, real_environment()))
        nursery = await stack.enter_async_context(trio.open_nursery())
        await nursery.start(node.serve)
        with trio.fail_after(60):
            while not node.voter.image.controllers:  # it registers with itself
                await trio.sleep(0.01)
        yield node
        node.stop()


@pytest.mark.parametrize("listeners", [(), ("PLAINTEXT://127.0.0.1:0",)], ids=["controller", "combined"])
async def test_controller_is_shown_alone_and_with_a_broker(tmp_path, listeners):
    async with voting(tmp_path, listeners) as node:
        if listeners:
            await node.services.topic_creation.ensure("castle")
        values = parsed(await exchange(node, get()))
    assert undocumented(name for name, *_ in values) == set()
    brokers = len(listeners)
    expected = {
        "activecontrollercount": 1, "activebrokercount": brokers, "fencedbrokercount": 0, "globaltopiccount": brokers,
        "globalpartitioncount": brokers, "offlinepartitionscount": 0, "preferredreplicaimbalancecount": 0,
        "metadataerrorcount": 0, "lastappliedrecordlagms": 0, "newactivecontrollerscount": 1,
        "timedoutbrokerheartbeatcount": 0,
    }  # fmt: skip
    of_cluster = "kafka_controller_kafkacontroller_"
    assert {name: values[of_cluster + name,] for name in expected} == expected
    raft = "kafka_server_raft_metrics_"
    end_offset = values[f"{raft}log_end_offset",]
    assert values[f"{raft}current_state", "leader"] == values[f"{raft}number_of_voters",] == 1
    assert values[f"{raft}current_leader",] == values[f"{raft}current_vote",] == 1
    assert values[f"{raft}high_watermark",] == values[f"{of_cluster}lastcommittedrecordoffset",] + 1
    assert 0 < values[f"{raft}append_records_total",] <= end_offset
    assert values[f"{raft}commit_latency_ms_count",] > 0
    if listeners:
        assert values[f"{of_cluster}brokerregistrationstate", "1"] == 30


async def test_both_formats_are_served(tmp_path):
    async with running(tmp_path) as broker:
        plain = await exchange(broker, get())
        assert b"Content-Type: text/plain; version=0.0.4" in plain
        openmetrics = await exchange(broker, get(Accept="application/openmetrics-text; version=1.0.0"))
        assert b"Content-Type: application/openmetrics-text; version=1.0.0" in openmetrics
        assert openmetrics.endswith(b"# EOF\n")
        other = await exchange(broker, get(User_Agent="application/openmetrics-text; version=1.0.0"))
        assert b"Content-Type: text/plain; version=0.0.4" in other
        several = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n"
        several += b"Accept: application/openmetrics-text; version=1.0.0\r\n\r\n"
        assert b"Content-Type: application/openmetrics-text" in await exchange(broker, several)


async def test_other_requests_are_told_what_to_do(tmp_path):
    async with running(tmp_path) as broker:
        assert (await exchange(broker, get("/"))).startswith(b"HTTP/1.1 404")
        assert (await exchange(broker, get(method="POST", Content_Length="3") + b"abc")).startswith(
            b"HTTP/1.1 405"
        )
        head = await exchange(broker, get(method="HEAD"))
        assert head.startswith(b"HTTP/1.1 200")
        assert head.endswith(b"\r\n\r\n")
        assert (await exchange(broker, get("/metrics?x=1"))).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01" * 9 + b"\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_http_is_refused(tmp_path, garbage, caplog):
    async with running(tmp_path) as broker:
        assert (await exchange(broker, garbage)).startswith(b"HTTP/1.1 400")
        assert (await exchange(broker, b"GET /met")).startswith(b"HTTP/1.1 400")
        assert (await exchange(broker, b"GET /" + b"x" * 17_000)).startswith(b"HTTP/1.1 431")
        assert parsed(await exchange(broker, get()))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost:9404", True),
        ("127.0.0.1:9404", True),
        ("[::1]", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1:1@evil.example", False),
        ("[", False),
    ],
)
async def test_web_page_that_resolves_to_this_machine_is_not_answered(tmp_path, host, is_local):
    request = get().replace(b"localhost", host.encode())
    async with running(tmp_path) as broker:
        status = (await exchange(broker, request)).split()[1]
        assert (await exchange(broker, get(Origin="http://evil.example"))).split()[1] == b"403"
    assert status == (b"200" if is_local else b"403")


async def test_address_open_to_others_is_asked_by_any_name(tmp_path):
    async with serving(with_metrics(tmp_path, "0.0.0.0:0")) as broker:
        stream = await trio.open_tcp_stream("127.0.0.1", broker.metrics_address.sockets[0].getsockname()[1])
        async with stream:
            await stream.send_all(get().replace(b"localhost", b"broker-1.monitoring"))
            assert parsed(await answered(stream))


async def test_a_connection_can_be_used_again(tmp_path):
    async with running(tmp_path) as broker:
        both = await exchange(broker, get() + get())
        assert both.count(b"HTTP/1.1 200") == 2


async def connected(broker):
    host, port = broker.metrics_address.url.removeprefix("http://").removesuffix("/metrics").split(":")
    return await trio.open_tcp_stream(host, int(port))


async def answered(stream):
    """Read one answer to its end, so that nothing of it is left for the next reader; return it."""
    answer = b""
    while True:
        chunk = await stream.receive_some()
        assert chunk, f"closed after {answer!r}"
        answer += chunk
        head, end, body = answer.partition(b"\r\n\r\n")
        if end and len(body) == int(dict(re.findall(rb"([^:\r\n]+): ([^\r\n]*)", head))[b"Content-Length"]):
            return answer


async def closed(stream):
    """Wait until the endpoint has closed the connection; whether it has answered before."""
    try:
        return b"".join([chunk async for chunk in stream]) != b""
    except trio.BrokenResourceError:
        return False


@pytest.mark.parametrize("sent", [b"", b"GET /met", get()], ids=["nothing", "half a head", "one request"])
async def test_hanging_readers_yield_to_new_ones_longest_idle_first(tmp_path, sent):
    async with running(tmp_path) as broker, AsyncExitStack() as streams:
        idle = []
        for _ in range(metrics_endpoint.CONNECTIONS_MAX):
            idle.append(await streams.enter_async_context(await connected(broker)))
            await idle[-1].send_all(sent)
            if sent == get():
                await idle[-1].receive_some(1)
            await trio.testing.wait_all_tasks_blocked()
        for stream in idle[:8]:
            assert parsed(await exchange(broker, get()))
            await streams.enter_async_context(await connected(broker))
            await closed(stream)
        await idle[-1].send_all(get())
        assert await idle[-1].receive_some(1)


async def test_a_request_must_arrive_in_time(tmp_path, mock_clock):
    async with running(tmp_path) as broker, AsyncExitStack() as streams:
        silent, slow, again = [await streams.enter_async_context(await connected(broker)) for _ in range(3)]
        await slow.send_all(b"GET /metrics HTTP/1.1\r\n")
        await again.send_all(get())
        assert parsed(await answered(again))  # accepted last: the other two are waited for by now
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(metrics_endpoint.HEAD_SECONDS_MAX)
        assert not await closed(silent)
        assert not await closed(slow)
        await again.send_all(get())  # a connection that has been used may be idle for longer
        assert parsed(await answered(again))
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(metrics_endpoint.IDLE_SECONDS_MAX)
        assert not await closed(again)


async def test_an_answer_must_be_read_in_time(tmp_path, mock_clock, monkeypatch):
    async with running(tmp_path) as broker:
        piece = b"x" * 1024 * 1024

        async def large(accept):
            return Text("text/plain", (piece,) * 64)

        monkeypatch.setattr(broker.metrics._exposition, "text", large)
        reader = await connected(broker)
        await reader.send_all(get())
        await reader.receive_some(1)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(metrics_endpoint.ANSWER_SECONDS_MAX)
        await trio.testing.wait_all_tasks_blocked()
        size = 0
        with suppress(trio.BrokenResourceError):
            async for chunk in reader:
                size += len(chunk)
        assert size < 64 * len(piece)
        await reader.aclose()


@pytest.mark.parametrize("listener", ["nonsense", "127.0.0.1", "127.0.0.1:99999", "no.such.host.invalid:0"])
async def test_an_address_that_cannot_be_is_explained(tmp_path, listener):
    with pytest.raises(StartupError, match=r"metrics\.listener"):
        async with serving(with_metrics(tmp_path, listener)):
            pass
