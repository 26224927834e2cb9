"""What image tests share: the expectations that are data, our programs inside the container, and the layers."""

import json
import re
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trainwright import engine
from trainwright.inputs import Inputs
from trainwright.instances import architectures
from trainwright.matrix import Intent, load_intent

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "saved" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("layers"))  # one process reads them, once


@pytest.fixture(scope="session")
def expected(declared: Inputs) -> dict[str, Any]:
    """expected.toml: what an image may and may not hold, each line with its reason."""
    text = (HERE / "expected.toml").read_text()
    data: dict[str, Any] = tomllib.loads(
        text.replace("{site}", f"opt/venv/lib/python{declared.variant.python}/site-packages")
    )
    return data


@pytest.fixture(scope="session")
def derived(pytestconfig: pytest.Config) -> bool:
    """Whether the image under test is built on top of that of the variant."""
    return bool(pytestconfig.getoption("--derived"))


@pytest.fixture(scope="session")
def config(image: str) -> dict[str, Any]:
    """The image's configuration, as a container gets it."""
    found: dict[str, Any] = engine.client().images.get(image).attrs["Config"]
    return found


@pytest.fixture(scope="session")
def intent() -> Intent:
    """The intent of this very checkout, read once."""
    return load_intent(ROOT)


@pytest.fixture(scope="session")
def fleet(intent: Intent, declared: Inputs) -> list[str]:
    """Architectures of the GPUs that this variant is for, as compilers count them: 80, 90. None: wherever it runs."""
    return architectures(declared.variant.instances, intent.instances)


@pytest.fixture(scope="session")
def lacking(fleet: list[str]) -> Callable[[list[str]], list[str]]:
    """Which of these GPUs cannot run machine code built for others: it runs from its own minor number upwards."""

    def without(built: list[str]) -> list[str]:
        assert built, "the search has lost its object"
        return [own for own in fleet if not any(own[:-1] == code[:-1] and own[-1] >= code[-1] for code in built)]

    return without


@pytest.fixture(scope="session")
def nccl_number(declared: Inputs) -> int:
    """The pinned NCCL as it counts itself: 2.30.7 is 23007."""
    major, minor, patch = map(int, declared.pins["nccl"].split("."))
    return major * 10000 + minor * 100 + patch


@pytest.fixture(scope="session")
def programs(container: Any, pack: Callable[[Mapping[str, bytes]], bytes]) -> str:
    """The folder in the container where programs/ lies."""
    files = {f"programs/{path.name}": path.read_bytes() for path in (HERE / "programs").iterdir() if path.is_file()}
    container.put_archive("/", pack(files))
    return "/programs"


@dataclass
class Saved:
    """The image as a registry would get it."""

    index: dict[str, Any]
    manifest: dict[str, Any]
    config: dict[str, Any]
    layers: list[list[tarfile.TarInfo]]  # lowest first
    secrets: set[str]  # `path: kind`, of every file in every layer


class Secret(NamedTuple):
    kind: str
    literal: bytes  # searched first: a regular expression over 2 GB takes minutes
    pattern: re.Pattern[bytes]
    limit: int  # only in files of at most so many bytes


@pytest.fixture(scope="session")
def saved(image: str, expected: dict[str, Any]) -> Saved:
    """All layers, read once: what a later layer hides is still in the image."""
    secrets = [
        Secret(kind, row["literal"].encode(), re.compile(row["pattern"].encode()), row.get("limit", sys.maxsize))
        for kind, row in expected["secrets"].items()
    ]
    with tempfile.TemporaryDirectory(prefix="trainwright-layers-") as folder:
        layout = Path(folder, "layout")
        engine.save(image, layout)

        def blob(digest: str) -> Path:
            return layout / "blobs" / digest.replace(":", "/")

        index = json.loads((layout / "index.json").read_text())
        manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
        if "manifests" in manifest:  # an attestation made an index of it: a test of its own says so
            manifest = json.loads(blob(manifest["manifests"][0]["digest"]).read_text())
        config = blob(manifest["config"]["digest"]).read_bytes()
        found = Saved(index, manifest, json.loads(config), [], set())
        found.secrets |= {f"configuration: {kind}" for kind in secrets_in(config, secrets)}
        for layer in manifest["layers"]:
            entries = []
            with tarfile.open(blob(layer["digest"]), "r|*") as archive:
                for entry in archive:
                    content = archive.extractfile(entry) if entry.isreg() else None
                    entry.name = entry.name.removeprefix("./").strip("/")
                    entries.append(entry)
                    if content:
                        found.secrets |= {f"{entry.name}: {kind}" for kind in secrets_in(content.read(), secrets)}
            found.layers.append(entries)
    return found


def secrets_in(content: bytes, secrets: list[Secret]) -> Iterator[str]:
    """The kinds of secret in a file."""
    for secret in secrets:
        at = content.find(secret.literal) if len(content) <= secret.limit else -1
        while at >= 0:
            if secret.pattern.search(content, max(0, at - 100), at + 400):
                yield secret.kind
                break
            at = content.find(secret.literal, at + 1)
