# shellcheck shell=bash
# Shared by the host scripts: `. "$(dirname "$0")/lib.sh"`. Messages go to stderr; stdout is for data.
set -Eeuo pipefail

# shellcheck disable=SC2034  # exit codes, for those who read this file
TW_USAGE=2 TW_ENVIRONMENT=10
TW_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TW_NAME=${0##*/}

# A minimal login shell lacks the folders where iptables and dockerd live.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
  TW_RED=$'\e[31m' TW_BOLD=$'\e[1m' TW_OFF=$'\e[0m'
else
  TW_RED='' TW_BOLD='' TW_OFF=''
fi

trap 'exit 130' INT
trap 'exit 143' TERM
trap 'tw_failed $? "$LINENO" "$BASH_COMMAND"' ERR

tw_failed() { # status line command: only bugs end here, everything foreseen ends in die
  [ "$BASH_SUBSHELL" -gt 0 ] || printf '%s\n' "${TW_RED}error:${TW_OFF} $TW_NAME line $2: '$3' gave $1" >&2
}

say() { printf '%s\n' "$*" >&2; }

die() { # code what [line…]: the further lines say why and give the command that fixes it
  local code=$1 line
  trap - ERR
  printf '%s\n' "${TW_RED}error:${TW_OFF} ${TW_BOLD}$2${TW_OFF}" >&2
  shift 2
  for line; do printf '  %s\n' "$line" >&2; done
  exit "$code"
}

# host.toml, read once into a flat array: CONF[engine.minimum], lists joined by blanks.
declare -A CONF=()
load_conf() {
  local file=$TW_ROOT/dockerfiles/host.toml python key value text=''
  # The system's interpreter first: a version manager's shim in front of PATH costs 0.1 s a call.
  for python in /usr/bin/python3 python3; do
    text=$("$python" -I -S -c '
import sys, tomllib
def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            flat(value, prefix + key + ".")
        else:
            print(prefix + key, " ".join(map(str, value)) if isinstance(value, list) else value, sep="\t")
flat(tomllib.load(open(sys.argv[1], "rb")))' "$file" 2>/dev/null) && break
  done
  [ -n "$text" ] || die "$TW_ENVIRONMENT" "cannot read $file" \
    "It needs Python 3.11 or newer, and to be valid TOML. Look with:" \
    "  python3 -c 'import tomllib; tomllib.load(open(\"$file\", \"rb\"))'"
  while IFS=$'\t' read -r key value; do CONF[$key]=$value; done <<<"$text"
}

conf() { # key: its value, on stdout
  [ -n "${CONF[$1]+set}" ] || die "$TW_ENVIRONMENT" "dockerfiles/host.toml has no '$1'"
  printf '%s' "${CONF[$1]}"
}

conf_keys() { # table: the keys under it, one a line
  local key
  for key in "${!CONF[@]}"; do case $key in "$1".*) printf '%s\n' "${key#"$1".}" ;; esac; done | sort
}

at_least() { # version minimum
  [ -n "$1" ] && printf '%s\n' "$2" "$1" | sort -V -C
}

have() { # a command, or a file by its absolute path
  case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

pid_lives() { # pid: a zombie does not. Its command line says nothing yet while a cold disk still loads the program
  [ -n "$1" ] && grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null
}

pid_runs() { # pid word…: does that process live, with all these words in its command line?
  local pid=$1 line word
  case $pid in '' | *[!0-9]*) return 1 ;; esac
  line=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline") || return 1
  [ -n "$line" ] || return 1
  shift
  for word; do grep -qxF -e "$word" <<<"$line" || return 1; done
}

stop_pid() { # pid seconds: ask, wait; false if it is still there afterwards
  local end=$((SECONDS + $2))
  kill "$1" 2>/dev/null || return 0
  while pid_lives "$1"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}

detach() { # log command…: start it so that it outlives us and holds none of our files; prints its pid
  local log=$1 fd
  shift
  (
    # Pipes and locks of the caller (a `make | tee`, make's job server, our flock) must not stay open in a daemon.
    for fd in /proc/"$BASHPID"/fd/*; do
      fd=${fd##*/}
      case $fd in 0 | 1 | 2 | 255) ;; *) eval "exec $fd>&-" ;; esac
    done 2>/dev/null
    cd /
    setsid "$@" </dev/null >>"$log" 2>&1 &
    printf '%s\n' "$!"
  )
}
