"""Verify a derived image against its parent: ask both the same questions, and run the parent's tests on the child."""

import hashlib
import json
import shlex
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainwright.build import state
from trainwright.build.image_tests import image_tests
from trainwright.core import store
from trainwright.core.errors import BuildError, ConfigError, NotRunError, TrainwrightError
from trainwright.core.files import write
from trainwright.core.progress import Say, few
from trainwright.core.toml import Model
from trainwright.docker import engine
from trainwright.image import declared, inputs, tags
from trainwright.inspect import child_check, image_config
from trainwright.inspect import parent as inspect_parent
from trainwright.inspect.child_check import Look, Row
from trainwright.matrix.matrix import Intent
from trainwright.registry import auth, client

OWN_FILES = "scripts/own_files.py"
PROBE = "scripts/probe.py"
TAKE_OUT = "remove that step from its Dockerfile, or start from an image that declares it: trainwright list"
CHECK = "dockerfiles/rootfs/common/opt/trainwright/startup_check.py"


class Verdict(Model):
    """The result of `verify`."""

    image: str
    parent: str
    id: str  # of the parent
    key: str
    checkout: str  # whether this checkout knows that key
    unchanged: bool
    rows: list[Row]


def verify(intent: Intent, target: str, parent: str, given: str, say: Say) -> Verdict:
    """Compare an image, or that of a project's folder, with its parent. `given` is the registry.

    Raises ConfigError and NotRunError if there is nothing to compare, BuildError if an image does not answer.
    """
    name = target
    if Path(target).is_dir():
        held = inspect_parent.read_project(Path(target))
        name, parent = held.name, parent or held.parent.uri
    if engine.image_id(name) is None:
        raise NotRunError(f"the engine holds no image {name}", fix=f"docker pull {name}, or build it")
    parent = parent or inspect_parent.reference(intent, engine.labels(name), given)
    if engine.image_id(parent) is None:
        inspect_parent.must_be_pinned(parent)
        say(f"pulling the parent, {parent}")
        engine.pull_only(parent, auth.credentials(parent))
    if engine.image_id(parent) == engine.image_id(name):
        raise ConfigError(
            f"{name} and {parent} are the same image: there is nothing to compare",
            fix="trainwright verify <image> --parent <repository@sha256:...>",
        )
    labels = engine.labels(parent)
    say(f"asking {labels.get(tags.ID_LABEL, parent)} and {name}")
    declared, before = _parent_look(intent, parent, labels)
    # The parent's entrypoint is used, so that the child's own does not run.
    after = _look(intent, name, declared, starts(labels) or engine.config(parent).get("Entrypoint") or [])
    below, own = engine.layers(parent), engine.layers(name)
    rows = [child_check.layers(below, own), *child_check.compare(declared, before, after)]
    rows += image_config.compare(declared, before, engine.config(parent), engine.config(name))
    if any(child_check.differs(row) for row in rows[1:]) and not rows[0].refused:
        say("looking for the instructions that changed it")
        rows = child_check.blame(rows, _steps(name, len(below)))
    key = labels.get(tags.KEY_LABEL, "")
    return Verdict(
        image=name,
        parent=parent,
        id=declared["id"],
        key=key,
        checkout=_checkout(intent, declared["id"], key),
        unchanged=not any(row.refused for row in rows),
        rows=rows,
    )


def judge(verdict: Verdict) -> None:
    """Raise BuildError, which names each one, for changes that a derived image must not make."""
    refused = [row for row in verdict.rows if row.refused]
    if not refused:
        return
    told = [_sentence(row) for row in refused]
    raise BuildError(
        f"{verdict.image} does not carry {verdict.id} unchanged: {told[0]}",
        where=refused[0].by,
        why=few(told),
        fix="; ".join(dict.fromkeys(row.fix or TAKE_OUT for row in refused)),
    )


def _sentence(row: Row) -> str:
    versions = f" ({row.was} -> {row.now or 'none'})" if row.was != row.now else ""
    state = "has a second copy" if row.state == "second copy" else f"is {row.state}"
    return f"{row.what} {state}{versions}{f': {row.where}' * bool(row.where)}"


def _parent_look(intent: Intent, parent: str, labels: dict[str, str]) -> tuple[dict[str, Any], Look]:
    """Return the parent's declaration and its answers, cached in the store, because its bytes never change."""
    scripts = "".join((intent.root / path).read_text() for path in (OWN_FILES, PROBE, CHECK))
    name = hashlib.sha256(f"{engine.image_id(parent)}{scripts}".encode()).hexdigest()
    known = store.root() / "looks" / f"{name}.json"
    own = _own_files(intent, parent, starts(labels))
    declared = (
        json.loads(own.declared) if own.declared else _declared_here(intent, labels.get(tags.ID_LABEL, ""), parent)
    )
    with suppress(FileNotFoundError, ValidationError):
        return declared, Look.model_validate_json(known.read_bytes())
    look = _look(intent, parent, declared, starts(labels))
    write(known, look.model_dump_json())
    return declared, look


def _declared_here(intent: Intent, identity: str, parent: str) -> dict[str, Any]:
    """Return this checkout's declaration, for an image from before declarations existed. Raises NotRunError."""
    if recipe := intent.find(identity):
        content: dict[str, Any] = json.loads(inputs.load(recipe).text["requirements/declared.json"])
        return content
    raise NotRunError(
        f"{parent} has no declaration, and this checkout does not know {identity or 'it'}",
        why=f"it has no {declared.PLACE}",
        fix="git checkout the revision that built it, and run the same command there",
    )


def starts(labels: Mapping[str, str]) -> list[str] | None:
    """Return an entrypoint that starts the Python of a graft in place of `python`; None for any other image.

    PATH of an image of others may have another Python, or none, and its own entrypoint may print text of its own, which
    would be read as part of the answer.
    """
    python = labels.get(tags.PYTHON_LABEL, "")
    return ["/bin/sh", "-c", f'shift; exec {shlex.quote(python)} "$@"', "sh"] if python else None


def _own_files(intent: Intent, name: str, entrypoint: list[str] | None = None) -> child_check.OwnFiles:
    script = (intent.root / OWN_FILES).read_text()
    return child_check.OwnFiles.model_validate(engine.ask(name, script, entrypoint=entrypoint))


def _look(intent: Intent, name: str, declared: dict[str, Any], entrypoint: list[str] | None = None) -> Look:
    """Ask an image all questions. Raises BuildError if it does not answer."""
    questions = {component: facts["probe"] for component, facts in declared["components"].items()}
    try:
        return Look(
            own=_own_files(intent, name, entrypoint),
            findings=engine.ask(name, (intent.root / PROBE).read_text(), json.dumps(questions), entrypoint=entrypoint),
            libraries=engine.ask(
                name, (intent.root / CHECK).read_text(), "--libraries", json.dumps(declared), entrypoint=entrypoint
            ),
        )
    except ValidationError as error:
        raise BuildError(f"{name} cannot be probed", why=str(error)) from None


def _steps(name: str, above: int) -> list[tuple[str, list[str]]]:
    """Return instruction and paths of every layer above the parent's; a configuration-only step is its own path."""
    with tempfile.TemporaryDirectory(prefix="trainwright-layers-") as folder:
        layout = Path(folder, "layout")
        engine.save_as_it_is(name, layout)
        manifest = _manifest(layout)
        config = json.loads(client.blob_of(layout, manifest["config"]["digest"]).read_text())
        paths = [_paths(client.blob_of(layout, layer["digest"])) for layer in manifest["layers"][above:]]
        steps, number = [], 0
        for step in config.get("history", []):
            text, made = _instruction(step), not step.get("empty_layer")
            if number >= above and (not made or paths):
                steps.append((text, paths.pop(0) if made else [text]))
            number += made
        return steps + [("", more) for more in paths]  # for tools that keep no history


def _manifest(layout: Path) -> dict[str, Any]:
    """Return the manifest of a saved image; if BuildKit added an index for attestations, that of the runnable image."""
    _, found = client.manifest_of(layout)
    for entry in found.get("manifests", []):
        if entry.get("platform", {}).get("os") != "unknown" and client.blob_of(layout, entry["digest"]).is_file():
            return dict(json.loads(client.blob_of(layout, entry["digest"]).read_text()))
    return found


def _instruction(step: dict[str, Any]) -> str:
    """Return the instruction as written in the Dockerfile, without BuildKit's additions."""
    text = str(step.get("created_by", ""))
    for part in ("/bin/sh -c ", "# buildkit"):
        text = text.replace(part, "")
    return " ".join(text.split())[:200]


def _paths(layer: Path) -> list[str]:
    with tarfile.open(layer, "r|*") as archive:
        return ["/" + entry.name.removeprefix("./").strip("/").replace(".wh.", "") for entry in archive]


def _checkout(intent: Intent, identity: str, key: str) -> str:
    """Return a sentence that says whether this checkout builds the parent."""
    recipe = intent.find(identity)
    if recipe is None:
        made = state.beyond_the_matrix(intent.root, identity)
        if made and made.key == key:
            return "this checkout made the parent"
        return f"this checkout {'made another' if made else 'does not know'} {identity}"
    try:
        own = inputs.load(recipe).key
    except TrainwrightError as error:
        return f"this checkout cannot compute its own key: {error.what}"
    if own == key:
        return "this checkout builds the parent with the same key"
    return f"this checkout builds {identity} with another key, {own[:12]}: the parent has {key[:12]}"


def test(intent: Intent, name: str, say: Say) -> int:
    """Run the parent's image tests on an image built on top of it; return how many passed.

    Raises TestError; ConfigError if the parent is not an image of this checkout; NotRunError if tests did not run or
    the parent's key differs from this checkout's.
    """
    if engine.image_id(name) is None:
        raise NotRunError(f"the engine holds no image {name}", fix=f"docker pull {name}, or build it")
    labels = engine.labels(name)
    recipe = intent.find(labels.get(tags.ID_LABEL, ""))
    if recipe is None:
        raise ConfigError(
            f"{name} does not start from an image of this checkout",
            why=f"its label {tags.ID_LABEL} says {labels.get(tags.ID_LABEL)}",
        )
    if (own := inputs.load(recipe).key) != labels.get(tags.KEY_LABEL):
        raise NotRunError(
            f"the tests of this checkout do not match the {recipe.id} that {name} starts from",
            why=f"its key is {labels.get(tags.KEY_LABEL, '')[:12]}, this checkout's is {own[:12]}",
            fix="git checkout the revision that built the parent, and run the same command there",
        )
    say(f"{name}: the image tests of {recipe.id}")
    with tempfile.TemporaryDirectory(prefix="trainwright-tests-") as folder:
        words = ("--variant", recipe.id, "--derived")
        fix = f"trainwright test --image {name}"
        return image_tests(recipe, name, words, Path(folder, "tests.xml"), name, fix)[0]
