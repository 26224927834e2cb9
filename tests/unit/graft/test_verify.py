"""Test what `verify` says of a published graft: by what this checkout recorded, or that it was not compared."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import layouts
import pytest
from registries import Registry, digest_of, serving
from unit.graft.records import ID, config, edited, grafted, unchanged

from trainwright.core.errors import BuildError
from trainwright.docker import oci_layout, zstd_twin
from trainwright.graft import build, look, recorded, results, verify
from trainwright.graft.files import Graft
from trainwright.graft.found import Found
from trainwright.image import tags
from trainwright.inspect import verify_published
from trainwright.inspect.verify_published import Report
from trainwright.matrix.matrix import Intent

REPOSITORY = "trainwright/pytorch"


@pytest.fixture
def held() -> Iterator[Registry]:
    with serving() as one:
        yield one


def labels(one: Graft, **other: str) -> dict[str, str]:
    said = {tags.ID_LABEL: one.id, tags.KEY_LABEL: one.key, tags.GRAFT_LABEL: "registry.example.com/team@sha256:1"}
    return said | other


def published(held: Registry, folder: Path, said: dict[str, str], kinds: oci_layout.Kinds = oci_layout.DOCKERS) -> str:
    """Put an image with one layer and these labels into the registry, with the tag of its key; return its address."""
    image = layouts.make(folder / "image", [b"layer"], {"Labels": said})
    manifest = json.loads(json.dumps(image.manifest))
    manifest |= {"mediaType": kinds.manifest, "config": {**manifest["config"], "mediaType": kinds.config}}
    manifest["layers"] = [{**row, "mediaType": kinds.layers[-1]} for row in manifest["layers"]]
    content = json.dumps(manifest).encode()
    digest = digest_of(content)
    for blob in (image.folder / "blobs/sha256").iterdir():
        held.blobs[REPOSITORY, f"sha256:{blob.name}"] = blob.read_bytes()
    held.manifests[REPOSITORY, digest] = content, kinds.manifest
    tag = tags.key_tag(said[tags.ID_LABEL], said[tags.KEY_LABEL])
    held.tags[REPOSITORY, tag] = digest
    return f"{held.address}/{REPOSITORY}:{tag}"


def rows(here: Intent, name: str, contents: bool = True) -> dict[str, verify_published.Row]:
    def known(said: Any) -> Any:
        return verify.known(here, said)

    report: Report = verify_published.inspect(here, name, "", contents, lambda _: None, (), known)
    return {row.check: row for row in report.rows}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand in for the engine: what a look into the published graft finds, and what its own check says."""
    said: dict[str, Any] = {"found": None, "checked": []}
    monkeypatch.setattr(verify_published, "_may_not_start", lambda *_: "")
    monkeypatch.setattr(look, "look", lambda *_: said["found"])
    monkeypatch.setattr(build, "check", lambda *words: said["checked"].append(words[1:]) or "passes")
    return said


def after(here: Intent, layers: int = 1) -> Found:
    """Return what a look finds in the graft: the image below, and layers on top."""
    one = recorded.recorded(here, ID)
    assert one
    own = {**one.found.config.environment, "HF_TOKEN": "hf_0123456789abcdefghij"}
    config = {"environment": own, "layers": [*one.found.config.layers, *(f"sha256:{n}" for n in range(layers))]}
    return one.found.model_copy(update={"config": one.found.config.model_copy(update=config)})


def test_contents_are_those_of_the_image_below_and_of_the_lock(
    intent: Intent, tmp_path: Path, held: Registry, looked: dict[str, Any]
) -> None:
    """The secret of the image, which is not in the record, does not count as a difference."""
    here, one = grafted(intent, tmp_path)
    name = published(held, tmp_path, labels(one))
    looked["found"] = after(here)
    found = rows(here, name)
    assert [found[check].state for check in ("tags", "media types", "contents")] == ["passed"] * 3, found
    assert "trainwright-check passed" in found["contents"].detail
    assert looked["checked"][0][0] == ID
    assert looked["checked"][0][1].startswith(f"{held.address}/{REPOSITORY}@sha256:")
    changed = looked["found"].config.model_copy(update={"user": "1234"})
    looked["found"] = looked["found"].model_copy(update={"config": changed})
    row = rows(here, name)["contents"]
    assert (row.state, "user was" in row.detail) == ("failed", True)


@pytest.mark.parametrize("other", [{tags.KEY_LABEL: "1" * 64}, {tags.ID_LABEL: "pytorch-2.13-cpu-py311-ec2-nobody"}])
def test_a_graft_of_others_is_not_compared(
    intent: Intent, tmp_path: Path, held: Registry, looked: dict[str, Any], other: dict[str, str]
) -> None:
    here, one = grafted(intent, tmp_path)
    found = rows(here, published(held, tmp_path, labels(one, **other)))
    assert [found[check].state for check in ("tags", "media types")] == ["passed"] * 2
    assert found["contents"].state == "not run"
    why = "the image has 111111111111" if tags.KEY_LABEL in other else "this checkout did not graft"
    assert why in found["contents"].detail


def test_without_its_lock_it_is_not_compared(
    intent: Intent, tmp_path: Path, held: Registry, looked: dict[str, Any]
) -> None:
    here, one = grafted(intent, tmp_path)
    (tmp_path / "out" / ID / "graft.lock.toml").unlink()
    row = rows(here, published(held, tmp_path, labels(one)))["contents"]
    assert (row.state, "missing or stale" in row.detail) == ("not run", True)


def test_layers_of_zstd_make_no_twin_of_it(intent: Intent, tmp_path: Path, held: Registry) -> None:
    """A graft has them where the image below has; it is of the tag of its key, and a twin is of another one."""
    here, one = grafted(intent, tmp_path)
    other = labels(one, **{tags.KEY_LABEL: "1" * 64})  # of another checkout
    found = rows(here, published(held, tmp_path, other, zstd_twin.KINDS), contents=False)
    assert "twin" not in found
    assert [found[check].state for check in ("tags", "media types")] == ["passed"] * 2, found
    assert "which SageMaker does not pull" in found["media types"].detail
    row = rows(here, published(held, tmp_path / "own", labels(one), zstd_twin.KINDS), contents=False)["media types"]
    assert row.state == "failed"  # because the image below, as it was recorded, has none
    for_sagemaker = labels(one, **{tags.ID_LABEL: "pytorch-2.13-cpu-py311-sagemaker-team"})
    row = rows(here, published(held, tmp_path / "sm", for_sagemaker, zstd_twin.KINDS), contents=False)["media types"]
    assert row.state == "failed"


def test_an_image_without_a_grafts_label_is_not_known_as_one(intent: Intent) -> None:
    assert verify.known(intent, {tags.ID_LABEL: ID, tags.KEY_LABEL: "1" * 64}) is None


def bill(one: recorded.Recorded, made: Graft, **changes: str) -> dict[str, Any]:
    """Return an SBOM of everything in the image; `changes` are versions, "" leaves a package out."""
    inside, python = one.found.inside, one.found.python
    assert inside
    assert python
    packages = [("deb", name, version) for name, version in inside.packages.items()]
    packages += [("pypi", name, version) for name, version in python.packages.items()]
    packages += [("pypi", "of-another-tool", "1")]
    rows = [(kind, name, changes.get(name, version)) for kind, name, version in packages]
    return {
        "metadata": {"component": {"version": "sha256:1"}},
        "components": [
            {"name": name, "version": version, "purl": f"pkg:{kind}/{name}@{version}"}
            for kind, name, version in rows
            if version
        ],
    }


def test_its_sbom_lists_both_parts(intent: Intent, tmp_path: Path) -> None:
    here, _ = grafted(intent, tmp_path)
    one = recorded.recorded(here, ID)
    assert one
    made = recorded.inputs(here, one)
    assert verify.bill_differences(one, made, bill(one, made), "sha256:1") == []
    assert "it is about sha256:1" in verify.bill_differences(one, made, bill(one, made), "sha256:2")[0]
    for changes, told in (
        ({"numpy": "0.1"}, "Python package numpy: the graft has 2.4.6, the SBOM 0.1"),
        ({"libc6": ""}, "distribution package libc6"),
    ):
        (said,) = verify.bill_differences(one, made, bill(one, made, **changes), "sha256:1")
        assert said.startswith(told)


def test_a_twin_is_left_out_where_the_registry_takes_none(
    intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainwright.publish import twins
    from trainwright.registry.settings import Place

    here, one = grafted(intent, tmp_path)
    result = results.read_result(here.root / "out" / ID)
    assert result
    place = Place(host="registry.example.com", path="trainwright/pytorch")
    words = (edited(unchanged), one, result, place)

    def refuses(*_: object) -> str:
        raise twins.NotTaken("none", why="its layers are of zstd")

    monkeypatch.setattr(twins, "publish", lambda *_: "sha256:2")
    assert build.twin(*words, False, lambda _: None) == ""
    assert build.twin(*words, None, lambda _: None) == f"{place.repository}@sha256:2"
    monkeypatch.setattr(twins, "publish", refuses)
    assert build.twin(*words, None, lambda _: None) == "none: its layers are of zstd"
    with pytest.raises(twins.NotTaken):
        build.twin(*words, True, lambda _: None)
    compressed = edited(config(media_types=["application/vnd.oci.image.layer.v1.tar+zstd"]))
    assert "zstd already" in build.twin(compressed, *words[1:], True, lambda _: None)


def test_a_check_that_does_not_start_says_what_mends_it(intent: Intent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "ask", lambda *_: ("", "unable to find user nobody-here"))
    with pytest.raises(BuildError, match="as the user nobody-here") as error:
        build.check(intent, ID, "team:1", "nobody-here")
    assert (error.value.where, error.value.why) == ("team:1", "unable to find user nobody-here")
    assert "with a USER that its /etc/passwd has" in error.value.fix


def test_a_check_that_fails_is_a_failure(
    intent: Intent, tmp_path: Path, held: Registry, looked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, one = grafted(intent, tmp_path)
    looked["found"] = after(here)

    def fails(*_: object) -> str:
        raise BuildError("trainwright-check fails")

    monkeypatch.setattr(build, "check", fails)
    assert rows(here, published(held, tmp_path, labels(one)))["contents"].state == "failed"
