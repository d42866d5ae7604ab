"""Pages name what exists: links, decisions, make targets, modules, and code in backticks."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tools import reflow

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "server" / "barnabas"
DECISIONS = ROOT / "docs" / "decisions"
# Directories whose files are ours; what tools put beside them (.venv, caches, build outputs) is not.
PARTS = (
    "bench",
    "clients",
    "codegen",
    "compat",
    "deploy",
    "docs",
    "findings",
    "pipeline",
    "server",
    "tests",
    "tools",
)
TEXT = {".md", ".py", ".sh", ".toml", ".yaml", ".go", ".java", ".js", ".rs", ".c", ".h"}
# Directories in which a page's short paths are looked up, besides the page's own.
PLACES = ("", "server/barnabas", "docs", "tests", "tests/unit", "server", "pipeline/barnabas_pipeline")

# What is named in backticks and is Kafka's, the system's or a tool's.
FOREIGN = {
    "KafkaApis", "ControllerApis", "KafkaConfig", "StandardAuthorizer", "epoll_wait", "scrape_timeout", "schemas.enable",
    "spark.read", "spark.readStream", "ErrorCode.NONE",
    # Examples of what users write, and of how programs of ours name packages and cases.
    "alice/clients/app", "10.0.0.0/8", "Class.method", "walks/*", "pipeline/lake", "pipeline/jobs/mirror", "spark.txt",
}  # fmt: skip
PIPELINE = ROOT / "pipeline" / "barnabas_pipeline"
PLACEHOLDER = re.compile(r"\b[A-Z]+\b(?!\.md)")


def files(*suffixes: str) -> Iterator[Path]:
    """Our text files, those of the top level included."""
    for part in ("", *PARTS):
        paths = (ROOT / part).rglob("*") if part else ROOT.glob("*")
        for path in paths:
            if path.suffix in suffixes and path.is_file() and not _is_foreign(path):
                yield path


def _is_foreign(path: Path) -> bool:
    """Say whether a tool has put the file there."""
    return bool({"node_modules", "target", "__pycache__", ".venv", "generated"} & set(path.parts))


def pages() -> list[Path]:
    """All pages in Markdown."""
    return sorted(files(".md"))


def named(path: Path) -> str:
    """A file as seen from the top."""
    return str(path.relative_to(ROOT))


# --- links ----------------------------------------------------------------------------------------------------


def without_code(text: str) -> str:
    """A page without its blocks of code, fenced or indented."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.M | re.S)
    text = re.sub(r"^ {4}.*$", "", text, flags=re.M)
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ +(.*?) *$", text, re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return frozenset(re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in plain)


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead to no file, or to no heading of it."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_wrong_anchor = (
            anchor and target.suffix == ".md" and target.exists() and anchor not in anchors(target)
        )
        if not target.exists() or is_wrong_anchor:
            broken.append(f"{named(page)}: {link}")
    return broken


def test_links_between_pages_lead_somewhere() -> None:
    assert [link for page in pages() for link in broken_links(page)] == []


def test_paragraphs_of_pages_are_filled() -> None:
    wide = [named(page) for page in reflow.pages() if reflow.reflowed(page.read_text()) != page.read_text()]
    assert wide == [], f"lines are wider than {reflow.WIDTH}: python -m tools.reflow"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{'a ' * 40}\nb\n", f"{'a ' * 40}\nb\n"),
        (f"{'a ' * 70}b c\nd\n", f"{'a ' * 69}a\nb c d\n"),
        (f"- {'a ' * 70}b\n- c\n", f"- {'a ' * 68}a\n  a b\n- c\n"),
        (f"{'a ' * 69}`b c`\n", f"{'a ' * 68}a\n`b c`\n"),
        (f"{'a ' * 70}- b\n", f"{'a ' * 69}a -\nb\n"),
        (f"| {'a ' * 90}|\n", f"| {'a ' * 90}|\n"),
        (f"    {'a ' * 90}\n", f"    {'a ' * 90}\n"),
        (f"```\n{'a ' * 90}\n```\n", f"```\n{'a ' * 90}\n```\n"),
    ],
)
def test_wide_paragraphs_are_filled_and_the_rest_stays(text: str, expected: str) -> None:
    assert reflow.reflowed(text) == expected


def test_site_navigation_has_each_documentation_page() -> None:
    rows = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    listed = [page for row in rows for page in (sorted((ROOT / "docs").glob(row)) or [ROOT / row])]
    missing = {ROOT / "index.md"}  # the start page is README.md
    assert {page for page in listed if not page.exists()} == missing
    assert sorted(set(listed) & set((ROOT / "docs").rglob("*.md"))) == sorted((ROOT / "docs").rglob("*.md"))
    assert len(listed) == len(set(listed))


# --- commands -------------------------------------------------------------------------------------------------


def test_make_targets_and_modules_that_pages_start_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    missing = []
    for page in pages():
        text = page.read_text()
        lines = re.findall(r"^ {4}(?:\$ )?(?:\w+=\S+ )*make ([a-z-]+)", text, re.M) + re.findall(
            r"`make ([a-z-]+)", text
        )
        missing += [f"{named(page)}: make {target}" for target in lines if target not in targets]
        modules = re.findall(r"python -m ((?:bench|compat|codegen|tools|tests)(?:\.\w+)*)", text)
        missing += [f"{named(page)}: {module}" for module in modules if not _is_module(module)]
    assert missing == []


def _is_module(name: str) -> bool:
    """Say whether `python -m` finds the module."""
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@cache
def options() -> frozenset[str]:
    """Options that one of our programs declares."""
    pattern = re.compile(r"\"(--[a-z][a-z\d-]*)\"")
    return frozenset(name for text in sources().values() for name in pattern.findall(text))


def commands(text: str) -> Iterator[str]:
    """Commands of ours in a page: lines of code, and what stands in backticks."""
    for line in re.findall(r"^ {4,}(.*)$", text, re.M) + re.findall(r"`([^`\n]+)`", text):
        started = re.search(
            r"\b(barnabas(-pipeline)? [a-z]|make [a-z]|python -m (bench|compat|tools|codegen|tests)).*", line
        )
        if started:
            yield re.split(r"\s(?:#|\||&|;|&&)\s|\s{2,}", started[0])[0]


def test_commands_are_found_in_code_and_in_backticks() -> None:
    text = '    barnabas serve --gone 1   # --not-this\n\nor `make bench ARGS="--quick"`, `kcat -b x`, make bench --x\n'
    assert list(commands(text)) == ["barnabas serve --gone 1", 'make bench ARGS="--quick"']
    assert "--gone" not in options()


def test_options_in_commands_of_pages_exist() -> None:
    unknown = [
        f"{named(page)}: {option} in {command}"
        for page in pages()
        if "conformance" not in page.parts
        for command in commands(page.read_text())
        for option in re.findall(r"(?<![\w-])--[a-z][a-z\d-]*", command)
        if option not in options()
    ]
    assert unknown == []


# --- names in backticks ---------------------------------------------------------------------------------------


def pages_about_code() -> list[Path]:
    """Pages that speak of modules, classes and functions."""
    return [
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs" / "design").glob("*.md")),
        *sorted(DECISIONS.glob("*.md")),
    ]


@cache
def sources() -> dict[Path, str]:
    """Our modules, without this one."""
    return {path: path.read_text() for path in files(".py") if path != Path(__file__)}


@cache
def words() -> frozenset[str]:
    """Every identifier in our sources, words of texts and comments included."""
    texts = [*sources().values(), (ROOT / "pyproject.toml").read_text(), (ROOT / "Makefile").read_text()]
    return frozenset(word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text))


@cache
def quoted() -> frozenset[str]:
    """Names with dots that stand in our sources as texts: settings, features, znodes, files."""
    pattern = re.compile(r"\"([a-z]+(?:[.-][a-z\d-]+)+)\"")
    return frozenset(name for text in sources().values() for name in pattern.findall(text))


@cache
def members(path: Path) -> dict[str, frozenset[str]]:
    """Names that a module defines or imports, each class with the names in its body and the attributes that it sets."""
    defined: dict[str, frozenset[str]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            inside = {
                row.name for row in ast.walk(node) if isinstance(row, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            inside |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
            inside |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            defined[node.name] = frozenset(inside)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defined.setdefault(node.name, frozenset())
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.setdefault(node.id, frozenset())
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                defined.setdefault(alias.asname or alias.name, frozenset())
    return defined


@cache
def attributes(name: str) -> frozenset[str]:
    """Names in a class, in all classes of that name together."""
    pattern = re.compile(rf"^\s*class {name}\b", re.M)
    parts = [members(path).get(name, frozenset()) for path, text in sources().items() if pattern.search(text)]
    return frozenset[str]().union(*parts)


def exists(name: str, page: Path) -> bool:
    """Say whether a name in backticks exists; True for everything that is no name of code."""
    name = re.sub(r"\(.*\)$", "", name)
    if name in FOREIGN:
        return True
    if "/" in name:
        return (
            name.startswith(".") or not re.fullmatch(r"[\w.-]+(/[\w.*-]+)+/?", name) or _is_path(name, page)
        )
    if re.fullmatch(r"[\w-]+\.(py|md|toml|yaml)", name):
        return _is_path(name, page) or _is_somewhere(name)
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
        parts = name.split(".")
        return name in quoted() or _is_in(page.parent, parts) or _is_dotted(parts)
    if re.fullmatch(r"[a-z]+(_[a-z]+)+|([A-Z][a-z]+){2,}", name):
        return name in words()
    return True


def _is_path(name: str, page: Path) -> bool:
    """Say whether the path means a file or directory, a module also without its ending."""
    if "*" in name:
        return any(True for place in PLACES for _ in (ROOT / place).glob(name.rstrip("/")))
    for place in (page.parent, *(ROOT / place for place in PLACES)):
        path = place / name
        if path.exists() or path.with_name(f"{path.name}.py").exists():
            return True
        # `cluster/metadata/ports.Coordinators` and `log/manager: delete_logs` name something in a module.
        module, _, inside = path.name.partition(".")
        if inside and (path.with_name(f"{module}.py").exists()):
            return inside in members(path.with_name(f"{module}.py"))
    return False


@cache
def _is_somewhere(name: str) -> bool:
    return any(path.name == name for path in files(Path(name).suffix))


def _is_dotted(parts: list[str]) -> bool:
    """Say whether `package.module.Class.member` exists; True where the first part is nothing of ours."""
    if parts[0][:1].isupper():
        return parts[0] not in words() or (len(parts) == 2 and parts[1] in attributes(parts[0]))
    if parts[0] == "barnabas":
        parts = parts[1:]
    tops = [
        top
        for top in (SERVER, PIPELINE, ROOT)
        if ((top / parts[0]).is_dir() and (top != ROOT or parts[0] in PARTS))
        or (top / f"{parts[0]}.py").exists()
    ]
    if tops:
        return any(_is_in(top, parts) for top in [*tops, PIPELINE])
    modules = list(SERVER.rglob(f"{parts[0]}.py"))
    return (
        not modules
        or any(_is_in(path.parent, parts) for path in modules)
        or (parts[-1].islower() and parts[-1] in words())
    )


def _is_in(place: Path, parts: list[str]) -> bool:
    """Say whether the parts lead from a directory through packages to a module, and to a name that it defines."""
    for number, part in enumerate(parts):
        rest = parts[number + 1 :]
        module = place / f"{part}.py"
        if module.exists():
            return not rest or (
                rest[0] in members(module) and (len(rest) == 1 or rest[1] in members(module)[rest[0]])
            )
        place /= part
        if not place.is_dir():
            package = place.parent / "__init__.py"
            return package.exists() and part in members(package) and len(rest) <= 1
    return True


def missing_names(page: Path) -> list[str]:
    """Names in the backticks of a page that do not exist."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.M | re.S)
    spans = sorted(set(re.findall(r"`([^`\n]+)`", text)))
    return [f"{named(page)}: {span}" for span in spans if not exists(span, page)]


@pytest.mark.parametrize("page", pages_about_code(), ids=named)
def test_names_of_code_in_pages_exist(page: Path) -> None:
    assert missing_names(page) == []


def comments_and_docstrings(source: str) -> Iterator[str]:
    """Texts of a module that a reader takes for true: comments, docstrings, texts that stand below a constant."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def missing_places(texts: Iterable[str], path: Path) -> list[str]:
    """Paths and dotted names in backticks that do not exist; a name with a word in capitals stands for many."""
    spans = {span for text in texts for span in re.findall(r"`([^`\n]+)`", text) if re.search(r"[./]", span)}
    return [
        f"{named(path)}: {span}"
        for span in sorted(spans)
        if not PLACEHOLDER.search(span) and not exists(span, path)
    ]


CODE = ("bench", "codegen", "compat", "pipeline", "server", "tools")


@pytest.mark.parametrize("part", CODE)
def test_places_named_in_comments_and_docstrings_exist(part: str) -> None:
    missing = [
        name
        for path, text in sources().items()
        if path.relative_to(ROOT).parts[0] == part
        for name in missing_places(comments_and_docstrings(text), path)
    ]
    assert missing == []


@pytest.mark.parametrize("name", ["pyproject.toml", "Makefile", "mkdocs.yml", "hatch_build.py"])
def test_places_named_in_files_of_the_build_exist(name: str) -> None:
    comments = re.findall(r"#.*", (ROOT / name).read_text())
    assert missing_places(comments, ROOT / name) == []


def test_comments_and_docstrings_are_read_other_texts_are_not() -> None:
    source = '"""Head `a.b`."""\nX = "`c.d`"  # `e.f`\n"""`g.h`"""\n'
    assert sorted(comments_and_docstrings(source)) == ["# `e.f`", "Head `a.b`.", "`g.h`"]


@pytest.mark.parametrize(
    "name",
    [
        "coordinators.Coordinator",
        "cluster.replicas.Replica.append_at_once",
        "Replica.append_at_once",
        "broker/no_such_module.py",
        "cluster/metadata/ports.NoSuchPort",
        "no_such_word_anywhere",
        "tests/unit/no_such_*.py",
        "NoSuchClassAnywhere",
    ],
)
def test_names_that_are_gone_are_noticed(name: str) -> None:
    assert not exists(name, ROOT / "ARCHITECTURE.md")


@pytest.mark.parametrize(
    "name",
    [
        "Replica.append", "cluster.replicas.replica.Replica", "cluster.replicas.replica.Replica.append",
        "broker/assembly.py",
        "cluster/metadata/ports", "log.dirs", "min.insync.replicas", "context.authorizes(operation, resource)",
        "/brokers/ids/<id>", "serve --workers N", "handlers/api_versions.py", "unit/test_docs",
    ],
)  # fmt: skip
def test_names_that_are_there_are_found(name: str) -> None:
    assert exists(name, ROOT / "ARCHITECTURE.md")


# --- words ----------------------------------------------------------------------------------------------------

DIALECT = {
    "at once": "immediately, at the same time, at a time, or synchronously",
    "lobby": "the wait set, an epoll set of idle connections",
    "tenure": "the active controller",
    "piecework": "steps",
    "usual batch": "plain batch",
}
PRINTED = {
    "gallery.md",
    "apis.md",
    "configuration.md",
    "errors.md",
    "exit-codes.md",
    "faults.md",
    "control-api.md",
}
"""Pages that are printed from tables: their words are mended there."""


def test_pages_use_the_words_of_the_field() -> None:
    own = [
        page
        for page in pages()
        if "conformance" not in page.parts
        and page.name not in PRINTED
        and page.name != "glossary.md"
        and page.name != "CHANGELOG.md"
    ]
    findings = [
        f"{named(page)}: {word!r}, say {better}"
        for page in own
        for word, better in DIALECT.items()
        if re.search(rf"\b{word}\b", " ".join(without_code(page.read_text()).split()), re.I)
    ]
    assert findings == []


# --- the changelog --------------------------------------------------------------------------------------------


def test_the_changelog_begins_with_the_version_that_is_built() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (first, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert first == version
