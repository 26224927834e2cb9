"""Test which image may be published where: by the licences of what it holds and by who can pull from a place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.build import build, state
from trainwright.commands import push as command
from trainwright.core.errors import ConfigError, RegistryError
from trainwright.core.toml import load
from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.publish import licences, push, push_steps
from trainwright.publish.licences import Licences
from trainwright.registry import ecr_repositories, ecr_settings
from trainwright.registry.ecr_settings import PULL, admits_everybody
from trainwright.registry.settings import Place

ROOT = Path(__file__).parents[3]
GPU = "pytorch-2.15-cu132-py313-ec2-single-node"
DEVEL, DIGEST = f"{GPU}-devel", "sha256:" + "d" * 64
PATH = "trainwright/pytorch"
PUBLIC, PRIVATE = Place(host="public.ecr.aws", path=PATH), Place(host="registry.example.com", path=PATH)
LOOPBACK = Place(host="127.0.0.1:5000", path=PATH)
ECR = Place(host="111122223333.dkr.ecr.us-east-1.amazonaws.com", path=PATH, region="us-east-1", account="111122223333")
EULA, NGC, AWS = "NVIDIA-CUDA-EULA", "NVIDIA-Deep-Learning-Container", "AWS-Customer-Agreement"


def everybody(**more: Any) -> str:
    row = {"Effect": "Allow", "Principal": "*", "Action": PULL, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [{k: v for k, v in row.items() if v is not None}]})


@pytest.mark.parametrize(
    ("policy", "open_"),
    [
        ("", False),
        (everybody(), True),
        (everybody(Principal={"AWS": "*"}), True),
        (everybody(Principal={"AWS": ["arn:aws:iam::111122223333:root", "*"]}), True),
        (everybody(Action="ecr:*"), True),
        (everybody(Action="*"), True),
        (everybody(Action="ecr:batchget*"), True),
        (everybody(Action=None, NotAction="ecr:DeleteRepository"), True),
        (everybody(Principal=None, NotPrincipal={"AWS": "arn:aws:iam::111122223333:root"}), True),
        (everybody(Effect="Deny"), False),
        (everybody(Action="ecr:ListImages"), False),
        (everybody(Condition={"StringEquals": {"aws:PrincipalOrgID": "o-1"}}), False),
        (everybody(Principal={"AWS": "arn:aws:iam::111122223333:root"}), False),
        (everybody(Principal={"Service": "sagemaker.amazonaws.com"}), False),
        (json.dumps({"Statement": json.loads(everybody())["Statement"][0]}), True),
    ],
)
def test_a_policy_that_lets_everybody_pull(policy: str, open_: bool) -> None:
    assert admits_everybody(policy) is open_


def of(intent: Intent, identity: str, **base: str) -> Inputs:
    found = inputs.load(intent.recipe(identity))
    if not base:
        return found
    name = found.variant.base
    changed = intent.components.bases[name].model_copy(update={"provider": "image", **base})
    components = intent.components.model_copy(update={"bases": {**intent.components.bases, name: changed}})
    recipe = Recipe(intent.model_copy(update={"components": components}), found.variant)
    return found.model_copy(update={"recipe": recipe})


def refused(found: Inputs, *places: Place, allowed: tuple[str, ...] = ()) -> list[str]:
    return [error.what.rpartition("(")[2].rstrip(")") for error in licences.refusals(found, places, allowed)]


def test_a_compiler_stays_out_of_public_and_unknown_places(intent: Intent) -> None:
    devel, plain = of(intent, DEVEL), of(intent, GPU)
    assert refused(devel, PUBLIC, PRIVATE, LOOPBACK) == [EULA, EULA]
    assert refused(plain, PUBLIC, PRIVATE, LOOPBACK) == []  # runtime libraries may be passed on
    assert refused(of(intent, "pytorch-2.10-cu128-py311-ec2-devel"), PUBLIC) == [EULA]  # its nvcc is no wheel
    assert refused(devel, PUBLIC, PRIVATE, allowed=(EULA,)) == []
    assert refused(devel, PUBLIC, allowed=(NGC, AWS)) == [EULA]


def test_the_error_says_all_that_is_needed(intent: Intent) -> None:
    public, unknown = licences.refusals(of(intent, DEVEL), [PUBLIC, PRIVATE], [])
    assert isinstance(public, RegistryError)
    title = "NVIDIA CUDA Toolkit End User License Agreement"
    assert public.what == f"{DEVEL} may not be published in public.ecr.aws/{PATH} under the {title} ({EULA})"
    assert "public.ecr.aws is in `public` of [places] in dockerfiles/publish.toml" in public.why
    assert "evidence: docs.nvidia.com" in public.why
    assert f"--licence-allows {EULA}" in public.fix
    assert "neither on loopback, nor Amazon ECR, nor in [places]" in unknown.why
    assert "registry.example.com in `private` of [places]" in unknown.fix


def test_a_host_that_is_listed_as_private(tree: Path, edit: Callable[[Path, str, str], None]) -> None:
    edit(tree / "dockerfiles/publish.toml", r"^private = \[\]", 'private = ["*.example.com"]')
    devel = of(load_intent(tree), DEVEL)
    assert refused(devel, PRIVATE) == []
    aws = of(load_intent(tree), GPU, reference="public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0")
    assert refused(aws, PRIVATE) == [AWS]  # for use with AWS alone


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("docker.io/nvidia/cuda:12.8.1-base-ubuntu24.04", NGC),
        ("nvcr.io/nvidia/pytorch:26.05-py3", NGC),
        ("public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0", AWS),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-trcomp-training:1.13.1", AWS),
        ("364406365360.dkr.ecr.ap-northeast-3.amazonaws.com/pytorch-training:2.8.0", AWS),
        ("727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/pytorch-training:2.8.0", AWS),
        ("442386744353.dkr.ecr-fips.us-gov-west-1.amazonaws.com/pytorch-training:2.8.0", AWS),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0", ""),
        ("658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.4.1", AWS),
        ("docker.io/library/ubuntu:24.04", ""),
    ],
)
def test_images_of_others(intent: Intent, reference: str, name: str) -> None:
    found = of(intent, GPU, reference=reference)
    assert refused(found, PUBLIC, LOOPBACK) == [name] * bool(name)


def test_every_base_of_nvidia_and_aws_is_under_a_licence(intent: Intent) -> None:
    held = inputs.load(intent.recipe(GPU))
    for name, base in intent.components.bases.items():
        found = of(intent, GPU, reference=base.reference) if base.provider == "image" else held
        assert bool(list(licences.of_image(found.recipe, found.lock))) == (base.family in ("nvidia", "ngc", "dlc")), (
            name
        )


def test_rows_name_what_exists(intent: Intent) -> None:
    rows = load(ROOT / licences.FILE, Licences).licences
    assert {name for row in rows for name in row.components} <= intent.components.components.keys()
    installed = {entry.name for recipe in inputs.held(intent) for entry in inputs.read_lock(recipe).python}
    for glob in (glob for row in rows for glob in row.packages):
        assert any(name.startswith(glob.rstrip("*")) for name in installed), glob


def test_amazon_is_asked_only_for_what_a_licence_restricts(intent: Intent, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, asked = [everybody()], list[str]()

    def describe(region: str, name: str, account: str) -> Any:
        asked.append(f"{account} {region} {name}")
        held = {"arn": "", "mutability": "", "moving": [], "scan_on_push": True, "encryption": "", "kms_key": ""}
        return ecr_settings.Held.model_validate({**held, "tags": {}, "lifecycle": "", "policy": policy[0]})

    monkeypatch.setattr(ecr_repositories, "describe", describe)
    devel = of(intent, DEVEL)
    (error,) = licences.refusals(devel, [ECR], [])
    assert "the policy of this repository lets everybody pull" in error.why
    policy[0] = ""
    assert refused(devel, ECR) == []
    assert asked == ["111122223333 us-east-1 trainwright/pytorch"] * 2
    assert refused(of(intent, GPU), ECR) == []
    assert len(asked) == 2
    monkeypatch.setattr(ecr_repositories, "describe", lambda *_: None)  # a new repository has no policy
    assert refused(devel, ECR) == []


def test_a_licence_that_is_not_there(intent: Intent) -> None:
    with pytest.raises(ConfigError, match="NVIDIA-CUDA-EULE is not") as raised:
        licences.refuse(of(intent, GPU), [PUBLIC], ["NVIDIA-CUDA-EULE"])
    assert f"did you mean {EULA!r}?" in raised.value.why


def test_a_dry_run_and_a_push_say_it_first(intent: Intent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "image_id", lambda _: DIGEST)
    devel = of(intent, DEVEL)
    told = push.forecast(devel, {PUBLIC: ""}, "")
    assert told.done.steps[0].startswith(f"licence: {DEVEL} may not be published in public.ecr.aws/{PATH}")
    assert EULA in str(told.refused[0])
    told = push.forecast(devel, {PUBLIC: ""}, "", "", [EULA])
    assert told.done.steps[0].endswith(f"--licence-allows {EULA} says that a contract allows it")
    assert told.refused == []
    told = push.forecast(devel, {PUBLIC: DIGEST}, "")  # nothing would be sent there
    assert told.refused == []


def test_a_push_checks_licences_once_before_its_first_image(
    tree: Path, edit: Callable[[Path, str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amazon ECR is asked once for each image and place, and a refused second image keeps the first one back."""
    edit(tree / "dockerfiles/publish.toml", '^required = "release"', 'required = "never"')
    asked, taken, kind_of = list[str](), list[str](), licences.kind_of

    def seen(place: Place, root: Path) -> tuple[licences.Kind, str]:
        asked.append(place.host)
        return kind_of(place, root)

    monkeypatch.setattr(licences, "kind_of", seen)
    monkeypatch.setattr(push_steps.Take, "do", lambda _, one: taken.append(one.id))
    monkeypatch.setattr(push, "STEPS", push_steps.STEPS[:2])
    monkeypatch.setattr(push, "known_image", lambda *_: None)
    intent = load_intent(tree)
    both = [of(intent, GPU), of(intent, DEVEL)]
    command.pushed(intent, both, {GPU: {LOOPBACK: ""}, DEVEL: {LOOPBACK: ""}}, ("", ""))
    assert (asked, taken) == ([LOOPBACK.host], [GPU, DEVEL])
    with pytest.raises(RegistryError, match="may not be published"):
        command.pushed(intent, both, {GPU: {PUBLIC: ""}, DEVEL: {PUBLIC: ""}}, ("", ""))
    assert taken == [GPU, DEVEL]


@pytest.mark.parametrize("words", [("push", "--dry-run"), ("push",), ("build", "--push")])
def test_a_registry_that_does_not_answer_is_refused_by_its_name(
    cli: Any, tree: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def unknown(*_: Any) -> Any:
        raise RegistryError("cannot be read")

    built = list[str]()
    monkeypatch.setattr(state, "published", unknown)
    monkeypatch.setattr(build, "build", lambda recipe, *_: built.append(recipe.id))
    ended = cli(tree, words[0], DEVEL, *words[1:], "--registry", "ghcr.io/me")
    assert (ended.code, "may not be published in ghcr.io/me" in ended.err, built) == (8, True, [])
    for more in (("--licence-allows", EULA), ()):
        ended = cli(tree, "push", DEVEL if more else GPU, "--registry", "ghcr.io/me", *more)
        assert (ended.code, "cannot be read" in ended.err) == (8, True)


def test_the_page_has_every_licence() -> None:
    said = {"loopback": "this machine", "ecr": "Amazon ECR", "private": "private hosts"}
    rows, places = dict[str, str](), ""
    for line in (ROOT / "docs/publishing.md").read_text().splitlines():
        if line.startswith("|") and len(cells := line.strip("|").split(" | ")) == 3:
            places = cells[2].strip() if cells[2].strip() != "the same" else places
            rows[cells[1].strip().strip("`")] = places
    for row in load(ROOT / licences.FILE, Licences).licences:
        assert rows[row.name] == ", ".join(said[place] for place in row.places)


def test_a_build_that_could_not_be_pushed_does_not_begin(
    cli: Any, tree: Path, edit: Callable[[Path, str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(tree / "dockerfiles/publish.toml", '^required = "release"', 'required = "never"')
    built = list[str]()
    monkeypatch.setattr(state, "published_if_known", lambda *_: ({DEVEL: {PUBLIC: ""}}, ""))
    monkeypatch.setattr(build, "build", lambda recipe, *_: built.append(recipe.id))
    ended = cli(tree, "build", DEVEL, "--push", "--registry", "public.ecr.aws")
    assert (ended.code, built) == (8, [])
    assert f"--licence-allows {EULA}" in ended.err
    monkeypatch.setenv("TRAINWRIGHT_LICENCE_ALLOWS", EULA)
    cli(tree, "build", DEVEL, "--push", "--registry", "public.ecr.aws")
    assert built == [DEVEL]


@pytest.mark.parametrize(
    ("identity", "name"), [(DEVEL, EULA), ("pytorch-2.5-cu124-py311-sagemaker-smddp", AWS), (GPU, "")]
)
def test_explain_says_where_an_image_may_go(cli: Any, tree: Path, identity: str, name: str) -> None:
    said = cli(tree, "explain", identity).out
    assert ("published only in" in said, name in said) == (bool(name), True)
    assert ("no row of dockerfiles/licences.toml restricts" in said) == (not name)
