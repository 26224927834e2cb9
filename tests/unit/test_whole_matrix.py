"""Every image of the matrix: it renders, lints and goes together; and all of them in no time."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright import facts, inputs, linting
from trainwright.matrix import Intent

ROOT = Path(__file__).parents[2]
LEAST = 40  # images

# CPU seconds of a process that starts, reads the intent and all locks, and renders everything; twice what it takes.
LIMIT_SECONDS = 2.0
COLD = """
import json, time
from pathlib import Path
from trainwright import inputs
from trainwright.matrix import load_intent

def rendered():
    began = time.process_time()
    count = sum("Dockerfile" in inputs.text_of(intent, variant) for variant in intent.variants)
    return count, time.process_time() - began

intent = load_intent(Path())
rendered()
cold = time.process_time()  # of the whole process, its start included
print(json.dumps([cold, *rendered()]))
"""


@pytest.fixture(scope="module")
def dockerfiles(intent: Intent) -> dict[str, str]:
    """Of a blocked image, what the intent alone knows of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_STORE", "/nowhere")
        return {variant.id: inputs.text_of(intent, variant)["Dockerfile"] for variant in intent.variants}


def test_there_are_many_and_each_renders(intent: Intent, dockerfiles: dict[str, str]) -> None:
    assert len(dockerfiles) == len(intent.variants) >= LEAST
    for variant in intent.variants:
        text = dockerfiles[variant.id]
        assert re.search(r"^FROM ", text, re.MULTILINE), variant.id
        assert variant.id in text
        assert ("# Blocked, and not built: " in text) == bool(inputs.awaited(intent, variant)), variant.id


def test_each_goes_together(intent: Intent) -> None:
    """With its lock where it has one, by its pins alone where it awaits something: admit() raises for a broken rule."""
    for variant in intent.variants:
        facts.admit(intent, variant, *inputs.known(intent, variant))


def test_hadolint_has_nothing_to_say(dockerfiles: dict[str, str]) -> None:
    """All of them in one call."""
    rows = linting.hadolint(ROOT, dockerfiles)
    assert [row for row in rows if row.state != "ok"] == []
    assert {row.subject for row in rows} == dockerfiles.keys()


def test_the_whole_matrix_renders_in_no_time(intent: Intent) -> None:
    """CPU seconds, not those of a clock: other tests run beside this one."""
    said = subprocess.run([sys.executable, "-c", COLD], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    cold, count, warm = json.loads(said)
    assert count == len(intent.variants)
    assert cold < LIMIT_SECONDS, f"{cold:.2f} s of CPU for {count} images, from nothing"
    assert warm < LIMIT_SECONDS / 2, f"{warm:.2f} s of CPU for {count} images, once more"
