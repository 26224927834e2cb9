"""Run the image tests on one image, and write their outcome into image.json."""

import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from trainwright.build import kept, proof_code
from trainwright.build.build import at_hand
from trainwright.build.state import Done, out_folder, write_image
from trainwright.core.errors import EnvironmentProblem, NotRunError, TestError
from trainwright.core.process import run
from trainwright.core.progress import Say
from trainwright.docker import engine
from trainwright.image import child
from trainwright.image.inputs import Inputs
from trainwright.lock.lockfile import digest
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.records import Check, Image

# While one process reads the layers, which takes minutes for those of CUDA, the other one queries the container.
SIDE_BY_SIDE = ("--numprocesses=auto", "--maxprocesses=2", "--dist=loadgroup", "--no-loadscope-reorder")
UNUSED = ("-p", "no:hypothesispytest", "-p", "no:anyio")  # plugins of pytest that no image test uses
NEEDED = ("pytest", "testinfra", "xdist")


def refuse_without_pytest() -> None:
    """Raise EnvironmentProblem if the image tests cannot run here: a plain installation lacks what only they need."""
    if lacking := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise EnvironmentProblem(
            f"the image tests require {', '.join(lacking)}",
            where=sys.executable,
            why="an image is pushed only after its tests passed, and they are an extra of trainwright",
            fix=f"{sys.executable} -m pip install 'trainwright[prove]'",
        )


def test(recipe: Recipe, repository: str | None, say: Say) -> Done:
    """Run the image tests on the engine's image, and write the outcome into image.json. Raises what tested() raises."""
    began = time.monotonic()
    found = child.load(recipe)
    image = at_hand(found, say, repository)
    image, passed = tested(found, image, found.name, say)
    return Done(image, "tested", f"image tests passed: {passed}", time.monotonic() - began)


def tested(found: Inputs, image: Image, name: str, say: Say) -> tuple[Image, str]:
    """Run the image tests on `name`, which the engine holds and which is `image`; return it and the number passed.

    The outcome of an earlier run is discarded first. Raises TestError, and NotRunError if a test was skipped.
    """
    variant, out = found.variant, out_folder(found.recipe)
    report = out / "tests.xml"
    report.unlink(missing_ok=True)
    _write_outcome(out, image, "not run", "started, but not finished")
    words = ["--variant", variant.parent or variant.id]
    if variant.parent:
        words += ["--with", str(Path(variant.requirements).absolute()), "--name", variant.name]
    say(f"{variant.id}: image tests")
    try:
        passed, old = image_tests(found.recipe, name, words, report, variant.id, f"trainwright test {variant.words}")
    except TestError as error:
        _write_outcome(out, image, "failed", error.why)
        raise
    except NotRunError as error:
        _write_outcome(out, image, "not run", error.what)
        raise
    code = proof_code.digest_of(found.recipe, "image")
    said = f"{passed} tests" + (f", {old} of them kept: they passed on this image before" if old else "")
    return _write_outcome(out, image, "passed", said, code), said


def image_tests(recipe: Recipe, name: str, words: Sequence[str], report: Path, who: str, fix: str) -> tuple[int, int]:
    """Run tests/image on an image that the engine holds; write JUnit to `report`.

    Returns how many passed, and how many of these were kept: passed on this very image before, with the same tests,
    code, data and tools, on such a host. Raises TestError, and NotRunError if a test was skipped, because a skipped
    test proves nothing.
    """
    run(
        [
            *(sys.executable, "-m", "pytest", "--quiet", recipe.root / "tests/image", "--image", name),
            *(*words, f"--junitxml={report}", f"--kept={depends_on(recipe, name, words)}", *SIDE_BY_SIDE, *UNUSED),
        ],
        cwd=recipe.root,
        error=TestError,
        what=f"{who} failed its image tests",
        fix=fix,
        show=True,
        out_to_err=True,
    )
    suite = ElementTree.parse(report).getroot()[0]
    counts = suite.attrib
    if int(counts["skipped"]):
        raise NotRunError(
            f"{counts['skipped']} of {counts['tests']} image tests of {who} did not run",
            where=str(report),
            why="a test that did not run proves nothing",
            fix=fix,
        )
    return int(counts["tests"]), len(suite.findall("testcase/properties/property[@name='kept']"))


def depends_on(recipe: Recipe, name: str, words: Sequence[str]) -> str:
    """Return the digest of everything that the outcomes of the image tests depend on."""
    data = sorted(path for path in (recipe.root / "dockerfiles").iterdir() if path.name != "proofs")
    lock = recipe.root / "requirements.lock"
    on = {
        "image": engine.image_id(name),
        "code": proof_code.digest_of(recipe, "image"),
        "data": kept.code(*data),
        "given": [kept.code(Path(word)) if Path(word).is_file() else word for word in words],
        "tools": [sys.version, kept.code(lock) if lock.is_file() else "", engine.facts()["version"]],
        "host": kept.host(),
    }
    return digest(on)


def _write_outcome(
    out: Path, image: Image, state: Literal["passed", "failed", "not run"], detail: str, code: str = ""
) -> Image:
    assert image.proof is not None  # at_hand() ensures it
    proof = image.proof.model_copy(update={"tests": Check(state=state, detail=detail, code=code)})
    image = image.model_copy(update={"proof": proof})
    write_image(out, image)
    return image
