"""Test the host scripts with stand-ins: a program that could install or start something only records its call.

The scripts run in a separate checkout, whose host.toml names only folders of the test.
"""

import fcntl
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HARMLESS = "cat dirname env grep ln mkdir rm sed sh"
HARMFUL = "apt-get dpkg dpkg-deb dockerd containerd setsid sudo systemctl unshare"

DOCKER = """\
case "$*" in
  version*) if [ -n "$STUB_SERVER" ]; then echo "$STUB_SERVER"; else echo "$STUB_ANSWER" >&2; exit 1; fi ;;
  "buildx version") if [ -e "$HOME/buildx" ]; then read -r STUB_BUILDX <"$HOME/buildx"; fi # installed since
    [ -n "$STUB_BUILDX" ] && echo "github.com/docker/buildx $STUB_BUILDX abcdef" ;;
  "context show") echo "${STUB_CONTEXT:-default}" ;;
  info*) echo "engine    stub" ;;
esac
"""


@dataclass
class Machine:
    """A host whose programs are stand-ins; by default it has all that is needed."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, script: str) -> None:
        """Put a program on PATH."""
        path = self.folder / "bin" / name
        path.unlink(missing_ok=True)  # it may be a link into the real host
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def run(self, script: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "scripts/python.sh", self.folder / "scripts" / script, *words],
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    @property
    def called(self) -> list[str]:
        """List the calls of programs that change a host."""
        return (self.folder / "called").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name in ("bin", "scripts", "dockerfiles"):
        (tmp_path / name).mkdir()
    for name in ("python.sh", "host.py", "engine.py", "setup_venv.py"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    settings = (ROOT / "dockerfiles/host.toml").read_text()
    settings = re.sub(r'"/(?!etc/ssl)', f'"{tmp_path}/host/', settings)
    settings = settings.replace(f"{tmp_path}/host/etc/os-release", f"{tmp_path}/os-release")
    (tmp_path / "dockerfiles/host.toml").write_text(settings)
    (tmp_path / "called").touch()
    found = Machine(tmp_path, {"PATH": f"{tmp_path}/bin", "HOME": str(tmp_path), "STUB_SERVER": "28.5.1"})
    found.env |= {"STUB_BUILDX": "v0.20.0", "STUB_UID": "1000", "STUB_ANSWER": "Is the docker daemon running?"}
    for name in HARMLESS.split():
        if path := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(path)
    for name in HARMFUL.split():
        found.put(name, f'echo "{name} $*" >>{tmp_path}/called; exit 1\n')
    found.put("docker", DOCKER)
    found.put("python3", f'exec {sys.executable} "$@"\n')
    found.put("id", 'case "$1" in -u) echo "$STUB_UID" ;; *) echo somebody ;; esac\n')
    distribution(found, "debian", "trixie")
    return found


def distribution(machine: Machine, name: str, codename: str) -> None:
    """Set the distribution in /etc/os-release of the machine."""
    (machine.folder / "os-release").write_text(f'NAME="Some {name}"\nID={name}\nVERSION_CODENAME={codename}\n')


def refused(done: subprocess.CompletedProcess[str], machine: Machine) -> str:
    """Check that a script ended with one error and changed nothing; return the error."""
    assert (done.returncode, done.stdout) == (10, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("error:") == 1
    assert machine.called == []
    assert not (machine.folder / "host").exists()
    return done.stderr


# --- engine.py -------------------------------------------------------------------------------------------------------


def test_an_engine_that_answers_is_used_and_nothing_is_installed(machine: Machine) -> None:
    for uid in ("0", "1000"):
        done = machine.run("engine.py", "ensure", STUB_UID=uid)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.called == []
    assert not (machine.folder / "host").exists()


def test_ensure_says_what_it_found_where_asked(machine: Machine) -> None:
    done = machine.run("engine.py", "ensure", "-v")
    assert done.stderr == "Docker Engine 28.5.1, buildx 0.20.0: ready\n"


@pytest.mark.parametrize("buildx", ["", "v0.9.1"])
def test_without_root_a_client_that_lacks_buildx_is_refused(machine: Machine, buildx: str) -> None:
    said = refused(machine.run("engine.py", "ensure", STUB_BUILDX=buildx), machine)
    assert re.search(r"missing: docker buildx [\d.]+ or newer; installing needs root\n", said)
    assert "sudo make engine\n" in said


def test_without_root_everything_that_is_missing_is_named_at_once(machine: Machine) -> None:
    said = refused(machine.run("engine.py", "ensure", STUB_SERVER="", STUB_BUILDX=""), machine)
    assert re.search(r"missing: Docker Engine .*, docker buildx .*; installing needs root", said)


def test_another_distribution_is_left_alone(machine: Machine) -> None:
    distribution(machine, "fedora", "")
    said = refused(machine.run("engine.py", "ensure", STUB_BUILDX="", STUB_UID="0"), machine)
    assert "missing: docker buildx" in said
    assert "here is 'fedora'" in said


def test_an_engine_that_is_too_old_is_never_replaced(machine: Machine) -> None:
    said = refused(machine.run("engine.py", "ensure", STUB_SERVER="24.0.7", STUB_UID="0"), machine)
    assert re.search(r"Docker Engine 24\.0\.7 answers, \d+ or newer is needed\n  Upgrade it", said)


def test_no_engine_is_started_beside_the_one_that_docker_host_names(machine: Machine) -> None:
    address = "tcp://192.0.2.1:2375"
    said = refused(machine.run("engine.py", "ensure", STUB_SERVER="", STUB_UID="0", DOCKER_HOST=address), machine)
    assert f"no Docker Engine answers at DOCKER_HOST={address}\n  Is the docker daemon running?" in said
    assert "unset DOCKER_HOST" in said


def test_no_engine_is_started_beside_the_one_of_a_context(machine: Machine) -> None:
    said = refused(machine.run("engine.py", "ensure", STUB_SERVER="", STUB_UID="0", STUB_CONTEXT="far"), machine)
    assert "in the docker context 'far'" in said


def test_a_socket_that_one_may_not_use_is_no_missing_engine(machine: Machine) -> None:
    said = refused(machine.run("engine.py", "ensure", STUB_SERVER="", STUB_ANSWER="permission denied: sock"), machine)
    assert "you may not use it" in said
    assert "usermod -aG docker somebody" in said


def test_root_installs_what_is_missing_and_no_more(machine: Machine) -> None:
    machine.put("apt-get", f'echo "apt-get $*" >>{machine.folder}/called; echo v0.20.0 >{machine.folder}/buildx\n')
    machine.put("dpkg", "")
    done = machine.run("engine.py", "ensure", STUB_BUILDX="", STUB_UID="0")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"Missing: docker buildx .*\. Installing:\n  docker-buildx: apt-get, from debian trixie\n", done.stderr
    )
    (call,) = machine.called
    assert call.endswith(" install -y --no-install-recommends docker-buildx")


def test_what_apt_cannot_install_is_an_error_with_its_own_words(machine: Machine) -> None:
    machine.put("apt-get", "echo E: Unable to locate package; exit 100\n")
    machine.put("dpkg", "")
    done = machine.run("engine.py", "ensure", STUB_BUILDX="", STUB_UID="0")
    assert done.returncode == 10
    assert "E: Unable to locate package\nerror: apt-get update failed\n" in done.stderr
    assert done.stderr.count("error:") == 1


def test_a_package_that_only_makes_the_engine_quicker_may_be_missing(machine: Machine) -> None:
    """The installation goes on to the daemon, which cannot run on this stub."""
    names = tomllib.loads((ROOT / "dockerfiles/host.toml").read_text())["packages"]["quicker"].values()
    absent = "|".join(f"*{name}*" for name in names)
    machine.put("apt-get", f'echo "$*" >>{machine.folder}/called; case "$*" in {absent}) exit 100 ;; esac\n')
    machine.put("dpkg", "")
    done = machine.run("engine.py", "ensure", STUB_SERVER="", STUB_UID="0")
    assert "error: a Docker daemon cannot run here" in done.stderr
    needed, *rest = [call.rpartition("--no-install-recommends ")[2] for call in machine.called if "install" in call]
    assert "docker.io" in needed.split()
    assert rest == [*names]


APT = """\
for word; do case $word in Dir::Etc::SourceParts=*) read -r line <"${word#*=}/newer.list" ;; esac; done
case "$*" in
  *indextargets*) echo "Debian|bookworm|bookworm|main|http://mirror.invalid/debian" ;;
  *download*) case $line in *" $STUB_LOST "*) echo "E: Unable to locate package"; exit 100 ;; esac
    echo "$line" >docker-buildx.deb ;;
esac
"""
DPKG = """\
[ "$1" = -x ] || exit 0
mkdir -p "$3/usr/libexec/docker/cli-plugins"
cat "$2" >"$3/usr/libexec/docker/cli-plugins/docker-buildx"
/bin/chmod +x "$3/usr/libexec/docker/cli-plugins/docker-buildx"
echo v0.20.0 >"$HOME/buildx"
"""
LDD = 'if grep -Eq " ($STUB_UNFIT) " "$1"; then echo "version \'GLIBC_9.99\' not found"; fi\n'


@pytest.fixture
def bookworm(machine: Machine) -> Machine:
    """Make a Debian 12 without buildx; the test sets which suites lack it or need a newer libc."""
    distribution(machine, "debian", "bookworm")
    for name, script in {"apt-get": APT, "dpkg": DPKG, "dpkg-deb": "echo docker-buildx\n", "ldd": LDD}.items():
        machine.put(name, script)
    machine.env |= {"STUB_UID": "0", "STUB_LOST": "none", "STUB_UNFIT": "none"}
    machine.env["PATH"] += f":{machine.folder}/host/usr/local/bin"
    return machine


@pytest.mark.parametrize(
    ("lost", "unfit", "suite", "why"),
    [
        ("none", "none", 0, ""),
        ("none", "{0}", 1, "docker-buildx of {0} does not start here: it wants newer libraries than bookworm has"),
        ("{0}", "none", 1, "cannot download docker-buildx from {0}"),
    ],
)
def test_programs_come_from_the_first_suite_that_this_host_can_use(
    bookworm: Machine, lost: str, unfit: str, suite: int, why: str
) -> None:
    suites = tomllib.loads((ROOT / "dockerfiles/host.toml").read_text())["unpack"]["suite"]["bookworm"]
    stub = {"STUB_LOST": lost.format(*suites), "STUB_UNFIT": unfit.format(*suites)}
    done = bookworm.run("engine.py", "ensure", STUB_BUILDX="", **stub)
    assert done.returncode == 0, done.stderr
    assert f"from debian's {', else '.join(suites)}, signatures checked" in done.stderr
    assert ("trying the next suite" in done.stderr) == bool(why)
    assert why.format(*suites) in done.stderr
    packages = bookworm.folder / "host/opt/trainwright/packages"
    plugin = packages / "docker-buildx/usr/libexec/docker/cli-plugins/docker-buildx"
    assert f" {suites[suite]} main" in plugin.read_text()


def test_no_suite_that_this_host_can_use_is_an_error_and_leaves_nothing(bookworm: Machine) -> None:
    done = bookworm.run("engine.py", "ensure", STUB_BUILDX="", STUB_UNFIT=".*")
    assert done.returncode == 10
    assert "GLIBC_9.99' not found\nerror: docker-buildx of " in done.stderr
    assert not (bookworm.folder / "host/opt/trainwright/packages").exists()


def test_status_installs_nothing(machine: Machine) -> None:
    done = machine.run("engine.py", "status", STUB_SERVER="", STUB_UID="0")
    assert done.returncode == 10
    assert "none answers; start one:  make engine" in done.stdout
    assert "missing: Docker Engine" in done.stderr
    assert machine.called == []


@pytest.mark.parametrize("words", [[], ["begin"], ["ensure", "--quick"]])
def test_what_is_no_command_is_a_usage_error(machine: Machine, words: list[str]) -> None:
    done = machine.run("engine.py", *words)
    assert done.returncode == 2
    assert "usage: engine.py" in done.stderr


# --- setup_venv.py ---------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(machine: Machine) -> Machine:
    """Make a checkout in which .venv is out of date."""
    (machine.folder / "requirements.lock").touch()
    return machine


def test_the_second_of_two_first_makes_waits_and_then_has_nothing_to_do(checkout: Machine) -> None:
    with (checkout.folder / "requirements.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        command = [checkout.folder / "scripts/python.sh", checkout.folder / "scripts/setup_venv.py"]
        with subprocess.Popen(command, env=checkout.env, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr is not None
            assert second.stderr.readline() == "another make sets up .venv; waiting for it\n"
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(0.2)
            (checkout.folder / ".venv").mkdir()
            (checkout.folder / ".venv/.complete").touch()
            fcntl.flock(held, fcntl.LOCK_UN)
            assert second.stderr.read() == ""
    assert second.returncode == 0


def test_a_python_that_is_too_old_is_refused_by_what_pyproject_says(checkout: Machine) -> None:
    pyproject = checkout.folder / "pyproject.toml"
    pyproject.write_text(re.sub('requires-python = ".*"', 'requires-python = ">=4.2"', pyproject.read_text()))
    said = refused(checkout.run("setup_venv.py"), checkout)
    assert re.search(r"python3 is 3\.\d+\.\d+; Python 4\.2 or newer is needed\n", said)
    named = refused(checkout.run("setup_venv.py", PYTHON="/nowhere/python3"), checkout)
    assert "/nowhere/python3 is no Python that runs; Python 4.2 or newer" in named


OLD = """case "$*" in *platform*) echo 3.6.8 ;; *) exit 1 ;; esac
"""


def test_the_first_python_that_is_new_enough_is_found_by_name(checkout: Machine) -> None:
    """As on Amazon Linux 2023 and RHEL 9, whose python3 is 3.9."""
    checkout.put("python3", OLD)
    assert "python3 is 3.6.8; Python 3.11 or newer" in refused(checkout.run("engine.py", "status"), checkout)
    for name in ("python3.9", "python3.10"):
        checkout.put(name, OLD)
    checkout.put("python3.12", f'exec {sys.executable} "$@"\n')
    assert checkout.run("engine.py", "status").returncode == 0
    assert "python3 is 3.6.8" in refused(checkout.run("engine.py", "status", PYTHON="python3"), checkout)


def test_a_pip_that_fails_is_one_error_and_leaves_no_marker(checkout: Machine) -> None:
    """The next run starts from an empty .venv."""
    checkout.put("pip-stub", "echo WARNING: Location unheard of; echo ERROR: no such file >&2; exit 1\n")
    stub = checkout.folder / "bin/pip-stub"
    (checkout.folder / "scripts/venv.py").write_text(  # in the place of the standard library's
        f"""import pathlib, sys
if __name__ != "__main__": sys.exit()
print(*sys.argv[1:], file=open({str(checkout.folder / "called")!r}, "a"))
pathlib.Path(".venv/bin").mkdir(parents=True)
pathlib.Path(".venv/bin/python").symlink_to({str(stub)!r})
"""
    )
    done = checkout.run("setup_venv.py", PYTHONPATH=str(checkout.folder / "scripts"))
    assert done.returncode == 10
    assert done.stderr.splitlines()[1:3] == [
        "ERROR: no such file",
        "error: pip could not install what requirements.lock names",
    ]
    assert done.stderr.count("error:") == 1
    assert not (checkout.folder / ".venv/.complete").exists()
    assert checkout.called == ["--clear .venv"]
