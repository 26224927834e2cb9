"""A training job's request as code for SageMaker's own SDK, version 2 or 3. Pure: text, which nobody here runs.

Facts: sagemaker-python-sdk, sagemaker/pytorch/estimator.py (2.257), and sagemaker-core/src/sagemaker/core/training/
configs.py@43b5bcec (3.27). Both pack the source and send the hyperparameters as JSON, as we do.
"""

from typing import Any

from trainwright import jobs, submissions
from trainwright.errors import ConfigError, did_you_mean
from trainwright.submissions import Submission

VERSIONS = ("v2", "v3")
MPI, TORCHRUN, TENSORFLOW = (next(iter(jobs.DISTRIBUTIONS[name])) for name in ("mpi", "torchrun", "tensorflow"))


class Raw(str):
    """Code, and no text of it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def code(job: Submission, source: str, version: str, region: str) -> str:
    """Python that asks the SDK for the same job. `source` is the folder. Raises ConfigError."""
    if version not in VERSIONS:
        raise ConfigError(f"there is no SDK {version}", where="--show-sdk", why=did_you_mean(version, VERSIONS))
    head = [f'"""The job of `trainwright launch`, with version {version[1:]} of SageMaker\'s SDK.']
    if job.secret:
        key = f"aws:kms --sse-kms-key-id {job.kms_key}" if job.kms_key else job.settings.secret.encryption
        make = f"openssl rand -hex {job.settings.secret.bytes} | aws s3 cp - {job.secret_uri} --sse {key}"
        head += ["", f"Before it: {make}", f"After it:  aws s3 rm {job.secret_uri}"]
    head += ['"""', "", "import boto3"]
    return "\n".join([*head, *(_v2 if version == "v2" else _v3)(job, source, region)]) + "\n"


def _own(job: Submission) -> dict[str, Any]:
    """The hyperparameters without those that the SDK sets by itself."""
    return dict(job.hyperparameters)


def _channels(job: Submission) -> dict[str, str]:
    secret = {job.settings.secret.channel: f"{job.secret_uri.rpartition('/')[0]}/"} if job.secret else {}
    return {**job.channels, **secret}


def _v2(job: Submission, source: str, region: str) -> list[str]:
    values, distribution = _own(job), dict[str, Any]()
    if values.pop(MPI, None):
        per_host = {"processes_per_host": values.pop(jobs.PROCESSES)} if jobs.PROCESSES in values else {}
        distribution = {"mpi": {"enabled": True, **per_host}}
    elif values.pop(TORCHRUN, None):
        distribution = {"torch_distributed": {"enabled": True}}
    asked = {
        "image_uri": job.image,
        "role": job.role,
        "entry_point": job.program,
        "source_dir": source,
        "code_location": job.output,
        "instance_type": job.instance,
        "instance_count": job.hosts,
        "volume_size": job.volume_gb,
        "output_path": job.output,
        "output_kms_key": job.kms_key,
        "distribution": distribution,
        "hyperparameters": values,
        "container_log_level": job.settings.defaults.log_level,
        "environment": submissions.environment(job),
        "max_run": job.max_run,
        "use_spot_instances": job.spot,
        "max_wait": job.max_wait,
        "checkpoint_s3_uri": job.checkpoints,
        "keep_alive_period_in_seconds": job.keep_alive,
        "subnets": job.subnets,
        "security_group_ids": job.security_groups,
        "encrypt_inter_container_traffic": job.encrypt_traffic,
        "tags": [{"Key": key, "Value": value} for key, value in job.tags.items()],
        "disable_profiler": True,
        "debugger_hook_config": Raw("False"),
        "sagemaker_session": Raw(f"Session(boto3.Session(region_name={region!r}))"),
    }
    fit = {"inputs": _channels(job), "job_name": job.name}
    return [
        "from sagemaker import Session",
        "from sagemaker.pytorch import PyTorch",
        "",
        f"estimator = {_call('PyTorch', asked)}",
        f"estimator.{_call('fit', fit)}",
    ]


def _v3(job: Submission, source: str, region: str) -> list[str]:
    values, distributed = _own(job), Raw("")
    if TENSORFLOW in values:
        raise ConfigError("version 3 of the SDK has no TensorFlow", where="--show-sdk", fix="--show-sdk v2")
    per_host = {"process_count_per_node": values.pop(jobs.PROCESSES)} if jobs.PROCESSES in values else {}
    kind = "MPI" if values.pop(MPI, None) else "Torchrun" if values.pop(TORCHRUN, None) else ""
    if kind:
        distributed = Raw(_call(kind, per_host, 1))
    compute = {
        "instance_type": job.instance,
        "instance_count": job.hosts,
        "volume_size_in_gb": job.volume_gb,
        "keep_alive_period_in_seconds": job.keep_alive,
        "enable_managed_spot_training": job.spot,
    }
    network = {
        "subnets": job.subnets,
        "security_group_ids": job.security_groups,
        "enable_inter_container_traffic_encryption": job.encrypt_traffic,
    }
    stopping = {"max_runtime_in_seconds": job.max_run, "max_wait_time_in_seconds": job.max_wait}
    checkpoints = {"s3_uri": job.checkpoints}
    tags = [Raw(f"Tag(key={key!r}, value={value!r})") for key, value in job.tags.items()]
    inputs = [Raw(f"InputData(channel_name={name!r}, data_source={uri!r})") for name, uri in _channels(job).items()]
    asked = {
        "training_image": job.image,
        "role": job.role,
        "base_job_name": job.name,
        "source_code": Raw(_call("SourceCode", {"source_dir": source, "entry_script": job.program}, 1)),
        "compute": Raw(_call("Compute", compute, 1)),
        "networking": Raw(_call("Networking", network, 1)) if any(network.values()) else "",
        "distributed": distributed,
        "hyperparameters": values,
        "environment": submissions.environment(job),
        "stopping_condition": Raw(_call("StoppingCondition", stopping, 1)),
        "checkpoint_config": Raw(_call("CheckpointConfig", checkpoints, 1)) if job.checkpoints else "",
        "output_data_config": Raw(
            _call("OutputDataConfig", {"s3_output_path": job.output, "kms_key_id": job.kms_key}, 1)
        ),
        "tags": tags,
        "sagemaker_session": Raw(f"Session(boto3.Session(region_name={region!r}))"),
    }
    used = ["Compute", "OutputDataConfig", "SourceCode", "StoppingCondition"]
    used += ["CheckpointConfig"] if job.checkpoints else []
    used += ["Networking"] if any(network.values()) else []
    used += ["Tag"] if tags else []
    used += ["InputData"] if inputs else []
    return [
        "from sagemaker.core.helper.session_helper import Session",
        f"from sagemaker.core.training.configs import {', '.join(sorted(used))}",
        *([f"from sagemaker.train.distributed import {kind}"] if kind else []),
        "from sagemaker.train.model_trainer import ModelTrainer",
        "",
        f"trainer = {_call('ModelTrainer', asked)}",
        f"trainer.{_call('train', {'input_data_config': inputs})}",
    ]


def _call(name: str, keywords: dict[str, Any], depth: int = 0) -> str:
    """Without what is empty: the SDK's own default is the same."""
    pad = "    " * (depth + 1)
    kept = [f"{pad}{key}={value!r},\n" for key, value in keywords.items() if value not in ("", None, False, {}, [])]
    return f"{name}(\n{''.join(kept)}{'    ' * depth})" if kept else f"{name}()"
