"""`python -m tools.run DIR [OPTION ...]`: serve now, with the compiled wheel in DIR if it is of the sources as they are.

The rule: a start never waits for a build. If the wheel is outdated, the broker runs the sources, and `tools.beside`
compiles them meanwhile, for the next start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hatch_build
from tools.install_wheel import ROOT, is_current

SOURCES = (ROOT / "server", ROOT / "pipeline")


def code_to_run(wheel: Path) -> tuple[Path, ...]:
    """Return the directories of the code to run; starts a compilation if the wheel is outdated and can be compiled."""
    if hatch_build.switched(os.environ.get(hatch_build.SWITCH, "")) is False:
        return SOURCES
    if is_current(ROOT, wheel):
        return (wheel,)
    if lack := hatch_build.missing():
        print(f"barnabas runs interpreted, which takes more CPU: {lack}", file=sys.stderr, flush=True)
        return SOURCES
    # Started through a shell: this process becomes the broker, which must not have an unknown child.
    command = f"'{sys.executable}' -m tools.beside {os.getpid()} &"
    subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, process_group=0, check=False)
    return SOURCES


def with_console(arguments: list[str]) -> list[str]:
    """Return the options of the broker, with the console unless they mention it (--no-console) or exclude it."""
    if any(argument.startswith(("--console", "--workers")) for argument in arguments):
        return arguments
    if "--no-console" in arguments:
        return [argument for argument in arguments if argument != "--no-console"]
    return [*arguments, "--console"]


def main(arguments: list[str]) -> None:
    """Become the broker."""
    code = code_to_run(Path(arguments[0]).absolute())
    old = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, code), *([old] if old else [])])
    os.execv(sys.executable, [sys.executable, "-m", "barnabas", "serve", *with_console(arguments[1:])])


if __name__ == "__main__":
    main(sys.argv[1:])
