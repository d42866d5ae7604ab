"""Payloads that clients push: metrics of OpenTelemetry (OTLP) as protobuf, perhaps compressed, decoded into points. Pure.

The rule: for any bytes, decoding takes no more memory than the broker allows for a push, and ends with points or with an
error that a client can act on. The protobuf library is loaded by the first push; since it
keeps the interpreter while it parses, a large message is counted before it is parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from barnabas.errors import RequestError
from barnabas.metrics.telemetry.elements import has_more_elements
from barnabas.records import compression
from barnabas.records.errors import DecompressedTooLargeError, RecordsError
from barnabas.wire.generated.errors import ErrorCode

GAUGE, COUNTER, HISTOGRAM, SUMMARY = "gauge", "counter", "histogram", "summary"

Labels = tuple[tuple[str, str], ...]
_MAGIC = 2  # metrics are compressed as records of this format are
_DELTA = 1  # AggregationTemporality of OTLP

ELEMENTS_MAX = 250_000
"""Fields of a push, nested ones included: parsing this many takes about 15 ms, whatever their kind."""
POINTS_MAX = 50_000
LABELS_MAX = 128
"""Of one point, and of the resource."""
NAME_CHARS_MAX = 1_000
"""Of the name of a metric or label."""
STEPS_MAX = 1_000
"""Buckets or quantiles; of a distribution that has more, only the count and the sum are kept."""
_COUNTED_FROM_BYTES = 2 * ELEMENTS_MAX  # an element takes two bytes at least
_VALUE_BYTES_MAX = 4_096  # of a label that is no plain value


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram or summary: how many, their sum, and (bound, count up to it) or (quantile, value), ascending."""

    count: float
    total: float
    steps: tuple[tuple[float, float], ...] = ()

    def plus(self, other: Distribution) -> Distribution:
        """Both together; with other bounds, only counts and sums are."""
        steps: tuple[tuple[float, float], ...] = ()
        if [bound for bound, _ in self.steps] == [bound for bound, _ in other.steps]:
            pairs = zip(self.steps, other.steps, strict=True)
            steps = tuple((bound, mine + theirs) for (bound, mine), (_, theirs) in pairs)
        return Distribution(self.count + other.count, self.total + other.total, steps)


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric; `delta` is the increase since the last push. `labels` are sorted by `read`."""

    name: str
    kind: str
    labels: Labels
    value: float | Distribution
    delta: bool = False


@dataclass(frozen=True, slots=True)
class Pushed:
    """Content of a push: the client's resource attributes, and its points."""

    resource: Labels
    points: tuple[Point, ...]


def read(codec: int, data: bytes, bytes_max: int) -> Pushed:
    """Read a push, up to `bytes_max` bytes of it uncompressed.

    Raises RequestError: TELEMETRY_TOO_LARGE if it is larger or exceeds one of this module's bounds, INVALID_RECORD if
    it cannot be read.
    """
    try:
        plain = compression.decompress(codec, data, magic=_MAGIC, bytes_max=bytes_max)
    except DecompressedTooLargeError as error:
        raise RequestError(ErrorCode.TELEMETRY_TOO_LARGE, error.message) from None
    except RecordsError as error:
        raise RequestError(ErrorCode.INVALID_RECORD, error.message) from None

    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    if len(plain) > _COUNTED_FROM_BYTES and has_more_elements(plain, MetricsData.DESCRIPTOR, ELEMENTS_MAX):
        raise RequestError(ErrorCode.TELEMETRY_TOO_LARGE, f"more than {ELEMENTS_MAX} elements in one push")
    try:
        message = MetricsData.FromString(plain)
    except DecodeError as error:
        raise RequestError(ErrorCode.INVALID_RECORD, f"no metrics of OpenTelemetry: {error}") from None
    labels: dict[str, str] = {}
    for of_resource in message.resource_metrics:
        labels.update(_labels(of_resource.resource.attributes))
        _check("labels of a resource", len(labels), LABELS_MAX)
    points: list[Point] = []
    for metric in _metrics(message):
        _check("characters in the name of a metric", len(metric.name), NAME_CHARS_MAX)
        for point in _points(metric):
            points.append(point)
            _check("data points", len(points), POINTS_MAX)
    return Pushed(tuple(labels.items()), tuple(points))


def _check(what: str, count: int, count_max: int) -> None:
    if count > count_max:
        raise RequestError(ErrorCode.TELEMETRY_TOO_LARGE, f"more than {count_max} {what}")


def _metrics(message: Any) -> Iterator[Any]:
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _points(metric: Any) -> Iterator[Point]:
    name, shape = metric.name, metric.WhichOneof("data")
    if shape is None:
        return
    data = getattr(metric, shape)
    delta = getattr(data, "aggregation_temporality", 0) == _DELTA
    for point in data.data_points:
        labels = tuple(sorted(_labels(point.attributes)))
        if shape == "gauge":
            yield Point(name, GAUGE, labels, _number(point))
        elif shape == "sum":
            yield Point(name, COUNTER if data.is_monotonic else GAUGE, labels, _number(point), delta)
        elif shape == "histogram":
            yield Point(name, HISTOGRAM, labels, _histogram(point), delta)
        elif shape == "exponential_histogram":
            yield Point(name, HISTOGRAM, labels, Distribution(point.count, point.sum), delta)
        else:
            steps: tuple[tuple[float, float], ...] = ()
            if len(point.quantile_values) <= STEPS_MAX:
                steps = tuple(
                    sorted((point_value.quantile, point_value.value) for point_value in point.quantile_values)
                )
            yield Point(name, SUMMARY, labels, Distribution(point.count, point.sum, steps))


def _number(point: Any) -> float:
    if point.WhichOneof("value") == "as_int":
        return float(point.as_int)
    return float(point.as_double)


def _histogram(point: Any) -> Distribution:
    if len(point.bucket_counts) != len(point.explicit_bounds) + 1 or len(point.bucket_counts) > STEPS_MAX:
        return Distribution(point.count, point.sum)
    steps, so_far = [], 0
    for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
        so_far += count
        steps.append((bound, float(so_far)))
    return Distribution(point.count, point.sum, tuple(steps))


def _labels(attributes: Any) -> Labels:
    _check("labels of a data point", len(attributes), LABELS_MAX)
    labels = []
    for attribute in attributes:
        _check("characters in the name of a label", len(attribute.key), NAME_CHARS_MAX)
        labels.append((attribute.key, _text(attribute.value)))
    return tuple(labels)


def _text(value: Any) -> str:
    """Return the text of an attribute's value; small values of other types are shown in protobuf's notation."""
    shape = value.WhichOneof("value")
    if shape is None:
        return ""
    if shape == "bool_value":
        return "true" if value.bool_value else "false"
    if shape in ("string_value", "int_value", "double_value"):
        return str(getattr(value, shape))
    if value.ByteSize() > _VALUE_BYTES_MAX:
        return f"{shape} of {value.ByteSize()} bytes"
    return str(getattr(value, shape)).strip()
