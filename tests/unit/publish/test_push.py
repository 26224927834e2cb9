"""Test `push --dry-run`: every step in its order, with and without a built image, and all errors of a real push."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from registries import MANIFEST, Registry, digest_of, serving

from trainwright.build import proof_code, state
from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.records import Check, Image, Proof
from trainwright.publish import attest as publish_attest
from trainwright.publish import sign, sign_probed
from trainwright.registry.settings import Place

CPU, GPU = "pytorch-2.13-cpu-py311-ec2", "pytorch-2.15-cu132-py313-ec2"
DIGEST, OTHER = "sha256:" + "d" * 64, "sha256:" + "e" * 64
Edit = Callable[[Path, str, str], None]


@pytest.fixture
def held(tree: Path, edit: Edit) -> Iterator[Registry]:
    edit(tree / "dockerfiles/publish.toml", '^required = "release"', 'required = "never"')
    with serving() as found:
        yield found


@pytest.fixture
def dry(cli: Any, tree: Path, held: Registry) -> Callable[..., Any]:
    return lambda *words: cli(tree, "push", "--dry-run", "--registry", held.address, *words)


def built(monkeypatch: pytest.MonkeyPatch, digest: str | None) -> None:
    monkeypatch.setattr(engine, "image_id", lambda _: digest)


def order(text: str, *parts: str) -> None:
    places = [text.index(part) for part in parts]
    assert places == sorted(places), parts


def test_what_is_not_built_is_shown_to_its_end(
    dry: Callable[..., Any], held: Registry, monkeypatch: pytest.MonkeyPatch, tree: Path
) -> None:
    built(monkeypatch, None)
    ended = dry(CPU, "--release", "1.0")
    assert ended.code == 7
    order(
        ended.out,
        f"1. build: the image is not built: trainwright build {CPU}",
        f"repository: {held.address}/trainwright/pytorch",
        "push by digest",
        "verify in ",
        "prove: ",
        "scan: not run: ",
        "sign image, SBOM and provenance: not run: no signing key",
        f". tag {CPU}-",
        f". tag 1.0 in {held.address}",
    )
    assert f"{CPU} is not built with its present inputs" in ended.err
    assert f"trainwright build {CPU}\n" in ended.err
    assert not (tree / "out" / CPU).exists()
    assert {request.split()[0] for request in held.asked} == {"GET"}


def test_what_is_built_and_tested(dry: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    built(monkeypatch, DIGEST)
    (plain,) = json.loads(dry(CPU, "--json").out)
    assert [step for step in plain["steps"] if "probe and image tests run on it" in step]
    recipe = load_intent(tree).recipe(CPU)
    tests = Check(state="passed", detail="85 tests", code=proof_code.digest_of(recipe, "image"))
    passed = Check(state="passed")

    def steps(tests: Check) -> list[str]:
        image = Image(id=CPU, key=plain["key"], proof=Proof(image=DIGEST, probe=passed, tests=tests))
        state.write_image(state.out_folder(recipe), image)
        ended = dry(CPU, "--json")
        (row,) = json.loads(ended.out)
        assert (ended.code, row["action"]) == (0, "would push")
        told: list[str] = row["steps"]
        return told

    told = steps(tests)
    assert told[0] == f"build: the engine holds it, {DIGEST}"
    assert [step for step in told if "85 tests passed on it" in step]
    assert [step for step in told if step.startswith(f"push by digest: {DIGEST} to ")]
    told = steps(tests.model_copy(update={"code": "of other tests"}))  # the push runs the present ones
    assert [step for step in told if "it is probed; image tests run on it" in step]


def test_without_an_engine_nobody_knows_whether_it_is_built(dry: Callable[..., Any]) -> None:
    ended = dry(CPU, "--json")
    assert ended.code == 10
    assert json.loads(ended.out)[0]["steps"]


def test_what_is_published_has_no_steps_but_those_of_its_release(
    dry: Callable[..., Any], held: Registry, tree: Path
) -> None:
    intent = load_intent(tree)
    found = inputs.load(intent.recipe(CPU))
    held.manifests["trainwright/pytorch", digest_of(b"{}")] = b"{}", MANIFEST
    held.tags["trainwright/pytorch", found.tag] = digest_of(b"{}")
    # No engine is there, and none is asked.
    (row,) = json.loads(dry(CPU, "--json").out)
    assert (row["action"], "steps" in row) == ("skip", False)
    ended = dry(CPU, "--release", "1.0", "--json")
    (row,) = json.loads(ended.out)
    assert (ended.code, row["action"]) == (0, "would tag")
    assert [step.split()[0] for step in row["steps"]] == ["sign", "tag", "no"]


class Signer:
    """Stand-ins for registries with one image, an engine that pulls and probes it, and a key; they record all calls."""

    def __init__(self, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.intent = load_intent(tree)
        self.found = inputs.load(Recipe(self.intent, next(one for one in self.intent.variants if one.id == CPU)))
        self.content = json.dumps({"config": {"digest": DIGEST, "size": 1}, "layers": []}).encode()
        self.digest, self.probed, self.key = digest_of(self.content), digest_of(self.content), "our.key"
        self.steps, self.signed = list[str](), set[tuple[str, str]]()
        monkeypatch.setattr(publish_attest, "signing_key", lambda: self.key)
        monkeypatch.setattr(publish_attest, "must_be_possible", lambda *_: None)
        monkeypatch.setattr(sign, "public_key", lambda key: f"public half of {key}")
        monkeypatch.setattr(publish_attest, "lacking", self.lacking)
        monkeypatch.setattr(publish_attest, "attest", self.attest)
        monkeypatch.setattr(engine, "image_id", lambda _: OTHER)
        monkeypatch.setattr(engine, "pull", lambda uri, *_: self.steps.append(f"pull {uri.rpartition('@')[2]}"))
        monkeypatch.setattr(sign_probed, "proved", self.prove)

    def hold(self, held: Registry) -> None:
        held.manifests["trainwright/pytorch", self.digest] = self.content, MANIFEST
        held.tags["trainwright/pytorch", self.found.tag] = self.digest

    def lacking(self, *words: Any) -> list[str]:
        self.steps.append("ask")
        return [] if (self.key, words[1]) in self.signed else ["SBOM", "image"]

    def prove(self, found: Any, out: Path) -> Image:
        self.steps.append("probe")
        passed, none = Check(state="passed"), Check(state="not run")
        proof = Proof(image=self.probed, probe=passed, tests=none)
        image = state.known_image(found, out).model_copy(update={"proof": proof})
        state.write_image(out, image)
        return image

    def attest(self, *words: Any) -> publish_attest.Attested:
        self.steps.append("sign")
        self.signed.add((self.key, words[1]))
        passed = Check(state="passed")
        return publish_attest.Attested(sbom=passed, provenance=passed, signature=passed)


@pytest.fixture
def signer(tree: Path, held: Registry, monkeypatch: pytest.MonkeyPatch) -> Signer:
    made = Signer(tree, monkeypatch)
    made.hold(held)
    return made


def test_a_push_with_a_key_probes_and_signs_what_is_published(
    dry: Callable[..., Any], cli: Any, held: Registry, tree: Path, signer: Signer
) -> None:
    """Published unsigned, perhaps by another checkout; once for each key and place, as image.json says afterwards."""
    first = "; it is pulled and probed here first"
    (row,) = json.loads(dry(CPU, "--json").out)
    assert (row["action"], row["steps"]) == ("would sign", [f"sign what is published: SBOM, image: by our.key{first}"])
    assert signer.steps == ["ask"]

    def push(*more: Registry) -> tuple[str, list[str]]:
        signer.steps.clear()
        address = (more or (held,))[0].address
        (row,) = json.loads(cli(tree, "push", "--registry", address, CPU, "--json").out)
        assert row["proof"]["signature"]["state"] == "passed"
        return row["action"], signer.steps

    assert push() == ("signed", ["ask", "ask", f"pull {signer.digest}", "probe", "sign"])
    assert push() == ("skip", [])
    signer.key = "another.key"
    assert push() == ("signed", ["ask", "sign"])
    with serving() as second:
        signer.hold(second)
        assert push(second) == ("signed", ["ask", "sign"])
        assert push(second) == ("skip", [])


@pytest.mark.parametrize(
    ("image", "code", "said"), [(GPU, 7, "the gate"), (CPU, 8, "a release tag is immutable")], ids=["gate", "taken"]
)
def test_a_published_image_is_released_by_its_gate_and_under_a_free_tag(
    cli: Any, held: Registry, tree: Path, monkeypatch: pytest.MonkeyPatch, image: str, code: int, said: str
) -> None:
    """The real push checks it, too: nothing is tagged."""
    built(monkeypatch, OTHER)
    found = inputs.load(load_intent(tree).recipe(image))
    for tag, content in ((found.tag, b"{}"), ("1.0" if image == CPU else "0.9", b'{"a": 1}')):
        held.manifests["trainwright/pytorch", digest_of(content)] = content, MANIFEST
        held.tags["trainwright/pytorch", tag] = digest_of(content)
    before = dict(held.tags)
    ended = cli(tree, "push", "--registry", held.address, image, "--release", "1.0")
    assert (ended.code, held.tags) == (code, before), ended.err
    assert said in ended.err


@pytest.mark.parametrize("release", [[], ["--release", "1.0"]])
def test_what_is_probed_as_another_image_is_not_signed(
    cli: Any, held: Registry, tree: Path, signer: Signer, release: list[str]
) -> None:
    """The tag of the key names what whoever may push has put there; packed anew, it is something else."""
    signer.probed = OTHER
    ended = cli(tree, "push", "--registry", held.address, CPU, *release)
    assert ended.code == 8
    assert "in the registry is not the image that was probed; it was not signed" in ended.err
    assert (signer.signed, "1.0" in {tag for _, tag in held.tags}) == (set(), False)


def test_all_that_would_end_it_comes_after_the_steps(
    dry: Callable[..., Any], held: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(monkeypatch, None)
    held.manifests["trainwright/pytorch", digest_of(b"{}")] = b"{}", MANIFEST
    held.tags["trainwright/pytorch", "1.0"] = digest_of(b"{}")
    ended = dry(GPU, "--release", "1.0", "--json")
    error = json.loads(ended.err.splitlines()[-1])
    assert [row["exit_code"] for row in error["refusals"]] == [7, 8, 7]  # not built, the tag is taken, no gate
    assert ended.code == 8
    assert "gate" in error["refusals"][2]["error"]
    assert json.loads(ended.out)[0]["steps"]


def test_what_needs_no_registry_comes_after_the_steps_too(
    dry: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tree: Path, edit: Edit
) -> None:
    """As the shipped publish.toml has it, without a key; and a name and a filter that are wrong."""
    built(monkeypatch, DIGEST)
    edit(tree / "dockerfiles/publish.toml", '^required = "never"', 'required = "release"')
    ended = dry(CPU, "--release", "1.0", "--json")
    assert ended.code == 7
    assert "a release requires a signature" in json.loads(ended.err.splitlines()[-1])["error"]
    assert json.loads(ended.out)[0]["steps"]
    edit(tree / "dockerfiles/publish.toml", "^moving = .*", 'moving = ["sha256-*", "cache-*"]')
    ended = dry(CPU, "--release", "cache-1", "--json")
    said = [row["error"] for row in json.loads(ended.err.splitlines()[-1])["refusals"]]
    for part in ("is a tag that may move", "a release requires a signature", "has wrong patterns for the tag"):
        assert [what for what in said if part in what], part
    assert (ended.code, len(said)) == (2, 3)
    assert json.loads(ended.out)[0]["steps"]


def test_an_image_of_one_place_goes_to_the_other_by_way_of_the_engine(
    dry: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test that the dry run asks for the engine, without which the push would end."""
    here, there = Place(host="a.example", path="x"), Place(host="b.example", path="x")
    monkeypatch.setattr(state, "published", lambda *_: {CPU: {here: DIGEST, there: ""}})
    ended = dry(CPU, "--json", "--no-twin")  # which would ask the first place for its twin
    assert ended.code == 10
    assert f"the engine holds {DIGEST}, or pulls it from {here}" in json.loads(ended.out)[0]["steps"][0]
    assert "no Docker engine answers" in json.loads(ended.err.splitlines()[-1])["error"]


def test_places_that_disagree_leave_the_other_rows(
    dry: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tree: Path
) -> None:
    def published(intent: Any, found: Any, *_: str) -> Any:
        here, there = Place(host="a.example", path="x"), Place(host="b.example", path="x")
        return {
            one.variant.id: dict.fromkeys((here, there), "") if one.variant.id == CPU else {here: DIGEST, there: OTHER}
            for one in found
        }

    built(monkeypatch, DIGEST)
    monkeypatch.setattr(state, "published", published)
    ended = dry("pytorch-2.13-cpu-py311-*", "--json", "--no-twin")
    rows = {row["id"]: row for row in json.loads(ended.out)}
    assert ended.code == 8
    assert "points to different images" in ended.err
    assert rows[CPU]["steps"]
    assert rows["pytorch-2.13-cpu-py311-sagemaker"]["action"] == "refused"
