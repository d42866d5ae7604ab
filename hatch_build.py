"""Build hook of the wheel: modules that run for every record become extension modules, made by mypyc of their sources.

The rule: the wheel works without them. An extension module lies beside its source, where Python's own import system
prefers it; without a C compiler or Python's headers the wheel has the sources only. `BARNABAS_COMPILED=no` leaves the
extension modules out, `BARNABAS_COMPILED=yes` fails the build if they cannot be made.

`[tool.hatch.build.targets.wheel.hooks.custom]` in pyproject.toml lists the modules. `BARNABAS_EXTENSIONS` names a directory
of extension modules that are already compiled, those of `tools/incremental.py`; the build takes them as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # a look at whether this machine can compile, before anything is installed
    BuildHookInterface = object

SWITCH = "BARNABAS_COMPILED"
EXTENSIONS = "BARNABAS_EXTENSIONS"
REQUIREMENTS = ["mypy>=2.4", "setuptools"]  # with mypy comes mypyc
GROUP = "barnabas"
"""All modules are compiled into one library, `barnabas__mypyc`; each extension module only opens its part of it. With a
library for each package mypyc calls methods by table, also of classes that have no subclass: 2 % more instructions for a
Produce, 3 % for a Heartbeat."""
OPTIONS = {"opt_level": "1", "debug_level": "0", "multi_file": True, "group_name": GROUP}
"""-O1 and a C file for each module: the code is as fast as with -O2, and is compiled in less than half of the time."""
FLAGS = "-DNDEBUG -fwrapv -fvisibility=hidden -fno-plt -freorder-blocks-algorithm=stc -freorder-blocks-and-partition"
"""Those of Python itself, which CFLAGS would replace, and ours. No function of the library is for others: its own names are
not looked up when it is loaded. What handles errors lies apart from what runs, and calls of Python go without a detour: a
request runs through more code than the processor's cache holds, so the fewer lines of that it touches the better."""
ERROR_CHARACTERS = 4_000


def switched(value: str) -> bool | None:
    """Read the switch: whether extension modules must be made, or None if that depends on the machine."""
    value = value.strip().lower()
    if value in ("no", "0", "off", "false"):
        return False
    return True if value in ("yes", "1", "on", "true") else None


def missing() -> str:
    """Say what this machine lacks for compiling; empty if nothing."""
    if sys.platform != "linux":
        return "modules are compiled on Linux only"  # flags are GCC's, the linker's are GNU's
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
        return REQUIREMENTS if self._is_wanted() and not missing() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel is editable: that one is the sources. Raises RuntimeError."""
        if version != "standard" or not self._is_wanted():
            return
        lack = missing()
        if not lack:
            library = Path(os.environ.get(EXTENSIONS) or self._temporary_directory())
            if not os.environ.get(EXTENSIONS):
                lack = compile_modules(Path(self.root), self.config["modules"], library)
        if lack:
            if switched(os.environ.get(SWITCH, "")):
                raise RuntimeError(f"{SWITCH} asks for extension modules, but {lack}")
            self.app.display_warning(f"the wheel is pure Python, which takes more CPU: {lack}")
            return
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        build_data["force_include"].update(
            {str(path): str(path.relative_to(library)) for path in sorted(library.rglob(f"*{suffix}"))}
        )
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was compiled: the wheel has it."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _temporary_directory(self) -> str:
        self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-build-")
        return self._temporary.name

    def _is_wanted(self) -> bool:
        return switched(os.environ.get(SWITCH, "")) is not False


def run_compiler(
    program: list[str], root: Path, work: Path, modules: list[str], **more: str
) -> subprocess.Popen[str]:
    """Start the program that compiles modules of `root` in `work`; its output says what it does, and what failed.

    It is a process of its own: mypyc ends the process at an error, and setuptools changes much in it.
    """
    return subprocess.Popen(
        [sys.executable, *program, str(work), json.dumps(sorted(modules))],
        cwd=root / "server",
        env={
            **os.environ,
            "MYPYPATH": str(root / "server"),
            "CFLAGS": f"{os.environ.get('CFLAGS', '')} {FLAGS} -ffile-prefix-map={work}=.",
            "PYTHONHASHSEED": "0",  # equal sources are equal files, whatever order a set has
            **more,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def compile_modules(root: Path, modules: list[str], work: Path) -> str:
    """Compile the modules into `work`, at their paths in the wheel; returns why that failed, empty if it did not."""
    with run_compiler([__file__], root, work, modules) as process:
        output, _ = process.communicate()
    return f"the compilation failed:\n{output[-ERROR_CHARACTERS:]}" if process.returncode else ""


def extensions_of(work: str, modules: str) -> list[Any]:
    """Return what mypyc makes of the modules, C files in `work`; the working directory holds the package."""
    from mypyc.build import mypycify

    # The same types wherever it is built: a build environment lacks the packages that a developer's has.
    options = ["--config-file=", "--no-site-packages", "--ignore-missing-imports", f"--cache-dir={work}/mypy"]
    sources = [f"{module.replace('.', '/')}.py" for module in json.loads(modules)]
    return mypycify([*options, *sources], target_dir=f"{work}/c", **OPTIONS)


def main(work: str, modules: str) -> None:
    """Compile the modules into `work`; the working directory holds the package."""
    from setuptools import setup

    command = ["--quiet", "build_ext", f"--build-lib={work}", f"--build-temp={work}/objects"]
    setup(
        name=GROUP,
        packages=[],
        ext_modules=extensions_of(work, modules),
        script_args=[*command, f"--parallel={os.cpu_count() or 1}"],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
