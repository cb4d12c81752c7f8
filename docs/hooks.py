"""What the site takes from outside docs/, and what it lists by itself, so that neither can go out of date."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "examples" / "third_party_method"
#: File of the repository -> page of the site.
TAKEN_IN = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md",
            "examples/third_party_method": "example-method.md"}  # fmt: skip
LIST_OF_ERRORS = "<!-- every error -->"
LINK = re.compile(r"\[([^\]\n]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)\s*?$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Give every error page its place under Errors."""
    (errors,) = (section["Errors"] for section in config["nav"] if "Errors" in section)
    for entry in errors:
        if "By code" in entry:
            entry["By code"] = [f"errors/{page.name}" for page in _error_pages()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are kept elsewhere in the repository."""
    for name in ("ARCHITECTURE.md", "CHANGELOG.md"):
        text = _within((ROOT / name).read_text(), ROOT, DOCS)
        files.append(File.generated(config, TAKEN_IN[name], content=text))
    files.append(File.generated(config, "example-method.md", content=_example()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the list of errors, and turn links that leave docs/ to what the site has of it."""
    here = (DOCS / page.file.src_uri).parent
    if page.file.generated_by is None:
        markdown = _within(markdown, here, here)
    return markdown.replace(LIST_OF_ERRORS, _errors())


def _error_pages() -> list[Path]:
    return sorted((DOCS / "errors").glob("*.md"))


def _errors() -> str:
    """A table of codes with the first paragraph of their pages."""
    rows = ["| error | |", "|---|---|"]
    for page in _error_pages():
        what = " ".join(page.read_text().split("\n\n")[1].split()).replace("|", r"\|")
        what = LINK.sub(r"\1", what)
        rows.append(f"| [{page.stem}](errors/{page.name}) | {what} |")
    return "\n".join(rows)


def _example() -> str:
    """The whole of the example package: its readme, then every file."""
    parts = ["# A package with a method of its own", (EXAMPLE / "README.md").read_text().split("\n", 1)[1].strip()]
    for path in sorted(EXAMPLE.rglob("*")):
        kind = {".py": "python", ".toml": "toml"}.get(path.suffix)
        if kind and "__pycache__" not in path.parts:
            parts.append(f"`{path.relative_to(EXAMPLE)}`\n\n```{kind}\n{path.read_text().strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _within(markdown: str, base: Path, here: Path) -> str:
    """The text with links of a file in `base` as a page in `here` must write them; code is left alone.

    A link to a file the site does not have becomes its words.
    """

    def turned(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        path = (base / target).resolve()
        page = TAKEN_IN.get(path.relative_to(ROOT).as_posix()) if path.is_relative_to(ROOT) else None
        if page is not None:
            path = DOCS / page
        elif not path.is_relative_to(DOCS):
            return words
        elif path == DOCS / "errors":
            path = DOCS / "errors.md"
        return f"[{words}]({Path(os.path.relpath(path, here)).as_posix()}{anchor})"

    parts = FENCED.split(markdown)
    return "".join(part if i % 2 else LINK.sub(turned, part) for i, part in enumerate(parts))
