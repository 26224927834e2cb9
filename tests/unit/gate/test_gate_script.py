"""Run scripts/gate.sh with stand-ins that print a real log, hang, fail, or are missing."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from hosts import DIGEST, GOOD, HANGS, ROOT, SCRIPT, Host, jumps, quick

from trainwright.gate import read
from trainwright.gate.case import Declared
from trainwright.gate.judge import Verdict


@pytest.fixture
def host(tmp_path: Path) -> Host:
    folder = tmp_path / "bin"
    folder.mkdir()
    return Host(folder)


def judged(host: Host, text: str, code: int, **declared: object) -> Verdict:
    path = host.folder / "gate.log"
    path.write_text(text)
    (found,) = read.verdicts(ROOT, [str(path)], Declared.model_validate({"exit_code": code, **declared}))
    return found


def test_a_good_log_passes_and_names_its_image(host: Host) -> None:
    host.prints("all_reduce_perf", GOOD)
    done = host.run("all_reduce")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == f"gate: image x/y@{DIGEST}"
    assert "gate: all_reduce exited with code 0" in done.stdout
    found = judged(host, done.stdout, done.returncode, nodes=1, world_size=8)
    assert (found.verdict, found.image) == ("pass", DIGEST)


LIMIT, GRACE, WAIT = 30, 1, 30  # seconds, of hosts.WORDS


def test_a_hang_is_ended_whole_and_what_follows_still_runs(host: Host) -> None:
    host.program("broadcast_perf", HANGS.replace("\nwait", f"\n{jumps(LIMIT - 1, 1, GRACE)}\nwait"))
    host.prints("all_reduce_perf", GOOD)
    done = host.run("broadcast,all_reduce")
    assert done.returncode == 124
    assert re.search(r"gate: stopped after [3-9]\d s", done.stdout)
    assert host.left() == []  # its child, and the grandchild with a session of its own
    assert done.stdout.index("broadcast exited with code 124") < done.stdout.index("all_reduce exited with code 0")
    found = judged(host, done.stdout, done.returncode, nodes=1)
    assert (found.verdict, found.cause) == ("fail", "timeout")


def test_the_worst_exit_code_is_that_of_the_gate(host: Host) -> None:
    host.prints("all_reduce_perf", GOOD)
    host.program("reduce_perf", "exit 7")
    host.program("alltoall_perf", "exit 3")
    done = host.run("reduce,alltoall,all_reduce")
    assert done.returncode == 7
    found = judged(host, done.stdout, 0)  # whoever forgets to declare it
    assert found.verdict == "fail"
    assert "7" in next(check.evidence for check in found.checks if check.name == "exit code")


def test_a_test_that_is_not_there_says_where_it_was_looked_for(host: Host) -> None:
    host.prints("all_reduce_perf", GOOD)
    done = host.run("sendrecv,all_reduce")
    assert done.returncode == 127
    for place in ("sendrecv_perf", "/opt/nccl-tests/bin", "/opt/nccl-tests/build", "/usr/local/cuda-*/efa/test-cuda-*"):
        assert place in done.stdout
    assert judged(host, done.stdout, done.returncode).verdict == "fail"


def test_a_libcuda_for_an_older_driver_reaches_the_test(host: Host) -> None:
    """The gate starts past the entrypoint that would hand it in; a stand-in for `with-cuda COMMAND` hands in a path."""
    host.program("all_reduce_perf", 'echo "path [${LD_LIBRARY_PATH-unset}]"')
    host.program("with-cuda", 'export LD_LIBRARY_PATH=/compat; exec "$@"')
    assert "path [/compat]" in host.run("all_reduce", f"GATE_ENTRYPOINT={host.folder}/with-cuda").stdout
    assert "path [unset]" in host.run("all_reduce").stdout


def test_a_test_that_prints_no_table_is_left_to_the_judge(host: Host) -> None:
    host.program("all_reduce_perf", "echo 'USAGE: all_reduce_perf'; exit 0")
    done = host.run("all_reduce")
    assert done.returncode == 0
    assert judged(host, done.stdout, 0).verdict == "incomplete"


def test_variables_and_sizes_reach_the_test(host: Host) -> None:
    host.program("all_reduce_perf", 'echo "words: $* and $NCCL_DEBUG"; cat')
    command = host.command("all_reduce", "NCCL_DEBUG=INFO")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=host.environment, text=True) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(quick())
        child.stdin.flush()  # and left open, as by a launcher that has more to say
        said = child.stdout.read()
    assert "words: -b 8 -e 1024 -f 2 -n 20 -w 1 -c 1 -g 8 and INFO" in said
    assert "exited with code 0" in said  # it read an empty standard input, and not ours


@pytest.mark.parametrize(("words", "said"), [(["--nonsense", "1"], "unknown word"), (["--limit", ""], "--limit is")])
def test_a_wrong_word_is_refused(host: Host, words: list[str], said: str) -> None:
    done = host.run("all_reduce", *words)
    assert done.returncode == 2
    assert said in done.stdout


def test_the_devices_of_each_host_are_read_before_and_after(host: Host, tmp_path: Path) -> None:
    folders = [tmp_path / f"sys/class/infiniband/{name}/ports/1/hw_counters" for name in ("rdmap0", "rdmap1")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "tx_bytes").write_text("1000\n")
    host.program("all_reduce_perf", f"echo 5000 > {folders[1] / 'tx_bytes'}")
    done = host.run("all_reduce", f"GATE_SYS={tmp_path}/sys")
    name = os.uname().nodename
    assert [line for line in done.stdout.splitlines() if line.startswith("efa-counters")] == [
        f"efa-counters before {name} 2000",
        f"efa-counters after {name} 6000",
    ]


def test_an_interrupt_leaves_nothing_behind(host: Host) -> None:
    host.program("all_reduce_perf", HANGS)
    command = host.command("all_reduce", "--limit", "300")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=host.environment, text=True
    ) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(quick())
        child.stdin.close()
        while "nThread" not in child.stdout.readline():
            pass
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 143
        assert "gate: interrupted" in child.stdout.read()
    assert host.left() == []


def test_an_interrupt_while_a_test_starts_is_not_lost(host: Host) -> None:
    host.program("all_reduce_perf", HANGS)
    text = SCRIPT.read_text()
    starts = "  starting=1\n"
    assert text.count(starts) == 1
    done = host.run("all_reduce", "--limit", "30", script=text.replace(starts, f"{starts}  kill -TERM $$\n"))
    assert (done.returncode, "gate: interrupted" in done.stdout) == (143, True)
    assert host.left() == []


# --- several hosts, with an ssh and an mpirun that stay here ---------------------------------------------------------

# The one runs what it is given; the other says how it was called, and runs its last words once.
SSH = """\
while [ $# -gt 0 ]; do case $1 in -o | -F | -p) shift 2 ;; *) break ;; esac; done
echo "$1" >> "${0%/*}/reached"; shift
[ "${*}" = true ] && exit 0
tee -a "${0%/*}/sent" | "$@"
"""
MPIRUN = """\
echo "mpirun $*"
while [[ $1 != *_perf ]]; do if [ "$1" = -x ]; then shift; fi; shift; done
exec "$@"
"""


def test_several_hosts_are_one_mpirun_with_every_variable(host: Host) -> None:
    host.program("ssh", SSH)
    host.program("mpirun", MPIRUN)
    host.prints("all_reduce_perf", "02_ok_p5_2node_efa_16rank_slurm.txt")
    done = host.run("all_reduce", "--hosts", "one,two", "NCCL_DEBUG=INFO", "NCCL_NET=Libfabric")
    assert done.returncode == 0, done.stdout
    said = next(line for line in done.stdout.splitlines() if line.startswith("mpirun "))
    assert "--host one:8,two:8 -np 16 --map-by ppr:8:node" in said
    for name in ("NCCL_DEBUG", "NCCL_NET", "PATH", "GATE_RUN"):
        assert f"-x {name} " in said
    assert said.endswith("-c 1 -g 1")
    assert set((host.folder / "reached").read_text().split()) == {"two"}


def test_the_host_of_mpirun_is_given_by_its_name(host: Host) -> None:
    """Open MPI 5.0.7 does not find itself by an address: seen with `mpirun --host 172.18.0.2:1,172.18.0.3:1`."""
    host.program("ssh", SSH)
    host.program("mpirun", MPIRUN)
    host.program("hostname", '[ "$*" = -I ] && echo "10.0.0.11 10.0.0.1 "')
    name = os.uname().nodename
    host.prints("all_reduce_perf", "02_ok_p5_2node_efa_16rank_slurm.txt")
    for hosts, said in (("10.0.0.1,10.0.0.2", f"{name}:8,10.0.0.2:8"), ("10.0.0.3,10.0.0.1", "10.0.0.3:8,10.0.0.1:8")):
        assert f"--host {said} -np 16 " in host.run("all_reduce", "--hosts", hosts).stdout


def test_a_hang_of_mpirun_is_ended_on_the_other_host_too(host: Host) -> None:
    """What it left there has another parent, and is known by its mark alone."""
    host.program("ssh", SSH)
    host.program("mpirun", f"setsid sleep 602 & trap '' TERM; {jumps(LIMIT, GRACE)}; wait")
    host.program("all_reduce_perf", "")
    done = host.run("all_reduce", "--hosts", "one,two")
    assert "gate: stopped after" in done.stdout
    assert "\nsweep gate." in (host.folder / "sent").read_text()
    assert host.left() == []


def test_a_host_that_is_not_there_is_named(host: Host) -> None:
    host.program("ssh", f"{jumps(WAIT)}; echo 'no route to host' >&2; exit 255")
    done = host.run("all_reduce", "--hosts", "one,two")
    assert done.returncode == 255
    assert f"two cannot be reached by ssh after {WAIT} s: no route to host" in done.stdout


def test_ranks_of_slurm_look_for_the_test_where_they_run(host: Host) -> None:
    host.program("srun", 'echo "srun $*" | head -n 1\nwhile [ "$1" != bash ]; do shift; done; exec "$@"')
    host.prints("all_reduce_perf", "02_ok_p5_2node_efa_16rank_slurm.txt")
    done = host.run(
        "all_reduce", "--srun", "2", "--mpi", "pmix", "--container", "x#y", "NCCL_DEBUG=INFO", "SLURM_JOB_ID=77"
    )
    assert done.returncode == 0, done.stdout
    said = next(line for line in done.stdout.splitlines() if "--mpi=pmix" in line)
    assert "--nodes=2 --ntasks=16 --ntasks-per-node=8" in said
    assert "--container-image=x#y --container-name=gate-77 --no-container-mount-home --container-env=NCCL_DEBUG" in said
    reads = [line for line in done.stdout.splitlines() if "efa-counters" not in line and "counters" in line]
    assert "--cpu-bind=none" in said
    (first,) = [line for line in done.stdout.splitlines() if line.endswith("bash -c :")]
    assert first.startswith(
        "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --container-image=x#y --container-name=gate-77 "
    )
    assert done.stdout.index(first) < done.stdout.index("gate: all_reduce begins")
    assert len(reads) == 2  # before and after, once on each node, and the job's own number of tasks does not count
    assert all(line.startswith("srun --nodes=2 --ntasks=2 --ntasks-per-node=1 bash") for line in reads)
    assert [list(pair) for pair in judged(host, done.stdout, 0).ranks] == [[16, 16]]


SINGLETON = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 0 iters: 1 agg iters: 1 validation: 1 graph: 0
# Using devices
#  Rank  0 Group  0 Pid     25 on   host-0 device  0 [0x1b] NVIDIA H100 80GB HBM3
#       8             2     float     sum      -1     4.20    0.00    0.00      0     0.20    0.04    0.00      0
"""
HEADER = "".join(
    f"#  Rank {rank:2} Group  0 Pid 1 on host-{rank // 8} device {rank % 8} [0x1b] H100\n" for rank in range(16)
)
STEP = 'while [ "$1" != bash ]; do shift; done\nexec "$@"'


@pytest.mark.parametrize(
    ("printed", "code", "ends"),
    [
        (SINGLETON * 16, 0, True),  # each task is a world of its own
        (HEADER.replace("Rank 15", "Rank 14"), 0, True),
        ("[headnode:17246] PMIX ERROR: UNPACK-PAST-END in file unpack.c at line 206\n", 1, True),
        ("but OMPI was not built with SLURM's PMI support and therefore cannot\n", 1, True),  # Open MPI 4
        ("No PMIx server was reachable, but a PMI1/2 was detected.\n" + SINGLETON * 16, 0, True),  # ompi issue 13523
        (HEADER, 0, False),
        ("host: NCCL WARN Cuda failure 'out of memory'\n", 1, False),  # the runs that follow have it whole
    ],
    ids=["singletons", "one-missing", "pmix", "openmpi-4", "openmpi-5", "whole", "other"],
)
def test_tasks_that_are_no_world_end_the_gate_before_any_collective(
    host: Host, printed: str, code: int, ends: bool
) -> None:
    (host.folder / "printed").write_text(printed)
    host.program("srun", f'echo "$NCCL_DEBUG $*" | head -n 1 >> "${{0%/*}}/ran"\n{STEP}')
    host.program("all_reduce_perf", f'case " $* " in *" -e 8 "*) cat {host.folder}/printed; exit {code} ;; esac')
    done = host.run("all_reduce", "--srun", "2", "--mpi", "pmix", "NCCL_DEBUG=INFO")
    assert ("gate: all_reduce begins" not in done.stdout) is ends
    ran = [line.split()[0] for line in (host.folder / "ran").read_text().splitlines() if "--ntasks=16" in line]
    assert ran == ["WARN"] + ["INFO"] * (not ends)
    if ends:
        assert done.returncode == 1
        assert (
            "gate: 16 tasks were started, and are no world of 16 ranks: srun --mpi=pmix did not connect" in done.stdout
        )
        assert "50-slurm-pmi.sh" in done.stdout
        assert judged(host, done.stdout, 0, nodes=2, world_size=16).verdict != "pass"


@pytest.mark.parametrize(("words", "said"), [(["--mpi", "pmi2"], "--mpi=pmi2 "), (["--mpi", "default"], ""), ([], "")])
def test_the_mpi_type_of_srun(host: Host, words: list[str], said: str) -> None:
    host.program("srun", f'echo "$*" | head -n 1 >> "${{0%/*}}/ran"\n{STEP}')
    host.prints("all_reduce_perf", "02_ok_p5_2node_efa_16rank_slurm.txt")
    assert host.run("all_reduce", "--srun", "2", *words).returncode == 0
    ran = [line for line in (host.folder / "ran").read_text().splitlines() if "--ntasks=16" in line]
    assert len(ran) == 2
    assert all(said in line if said else "--mpi" not in line for line in ran)


def test_an_image_that_cannot_be_imported_ends_the_gate_before_any_test(host: Host) -> None:
    host.program("srun", 'echo "pyxis: failed to import docker image"; exit 3')
    done = host.run("all_reduce", "--srun", "2", "--container", "x#y")
    assert done.returncode == 3
    assert "gate: the image was not imported on every node: code 3" in done.stdout
    assert "begins" not in done.stdout
    host.program("srun", f"{jumps(WAIT)}; sleep 600")
    done = host.run("all_reduce", "--srun", "2", "--container", "x#y")
    assert done.returncode == 124
    assert host.left() == []
