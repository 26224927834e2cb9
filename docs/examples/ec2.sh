#!/usr/bin/env bash
# Starts one job by hand on hosts that have Docker and that this machine reaches by ssh; each name is one that the hosts
# themselves resolve. The first one is the main host.
#
#   IMAGE=registry/repository@sha256:... bash ec2.sh ip-10-0-0-1 ip-10-0-0-2 -- --distribution torchrun --processes 8 train.py
#
# The folder that this is started in must be there on every host, under the same path (a shared file system).
set -euo pipefail
: "${IMAGE:?which image}"
hosts=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do hosts+=("$1") && shift; done
[ ${#hosts[@]} -gt 0 ] && [ $# -gt 1 ] || { echo "usage: IMAGE=... bash ec2.sh HOST... -- OPTIONS SCRIPT" >&2; exit 2; }
shift
all="$(IFS=, && echo "${hosts[*]}")"

# The job's secret goes to each host through the standard input of ssh: it is in no command line and in no file that stays.
secret="$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')"

start() { # HOST OPTIONS... SCRIPT...
  local host="$1"
  shift
  local words=(trainwright-launch --hosts "$all" --host "$host" "$@")
  # shellcheck disable=SC2016,SC2029 # the inner shell's own variables; the words are ours
  printf '%s\n' "$secret" | ssh "$host" "$(printf '%q ' bash -c '
    umask 077 && file="$(mktemp /dev/shm/trainwright.XXXXXX)" && cat >"$file" && image="$1" folder="$2" && shift 2
    trap "rm -f $file" EXIT
    devices=() && for one in /dev/infiniband/uverbs* /dev/gdrdrv; do [ ! -e "$one" ] || devices+=(--device "$one"); done
    [ ! -e /dev/nvidiactl ] || devices+=(--gpus all)
    docker run --rm --network host --ulimit memlock=-1 --shm-size 16g --stop-timeout 120 "${devices[@]}" \
      -v "$folder:$folder" -w "$folder" -v "$file:/run/trainwright-secret:ro" \
      -e TRAINWRIGHT_JOB_SECRET_FILE=/run/trainwright-secret "$image" "$@"
  ' train "$IMAGE" "$PWD" "${words[@]}")"
}

ids=()
for host in "${hosts[@]}"; do
  start "$host" "$@" &
  ids+=($!)
done
code=0
for id in "${ids[@]}"; do wait "$id" || code=$?; done
exit "$code"
