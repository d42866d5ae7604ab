"""Renew `requirements/*.txt`: every package pinned with its hashes, layer upon layer.

`run.txt` is what the broker needs, `test.txt` adds the tests' needs, `check.txt` the checkers'. Each layer is
constrained by the one below, so that one environment can hold all of them.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD_BACKEND = ["hatchling", "editables"]
LAYERS = ("run", "test", "check")


def _wanted(project: dict[str, object], layer: str) -> list[str]:
    groups: dict[str, list[object]] = project["dependency-groups"]  # type: ignore[assignment]
    if layer == "run":
        return [*project["project"]["dependencies"], *BUILD_BACKEND]  # type: ignore[index]

    def expand(group: str) -> list[str]:
        rows: list[str] = []
        for row in groups[group]:
            rows += expand(row["include-group"]) if isinstance(row, dict) else [str(row)]
        return rows

    return expand(layer)


def main() -> None:
    """Write the three files; needs pip-tools in the running interpreter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    below: Path | None = None
    for layer in LAYERS:
        target = ROOT / "requirements" / f"{layer}.txt"
        source = target.with_suffix(".in")
        rows = _wanted(project, layer)
        if below is not None:
            rows.insert(0, f"-r {below.name}")
        source.write_text("\n".join(rows) + "\n")
        options = ["--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--strip-extras"]
        options += ["--allow-unsafe", "--no-header", "--no-annotate", "--quiet", "--upgrade"]
        command = [sys.executable, "-m", "piptools", "compile", *options, "-o", target.name, source.name]
        subprocess.run(command, cwd=target.parent, check=True)
        source.unlink()
        below = target
        print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
