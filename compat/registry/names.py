"""Parts that all programs in Python here share: names of the cases, schemas, and the records that are written and read.

The rule: standard library only, since this runs inside each client's own environment.
"""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from harness import SkipCaseError

CASES = (
    "avro",
    "json",
    "protobuf",
    "evolution",
    "refusal",
    "references",
    "administration",
    "interop",
)
SCHEMAS = Path(__file__).resolve().parent / "schemas"
COUNT = 20
"""Records of a topic."""
EXTENSIONS = {"avro": "avsc", "json": "json", "protobuf": "proto"}


def text_of(name: str) -> str:
    """The text of a schema."""
    return (SCHEMAS / name).read_text(encoding="utf-8")


def users(first: int = 0) -> list[dict[str, Any]]:
    """The values that each client writes."""
    return [{"name": f"user {number}", "age": number} for number in range(first, first + COUNT)]


def bootstrap() -> str:
    """The broker that keeps the registry."""
    return os.environ["COMPAT_BOOTSTRAP"]


def written_by_others(formats: tuple[str, ...]) -> list[tuple[str, str]]:
    """Topics and formats that other clients have written. Raises SkipCaseError where there is none."""
    text = os.environ.get("COMPAT_TOPICS", "")
    pairs = [tuple(pair.split(":")) for pair in text.split(",") if pair]
    chosen = [(topic, form) for topic, form in pairs if form in formats]
    if not chosen:
        raise SkipCaseError("no other client has written what this one reads")
    return chosen


def ask(url: str, path: str, body: object = None) -> Any:
    """Ask a registry over REST, for clients that bring no client of registries. Raises HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=30) as answer:
        return json.load(answer)
