"""Test `trainwright emit` with images pushed from here and with others: it asks only for what it cannot know."""

import re
from pathlib import Path

import pytest
from unit.emitted import DIGEST, KUBERNETES, SLURM, TWO, Emit, documents, pods

from trainwright.core.files import write
from trainwright.matrix.records import Image
from trainwright.publish import twins

PUSHED = ("pytorch-2.13-cpu-py311-ec2", "pytorch-2.15-cu132-py313-ec2", "pytorch-2.15-cu132-py313-ec2-single-node")


@pytest.fixture
def pushed(emit: Emit, tmp_path: Path) -> Emit:
    """Make a checkout in which these images were pushed."""
    for name in PUSHED:
        versions = {"torch": "2.15.0", "mpi4py": "4.1.0"}
        image = Image(
            id=name, key="0" * 64, digest=DIGEST, uri=f"registry.example.com/{name}@{DIGEST}", versions=versions
        )
        write(tmp_path / "checkout/out" / name / "image.json", image.model_dump_json(by_alias=True))
    return emit


def test_what_a_reference_of_our_own_names_is_known(pushed: Emit, tmp_path: Path) -> None:
    """By the digest that was pushed from here, and by its tag."""
    file = tmp_path / "checkout/out" / PUSHED[0] / "image.json"
    file.write_text(file.read_text().replace("5" * 64, "6" * 64))
    for image in (f"registry.example.com/x@sha256:{'6' * 64}", f"registry.example.com/x:{PUSHED[0]}-0123456789ab"):
        ended = pushed("slurm", image=image)
        assert ended.code == 0, ended.err


def test_an_id_is_the_digest_that_was_pushed(pushed: Emit) -> None:
    ended = pushed("slurm", *TWO, image=PUSHED[1])
    assert f"registry.example.com#{PUSHED[1]}:{DIGEST}" in ended.out
    assert "is no digest" not in ended.err
    assert "--distribution torchrun" in ended.out


@pytest.mark.parametrize(
    ("image", "words", "code", "said"),
    [
        (PUSHED[0], TWO, 0, "the 8 GPUs of p5.48xlarge are paid for but not used"),
        (PUSHED[1], ("--nodes", "2", "--instance", "c5n.18xlarge"), 2, "c5n.18xlarge has none"),
        (PUSHED[1], ("--instance", "p6e-gb200.36xlarge"), 2, "is arm64"),
        (PUSHED[1], (*TWO, "--distribution", "tensorflow"), 2, "this image does not support tensorflow"),
        ("pytorch-2.13-cpu-py311-sagemakr", TWO, 2, "did you mean 'pytorch-2.13-cpu-py311-sagemaker'"),
        ("pytorch-2.13-cpu-py311-sagemaker", TWO, 7, "was not pushed from here"),
        ("pytorch-2.13-cpu-py311-sagemaker", TWO, 7, "REGISTRY=ecr, or another registry that the hosts reach; or name"),
        (f"{PUSHED[0]}-with-team", TWO, 2, "emit, gate, launch: the address that push prints"),
        (f"{PUSHED[0]}-with-team", TWO, 2, f"{PUSHED[0]} --with FILE --name team"),
        ("nope-with-team", TWO, 2, "unknown image"),
        ("127.0.0.1:5000/x:1", TWO, 2, "other hosts cannot pull"),
    ],
)
def test_an_image_that_does_not_fit(pushed: Emit, image: str, words: tuple[str, ...], code: int, said: str) -> None:
    ended = pushed("slurm", *words, image=image)
    assert ended.code == code
    assert said in re.sub(r"\s+", " ", ended.err)


def test_an_image_with_packages_on_top_is_named_once_it_was_pushed(pushed: Emit, tmp_path: Path) -> None:
    out, name = tmp_path / "checkout/out", f"{PUSHED[1]}-with-team"
    text = (out / PUSHED[1] / "image.json").read_text().replace("5" * 64, "6" * 64)
    write(out / name / "image.json", text)
    ended = pushed("slurm", *TWO, image=name)
    assert f":sha256:{'6' * 64}" in ended.out
    assert "--distribution torchrun" in ended.out


@pytest.mark.parametrize("on", [*KUBERNETES, *SLURM])
def test_cpus_need_no_type(pushed: Emit, on: str) -> None:
    """Any host will do: neither a type nor devices are asked for, nor memory that a small one has not."""
    name, two = PUSHED[0], "2" if on == "mpijob" else "1"
    ended = pushed(on, "--nodes", two, "--model", "kept", image=name)
    assert "the job requests neither an instance type nor devices" in ended.err
    assert f"on {two} host{'s' if two == '2' else ''}," in ended.out
    assert "gpus-per-node" not in ended.out
    for pod in pods(documents(ended)[-1]) if on in KUBERNETES else []:
        assert pod["containers"][0]["resources"] == {}
        assert set(pod.get("nodeSelector", {})) <= {"sagemaker.amazonaws.com/node-health-status"}
        assert pod["containers"][0]["command"][-1] in ("1", "plain", "--worker")


def test_a_type_of_which_only_the_name_is_known(pushed: Emit) -> None:
    """As `launch` takes it; what nobody sells is refused, and no other kind of machine offered."""
    for image in (PUSHED[0], "registry.example.com/x:1"):
        ended = pushed("hyperpod-eks", "--instance", "c5.4xlarge", "--model", "kept", image=image)
        assert "the devices of c5.4xlarge are unknown: dockerfiles/instances.toml does not describe it" in ended.err
        (pod,) = pods(documents(ended)[-1])
        assert pod["containers"][0]["resources"] == {}
        assert pod["nodeSelector"]["node.kubernetes.io/instance-type"] == "ml.c5.4xlarge"
    assert "HyperPod does not offer m7g.large" in pushed("hyperpod-eks", "--instance", "m7g.large").err
    assert "m7g.large is arm64" in pushed("slurm", "--instance", "m7g.large", image=PUSHED[0]).err
    assert "did you mean 'c5.4xlarge'" in pushed("slurm", "--instance", "c5.4xlrge").err
    assert "no instance type was given" in pushed("slurm", image=PUSHED[1]).err


def test_tcp_where_there_is_efa_must_be_said(pushed: Emit) -> None:
    ended = pushed("slurm", *TWO, image=PUSHED[2])
    assert ended.code == 2
    assert "accept slow training: --env TRAINWRIGHT_ALLOW_TCP=1" in re.sub(r"\s+", " ", ended.err)
    ended = pushed("slurm", *TWO, "--env", "TRAINWRIGHT_ALLOW_TCP=1", image=PUSHED[2])
    assert ended.code == 0
    assert "would use TCP" in ended.err


TWIN = f"sha256:{'7' * 64}"


def twinned(tmp_path: Path, image: str = DIGEST) -> None:
    """Record a zstd twin of an image that was pushed from here."""
    record = twins.Record(image=image, twins={f"registry.example.com/{PUSHED[1]}": TWIN})
    write(tmp_path / "checkout/out" / PUSHED[1] / "twin.json", record.model_dump_json())


@pytest.mark.parametrize(
    ("on", "words", "zstd"),
    [
        ("pytorchjob", (), True),
        ("mpijob", ("--cluster", "eks-karpenter"), True),
        ("pytorchjob", ("--cluster", "eks-dra"), True),
        ("pytorchjob", ("--gzip",), False),
        ("hyperpod-eks", (), False),
        ("hyperpod-eks", ("--zstd",), True),
        ("slurm", (), False),
        ("slurm", ("--zstd",), True),
        ("hyperpod-slurm", (), False),
    ],
)
def test_the_zstd_twin_where_the_nodes_take_it(
    pushed: Emit, tmp_path: Path, on: str, words: tuple[str, ...], zstd: bool
) -> None:
    twinned(tmp_path)
    ended = pushed(on, *TWO, *words, image=PUSHED[1])
    assert ended.code == 0, ended.err
    assert (TWIN in ended.out, DIGEST in ended.out) == (zstd, not zstd)
    assert ("the nodes pull the zstd twin of" in ended.err) == zstd
    if zstd:
        assert f"--gzip: registry.example.com/{PUSHED[1]}@{DIGEST}" in ended.err


def test_without_a_twin_the_image_itself(pushed: Emit, tmp_path: Path) -> None:
    """Unless the user asks for the twin. A record of another image's twin is none."""
    for of in ("", f"sha256:{'8' * 64}"):
        if of:
            twinned(tmp_path, of)
        assert DIGEST in pushed("pytorchjob", *TWO, image=PUSHED[1]).out
        ended = pushed("pytorchjob", *TWO, "--zstd", image=PUSHED[1])
        assert (ended.code, ended.out) == (7, "")
        assert f"{PUSHED[1]} has no zstd twin" in ended.err
        assert f"trainwright push {PUSHED[1]} --twin" in ended.err


def test_an_address_is_used_as_it_is(pushed: Emit, tmp_path: Path) -> None:
    twinned(tmp_path)
    address = f"registry.example.com/other@sha256:{'9' * 64}"
    assert address in pushed("pytorchjob", *TWO, image=address).out
    ended = pushed("pytorchjob", *TWO, "--zstd", image=address)
    assert (ended.code, "--zstd requires the id of an image" in ended.err) == (2, True)
    own = f"registry.example.com/{PUSHED[1]}@{TWIN}"  # a twin by its digest is known, too
    ended = pushed("pytorchjob", *TWO, "--instance", "c5n.18xlarge", image=own)
    assert (ended.code, "c5n.18xlarge has none" in ended.err) == (2, True)
    tag = f"registry.example.com/x:{PUSHED[1]}-0123456789ab-zstd"
    ended = pushed("pytorchjob", *TWO, "--zstd", image=tag)
    assert (ended.code, "has no digest" in ended.err) == (0, False)
