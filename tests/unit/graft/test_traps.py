"""Test the traps of foreign images: one recorded look into a Debian image with PyTorch, changed in one place each."""

import json
from typing import Any

import pytest
from unit.graft.records import Edit, config, edited, env, first_python, inside, there, unchanged, wanted

from trainwright.core.errors import ConfigError, IncompatibleError, NotRunError
from trainwright.graft import found as graft_found
from trainwright.graft import plan as graft_plan
from trainwright.graft import traps
from trainwright.graft.found import Found
from trainwright.graft.wanted import Wanted
from trainwright.matrix.matrix import Intent

DEBIAN = "/usr/local/lib/python3.11/dist-packages/nvidia/nccl/lib/libnccl.so.2"
GZIP, ZSTD = "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.oci.image.layer.v1.tar+zstd"
SITE = "/opt/venv/lib/python3.11/site-packages"
OWN, SYSTEM = f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2.30.7"


def library(component: str, path: str) -> Edit:
    return inside(libraries={path: {"component": component, "sha256": "", "names": []}})


def nccl(copies: dict[str, str], *mapped: str) -> Edit:
    def edit(record: dict[str, Any]) -> None:
        torch = record["inside"]["pythons"][0]["components"]["torch"]
        torch.update(version="2.13.0+cu128", maps=list(mapped))
        rows = {
            path: {"component": "nccl", "sha256": "", "names": [], "version": said} for path, said in copies.items()
        }
        record["inside"]["libraries"] = rows

    return edit


def silent(record: dict[str, Any]) -> None:
    record.update(inside=None, silent="/bin/sh does not start: no such file or directory")


def another_framework(record: dict[str, Any]) -> None:
    record["inside"]["pythons"][1]["components"] = {"torch": {"version": "2.12.0"}}


REFUSED: list[tuple[str, str, Edit]] = [
    ("operating system", "none", config(os="windows")),
    ("architecture", "none", config(architecture="arm64")),
    ("nothing starts", "none", silent),
    ("C library", "none", inside(libc="musl")),
    ("C library", "efa", inside(libc="glibc 2.17")),
    ("no Python", "none", inside(pythons=[])),
    ("no framework", "none", first_python(components={})),
    ("framework does not start", "none", first_python(components={"torch": {"version": "", "error": "ImportError"}})),
    ("old Python", "none", first_python(version="3.9.2")),
    ("two NCCL in one process", "none", nccl({OWN: "2.30.7", SYSTEM: "2.30.7"}, OWN, SYSTEM)),
    ("another NCCL wins", "none", nccl({OWN: "2.30.7", SYSTEM: "2.27.3"}, SYSTEM)),
    (
        "another NCCL wins",
        "none",
        lambda r: (first_python(prefix="/usr")(r), nccl({DEBIAN: "2.30.7", SYSTEM: "2.27.3"}, SYSTEM)(r)),
    ),
    ("several NCCL", "none", nccl({OWN: "2.30.7", SYSTEM: "2.27.3"})),
    (
        "another NCCL wins",
        "efa",
        lambda r: (env(LD_LIBRARY_PATH="/x/lib")(r), nccl({OWN: "2.30.7", "/x/lib/libnccl.so.2": "2.30.7"}, OWN)(r)),
    ),
    ("NCCL unknown", "efa", nccl({})),
    ("NCCL and the plugin", "efa", nccl({OWN: "2.16.5"}, OWN)),
    ("LD_LIBRARY_PATH", "efa", lambda r: (env(LD_LIBRARY_PATH="/x:/y")(r), library("openmpi", "/y/libmpi.so.40")(r))),
    ("LD_PRELOAD", "efa", env(LD_PRELOAD="/usr/lib/libjemalloc.so")),
    ("LD_PRELOAD", "efa", inside(loader={"missing": [], "preload": ["/usr/lib/libjemalloc.so"]})),
    ("another fabric", "efa", library("libfabric", "/usr/lib/libfabric.so.1")),
    ("transport preset", "efa", env(NCCL_NET="Socket")),
    ("layers", "none", config(layers=["sha256:" + "b" * 64] * 126)),
    ("layers", "none", config(media_types=["application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"])),
    ("ONBUILD", "none", config(onbuild=["RUN make"])),
    ("VOLUME", "none", config(volumes=["/opt"])),
    ("image of trainwright", "none", there(_opt_trainwright="folder")),
    ("image of trainwright", "none", config(labels={"io.trainwright.id": "pytorch-x"})),
    ("no folder", "none", there(_opt="link")),
    ("moved tag", "none", lambda record: record.update(moved="sha256:" + "d" * 64)),
    ("PYTHONHOME", "none", env(PYTHONHOME="/opt/python")),
    ("rdma-core", "efa", library("rdma-core", "/opt/mellanox/lib/libibverbs.so.1")),
    ("conda", "efa", lambda r: (inside(cxx="3.4.33")(r), first_python(kind="conda", cxx="3.4.30")(r))),
]
HANDLED: list[tuple[str, str, Edit]] = [
    ("transport preset", "none", env(NCCL_NET_PLUGIN="spcx")),
    ("transport preset", "efa", env(NCCL_NET_PLUGIN="spcx")),
    ("several frameworks", "none", another_framework),
    ("site-packages", "none", first_python(site_exists=False)),
    ("conda", "none", first_python(kind="conda")),
    ("several NCCL", "none", nccl({OWN: "2.30.7", SYSTEM: "2.27.3"}, OWN)),
    ("LD_LIBRARY_PATH", "none", env(LD_LIBRARY_PATH="/opt/hpc/lib")),
    ("secret", "none", env(HF_TOKEN="hf_0123456789abcdefghij")),
    ("quotes or newlines", "none", env(PS1='"a"\nb')),
    ("ld.so.conf", "none", inside(loader={"missing": ["/gone"], "preload": []})),
    ("LD_PRELOAD", "none", env(LD_PRELOAD="/usr/lib/libjemalloc.so")),
    ("another fabric", "none", library("libfabric", "/usr/lib/libfabric.so.1")),
    ("VOLUME", "none", config(volumes=["/data"])),
    ("USER", "none", config(user="1000")),
    ("ENTRYPOINT", "none", config(entrypoint=["/entry.sh"])),
    ("SHELL", "none", config(shell=["/bin/bash", "-c"])),
    ("HEALTHCHECK", "none", config(healthcheck=["CMD", "true"])),
    ("pip.conf", "none", there(**{"_etc_pip.conf": "file"})),
    ("PYTHONPATH", "none", env(PYTHONPATH="/workspace")),
    ("constraints", "none", env(PIP_CONSTRAINT="/etc/pip/constraint.txt")),
    ("rdma-core", "none", library("rdma-core", "/opt/mellanox/lib/libibverbs.so.1")),
    ("rdma-core", "efa", library("rdma-core", "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44")),
    ("conda", "efa", lambda r: (inside(cxx="3.4.30")(r), first_python(kind="conda", cxx="3.4.33")(r))),
]


def numbered(rows: list[tuple[str, str, Edit]]) -> list[str]:
    return [f"{number} {name}" for number, (name, _, _) in enumerate(rows)]


def of(found: Found, what: Wanted) -> set[tuple[str, str]]:
    return {(trap.name, trap.state) for trap in traps.traps(found, what)}


def test_the_image_that_was_recorded_has_no_trap(intent: Intent) -> None:
    assert of(edited(unchanged), wanted(intent)) == set()


@pytest.mark.parametrize(("name", "fabric", "edit"), REFUSED, ids=numbered(REFUSED))
def test_what_is_refused(intent: Intent, name: str, fabric: str, edit: Edit) -> None:
    found, what = edited(edit), wanted(intent, fabric)
    assert (name, "refused") in of(found, what)
    for error in graft_plan.refusals(found, graft_plan.plan(intent, found, what)):
        assert isinstance(error, IncompatibleError)
        assert error.why
        assert error.fix


@pytest.mark.parametrize(("name", "fabric", "edit"), HANDLED, ids=numbered(HANDLED))
def test_what_is_handled(intent: Intent, name: str, fabric: str, edit: Edit) -> None:
    assert of(edited(edit), wanted(intent, fabric)) == {(name, "handled")}


def test_every_check_was_broken_by_one_of_them(intent: Intent) -> None:
    """`licence` and zstd layers have tests of their own."""
    for name, check in traps.CHECKS.items():
        rows = [*REFUSED, *HANDLED]
        assert name == "licence" or any([*check(edited(edit), wanted(intent, fabric))] for _, fabric, edit in rows)


def test_zstd_layers_are_refused_for_sagemaker_only(intent: Intent) -> None:
    found = edited(config(media_types=[GZIP, ZSTD, ZSTD]))
    assert of(found, wanted(intent)) == set()
    assert of(found, wanted(intent, target="sagemaker")) == {("zstd layers", "refused")}


def test_a_licence_that_forbids_it(intent: Intent) -> None:
    found = edited(unchanged)
    assert of(found, wanted(intent, forbidden=["it may not be passed on"])) == {("licence", "refused")}


@pytest.mark.parametrize(
    ("user", "rights", "read_only"),
    [
        ("", [0, 0, 0o755], False),
        ("root:root", [0, 0, 0o755], False),
        ("1000", [0, 0, 0o755], True),
        ("1000", [1000, 1000, 0o755], False),
        ("1000", [1000, 1000, 0o555], True),
        ("team", [1001, 0, 0o755], False),
        ("team:50", [0, 50, 0o775], False),
        ("team", [0, 50, 0o775], True),
        ("1000:0", [0, 0, 0o775], False),
        ("1000", [0, 0, 0o777], False),
        ("unknown", [0, 0, 0o755], False),
    ],
)
def test_site_packages_that_the_images_user_cannot_write_to(
    intent: Intent, user: str, rights: list[int], read_only: bool
) -> None:
    def edit(record: dict[str, Any]) -> None:
        first_python(site_rights=rights)(record)
        inside(users={"team": [1001, 1001]})(record)
        config(user=user)(record)

    assert (("site-packages", "handled") in of(edited(edit), wanted(intent))) == read_only


# --- the plan --------------------------------------------------------------------------------------------------------


def test_an_image_without_traps_is_planned(intent: Intent) -> None:
    found, what = edited(unchanged), wanted(intent)
    made = graft_plan.plan(intent, found, what)
    assert made.id == "pytorch-2.13-cpu-py311-ec2-train"
    assert made.repository == "trainwright/pytorch"
    assert graft_plan.refusals(found, made) == []
    assert {step.what: step.does for step in made.steps}["torch 2.13.0+cpu"] == "stays"
    assert graft_plan.plan(intent, found, what, "team").id.endswith("-ec2-team")
    with pytest.raises(ConfigError, match="cannot be part of"):
        graft_plan.plan(intent, found, what, "Team!")


def test_the_nccl_of_a_package_is_none_of_a_framework_for_cpus() -> None:
    """PyTorch's own NCCL is no other one, so no rule compares them."""

    def edit(record: dict[str, Any]) -> None:
        nccl({SYSTEM: "2.27.3"})(record)
        record["inside"]["pythons"][0]["components"]["torch"].update(version="2.13.0+cpu")

    found = edited(edit)
    assert (found.accelerator, found.nccls, found.nccl) == ("cpu", {SYSTEM: "2.27.3"}, "")
    assert edited(nccl({SYSTEM: "2.27.3"})).nccl == "2.27.3"


def test_a_preset_plugin_is_set_to_the_one_for_efa(intent: Intent) -> None:
    found = edited(env(NCCL_NET_PLUGIN="spcx"))
    assert graft_plan.plan(intent, found, wanted(intent, "efa")).environment == {"NCCL_NET_PLUGIN": "ofi"}
    assert graft_plan.plan(intent, found, wanted(intent)).environment == {}


@pytest.mark.parametrize(("fabric", "target"), [("efa", "ec2"), ("distro", "ec2"), ("none", "sagemaker")])
def test_what_is_not_built_is_not_run(intent: Intent, fabric: str, target: str) -> None:
    found = edited(inside(managers=["dnf"]))
    (error,) = graft_plan.refusals(found, graft_plan.plan(intent, found, wanted(intent, fabric, target)))
    assert isinstance(error, NotRunError)
    assert "which has dnf" in error.why


def test_pips_settings_of_the_image_stay(intent: Intent) -> None:
    edit = there(**{"_etc_pip.conf": "file"})
    assert graft_plan.plan(intent, edited(edit), wanted(intent)).environment == {
        "PIP_CONSTRAINT": "/opt/trainwright/constraints.txt"
    }


def test_a_secret_is_not_shown() -> None:
    secret = "hf_0123456789abcdefghij"
    rows = graft_found.rows(edited(env(HF_TOKEN=secret, NOTE=f"a\nb {secret}")))
    assert secret not in json.dumps(rows)
    assert {"what": "variable", "found": "HF_TOKEN=***"} in rows


@pytest.mark.parametrize(
    ("reference", "slug"),
    [
        ("nvcr.io/nvidia/pytorch:26.05-py3", "pytorch"),
        ("localhost:5000/Team/My_Image@sha256:" + "a" * 64, "my-image"),
        ("x" * 60, "x" * 32),
        ("_", "graft"),
    ],
)
def test_the_name_of_a_graft(reference: str, slug: str) -> None:
    assert graft_plan.slug(reference) == slug


def test_constraints_leave_out_versions_that_pip_cannot_compare() -> None:
    assert graft_plan.constraints({"torch": "2.13.0+cpu", "odd": "2023-x_y"}) == "torch==2.13.0+cpu\n"


def test_no_graft_has_the_id_of_an_image_of_the_matrix(intent: Intent) -> None:
    """Else its folder in out/ would be that image's, and prune would take its tags for old ones of that image."""
    found = edited(first_python(version="3.13.5", components={"torch": {"version": "2.15.0+cu132"}}))
    assert intent.find("pytorch-2.15-cu132-py313-ec2-distro")
    with pytest.raises(ConfigError, match="ec2-distro is an image of the matrix"):
        graft_plan.plan(intent, found, wanted(intent), "distro")
    assert graft_plan.plan(intent, found, wanted(intent), "team").id == "pytorch-2.15-cu132-py313-ec2-team"
