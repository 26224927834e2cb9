"""Fail, because a job that fails must make the SDK's call fail."""

raise RuntimeError("the script gave up")
