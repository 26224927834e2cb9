"""Test a release to several registries: all errors are reported together, before anything is written."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commits import begin
from registries import MANIFEST, Registry, digest_of, serving

from trainwright.build import state as build_state
from trainwright.core import errors
from trainwright.core.errors import IncompatibleError, NotRunError, Refusals, RegistryError, TrainwrightError
from trainwright.docker import engine, zstd_twin
from trainwright.image import inputs
from trainwright.image import tags as image_tags
from trainwright.matrix.matrix import Recipe, load_intent
from trainwright.matrix.records import Check, Image, Proof
from trainwright.publish import attest as publish_attest
from trainwright.publish import release as publish_release
from trainwright.publish import release_records, sign_probed
from trainwright.registry import retry

ID, OTHER = "pytorch-2.13-cpu-py311-ec2", "pytorch-2.13-cpu-py311-sagemaker"
GPU, SINGLE = "pytorch-2.15-cu132-py313-ec2", "pytorch-2.15-cu132-py313-ec2-single-node"
NAME, REPOSITORY = "2026.11.0", "trainwright/pytorch"
Edit = Callable[[Path, str, str], None]


@pytest.fixture
def here(tree: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a clean checkout that requires no signature and does not wait for a registry."""
    edit(tree / "dockerfiles/publish.toml", '^required = "release"', 'required = "never"')
    edit(tree / "dockerfiles/publish.toml", "^attempts = 6", "attempts = 1")
    (tree / ".gitignore").write_text("/out/\n")
    begin(tree)
    monkeypatch.chdir(tree)
    return tree


@pytest.fixture
def two() -> Iterator[tuple[Registry, Registry]]:
    with serving() as one, serving() as other:
        yield one, other


def hold(held: Registry, identity: str, content: bytes = b'{"a": 1}') -> str:
    """Put an image under its present key; return its digest."""
    intent = load_intent(Path.cwd())
    found = inputs.load(intent.recipe(identity))
    digest = digest_of(content)
    held.manifests[REPOSITORY, digest] = content, MANIFEST
    held.tags[REPOSITORY, found.tag] = digest
    return digest


def release(held: tuple[Registry, ...], *identities: str, name: str = NAME) -> list[publish_release.Step]:
    intent = load_intent(Path.cwd())
    recipes = [recipe for recipe in intent.recipes if recipe.id in (identities or (ID,))]
    return publish_release.release(intent, recipes, name, [one.address for one in held], False, lambda _: None)


def tags(held: Registry) -> dict[str, str]:
    """Map all tags except key tags to their digests."""
    return {tag: digest for (_, tag), digest in held.tags.items() if tag.endswith((NAME, "-latest"))}


def refused(held: tuple[Registry, ...], *identities: str, name: str = NAME) -> TrainwrightError:
    before = [dict(one.tags) for one in held]
    with pytest.raises(TrainwrightError) as raised:
        release(held, *identities, name=name)
    assert [one.tags for one in held] == before
    assert list(Path("dockerfiles/releases").glob("*.toml")) == []
    return raised.value


def test_tags_and_alias_in_each_of_them(here: Path, two: tuple[Registry, Registry]) -> None:
    digest = {hold(one, ID) for one in two}.pop()
    rows = release(two)
    assert [(row.registry, row.action) for row in rows] == [(one.address, "released") for one in two]
    for one in two:
        assert tags(one) == {f"{ID}-{NAME}": digest, f"{ID}-latest": digest}
    rows = publish_release.rollback(here, NAME, "*", [one.address for one in two], False)
    assert [row.action for row in rows] == ["stays", "stays"]


CONFIG = {"mediaType": zstd_twin.KINDS.config, "digest": f"sha256:{'c' * 64}", "size": 1}


def hold_with_twin(held: Registry, name: str = "c") -> tuple[str, str]:
    """Put an image and its zstd twin under its present key; return both digests."""
    config, of = {**CONFIG, "digest": f"sha256:{name * 64}"}, f"sha256:{name * 64}"
    digest = hold(held, ID, json.dumps({"config": config, "layers": [{"digest": of, "size": 1}]}).encode())
    layer = {"mediaType": zstd_twin.LAYER, "digest": of, "size": 1}
    kind = zstd_twin.KINDS.manifest
    content = json.dumps({"mediaType": kind, "config": config, "layers": [layer]}).encode()
    held.manifests[REPOSITORY, digest_of(content)] = content, kind
    held.tags[REPOSITORY, f"{inputs.load(load_intent(Path.cwd()).recipe(ID)).tag}-zstd"] = digest_of(content)
    held.blobs[REPOSITORY, of] = b"x"  # without it, the registry takes no manifest that names it
    return digest, digest_of(content)


def test_a_twin_gets_the_same_tags_and_follows_the_alias(
    here: Path, two: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = list[str]()
    monkeypatch.setattr(publish_attest, "sign_twin", lambda _, __, digest, ___: signed.append(digest))
    digest, twin = {hold_with_twin(one) for one in two}.pop()
    rows = release(two)
    assert all(row.why.endswith("its zstd twin too") for row in rows)
    assert signed == [twin, twin]
    for one in two:
        assert {tag: held for (_, tag), held in one.tags.items() if NAME in tag or "latest" in tag} == {
            f"{ID}-{NAME}": digest,
            f"{ID}-latest": digest,
            f"{ID}-{NAME}-zstd": twin,
            f"{ID}-zstd-latest": twin,
        }
        one.tags[REPOSITORY, f"{ID}-zstd-latest"] = "sha256:of-a-later-release"
    rows = publish_release.rollback(here, NAME, "*", [one.address for one in two], False)
    assert [row.action for row in rows] == ["moved", "moved"]
    assert {one.tags[REPOSITORY, f"{ID}-zstd-latest"] for one in two} == {twin}


def test_a_release_without_a_twin_leaves_no_stale_alias_of_one(here: Path, two: tuple[Registry, Registry]) -> None:
    hold(two[0], ID)
    hold(two[1], ID)
    two[1].manifests[REPOSITORY, digest_of(b"{}")] = b"{}", MANIFEST
    two[1].tags[REPOSITORY, f"{ID}-zstd-latest"] = digest_of(b"{}")
    error = refused(two)
    assert isinstance(error, NotRunError)
    assert "has no zstd twin, but the alias of its twin exists" in error.what
    assert error.fix.startswith(f"trainwright push {ID} --twin")
    del two[1].tags[REPOSITORY, f"{ID}-zstd-latest"]
    release(two)
    two[0].manifests[REPOSITORY, digest_of(b"{}")] = b"{}", MANIFEST
    two[0].tags[REPOSITORY, f"{ID}-zstd-latest"] = digest_of(b"{}")
    before = dict(two[0].tags)
    with pytest.raises(NotRunError, match="the alias of its twin exists"):
        publish_release.rollback(here, NAME, "*", [two[0].address], False)
    assert two[0].tags == before


def test_a_twin_of_another_image_is_not_released(here: Path, two: tuple[Registry, Registry]) -> None:
    hold_with_twin(two[0])
    hold(two[0], ID, json.dumps({"config": {**CONFIG, "digest": f"sha256:{'e' * 64}"}, "layers": []}).encode())
    error = refused(two[:1])
    assert isinstance(error, RegistryError)
    assert "is not the zstd twin of" in error.what


def test_a_dry_run_has_the_steps_of_the_real_one(
    here: Path, two: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an image that another checkout published unsigned: signed first, whoever made it, and said beforehand."""
    digest = {hold(one, ID) for one in two}.pop()
    done, lacks = list[str](), {one.address: ["SBOM", "image"] for one in two}

    def attest(*words: Any) -> None:
        done.append(words[1].partition("/")[0])
        lacks[done[-1]] = []

    def prove(found: inputs.Inputs, out: Path) -> Image:
        done.append("probed")
        passed = Check(state="passed")
        image = Image(id=ID, key=found.key, proof=Proof(image=digest, probe=passed, tests=passed))
        build_state.write_image(out, image)
        return image

    monkeypatch.setattr(publish_attest, "must_be_possible", lambda *_: None)
    monkeypatch.setattr(publish_attest, "lacking", lambda *words: lacks[words[1].partition("/")[0]])
    monkeypatch.setattr(publish_attest, "attest", attest)
    monkeypatch.setattr(engine, "image_id", lambda _: digest)
    monkeypatch.setattr(sign_probed, "proved", prove)
    intent = load_intent(here)
    recipes, places = [intent.recipe(ID)], [one.address for one in two]

    def steps(dry_run: bool) -> list[tuple[str, str, str]]:
        rows = publish_release.release(intent, recipes, NAME, places, dry_run, lambda _: None)
        return [(row.registry, row.action, row.why.partition("; the alias")[0]) for row in rows]

    told = steps(True)
    assert done == []
    assert [action for _, action, _ in told] == ["would sign"] * 2 + ["would release"] * 2
    assert told[0][2] == "not signed by the key yet: SBOM, image; it is pulled and probed here first"
    real = steps(False)
    assert [(place, action.replace("would release", "released"), why) for place, action, why in told[2:]] == real[2:]
    assert [(place, action, why) for place, action, why in real[:2]] == [(p, "signed", w) for p, _, w in told[:2]]
    assert done == ["probed", *places]
    assert [action for _, action, _ in steps(False)] == ["released"] * 2  # nothing is signed twice


def test_no_alias_moves_before_all_of_them_have_the_tag(here: Path, two: tuple[Registry, Registry]) -> None:
    """Broken off in the second one: the same command completes it."""
    for one in two:
        hold(one, ID)
    two[1].fail(f"PUT .*/manifests/{ID}-{NAME}", 403, text="DENIED: no")
    with pytest.raises(RegistryError, match="could not be tagged"):
        release(two)
    assert [list(tags(one)) for one in two] == [[f"{ID}-{NAME}"], []]
    assert not (here / f"dockerfiles/releases/{NAME}.toml").exists()
    release(two)
    assert [len(tags(one)) for one in two] == [2, 2]
    assert image_tags.release_tag(ID, NAME) in tags(two[1])


def test_another_image_in_one_of_them(here: Path, two: tuple[Registry, Registry]) -> None:
    digests = hold(two[0], ID), hold(two[1], ID, b'{"a": 2}')
    error = refused(two)
    assert "differs between registries" in error.what
    assert all(digest in error.why for digest in digests)
    assert error.where.startswith(two[1].address)


def test_one_that_lacks_it(here: Path, two: tuple[Registry, Registry]) -> None:
    hold(two[0], ID)
    error = refused(two)
    assert isinstance(error, NotRunError)
    assert error.where.startswith(two[1].address)


def test_a_rollback_looks_everywhere_first(here: Path, two: tuple[Registry, Registry]) -> None:
    for one in two:
        hold(one, ID)
    release(two)
    two[1].tags[REPOSITORY, f"{ID}-{NAME}"] = digest_of(b"another")
    del two[0].tags[REPOSITORY, f"{ID}-latest"]
    with pytest.raises(RegistryError, match="no alias was moved"):
        publish_release.rollback(here, NAME, "*", [one.address for one in two], False)
    assert f"{ID}-latest" not in tags(two[0])


# --- all that refuses it -------------------------------------------------------------------------------------------


def test_all_refusals_at_once(here: Path, two: tuple[Registry, Registry], edit: Edit) -> None:
    """A tree with changes, an image that one place lacks, a tag that is taken, no key, and no train for a patch."""
    hold(two[0], ID)
    two[1].tags[REPOSITORY, f"{OTHER}-2026.11.1"] = hold(two[1], OTHER, b'{"a": 2}')
    hold(two[1], OTHER)
    edit(here / "dockerfiles/publish.toml", '^required = "never"', 'required = "release"')
    error = refused(two, ID, OTHER, name="2026.11.1")
    assert isinstance(error, Refusals)
    said = [(row.exit_code, row.what) for row in error.rows]
    for code, part in (
        (2, "the tree is not clean: dockerfiles/publish.toml"),
        (7, f"{ID} is not published"),
        (7, f"{OTHER} is not published"),
        (8, f"{OTHER} was already released as 2026.11.1"),
        (2, "2026.11.1 is a patch of the train 2026.11, which does not exist"),
        (7, "a release requires a signature"),
    ):
        assert [row for row in said if row[0] == code and part in row[1]], (part, said)
    assert len(said) == 6
    assert all(row.fix for row in error.rows)
    assert error.exit_code == 2


def test_the_command_line_says_each_with_its_fix(cli: Any, here: Path, two: tuple[Registry, Registry]) -> None:
    words = ("release", NAME, "pytorch-2.13-cpu-py311-*", "--registry", two[0].address)
    ended = cli(here, *words)
    assert (ended.code, ended.out) == (7, "")
    assert ended.err.count("fix: ") == 2
    for name in (ID, OTHER):
        assert f"trainwright push {name}\n" in ended.err
    error = json.loads(cli(here, *words, "--json").err.splitlines()[-1])
    assert (error["exit_code"], len(error["refusals"])) == (7, 2)
    assert error["error"] == f"nothing was released as {NAME}: 2 errors"


def test_a_registry_that_does_not_answer_is_asked_once(here: Path, two: tuple[Registry, Registry]) -> None:
    for identity in (ID, OTHER):
        hold(two[0], identity)
    two[1].fail("GET", 503, times=99)
    error = refused(two, ID, OTHER)
    assert isinstance(error, retry.Broken)
    assert two[1].count("GET") == 1


def test_one_that_holds_wrong_bytes_is_asked_on(here: Path, two: tuple[Registry, Registry]) -> None:
    digest = hold(two[0], ID)
    two[0].manifests[REPOSITORY, digest] = b"{}", MANIFEST
    error = refused(two[:1], ID, OTHER)
    assert isinstance(error, Refusals)
    assert [row.what.partition(" ")[0] for row in error.rows] == [f"{two[0].address}/{REPOSITORY}", OTHER]


@pytest.mark.parametrize("identity", [GPU, SINGLE])
def test_the_gate_of_what_is_not_published_is_said_at_once(
    cli: Any, here: Path, two: tuple[Registry, Registry], identity: str
) -> None:
    words = ("release", NAME, "--dry-run", identity, "--registry", two[0].address, "--json")

    def said(*more: str) -> list[dict[str, Any]]:
        error = json.loads(cli(here, *words, *more).err.splitlines()[-1])
        return list(error.get("refusals", [error]))

    unpublished, gate = said()
    assert "is not published" in unpublished["error"]
    assert "has not passed the gate" in gate["error"]
    assert ("trainwright gate" in gate["fix"]) == (identity == GPU)
    assert "--waive-gate 'NAME: REASON'" in gate["fix"]
    assert "who waives the gate" in said("--waive-gate", "yes")[1]["error"]
    assert len(said("--waive-gate", "Ann: no p5")) == 1


@pytest.mark.parametrize(
    ("gate", "state"),
    [
        ("2 x p5.48xlarge on 2026-11-21: all_reduce; 400 GB/s at most", "passed"),
        ("waived by Ann: no 2 x p5 free", "not run"),
        ("waived by 2 x Ann: no p5", "not run"),
        ("it has no NCCL: nothing to gate", "not run"),
    ],
)
def test_a_waiver_is_no_pass_whatever_it_says(here: Path, gate: str, state: str) -> None:
    intent, digest = load_intent(here), digest_of(b"x")
    variant = next(variant for variant in intent.variants if variant.id == ID)
    none, key = Check(state="not run"), "0" * 64
    out = build_state.out_folder(Recipe(intent, variant))
    build_state.write_image(
        out, Image(id=ID, key=key, digest=digest, proof=Proof(image=digest, probe=none, tests=none))
    )
    publish_release._note_gate(
        Recipe(intent, variant), release_records.Shipped(key=key, digest=digest, repository="x", gate=gate)
    )
    held = build_state.read_image(out)
    assert held
    assert held.proof
    assert (held.proof.gate.state, held.proof.gate.detail) == (state, gate)


def test_which_code_many_refusals_have() -> None:
    unknown, broken, taken = NotRunError("a"), IncompatibleError("b"), RegistryError("c")
    for rows, code in (([unknown, unknown], 7), ([unknown, taken], 8), ([taken, unknown, broken], 3), ([taken], 8)):
        with pytest.raises(TrainwrightError) as raised:
            errors.refuse_all("nothing was done", rows)
        assert raised.value.exit_code == code
    with pytest.raises(NotRunError, match=r"^a$"):  # said of two images, it is still one
        errors.refuse_all("nothing was done", [NotRunError("a"), NotRunError("a")])
    errors.refuse_all("nothing was done", [])
