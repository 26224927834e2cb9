"""Test pruning in a real registry: it deletes images that nothing names, and all others stay readable."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import layouts
import pytest
from layouts import MANIFEST
from putting import put_blob, put_manifest
from tiny import ROOT, trainwright

from trainwright.core.errors import RegistryError
from trainwright.image import inputs
from trainwright.matrix.matrix import load_intent
from trainwright.publish import prune
from trainwright.publish.release_records import Shipped, Train, dump
from trainwright.registry import client as registries
from trainwright.registry import settings

pytestmark = pytest.mark.registry

ID, PATH = "base-1.0-cpu-py313-sagemaker", "trainwright/base"
COMMON = b"c" * 5000


class Place(NamedTuple):
    tree: Path
    registry: str

    def push(self, key: str, *tags: str, created: str = "2020-01-01T00:00:00Z", **labels: str) -> str:
        """Push an image with this key under its key tag and others; a layer of 100 bytes is its own."""
        said = {"io.trainwright.id": ID, "io.trainwright.key": key} | labels
        folder = self.tree / "layouts" / key
        made = layouts.make(folder, [COMMON, (key * 2).encode()[:100]], {"Labels": said}, created=created)
        registries.push(folder, self.repository, made.digest)
        for tag in (f"{ID}-{key[:12]}", *tags):
            registries.tag(self.repository, made.digest, tag)
        return made.digest

    def beside(self, digest: str, end: str) -> str:
        """Put a manifest where cosign would put one for this digest."""
        config = {"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2}
        config["digest"] = put_blob(self.repository, b"{}")
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": config,
            "layers": [],
            "annotations": {"of": digest, "is": end},
        }
        tag = f"{digest.replace(':', '-')}.{end}"
        put_manifest(self.repository, json.dumps(manifest).encode(), kind, tag)
        return tag

    @property
    def repository(self) -> str:
        return f"{self.registry}/{PATH}"

    @property
    def tags(self) -> set[str]:
        """Return the tags that the registry itself lists and that have a manifest."""
        host, _, folder = self.registry.partition("/")
        url = f"http://{host}/v2/{folder}/{PATH}"
        listed = httpx.get(f"{url}/tags/list").json()["tags"] or []
        accept = {"Accept": f"{MANIFEST}, application/vnd.oci.image.manifest.v1+json"}
        return {tag for tag in listed if httpx.get(f"{url}/manifests/{tag}", headers=accept).status_code == 200}

    def prune(self, *words: str, code: int = 0) -> dict[str, Any]:
        done = trainwright(
            self.tree, "prune", "--framework", "base", "--json", *words, REGISTRY=self.registry, AWS_REGION=""
        )
        assert done.returncode == code, done.stderr
        lines = done.stderr.splitlines()
        return dict(json.loads(lines[-1])) if code else {**json.loads(done.stdout), "said": lines}


@pytest.fixture
def place(tmp_path: Path, registry: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    tree = tmp_path / "tree"
    for name in ("dockerfiles", "scripts"):
        shutil.copytree(ROOT / name, tree / name)
    monkeypatch.setenv("TRAINWRIGHT_STORE", str(tmp_path / "store"))
    return Place(tree, f"{registry}/{uuid4().hex}")


def states(found: dict[str, Any]) -> dict[str, str]:
    return {row["digest"]: row["state"] for row in found["rows"]}


def test_what_nothing_names_goes_and_all_the_rest_stays(place: Place) -> None:
    intent = load_intent(place.tree)
    present = inputs.load(intent.recipe(ID)).key
    old, young = place.push("1" * 64), place.push("2" * 64, created="2099-01-01T00:00:00Z")
    released, aliased = place.push("3" * 64, f"{ID}-2026.10.0"), place.push("4" * 64, f"{ID}-latest")
    recorded, mine, now = place.push("5" * 64), place.push("6" * 64, "mine"), place.push(present)
    other = place.push("7" * 64, **{"io.trainwright.id": "no-such-image"})
    for digest in (old, released):
        for end in ("sig", "att"):
            place.beside(digest, end)
    shipped = Shipped(key="5" * 64, digest=recorded, repository=PATH)
    train = Train(name="2026.9.0", date="2026-09-01", commit="0" * 40, images={ID: shipped})
    (place.tree / "dockerfiles/releases/2026.9.0.toml").write_text(dump(train))
    before = place.tags

    nobody = place.prune("--delete")  # a plain registry does not say when it was pushed
    assert set(states(nobody).values()) == {"kept"}
    assert place.tags == before

    dry = place.prune("--waive", "age")
    assert states(dry)[old] == "would delete"
    assert {states(dry)[kept] for kept in (young, released, aliased, recorded, mine, now, other)} == {"kept"}
    assert sum(state == "would delete" for state in states(dry).values()) == 3
    assert not dry["deleted"]
    assert place.tags == before
    config = next(row for row in dry["rows"] if row["digest"] == old)["size"] - 5100
    assert dry["freed"] == 100 + config  # what others have, too, stays

    done = place.prune("--waive", "age", "--delete")
    gone = {f"{ID}-{'1' * 12}", *(f"{old.replace(':', '-')}.{end}" for end in ("sig", "att"))}
    assert place.tags == before - gone
    assert {digest for digest, state in states(done).items() if state == "deleted"} >= {old}
    assert {row["state"] for row in done["rows"]} == {"deleted", "kept"}
    assert "3 of 12 deleted, 0.0 MB; a plain registry frees the space" in done["said"][-1]

    again = place.prune("--waive", "age", "--delete")
    assert "nothing to delete" in again["said"][-1]


def test_an_empty_registry_and_a_waiver_that_is_none(place: Place) -> None:
    assert place.prune("--delete")["rows"] == []
    assert "is not a valid waiver" in place.prune("--waive", "jobs", code=2)["error"]


def test_a_registry_that_deletes_nothing(place: Place, registry: str) -> None:
    """One whose answer is no: the error says so, and what was not deleted is there."""
    from faults import before

    place.push("1" * 64)
    with before(registry) as (address, faults):
        faults.left["DELETE /manifests"] = 1000
        elsewhere = place._replace(registry=f"{address}/{place.registry.partition('/')[2]}")
        settings = (place.tree / "dockerfiles/publish.toml").read_text()
        quick = settings.replace("attempts = 6", "attempts = 2").replace("wait_seconds = 0.5", "wait_seconds = 0.01")
        (place.tree / "dockerfiles/publish.toml").write_text(quick)
        error = elsewhere.prune("--waive", "age", "--delete", code=8)
    assert "could not be deleted" in error["error"]
    assert place.tags == {f"{ID}-{'1' * 12}"}


def test_a_registry_that_loses_more_than_it_was_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be kept is read back."""
    place.push("1" * 64)
    aliased, really = place.push("4" * 64, f"{ID}-latest"), registries.delete

    def delete(repository: str, digest: str) -> None:
        really(repository, digest)
        really(repository, aliased)

    monkeypatch.setattr(registries, "delete", delete)
    host, _, prefix = place.repository.partition("/")
    with pytest.raises(RegistryError, match="2 tags of kept images"):
        prune.prune(load_intent(place.tree), [settings.Place(host=host, path=prefix)], True, {"age"}, print)
