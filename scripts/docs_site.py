"""Build the documentation site in out/site with MkDocs (mkdocs.yml), from pages that this lays out in out/docs.

Pages stay where GitHub shows them; here their links are changed to where the site has the target:

- README.md is the start page; CONTRIBUTING.md, SECURITY.md and CHANGELOG.md lie beside the pages of docs/;
- a file of the checkout that a page links to (dockerfiles/gate.toml) becomes a page of its own with its text, and a
  folder a page with its files, in files/;
- a link whose text is the path of a page gets the title of that page;
- reference.md is written from the command line itself.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOTS = {"README.md": "index.md", "docs/matrix.md": "matrix-table.md"}  # matrix.html is the page to click through
BESIDE = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash", ".yml": "yaml", ".yaml": "yaml", ".json": "json"}
LANGUAGES |= {
    ".sbatch": "bash",
    ".tf": "hcl",
    ".txt": "text",
}  # shown as pages; other files, such as pictures, are copied
FENCE = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
DELIMITER = re.compile(r"\|?(\s*:?-+:?\s*\|)+(\s*:?-+:?)?")  # the second row of a table
LINK = re.compile(r"(\[[^\]]*\])\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")  # its text, its target, the anchor there
# A pipe in code in a table: GitHub wants it escaped, MkDocs does not.
ESCAPED = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
ELSEWHERE = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\s\"'>]+")
BUILD = [".docs/bin/mkdocs", "build", "--strict"]  # never --quiet: it hides warnings from --strict, too
HEADER = "<h1>trainwright: the matrix</h1>"
HOME = '<h1><a href="index.html">trainwright</a>: the matrix</h1>'
STYLE = """/* Tables of options and versions are wide: they use the page, and no name in them is broken. */
.md-grid { max-width: 72rem; }
.md-typeset table:not([class]) { font-size: .7rem; }
.md-typeset table:not([class]) :is(td, th) { padding: .5em .8em; min-width: 0; }
.md-typeset table:not([class]) code { word-break: normal; overflow-wrap: normal; }
.md-typeset table:not([class]):has(th:nth-child(8)) td:first-child code { white-space: nowrap; } /* ids */
"""


class Site:
    """The files of the site, by their path in it, and the files of the checkout that are to become pages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = dict[str, str]()
        self.copies = dict[str, Path]()
        self._left = list[Path]()
        self._seen = set[Path]()

    def place(self, path: Path) -> str:
        """Return where the site has a file or folder of the checkout, and note that it is needed."""
        name = path.relative_to(self.root).as_posix()
        if path not in self._seen:
            self._seen.add(path)
            self._left.append(path)
        if name in ROOTS or name in BESIDE:
            return ROOTS.get(name, name)
        if path.parent == self.root / "docs" and path.suffix == ".md":
            return path.name
        if path.is_dir():
            return f"files/{name}/index.md"
        if path.suffix in LANGUAGES:
            return f"files/{name}.md"
        return f"files/{name}" if path.suffix == ".md" else name.removeprefix("docs/")

    def lay_out(self) -> None:
        """Lay out every page of docs/ and the root, and what they link to, directly or not."""
        for name in ("README.md", *BESIDE, "docs/matrix.html"):
            self.place(self.root / name)
        for path in sorted((self.root / "docs").glob("*.md")):
            self.place(path)
        while self._left:
            path = self._left.pop(0)
            place = self.place(path)
            if path.is_dir():
                self.files[place] = self._folder(path, place)
            elif path.suffix == ".md":
                self.files[place] = self._page(path, place)
            elif path.name == "matrix.html":
                self.files[place] = path.read_text().replace(HEADER, HOME)
            elif path.suffix in LANGUAGES:
                self.files[place] = shown(path, self.root)
            else:
                self.copies[place] = path

    def _page(self, page: Path, place: str) -> str:
        """Return a page with every link outside code blocks changed."""

        def moved(link: re.Match[str]) -> str:
            text, name, anchor = link[1], link[2], link[3] or ""
            target = Path(os.path.normpath(page.parent / name))
            if not target.exists() or not target.is_relative_to(self.root):
                return link[0]  # which MkDocs reports
            if name.endswith(text[1:-1]) and target.suffix == ".md":
                text = f"[{title(target.read_text())}]"
            return f"{text}({self._link(target, place)}{anchor})"

        text, parts, end = ESCAPED.sub(lambda row: row[0].replace("\\|", "|"), page.read_text()), list[str](), 0
        for fence in FENCE.finditer(text):
            parts += [LINK.sub(moved, text[end : fence.start()]), fence[0]]
            end = fence.end()
        return "".join(parts) + LINK.sub(moved, text[end:])

    def _link(self, target: Path, place: str) -> str:
        return os.path.relpath(self.place(target), Path(place).parent)

    def _folder(self, path: Path, place: str) -> str:
        """Return a page with the text files of a folder, each of them a page."""
        name = path.relative_to(self.root).as_posix()
        lines = [f"# {name}", "", "In the checkout:", ""]
        for one in sorted(path.iterdir()):
            if one.is_file() and one.suffix in {*LANGUAGES, ".md"} and not one.name.startswith("."):
                lines.append(f"- [{one.name}]({self._link(one, place)})")
            elif one.name != "__pycache__" and not one.name.startswith("."):
                lines.append(f"- {one.name}")
        return unsearched("\n".join(lines) + "\n")


def raw_rows(text: str) -> list[str]:
    """Return the first line of each paragraph of a page that begins with `|` and is no table: it shows raw pipes."""
    blocks = [block.split("\n") for block in re.split(r"\n\s*\n", FENCE.sub("\n", text))]
    rows = [[line.strip() for line in block if line.strip()] for block in blocks]
    return [row[0] for row in rows if row and row[0].startswith("|") and not (row[1:] and DELIMITER.fullmatch(row[1]))]


def title(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("# ")).removeprefix("# ")


def unsearched(text: str) -> str:
    return "---\nsearch:\n  exclude: true\n---\n\n" + text


def shown(path: Path, root: Path) -> str:
    """Return a page with the text of a file, in a code block that nothing in it can end."""
    text = path.read_text()
    marks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    name = path.relative_to(root).as_posix()
    code = f"{marks}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{marks}\n"
    return unsearched(f"# {name}\n\nIn the checkout: `{name}`\n\n{code}")


def reference(commands: Mapping[str, Any]) -> str:
    """Return the page of every command with its arguments and options, as --help has them."""
    lines = [
        "# Every option",
        "",
        "Written from the command line itself, when this site is built; `trainwright COMMAND --help` says the same.",
        "[Commands](commands.md) has a sentence for each, and the exit codes.",
    ]
    for words, command in commands.items():
        context = command.make_context(f"trainwright {words}", [], resilient_parsing=True)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [
            "",
            f"## {words}",
            "",
            plain(line(command.help or "")),
            "",
            "```",
            f"trainwright {words} {usage}",
            "```",
        ]
        rows = [
            record
            for one in command.get_params(context)
            if one.name != "help" and not getattr(one, "hidden", False) and (record := one.get_help_record(context))
        ]
        lines += ["", "| argument, option | meaning |", "|---|---|"] if rows else []
        lines += [f"| `{line(name)}` | {plain(line(text))} |" for name, text in rows]
    return "\n".join(lines) + "\n"


def line(text: str) -> str:
    return " ".join(text.split())


def plain(text: str) -> str:
    """Return a text with nothing that Markdown or HTML would take for its own, except code."""
    return "`".join(
        part if number % 2 else re.sub(r"([<*_\[])", r"\\\1", part).replace("|", "&#124;")
        for number, part in enumerate(text.split("`"))
    )


def lay_out(target: Path) -> None:
    from trainwright import commands

    site = Site(ROOT)
    site.lay_out()
    site.files |= {"reference.md": reference(commands.every()), "site.css": STYLE}
    site.copies["iframe-worker.js"] = Path(__file__).with_name("iframe-worker.js")
    shutil.rmtree(target, ignore_errors=True)
    for name in (*site.files, *site.copies):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
    for name, text in site.files.items():
        (target / name).write_text(text)
    for name, path in site.copies.items():
        shutil.copyfile(path, target / name)


def install() -> None:
    """Make .docs, a virtual environment of its own with what requirements-docs.lock names, unless it is there."""
    wanted, made = ROOT / "requirements-docs.lock", ROOT / ".docs/.complete"
    if made.exists() and made.read_text() == wanted.read_text():
        return
    print("installing MkDocs into .docs", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", ".docs"], cwd=ROOT, check=True)
    pip = [".docs/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--require-hashes", "-r", wanted.name], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    # pip warns of each index that lacks a package, which an extra index does for most of them.
    sys.stderr.writelines(row for row in done.stderr.splitlines(True) if not row.startswith("WARNING: Location"))
    if done.returncode:
        sys.exit("pip could not install what requirements-docs.lock names; the lines above say why")
    shutil.copyfile(wanted, made)


def main() -> None:
    install()
    lay_out(ROOT / "out/docs")
    laid_out = sorted((ROOT / "out/docs").rglob("*.md"))
    raw = [f"{page.relative_to(ROOT)}: {row[:100]}" for page in laid_out for row in raw_rows(page.read_text())]
    if raw:
        sys.exit("\n".join(["rows of a table stand apart from it (is there an empty line above them?):", *raw]))
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # mkdocs.yml says what that notice says
    done = subprocess.run(BUILD, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    sys.stderr.writelines(row for row in done.stderr.splitlines(True) if row.strip() and not row.startswith("INFO"))
    if done.returncode:
        sys.exit("the site was not built: the lines above name page and link; out/docs/<page> is docs/<page>")
    pages = sorted((ROOT / "out/site").rglob("*.html"))
    loaded = [f"{page.relative_to(ROOT)}: {found}" for page in pages for found in ELSEWHERE.findall(page.read_text())]
    if loaded:
        sys.exit("\n".join(["a page of the site loads what lies on another host:", *loaded]))
    print(f"out/site/index.html: {len(pages)} pages, links checked; it needs no server")


if __name__ == "__main__":
    main()
