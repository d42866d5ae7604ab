"""`python -m tools.accelerate [--lack]`: compile the modules named in `barnabas.compiled`, if this machine can.

The rule: the broker runs without them. Where there is no C compiler, or Python came without its headers, this says so
in a line and is content; `--lack` only says what is missing. Needs mypy and setuptools (`requirements/compile.txt`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "server"
sys.path.insert(0, str(SERVER))

from barnabas import compiled  # noqa: E402

COMPILER_FLAGS = {"opt_level": "2", "debug_level": "0"}


def missing() -> str:
    """What this machine lacks for it; empty if nothing."""
    if not shutil.which(os.environ.get("CC", "cc")):
        return "no C compiler (Debian: apt-get install gcc)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no headers of Python (Debian: apt-get install python3-dev)"
    return ""


def main(arguments: list[str]) -> int:
    """Compile, or say why not."""
    lack = missing()
    if arguments == ["--lack"]:
        print(lack)
        return 0
    if compiled.find():
        return 0
    if lack:
        print(f"the code for records runs interpreted, which takes more CPU: {lack}")
        return 0
    print("compiling the code for records to machine code (once, about 15 s)", flush=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-compile-") as work:
        done = subprocess.run(
            [sys.executable, __file__, "build", work],
            cwd=SERVER,
            env={**os.environ, compiled.SWITCH: "no", "PYTHONPATH": str(SERVER), "MYPYPATH": str(SERVER)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(
                f"that failed, so the code runs interpreted:\n{(done.stdout + done.stderr)[-2000:]}",
                file=sys.stderr,
            )
            return 1
        install(Path(work, "lib"))
    return 0


def build(work: Path) -> None:
    """Compile into `work`; the working directory is the one with the sources."""
    from mypyc.build import mypycify
    from setuptools import setup

    sources = [f"{compiled.PACKAGE.replace('.', '/')}/{module}.py" for module in compiled.MODULES]
    extensions = mypycify(
        ["--strict", *sources], target_dir=str(work / "c"), group_name="barnabas", **COMPILER_FLAGS
    )
    setup(
        name="barnabas-compiled",
        ext_modules=extensions,
        script_args=["-q", "build_ext", "--build-lib", str(work / "lib"), "--build-temp", str(work / "temp")],
    )


def install(built: Path) -> None:
    """Put the modules where the broker looks for them, the stamp last."""
    target = Path(compiled.DIRECTORY)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for library in built.rglob("*.so"):
        shutil.copy(library, target / library.name)
    (target / compiled.STAMP).write_text(compiled.stamp())


if __name__ == "__main__":
    if sys.argv[1:2] == ["build"]:
        build(Path(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
