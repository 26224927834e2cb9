"""Provide the Docker Engine that a build needs: use the one that answers, install only what is missing.

engine.py ensure [-v]   engine.py status   engine.py stop
"""

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from host import ENVIRONMENT, USAGE, die, is_root, output, runs, say, settings, tail

HOST: dict[str, Any] = settings()
ENGINE, PACKAGES, UNPACK = HOST["engine"], HOST["packages"], HOST["unpack"]
PREFIX, LOG, PIDFILE = Path(HOST["prefix"]), Path(ENGINE["log"]), Path(ENGINE["pidfile"])
BIN, DAEMON_CONFIG = PREFIX / "bin", PREFIX / "etc/daemon.json"
BUILDX = PREFIX / "packages/docker-buildx/usr/libexec/docker/cli-plugins/docker-buildx"
ENSURE = "make engine"


def usage() -> NoReturn:
    die(USAGE, "usage: engine.py ensure [-v] | status | stop")


# --- what is there ---------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """The versions of the engine that answers and of buildx; "" if there is none."""

    server: str
    buildx: str

    @property
    def engine_good(self) -> bool:
        return at_least(self.server, ENGINE["minimum"])

    @property
    def buildx_good(self) -> bool:
        return at_least(self.buildx, ENGINE["buildx_minimum"])

    @property
    def good(self) -> bool:
        return self.engine_good and self.buildx_good

    @property
    def lacks(self) -> str:
        """Return what is missing, in words."""
        words = [] if self.engine_good else [f"Docker Engine {ENGINE['minimum']} or newer"]
        words += [] if self.buildx_good else [f"docker buildx {ENGINE['buildx_minimum']} or newer"]
        return ", ".join(words)


def look() -> Found:
    words = output("docker", "buildx", "version").split()  # github.com/docker/buildx v0.13.1 <commit>
    buildx = words[1].removeprefix("v") if len(words) > 1 else ""
    server = output("docker", "version", "--format", "{{.Server.Version}}")
    return Found(server, buildx)


def at_least(version: str, minimum: str) -> bool:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.split(r"[^\d.]", text)[0].split(".") if part]

    return numbers(version) >= numbers(minimum) if version else False


def have(name: str) -> bool:
    """Return whether a command, or a file given by its absolute path, exists."""
    return Path(name).exists() if name.startswith("/") else shutil.which(name) is not None


def our_pid() -> int | None:
    """Return the pid of the daemon that we started, if it runs: the pid in the file may now be another process's."""
    try:
        pid = int(PIDFILE.read_text())
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (OSError, ValueError):
        return None
    return pid if str(DAEMON_CONFIG) in words else None


def lives(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return not re.search(r"^State:\s*[ZX]", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return False


# --- may we install? -------------------------------------------------------------------------------------------------


def distribution() -> tuple[str, str]:
    """Return ID and codename of /etc/os-release; "" for what it lacks."""
    file = Path(HOST["os_release"])
    rows = [line.partition("=") for line in (file.read_text().splitlines() if file.exists() else [])]
    said = {name: value.strip("\"'") for name, _, value in rows}
    return said.get("ID", ""), said.get("VERSION_CODENAME", "")


def refuse_unless_ours_to_install(found: Found) -> None:
    answer = client_says()
    # Only a daemon at the default socket is ours to start: never beside one that answers, never for another address.
    if found.server and not found.engine_good:
        die(
            ENVIRONMENT,
            f"Docker Engine {found.server} answers, {ENGINE['minimum']} or newer is needed",
            f"Upgrade it, or remove it and run this again:  apt-get remove docker.io && {ENSURE}",
        )
    if not found.server:
        address = os.environ.get("DOCKER_HOST")
        if address and address != f"unix://{ENGINE['socket']}":
            fix = "Start that one, or use the local one:  unset DOCKER_HOST"
            die(ENVIRONMENT, f"no Docker Engine answers at DOCKER_HOST={address}", answer, fix)
        context = output("docker", "context", "show") or "default"
        if context != "default":
            fix = "Start that one, or use the local one:  docker context use default"
            die(ENVIRONMENT, f"no Docker Engine answers in the docker context '{context}'", answer, fix)

    name, _ = distribution()
    if name not in ("debian", "ubuntu"):
        die(
            ENVIRONMENT,
            f"missing: {found.lacks}" + (f" ({answer})" if answer else ""),
            f"This installs by itself on Debian and Ubuntu only; here is '{name or sys.platform}'.",
            "Install them with your package manager (on a Mac: start Docker Desktop),",
            "or use an engine elsewhere through its socket:",
            "  ssh -fNL /tmp/docker.sock:/var/run/docker.sock you@host && export DOCKER_HOST=unix:///tmp/docker.sock",
        )
    if not is_root():
        if "permission denied" in answer:
            who = output("id", "-un")
            fix = f"Use sudo, or join the socket's group and log in again:  sudo usermod -aG docker {who}"
            die(ENVIRONMENT, "a Docker Engine runs, but you may not use it", answer, fix)
        die(ENVIRONMENT, f"missing: {found.lacks}; installing needs root", f"sudo {ENSURE}")


def client_says() -> str:
    """Return the last line that the docker client prints if no engine answers."""
    try:
        done = subprocess.run(["docker", "version"], capture_output=True, text=True, errors="replace")
    except OSError:
        return ""
    return (done.stderr.strip().splitlines() or [""])[-1]


# --- installing ------------------------------------------------------------------------------------------------------


def suites_for(package: str, codename: str) -> tuple[str, ...]:
    """Return the suites to unpack a package from, best first; none if apt-get installs it."""
    return tuple(UNPACK["suite"].get(codename, ())) if package in UNPACK["packages"] else ()


def apt(*words: str, log: Path | None = None, cwd: Path | None = None) -> bool:
    """Run apt-get; wait for an unattended upgrade instead of failing on its lock."""
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return runs("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *words, log=log, env=env, cwd=cwd)


def apt_update(log: Path) -> None:
    """Update apt's lists; on an error, accept missing lists as apt does, for example those of a broken third party."""
    if not (apt("-o", "APT::Update::Error-Mode=any", "update", log=log) or apt("update", log=log)):
        apt_failed("apt-get update failed", log)


def apt_failed(what: str, log: Path) -> NoReturn:
    say(tail(log, 15))
    die(
        ENVIRONMENT,
        what,
        "The lines above say why. Is the mirror reachable, the disk full?  apt-get update; df -h /",
        "NO_PUBKEY means an old keyring:  apt-get install --only-upgrade debian-archive-keyring",
        "No such package: this release does not carry it; install the command another way",
    )


def apt_install(packages: list[str], work: Path) -> None:
    """Install packages with apt-get: on Debian 13 and Ubuntu all of them (not tested there)."""
    words, log = ("install", "-y", "--no-install-recommends", *packages), work / "apt.log"
    # Most hosts have lists that are fresh enough; a bare container has none.
    if not apt(*words, log=log):
        apt_update(log)
        if not apt(*words, log=log):
            apt_failed(f"apt-get install {' '.join(packages)} failed", log)


def mirrors(codename: str) -> list[tuple[str, str, str]]:
    """List the distribution's own archives among the host's sources: address, suite, component.

    apt parses all formats of sources and knows each archive's owner: the suite of a third party may also be called
    "bookworm".
    """
    fields = "$(ORIGIN)|$(CODENAME)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)"
    found = set()
    for row in output("apt-get", "indextargets", "--format", fields, "Created-By: Packages").splitlines():
        origin, name, release, component, address = row.split("|")
        suite = release if release.startswith(codename) else name
        own = origin.lower() in ("debian", "ubuntu") and component in ("main", "universe")
        if own and suite in (codename, f"{codename}-updates", f"{codename}-security"):
            found.add((address, suite, component))
    return sorted(found)


def unpack(suites: tuple[str, ...], packages: list[str], work: Path) -> None:
    """Unpack signed packages from the first of these suites whose packages all run on this host."""
    name, codename = distribution()
    if not (found := mirrors(codename)):
        apt_update(work / "apt.log")
        found = mirrors(codename)
    if not found:
        fix = "Add a mirror of it, then run this again. What apt knows:  apt-get indextargets --format '$(REPO_URI)'"
        die(ENVIRONMENT, f"none of apt's sources is {name}'s own archive for {codename}", fix)
    for suite in suites:
        place = work / suite
        rows = [(address, suite + own.removeprefix(codename), component) for address, own, component in found]
        if not (problem := bring(suite, rows, packages, place)):
            break
        if suite == suites[-1]:
            apt_failed(problem, place / "log")
        say(f"  {problem}; trying the next suite")
    (PREFIX / "packages").mkdir(parents=True, exist_ok=True)
    for folder in (place / "root").iterdir():  # each put in place by one rename
        target = PREFIX / "packages" / folder.name
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)


def bring(suite: str, rows: list[tuple[str, str, str]], packages: list[str], place: Path) -> str:
    """Unpack packages of a suite under place/root; return why they cannot be used here, or ""."""
    name, codename = distribution()
    keyring = f" [signed-by={UNPACK['keyring']}]" if name == "debian" else ""
    for folder in ("lists/partial", "cache/archives/partial", "sources", "debs", "root"):
        (place / folder).mkdir(parents=True)
    (place / "sources/newer.list").write_text("".join(f"deb{keyring} {' '.join(row)}\n" for row in rows))
    # State of its own: the host's apt never hears of the newer suite. Its proxy and password settings still apply.
    options = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": place / "sources",
        "Dir::State::Lists": place / "lists",
        "Dir::Cache": place / "cache",
        "APT::Sandbox::User": "root",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "APT::Update::Post-Invoke-Success::": "true",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    log = place / "log"
    if not apt(*words, "update", log=log):
        return f"cannot read {name}'s {suite} suite"
    if not apt(*words, "download", *packages, log=log, cwd=place / "debs"):
        return f"cannot download {' '.join(packages)} from {suite}"
    for deb in sorted((place / "debs").glob("*.deb")):
        package = output("dpkg-deb", "-f", deb, "Package")
        if not runs("dpkg", "-x", deb, place / "root" / package, log=log):
            return f"cannot unpack {package} of {suite}"
        if not starts(place / "root" / package, log):
            return f"{package} of {suite} does not start here: it wants newer libraries than {codename} has"
    return ""


def starts(folder: Path, log: Path) -> bool:
    """Return whether this host has the libraries, in new enough versions, that the folder's programs need."""
    for place in ("bin", "sbin", "libexec/docker/cli-plugins"):
        for file in (folder / "usr" / place).glob("*"):
            runs("ldd", file, log=log)  # it says no to what is not dynamic, too
            if "not found" in log.read_text():
                return False
    return True


def link_commands(found: Found) -> None:
    """Link the commands under the prefix into PATH, without hiding any command of the host."""
    links, plugins = Path(ENGINE["link_dir"]), Path(ENGINE["plugin_dir"])
    for folder in (BIN, links, plugins):
        folder.mkdir(parents=True, exist_ok=True)
    for file in (*(PREFIX / "packages").glob("*/usr/bin/*"), *(PREFIX / "packages").glob("*/usr/sbin/*")):
        # docker-init is a link to tini-static, which is the host's: dockerd is told where that is.
        if os.access(file, os.X_OK):
            link(BIN / file.name, file)
    if os.access(BIN / "docker", os.X_OK) and not have("docker") and not (links / "docker").exists():
        link(links / "docker", BIN / "docker")
    # A folder of the system, not ~/.docker: it has to work for any client and any user.
    if os.access(BUILDX, os.X_OK) and not found.buildx_good and not (plugins / BUILDX.name).exists():
        link(plugins / BUILDX.name, BUILDX)


def link(place: Path, target: Path) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def dockerd() -> Path | None:
    """Return a dockerd that is new enough, preferably ours."""
    for path in map(Path, filter(None, (str(BIN / "dockerd"), shutil.which("dockerd")))):
        said = re.match(r"Docker version ([^ ,]*)", output(path, "--version"))
        if said and at_least(said[1], ENGINE["minimum"]):
            return path
    return None


def install_missing(found: Found, work: Path) -> None:
    name, codename = distribution()
    wanted = [] if found.buildx_good else [("engine", "docker-buildx")]
    wanted += [] if have("docker") else [("engine", "docker")]
    if not found.server:
        wanted += [] if dockerd() else [("engine", "dockerd")]
        wanted += [] if (BIN / "containerd").exists() or have("containerd") else [("engine", "containerd")]
        wanted += [("runtime", command) for command in PACKAGES["runtime"] if not have(command)]
    if not wanted:
        return

    own: list[str] = []
    unpacked: dict[tuple[str, ...], list[str]] = {}
    for group, command in wanted:
        names = PACKAGES[group] | PACKAGES.get(name, {})
        suites = suites_for(names[command], codename)
        held = unpacked.setdefault(suites, []) if suites else own
        held += [] if names[command] in held else [names[command]]
    engine = f"Docker Engine {found.server} answers" if found.server else "No Docker Engine answers"
    say(f"{engine}. Missing: {found.lacks}. Installing:")
    if own:
        say(f"  {' '.join(own)}: apt-get, from {name} {codename}")
    for suites, packages in unpacked.items():
        origin = f"from {name}'s {', else '.join(suites)}"
        say(f"  {' '.join(packages)}: {origin}, signatures checked, unpacked into {PREFIX}")

    # A killed run leaves packages unpacked but not configured: their commands are there, and apt refuses to go on.
    if output("dpkg", "--audit"):
        runs("dpkg", "--configure", "-a", env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
    if own:
        apt_install(own, work)
    for command, package in PACKAGES["quicker"].items():
        if not found.server and not have(command):
            say(f"  {package}: apt-get, if {name} {codename} has it")
            apt("install", "-y", "--no-install-recommends", package, log=work / "quicker.log")
    for suites, packages in unpacked.items():
        unpack(suites, packages, work)


# --- the daemon ------------------------------------------------------------------------------------------------------


def write_config() -> None:
    """Write the daemon's configuration: keep the administrator's settings, and add only what they leave open."""
    import json

    theirs = Path("/etc/docker/daemon.json")
    try:
        text = theirs.read_text() if theirs.exists() else ""
        config = json.loads(text) if text.strip() else {}
        # OCI output, attestations and cache export need this image store.
        config.setdefault("features", {}).setdefault("containerd-snapshotter", True)
        config.setdefault("builder", {}).setdefault("gc", {"enabled": True, "defaultKeepStorage": ENGINE["cache_keep"]})
        config.setdefault("init-path", "tini-static")
        DAEMON_CONFIG.parent.mkdir(parents=True, exist_ok=True)
        new = DAEMON_CONFIG.with_suffix(".new")
        new.write_text(json.dumps(config, indent=1))
        new.replace(DAEMON_CONFIG)
    except (OSError, ValueError, AttributeError) as error:
        fix = f"python3 -m json.tool {theirs}; df -h {PREFIX}"
        die(ENVIRONMENT, "cannot write the daemon's configuration", f"{theirs}: {error}", fix)


FIXES = (  # a pattern of the daemon's log, and what helps
    (r"[Ii]ptables not found", "Install it:  apt-get install -y iptables"),
    (
        r"iptables.*[Pp]ermission denied|Table does not exist",
        "iptables cannot make a NAT table. On a host:  modprobe iptable_nat; in a container: run it with --privileged",
    ),
    (r"no space left", "The disk is full:  df -h /var/lib/docker"),
    (
        r"process with PID.*still running",
        f"Another daemon holds {PIDFILE}: wait for it, or remove that file if it is stale",
    ),
    (r"peration not permitted", "This container has too few rights: run it with --privileged, or set DOCKER_HOST"),
)


def explain_failure(what: str) -> NoReturn:
    """Exit with the last lines of the log and the likeliest fix."""
    said = tail(LOG, 40)
    say(tail(LOG, 12))
    die(
        ENVIRONMENT,
        what,
        next((fix for row, fix in FIXES if re.search(row, said)), f"The whole log:  less {LOG}"),
    )


def wait_ready(pid: int) -> bool:
    """Wait until the engine answers; return False if the daemon ends before."""
    end = time.monotonic() + ENGINE["ready_seconds"]
    while not output("docker", "version"):
        if not lives(pid):
            return False
        if time.monotonic() > end:
            explain_failure(f"the Docker daemon is not ready after {ENGINE['ready_seconds']} s")
        time.sleep(0.1)
    return True


def start_daemon() -> None:
    try:
        pid = int(PIDFILE.read_text())
        another = Path(f"/proc/{pid}/comm").read_text().strip() == "dockerd"
    except (OSError, ValueError):
        another = False
    if another:
        # Somebody may have started one a moment ago: wait for it, never a second one.
        if wait_ready(pid):
            return
        # A killed one that nobody has reaped yet still has a /proc entry, and dockerd would take it for alive.
        PIDFILE.unlink(missing_ok=True)
    # With systemd the package's own unit is the better parent (not run here: no systemd).
    systemd = Path("/run/systemd/system").is_dir() and runs("systemctl", "cat", "docker.service")
    if systemd and runs("systemctl", "start", "docker.service") and output("docker", "version"):
        return
    if not runs("unshare", "-m", "true"):
        fix = "Start the container with --privileged, or use another engine:  export DOCKER_HOST=…"
        die(ENVIRONMENT, "a Docker daemon cannot run here: this container may not mount", fix)
    if (program := dockerd()) is None:
        fix = f"Remove what was unpacked and try again:  rm -rf {PREFIX} && {ENSURE}"
        die(ENVIRONMENT, f"no dockerd {ENGINE['minimum']} or newer after installing", fix)
    write_config()
    say(f"Starting {program}, log in {LOG}")
    with LOG.open("a") as said:
        started = subprocess.Popen(
            [program, "--config-file", DAEMON_CONFIG, "--pidfile", PIDFILE],
            env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"},  # its containerd, shims and proxy lie beside it
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # it outlives us, and holds none of our files
        )
    if not wait_ready(started.pid):
        explain_failure("the Docker daemon ended while starting")


# --- commands --------------------------------------------------------------------------------------------------------


def ensure(verbose: bool) -> None:
    found = look()
    if not found.good:
        refuse_unless_ours_to_install(found)
        PREFIX.mkdir(parents=True, exist_ok=True)
        with (PREFIX / ".lock").open("w") as held:
            wait_for(held.fileno())
            for left in PREFIX.glob(".work.*"):  # a killed run's; nobody else's, we hold the lock
                shutil.rmtree(left)
            with tempfile.TemporaryDirectory(dir=PREFIX, prefix=".work.") as work:
                link_commands(found)
                install_missing(look(), Path(work))
                link_commands(look())
            if not look().server:
                start_daemon()
        found, verbose = look(), True
        if not found.good:
            plugins = '{{range .ClientInfo.Plugins}}{{if eq .Name "buildx"}}{{.Path}}{{end}}{{end}}'
            path = output("docker", "info", "--format", plugins)
            die(
                ENVIRONMENT,
                f"still missing after installing: {found.lacks}",
                f"docker: {shutil.which('docker') or 'none'}, its buildx: {path or 'none'} {found.buildx}",
                "An older plugin in front hides ours; move it away:  "
                f"mv {shlex.quote(path or '~/.docker/cli-plugins/docker-buildx')} /tmp/",
            )
    if verbose:
        say(f"Docker Engine {found.server}, buildx {found.buildx}: ready")


def wait_for(held: int) -> None:
    """Wait until another installation ends."""
    end = time.monotonic() + ENGINE["lock_seconds"]
    told = False
    while True:
        try:
            return fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                say("Another installation is at work; waiting for it.")
            told = True
        if time.monotonic() > end:
            die(ENVIRONMENT, f"another installation still holds {PREFIX}/.lock", f"See who:  fuser -v {PREFIX}/.lock")
        time.sleep(0.2)


def status() -> None:
    found, pid = look(), our_pid()
    address = os.environ.get("DOCKER_HOST")
    if found.server:
        kind = '{{range .DriverStatus}}{{if eq (index . 0) "driver-type"}} ({{index . 1}}){{end}}{{end}}'
        words = f"engine    {{{{.ServerVersion}}}}, images in {{{{.Driver}}}}{kind}, data in {{{{.DockerRootDir}}}}"
        print(output("docker", "info", "--format", words))
    else:
        print(f"engine    none answers{f' at {address}' if address else ''}; start one:  {ENSURE}")
    if pid:
        print(f"daemon    ours, pid {pid}, log {LOG}; stop it:  make engine-stop")
    elif found.server:
        print("daemon    not started by us")
    print(f"client    {shutil.which('docker') or 'none'}\nbuildx    {found.buildx or 'none'}")
    if not found.good:
        sys.stdout.flush()
        die(ENVIRONMENT, f"missing: {found.lacks}", ENSURE)


def stop() -> None:
    pid = our_pid()
    if pid is None:
        say("No daemon of ours is running; nothing to stop.")
        return
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 30
    while lives(pid):
        if time.monotonic() > end:
            die(ENVIRONMENT, f"the daemon (pid {pid}) did not end within 30 s", f"kill -9 {pid}")
        time.sleep(0.05)
    say(f"Stopped the daemon (pid {pid}). Images and cache stay.")


def main(words: list[str]) -> None:
    if words in (["status"], ["stop"]):
        status() if words == ["status"] else stop()
        return
    if words not in (["ensure"], ["ensure", "-v"]):
        usage()
    ensure(verbose="-v" in words)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
