"""What fails must fail the SDK's call."""

raise RuntimeError("the script gave up")
