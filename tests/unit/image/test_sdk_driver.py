"""Test a driver of SageMaker's SDK v3 that calls our launcher: the SDK's arguments reach the script unchanged."""

import json
from pathlib import Path
from typing import Any

import pytest
from programs import imported

FILE = Path(__file__).parents[3] / "dockerfiles/rootfs/sagemaker/sdk/driver.py"
LAUNCHER = "/usr/local/bin/trainwright-launch"


@pytest.fixture(scope="module")
def driver() -> Any:
    return imported(FILE)


def said(driver: Any, kind: str, distributed: object = None, **hyperparameters: object) -> list[str]:
    environ = {"SM_ENTRY_SCRIPT": "train.py", "SM_HPS": json.dumps(hyperparameters)}
    if distributed is not None:
        environ["SM_DISTRIBUTED_CONFIG"] = json.dumps(distributed)
    found: list[str] = driver.command(kind, environ)
    return found


def test_each_driver(driver: Any) -> None:
    assert said(driver, "basic_script_driver") == [LAUNCHER, "--distribution", "plain", "train.py"]
    assert "--processes" not in said(driver, "basic_script_driver", {"process_count_per_node": 8})
    none = {"process_count_per_node": None, "mpi_additional_options": None}
    assert said(driver, "torchrun_driver", none)[1:] == ["--distribution", "torchrun", "train.py"]
    two = {"process_count_per_node": 2, "smp": None}
    assert said(driver, "torchrun_driver", two)[3:] == ["--processes", "2", "train.py"]
    assert said(driver, "mpi_driver", {"process_count_per_node": "8"})[2:5] == ["mpi", "--processes", "8"]


def test_options_of_mpirun_stay_the_words_they_are(driver: Any) -> None:
    options = ["-x", "NAME=two words", "-np", "4"]
    found = said(driver, "mpi_driver", {"mpi_additional_options": options})
    assert found[3:] == ["--mpi-options", "-x 'NAME=two words' -np 4", "train.py"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (0.1, "0.1"),
        (True, "true"),
        ("adam", "adam"),
        ("two words", "two words"),
        ("", ""),
        ('"quoted"', "quoted"),
        ([1, 2], "[1, 2]"),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_hyperparameters_become_arguments(driver: Any, value: object, text: str) -> None:
    assert said(driver, "basic_script_driver", name=value)[-2:] == ["--name", text]


def test_a_job_finds_the_programs_of_the_image(driver: Any) -> None:
    assert driver.without("/opt/trainwright/sdk:/opt/venv/bin:/bin", "/opt/trainwright/sdk") == "/opt/venv/bin:/bin"


@pytest.mark.parametrize(
    ("name", "environ"),
    [
        ("basic_script_driver", {}),
        ("new_driver", {"SM_ENTRY_SCRIPT": "train.py"}),
        ("mpi_driver", {"SM_ENTRY_SCRIPT": "train.py", "SM_DISTRIBUTED_CONFIG": "no JSON"}),
        ("mpi_driver", {"SM_ENTRY_SCRIPT": "train.py", "SM_DISTRIBUTED_CONFIG": "[]"}),
        ("mpi_driver", {"SM_ENTRY_SCRIPT": "train.py", "SM_HPS": "[]"}),
    ],
)
def test_an_sdk_that_is_not_known_is_said(
    driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, environ: dict[str, str]
) -> None:
    for variable in ("SM_ENTRY_SCRIPT", "SM_HPS", "SM_DISTRIBUTED_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(driver, "FAILURE", tmp_path / "failure")
    with pytest.raises(SystemExit) as ended:
        driver.main(Path(f"/opt/ml/input/data/sm_drivers/distributed_drivers/{name}.py"))
    assert "TRAINWRIGHT_SDK_DRIVERS=own" in str(ended.value)
    assert str(ended.value) == (tmp_path / "failure").read_text()
