"""The decoder of JSON events and what all decoders share, under the names that jobs and other programs know.

The rule: nothing is decided here; `formats` has the decoders.
"""

from __future__ import annotations

from barnabas_pipeline.formats.base import (
    DECODER_VERSION,
    EXTRA,
    FUTURE_MAX_MS,
    PAST_MAX_MS,
    TIME_MAX_MS,
    TIME_MIN_MS,
    VALUE_BYTES_MAX,
    BadRecord,
    RefusedError,
)
from barnabas_pipeline.formats.json import JsonDecoder as Decoder
from barnabas_pipeline.formats.json_values import parse_object

__all__ = [
    "DECODER_VERSION",
    "EXTRA",
    "FUTURE_MAX_MS",
    "PAST_MAX_MS",
    "TIME_MAX_MS",
    "TIME_MIN_MS",
    "VALUE_BYTES_MAX",
    "BadRecord",
    "Decoder",
    "RefusedError",
    "parse_object",
]
