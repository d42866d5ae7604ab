"""Shared parts of the gallery's Python programs: the broker's address, its control API, and the verdicts."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any, NoReturn

bootstrap = sys.argv[1]


def ask(path: str, body: Any = None) -> Any:
    """Ask the broker's control API."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["GALLERY_CONTROL"] + path, data)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def requests(api: str, **query: Any) -> list[dict[str, Any]]:
    """Return the requests that clients have sent to an API, decoded."""
    words = "".join(f"&{name}={value}" for name, value in query.items())
    recorded: list[dict[str, Any]] = ask(f"/v1/requests?api={api}&limit=10000{words}")["requests"]
    return recorded


def shown(text: str) -> NoReturn:
    """Report the bug, with an observation, and end the program."""
    _end("SHOWN", text)


def not_shown(text: str) -> NoReturn:
    """Report correct behaviour, with an observation, and end the program."""
    _end("NOT SHOWN", text)


def _end(word: str, text: str) -> NoReturn:
    print(word, " ".join(text.split()), flush=True)
    os._exit(0)  # a client with a bug may not let its process end
