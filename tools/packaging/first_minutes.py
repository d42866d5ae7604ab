"""`python -m tools.packaging.first_minutes`: from a bare Debian to the ready line of `make run` and the first record.

The rule: the machine has only the README's requirements: Python with its venv module, and make. It is measured without a
compiler and with one; with one, the second start must run compiled code if `--compiled` waits for it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from tools.install_wheel import ROOT
from tools.packaging import roots
from tools.packaging.serving import records_through, serving
from tools.packaging.trial import COMPILER, PACKAGES

MAKE_RUN = ("make", "run", "ARGS=--listen 127.0.0.1:0 --data /home/somebody/data")
COMPILED_S = 1800
MACHINES = {"bare": False, "compiler": True}
"""Machines by name, and if they have a compiler."""


def measure(suite: str, *, has_compiler: bool, waits: bool, limit_s: float | None) -> bool:
    """Measure one machine, and print a line; returns whether the time was within the limit."""
    packages = (*PACKAGES, *(COMPILER if has_compiler else ()))
    with roots.opened(roots.base(suite, packages)) as root:
        source = root.path / "home/somebody/barnabas"
        source.mkdir()
        inner = f"git archive HEAD | tar --extract --directory '{source}'"
        subprocess.run(["sh", "-c", inner], cwd=ROOT, check=True)
        subprocess.run(["chown", "-R", "1000:1000", source], check=True)
        command = root.command(*MAKE_RUN, user="1000", cwd="/home/somebody/barnabas")
        load, begun = os.getloadavg()[0], time.monotonic()
        with serving(command) as broker:
            records_through(broker.bootstrap)
            record_s = time.monotonic() - begun
            if waits:
                while not (source / ".venv/wheel/.built-of").exists():
                    if time.monotonic() - begun > COMPILED_S:
                        raise RuntimeError(f"not compiled:\n{''.join(broker.lines)}")
                    time.sleep(1)
            compiled_s = time.monotonic() - begun
        print(
            f"{suite}, {'with' if has_compiler else 'without'} a compiler: ready after {broker.ready_s:.1f} s,"
            f" first record after {record_s:.1f} s, code={broker.code} (load average {load:.1f})"
            + (f", compiled after {compiled_s:.0f} s" if waits else ""),
            flush=True,
        )
        print("".join(f"    {line}" for line in broker.lines), end="", flush=True)
        with serving(command) as broker:
            records_through(broker.bootstrap)
        if waits and broker.code != "compiled":
            raise RuntimeError(f"the second start runs {broker.code} code")
        print(f"    the second start is ready after {broker.ready_s:.1f} s, code={broker.code}", flush=True)
        return limit_s is None or record_s <= limit_s


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.packaging.first_minutes", description=__doc__)
    parser.add_argument("--suite", default="bookworm", help="which Debian (default: bookworm)")
    parser.add_argument("--limit-s", type=float, help="fail if the first record takes longer")
    parser.add_argument("--compiled", action="store_true", help="wait until it is compiled beside, too")
    parser.add_argument(
        "--only", choices=MACHINES, help="on one of the machines: the bare one has no compiler"
    )
    options = parser.parse_args(arguments)
    if lack := roots.lack():
        print(f"SKIP: {lack}")
        return 0
    roots.enter_namespace("tools.packaging.first_minutes")
    within = [
        measure(options.suite, has_compiler=has, waits=has and options.compiled, limit_s=options.limit_s)
        for machine, has in MACHINES.items()
        if options.only in (None, machine)
    ]
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
