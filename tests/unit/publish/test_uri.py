"""Test the lookup of an image's address: in local files, in the registry, and in a release record."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from registries import MANIFEST, Registry, digest_of, serving

from trainwright.build import state
from trainwright.docker import zstd_twin
from trainwright.image import inputs, tags
from trainwright.matrix.matrix import load_intent
from trainwright.matrix.records import Image
from trainwright.publish import release_records, uri

Cli = Callable[..., Any]
ID = "pytorch-2.13-cpu-py311-sagemaker"
BELOW = "trainwright/pytorch"
HERE, THERE = (f"111122223333.dkr.ecr.{region}.amazonaws.com/{BELOW}" for region in ("us-east-1", "eu-west-1"))
DIGEST = "sha256:" + "a" * 64


def found(root: Path) -> inputs.Inputs:
    intent = load_intent(root)
    return inputs.load(intent.recipe(ID))


def written(root: Path, *repositories: str, key: str = "") -> str:
    """Write image.json as the last push left it; return the tag of the image's key."""
    one = found(root)
    uris = [f"{repository}@{DIGEST}" for repository in repositories]
    image = Image(id=ID, key=key or one.key, digest=DIGEST, uri=uris[0], uris=uris, tags=[one.tag])
    state.write_image(root / "out" / ID, image)
    return one.tag


def test_what_the_last_push_wrote_down_and_nobody_is_asked(cli: Cli, tree: Path) -> None:
    tag = written(tree, HERE, THERE)
    ended = cli(tree, "uri", ID)
    assert (ended.code, ended.out, ended.err) == (0, f"{HERE}:{tag}\n{THERE}:{tag}\n", "")
    assert cli(tree, "uri", ID, "--digest", "--region", "eu-west-1").out == f"{THERE}@{DIGEST}\n"
    said = json.loads(cli(tree, "uri", ID, "--json").out)
    assert [(row["region"], row["digest"]) for row in said["uris"]] == [("us-east-1", DIGEST), ("eu-west-1", DIGEST)]
    assert said["notes"] == []


def test_what_was_published_with_other_inputs_is_not_this_image(cli: Cli, tree: Path) -> None:
    written(tree, HERE, key="b" * 64)
    ended = cli(tree, "uri", ID)
    assert (ended.code, ended.out) == (7, "")
    assert "changed after it was published" in ended.err
    assert f"make build push ONLY={ID}" in ended.err


def test_a_registry_is_asked_and_sagemaker_takes_nothing_from_it(cli: Cli, tree: Path) -> None:
    with serving() as held:
        ended = cli(tree, "uri", ID, "--registry", held.address)
        assert (ended.code, ended.out) == (7, "")
        assert f"{ID} is not published with its present inputs" in ended.err
        assert f"make build push ONLY={ID} REGISTRY={held.address}" in ended.err
        digest, tag = hold(held, found(tree).tag)
        ended = cli(tree, "uri", ID, "--registry", held.address)
        assert ended.out == f"{held.address}/{BELOW}:{tag}\n"
        assert f"not from {held.address}: make push REGISTRY=ecr" in ended.err
        assert cli(tree, "uri", ID, "--registry", held.address, "--digest").out == f"{held.address}/{BELOW}@{digest}\n"


def hold(held: Registry, tag: str, content: bytes = b'{"a": 1}') -> tuple[str, str]:
    digest = digest_of(content)
    held.manifests[BELOW, digest] = content, MANIFEST
    held.tags[BELOW, tag] = digest
    return digest, tag


def test_as_it_went_out_under_a_release(cli: Cli, tree: Path) -> None:
    with serving() as held:
        digest, tag = hold(held, tags.release_tag(ID, "2026.11.0"))
        shipped = release_records.Shipped(key="c" * 64, digest=digest, repository=BELOW)
        record = release_records.Train(name="2026.11.0", date="2026-11-20", commit="d" * 40, images={ID: shipped})
        (tree / release_records.FOLDER).mkdir(exist_ok=True)
        (tree / release_records.FOLDER / "2026.11.0.toml").write_text(release_records.dump(record))
        words = ["--registry", held.address, "--release", "2026.11.0"]
        assert cli(tree, "uri", ID, *words).out == f"{held.address}/{BELOW}:{tag}\n"
        other = cli(tree, "uri", "tensorflow-2.21-cpu-py313-sagemaker", *words)
        assert (other.code, other.out) == (2, "")
        assert "is not in 2026.11.0" in other.err
        hold(held, tag, b'{"a": 2}')
        moved = cli(tree, "uri", ID, *words)
        assert (moved.code, moved.out) == (8, "")
        assert "is not what was released" in moved.err
        del held.tags[BELOW, tag]
        gone = cli(tree, "uri", ID, *words)
        assert (gone.code, gone.out) == (7, "")
        assert f"trainwright release 2026.11.0 {ID}" in gone.err
    assert "did you mean '2026.11.0'" in cli(tree, "uri", ID, "--release", "2026.11.1").err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["pytorch-2.13-cpu-py311-sagemakr"], 2, f"did you mean '{ID}'"),
        ([ID, "--release", "2026.11"], 2, "is not a release name"),
        (["pytorch-2.5-cu124-py311-sagemaker-smddp"], 7, "is blocked, so it cannot be published"),
        ([ID, "--registry", "127.0.0.1:1"], 8, "cannot be read"),
        ([ID], 8, "make registry"),
        ([ID, "--registry", "ECR"], 2, "did you mean 'ecr'"),
        ([ID, "--region", "us-east-1", "--registry", "registry.example.com"], 2, "is not an Amazon ECR registry"),
        ([ID, "--instance", "p5.48xlarg"], 2, "did you mean 'p5.48xlarge'"),
    ],
)
def test_one_error_and_the_fix(
    cli: Cli, tree: Path, edit: Callable[[Path, str, str], None], words: list[str], code: int, said: str
) -> None:
    edit(tree / "dockerfiles/publish.toml", "^attempts = 6", "attempts = 1")
    ended = cli(tree, "uri", *words)
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert said in ended.err
    assert "fix:" in ended.err


def test_which_image_a_uri_names(tree: Path) -> None:
    intent = load_intent(tree)
    tag = written(tree, HERE)
    for named in (f"{HERE}:{tag}", f"{HERE}@{DIGEST}", f"{HERE}:{ID}-2026.11.0", f"{HERE}:{ID}-latest"):
        assert uri.identity_of(tree, intent, named) == ID
    for other in (f"{HERE}:{ID}-with-team-0123456789ab", f"{HERE}@sha256:{'e' * 64}", f"{HERE}:latest", HERE):
        assert uri.identity_of(tree, intent, other) == ""


def test_the_zstd_twin_by_tag_and_by_digest(cli: Cli, tree: Path) -> None:
    with serving() as held:
        config = {"digest": DIGEST, "size": 1}
        manifest = {"mediaType": MANIFEST, "config": config, "layers": []}
        digest, tag = hold(held, found(tree).tag, json.dumps(manifest).encode())
        words = ("uri", ID, "--registry", held.address, "--zstd")
        ended = cli(tree, *words)
        assert (ended.code, ended.out) == (7, "")
        assert f"{ID} has no zstd twin" in ended.err
        assert f"trainwright push {ID} --twin" in ended.err
        twin = json.dumps({**manifest, "mediaType": zstd_twin.KINDS.manifest}).encode()
        hold(held, f"{tag}-zstd", twin)
        assert cli(tree, *words).out == f"{held.address}/{BELOW}:{tag}-zstd\n"
        assert cli(tree, *words, "--digest").out == f"{held.address}/{BELOW}@{digest_of(twin)}\n"
        assert cli(tree, *words[:-1], "--gzip", "--digest").out == f"{held.address}/{BELOW}@{digest}\n"
        hold(held, f"{tag}-zstd", json.dumps({**manifest, "config": {**config, "digest": DIGEST[:-1] + "b"}}).encode())
        ended = cli(tree, *words)
        assert (ended.code, ended.out) == (8, "")
        assert f"{tag}-zstd is not the zstd twin of {digest}" in ended.err


def test_sagemaker_gets_no_zstd_twin(cli: Cli, tree: Path) -> None:
    written(tree, HERE)
    ended = cli(tree, "uri", ID, "--zstd", "--instance", "ml.m5.xlarge")
    assert (ended.code, ended.out) == (2, "")
    assert "SageMaker pulls no zstd twin" in ended.err
