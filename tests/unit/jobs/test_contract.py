"""Test what a job's containers get, and which options a command line may request."""

import json
from pathlib import Path

import pytest

from trainwright.core import certificates
from trainwright.core.errors import ConfigError, JobError
from trainwright.jobs import contract, run
from trainwright.jobs.containers import Ended
from trainwright.resolve import pip_files

TORCH, HOROVOD, BARE = {"torch": "2", "mpi4py": "4"}, {"torch": "2", "horovod": "0"}, {"python": "3"}
TENSORFLOW, JAX = {"tensorflow": "2", "mpi4py": "4"}, {"jax": "0", "mpi4py": "4"}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], {}),
        (["--epochs", "3", "--fast"], {"epochs": "3", "fast": ""}),
        (["--lr=-0.1", "--name", "a=b"], {"lr": "-0.1", "name": "a=b"}),
        (["--lr", "-0.1"], {"lr": "-0.1"}),
    ],
)
def test_words_become_hyperparameters(words: list[str], found: dict[str, str]) -> None:
    assert contract.hyperparameters(words) == found


@pytest.mark.parametrize("words", [["data"], ["--epochs", "3", "4"], ["--epochs", "3", "--epochs", "4"]])
def test_what_is_no_hyperparameter_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError):
        contract.hyperparameters(words)


@pytest.mark.parametrize("name", ["host", "channels", "proceses"])
def test_an_option_with_a_typing_error_is_no_hyperparameter(name: str) -> None:
    assert contract.hyperparameters([f"--{name}", "2"]) == {name: "2"}
    with pytest.raises(ConfigError):
        contract.hyperparameters([f"--{name}", "2"], ["hosts", "channel", "processes"])


@pytest.mark.parametrize(
    ("asked", "components", "ranks", "found"),
    [
        ("", TORCH, 1, "none"),
        ("", TORCH, 2, "torchrun"),
        ("mpi", TORCH, 2, "mpi"),
        ("", HOROVOD, 2, "mpi"),
        ("", TENSORFLOW, 2, "tensorflow"),
        ("mpi", TENSORFLOW, 2, "mpi"),
        ("", JAX, 2, "mpi"),
        ("none", BARE, 2, "none"),
        ("plain", BARE, 2, "none"),  # as the launcher and `emit` call it
    ],
)
def test_what_starts_the_ranks(asked: str, components: dict[str, str], ranks: int, found: str) -> None:
    assert contract.distribution(asked, components, ranks) == found


@pytest.mark.parametrize(
    ("asked", "components"), [("torchrum", TORCH), ("torchrun", TENSORFLOW), ("tensorflow", TORCH), ("", BARE)]
)
def test_what_nothing_starts_is_refused(asked: str, components: dict[str, str]) -> None:
    """Two ranks that train alone, side by side, would look like success."""
    with pytest.raises(ConfigError):
        contract.distribution(asked, components, 2)


@pytest.mark.parametrize(("asked", "components"), [("none", TORCH), ("none", TENSORFLOW)])
def test_processes_that_would_be_dropped_are_refused(asked: str, components: dict[str, str]) -> None:
    """What starts one process on each host would ignore the number in silence."""
    with pytest.raises(ConfigError, match="--processes 4 is too many") as failed:
        contract.distribution(asked, components, 8, 4)
    assert "another --distribution" in str(failed.value.fix)


@pytest.mark.parametrize("asked", ["", "tensorflow"])
def test_tensorflow_has_several_workers_on_a_host(asked: str) -> None:
    """The launcher starts them (tests/unit/launcher, one worker that fails ends the others)."""
    assert contract.distribution(asked, TENSORFLOW, 8, 4) == "tensorflow"


def test_every_host_is_told_who_it_is() -> None:
    files = contract.config(contract.hosts(2), "algo-2", {"epochs": "3", "fast": True}, ["training"], "ml.c5.xlarge")
    resources = json.loads(files["/opt/ml/input/config/resourceconfig.json"])
    assert (resources["current_host"], resources["hosts"]) == ("algo-2", ["algo-1", "algo-2"])
    assert json.loads(files["/opt/ml/input/config/hyperparameters.json"]) == {"epochs": '"3"', "fast": "true"}
    assert list(json.loads(files["/opt/ml/input/config/inputdataconfig.json"])) == ["training"]


def test_the_hosts_of_a_run_share_a_secret_of_its_own() -> None:
    """In a file for root alone; nothing that `docker inspect` shows holds it."""
    job = run.Job(image="image", hosts=2, source=Path(), shm="1g", grace=1)
    runs = [run.contracts(job, "name") for _ in range(2)]
    held = [{host.private[host.environment["TRAINWRIGHT_JOB_SECRET_FILE"]] for host in hosts} for hosts in runs]
    assert [len(secrets) for secrets in held] == [1, 1]
    assert held[0] != held[1]
    (secret,) = held[0]
    assert len(secret) == 64
    for host in runs[0]:
        assert secret.decode() not in str([host.command, host.environment, host.files])


@pytest.fixture
def pip_here(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the settings that pip has on this host; tests change them."""
    told = dict[str, str]()
    for module in (pip_files, certificates):
        monkeypatch.setattr(module, "pip_settings", lambda: told)
    return told


def test_a_job_of_any_user_reads_the_cas(pip_here: dict[str, str], authority: Path) -> None:
    """A password of an index is for root alone, as the secret is; a CA is public."""
    pip_here |= {"cert": str(authority / "ca.pem"), "index-url": "https://user:password@index.example/simple"}
    (host,) = run.contracts(run.Job(image="image", hosts=1, source=Path(), shm="1g", grace=1), "name")
    path = host.environment["SSL_CERT_FILE"]
    assert (authority / "ca.pem").read_bytes().strip() in host.files[path]
    conf = host.private[host.environment["PIP_CONFIG_FILE"]].decode()
    assert f"cert = {path}\n" in conf
    assert not any(Path(private).parent in Path(path).parents for private in host.private)


def test_an_address_that_means_the_container_is_said(pip_here: dict[str, str]) -> None:
    """It is handed on: without it pip would ask another index, or go around a proxy."""
    pip_here |= {"index-url": "https://user:password@127.0.0.1:3141/simple", "proxy": "localhost:3128"}
    pip_here["extra-index-url"] = "https://index.example/simple http://[::1]:80/simple"
    said = pip_files.notes()
    for part in ("index-url is https://***@127.0.0.1:3141/", "proxy is localhost:3128", "http://[::1]:80/"):
        assert [note for note in said if part in note], part
    assert len(said) == 3
    assert b"127.0.0.1:3141" in pip_files.contents("/ca")[pip_files.CONF]
    pip_here |= {"index-url": "https://index.example/simple", "proxy": "proxy.example:3128", "extra-index-url": ""}
    assert pip_files.notes() == []


def test_the_host_that_failed_is_named_and_not_the_one_that_ended_first() -> None:
    told = Ended(host="algo-1", code=1, seconds=3.0, failure="algo-2: exit code 1\nRuntimeError")
    cause = Ended(host="algo-2", code=1, seconds=3.4, failure="algo-2: exit code 1\nRuntimeError")
    with pytest.raises(JobError, match="algo-2 ended with exit code 1"):
        run.refuse(run.Outcome(hosts=[told, cause]))
    with pytest.raises(JobError, match="algo-1 ended with exit code 1"):  # neither says who it was
        run.refuse(run.Outcome(hosts=[one.model_copy(update={"failure": ""}) for one in (told, cause)]))
