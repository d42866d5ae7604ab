"""`python -m tools.install_wheel DIR`: keep the project's wheel installed in a directory.

The rule: the directory has the wheel of the present sources. It is rebuilt if a source was changed, added or removed since;
otherwise only names and times are compared. On PYTHONPATH, the directory precedes the checkout's sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from compileall import compile_dir
from pathlib import Path

import hatch_build
from tools.incremental import CompilationError, extension_modules

ROOT = Path(__file__).resolve().parents[1]
INPUTS = ("server", "pipeline", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
STAMP = ".built-of"
"""The file that identifies the sources of the installed wheel; it is written last."""
CACHE = "__pycache__"


class WheelError(Exception):
    """The wheel cannot be built; the message has the reason."""


def install(checkout: Path, target: Path) -> Path:
    """Bring the wheel in `target` up to date with `checkout`, and return `target`. Raises WheelError."""
    target = target.absolute()
    if is_current(checkout, target):
        return target
    now = inputs(checkout)
    target.mkdir(parents=True, exist_ok=True)
    stamp = target / STAMP
    stamp.unlink(missing_ok=True)
    work = target.with_name(f".{target.name}-new")
    shutil.rmtree(work, ignore_errors=True)  # left by an interrupted build
    unpack(build(checkout, target.with_name(f"{target.name}-build"), work), target)
    shutil.rmtree(work)
    compile_dir(target, quiet=1, workers=0)
    stamp.write_text(now)
    return target


def is_current(checkout: Path, target: Path) -> bool:
    """Return whether the wheel in `target` is of the sources of `checkout` as they are now."""
    stamp = target / STAMP
    return stamp.exists() and stamp.read_text() == inputs(checkout)


def inputs(checkout: Path) -> str:
    """Describe all that the wheel depends on: each file's name, time and size, the switch, compiler and Python."""
    lines = [sys.version, os.environ.get(hatch_build.SWITCH, ""), hatch_build.missing()]
    for path in sorted(_input_files(checkout)):
        status = path.stat()
        lines.append(f"{path.relative_to(checkout)} {status.st_mtime_ns} {status.st_size}")
    return "\n".join(lines) + "\n"


def _input_files(checkout: Path) -> Iterator[Path]:
    for name in INPUTS:
        top = checkout / name
        if top.is_file():
            yield top
        for directory, directories, files in os.walk(top):
            if CACHE in directories:
                directories.remove(CACHE)
            yield from (Path(directory, file) for file in files)


def build(checkout: Path, cache: Path, target: Path) -> Path:
    """Build the wheel of `checkout` into `target`; `cache` keeps compiled files. Raises WheelError."""
    switch = hatch_build.switched(os.environ.get(hatch_build.SWITCH, ""))
    if switch is False or hatch_build.missing():
        return _build_wheel(checkout, target)
    try:
        with extension_modules(checkout, cache) as modules:
            return _build_wheel(checkout, target, **{hatch_build.EXTENSIONS: str(modules)})
    except CompilationError as error:
        if switch:
            raise WheelError(f"{hatch_build.SWITCH} asks for extension modules, but {error}") from error
        print(f"the wheel is pure Python, which takes more CPU: {error}", file=sys.stderr)
        return _build_wheel(checkout, target, **{hatch_build.SWITCH: "no"})


def _build_wheel(checkout: Path, target: Path, **more: str) -> Path:
    command = "import sys, hatchling.build; hatchling.build.build_wheel(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", command, target], cwd=checkout, env={**os.environ, **more}, check=False
    )
    if done.returncode:
        raise WheelError(f"the wheel of {checkout} cannot be built, see above")
    (wheel,) = target.glob("*.whl")
    return wheel


def unpack(wheel: Path, target: Path) -> None:
    """Update `target` to the contents of the wheel: equal files stay, others are replaced atomically.

    So byte code of equal files stays valid, and running processes keep the library that they have open. The wheel's list
    of files is omitted: pytest would rewrite the assertions of all modules in it, as of any plugin.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith(("/", ".dist-info/RECORD"))}
        for name in names:
            path, data = target / name, archive.read(name)
            if path.exists() and path.read_bytes() == data:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.new")
            new.write_bytes(data)
            os.replace(new, path)
            for old in path.parent.glob(f"{CACHE}/{path.stem}.*.pyc"):
                old.unlink()  # it would be taken for that of another source of the same size and second
    sources = {(target / name).with_suffix("") for name in names}
    for directory, _, files in os.walk(target, topdown=False):
        for file in files:
            path = Path(directory, file)
            if path.parent.name == CACHE:
                is_used = path.parents[1] / file.partition(".")[0] in sources
            else:
                is_used = str(path.relative_to(target)) in names
            if not is_used:
                path.unlink()
        if not os.listdir(directory) and Path(directory) != target:
            os.rmdir(directory)


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.install_wheel")
    parser.add_argument("target", type=Path, metavar="DIR", help="where the wheel is installed")
    options = parser.parse_args(arguments)
    try:
        install(ROOT, options.target)
    except WheelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
