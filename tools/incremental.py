"""Incremental builds of extension modules for developers: an edit recompiles only the C files that it changes.

The rule: users run the plain build of `hatch_build.py`, from the same C with the same flags; the only difference is which C
files are recompiled. mypyc numbers the literals of all modules together and declares all functions in one header, so one
new literal would recompile everything: literals get names here, and the key of an object file omits declarations that its
source does not use. A full build takes 108 s of CPU, a build after an edit 20 s.
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
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hatch_build import ERROR_CHARACTERS, FLAGS, GROUP, OPTIONS, extensions_of, run_compiler

ROOT = Path(__file__).resolve().parents[1]
ALL_PROGRESS = "BARNABAS_ALL_PROGRESS"
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
"""Replaces Python.h in modules that only load their part of a library: they compile in a third of the time."""
PROGRESS = "progress: "


class CompilationError(Exception):
    """The modules cannot be compiled; the message is the compiler's."""


@contextmanager
def extension_modules(checkout: Path, cache: Path) -> Iterator[Path]:
    """Compile the modules listed in a checkout's pyproject.toml; yields the directory with them at their paths.

    `cache` keeps compiled files for the next build; its lock is held until the block ends. Raises CompilationError.
    """
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    modules = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    work = for_these_flags(cache.absolute())
    work.mkdir(parents=True, exist_ok=True)
    with (work / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with run_compiler(
            ["-m", "tools.incremental"], checkout, work, modules, PYTHONPATH=str(ROOT)
        ) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                if line.startswith(PROGRESS):
                    show(line.removeprefix(PROGRESS).rstrip())
                else:
                    lines.append(line)
        if process.returncode:
            raise CompilationError(f"the compilation failed:\n{''.join(lines)[-ERROR_CHARACTERS:]}")
        yield work / "modules"


def for_these_flags(kept: Path) -> Path:
    """Return the directory in `kept` for files compiled with these flags, separate from those of other flags."""
    flags = (sys.version, OPTIONS, FLAGS, os.environ.get("CC"), os.environ.get("CFLAGS"))
    return kept / hashlib.sha256(repr(flags).encode()).hexdigest()[:16]


def show(line: str) -> None:
    """Print progress: on a terminal over the previous line, else only final lines, unless all are requested."""
    if sys.stderr.isatty():
        print(f"\r{line}\033[K", end="\n" if line.endswith(".") else "", file=sys.stderr, flush=True)
    elif line.endswith(".") or os.environ.get(ALL_PROGRESS):
        print(line, file=sys.stderr, flush=True)


class Library:
    """Object files of the C compiler, under names made of their inputs: equal inputs are compiled once."""

    def __init__(self, work: Path) -> None:
        from distutils.ccompiler import new_compiler
        from distutils.sysconfig import customize_compiler

        self._compiler: Any = new_compiler()
        customize_compiler(self._compiler)
        self._work = work
        self._texts: dict[str, bytes] = {}
        self._used: set[Path] = set()
        self._headers = f"-I{sysconfig.get_path('include')}"
        self._kind = version("mypy")  # stands for mypyc's own headers in the keys
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
            if path.endswith(".h"):  # it declares the functions of all modules; a module uses few
                text = DECLARED.sub(lambda match: match[0] if match[1] in words else b"", text)
            key.update(hashlib.sha256(text).digest())
        result = self._work / "kept" / f"{key.hexdigest()[:32]}{suffix}"
        self._used.add(result)
        if not result.exists():
            new = result.with_suffix(f".new{suffix}")
            done = subprocess.run(
                [*command, *arguments, "-o", str(new)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            new.replace(result)
        return result

    def _text(self, path: str) -> bytes:
        if path not in self._texts:
            self._texts[path] = Path(path).read_bytes()
        return self._texts[path]

    def forget_others(self) -> None:
        """Remove files that this build does not use."""
        for path in set((self._work / "kept").iterdir()) - self._used:
            path.unlink()


def main(work: str, modules: str) -> None:
    """Compile the modules in `work`; the working directory holds the package."""
    print(f"{PROGRESS}compiling: types of {len(json.loads(modules))} modules", flush=True)
    library = Library(Path(work))
    _compile(extensions_of(work, modules), library, Path(work))
    library.forget_others()


def name_literals(sources: list[str], named: Path) -> dict[str, str]:
    """Copy mypyc's C files with names for their literals instead of numbers; returns the path of each copy.

    Literals are elements of one array of the library, so a new one in one module would renumber those of all others. The
    file with the array defines the places of the names.
    """
    texts = {path: Path(path).read_text() for path in sources if "/__native_" in path}
    numbers: dict[str, set[str]] = {}  # by the comment of each literal; two long literals may share one
    for text in texts.values():
        for number, shown in LITERAL.findall(text):
            numbers.setdefault(shown, set()).add(number)
    names = {
        shown: f"CPyLiteral_{hashlib.sha256(shown.encode()).hexdigest()[:16]}"
        for shown, literal in sorted(numbers.items())
        if len(literal) == 1
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
            text = LITERAL.sub(
                lambda literal: names.get(literal[2], f"CPyStatics[{literal[1]}]") + literal[2], text
            )
            used = sorted(set(re.findall(r"\bCPyLiteral_\w+", text)))
            first, second, rest = text.split("\n", 2)  # its two headers
            text = "\n".join((first, second, *(f"extern PyObject *{name} {HIDDEN};" for name in used), rest))
        copies[path] = str(named / os.path.basename(path))
        Path(copies[path]).write_text(text)
    return copies


def _compile(extensions: list[Any], library: Library, work: Path) -> None:
    """Compile the C files of all extension modules on all cores, and link them into `work / "modules"`."""
    copies = name_literals(extensions[0].sources, work / "named")
    jobs: dict[str, tuple[list[str], list[str]]] = {}  # flags and included headers of each C file
    for extension in extensions:
        flags = [*extension.extra_compile_args, *(f"-I{path}" for path in extension.include_dirs)]
        # mypyc lists its own headers from the second build on: each key has mypyc's version instead.
        generated = [path for path in extension.depends if os.path.basename(path).startswith("__native")]
        extension.sources = [copies.get(source, source) for source in extension.sources]
        for source in extension.sources:
            jobs[source] = (flags, generated if source.startswith(str(work / "named")) else [])
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects: dict[str, Path] = {}
        # The largest first, so that all cores are busy until the end.
        largest = sorted(jobs, key=lambda source: -os.path.getsize(source))
        waiting = {pool.submit(library.object, source, *jobs[source]): source for source in largest}
        try:
            for done in as_completed(waiting):
                objects[waiting[done]] = done.result()
                print(f"{PROGRESS}compiling: {len(objects)} of {len(jobs)} files", flush=True)
        except SystemExit:
            pool.shutdown(cancel_futures=True)
            raise
        shutil.rmtree(work / "modules", ignore_errors=True)

        def link(extension: Any) -> None:
            path = (
                work
                / "modules"
                / f"{extension.name.replace('.', '/')}{sysconfig.get_config_var('EXT_SUFFIX')}"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(library.linked(path.name, [objects[source] for source in extension.sources]), path)

        list(pool.map(link, extensions))
    print(f"{PROGRESS}compiled {len(extensions)} extension modules.", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
