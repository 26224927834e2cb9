#!/usr/bin/env bash
# The Docker Engine and the tools a build needs: use what is there, install only what is missing.
#   engine.sh ensure [-v] [--tools "mmdebstrap …"]   engine.sh status   engine.sh stop
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  die "$TW_USAGE" "usage: engine.sh ensure [-v] [--tools 'NAME …'] | status | stop" \
    "--tools: only these of [packages.tools] and [packages.optional] in host.toml are needed here; '' for none"
}

# --- what is there ---------------------------------------------------------------------------------------------------

SERVER='' BUILDX='' LACKING=() TOOLS=''

look() { # fills SERVER and BUILDX (versions, empty if there is none) and LACKING (tools)
  local tool
  hash -r
  SERVER=$(docker version --format '{{.Server.Version}}' 2>/dev/null) || SERVER=''
  BUILDX=$(docker buildx version 2>/dev/null) || BUILDX=''
  BUILDX=${BUILDX#* } BUILDX=${BUILDX%% *} BUILDX=${BUILDX#v}   # "github.com/docker/buildx v0.13.1 <commit>"
  LACKING=()
  for tool in $TOOLS; do have "$tool" || LACKING+=("$tool"); done
}

engine_good() { at_least "$SERVER" "${CONF[engine.minimum]}"; }
buildx_good() { at_least "$BUILDX" "${CONF[engine.buildx_minimum]}"; }
all_good() { engine_good && buildx_good && [ ${#LACKING[@]} -eq 0 ]; }

lacks() { # in words, for people
  local text=''
  engine_good || text+=", Docker Engine ${CONF[engine.minimum]} or newer"
  buildx_good || text+=", docker buildx ${CONF[engine.buildx_minimum]} or newer"
  if [ ${#LACKING[@]} -gt 0 ]; then text+=$(printf ', %s' "${LACKING[@]}"); fi
  printf '%s' "${text#, }"
}

our_pid() { # the pid of the daemon that we started, if it runs
  local pid
  pid=$(cat "${CONF[engine.pidfile]}" 2>/dev/null) || return 1
  pid_runs "$pid" "$(daemon_config)" && printf '%s' "$pid"
}

daemon_config() { printf '%s/etc/daemon.json' "${CONF[prefix]}"; }

# --- may we install? -------------------------------------------------------------------------------------------------

DISTRO='' CODENAME=''

os_release() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" /etc/os-release 2>/dev/null || true; }

refuse_unless_ours_to_install() {
  local answer context wanted="unix://${CONF[engine.socket]}"
  answer=$(docker version 2>&1 >/dev/null | tail -n 1) || true

  # Only a daemon at the default socket is ours to start: never beside one that answers, never for another address.
  if [ -n "$SERVER" ] && ! engine_good; then
    die "$TW_ENVIRONMENT" "Docker Engine $SERVER answers, ${CONF[engine.minimum]} or newer is needed" \
      "Upgrade it, or remove it and run this again:  apt-get remove docker.io && scripts/engine.sh ensure"
  fi
  if [ -z "$SERVER" ]; then
    if [ -n "${DOCKER_HOST:-}" ] && [ "$DOCKER_HOST" != "$wanted" ]; then
      die "$TW_ENVIRONMENT" "no Docker Engine answers at DOCKER_HOST=$DOCKER_HOST" "$answer" \
        "Start that one, or use the local one:  unset DOCKER_HOST"
    fi
    context=$(docker context show 2>/dev/null) || context=default
    [ "$context" = default ] || die "$TW_ENVIRONMENT" "no Docker Engine answers in the docker context '$context'" "$answer" \
      "Start that one, or use the local one:  docker context use default"
  fi

  DISTRO=$(os_release ID) CODENAME=$(os_release VERSION_CODENAME)
  case $DISTRO in
    debian | ubuntu) ;;
    *)
      die "$TW_ENVIRONMENT" "missing: $(lacks)${answer:+ ($answer)}" \
        "This installs by itself on Debian and Ubuntu only; here is '${DISTRO:-unknown}'. Install them with your package" \
        "manager, or use an engine elsewhere through its socket:" \
        "  ssh -fNL /tmp/docker.sock:/var/run/docker.sock you@host && export DOCKER_HOST=unix:///tmp/docker.sock" \
        "A host that needs fewer tools says so:  scripts/engine.sh ensure --tools 'mmdebstrap'"
      ;;
  esac
  if [ "$(id -u)" != 0 ]; then
    case $answer in
      *"permission denied"*)
        die "$TW_ENVIRONMENT" "a Docker Engine runs, but you may not use it" "$answer" \
          "Use sudo, or join the socket's group and log in again:  sudo usermod -aG docker $(id -un)" ;;
    esac
    die "$TW_ENVIRONMENT" "missing: $(lacks); installing needs root" "sudo $TW_ROOT/scripts/engine.sh ensure"
  fi
}

# --- installing ------------------------------------------------------------------------------------------------------

package_of() { # group command
  printf '%s' "${CONF[packages.$DISTRO.$2]:-${CONF[packages.$1.$2]:-${CONF[packages.optional.$2]}}}"
}

contains() { case " $1 " in *" $2 "*) true ;; *) false ;; esac; }

suites_for() { # package: the suites to unpack it from, best first; empty means apt-install it
  local newer=${CONF[unpack.suite.$CODENAME]:-}
  if [ -n "$newer" ] && contains "${CONF[unpack.packages]}" "$1"; then
    printf '%s' "$newer"
  elif contains "${CONF[unpack.always]}" "$1"; then
    printf '%s' "$CODENAME"
  fi
}

apt() { # Waits for an unattended upgrade instead of failing on its lock.
  DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

apt_update() { # apt alone goes on with a list missing, and exits with 0: tried twice, then as apt does (a broken third party)
  apt -o APT::Update::Error-Mode=any update || apt update
}

apt_failed() { # what log
  tail -n 15 "$2" >&2
  die "$TW_ENVIRONMENT" "$1" "The lines above say why. Is the mirror reachable, the disk full?  apt-get update; df -h /" \
    "NO_PUBKEY means an old keyring:  apt-get install --only-upgrade debian-archive-keyring" \
    "No such package: this release does not carry it; install the command another way, or leave it out with --tools"
}

apt_install() { # package…: Debian 13 and Ubuntu take everything this way (untested there)
  local log=$WORK/apt.log
  # Most hosts have lists that are fresh enough; a bare container has none.
  apt install -y --no-install-recommends "$@" >"$log" 2>&1 && return
  apt_update >"$log" 2>&1 || apt_failed "apt-get update failed" "$log"
  apt install -y --no-install-recommends "$@" >"$log" 2>&1 || apt_failed "apt-get install $* failed" "$log"
}

mirrors() { # the distribution's own archives among the host's sources: "uri suite component", whatever their format
  # apt parses both formats and knows whose archive it is; a third party that also calls its suite "bookworm" is not it.
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' |
    awk -F'|' -v c="$CODENAME" 'tolower($1) ~ /^(debian|ubuntu)$/ && $4 ~ /^(main|universe)$/ {
      suite = $3 ~ "^" c ? $3 : $2
      if (suite == c || suite == c "-updates" || suite == c "-security") print $5, suite, $4 }' | sort -u
}

unpack() { # "suite…" package…: signed packages, from the first of these suites that has them all for a host like this
  local suites=$1 suite log=$WORK/apt.log found deb name
  shift
  found=$(mirrors)
  if [ -z "$found" ]; then
    apt_update >"$log" 2>&1 || apt_failed "apt-get update failed" "$log"
    found=$(mirrors)
  fi
  [ -n "$found" ] || die "$TW_ENVIRONMENT" "none of apt's sources is $DISTRO's own archive for $CODENAME" \
    "Add a mirror of it, then run this again. What apt knows:  apt-get indextargets --format '\$(REPO_URI) \$(ORIGIN)'"

  for suite in $suites; do
    rm -rf "$WORK"/{lists,cache,sources,debs,root}
    if bring "$suite" "$found" "$log" "$@"; then break; fi
    [ "$suite" != "${suites##* }" ] || apt_failed "$PROBLEM" "$log"
    say "  $PROBLEM; trying the next suite"
  done
  mkdir -p "${CONF[prefix]}/packages"
  for deb in "$WORK"/debs/*.deb; do   # each put in place by one rename
    name=$(dpkg-deb -f "$deb" Package)
    rm -rf "${CONF[prefix]}/packages/$name"
    mv -T "$WORK/root/$name" "${CONF[prefix]}/packages/$name"
  done
}

PROBLEM=''

bring() { # suite mirrors log package…: unpacked under $WORK/root; where that is of no use here false, and PROBLEM
  local suite=$1 found=$2 log=$3 keyring='' uri its component deb name options
  shift 3
  if [ "$DISTRO" = debian ]; then keyring=" [signed-by=${CONF[unpack.keyring]}]"; fi
  mkdir -p "$WORK/lists/partial" "$WORK/cache/archives/partial" "$WORK/sources" "$WORK/debs" "$WORK/root"
  while read -r uri its component; do
    printf 'deb%s %s %s %s\n' "$keyring" "$uri" "$suite${its#"$CODENAME"}" "$component"
  done <<<"$found" >"$WORK/sources/newer.list"

  # State of its own: the host's apt never hears of the newer suite. Its proxy and password settings still apply.
  options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$WORK/sources" -o "Dir::State::Lists=$WORK/lists"
    -o "Dir::Cache=$WORK/cache" -o APT::Sandbox::User=root -o Dir::Etc::Preferences=/dev/null
    -o Dir::Etc::PreferencesParts=/dev/null -o APT::Update::Post-Invoke-Success::=true)
  PROBLEM="cannot read $DISTRO's $suite suite"
  apt "${options[@]}" update >"$log" 2>&1 || return
  PROBLEM="cannot download $* from $suite"
  (cd "$WORK/debs" && apt "${options[@]}" download "$@") >"$log" 2>&1 || return
  for deb in "$WORK"/debs/*.deb; do
    name=$(dpkg-deb -f "$deb" Package)
    PROBLEM="cannot unpack $name of $suite"
    dpkg -x "$deb" "$WORK/root/$name" >"$log" 2>&1 || return
    PROBLEM="$name of $suite does not start here: it wants newer libraries than $CODENAME has"
    starts "$WORK/root/$name" "$log" || return
  done
}

starts() { # folder log: does this host have the libraries, new enough, that the programs in there want?
  local file
  for file in "$1"/usr/{bin,sbin,libexec/docker/cli-plugins}/*; do
    ldd "$file" >"$2" 2>&1 || true   # it says no to what is not dynamic, too
    if grep -q 'not found' "$2"; then return 1; fi
  done
}

link_commands() { # makes what lies under the prefix callable; never hides a command of the host
  local prefix=${CONF[prefix]} file name plugin="${CONF[engine.plugin_dir]}/docker-buildx"
  mkdir -p "$prefix/bin" "${CONF[engine.link_dir]}" "${CONF[engine.plugin_dir]}"
  for file in "$prefix"/packages/*/usr/{bin,sbin}/*; do
    # docker-init is a link to tini-static, which is the host's: dockerd is told where that is.
    [ ! -x "$file" ] || ln -sfn "$file" "$prefix/bin/${file##*/}"
  done
  hash -r
  while read -r name; do
    file=${CONF[engine.link_dir]}/$name
    if [ -x "$prefix/bin/$name" ] && ! have "$name" && [ ! -e "$file" ]; then ln -sfn "$prefix/bin/$name" "$file"; fi
  done < <(echo docker; conf_keys packages.tools; conf_keys packages.optional)
  file=$prefix/packages/docker-buildx/usr/libexec/docker/cli-plugins/docker-buildx
  # A folder of the system, not ~/.docker: it has to work for any client and any user.
  if [ -x "$file" ] && ! buildx_good && [ ! -e "$plugin" ]; then ln -sfn "$file" "$plugin"; fi
}

dockerd_path() { # a dockerd that is new enough, ours first
  local path
  for path in "${CONF[prefix]}/bin/dockerd" "$(command -v dockerd || true)"; do
    if [ -x "$path" ] && at_least "$("$path" --version | sed -n 's/^Docker version \([^ ,]*\).*/\1/p')" "${CONF[engine.minimum]}"
    then printf '%s' "$path" && return; fi
  done
  return 1
}

install_missing() {
  local group name package suites entry dockerd own=() todo=() lines=()
  local -A from=()
  for name in "${LACKING[@]}"; do todo+=("tools $name"); done
  buildx_good || todo+=("engine docker-buildx")
  have docker || todo+=("engine docker")
  if [ -z "$SERVER" ]; then
    dockerd=$(dockerd_path) || todo+=("engine dockerd")
    PATH=${CONF[prefix]}/bin:$PATH have containerd || todo+=("engine containerd")
    while read -r name; do have "$name" || todo+=("runtime $name"); done < <(conf_keys packages.runtime)
  fi
  [ ${#todo[@]} -gt 0 ] || return 0

  for entry in "${todo[@]}"; do
    read -r group name <<<"$entry"
    package=$(package_of "$group" "$name")
    suites=$(suites_for "$package")
    if [ -z "$suites" ]; then own+=("$package"); else contains "${from[$suites]:-}" "$package" || from[$suites]+=" $package"; fi
  done

  if [ -n "$SERVER" ]; then say "Docker Engine $SERVER answers. Missing: $(lacks). Installing:"
  else say "No Docker Engine answers. Missing: $(lacks). Installing:"; fi
  [ ${#own[@]} -eq 0 ] || lines+=("  ${own[*]}: apt-get, from $DISTRO $CODENAME")
  for suites in "${!from[@]}"; do
    lines+=(" ${from[$suites]}: from $DISTRO's ${suites// /, else }, signatures checked, unpacked into ${CONF[prefix]}")
  done
  for entry in "${lines[@]}"; do say "$entry"; done

  # A killed run leaves packages unpacked but not configured: their commands are there, and apt refuses to go on.
  if [ -n "$(dpkg --audit)" ]; then DEBIAN_FRONTEND=noninteractive dpkg --configure -a >"$WORK/dpkg.log" 2>&1 || true; fi
  [ ${#own[@]} -eq 0 ] || apt_install "${own[@]}"
  for suites in "${!from[@]}"; do
    # shellcheck disable=SC2086
    unpack "$suites" ${from[$suites]}
  done
}

# --- the daemon ------------------------------------------------------------------------------------------------------

write_config() { # the administrator's settings (mirrors, address pools) hold; we only fill in what they leave open
  local file
  file=$(daemon_config)
  mkdir -p "${file%/*}"
  python3 - "$file.new" "${CONF[engine.cache_keep]}" <<'PYTHON' ||
import json, os, sys
theirs = "/etc/docker/daemon.json"
text = open(theirs).read() if os.path.exists(theirs) else ""
try:
    config = json.loads(text) if text.strip() else {}
except ValueError as error:
    sys.exit(f"{theirs}: {error}")
# OCI output, attestations and cache export need this image store.
config.setdefault("features", {}).setdefault("containerd-snapshotter", True)
config.setdefault("builder", {}).setdefault("gc", {"enabled": True, "defaultKeepStorage": sys.argv[2]})
config.setdefault("init-path", "tini-static")
json.dump(config, open(sys.argv[1], "w"), indent=1)
PYTHON
    die "$TW_ENVIRONMENT" "cannot write the daemon's configuration" "The line above says why. Look:" \
      "  python3 -m json.tool /etc/docker/daemon.json; df -h ${CONF[prefix]}"
  mv "$file.new" "$file"
}

explain_failure() { # what: with the last lines of the log and the likeliest fix
  local log=${CONF[engine.log]} fix
  fix="The whole log:  less $log"
  tail -n 12 "$log" >&2 || true
  case $(tail -n 40 "$log" 2>/dev/null) in
    *[Ii]"ptables not found"*) fix="Install it:  apt-get install -y iptables" ;;
    *iptables*[Pp]"ermission denied"* | *"Table does not exist"*)
      fix="iptables cannot make a NAT table. On a host:  modprobe iptable_nat; in a container: run it with --privileged" ;;
    *"no space left"*) fix="The disk is full:  df -h /var/lib/docker" ;;
    *"process with PID"*"still running"*)
      fix="Another daemon holds ${CONF[engine.pidfile]}: wait for it, or remove that file if it is stale" ;;
    *"peration not permitted"*) fix="This container has too few rights: run it with --privileged, or set DOCKER_HOST" ;;
  esac
  die "$TW_ENVIRONMENT" "$1" "$fix"
}

wait_ready() { # pid: false if that daemon ends before it answers
  local seconds=${CONF[engine.ready_seconds]} end
  end=$((SECONDS + seconds))
  until docker version >/dev/null 2>&1; do
    pid_lives "$1" || return 1
    [ "$SECONDS" -lt "$end" ] || explain_failure "the Docker daemon is not ready after $seconds s"
    sleep 0.1
  done
}

start_daemon() {
  local dockerd pid log=${CONF[engine.log]}
  pid=$(cat "${CONF[engine.pidfile]}" 2>/dev/null) || pid=''
  if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
    # Somebody may have started one a moment ago: wait for it, never a second one.
    if wait_ready "$pid"; then return; fi
    # A killed one that nobody has reaped yet still has a /proc entry, and dockerd would take it for alive.
    rm -f "${CONF[engine.pidfile]}"
  fi
  # With systemd the package's own unit is the better parent (untested here: no systemd).
  if [ -d /run/systemd/system ] && systemctl cat docker.service >/dev/null 2>&1 && systemctl start docker.service; then
    if docker version >/dev/null 2>&1; then return; fi
  fi
  unshare -m true 2>/dev/null || die "$TW_ENVIRONMENT" "a Docker daemon cannot run here: this container may not mount" \
    "Start the container with --privileged, or use another engine:  export DOCKER_HOST=…"
  dockerd=$(dockerd_path) || die "$TW_ENVIRONMENT" "no dockerd ${CONF[engine.minimum]} or newer after installing" \
    "Remove what was unpacked and try again:  rm -rf ${CONF[prefix]} && scripts/engine.sh ensure"
  write_config
  say "Starting ${dockerd}, log in $log"
  # PATH: its containerd, shims and proxy lie beside it.
  pid=$(PATH=${CONF[prefix]}/bin:$PATH detach "$log" \
    "$dockerd" --config-file "$(daemon_config)" --pidfile "${CONF[engine.pidfile]}")
  wait_ready "$pid" || explain_failure "the Docker daemon ended while starting"
}

# --- commands --------------------------------------------------------------------------------------------------------

WORK=''

ensure() {
  local verbose='' path
  TOOLS=$(conf_keys packages.tools)
  while [ $# -gt 0 ]; do
    case $1 in
      -v) verbose=1 ;;
      --tools) [ $# -gt 1 ] || usage; TOOLS=$2; shift ;;
      *) usage ;;
    esac
    shift
  done
  for path in $TOOLS; do [ -n "${CONF[packages.optional.$path]:-}" ] || conf "packages.tools.$path" >/dev/null; done
  look
  if ! all_good; then
    refuse_unless_ours_to_install
    mkdir -p "${CONF[prefix]}"
    exec 9>"${CONF[prefix]}/.lock"
    if ! flock -n 9; then
      say "Another installation is at work; waiting for it."
      flock -w "${CONF[engine.lock_seconds]}" 9 || die "$TW_ENVIRONMENT" "another installation still holds ${CONF[prefix]}/.lock" \
        "See who:  fuser -v ${CONF[prefix]}/.lock"
    fi
    rm -rf "${CONF[prefix]}"/.work.*   # a killed run's; nobody else's, we hold the lock
    WORK=$(mktemp -d "${CONF[prefix]}/.work.XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
    link_commands
    look
    install_missing
    link_commands
    look
    [ -n "$SERVER" ] || start_daemon
    look
    if ! all_good; then
      path=$(docker info --format '{{range .ClientInfo.Plugins}}{{if eq .Name "buildx"}}{{.Path}}{{end}}{{end}}' 2>/dev/null) || path=''
      die "$TW_ENVIRONMENT" "still missing after installing: $(lacks)" \
        "docker: $(command -v docker || echo none), its buildx: ${path:-none} ${BUILDX:+($BUILDX)}" \
        "An older plugin in front hides ours; move it away:  mv '${path:-~/.docker/cli-plugins/docker-buildx}' /tmp/"
    fi
    verbose=1
  fi
  [ -z "$verbose" ] || say "Docker Engine $SERVER, buildx $BUILDX${TOOLS:+, ${TOOLS//[[:space:]]/, }}: ready"
}

status() {
  local pid tool type
  TOOLS=$(conf_keys packages.tools)
  look
  if [ -n "$SERVER" ]; then
    type='{{range .DriverStatus}}{{if eq (index . 0) "driver-type"}} ({{index . 1}}){{end}}{{end}}'
    docker info --format "engine    {{.ServerVersion}}, images in {{.Driver}}$type, data in {{.DockerRootDir}}"
  else
    echo "engine    none answers${DOCKER_HOST:+ at $DOCKER_HOST}; start one:  scripts/engine.sh ensure"
  fi
  if pid=$(our_pid); then
    echo "daemon    ours, pid $pid, log ${CONF[engine.log]}; stop it:  scripts/engine.sh stop"
  elif [ -n "$SERVER" ]; then
    echo "daemon    not started by us"
  fi
  echo "client    $(command -v docker || echo none)"
  echo "buildx    ${BUILDX:-none}"
  for tool in $TOOLS; do printf '%-9s %s\n' tool "$(command -v "$tool" || echo "$tool: missing")"; done
  for tool in $(conf_keys packages.optional); do
    printf '%-9s %s\n' optional "$(command -v "$tool" || echo "$tool: missing; scripts/engine.sh ensure --tools $tool")"
  done
  all_good || die "$TW_ENVIRONMENT" "missing: $(lacks)" "scripts/engine.sh ensure"
}

stop() {
  local pid
  if ! pid=$(our_pid); then
    say "No daemon of ours is running; nothing to stop."
    return
  fi
  stop_pid "$pid" 30 || die "$TW_ENVIRONMENT" "the daemon (pid $pid) did not end within 30 s" "kill -9 $pid"
  say "Stopped the daemon (pid $pid). Images and cache stay."
}

load_conf
case ${1:-} in
  ensure | status | stop) command=$1; shift; "$command" "$@" ;;
  *) usage ;;
esac
