"""Run nccl-tests on GPU hosts: launch a run, read its log, judge it, report the verdict."""
