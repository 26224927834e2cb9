"""Find the guilty host: plan rounds of runs side by side, judge them together, stop when it is known."""
