"""Test uploads that are interrupted, killed or forgotten by the registry: they resume without data loss."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event

import pytest
from registries import Handler, Registry, digest_of, image
from unit.registry.conftest import BIG, notes, push

from trainwright.core import store
from trainwright.core.errors import EnvironmentProblem, RegistryError
from trainwright.core.files import YOUNG
from trainwright.registry import client


def test_goes_on_in_the_middle_of_a_piece(held: Registry, place: str, big: Path) -> None:
    held.act("PATCH .*state=2000", Handler.half)
    push(big, place)
    assert sum(held.sent) + 500 == len(BIG) + len(
        json.dumps(client.config(place, client.manifest_of(big)[0]), separators=(",", ":"))
    )


def unheard(handler: Handler) -> None:
    """Carry out the request, but close the connection before the answer."""
    handler.answer = lambda *_, **__: handler.hang_up()  # type: ignore[method-assign]
    handler.route()


@pytest.mark.parametrize("like_ecr", [False, True])
def test_an_answer_that_is_lost(held: Registry, place: str, big: Path, like_ecr: bool) -> None:
    """The registry has the piece, or all of the blob, and we do not know."""
    held.like_ecr = like_ecr
    held.act("PATCH .*state=(1|2)000", unheard)
    held.act("PATCH .*state=5000", unheard)
    held.act("PUT .*uploads", unheard, times=2)
    push(big, place)
    assert held.sent.count(1000) == 5
    assert 0 not in held.sent


def test_a_registry_that_says_nothing_of_use_about_uploads(held: Registry, place: str, big: Path) -> None:
    held.like_ecr = True
    held.act("PATCH .*state=1000", lambda handler: handler.hang_up())
    push(big, place)
    assert held.sent.count(1000) == 5
    assert held.count("POST") == 2  # an upload of each blob, and none began anew


def test_a_large_blob_may_take_a_registry_its_time(
    held: Registry, place: str, big: Path, settings: Callable[..., None]
) -> None:
    settings(attempts=1, silence=0.3, rate=5000)  # and so a second longer for 5 kB

    def thinks(handler: Handler) -> None:
        time.sleep(0.6)
        handler.route()

    held.act(f"PUT .*{digest_of(BIG)[7:]}", thinks)
    push(big, place)


def test_a_registry_that_forgets_an_upload(held: Registry, place: str, big: Path) -> None:
    def forgets(handler: Handler) -> None:
        held.uploads.clear()
        handler.route()

    held.act("PATCH .*state=2000", forgets)
    held.act("PUT .*uploads", forgets)
    push(big, place)
    assert held.blobs["a", digest_of(BIG)] == BIG


def test_bytes_that_change_on_the_way_are_sent_again(held: Registry, place: str, big: Path) -> None:
    def corrupts(handler: Handler) -> None:
        handler.body = handler.body[:-1] + b"?"
        handler.route()

    held.act("PATCH .*state=2000", corrupts)
    push(big, place)
    assert held.blobs["a", digest_of(BIG)] == BIG
    held.act("PATCH .*/b/", corrupts, times=999)
    held.mounts = False
    with pytest.raises(RegistryError) as raised:
        push(big, f"{held.address}/b")
    assert "DIGEST_INVALID" in raised.value.why


PUSH = """
import sys
from pathlib import Path
from trainwright.registry import client as registry
registry.push(Path(sys.argv[1]), sys.argv[2], registry.manifest_of(Path(sys.argv[1]))[0])
"""


@pytest.mark.parametrize(
    ("number", "like_ecr"), [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGINT, False)]
)
def test_killed_in_the_middle_of_a_blob(
    held: Registry, place: str, big: Path, tmp_path: Path, number: signal.Signals, like_ecr: bool
) -> None:
    """The same command again goes on where the registry stands, and what the first one sent is read back."""
    held.like_ecr = like_ecr
    reached, over = Event(), Event()

    def hangs(handler: Handler) -> None:
        reached.set()
        over.wait(120)

    held.act(f"PATCH .*state={1000 if like_ecr else 3000}", hangs)
    child = subprocess.Popen([sys.executable, "-c", PUSH, big, place], stderr=subprocess.PIPE)
    assert reached.wait(20)
    child.send_signal(number)
    said = child.communicate(timeout=60)[1]
    assert child.returncode != 0
    assert said.count(b"Traceback") == (number == signal.SIGINT)
    over.set()
    held.sent.clear()
    held.asked.clear()
    push(big, place)
    assert held.count("PATCH") == (5 if like_ecr else 3)  # the rest of 5120 bytes
    assert held.count(f"GET .*/blobs/{digest_of(BIG)}") == 1
    assert notes(tmp_path) == []


def test_ctrl_c_with_many_blobs_at_once(held: Registry, place: str, tmp_path: Path) -> None:
    many = image(tmp_path / "many", *(os.urandom(1500) for _ in range(9)))
    reached, over = Barrier(5), Event()

    def hangs(handler: Handler) -> None:
        reached.wait(20)
        over.wait(120)

    held.act("PATCH", hangs, times=4)
    child = subprocess.Popen([sys.executable, "-c", PUSH, many, place], stderr=subprocess.PIPE)
    reached.wait(20)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=60)[1].decode()
    assert said.rstrip().endswith("KeyboardInterrupt")
    over.set()
    push(many, place)
    assert notes(tmp_path) == []


def test_one_process_at_a_time_goes_on_with_an_upload(held: Registry, place: str, big: Path, tmp_path: Path) -> None:
    reached, over = Event(), Event()

    def hangs(handler: Handler) -> None:
        reached.set()
        over.wait(120)
        handler.hang_up()

    held.act("PATCH .*state=2000", hangs)
    child = subprocess.Popen([sys.executable, "-c", PUSH, big, place], stderr=subprocess.PIPE)
    assert reached.wait(20)
    push(big, place)  # from its beginning: the other one is at it
    over.set()
    assert child.wait(20) == 0
    assert held.blobs["a", digest_of(BIG)] == BIG


def test_what_was_never_ended_is_forgotten_some_day(held: Registry, place: str, big: Path, tmp_path: Path) -> None:
    held.fail("PATCH .*state=2000", 403)
    with pytest.raises(RegistryError):
        push(big, place)
    [note] = [path for path in (tmp_path / "store/uploads").iterdir() if digest_of(BIG)[7:] in path.name]
    os.utime(note, (time.time() - 31 * 86400,) * 2)
    push(image(tmp_path / "another"), place)
    assert not note.exists()


def test_a_store_that_cannot_be_written(place: str, big: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(EnvironmentProblem, match="store cannot be written") as raised:
        client.push(big, place, client.manifest_of(big)[0])
    assert raised.value.exit_code == 10


def test_what_killed_processes_were_writing_is_swept_once_it_is_old(
    held: Registry, place: str, big: Path, tmp_path: Path
) -> None:
    """Old, or of a day to come: written before the clock was set back. What is young may be at work."""
    now, root = time.time(), store.root()
    ages = {
        "kept/probe/.a.json.abcdefgh": -YOUNG - 99,
        "mounts/x/.b.abcdefgh": YOUNG + 99,
        "uploads/.c.json.abcdefgh": -60,
    }
    for name, age in {**ages, "kept/probe/a.json": -(10**9)}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
        os.utime(root / name, (now + age,) * 2)
    push(big, place)
    client.verify(place, *client.manifest_of(big))
    assert [(root / name).exists() for name in ages] == [False, False, True]
    assert (root / "kept/probe/a.json").exists()


def test_a_clock_that_jumps_forgets_no_blob_that_nobody_has_read_back(held: Registry, place: str, big: Path) -> None:
    """The push was killed before it could verify, and the next one begins years later, as its clock says."""
    digest, manifest = client.manifest_of(big)
    client.push(big, place, digest)
    sent = [path for path in (store.root() / "uploads").glob("*.json") if digest_of(BIG)[7:] in path.name]
    assert sent
    for note in sent:
        os.utime(note, (0, 0))
    held.blobs["a", digest_of(BIG)] = b"?" + BIG[1:]
    client.push(big, place, digest)
    with pytest.raises(RegistryError):
        client.verify(place, digest, manifest)
