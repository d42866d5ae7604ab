"""Records validated and converted in one go: the steps of a request, run without the event loop between them."""

from __future__ import annotations

from typing import Any

from barnabas.config.properties import parse_lines
from barnabas.records.batch import Buffer
from barnabas.records.convert import down_convert_steps
from barnabas.records.steps import run
from barnabas.records.validate import validate_steps
from barnabas.records.validated import ValidatedBatches


def validate_produce(buf: Buffer, *, first_offset: int, leader_epoch: int, **fields: Any) -> ValidatedBatches:
    """Validate the records of a partition and assign offsets, as an append does."""
    valid = run(validate_steps(buf, **fields))
    valid.place(first_offset, leader_epoch)
    return valid


def down_convert(buf: Buffer, to_magic: int, **fields: Any) -> bytes:
    """Convert records for readers of message format v0 or v1, as a fetch does."""
    return run(down_convert_steps(buf, to_magic, **fields))


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a Java properties file; the last value of a key counts."""
    return {key: value for _, key, value in parse_lines(text)}
