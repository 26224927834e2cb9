"""Search nodes of Slurm and pods of Kubernetes that are played by programs of this machine."""

import os
from pathlib import Path

import finding
import pytest
from hosts import ROOT

from trainwright.core.errors import EnvironmentProblem
from trainwright.gate import floors, spec
from trainwright.gate import run as gate_run
from trainwright.gate.find import model, prepare, report, search
from trainwright.gate.find.search import Search
from trainwright.gate.spec import Run
from trainwright.matrix import instances
from trainwright.schedulers import clusters

pytestmark = pytest.mark.waits
SRUN = """\
#!/usr/bin/env bash
while [ "$1" != bash ]; do
  case $1 in --nodelist=*) export SLURM_STEP_NODELIST=${1#*=} ;; esac
  shift
done
exec "$@"
"""
SCONTROL = """\
#!/usr/bin/env bash
[ "$*" = "show hostnames n[0-4]" ] && printf 'n%s\\n' 0 1 2 3 4
"""
# A world of ranks on the nodes of the step: as fast as the slowest of them.
PERF = """\
#!/usr/bin/env bash
case " $* " in *" -e 8 "*) exit 0 ;; esac
case ",$SLURM_STEP_NODELIST," in *,n3,*) exec "{folder}/table" 0.5 ;; *) exec "{folder}/table" 1 ;; esac
"""
KUBECTL = """\
#!/usr/bin/env bash
echo "$1 $2" >>"{folder}/kubectl.log"
case $1 in
  create) cat >"{folder}/created.yaml" ;;
  delete) cat >/dev/null; exit {kept} ;;
  wait) case $2 in mpijob/gate-x) exit {code} ;; *) exit 9 ;; esac ;;
  exec) printf 'gate-x-worker-%s.gate-x-worker.x.svc slots=8\\n' 0 1 ;;
  get) printf '%s\\n' 'gate-x-launcher n1' 'gate-x-worker-0 {node}' 'gate-x-worker-1 n1' ;;
esac
"""


def program(folder: Path, name: str, text: str) -> None:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def whole(on: str, nodes: int) -> Run:
    kinds = clusters.load_kinds(ROOT)
    return spec.make(
        spec.load_settings(ROOT),
        instances.load_instances(ROOT),
        floors.load_floors(ROOT),
        name="gate-x",
        image="" if on == "slurm" else "registry.example/x:1",
        nodes=nodes,
        gpus=1,
        kinds=kinds,
        cluster=kinds.clusters[on],
    )


def test_the_slow_node_of_an_allocation_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hosts"
    finding.write(folder)
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("all_reduce_perf", PERF.format(folder=folder))):
        program(folder, name, text)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-4]")
    hosts = prepare.allocated()
    assert hosts == ["n0", "n1", "n2", "n3", "n4"]
    run = whole("slurm", len(hosts))
    cluster, _ = prepare.cluster(run, "slurm", None, hosts)
    settings = model.load_settings(ROOT)
    found = search.find(Search(ROOT, run, "slurm", cluster, settings, tmp_path / "runs", gate_run.script(ROOT)), print)
    said = report.lines(found, settings, "slurm")
    assert said[0] == "at fault: n3"
    assert "  scontrol update nodename=n3 state=drain reason=gate-find" in said


@pytest.mark.parametrize(
    ("code", "kept", "node", "said"),
    [
        (0, 0, "n2", ""),
        (0, 1, "n2", ""),
        (1, 0, "n2", "did not start"),
        (1, 1, "n2", "did not start"),
        (0, 0, "n1", "not on nodes of their own"),
    ],
    ids=["ready", "kept", "never-ready", "never-ready-and-kept", "one-node"],
)
def test_the_pods_of_a_search_are_removed_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kept: int, node: str, said: str
) -> None:
    program(tmp_path, "kubectl", KUBECTL.format(folder=tmp_path, code=code, kept=kept, node=node))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    settings, run, told = model.load_settings(ROOT), whole("kubernetes", 2), list[str]()
    if said:
        with pytest.raises(EnvironmentProblem, match=said), prepare.pods(run, settings, told.append):
            pass
    else:
        with prepare.pods(run, settings, told.append) as (job, pods):
            assert job == "gate-x"
            workers = ["gate-x-worker-1.gate-x-worker.x.svc", "gate-x-worker-0.gate-x-worker.x.svc"]
            assert list(pods.items()) == list(zip(["n1", "n2"], workers, strict=True))
    calls = [line.split()[0] for line in (tmp_path / "kubectl.log").read_text().splitlines()]
    assert calls == ["create", "wait", *(["exec", "get"] if not code else []), "delete"]
    assert ["kubectl delete " in line and "mpijob/gate-x" in line for line in told] == [True] * kept
    created = (tmp_path / "created.yaml").read_text()
    assert f"sleep {prepare.seconds(run, settings)}" in created
    assert "kind: MPIJob" in created


@pytest.mark.parametrize("code", [0, 1])
def test_the_containers_of_a_search_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    program(tmp_path, "srun", f'#!/usr/bin/env bash\necho "$*" >"{tmp_path}/srun.log"\nexit {code}\n')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with prepare.containers(whole("slurm", 2), model.load_settings(ROOT)):
        assert not (tmp_path / "srun.log").exists()
    said = (tmp_path / "srun.log").read_text()
    assert said == "--nodes=2 --ntasks=2 --ntasks-per-node=1 enroot remove --force pyxis_gate-x-7\n"


def test_the_pods_wait_as_long_as_every_run_and_rail_can_take() -> None:
    settings = model.load_settings(ROOT)
    run = whole("kubernetes", 4).model_copy(update={"gpus": 8})
    sweep = settings.run
    one, rail = (sweep.wait + 60 + limit + sweep.grace + 30 for limit in (sweep.limit, sweep.rail_limit))
    assert prepare.seconds(run, settings) == settings.rounds.most * (one + 8 * rail)


def test_a_node_is_named_and_its_worker_is_reached(tmp_path: Path) -> None:
    run, settings = whole("kubernetes", 2), model.load_settings(ROOT)
    cluster, _ = prepare.cluster(run, "kubernetes", None, ["n1", "n2"])
    asked = Search(ROOT, run, "kubernetes", cluster, settings, tmp_path, "", "gate-x", {"n1": "w-1.x", "n2": "w-0.x"})
    (step,) = search.steps(asked, cluster, model.Test((0, 1)), 1)
    assert "w-1.x\nw-0.x" in step.text
    assert "r01-0-n1-n2" in step.log.name
