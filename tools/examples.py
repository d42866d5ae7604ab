"""Print the programs of `docs/examples/` into the pages that show them.

A fenced block with the title of a file there is that file. `make gen` prints the blocks, `make check` compares them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r'^```python title="(?P<path>docs/examples/\w+\.py)"\n(?:.*?\n)??```$', re.M | re.S)


def with_examples(text: str) -> str:
    """Return the text of a page, with the present source of an example in each block that names one."""
    return BLOCK.sub(lambda block: _fenced(block["path"]), text)


def _fenced(path: str) -> str:
    return f'```python title="{path}"\n{(ROOT / path).read_text()}```'


def pages() -> Iterator[tuple[Path, str]]:
    """Yield the path of each page that shows examples, and its text with their present sources."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.exists() and BLOCK.search(text := path.read_text()):
            yield path, with_examples(text)
