"""Hooks of mkdocs.yml: the site includes all files of the repository that its pages link to.

The rule: a link is a path of the repository, as its web view takes it, and leads to a page of the site. README.md is the
start page. Outside docs/, pages keep their paths, other files are shown as text, directories as lists of what is in them.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\s\">]+)")
"""An address of another host from which a browser loads a part of a page."""
BEFORE_MKDOCS = 5
"""Priority of a tree processor: after the links of a page are found (20), before MkDocs checks them (0)."""

log = get_plugin_logger("site")


def target_of(link: str, page: Path) -> Path | None:
    """Return the file or directory of the repository that a page's link leads to; None for any other link."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path:
        return None
    path = Path(os.path.normpath(page.parent / parts.path))
    return path if path.exists() and path.is_relative_to(ROOT) else None


def source_of(path: Path) -> str:
    """Return the path of a file or directory of the repository among the sources of the site."""
    path = page_in(path) or path
    if path == ROOT / "README.md":
        return "index.md"
    within = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()
    if path.is_dir():
        return posixpath.normpath(f"{within}/index.md")
    return within if path.suffix == ".md" or path.is_relative_to(DOCS) else f"{within}.md"


def linked_from(pages: list[Path]) -> Iterator[Path]:
    """Yield pages, and the files and directories that they link to, recursively."""
    seen, pending = set(pages), list(pages)
    while pending:
        path = pending.pop()
        yield path
        page = page_in(path)
        if page is None:
            continue
        targets = {target_of(link, page) for link in LINK.findall(page.read_text())}
        new = {path for path in targets if path} - seen
        seen |= new
        pending += sorted(new)


def page_in(path: Path) -> Path | None:
    """Return the page that a file is, or that a directory has; None where there is none."""
    page = path / "README.md" if path.is_dir() else path
    return page if page.suffix == ".md" and page.exists() else None


def text_of(path: Path) -> str:
    """Return the page that shows a file's text, or a directory's contents."""
    title = f"# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        names = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
        return title + "".join(f"- `{name}`\n" for name in names if not name.startswith((".", "__")))
    return f"{title}`````{path.suffix[1:]}\n{path.read_text().rstrip()}\n`````\n"


class Links(Treeprocessor):
    """Converts the links of a page to links among the sources of the site, which MkDocs then checks."""

    page = ROOT / "README.md"
    """The page that is rendered."""
    source = "index.md"

    def run(self, root: Element) -> None:
        """Change the links below an element, and bars of code in tables, which are shown without their backslash."""
        for element in root.iter():
            if element.tag in ("td", "th"):
                for code in element.iter("code"):
                    code.text = AtomicString((code.text or "").replace("\\|", "|"))
            key = {"a": "href", "img": "src"}.get(element.tag)
            link = element.get(key, "") if key else ""
            path = target_of(link, self.page)
            if key and path:
                to = posixpath.relpath(source_of(path), posixpath.dirname(self.source) or ".")
                fragment = urlsplit(link).fragment
                element.set(key, f"{to}#{fragment}" if fragment else to)


class LinksExtension(Extension):
    """Makes Links a part of each page's rendering."""

    def __init__(self) -> None:
        super().__init__()
        self.links = Links()

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Markdown's name)
        """Register the tree processor."""
        md.treeprocessors.register(self.links, "repository", BEFORE_MKDOCS)


links = LinksExtension()


# --- hooks of MkDocs --------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> None:
    """Register for rendering, and expand patterns in the navigation."""
    config.markdown_extensions.append(links)
    config.nav = _expanded(config.nav)


def _expanded(nav: Any) -> Any:
    """Return a part of the navigation with the pages that its patterns mean."""
    if isinstance(nav, dict):
        return {title: _expanded(part) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    rows: list[Any] = []
    for row in nav:
        is_pattern = isinstance(row, str) and "*" in row
        rows += sorted(source_of(path) for path in DOCS.glob(row)) if is_pattern else [_expanded(row)]
    return rows


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the start page, and files outside docs/ that are linked, or in the navigation."""
    named = _named(config.nav)
    outside = [ROOT / source for source in sorted(named) if (ROOT / source).exists()]
    for path in linked_from([ROOT / "README.md", *outside, *sorted(DOCS.rglob("*.md"))]):
        source = source_of(path)
        if files.get_file_from_path(source) is None:
            page = page_in(path)
            file = (
                File.generated(config, source, abs_src_path=str(page))
                if page
                else File.generated(config, source, content=text_of(path))
            )
            if source not in named:
                file.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(file)


def _named(nav: Any) -> set[str]:
    """Sources that the navigation names."""
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav or []
    return {source for part in parts for source in _named(part)}


BOOSTS = {
    "index.md": 4.0,
    "tutorial.md": 4.0,
    "how-to/": 4.0,
    "reference/": 2.0,
    "design/": 0.8,
    "decisions/": 0.2,
    "compat/": 0.2,
}
"""Weights in the search by the beginnings of pages' paths: a search is mostly for a way to do something."""
SESSION = re.compile(r'<div class="[^"]*highlight[^"]*">(.*?)</div>', re.DOTALL)
PROMPT = "$ "


def commands_of(block: str) -> str:
    """Return the commands in a block of HTML, without prompts and output; empty if the block is not a session."""
    lines = unescape(re.sub(r"<[^>]+>", "", block)).splitlines()
    return "\n".join(line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT))


def on_page_content(html: str, **_: object) -> str:
    """Have the copy button of a session take its commands alone."""

    def marked(match: re.Match[str]) -> str:
        commands = commands_of(match[1])
        return match[0].replace("<div ", f'<div data-copy="{escape(commands)}" ', 1) if commands else match[0]

    return SESSION.sub(marked, html)


def on_page_markdown(_text: str, *, page: Page, **_: object) -> None:
    """Note the page that is rendered next, and weigh it for the search."""
    boosts = [boost for beginning, boost in BOOSTS.items() if page.file.src_uri.startswith(beginning)]
    page.meta.setdefault("search", {}).setdefault("boost", boosts[0] if boosts else 0.5)
    links.links.source = page.file.src_uri
    path = page.file.abs_src_path
    links.links.page = Path(path) if path else ROOT / page.file.src_uri


def on_post_build(config: MkDocsConfig) -> None:
    """Warn about pages that load files from other hosts; a warning fails a strict build."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        for address in LOADED.findall(page.read_text()):
            log.warning(f"{page.relative_to(config.site_dir)} loads {address}")
