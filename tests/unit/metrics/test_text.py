"""Families as text: the same as prometheus-client's own text, in pieces."""

import pytest

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder

from barnabas.metrics.families import COUNTER, GAUGE, HISTOGRAM, INFO, SUMMARY, Families
from barnabas.metrics.telemetry.payload import Distribution
from barnabas.metrics.text import LINES_PER_TURN, content_type_for, render
from tests.support.systems import IS_BSD

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ODD = 'a "quoted" \\ text\nof two lines, äöü €'


def families(lines=3):
    built = Families()
    built.get("info", INFO, ODD).add(1, version="1", text=ODD)
    counter = built.get("sent", COUNTER, "Sent")
    for number in range(lines):
        counter.add(number * 1.5e9, z="last", a=number)
    gauge = built.get("now", GAUGE, "Now")
    for value in (float("inf"), float("-inf"), float("nan"), -0.25, 1e-9, 12345678.0, 3):
        gauge.add(value, shown=value)
    built.gauge("bare", "Without labels", 1)
    built.get("empty", GAUGE, "Nothing")
    steps = ((0.5, 1.0), (1.0, 2.0))
    built.get("h", HISTOGRAM, "Histogram").add(Distribution(3, 4.5, steps), node="1")
    built.get("s", SUMMARY, "Summary").add(Distribution(3, 4.5, steps), node="1")
    return built


class Collector:
    def collect(self):
        for family in families():
            metric = Metric(family.name, family.text, family.kind)
            for name, labels, value in family.samples():
                metric.add_sample(name, dict(labels), value)
            yield metric


@pytest.mark.parametrize(
    "accept", ["", "*/*", OPENMETRICS, f"{OPENMETRICS}; escaping=allow-utf-8", "text/plain; version=1.0.0"]
)
def test_the_text_is_that_of_the_library(accept):
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    encode, content_type = choose_encoder(accept)
    assert content_type_for(accept) == content_type
    text = b"".join(render(families(), content_type).pieces).decode()
    ours, _, of_process = text.partition("# HELP process_")
    end = "# EOF\n" if "openmetrics" in accept else ""
    assert ours.removesuffix(end) + end == encode(registry).decode()
    assert text.endswith(end)
    assert text.count("# EOF") == ("openmetrics" in accept)
    assert IS_BSD or "\nprocess_resident_memory_bytes " in of_process  # the library reads it in /proc


def test_text_is_made_in_pieces_and_values_are_freed():
    many = families(lines=10 * LINES_PER_TURN)
    text = render(many, content_type_for(""))
    assert len(text.pieces) > 10
    assert max(piece.count(b"\n") for piece in text.pieces) == LINES_PER_TURN
    assert not any(family.values for family in many)
