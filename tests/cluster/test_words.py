"""Hyperparameters with quotes, newlines and a shell's marks: the toolkit of SageMaker hands each on as it was."""

import json
from collections.abc import Callable

import pytest
from cluster import harness
from hostile.words import HOSTILE

SCRIPT = """\
import json, sys
print("got " + json.dumps(sys.argv[1:]), flush=True)
"""


@pytest.mark.component("sagemaker-training")
def test_a_script_gets_the_words_that_were_given(cluster: Callable[..., harness.Cluster]) -> None:
    given = {f"word{number}": word for number, word in enumerate(HOSTILE)}
    job = cluster(1, SCRIPT, distribution="plain", arguments=given, listed=False)
    over = job.ended(300)
    assert {host: one.code for host, one in over.items()} == dict.fromkeys(job.hosts, 0), job.said()
    [line] = [line for line in job.said().splitlines() if "got [" in line]
    words = json.loads(line[line.index("[") :])
    assert dict(zip(words[::2], words[1::2], strict=True)) == {f"--{name}": word for name, word in given.items()}
