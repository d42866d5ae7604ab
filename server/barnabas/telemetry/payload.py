"""What clients push: metrics of OpenTelemetry (OTLP) as protobuf, maybe compressed, read into points. Pure.

The rule: whatever is in the bytes, reading them takes no more memory than the broker allows for a push, and ends with
points or with an error that tells the client what to do. The protobuf library is loaded by the first push.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from barnabas.errors import RequestError
from barnabas.records import compression
from barnabas.records.errors import DecompressedTooLargeError, RecordsError
from barnabas.wire.generated.errors import ErrorCode

GAUGE, COUNTER, HISTOGRAM, SUMMARY = "gauge", "counter", "histogram", "summary"

Labels = tuple[tuple[str, str], ...]
_MAGIC = 2  # metrics are compressed as records of this format are
_DELTA = 1  # AggregationTemporality of OTLP


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
    """One value of one metric; `delta` is what came since the last push, to be added to what is known."""

    name: str
    kind: str
    labels: Labels
    value: float | Distribution
    delta: bool = False


@dataclass(frozen=True, slots=True)
class Pushed:
    """All that came with a push: what the client says of itself, and its points."""

    resource: Labels
    points: tuple[Point, ...]


def read(codec: int, data: bytes, bytes_max: int) -> Pushed:
    """Read a push, up to `bytes_max` bytes of it uncompressed.

    Raises RequestError: TELEMETRY_TOO_LARGE if it is larger, INVALID_RECORD if it cannot be read.
    """
    try:
        plain = compression.decompress(codec, data, magic=_MAGIC, bytes_max=bytes_max)
    except DecompressedTooLargeError as error:
        raise RequestError(ErrorCode.TELEMETRY_TOO_LARGE, error.message) from None
    except RecordsError as error:
        raise RequestError(ErrorCode.INVALID_RECORD, error.message) from None

    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        message = MetricsData.FromString(plain)
    except DecodeError as error:
        raise RequestError(ErrorCode.INVALID_RECORD, f"no metrics of OpenTelemetry: {error}") from None
    return Pushed(
        tuple(dict(label for one in message.resource_metrics for label in _labels(one.resource.attributes)).items()),
        tuple(
            point
            for resource in message.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in _points(metric)
        ),
    )  # fmt: skip


def _points(metric: Any) -> Iterator[Point]:
    name, shape = metric.name, metric.WhichOneof("data")
    if shape is None:
        return
    data = getattr(metric, shape)
    delta = getattr(data, "aggregation_temporality", 0) == _DELTA
    for point in data.data_points:
        labels = _labels(point.attributes)
        if shape == "gauge":
            yield Point(name, GAUGE, labels, _number(point))
        elif shape == "sum":
            yield Point(name, COUNTER if data.is_monotonic else GAUGE, labels, _number(point), delta)
        elif shape == "histogram":
            yield Point(name, HISTOGRAM, labels, _histogram(point), delta)
        elif shape == "exponential_histogram":
            yield Point(name, HISTOGRAM, labels, Distribution(point.count, point.sum), delta)
        else:
            steps = tuple(sorted((one.quantile, one.value) for one in point.quantile_values))
            yield Point(name, SUMMARY, labels, Distribution(point.count, point.sum, steps))


def _number(point: Any) -> float:
    if point.WhichOneof("value") == "as_int":
        return float(point.as_int)
    return float(point.as_double)


def _histogram(point: Any) -> Distribution:
    if len(point.bucket_counts) != len(point.explicit_bounds) + 1:
        return Distribution(point.count, point.sum)
    steps, so_far = [], 0
    for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
        so_far += count
        steps.append((bound, float(so_far)))
    return Distribution(point.count, point.sum, tuple(steps))


def _labels(attributes: Iterable[Any]) -> Labels:
    return tuple((one.key, _text(one.value)) for one in attributes)


def _text(value: Any) -> str:
    """A value of an attribute in words; what is no plain value is shown as it is written down."""
    shape = value.WhichOneof("value")
    if shape is None:
        return ""
    if shape == "bool_value":
        return "true" if value.bool_value else "false"
    if shape in ("string_value", "int_value", "double_value"):
        return str(getattr(value, shape))
    return str(getattr(value, shape)).strip()
