#!/usr/bin/env bash
# A registry on loopback for trials, tests and `make push` without AWS.
#   registry.sh up   prints its address; registry.sh down; registry.sh status
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

load_conf
HOST=${CONF[registry.host]}
PORT=${TRAINWRIGHT_REGISTRY_PORT:-${CONF[registry.port]}}
DATA=$(realpath -m "${TRAINWRIGHT_REGISTRY_DATA:-${XDG_DATA_HOME:-$HOME/.local/share}/trainwright/registry}")
CONFIG=$DATA/config.yml
PIDFILE=$DATA/registry.pid
LOG=$DATA/registry.log

our_pid() { # the configuration's path in its command line makes it ours: a pid file alone may name a stranger by now
  local pid
  pid=$(cat "$PIDFILE" 2>/dev/null) || return 1
  pid_runs "$pid" serve "$CONFIG" && printf '%s' "$pid"
}

our_address() { sed -n "s/^ *addr: '\(.*\)'$/\1/p" "$CONFIG" 2>/dev/null; }

listening() { (exec 3<>"/dev/tcp/$HOST/$PORT") 2>/dev/null; }

holder() { # who listens on the port, as well as this user may know
  local who
  who=$(ss -Hltnp "sport = :$PORT" 2>/dev/null | sed -n 's/.*users:((\(.*\)))$/\1/p' | head -n 1) || true
  printf '%s' "${who:-a process that this user may not see}"
}

write_config() {
  cat >"$CONFIG.new" <<YAML
version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage:
  filesystem: {rootdirectory: '$DATA'}
  delete: {enabled: true}
http:
  addr: '$HOST:$PORT'
YAML
  mv "$CONFIG.new" "$CONFIG"
}

up() {
  local pid end number seconds=${CONF[registry.ready_seconds]}
  case $PORT in '' | 0* | *[!0-9]* | ??????*) number=65536 ;; *) number=$PORT ;; esac
  [ "$number" -le 65535 ] ||
    die "$TW_USAGE" "TRAINWRIGHT_REGISTRY_PORT='$PORT' is not a port number" "export TRAINWRIGHT_REGISTRY_PORT=${CONF[registry.port]}"
  mkdir -p "$DATA" 2>/dev/null || die "$TW_ENVIRONMENT" "cannot create the registry's folder $DATA" \
    "Use another one:  TRAINWRIGHT_REGISTRY_DATA=/some/folder"
  exec 9>"$DATA/.lock"
  flock -w 30 9 || die "$TW_ENVIRONMENT" "another start of the registry holds $DATA/.lock" "See who:  fuser -v $DATA/.lock"

  if pid=$(our_pid); then
    [ "$(our_address)" = "$HOST:$PORT" ] || die "$TW_ENVIRONMENT" "the registry already runs at $(our_address), not at $HOST:$PORT" \
      "Use that one, or move it:  scripts/registry.sh down && TRAINWRIGHT_REGISTRY_PORT=$PORT scripts/registry.sh up"
  else
    have docker-registry || die "$TW_ENVIRONMENT" "docker-registry is not installed" "scripts/engine.sh ensure"
    ! listening || die "$TW_ENVIRONMENT" "port $PORT on $HOST is in use by $(holder)" \
      "Take another port:  TRAINWRIGHT_REGISTRY_PORT=$((PORT + 1))" \
      "or use a registry that you have:  REGISTRY=host:port"
    write_config
    # A clean environment: docker-registry takes every REGISTRY_* variable as a setting.
    pid=$(detach "$LOG" env -i PATH="$PATH" HOME="$HOME" docker-registry serve "$CONFIG")
    printf '%s\n' "$pid" >"$PIDFILE"
    say "Starting a registry at $HOST:$PORT, data in $DATA"
  fi
  end=$((SECONDS + seconds))
  until listening; do
    if ! pid_lives "$pid" || [ "$SECONDS" -ge "$end" ]; then
      tail -n 5 "$LOG" >&2 || true
      die "$TW_ENVIRONMENT" "the registry at $HOST:$PORT does not start" "Its log: less $LOG" \
        "Another port:  TRAINWRIGHT_REGISTRY_PORT=$((PORT + 1))"
    fi
    sleep 0.02
  done
  # Somebody else may have taken the port between our look and the start; then ours is gone.
  our_pid >/dev/null || die "$TW_ENVIRONMENT" "port $PORT on $HOST is in use by $(holder)" \
    "Take another port:  TRAINWRIGHT_REGISTRY_PORT=$((PORT + 1))" "or use a registry that you have:  REGISTRY=host:port"
  printf '%s\n' "$HOST:$PORT"
}

down() {
  local pid
  if ! pid=$(our_pid); then
    rm -f "$PIDFILE"
    say "No registry of ours is running; nothing to stop."
    return
  fi
  stop_pid "$pid" 10 || die "$TW_ENVIRONMENT" "the registry (pid $pid) did not end within 10 s" "kill -9 $pid"
  rm -f "$PIDFILE"
  say "Stopped the registry (pid $pid). Its data stays in $DATA"
}

status() {
  local pid size='nothing yet'
  if [ -d "$DATA" ]; then size=$(du -sh "$DATA" | cut -f1); fi
  if pid=$(our_pid); then
    echo "registry  $(our_address), pid $pid; stop it:  scripts/registry.sh down"
  elif listening; then
    echo "registry  ours is not running; port $PORT is held by $(holder)"
  else
    echo "registry  not running; start it:  scripts/registry.sh up"
  fi
  echo "data      $DATA ($size)"
  echo "log       $LOG"
}

case ${1:-} in
  up | down | status) "$1" ;;
  *) die "$TW_USAGE" "usage: registry.sh up | down | status" ;;
esac
