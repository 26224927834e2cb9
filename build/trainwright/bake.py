"""A build as a docker-bake.json: BuildKit runs the graph, with or without us."""

import json

from trainwright.model import Base, Variant

FOLDERS = {  # named context of the Dockerfile to folder below out/<id>/
    "framework": "wheels/framework",
    "toolkit": "wheels/toolkit",
    "tools": "wheels/tools",
    "sdist-build": "wheels/sdist-build",
    "requirements": "requirements",
    "rootfs": "rootfs",
}


def engine_name(variant: Variant, tag: str) -> str:
    """What the image is called in the engine; never pushed under that name."""
    return f"trainwright/{variant.framework}:{tag}"


def bake(base: Base, epoch: int, name: str = "", key: str = "") -> str:
    """The bake file. Without name and key it is the part that the key itself is computed over."""
    target: dict[str, object] = {
        "context": ".",
        "dockerfile": "Dockerfile",
        "contexts": FOLDERS if base.provider == "packages" else {**FOLDERS, "packages": "packages"},
        "args": {"SOURCE_DATE_EPOCH": str(epoch)},
        "platforms": [f"linux/{base.architecture}"],
        # SageMaker pulls a plain single-platform image with Docker media types: no attestation makes it an index.
        "attest": ["type=provenance,disabled=true", "type=sbom,disabled=true"],
        "output": ["type=image,oci-mediatypes=false"],
    }
    if name:
        target |= {"tags": [name], "labels": {"io.trainwright.key": key}}
    return json.dumps({"group": {"default": {"targets": ["image"]}}, "target": {"image": target}}, indent=2) + "\n"
