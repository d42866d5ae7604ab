"""Renew `requirements/*.txt`: every package pinned with its hashes, layer upon layer.

`run.txt` is what the broker needs, `build.txt` what builds its wheel, `compile.txt` what compiles modules of it,
`release.txt` what makes the files of a release,
`kerberos.txt` what logins with Kerberos need (which pip-tools resolves only where MIT's headers are: libkrb5-dev),
`test.txt` adds the tests' needs, `check.txt`
the checkers', `mutation.txt` the coverage of mutation tests, `plots.txt` what draws the benchmark's plots,
`browser.txt` what drives a browser, `site.txt` what builds the site of the documentation, `spark.txt` the pipeline's,
`stores.txt` the object store of its tests. Each layer includes the one it stands on, so that one environment can hold
all of them.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVED = ("security", "pages", "registry", "console")
"""Extras that `make run` and the packages of a release have."""
BUILD_BACKEND = ["hatchling", "editables"]
LAYERS = {
    "run": None,
    "build": "run",
    "compile": "build",
    "release": "build",
    "kerberos": "run",
    "test": "build",
    "check": "test",
    "mutation": "test",
    "plots": "test",
    "browser": "test",
    "site": "test",
    "spark": "test",
    "stores": "spark",
}  # layer: the layers that it includes


def _wanted(project: dict[str, object], layer: str) -> list[str]:
    groups: dict[str, list[object]] = {
        **project["dependency-groups"],  # type: ignore[dict-item]
        **project["project"]["optional-dependencies"],  # type: ignore[index]
    }
    if layer == "run":
        extras = project["project"]["optional-dependencies"]  # type: ignore[index]
        return [*project["project"]["dependencies"], *(row for extra in SERVED for row in extras[extra])]  # type: ignore[index]
    if layer == "build":
        return BUILD_BACKEND
    own = f"{project['project']['name']}["  # type: ignore[index]

    def expand(group: str) -> list[str]:
        rows: list[str] = []
        for row in groups[group]:
            if isinstance(row, dict):
                rows += expand(row["include-group"])
            elif not str(row).startswith(own):  # another extra of ours is the layer below
                rows.append(str(row))
        return rows

    return expand(layer)


def main() -> None:
    """Write all files, or the named ones; needs pip-tools in the running interpreter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for layer, below in LAYERS.items():
        if len(sys.argv) > 1 and layer not in sys.argv[1:]:
            continue
        target = ROOT / "requirements" / f"{layer}.txt"
        source = target.with_suffix(".in")
        rows = _wanted(project, layer)
        if below is not None:
            rows.insert(0, f"-r {below}.txt")
        source.write_text("\n".join(rows) + "\n")
        options = ["--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--strip-extras"]
        options += ["--allow-unsafe", "--no-header", "--no-annotate", "--quiet", "--upgrade"]
        command = [sys.executable, "-m", "piptools", "compile", *options, "-o", target.name, source.name]
        subprocess.run(command, cwd=target.parent, check=True)
        source.unlink()
        print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
