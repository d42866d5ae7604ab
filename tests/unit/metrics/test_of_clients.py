"""Metrics of clients become families: names, labels, and clients that want to pass for something else."""

from barnabas.metrics.families import COUNTER, GAUGE, HISTOGRAM, SUMMARY
from barnabas.metrics.of_clients import client_families, metric_name
from barnabas.metrics.telemetry.payload import Distribution, Point
from barnabas.metrics.telemetry.pushed import PushedMetrics

ONE, TWO = bytes(range(16)), bytes(range(1, 17))
ME = {
    "client_instance_id": "AAECAwQFBgcICQoLDA0ODw",
    "client_id": "app",
    "client_software_name": "librdkafka",
}
KAFKA = "org.apache.kafka."


def shown(*points, client=ONE, resource=(), pushed=None):
    pushed = pushed or PushedMetrics()
    pushed.take(
        client,
        {"client_id": "app", "client_software_name": "librdkafka"},
        resource,
        points,
        now_ms=1500,
        lifetime_ms=1,
    )
    return {
        (name, frozenset(labels) - set(ME.items()) - {("client_software_version", "")}): value
        for family in client_families([client.copy() for client in pushed.clients.values()])
        for name, labels, value in family.samples()
    }


def test_names_are_those_that_others_make_of_them():
    lines = shown(
        Point(KAFKA + "producer.record.send.total", COUNTER, (), 7.0),
        Point(KAFKA + "consumer.poll.idle", COUNTER, (), 8.0),
        Point(KAFKA + "producer.node.request.latency-avg", GAUGE, (("node_id", "1"),), 0.5),
    )
    assert lines["org_apache_kafka_producer_record_send_total", frozenset()] == 7
    assert lines["org_apache_kafka_consumer_poll_idle_total", frozenset()] == 8
    assert lines["org_apache_kafka_producer_node_request_latency_avg", frozenset({("node_id", "1")})] == 0.5


def test_no_client_can_pass_for_the_broker_or_for_another():
    assert metric_name("kafka.server.x") == "pushed_kafka_server_x"
    assert metric_name("process_cpu_seconds_total") == "pushed_process_cpu_seconds_total"
    assert metric_name('x"} 1\ny') == "pushed_x___1_y"
    lines = shown(
        Point(
            KAFKA + "x", GAUGE, (("client_id", "root"), ("__name__", "up"), ("1", "one"), ("", "none")), 1.0
        )
    )
    labels = {("exported_client_id", "root"), ("exported___name__", "up"), ("_1", "one"), ("_", "none")}
    assert lines["org_apache_kafka_x", frozenset(labels)] == 1


def test_a_name_that_clients_do_not_agree_on_is_told_apart():
    pushed = PushedMetrics()
    shown(Point(KAFKA + "x.total", COUNTER, (), 1.0), pushed=pushed)
    lines = shown(
        Point(KAFKA + "x.total", GAUGE, (), 2.0),
        Point(KAFKA + "x", HISTOGRAM, (), Distribution(1, 3.0)),
        client=TWO,
        pushed=pushed,
    )
    values = {name: value for (name, _), value in lines.items()}
    assert values["org_apache_kafka_x_total"] == 1
    assert values["org_apache_kafka_x_gauge"] == 2
    assert values["org_apache_kafka_x_histogram_sum"] == 3


def test_distributions():
    lines = shown(
        Point(KAFKA + "h", HISTOGRAM, (), Distribution(6, 9.5, ((1.0, 1.0), (5.0, 3.0)))),
        Point(KAFKA + "s", SUMMARY, (), Distribution(2, 3.0, ((0.5, 1.0),))),
    )
    assert {
        (name.removeprefix("org_apache_kafka_"), *(value for _, value in labels)): value
        for (name, labels), value in lines.items()
        if name.startswith("org")
    } == {
        ("h_bucket", "1.0"): 1, ("h_bucket", "5.0"): 3, ("h_bucket", "+Inf"): 6, ("h_count",): 6, ("h_sum",): 9.5,
        ("s", "0.5"): 1, ("s_count",): 2, ("s_sum",): 3,
    }  # fmt: skip
