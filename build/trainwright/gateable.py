"""Check that a gate can run at all, before anything is emitted or started."""

from difflib import get_close_matches
from pathlib import Path

from trainwright.errors import ConfigError
from trainwright.instances import Instance
from trainwright.launchers import REGION
from trainwright.matrix import Intent, load_intent
from trainwright.model import Variant
from trainwright.registry_http import is_loopback

TESTS = "nccl-tests"


def check_image(root: Path, image: str) -> None:
    """Raise ConfigError for a matrix image without nccl-tests; accept any other reference, whose contents are unknown.

    Also raise ConfigError for unprintable characters: the name goes into a comment of the emitted script, and a line
    break in it would start a line that is executed.
    """
    if not image.isprintable():
        raise ConfigError(f"{image!r} has marks that no name has", where="IMAGE")
    variants = {variant.id: variant for variant in load_intent(root).variants}
    if image not in variants or _may_have_tests(variants[image]):
        return
    having = [name for name, variant in variants.items() if TESTS in variant.pins]
    near = get_close_matches(image, having, n=1, cutoff=0) or [""]
    raise ConfigError(
        f"{image} has no {TESTS}: there is nothing to run in it",
        why=f"trainwright find --has {TESTS} shows the images that have them",
        fix=f"trainwright gate {near[0]}" if near[0] else "",
    )


def _may_have_tests(variant: Variant) -> bool:
    """Return whether the image may have the tests; one with its base's Python (NGC, AWS DLC) may, undeclared."""
    python = variant.pins.get("python")
    return TESTS in variant.pins or (python is not None and python.provider == "base")


def architecture(intent: Intent, image: str) -> str:
    """Return the architecture of a matrix image, or "" for any other image."""
    base = next((variant.base for variant in intent.variants if variant.id == image), "")
    return intent.components.bases[base].architecture if base else ""


def check_hosts(image: str, on: str, hosts: list[str]) -> None:
    """Check that these hosts can pull the image, and that SageMaker accepts its registry. Raises ConfigError."""
    if not image or on == "docker":
        return
    address = image.partition("/")[0]
    elsewhere = on != "ssh" or not all(is_loopback(host.rpartition("@")[2]) for host in hosts)
    if elsewhere and is_loopback(address):
        raise ConfigError(
            f"other hosts cannot pull {image}",
            where=f"--on {on}",
            why=f"{address} is each host itself",
            fix="push it to a registry that they reach: make push REGISTRY=ecr, or REGISTRY=<host>[:<port>]",
        )
    if on == "sagemaker" and not REGION.search(image.partition("/")[0]):
        raise ConfigError(
            f"SageMaker does not pull from {address}",
            where="--on sagemaker",
            why="TrainingImage is of Amazon ECR; of another registry it takes a TrainingImageConfig and a VPC, which "
            "this request has not",
            fix="push it to Amazon ECR: make push REGISTRY=ecr",
        )


def check_architecture(name: str, row: Instance | None, has: str) -> None:
    """Check the instance type's architecture against the image's, `has` ("" if unknown). Raises ConfigError."""
    if row and has and row.architecture != has:
        raise ConfigError(
            f"the image is of {has}, {name} is {row.architecture}",
            where="--instance",
            fix=f"an image of {row.architecture}: trainwright list --instance {name}",
        )
