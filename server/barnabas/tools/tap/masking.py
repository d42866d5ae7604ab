"""Frames with overwritten secrets, for files that users share. Pure.

The rule: a masked frame has the size of the original, so that a capture remains valid; if that is impossible, its whole
body is overwritten.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from barnabas.tools.inspection.messages import SECRETS, is_secret_setting
from barnabas.tools.tap.cutting import Data
from barnabas.tools.tap.exchange import Exchange
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError, EncodeError
from barnabas.wire.headers import parse_response_header

FILLER = b"*"
_ALTER_CONFIGS, _CREATE_TOPICS, _SASL_AUTHENTICATE, _CREATE_TOKEN, _RENEW_TOKEN, _EXPIRE_TOKEN, _DESCRIBE_TOKENS = (
    33, 19, 36, 38, 39, 40, 41,
)  # fmt: skip
_INCREMENTAL_ALTER_CONFIGS, _ALTER_SCRAM = 44, 51
WITH_SECRETS = frozenset(
    (
        _ALTER_CONFIGS, _SASL_AUTHENTICATE, _CREATE_TOKEN, _RENEW_TOKEN, _EXPIRE_TOKEN, _DESCRIBE_TOKENS,
        _INCREMENTAL_ALTER_CONFIGS, _ALTER_SCRAM,
    )
)  # fmt: skip
"""The APIs with requests or answers that can hold secrets."""


def masked(exchange: Exchange, frame: Data, *, from_client: bool) -> Data:
    """Return a frame, without its size field, with its secrets overwritten."""
    if exchange.is_bare_token:
        return FILLER * len(frame)
    key = exchange.request.api_key
    if key not in WITH_SECRETS:
        return frame
    version = exchange.request.version
    position = exchange.request.body_position
    try:
        if from_client:
            codec = registry.request_codec(key)
        else:
            codec = registry.response_codec(key)
            _, position = parse_response_header(frame, key, version)
        message = codec.decode_whole(frame, version, position)
        _overwrite(message)
        body = codec.encode_bytes(message, version)
    except (DecodeError, EncodeError, UnicodeDecodeError):
        body = b""
    if len(body) != len(frame) - position:
        body = FILLER * (len(frame) - position)
    return bytes(frame[:position]) + body


def _overwrite(message: Any) -> None:
    is_secret = is_secret_setting(getattr(message, "name", ""))
    for field in fields(message):
        name = field.name
        value = getattr(message, name)
        if isinstance(value, list):
            for item in value:
                if is_dataclass(item):
                    _overwrite(item)
        elif is_dataclass(value):
            _overwrite(value)
        elif value and (name in SECRETS or (is_secret and name == "value")):
            filled = FILLER * len(value.encode() if isinstance(value, str) else value)
            setattr(message, name, filled.decode() if isinstance(value, str) else filled)
