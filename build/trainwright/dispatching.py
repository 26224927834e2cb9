"""A training job from what was asked for on a command line to what SageMaker was told."""

from pathlib import Path

from trainwright import addressing, fitting, gateable, submitting
from trainwright.instances import load_instances
from trainwright.matrix import load_intent


def fitting_notes(root: Path, identity: str, instance: str, hosts: int = 2) -> list[str]:
    """What to know of an image of the matrix on an instance type. Raises ConfigError where it cannot train there."""
    intent = load_intent(root)
    variant = addressing.variant_of(intent, identity)
    name, row = fitting.instance(instance, load_instances(root), submitting.instance_types())
    return fitting.fit(variant, gateable.architecture(intent, identity), name, row, hosts, allow_tcp=True)
