"""Test the documentation: every link has a target, and the README says of an image what its record says."""

import re
from pathlib import Path

import pytest

from trainwright.build import proofs
from trainwright.matrix.matrix import Intent, Recipe

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("dockerfiles/*/README.md")]
LINK = re.compile(r"\]\(((?!https?:)[^)\s#]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes from headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for name, anchor in LINK.findall(page.read_text()):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


def test_readme_is_read_to_its_end() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_readme_says_which_images_are_proved(intent: Intent) -> None:
    """A row is about its first id; what it says of the others is not judged here."""
    rows = re.findall(r"^\| `(\S+)`.*\| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    said = {name for name, state in rows if state.startswith("proved")}
    assert said == {v.id for v in intent.variants if proofs.standing(Recipe(intent, v)).state == "proved"}
