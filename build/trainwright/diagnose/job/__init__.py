"""Why a job failed, from all that its ranks left behind: logs, recorder dumps, output of NCCL's RAS."""
