#!/usr/bin/env bash
# nccl-tests on one host or several, from the first of them: each collective under its own limit, the devices' own
# counters around them. It knows nothing of the image that it runs in, and takes whatever nccl-tests and MPI lie there.
# `trainwright gate` makes its words; docs/gate.md has them by hand. It may come through standard input (bash -s).
#
# gate.sh [--image REFERENCE] --collectives NAME,... --least BYTES --most BYTES --factor N --iterations N --warmup N
#         --limit SECONDS --grace SECONDS --gpus N [--name NAME] [--wait SECONDS] [--port N] [--trust-hosts]
#         [--hosts NAME,... | --hostfile FILE | --srun NODES [--mpi TYPE] [--container IMAGE] | --sagemaker] [--serve]
#         [NAME=VALUE...]
# GATE_NODELIST: the nodes of an allocation that it takes; of them srun reads no variable of its own.
# Of several hosts: `--serve` waits, behind an sshd of its own (GATE_KEY), until the first one is done.
set -Eeuo pipefail

image='' collectives='' least='' most='' factor='' iterations='' warmup='' limit='' grace='' gpus='' name=gate wait=300
port=2222 how=direct nodes=1 mpi=default container='' serve='' sagemaker='' hosts=() forward=() pid='' mark=gate.$$.$RANDOM
starting='' late=''   # a test is being started; what came in between
listener='' away=''   # the process of our own sshd; whether every host is reached by ssh, the first one, too
work=${GATE_FOLDER:-/tmp/gate} ssh=(ssh -o BatchMode=yes -o ConnectTimeout=10)

fail() { # code and lines
  local code=$1
  shift
  printf 'gate: %s\n' "$@"
  exit "$code"
}

# --- what runs on other hosts, too: sent there as text ---------------------------------------------------------------

counters() { # before|after host: bytes that all EFA devices sent; nothing where there is none
  local file total=0 found=''
  for file in "${GATE_SYS:-/sys}"/class/infiniband/*/ports/1/hw_counters/tx_bytes; do
    [ -r "$file" ] || continue
    found=1 total=$((total + $(cat "$file")))
  done
  [ -z "$found" ] || echo "efa-counters $1 $2 $total"
  witnesses "$1" "$2"
}

witnesses() { :; } # before|after host: `gate --find` puts what else it asks the host in place of this

sweep() { # mark: end what carries it, whatever became of its parents
  local entry found
  # One grep: a process for each of a host's would take longer than a short run. It has ended before anything is killed.
  found=$(grep -lzxF "GATE_RUN=$1" /proc/[0-9]*/environ 2>/dev/null) || true
  while read -r entry; do
    entry=${entry%/environ}
    [ -z "$entry" ] || kill -KILL "${entry#/proc/}" 2>/dev/null || true
  done <<<"$found"
}

look() { # programs: the first that is there
  local program place places=(/opt/nccl-tests/bin /opt/nccl-tests/build /usr/local/cuda-*/efa/test-cuda-*
    /opt/amazon/openmpi/bin /opt/amazon/openmpi5/bin /usr/local/mpi/bin /opt/hpcx/ompi/bin /usr/lib64/openmpi/bin)
  for program; do
    if command -v "$program"; then return; fi
    for place in "${places[@]}"; do
      if [ -x "$place/$program" ]; then
        echo "$place/$program"
        return
      fi
    done
  done
  echo "gate: there is no $* here: looked on PATH ($PATH) and in ${places[*]}" >&2
  return 127
}

# --- hosts -----------------------------------------------------------------------------------------------------------

remote() { # host and texts: run by its bash
  local host=$1
  shift
  printf '%s\n' "$@" | timeout 60 "${ssh[@]}" "$host" bash -s
}

far() { # the hosts that are reached by ssh
  local from=1
  [ -z "$away" ] || from=0
  printf '%s\n' "${hosts[@]:from}"
}

# A host that cannot be asked has no counters in the log, and the gate goes on: the judge then says of that host that
# it was not read, "not established". The same for what tidies up below: it must not change how the gate ends.
count() { # before|after
  local host
  if [ "$how" = srun ]; then
    # A number of tasks of its own: the job's is in the environment, one for each GPU.
    srun --nodes="$nodes" ${GATE_NODELIST:+"--nodelist=$GATE_NODELIST"} --ntasks="$nodes" --ntasks-per-node=1 bash -c "$(declare -f counters witnesses); counters $1 \"\$(hostname)\"" || true
  elif [ "$how" = mpirun ]; then
    [ -n "$away" ] || counters "$1" "${hosts[0]}"
    for host in $(far); do remote "$host" "$(declare -f counters witnesses)" "counters $1 $host" || true; done
  else
    counters "$1" "$(hostname)"
  fi
}

reach() { # wait for every host; a container of another one may come up minutes later
  local host end=$((SECONDS + wait)) said
  for host in $(far); do
    until said=$("${ssh[@]}" "$host" true 2>&1); do
      [ "$SECONDS" -lt "$end" ] || fail 255 "$host cannot be reached by ssh after $wait s: $said"
      sleep 1
    done
  done
}

keys() { # one key that opens the containers of this run alone, for both ends; GATE_KEY is its text in one line
  local public body
  mkdir -p "$work"
  chmod 0700 "$work"
  body=$(fold -w 70 <<<"$GATE_KEY")
  unset GATE_KEY
  (umask 077 && printf '%s\n' '-----BEGIN OPENSSH PRIVATE KEY-----' "$body" '-----END OPENSSH PRIVATE KEY-----' >"$work/key.$$")
  mv "$work/key.$$" "$work/key" # in one step: hosts may share that folder, and read what another one writes
  public=$(ssh-keygen -y -f "$work/key") || fail 255 "GATE_KEY is no key of OpenSSH"
  echo "restrict $public" >"$work/authorized_keys"
  echo "gate $public" >"$work/known_hosts"
  printf '%s\n' 'Host *' "  Port $port" "  IdentityFile $work/key" '  IdentitiesOnly yes' '  BatchMode yes' \
    "  UserKnownHostsFile $work/known_hosts" '  HostKeyAlias gate' '  StrictHostKeyChecking yes' \
    '  ConnectTimeout 10' '  LogLevel ERROR' >"$work/ssh_config"
  printf '%s\n' "Port $port" "HostKey $work/key" "AuthorizedKeysFile $work/authorized_keys" 'PidFile none' \
    'PasswordAuthentication no' 'KbdInteractiveAuthentication no' 'PermitRootLogin prohibit-password' \
    'StrictModes no' 'UsePAM no' 'MaxStartups 1000' >"$work/sshd_config"
  ssh=(ssh -F "$work/ssh_config") away=1
}

listen() {
  local sshd
  sshd=$(PATH=$PATH:/usr/sbin look sshd) || fail 255 "several hosts talk over ssh, and this image has no sshd: apt-get install openssh-server, or dnf"
  mkdir -p /run/sshd
  "$sshd" -D -e -f "$work/sshd_config" >"$work/sshd.log" 2>&1 &
  listener=$!
}

attend() { # seconds: what a host does that is not the first one
  local end=$((SECONDS + $1))
  until [ -e "$work/done" ]; do
    [ "$SECONDS" -lt "$end" ] || fail 255 "the first host did not say within $1 s that it was done"
    sleep 1
  done
}

# shellcheck disable=SC2329  # by a trap
dismiss() { # those that wait for us
  local host
  [ -n "$listener" ] || return 0
  if [ -z "$serve" ]; then for host in "${hosts[@]:1}"; do remote "$host" "touch $work/done" || true; done; fi
  kill "$listener" 2>/dev/null || true
}

# --- one collective --------------------------------------------------------------------------------------------------

words() { # collective: into `command`
  local test=("$1_perf") options=(-b "$least" -e "$most" -f "$factor" -n "$iterations" -w "$warmup" -c 1) program mpirun list first=
  [ "$how" = direct ] || test=("$1_perf_mpi" "$1_perf")   # NGC has both, and only the first one knows MPI
  if [ "$how" = srun ]; then
    # NCCL binds its threads itself; a default of the cluster would leave a rank one core.
    command=(srun --cpu-bind=none --nodes="$nodes" ${GATE_NODELIST:+"--nodelist=$GATE_NODELIST"}
      --ntasks="$((nodes * gpus))" --ntasks-per-node="$gpus"
      --kill-on-bad-exit=1)
    [ "$mpi" = default ] || command+=("--mpi=$mpi") # else the cluster's own: MpiDefault
    if [ -n "$container" ]; then
      list=$(IFS=, && echo "${forward[*]}")
      command+=("${inside[@]}" "--container-env=$list")
    fi
    command+=(bash -c "$(declare -f look); program=\$(look ${test[*]}) && exec \"\$program\" \"\$@\"" gate "${options[@]}" -g 1)
    return
  fi
  program=$(look "${test[@]}") || return
  command=("$program" "${options[@]}" -g "$gpus")
  [ "$how" = mpirun ] || return 0
  mpirun=$(look mpirun) || return
  # Open MPI 5.0.7 does not know the host that it runs on by its address, and then finds "not enough slots".
  [[ " $(hostname -I 2>/dev/null) " != *" ${hosts[0]} "* ]] || first=$HOSTNAME
  list=$(printf ",%s:$gpus" "${first:-${hosts[0]}}" "${hosts[@]:1}")
  command=("$mpirun" --prefix "$(dirname "$(dirname "$(readlink -f "$mpirun")")")" --allow-run-as-root --host "${list#,}"
    -np "$((gpus * ${#hosts[@]}))" --map-by "ppr:$gpus:node" --bind-to none)
  while read -r list; do command+=(-x "$list"); done < <({ compgen -e | grep -E '^(NCCL|FI|OFI|UCX)_|^(PATH|LD_LIBRARY_PATH)$'
    printf '%s\n' ${forward[@]+"${forward[@]}"}; } | sed '/^$/d' | sort -u)
  command+=(-x GATE_RUN "$program" "${options[@]}" -g 1)
}

end_all() { # of the collective that runs: its process group, what left that, what mpirun left on other hosts
  local host
  [ -z "$pid" ] || kill -KILL -- "-$pid" 2>/dev/null || true
  sweep "$mark"
  if [ "$how" = mpirun ]; then
    for host in $(far); do remote "$host" "$(declare -f sweep)" "sweep $mark" || true; done
  fi
}

limited() { # command and its words: its exit code
  local code=0 start=$SECONDS
  starting=1
  set -m   # a process group of its own
  GATE_RUN=$mark "$@" &
  pid=$! starting=''
  set +m
  [ -z "$late" ] || interrupted "$late"
  while kill -0 "$pid" 2>/dev/null && [ $((SECONDS - start)) -lt "$limit" ]; do sleep 0.2; done
  if kill -0 "$pid" 2>/dev/null; then
    echo "gate: stopped after $((SECONDS - start)) s"
    kill -TERM -- "-$pid" 2>/dev/null || true
    start=$SECONDS
    while kill -0 "$pid" 2>/dev/null && [ $((SECONDS - start)) -lt "$grace" ]; do sleep 0.2; done
    { end_all && wait "$pid" || true; } 2>/dev/null   # bash says there that it was killed
    pid=''
    return 124
  fi
  wait "$pid" 2>/dev/null || code=$?
  end_all
  pid=''
  return "$code"
}

imported() { # its image lies on every node before the clock of the first collective starts
  local limit=$wait
  limited srun --nodes="$nodes" ${GATE_NODELIST:+"--nodelist=$GATE_NODELIST"} --ntasks="$nodes" --ntasks-per-node=1 "${inside[@]}" bash -c :
}

# Tasks that do not find each other are a world of one rank each: they would measure nothing for many minutes. One
# collective of a few bytes shows it at once; whatever else is wrong with that one is left to the runs that follow.
one_world() { # collective
  local least=8 most=8 iterations=1 warmup=0 command=() tasks=$((nodes * gpus)) firsts highest text
  local -x NCCL_DEBUG=WARN # no line of another rank comes between those that are counted
  words "$1"
  text=$(mktemp)
  limited "${command[@]}" >"$text" 2>&1 || true
  firsts=$(grep -cE '# +Rank +0 ' "$text" || true)
  highest=$(grep -oE '# +Rank +[0-9]+ ' "$text" | tr -dc '0-9\n' | sort -n | tail -n 1 || true)
  if [ "$firsts" -gt 1 ] || [ "${highest:-$tasks}" -lt $((tasks - 1)) ] ||
    { [ -z "$highest" ] && grep -qE 'PMI(X|x|2| support)|mpi/pmi|mpi plugin' "$text"; }; then
    cat "$text"
    rm -f "$text"
    fail 1 "$tasks tasks were started, and are no world of $tasks ranks: srun --mpi=$mpi did not connect them" \
      "in containers PMIx requires enroot's hook on every node: ln -s /usr/share/enroot/hooks.d/50-slurm-pmi.sh /etc/enroot/hooks.d/" \
      "else an MPI type that srun --mpi=list shows and the nccl-tests know: trainwright gate --mpi-type TYPE"
  fi
  rm -f "$text"
}

# shellcheck disable=SC2329  # by a trap
interrupted() { # code
  if [ -n "$starting" ]; then   # its process has no name yet, by which it could be ended
    late=$1
    return
  fi
  trap '' INT TERM   # who asks twice must not end the tidying
  trap - EXIT
  end_all
  dismiss
  echo "gate: interrupted"
  exit "$1"
}

# --- all of them -----------------------------------------------------------------------------------------------------

read_words() {
  while [ $# -gt 0 ]; do
    case $1 in
      --serve | --sagemaker) printf -v "${1#--}" 1 ;;
      --trust-hosts) ssh+=(-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR) ;;
      --hosts) IFS=, read -ra hosts <<<"$2" ;;
      --hostfile)
        away=1
        mapfile -t hosts < <(awk '!/^#/ && NF { sub(/:.*/, "", $1); print $1 }' "$2")
        ;;
      --srun) how=srun nodes=$2 ;;
      --image | --collectives | --least | --most | --factor | --iterations | --warmup | --limit | --grace | --gpus | \
        --name | --wait | --port | --mpi | --container) printf -v "${1#--}" '%s' "$2" ;;
      [A-Z]*=*)
        export "${1?}"
        forward+=("${1%%=*}")
        ;;
      *) fail 2 "unknown word $1" ;;
    esac
    case $1 in --serve | --sagemaker | --trust-hosts | [A-Z]*=*) shift ;; *) shift 2 ;; esac
  done
  local word
  for word in collectives least most factor iterations warmup limit grace gpus; do
    [ -n "${!word}" ] || fail 2 "--$word is missing"
  done
}

read_sagemaker() {
  local text list
  text=$(tr -d ' \n' <"${GATE_RESOURCES:-/opt/ml/input/config/resourceconfig.json}")
  [[ $text =~ \"hosts\":\[([^]]*)\] ]] || fail 2 "resourceconfig.json names no hosts"
  list=${BASH_REMATCH[1]//\"/}
  mapfile -t hosts < <(tr ',' '\n' <<<"$list" | sort -V)
  [[ $text =~ \"current_host\":\"([^\"]*)\" ]] || fail 2 "resourceconfig.json names no current_host"
  [ "${BASH_REMATCH[1]}" = "${hosts[0]}" ] || serve=1
}

main() {
  local collective code=0 worst=0 total begun path command=() all=() inside=()
  exec 2>&1
  read_words "$@"
  [ -z "$sagemaker" ] || read_sagemaker
  # The gate starts past the image's entrypoint, which hands in a libcuda where the host's driver is too old.
  if [ "$how" != srun ] && path=$("${GATE_ENTRYPOINT:-/opt/trainwright/bin/with-cuda}" printenv LD_LIBRARY_PATH 2>/dev/null); then
    export LD_LIBRARY_PATH=$path
  fi
  IFS=, read -ra all <<<"$collectives"
  total=$((wait + 60 + ${#all[@]} * (limit + grace + 30)))
  if [ -n "${GATE_KEY:-}" ] && { [ -n "$serve" ] || [ "${#hosts[@]}" -gt 1 ]; }; then
    trap dismiss EXIT
    keys
    listen
  fi
  if [ -n "$serve" ]; then
    attend "$total"
    exit 0
  fi
  trap 'interrupted 130' INT
  trap 'interrupted 143' TERM
  [ -z "$image" ] || echo "gate: image $image"
  echo "gate: started at $(date -u +%FT%TZ)"
  if [ "$how" != srun ] && [ "${#hosts[@]}" -gt 1 ]; then
    how=mpirun nodes=${#hosts[@]}
    # MPI only tells the ranks of each other. Open MPI 4 reads the first of each pair, 5 the second.
    export OMPI_MCA_plm_rsh_agent="${ssh[*]}" PRTE_MCA_plm_ssh_agent="${ssh[*]}"
    export OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1
    export OMPI_MCA_oob_tcp_if_exclude=lo,docker0 PRTE_MCA_prte_if_exclude=lo,docker0
    export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_exclude=lo,docker0
    reach
  fi
  if [ "$how" = srun ] && [ -n "$container" ]; then
    # By its name pyxis finds it again, and imports it once for all collectives; no other job has that name.
    inside=("--container-image=$container" "--container-name=$name-${SLURM_JOB_ID:-$$}" --no-container-mount-home)
    imported || code=$?
    [ "$code" = 0 ] || fail "$code" "the image was not imported on every node: code $code, at most $wait s"
  fi
  if [ "$how" = srun ] && [ $((nodes * gpus)) -gt 1 ]; then one_world "${all[0]}"; fi
  echo "gate: $name: $nodes hosts with $gpus GPUs each, at most $limit s for each of $collectives"
  count before
  for collective in "${all[@]}"; do
    echo "gate: $collective begins"
    begun=$SECONDS code=0
    if words "$collective"; then limited "${command[@]}" || code=$?; else code=127; fi
    echo "gate: $collective exited with code $code"
    echo "gate: $collective took $((SECONDS - begun)) s"
    [ "$code" -le "$worst" ] || worst=$code
  done
  count after
  exit "$worst"
}

main "$@" </dev/null
