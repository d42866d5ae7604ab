"""`python -m tools.picture`: run the session of the README with kcat, and draw its output into docs/session.svg.

The rule: only the commands in the picture are written by hand.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from barnabas.testing.running import import_path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "session.svg"
READY = "barnabas is ready"
COMMANDS = (
    "printf 'castle:a message from Klamm\\nvillage:another one\\n' | kcat -b localhost:9092 -P -t greetings -K: -z zstd",
    "kcat -b localhost:9092 -C -t greetings -e -q -f '%p@%o %k: %s\\n'",
    "kcat -b localhost:9092 -G readers -X auto.offset.reset=earliest -c 2 -q greetings",
    "kcat -b localhost:9092 -L -t greetings",
)
LINE_PX, CHAR_PX, MARGIN_PX = 19, 8.2, 18
INK, DIM, PAPER, PROMPT = "#e6e1d6", "#8f8a80", "#1d1f21", "#9ccf8a"


def session() -> list[tuple[str, str]]:
    """Return the session's lines with colours. Needs kcat, and a free port 9092."""
    lines: list[tuple[str, str]] = []
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with tempfile.TemporaryDirectory(prefix="barnabas-") as data:
        command = [sys.executable, "-m", "barnabas", "serve", "--data", data]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as broker:
            assert broker.stdout is not None
            ready = broker.stdout.readline().rstrip()
            if READY not in ready:
                sys.exit(f"the broker does not start: {ready}")
            lines += [(f'$ make run ARGS="--data {data}"', PROMPT), (ready, INK), ("", INK)]
            try:
                for shell in COMMANDS:
                    lines.append((f"$ {shell}", PROMPT))
                    done = subprocess.run(
                        ["bash", "-c", shell], capture_output=True, text=True, check=True, timeout=30
                    )
                    lines += [(line, INK) for line in done.stdout.splitlines()]
                    lines += [(line, DIM) for line in done.stderr.splitlines() if not line.startswith("%6")]
            finally:
                broker.terminate()
    return lines


def drawing(lines: list[tuple[str, str]]) -> str:
    """Return the lines of a session as an SVG document."""
    width = round(max(len(text) for text, _ in lines) * CHAR_PX + 2 * MARGIN_PX)
    height = len(lines) * LINE_PX + 2 * MARGIN_PX
    rows = [
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + LINE_PX * number + 14}" fill="{colour}">{escape(text)}</text>'
        for number, (text, colour) in enumerate(lines)
        if text
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="13.5" '
        'font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" xml:space="preserve">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n' + "\n".join(rows) + "\n</svg>\n"
    )


if __name__ == "__main__":
    TARGET.write_text(drawing(session()))
    print(f"{shlex.quote(str(TARGET.relative_to(ROOT)))} written")
