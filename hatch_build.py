"""Build hook of the wheel: modules that run for every record become extension modules, made by mypyc of their sources.

The rule: the wheel works without them. An extension module lies beside its source, where Python's own import system
prefers it; without a C compiler or Python's headers the wheel has the sources only. `BARNABAS_COMPILED=no` leaves the
extension modules out, `BARNABAS_COMPILED=yes` fails the build if they cannot be made.

`[tool.hatch.build.targets.wheel.hooks.custom]` in pyproject.toml lists the modules. `BARNABAS_BUILD_DIR` names a directory
that keeps what mypy and the C compiler made, so that the next build repeats only what has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "BARNABAS_COMPILED"
BUILD_DIR = "BARNABAS_BUILD_DIR"
REQUIREMENTS = ["mypy>=1.14", "setuptools"]  # with mypy comes mypyc
GROUP = "barnabas"
"""All modules are compiled into one library, `barnabas__mypyc`; each extension module only opens its part of it."""
COMPILER_FLAGS = {"opt_level": "1", "debug_level": "0", "multi_file": True}
"""-O1 and a C file for each module: the code is as fast as with -O2, and is compiled in less than half of the time."""
HIDDEN = "-fvisibility=hidden"
"""No function of the library is for others: its own names are not looked up when it is loaded."""
COMPACT = "-fno-plt -freorder-blocks-algorithm=stc -freorder-blocks-and-partition"
"""What handles errors lies apart from what runs, and calls of Python go without a detour: a request runs through more code
than the processor's cache holds, so the fewer lines of that it touches the better. Costs no time to compile."""
ERROR_CHARACTERS = 4_000


def switched(value: str) -> bool | None:
    """Read the switch: whether extension modules must be made, or None if that depends on the machine."""
    value = value.strip().lower()
    if value in ("no", "0", "off", "false"):
        return False
    return True if value in ("yes", "1", "on", "true") else None


def missing() -> str:
    """Say what this machine lacks for compiling; empty if nothing."""
    if not shutil.which(os.environ.get("CC", "cc").split()[0]):
        return "there is no C compiler (Debian: apt-get install gcc)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers are missing (Debian: apt-get install python3-dev)"
    return ""


class ExtensionModules(BuildHookInterface):
    """Adds the extension modules to a wheel, and tags it for the platform then."""

    _temporary: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return what a build needs besides: nothing where it will not compile."""
        return REQUIREMENTS if self._wanted() and not missing() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel is editable: that one is the sources. Raises RuntimeError."""
        if version != "standard" or not self._wanted():
            return
        lack, files = missing(), {}
        if not lack:
            lack, files = compiled(Path(self.root), self.config["modules"], self._work())
        if lack:
            if switched(os.environ.get(SWITCH, "")):
                raise RuntimeError(f"{SWITCH} asks for extension modules, but {lack}")
            self.app.display_warning(f"the wheel is pure Python, which takes more CPU: {lack}")
            return
        build_data["force_include"].update(files)
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what is not to be kept for the next build."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _work(self) -> Path:
        if kept := os.environ.get(BUILD_DIR):
            return for_these_flags(Path(kept).absolute())
        self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-build-")
        return Path(self._temporary.name)

    def _wanted(self) -> bool:
        return switched(os.environ.get(SWITCH, "")) is not False


def for_these_flags(kept: Path) -> Path:
    """Return the directory in `kept` for what is compiled with these flags: no other's is taken for it, or touched."""
    flags = (sys.version, COMPILER_FLAGS, HIDDEN, COMPACT, os.environ.get("CC"), os.environ.get("CFLAGS"))
    return kept / hashlib.sha256(repr(flags).encode()).hexdigest()[:16]


def compiled(root: Path, modules: list[str], work: Path) -> tuple[str, dict[str, str]]:
    """Compile in `work`; returns why that failed, if it did, and the path in the wheel of each file that was made."""
    # A process of its own: mypyc ends the process at an error, and setuptools changes much in it.
    done = subprocess.run(
        [sys.executable, __file__, str(work), json.dumps(modules)],
        cwd=root / "server",
        env={
            **os.environ,
            "MYPYPATH": str(root / "server"),
            "CFLAGS": f"{os.environ.get('CFLAGS', '')} {HIDDEN} {COMPACT}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"the compilation failed:\n{(done.stdout + done.stderr)[-ERROR_CHARACTERS:]}", {}
    library = work / "lib"  # it may hold other modules too, of an earlier build
    return "", {
        file: str(Path(file).relative_to(library)) for file in json.loads(done.stdout.splitlines()[-1])
    }


def main(work: str, modules: str) -> None:
    """Compile the modules and print the paths of what was made; the working directory is the one that holds the package."""
    from mypyc.build import mypycify
    from setuptools import setup

    # The same types wherever it is built: a build environment lacks the packages that a developer's has.
    options = ["--config-file=", "--no-site-packages", "--ignore-missing-imports", f"--cache-dir={work}/mypy"]
    sources = [f"{module.replace('.', '/')}.py" for module in json.loads(modules)]
    distribution = setup(
        name=GROUP,
        ext_modules=mypycify(
            [*options, *sources], target_dir=f"{work}/c", group_name=GROUP, **COMPILER_FLAGS
        ),
        packages=[],
        script_args=["-q", "build_ext", "--build-lib", f"{work}/lib", "--build-temp", f"{work}/temp"],
    )
    print(json.dumps(distribution.get_command_obj("build_ext").get_outputs()))


if __name__ == "__main__":
    main(*sys.argv[1:])
