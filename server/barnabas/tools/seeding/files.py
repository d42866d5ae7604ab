"""Seed files: YAML that describes a broker's initial content.

The rule: every error is one line with file and line number. The YAML parser is imported only if there is a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.tools.seeding.seeds import SeedError, Seeds, topic_of_option


def seeds_of_file(path: Path) -> Seeds:
    """Return the seeds in a file. Raises SeedError."""
    from barnabas.tools.seeding.reading import read_seeds

    value, lines = _loaded(path)
    return read_seeds(value, lines, str(path))


def seeds_of_options(topics: Sequence[str], file: str | None) -> Seeds:
    """Return the seeds of `--topic` and `--seed-file` together. Raises SeedError."""
    seeds = Seeds(topics=tuple(map(topic_of_option, topics)))
    return seeds if file is None else seeds_of_file(Path(file)) + seeds


def document_of(path: Path) -> Any:
    """Return a file as plain values, for the control API. Raises SeedError, also for a file that cannot be planted."""
    from barnabas.tools.seeding.reading import read_seeds

    value, lines = _loaded(path)
    read_seeds(value, lines, str(path))
    return _as_json(value) or {}


def _loaded(path: Path) -> tuple[Any, dict[tuple[str | int, ...], int]]:
    from barnabas.tools import marked_yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SeedError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise SeedError(f"{path}:{line}: this is not UTF-8", line) from error
    try:
        return marked_yaml.load(text)
    except marked_yaml.YamlError as error:
        raise SeedError(f"{path}:{error.line}: {error.text}", error.line) from error


def _as_json(value: Any) -> Any:
    """Write dates as texts and keys as texts."""
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value
