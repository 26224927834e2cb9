"""Test the documentation: every link has a target, and the README says of an image what its record says."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from trainwright.build import proofs
from trainwright.core.toml import load
from trainwright.image import inputs
from trainwright.lock import additions
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Lock

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("dockerfiles/*/README.md")]
LINK = re.compile(r"\]\(((?!https?:)[^)\s#]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes from headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_training_says_what_additions_weigh(intent: Intent) -> None:
    """A size that nobody updates would mislead who decides by it."""
    locks = [
        load(ROOT / f"dockerfiles/locks/pytorch-{name}-py313-ec2.toml", Lock) for name in ("2.15-cu132", "2.14-cu130")
    ]
    sizes = {entry.name: entry.size for lock in reversed(locks) for entry in lock.python}
    sizes |= {name: package.size for name, package in inputs.read_distribution(intent, "debian-13").packages().items()}
    page = (ROOT / "docs/training.md").read_text()
    rows = re.findall(r"^\| ([a-z][\w, -]+) \| .* \| ([\d.]+) MB \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for names, said in rows:
        assert f"{sum(sizes[name] for name in names.split(', ')) / 1e6:.1f}" == said, names
    recipes = dict(re.findall(r"^\| `(dockerfiles/recipes/\S+)` \| ([\d.]+) MB", page, re.MULTILINE))
    known = additions.settings(ROOT).recipes.values()
    assert recipes.keys() == {row.requirements for row in known}
    for row in known:
        lock = load(ROOT / row.requirements.replace(".txt", f".{row.image}.lock.toml"), Lock)
        whole = sum(entry.size for entry in lock.python if entry.group == "added") / 1e6
        assert f"{whole:.{0 if whole > 100 else 1}f}" == recipes[row.requirements], row.requirements


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for name, anchor in LINK.findall(page.read_text()):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


def test_readme_is_read_to_its_end() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_readme_says_which_images_are_proved(intent: Intent) -> None:
    """An image counts in the first row that fits."""
    rows = re.findall(r"^\| (`.*) \| .* \| (\d+ of \d+).* \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    left = {v.id: proofs.standing(Recipe(intent, v)).state == "proved" for v in intent.variants}
    for names, said in rows:
        globs = re.findall("`([^`]+)`", names)
        own = [left.pop(name) for name in list(left) if any(fnmatchcase(name, glob) for glob in globs)]
        assert said == f"{sum(own)} of {len(own)}", names
    assert left == {}
