"""Record what was proved: from out/<id>/image.json and the test reports into dockerfiles/proofs/<id>.toml."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from trainwright.build import proof_code, proofs
from trainwright.build.state import out_folder, read_image
from trainwright.core import project
from trainwright.core.errors import NotRunError, TrainwrightError
from trainwright.core.files import write
from trainwright.core.progress import counted
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe
from trainwright.matrix.records import Image, Record, Where

# Properties that are equal in all tests of one image, besides `code-*`. Measured values may differ.
ABOUT = {"image", "name", *Where.model_fields}


def candidates(recipes: Iterable[Recipe]) -> list[Recipe]:
    """Return the images that have an out/<id>/image.json."""
    return [recipe for recipe in recipes if (out_folder(recipe) / "image.json").exists()]


def record(
    recipes: Iterable[Recipe], training: Path | None = None
) -> tuple[list[dict[str, Any]], TrainwrightError | None]:
    """Record what is proved of each image; return a row per image, and a NotRunError if one was not proved."""
    rows, missing = [], []
    for recipe in recipes:
        try:
            proved = proof_of(recipe, training)
        except TrainwrightError as error:
            missing.append(error)
            rows.append({"id": recipe.id, "state": "not recorded", "digest": "", "why": error.what})
            continue
        write(project.place(proofs.record_path(recipe)), proofs.dump(proved))
        tests = ", ".join(counted(count, f"{kind} test") for kind, count in proved.tests.items())
        rows.append({"id": recipe.id, "state": "recorded", "digest": proved.digest, "why": tests})
    if not missing:
        return rows, None
    first = missing[0]
    return rows, NotRunError(
        f"{len(missing)} of {len(rows)} images are not proved here, and were not recorded",
        where=first.where,
        why=f"{first.what}{f': {first.why}' if first.why else ''}",
        fix=first.fix,
    )


def proof_of(recipe: Recipe, training: Path | None = None) -> Record:
    """Return what image.json and the reports prove of the present inputs. Raises NotRunError if anything is not proved.

    `training` is the report of the training tests; the default is out/<id>/training.xml, if it exists.
    """
    found, out = inputs.load(recipe, as_locked=True), out_folder(recipe)
    image, again = read_image(out), f"trainwright test {recipe.id}, then trainwright push {recipe.id}"
    where = f"out/{recipe.id}/image.json"
    if image and image.drift:
        raise NotRunError(
            f"{recipe.id} was built with {counted(len(image.drift), 'package')} other than in the lock",
            where=where,
            fix=f"trainwright lock {recipe.id} --update, review the difference, the same with --write, and build again",
        )
    if image is None or image.key != found.key:
        raise NotRunError(
            f"{recipe.id} is not built with its present inputs",
            where=where,
            why=f"its key is {image.key[:12]}, the key of the inputs is {found.key[:12]}"
            if image
            else "the file does not exist",
            fix=f"trainwright build {recipe.id}, then {again}",
        )
    if image.proof is None or {image.proof.probe.state, image.proof.tests.state} != {"passed"}:
        raise NotRunError(f"{recipe.id} is not probed and tested here", where=where, fix=again)
    if image.digest is None:
        raise NotRunError(f"{recipe.id} is proved, but not pushed", where=where, fix=f"trainwright push {recipe.id}")
    if image.proof.image != image.digest:
        raise NotRunError(
            f"the pushed image of {recipe.id} is not the proved one",
            where=where,
            why=f"the engine holds {image.proof.image}, the registry {image.digest}, with the same inputs",
            fix=f"trainwright rebuild --compare {recipe.id}",
        )
    if image.proof.probe.code != proof_code.digest_of(recipe, "probe"):
        raise NotRunError(f"the code of the probe changed since {recipe.id} was probed", where=where, fix=again)
    return _record(recipe, image, training)


def _record(recipe: Recipe, image: Image, training: Path | None) -> Record:
    assert image.proof is not None  # proof_of() refuses everything else
    assert image.digest is not None
    out = out_folder(recipe)
    again = f"trainwright test {recipe.id}"
    day, passed, said = _report(out / "tests.xml", again)
    if said.get("image") != image.proof.image:
        raise NotRunError(
            f"the report of the image tests of {recipe.id} is about another image",
            where=str(out / "tests.xml"),
            why=f"it names {said.get('image', 'none')}, image.json {image.proof.image}",
            fix=again,
        )
    _of_present_code(recipe, "image", said, out / "tests.xml", again)
    tests = {"image": passed}
    again = f"scripts/test-images.sh {recipe.id}"
    reports: dict[proof_code.Kind, Path] = {
        "training": training or out / "training.xml",
        "cluster": out / "cluster.xml",
    }
    for kind, report in reports.items():
        if not report.exists() and not (training and kind == "training"):
            continue
        _, tests[kind], trained = _report(report, again)
        if not trained.get("name", "").endswith(f"@{image.digest}"):
            raise NotRunError(
                f"the report of the {kind} tests is not about the pushed image of {recipe.id}",
                where=str(report),
                why=f"it names {trained.get('name', 'none')}, image.json {image.digest}",
                fix=again,
            )
        _of_present_code(recipe, kind, trained, report, again)
    where = Where.model_validate({name: said[name] for name in Where.model_fields if name in said})
    proof = proof_code.digest_now(recipe)
    found = inputs.load(recipe, as_locked=True)
    return Record(
        key=image.key,
        proof=proof,
        digest=image.digest,
        day=day,
        size=image.size,
        overlay=found.overlay or None,
        overridden=found.overridden or None,
        tests=tests,
        where=where,
    )


def _of_present_code(recipe: Recipe, kind: proof_code.Kind, said: dict[str, str], report: Path, fix: str) -> None:
    """Raise NotRunError if a report was made by other tests than the present ones, or by other code."""
    if said.get(f"code-{kind}") != proof_code.digest_of(recipe, kind):
        raise NotRunError(
            f"the {kind} tests of {recipe.id}, or the code behind them, changed since they ran",
            where=str(report),
            fix=fix,
        )


def _report(path: Path, fix: str) -> tuple[Any, int, dict[str, str]]:
    """Read a JUnit report: UTC day of the oldest outcome, number of passed tests, properties.

    A kept outcome counts for the day on which its test ran. Raises NotRunError unless all tests passed.
    """
    try:
        suite = ElementTree.parse(path).getroot()[0]
        counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
        rows = [(one.attrib["name"], one.attrib["value"]) for one in suite.iter("property")]
        ran = [suite.attrib["timestamp"], *(value for name, value in rows if name == "kept")]
        day = min(datetime.fromisoformat(when).astimezone(UTC) for when in ran).date()
        properties = [row for row in rows if row[0] in ABOUT or row[0].startswith("code-")]
    except (OSError, ElementTree.ParseError, IndexError, KeyError, ValueError) as error:
        raise NotRunError("the test report cannot be read", where=str(path), why=str(error), fix=fix) from None
    failed = counts["failures"] + counts["errors"] + counts["skipped"]
    if failed or not counts["tests"]:
        why = f"{failed} of {counts['tests']} tests did not pass"
        raise NotRunError("not every test passed", where=str(path), why=why, fix=fix)
    said = dict(properties)
    if other := next((name for name, value in properties if value != said[name]), ""):
        why = f"its tests have different values of {other}"
        raise NotRunError("the report has tests of more than one image", where=str(path), why=why, fix=fix)
    return day, counts["tests"], said
