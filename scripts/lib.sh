# shellcheck shell=bash
# Shared by the host scripts: `. "$(dirname "$0")/lib.sh"`. Messages go to stderr; stdout is for data.
set -Eeuo pipefail

# shellcheck disable=SC2034  # for those who read this file
TW_USAGE=2 TW_FAILED=6 TW_NOT_RUN=7 TW_ENVIRONMENT=10
# shellcheck disable=SC2034
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

have() { # a command, or a file by its absolute path
  case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}
