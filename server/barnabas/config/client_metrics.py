"""The settings of a subscription to clients' metrics (KIP-714), with Kafka's names and defaults. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.config.setting import Setting, SettingError
from barnabas.errors import RequestError
from barnabas.patterns import PatternError
from barnabas.patterns.java import java_pattern
from barnabas.wire.generated.errors import ErrorCode

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
MATCH_KEYS = frozenset((
    "client_id", "client_instance_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
))  # fmt: skip

# fmt: off
ROWS: tuple[Setting[Any], ...] = tuple(Setting.of_row(row) for row in (
    ("interval.ms", "int", "300000", "", "medium", "cluster", "",
     "How often clients are to push their metrics."),
    ("match", "list", "", "", "medium", "cluster", "",
     "Which clients are asked, as key=pattern; all when empty."),
    ("metrics", "list", "", "", "medium", "cluster", "",
     "Prefixes of the metrics that are asked for; * for all."),
))
# fmt: on
SETTINGS: dict[str, Setting[Any]] = {row.name: row for row in ROWS}


def check(own: Mapping[str, str]) -> None:
    """Check that a subscription may have these settings.

    Raises SettingError for a value of the wrong kind, RequestError(INVALID_REQUEST) for all else, as Kafka does.
    """
    for name, text in own.items():
        row = SETTINGS.get(name)
        if row is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"unknown setting of client metrics {name!r}")
        value = row.parse(text)
        if name == "interval.ms" and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"{name}={text}: from {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX} expected",
            )
        if name == "match":
            for item in value:
                parse_match(item)


def parse_match(item: str) -> tuple[str, Any]:
    """Return the key and the compiled pattern of `key=pattern`, for a `fullmatch`. Raises SettingError.

    A pattern has Java's syntax, as in Kafka; features that RE2 lacks, such as back references, are refused.
    """
    parts = item.split("=")
    while parts and not parts[-1]:
        parts.pop()  # as Java splits
    key = parts[0].strip() if parts else ""
    if len(parts) != 2 or key not in MATCH_KEYS:
        raise SettingError(f"match={item}: one of {', '.join(sorted(MATCH_KEYS))} with =pattern expected")
    try:
        return key, java_pattern(parts[1].strip())
    except PatternError as error:
        raise SettingError(f"match={item}: no regular expression: {error.reason}") from None
