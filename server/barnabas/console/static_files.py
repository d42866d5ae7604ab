"""Files of the page: read once, sent with their type, compressed, with a tag of their content for the browser's cache."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class StaticFile(NamedTuple):
    """A file: its type, and its bytes, plain and compressed."""

    content_type: str
    tag: str
    content: bytes
    compressed: bytes


@cache
def files() -> dict[str, StaticFile]:
    """Return all files by the path under which a browser asks for them."""
    files_by_path = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and path.suffix in _TYPES:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
            name = f"/{path.relative_to(FOLDER).as_posix()}"
            files_by_path[name] = StaticFile(
                _TYPES[path.suffix], tag, content, gzip.compress(content, 6, mtime=0)
            )
    files_by_path["/"] = files_by_path["/index.html"]
    return files_by_path
