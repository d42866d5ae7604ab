"""Reading what clients push: every kind of metric, every compression, and whatever else may come."""

import contextlib
from random import Random

import pytest

from barnabas.errors import RequestError
from barnabas.metrics.telemetry.elements import has_more_elements
from barnabas.metrics.telemetry.payload import (
    COUNTER,
    ELEMENTS_MAX,
    GAUGE,
    HISTOGRAM,
    LABELS_MAX,
    NAME_CHARS_MAX,
    POINTS_MAX,
    STEPS_MAX,
    SUMMARY,
    Distribution,
    Point,
    read,
)
from barnabas.records import compression
from barnabas.wire.generated.errors import ErrorCode

pytest.importorskip(
    "opentelemetry.proto.metrics.v1.metrics_pb2", reason="opentelemetry-proto is not installed"
)

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

BYTES_MAX = 1024 * 1024


def attributes(**values):
    return [KeyValue(key=key, value=AnyValue(**value)) for key, value in values.items()]


def data(*metrics, resource=()):
    scope = otlp.ScopeMetrics(metrics=metrics)
    return otlp.MetricsData(
        resource_metrics=[otlp.ResourceMetrics(resource=Resource(attributes=resource), scope_metrics=[scope])]
    ).SerializeToString()


def number(value, **labels):
    kind = "as_int" if isinstance(value, int) else "as_double"
    labels = attributes(**{key: {"string_value": text} for key, text in labels.items()})
    return otlp.NumberDataPoint(attributes=labels, **{kind: value})


SAMPLE = data(otlp.Metric(name="m", gauge=otlp.Gauge(data_points=[number(1.5, node="1")])))


def test_numbers():
    def total(monotonic, temporality):
        return otlp.Sum(data_points=[number(7)], is_monotonic=monotonic, aggregation_temporality=temporality)

    pushed = read(
        0,
        data(
            otlp.Metric(name="g", gauge=otlp.Gauge(data_points=[number(1.5, b="2", a="1"), number(3)])),
            otlp.Metric(name="delta", sum=total(True, 1)),
            otlp.Metric(name="total", sum=total(True, 2)),
            otlp.Metric(name="up and down", sum=total(False, 2)),
            otlp.Metric(name="nothing"),
            resource=attributes(group_id={"string_value": "g"}, client_rack={"string_value": "r"}),
        ),
        BYTES_MAX,
    )
    assert pushed.points == (
        Point("g", GAUGE, (("a", "1"), ("b", "2")), 1.5),
        Point("g", GAUGE, (), 3.0),
        Point("delta", COUNTER, (), 7.0, True),
        Point("total", COUNTER, (), 7.0),
        Point("up and down", GAUGE, (), 7.0),
    )
    assert pushed.resource == (("group_id", "g"), ("client_rack", "r"))


def test_distributions():
    histogram = otlp.HistogramDataPoint(count=6, sum=9.5, bucket_counts=[1, 2, 3], explicit_bounds=[1.0, 5.0])
    bare = otlp.HistogramDataPoint(count=6, sum=9.5)
    exponential = otlp.ExponentialHistogramDataPoint(count=4, sum=2.0, scale=1)
    quantile = otlp.SummaryDataPoint.ValueAtQuantile
    summary = otlp.SummaryDataPoint(
        count=2,
        sum=3.0,
        quantile_values=[quantile(quantile=0.99, value=2.0), quantile(quantile=0.5, value=1.0)],
    )
    pushed = read(
        0,
        data(
            otlp.Metric(
                name="h", histogram=otlp.Histogram(data_points=[histogram, bare], aggregation_temporality=1)
            ),
            otlp.Metric(
                name="e",
                exponential_histogram=otlp.ExponentialHistogram(
                    data_points=[exponential], aggregation_temporality=2
                ),
            ),
            otlp.Metric(name="s", summary=otlp.Summary(data_points=[summary])),
        ),
        BYTES_MAX,
    )
    assert pushed.points == (
        Point("h", HISTOGRAM, (), Distribution(6, 9.5, ((1.0, 1.0), (5.0, 3.0))), True),
        Point("h", HISTOGRAM, (), Distribution(6, 9.5), True),
        Point("e", HISTOGRAM, (), Distribution(4, 2.0)),
        Point("s", SUMMARY, (), Distribution(2, 3.0, ((0.5, 1.0), (0.99, 2.0)))),
    )


def test_attributes_of_every_type_become_words():
    several = ArrayValue(values=[AnyValue(int_value=1)])
    labels = attributes(
        text={"string_value": "a"},
        whole={"int_value": 7},
        real={"double_value": 0.5},
        flag={"bool_value": True},
        many={"array_value": several},
        nothing={},
    )
    point = otlp.NumberDataPoint(attributes=labels, as_int=1)
    (read_back,) = read(
        0, data(otlp.Metric(name="m", gauge=otlp.Gauge(data_points=[point]))), BYTES_MAX
    ).points
    words = dict(read_back.labels)
    assert "int_value: 1" in words.pop("many")
    assert words == {"text": "a", "whole": "7", "real": "0.5", "flag": "true", "nothing": ""}


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("damage", [b"\xff" * 40, SAMPLE[:-3] + b"\xff\xff\xff", b"\x0a"])
def test_what_cannot_be_read_is_an_invalid_record(codec, damage):
    for bad in (damage, compression.compress(codec, damage)):
        with pytest.raises(RequestError) as refused:
            read(codec, bad, BYTES_MAX)
        assert refused.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_push_that_grows_too_large_is_too_large(codec):
    bomb = compression.compress(codec, bytes(10 * BYTES_MAX))
    assert len(bomb) < BYTES_MAX
    with pytest.raises(RequestError) as refused:
        read(codec, bomb, BYTES_MAX)
    assert refused.value.code == ErrorCode.TELEMETRY_TOO_LARGE


def test_random_damage_is_never_worse_than_an_invalid_record():
    codes = set()
    for at in range(len(SAMPLE)):
        for value in (0, 1, 127, 128, 255):
            with contextlib.suppress(RequestError), recorded(codes):
                read(0, SAMPLE[:at] + bytes([value]) + SAMPLE[at + 1 :], BYTES_MAX)
    assert codes == {ErrorCode.INVALID_RECORD}


@contextlib.contextmanager
def recorded(codes):
    """Note the codes of the errors that come by."""
    try:
        yield
    except RequestError as error:
        codes.add(error.code)
        raise


@pytest.mark.parametrize(
    "message",
    [
        data(otlp.Metric(name="m", gauge=otlp.Gauge(data_points=[number(1)] * (POINTS_MAX + 1)))),
        data(otlp.Metric(name="m" * (NAME_CHARS_MAX + 1), gauge=otlp.Gauge(data_points=[number(1)]))),
        data(
            otlp.Metric(
                name="m", gauge=otlp.Gauge(data_points=[number(1, **{"k" * (NAME_CHARS_MAX + 1): "v"})])
            )
        ),
        data(
            otlp.Metric(
                name="m",
                gauge=otlp.Gauge(data_points=[number(1, **{f"k{n}": "v" for n in range(LABELS_MAX + 1)})]),
            )
        ),
        data(resource=attributes(**{f"k{n}": {"string_value": "v"} for n in range(LABELS_MAX + 1)})),
        b"\n\0" * (ELEMENTS_MAX + 1),
    ],
    ids=["points", "name", "label's name", "labels", "labels of the resource", "elements"],
)
def test_a_push_that_would_take_too_long_to_look_at_is_too_large(message):
    with pytest.raises(RequestError) as refused:
        read(0, message, BYTES_MAX)
    assert refused.value.code == ErrorCode.TELEMETRY_TOO_LARGE


GROUP = b"\x7b%b\x7c"
"""A field 15 of the kind `group`, which no message of OpenTelemetry has; the parser passes over it."""


def elements(message) -> int:
    """Number of elements that the parser has made."""
    count = 0
    for field, value in message.ListFields():
        values = value if field.is_repeated and field.message_type else [value]
        count += len(values)
        if field.message_type:
            count += sum(map(elements, values))
    return count


def test_parsed_payload_has_no_more_elements_than_counted():
    seed = Random().randrange(1 << 32)
    print(f"{seed = }")
    random = Random(seed)
    taken = 0
    for _ in range(1000):
        message = bytearray(random.choice((b"", GROUP % b"", GROUP % b"\x10\x01")) + SAMPLE)
        for _ in range(random.randrange(3)):
            message[random.randrange(len(message))] = random.choice((0x7B, 0x7C, random.randrange(256)))
        try:
            count = elements(otlp.MetricsData.FromString(message))
        except DecodeError:
            continue
        taken += 1
        assert has_more_elements(message, otlp.MetricsData.DESCRIPTOR, count - 1), message.hex()
    assert taken > 100


def test_distribution_with_many_buckets_is_kept_without_them():
    count = STEPS_MAX + 1
    point = otlp.HistogramDataPoint(
        count=count, sum=2.0, bucket_counts=[1] * count, explicit_bounds=range(count - 1)
    )
    message = data(otlp.Metric(name="h", histogram=otlp.Histogram(data_points=[point])))
    assert read(0, message, BYTES_MAX).points[0].value == Distribution(count, 2.0)


GROUP = b"\x7b%b\x7c"


@pytest.mark.parametrize(
    "before", [GROUP % b"", GROUP % (GROUP % b""), GROUP % b"\x0a\x01\xff", GROUP % b"\x08\x80\x01"]
)
def test_elements_after_a_group_are_counted_too(before):
    descriptor = otlp.MetricsData.DESCRIPTOR
    message = before + b"\x0a\x00" * 100
    assert len(otlp.MetricsData.FromString(message).resource_metrics) == 100
    assert has_more_elements(message, descriptor, 100)
    assert not has_more_elements(message, descriptor, 110)


@pytest.mark.parametrize("kind", [4, 6, 7])
def test_tag_of_an_impossible_kind_ends_count_and_parser(kind):
    for message in (bytes([1 << 3 | kind]), bytes([1 << 3 | kind]) + b"\x0a\x00" * 100, b"\x7b"):
        assert not has_more_elements(message, otlp.MetricsData.DESCRIPTOR, 50)
        with pytest.raises(DecodeError):
            otlp.MetricsData.FromString(message)
