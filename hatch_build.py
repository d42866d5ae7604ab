"""Build hook of the wheel: modules that run for every record become extension modules, made by mypyc of their sources.

The rule: the wheel works without them. An extension module lies beside its source, where Python's own import system
prefers it; without a C compiler or Python's headers the wheel has the sources only. `BARNABAS_COMPILED=no` leaves the
extension modules out, `BARNABAS_COMPILED=yes` fails the build if they cannot be made.

`[tool.hatch.build.targets.wheel.hooks.custom]` in pyproject.toml lists the modules. `BARNABAS_BUILD_DIR` names a directory
that keeps what mypy and the C compiler made, so that the next build repeats only what has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # somebody only asks whether this machine can compile, before anything is installed
    BuildHookInterface = object

SWITCH = "BARNABAS_COMPILED"
BUILD_DIR = "BARNABAS_BUILD_DIR"
ALL_PROGRESS = "BARNABAS_ALL_PROGRESS"
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
HIDDEN = '__attribute__((visibility("hidden")))'
POINTER = "\n#define TEXT(x) #x\n#define SIZE(x) TEXT(x)\n#define POINTER SIZE(__SIZEOF_POINTER__)"
LITERAL = re.compile(r"CPyStatics\[(\d+)\]((?: \| 1)?; /\* .* \*/)$", re.MULTILINE)
DECLARED = re.compile(
    rb"^extern .*?\b(CPy(?:Def|Py|Static|Module|ImportState|InitOnly|Init|Exec)\w*)\b.*;\n", re.MULTILINE
)
STUB = """
typedef struct _object PyObject;
PyObject *Py_BuildValue(const char *, ...);
PyObject *PyImport_ImportModuleLevel(const char *, PyObject *, PyObject *, PyObject *, int);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
void *PyCapsule_GetPointer(PyObject *, const char *);
void PyErr_Clear(void);
void Py_DecRef(PyObject *);
#define Py_DECREF Py_DecRef
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define NULL ((void *)0)
"""
"""All of Python's headers that an extension module needs which only opens its part of a library: a third of their time."""
PROGRESS = "progress: "
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
    _lock: IO[str] | None = None

    def dependencies(self) -> list[str]:
        """Return what a build needs besides: nothing where it will not compile."""
        return REQUIREMENTS if self._wanted() and not missing() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel is editable: that one is the sources. Raises RuntimeError."""
        if version != "standard" or not self._wanted():
            return
        lack, files = missing(), {}
        if not lack:
            lack, files = compiled(Path(self.root), self.config["modules"], self._work(), show)
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
            work = for_these_flags(Path(kept).absolute())
            work.mkdir(parents=True, exist_ok=True)
            self._lock = (work / ".lock").open("a")
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # one at a time; until this process ends
            return work
        self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-build-")
        return Path(self._temporary.name)

    def _wanted(self) -> bool:
        return switched(os.environ.get(SWITCH, "")) is not False


def for_these_flags(kept: Path) -> Path:
    """Return the directory in `kept` for what is compiled with these flags: no other's is taken for it, or touched."""
    flags = (sys.version, OPTIONS, FLAGS, os.environ.get("CC"), os.environ.get("CFLAGS"))
    return kept / hashlib.sha256(repr(flags).encode()).hexdigest()[:16]


def compiled(
    root: Path, modules: list[str], work: Path, say: Callable[[str], None]
) -> tuple[str, dict[str, str]]:
    """Compile in `work`; returns why that failed, if it did, and the path in the wheel of each file that was made."""
    # A process of its own: mypyc ends the process at an error, and setuptools changes much in it.
    with subprocess.Popen(
        [sys.executable, __file__, str(work), json.dumps(modules)],
        cwd=root / "server",
        env={
            **os.environ,
            "MYPYPATH": str(root / "server"),
            "CFLAGS": f"{os.environ.get('CFLAGS', '')} {FLAGS} -ffile-prefix-map={work}=.",
            "PYTHONHASHSEED": "0",  # equal sources are equal files, whatever order a set has
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            if line.startswith(PROGRESS):
                say(line.removeprefix(PROGRESS).rstrip())
            else:
                lines.append(line)
    if process.returncode:
        return f"the compilation failed:\n{''.join(lines)[-ERROR_CHARACTERS:]}", {}
    files: dict[str, str] = json.loads(lines[-1])
    return "", files


def show(line: str) -> None:
    """Print a line of progress: over the last one on a terminal, and else the last one alone unless all are asked for."""
    if sys.stderr.isatty():
        print(f"\r{line}\033[K", end="\n" if line.endswith(".") else "", file=sys.stderr, flush=True)
    elif line.endswith(".") or os.environ.get(ALL_PROGRESS):
        print(line, file=sys.stderr, flush=True)


class Library:
    """What the C compiler makes, kept under names that say of what it was made: equal inputs are compiled once."""

    def __init__(self, work: Path) -> None:
        from distutils.ccompiler import new_compiler
        from distutils.sysconfig import customize_compiler

        self._compiler: Any = new_compiler()
        customize_compiler(self._compiler)
        self._work = work
        self._texts: dict[str, bytes] = {}
        self._used: set[Path] = set()
        self._headers = f"-I{sysconfig.get_path('include')}"
        self._kind = f"{STUB} {version('mypy')}"  # what stands for headers that are no input by themselves
        (work / "kept").mkdir(parents=True, exist_ok=True)

    def object(self, source: str, flags: list[str], headers: list[str]) -> Path:
        """Return the object file of a C file."""
        command = [*self._compiler.compiler_so, *flags, self._headers]
        return self._made(command, [source, *headers], ["-c", source], ".o")

    def linked(self, name: str, objects: list[Path]) -> Path:
        """Return the extension module that the objects make."""
        return self._made(
            [*self._compiler.linker_so, f"-Wl,-soname,{name}"], [], list(map(str, objects)), ".so"
        )

    def _made(self, command: list[str], inputs: list[str], arguments: list[str], suffix: str) -> Path:
        options = [word for word in command if not word.startswith("-I")]
        texts = [self._kind, *options, *(arguments if suffix == ".so" else [])]
        key = hashlib.sha256("\0".join(texts).replace(str(self._work), "").encode())
        words = (
            set(re.findall(rb"\w+", self._text(inputs[0]))) - {b"CPyStatics"} if len(inputs) > 1 else set()
        )
        for path in inputs:
            text = self._text(path)
            if path.endswith(".h"):  # it declares what is in all modules, of which this one uses little
                text = DECLARED.sub(lambda found: found[0] if found[1] in words else b"", text)
            key.update(hashlib.sha256(text).digest())
        made = self._work / "kept" / f"{key.hexdigest()[:32]}{suffix}"
        self._used.add(made)
        if not made.exists():
            new = made.with_suffix(f".new{suffix}")
            done = subprocess.run(
                [*command, *arguments, "-o", str(new)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            new.replace(made)
        return made

    def _text(self, path: str) -> bytes:
        if path not in self._texts:
            self._texts[path] = Path(path).read_bytes()
        return self._texts[path]

    def forget_others(self) -> None:
        """Remove what this build has no use for."""
        for path in set((self._work / "kept").iterdir()) - self._used:
            path.unlink()


def main(work: str, modules: str) -> None:
    """Compile the modules and print the path in the wheel of all that was made; the working directory holds the package."""
    import setuptools  # noqa: F401  it brings distutils
    from mypyc.build import mypycify

    wanted = sorted(json.loads(modules))
    print(f"{PROGRESS}compiling: types of {len(wanted)} modules", flush=True)
    # The same types wherever it is built: a build environment lacks the packages that a developer's has.
    options = ["--config-file=", "--no-site-packages", "--ignore-missing-imports", f"--cache-dir={work}/mypy"]
    sources = [f"{module.replace('.', '/')}.py" for module in wanted]
    extensions = mypycify([*options, *sources], target_dir=f"{work}/c", **OPTIONS)
    library = Library(Path(work))
    print(json.dumps(_compile(extensions, library, Path(work))))
    library.forget_others()


def name_literals(sources: list[str], named: Path) -> dict[str, str]:
    """Copy mypyc's C files with names for their literals instead of numbers; returns the path of each copy.

    They are elements of one array of the library, so a new one in one module would renumber those of all others. Where the
    names stand is said by the file that has the array.
    """
    texts = {path: Path(path).read_text() for path in sources if "/__native_" in path}
    numbers: dict[str, set[str]] = {}  # of each literal as a comment shows it; two long ones may look alike
    for text in texts.values():
        for number, shown in LITERAL.findall(text):
            numbers.setdefault(shown, set()).add(number)
    names = {
        shown: f"CPyLiteral_{hashlib.sha256(shown.encode()).hexdigest()[:16]}"
        for shown, found in sorted(numbers.items())
        if len(found) == 1
    }
    named.mkdir(exist_ok=True)
    copies = {}
    for path, text in texts.items():
        if path.endswith(f"/__native_{GROUP}.c"):
            places = [
                f'".globl {name}\\n.hidden {name}\\n.set {name}, CPyStatics + {min(numbers[shown])} * " POINTER "\\n"'
                for shown, name in names.items()
            ]
            text += "\n".join((POINTER, *(f"__asm__({place});" for place in places), ""))
        else:
            text = LITERAL.sub(lambda found: names.get(found[2], f"CPyStatics[{found[1]}]") + found[2], text)
            used = sorted(set(re.findall(r"\bCPyLiteral_\w+", text)))
            first, second, rest = text.split("\n", 2)  # its two headers
            text = "\n".join((first, second, *(f"extern PyObject *{name} {HIDDEN};" for name in used), rest))
        copies[path] = str(named / os.path.basename(path))
        Path(copies[path]).write_text(text)
    return copies


def _compile(extensions: list[Any], library: Library, work: Path) -> dict[str, str]:
    """Compile the C files of all extension modules on all cores, and link them; returns their paths in the wheel."""
    stub = work / "stub"
    stub.mkdir(exist_ok=True)
    (stub / "Python.h").write_text(STUB)
    copies = name_literals(extensions[0].sources, work / "named") if sys.platform == "linux" else {}
    jobs: dict[str, tuple[list[str], list[str]]] = {}  # what each C file is compiled with, and includes
    for extension in extensions:
        flags = [*extension.extra_compile_args, *(f"-I{path}" for path in extension.include_dirs)]
        extension.sources = [copies.get(source, source) for source in extension.sources]
        is_library = extension.name.endswith("__mypyc")
        if not is_library and not sysconfig.get_config_var("Py_GIL_DISABLED"):
            flags.append(f"-I{stub}")
        for source in extension.sources:
            jobs[source] = (flags, extension.depends if source.startswith(str(work / "named")) else [])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        objects: dict[str, Path] = {}
        # The largest first: none is left to one core at the end.
        largest = sorted(jobs, key=lambda source: -os.path.getsize(source))
        waiting = {pool.submit(library.object, source, *jobs[source]): source for source in largest}
        try:
            for done in as_completed(waiting):
                objects[waiting[done]] = done.result()
                print(f"{PROGRESS}compiling: {len(objects)} of {len(jobs)} files", flush=True)
        except SystemExit:
            pool.shutdown(cancel_futures=True)
            raise
        paths = [
            f"{one.name.replace('.', '/')}{sysconfig.get_config_var('EXT_SUFFIX')}" for one in extensions
        ]
        linked = pool.map(
            lambda one, path: library.linked(
                os.path.basename(path), [objects[source] for source in one.sources]
            ),
            extensions,
            paths,
        )
        made = {str(file): path for path, file in zip(paths, linked, strict=True)}
    print(f"{PROGRESS}compiled {len(extensions)} extension modules.", flush=True)
    return made


if __name__ == "__main__":
    main(*sys.argv[1:])
