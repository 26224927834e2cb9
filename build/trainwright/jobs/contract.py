"""Write a training job's configuration as SageMaker does for each container: /opt/ml/input/config.

Sources: AWS documentation, "How Amazon SageMaker AI Provides Training Information"; sagemaker-training 5.1.4.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from trainwright.core.errors import ConfigError, did_you_mean

CODE = "/opt/ml/code"
SECRET_FILE, SECRET = "TRAINWRIGHT_JOB_SECRET_FILE", "/run/secrets/trainwright/job"  # variable, and the path in it
GROUP = "homogeneousCluster"
NEAR = 0.85  # difflib ratio: "host" and "hosts" are nearer
CHANNEL = re.compile(r"[A-Za-z0-9._-]{1,64}")  # CreateTrainingJob, ChannelName
# Settings that an SDK sends for each distribution; `none` is one plain process on each host.
DISTRIBUTIONS = {
    "none": {},
    "torchrun": {"sagemaker_torch_distributed_enabled": True},
    "mpi": {"sagemaker_mpi_enabled": True},
    "tensorflow": {"sagemaker_multi_worker_mirrored_strategy_enabled": True},
}
ALSO = {"plain": "none"}  # the name in an image's launcher and in the output of `emit`
PROCESSES = "sagemaker_mpi_num_of_processes_per_host"  # also used for torchrun
NAME = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)


def hosts(count: int) -> list[str]:
    return [f"algo-{number}" for number in range(1, count + 1)]


def hyperparameters(words: Sequence[str], options: Iterable[str] = ()) -> dict[str, str]:
    """Parse `--epochs 3 --fast` of a command line to hyperparameters.

    Raises ConfigError for words without a name, for a name given twice, and for one that is nearly one of `options`,
    because a misspelt --hosts must not start a job on one host.
    """
    found, name = dict[str, str](), ""
    for word in words:
        if match := NAME.fullmatch(word):
            if match[1] in found:
                raise ConfigError(f"--{match[1]} is given twice", why="a hyperparameter has one value")
            if near := difflib.get_close_matches(match[1], options, n=1, cutoff=NEAR):
                fix = f"--{near[0]}, or --hyperparameter {match[1]}=VALUE"
                raise ConfigError(f"unknown option --{match[1]}", why=f"did you mean --{near[0]}?", fix=fix)
            found[match[1]] = match[2] or ""
            name = "" if match[2] else match[1]
        elif name:
            found[name], name = word, ""
        else:
            why = "SageMaker passes only named hyperparameters to a script"
            raise ConfigError(f"{word!r} has no name", why=why, fix=f"--name {word}")
    return found


def distribution(asked: str, components: Mapping[str, str], ranks: int, processes: int = 1) -> str:
    """Return what starts the ranks, `processes` on each host: as requested, else what the image supports.

    Raises ConfigError if there is none: ranks that each train alone would look like success.
    """
    asked = ALSO.get(asked, asked)
    able = {
        "torchrun": "torch" in components,
        "mpi": "mpi4py" in components or "horovod" in components,
        "tensorflow": "tensorflow" in components,
        "none": True,
    }
    if not asked and ranks == 1:
        return "none"
    if not asked:
        order = ("mpi",) if "horovod" in components else ("torchrun", "tensorflow", "mpi")
        asked = next((name for name in order if able[name]), "")
        if not asked:
            why = "it has none of torch, tensorflow and mpi4py; with --distribution none each host trains alone"
            raise ConfigError(f"this image has no launcher for {ranks} ranks", why=why)
    if asked not in DISTRIBUTIONS:
        raise ConfigError(f"unknown distribution {asked!r}", why=did_you_mean(asked, {*DISTRIBUTIONS, *ALSO}))
    if not able[asked]:
        raise ConfigError(
            f"this image does not support {asked}", why=f"it has {', '.join(sorted(components)) or 'nothing'}"
        )
    if asked == "none" and processes > 1:
        why, fix = f"distribution {asked} starts one process on each host", "another --distribution, or no --processes"
        raise ConfigError(f"--processes {processes} is too many", why=why, fix=fix)
    return asked


def config(
    names: Sequence[str], current: str, settings: Mapping[str, object], channels: Sequence[str], instance: str
) -> dict[str, bytes]:
    """Map paths to file contents; as the SDKs do, each hyperparameter is encoded as JSON in a string."""
    group = {"instance_group_name": GROUP, "instance_type": instance, "hosts": list(names)}
    mode = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    contents = {
        "hyperparameters": {name: json.dumps(value) for name, value in settings.items()},
        "resourceconfig": {
            "current_host": current,
            "current_instance_type": instance,
            "current_group_name": GROUP,
            "hosts": list(names),
            "instance_groups": [group],
            "network_interface_name": "eth0",
        },
        "inputdataconfig": dict.fromkeys(channels, mode),
    }
    return {f"/opt/ml/input/config/{name}.json": json.dumps(content).encode() for name, content in contents.items()}
