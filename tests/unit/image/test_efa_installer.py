"""Test the EFA installer's step in each image: its options, and the plugin that must be there."""

import re

import pytest

from trainwright.image import inputs, probe
from trainwright.matrix.matrix import Intent

USUAL = "-y --skip-kmod --skip-limit-conf --no-verify"
LIB, LIB64 = (f"test -e /opt/amazon/ofi-nccl/{lib}/libnccl-net-ofi.so" for lib in ("lib", "lib64"))
NGC, FLAGSHIP = "pytorch-2.12-cu132-py312-ec2-ngc", "pytorch-2.15-cu132-py313-sagemaker"


def dockerfile(intent: Intent, identity: str) -> str:
    return inputs.text_of(intent.recipe(identity))["Dockerfile"]


@pytest.mark.parametrize(
    ("identity", "options", "plugin"),
    [
        (FLAGSHIP, f"{USUAL} --mpi=openmpi4", LIB),
        ("pytorch-2.15-cu132-py312-sagemaker-amazonlinux-2023", f"{USUAL} --mpi=openmpi4", LIB64),
        (
            "base-1.0-cu128-py312-sagemaker-nvidia-cuda",
            f"{USUAL} --disable-ngc --disable-build-ngc --mpi=openmpi4",
            LIB,
        ),
        (NGC, "-y --enable-ngc", LIB),
        (
            "base-1.0-cpu-py313-ec2-mpi-efa",
            f"{USUAL} --mpi=openmpi4",
            "if dpkg-query --show libnccl-ofi > /dev/null 2>&1; then apt-get purge --yes libnccl-ofi; fi",
        ),
    ],
)
def test_options_and_the_plugin(intent: Intent, identity: str, options: str, plugin: str) -> None:
    """A plugin that the installer did not bring ends the build, on Amazon Linux as elsewhere."""
    text = dockerfile(intent, identity)
    assert set(re.findall(r"efa_installer\.sh (.*)\) \\", text)) == {options}
    steps = [step for step in text.split("\nRUN ") if "efa_installer.sh" in step]
    assert steps
    assert all(f"    && {plugin} \\\n" in step for step in steps)


@pytest.mark.parametrize("version", ["1.38.1", "1.48.0", "1.50.0"])
@pytest.mark.parametrize("family", ["", "nvidia", "ngc", "dlc"])
def test_no_kernel_module_is_installed_by_any_version_on_any_base(intent: Intent, version: str, family: str) -> None:
    flags = intent.components.components["efa-installer"].flags
    asked = " ".join(flag.flag for flag in flags if flag.applies(version, family))
    assert asked.count("--skip-kmod") + asked.count("--enable-ngc") == 1, asked


def test_an_image_of_ngc_chooses_the_plugin_for_efa(intent: Intent) -> None:
    """Its base names another one, and NCCL would take that."""
    assert "\nENV NCCL_NET_PLUGIN=ofi\n" in dockerfile(intent, NGC)
    assert "NCCL_NET_PLUGIN" not in dockerfile(intent, FLAGSHIP)


def test_the_plugins_package_for_ngc_is_expected_there_alone(intent: Intent) -> None:
    found = {"libnccl-ofi-ngc-v3": "1.21.1", "vim": "9"}
    assert set(probe.installed_by_pins(intent.recipe(NGC), found)) == {"libnccl-ofi-ngc-v3"}
    assert probe.installed_by_pins(intent.recipe(FLAGSHIP), found) == {}


def test_nccl_tests_have_ptx_of_the_newest_family(intent: Intent) -> None:
    """A GPU that is newer than all of the row's has no machine code there: the driver compiles the PTX."""
    for recipe in intent.recipes:
        if "nccl-tests" in recipe.pins:
            (given,) = set(re.findall(r'NVCC_GENCODE="(.*)"', dockerfile(intent, recipe.id)))
            newest = recipe.capabilities[-1]
            codes = [f"code=sm_{one}" for one in recipe.capabilities] + [f"code=compute_{newest}"]
            assert re.findall(r",(code=\w+)", given) == codes, recipe.id
