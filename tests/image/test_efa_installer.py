"""What the EFA installer left behind: the pinned release, its plugin where that release puts it, and nothing else."""

from typing import Any

import pytest

from trainwright.core import versions
from trainwright.image.inputs import Inputs
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Component

pytestmark = pytest.mark.component("efa-installer")
RECORD = "/opt/amazon/efa_installed_packages"


@pytest.fixture(scope="module")
def component(intent: Intent) -> Component:
    return intent.components.components["efa-installer"]


def test_record_says_the_pin(host: Any, declared: Inputs) -> None:
    first = host.file(RECORD).content_string.splitlines()[0]
    assert first.split()[-1] == declared.pins["efa-installer"]


def test_what_it_bundles(declared: Inputs, component: Component) -> None:
    """Pins that it brings are those of this release."""
    bundles = component.releases[declared.pins["efa-installer"]].bundles
    brought = [name for name, pin in declared.variant.pins.items() if pin.provider == "efa-installer"]
    assert set(brought) <= set(bundles)
    assert {name: declared.pins[name] for name in brought} == {name: bundles[name] for name in brought}


@pytest.mark.component("aws-ofi-nccl")
def test_plugin_is_where_this_release_puts_it(host: Any, declared: Inputs, component: Component) -> None:
    """On a base that it takes for NVIDIA's own it installs none, and says so only in its output."""
    pin = declared.pins["efa-installer"]
    paths = [row.path for row in component.paths if versions.within(pin, row.range)]
    assert paths, "no row of [[paths]] is about this release"
    assert [path for path in paths if host.file(path).exists], paths


def test_mpirun_is_its_own(host: Any, declared: Inputs) -> None:
    if declared.variant.pins["openmpi"].provider == "efa-installer":
        assert host.check_output("realpath $(command -v mpirun)").startswith("/opt/amazon/openmpi")


def test_fi_info_is_its_own_and_knows_efa(host: Any) -> None:
    assert host.check_output("realpath $(command -v fi_info)").startswith("/opt/amazon/efa/")
    assert "efa:" in host.check_output("fi_info -l").splitlines()


def test_no_kernel_module(host: Any) -> None:
    """The driver is the host's."""
    assert host.check_output("dpkg-query -W -f '${Package}\\n'").split().count("efa") == 0
    assert host.check_output("find / -xdev -name 'efa.ko*'") == ""


def test_installer_itself_is_gone(host: Any) -> None:
    assert host.check_output("find / -xdev -name 'aws-efa-installer*' -not -path '/opt/trainwright/*'") == ""
