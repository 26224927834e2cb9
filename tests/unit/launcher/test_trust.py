"""Test that a party without the job's secret cannot join, whatever it knows, overhears or replays."""

import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trust
from errors import LauncherError
from hypothesis import given
from hypothesis import strategies as st
from trust import FILE, VARIABLE, Keys, Refused, admit, enter, take
from wire import Message, Seal, WireError

LAUNCHER = Path(trust.__file__).parent
KEY = "0123456789abcdef0123456789abcdef"
HOSTS = ("algo-1", "algo-2", "algo-3")
Change = Callable[[Message], Message]


def secret(key: str = KEY) -> trust.Secret:
    found = take({VARIABLE: key})
    assert found
    return found


def as_it_is(message: Message) -> Message:
    return message


def meet(
    member: Any, main: Any, up: tuple[Change, Change] = (as_it_is, as_it_is), down: Change = as_it_is
) -> tuple[Keys, Keys]:
    """Let both sides talk through functions that may change their messages; return the keys of member and main."""
    next(main)
    challenge = main.send(up[0](next(member)))
    proof = member.send(down(challenge))
    with pytest.raises(StopIteration) as admitted:
        main.send(up[1](proof))
    _, main_keys, last = admitted.value.value
    with pytest.raises(StopIteration) as entered:
        member.send(last)
    return entered.value.value, main_keys


def member(key: trust.Secret | None, host: str = "algo-2", job: str = "job", main: str = "algo-1") -> Any:
    return enter(key, job, main, host)


def main(key: trust.Secret | None, job: str = "job", name: str = "algo-1", taken: tuple[str, ...] = ()) -> Any:
    return admit(key, job, name, HOSTS, lambda host: host in taken)


# --- the secret itself -----------------------------------------------------------------------------------------------


def test_the_secret_is_taken_out_of_the_environment(tmp_path: Path) -> None:
    held = {VARIABLE: KEY, "PATH": "/bin"}
    assert take(held)
    assert held == {"PATH": "/bin"}
    (tmp_path / "secret").write_text(KEY + "\n")
    held = {FILE: str(tmp_path / "secret")}
    from_file = take(held)
    assert from_file
    assert not held
    assert from_file.mac("role") == secret().mac("role")  # the end of the line is none of it
    assert take({}) is None


def test_a_process_that_is_started_afterwards_does_not_have_it() -> None:
    code = f"""
import os, subprocess, sys
sys.path.insert(0, {str(LAUNCHER)!r})
import trust
held = trust.take(os.environ)
subprocess.run(["env"], check=True)
print(repr(held), str(held), f"{{held}}", vars(trust))
"""
    words = [sys.executable, "-c", code]
    said = subprocess.run(words, env={**os.environ, VARIABLE: KEY}, capture_output=True, text=True, check=True)
    assert "Secret(...)" in said.stdout
    assert KEY not in said.stdout + said.stderr
    assert f"{VARIABLE}=" not in said.stdout


def test_what_the_process_was_started_with_is_overwritten() -> None:
    code = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(LAUNCHER)!r})
import trust
before = Path("/proc/self/environ").read_bytes()
held = trust.take(os.environ)
print({KEY!r}.encode() in before, {KEY!r}.encode() in Path("/proc/self/environ").read_bytes(), os.environ["AFTER"])
print(held.mac("role").hex())
"""
    words, held = [sys.executable, "-c", code], {**os.environ, VARIABLE: KEY, "AFTER": "is whole"}
    said = subprocess.run(words, env=held, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == ["True False is whole", secret().mac("role").hex()]


def test_the_variable_becomes_a_file_that_is_read_once() -> None:
    code = f"""
import os, stat, subprocess, sys
from pathlib import Path
sys.path.insert(0, {str(LAUNCHER)!r})
import trust
trust.hand_over(os.environ)
assert {KEY!r}.encode() not in Path("/proc/self/environ").read_bytes()
assert {KEY!r} not in subprocess.run(["env"], capture_output=True, text=True).stdout
path = Path(os.environ[trust.FILE])
assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]
print(trust.take(os.environ).mac("role").hex(), path.parent.exists(), trust.FILE in os.environ)
"""
    words = [sys.executable, "-c", code]
    said = subprocess.run(words, env={**os.environ, VARIABLE: KEY}, capture_output=True, text=True, check=True).stdout
    assert said == f"{secret().mac('role').hex()} False False\n"


def test_a_file_of_the_users_stays(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(KEY)
    held = {FILE: str(tmp_path / "secret")}
    trust.hand_over(held)
    assert take(held)
    assert (tmp_path / "secret").exists()


def test_a_folder_of_the_users_stays_whatever_its_name(tmp_path: Path) -> None:
    """Its name is no proof that the launcher made it: other keys lay in it, and the whole of it was removed."""
    own = tmp_path / "trainwright-secret-of-mine"
    own.mkdir()
    for name in ("secret", "another-key"):
        (own / name).write_text(KEY)
    held = {FILE: str(own / "secret")}
    assert take(held)
    assert sorted(path.name for path in own.iterdir()) == ["another-key", "secret"]


def test_what_lies_beside_the_file_that_is_removed_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = {VARIABLE: KEY}
    trust.hand_over(held)
    path = Path(held[FILE])
    (path.parent / "notes").write_text("a user's")
    assert take(held)
    assert not held
    assert [path.name for path in path.parent.iterdir()] == ["notes"]


def test_no_text_and_no_copy_of_it_shows_it() -> None:
    held = secret()
    assert KEY not in f"{held} {held!r} {[held]} {dir(held)}"
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(held)
    assert not hasattr(held, "__dict__")


@pytest.mark.parametrize(
    "key",
    [
        "",
        " ",
        "hunter2",
        "a" * 64,
        "0123456789abcdef0123456789abcde",
        "job-2026-11-22",
        "abcABC123-_abcABC123-",
        "ab" * 40,
    ],
)
def test_a_short_secret_is_refused_with_a_way_to_a_good_one(key: str) -> None:
    with pytest.raises(LauncherError, match="too short") as failed:
        take({VARIABLE: key})
    assert trust.MAKE in failed.value.fix
    assert "128" in failed.value.why
    if key.strip():
        assert key not in str(failed.value)


def test_the_way_to_a_good_one_is_one() -> None:
    made = subprocess.run(["sh", "-c", trust.MAKE], capture_output=True, text=True, check=True).stdout
    assert take({VARIABLE: made})


@given(st.binary(min_size=16, max_size=64).filter(lambda data: len(set(data.hex())) >= 8))
def test_random_bytes_are_long_enough(data: bytes) -> None:
    assert take({VARIABLE: data.hex()})


def test_a_secret_that_cannot_be_read_is_no_reason_to_go_on_without(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff" * 64)
    for path in (tmp_path / "none", tmp_path, tmp_path / "bytes"):
        with pytest.raises(LauncherError, match="cannot be read"):
            take({FILE: str(path)})
    with pytest.raises(LauncherError, match="both"):
        take({FILE: str(tmp_path), VARIABLE: KEY})
    with pytest.raises(LauncherError, match=r"cannot be read|too short"):
        take({FILE: ""})


# --- two hosts -------------------------------------------------------------------------------------------------------


def test_two_hosts_with_the_secret_agree_on_keys() -> None:
    (sends, receives), (main_sends, main_receives) = meet(member(secret()), main(secret()))
    assert sends == main_receives
    assert receives == main_sends
    assert sends != receives


def test_without_a_secret_there_are_no_keys() -> None:
    assert meet(member(None), main(None)) == ((None, None), (None, None))


def test_keys_are_new_every_time_and_of_one_host() -> None:
    found = {meet(member(secret(), host), main(secret()))[0] for host in ("algo-2", "algo-2", "algo-3")}
    assert len(found) == 3


def test_the_secret_never_travels() -> None:
    said: list[str] = []

    def hear(message: Message) -> Message:
        said.append(json.dumps(message))
        return message

    meet(member(secret()), main(secret()), (hear, hear), hear)
    assert len(said) == 3
    assert KEY not in "".join(said)
    assert KEY.encode().hex() not in "".join(said)


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [(secret("f" + KEY[1:]), secret(), "secret"), (None, secret(), "wants secret"), (secret(), None, "no secret")],
)
def test_another_secret_or_none_is_refused(ours: trust.Secret | None, theirs: trust.Secret | None, code: str) -> None:
    with pytest.raises(Refused, match=f"^{code}$"):
        meet(member(ours), main(theirs))


def test_a_member_never_goes_on_without_its_secret() -> None:
    """A false main host says that it has none, and would be told everything."""
    step = member(secret())
    next(step)
    with pytest.raises(Refused, match="no secret"):
        step.send({"nonce": "0" * 64, "secret": False})


@pytest.mark.parametrize("proof", ["", "0" * 64, "-"])
def test_a_main_host_that_cannot_prove_itself_is_no_main_host(proof: str) -> None:
    step = member(secret())
    next(step)
    step.send({"nonce": "0" * 64, "secret": True})
    with pytest.raises(Refused, match="impostor"):
        step.send({"proof": proof})


def test_what_a_member_proved_is_no_proof_of_a_main_host() -> None:
    """Reflection: the answer comes back as it was given."""
    step = member(secret())
    next(step)
    proof = step.send({"nonce": "0" * 64, "secret": True})
    with pytest.raises(Refused, match="impostor"):
        step.send(proof)


def test_what_was_heard_before_is_worth_nothing_later() -> None:
    """Replay, of a whole conversation that went well."""
    said: list[Message] = []

    def hear(message: Message) -> Message:
        said.append(message)
        return message

    meet(member(secret()), main(secret()), (hear, hear))
    step = main(secret())
    next(step)
    step.send(said[0])
    with pytest.raises(Refused, match="secret"):
        step.send(said[1])


def test_a_main_host_that_was_heard_before_is_none_later() -> None:
    step, other = main(secret()), member(secret())
    next(step)
    challenge = step.send(next(other))
    with pytest.raises(StopIteration) as admitted:
        step.send(other.send(challenge))
    later = member(secret())
    next(later)
    later.send(challenge)
    with pytest.raises(Refused, match="impostor"):
        later.send(admitted.value.value[2])


@pytest.mark.parametrize("change", [{"host": "algo-3"}, {"nonce": "0" * 64}])
def test_what_is_changed_on_the_way_is_under_the_proof(change: Message) -> None:
    with pytest.raises(Refused, match="secret"):
        meet(member(secret()), main(secret()), (lambda message: {**message, **change}, as_it_is))


def test_a_challenge_that_was_changed_is_under_the_proof() -> None:
    with pytest.raises(Refused, match="secret"):
        meet(member(secret()), main(secret()), down=lambda message: {**message, "nonce": "0" * 64})


def test_a_proof_is_for_one_job_and_one_main_host() -> None:
    """Two jobs with one secret, and somebody between them who says to each what it wants to hear."""
    swap = (lambda message: {**message, "job": "job"}, as_it_is)
    with pytest.raises(Refused, match=r"^secret$"):
        meet(member(secret(), job="other"), main(secret()), swap)
    with pytest.raises(Refused, match=r"^secret$"):
        meet(member(secret(), main="algo-3"), main(secret()))


@pytest.mark.parametrize("key", [None, secret()])
@pytest.mark.parametrize(
    ("who", "there", "code"),
    [
        ({"host": "algo-9"}, {}, "stranger"),
        ({"host": "algo-1"}, {}, "stranger"),
        ({"job": "other"}, {}, "job"),
        ({}, {"taken": ("algo-2",)}, "taken"),
    ],
)
def test_who_does_not_belong_is_told_why(key: Any, who: dict[str, str], there: Any, code: str) -> None:
    with pytest.raises(Refused, match=f"^{code}$"):
        meet(member(key, **who), main(key, **there))


def test_who_is_in_is_not_told_to_strangers() -> None:
    with pytest.raises(Refused, match=r"^secret$"):
        meet(member(secret("f" + KEY[1:])), main(secret(), taken=("algo-2",)))


def test_another_version_is_told_so() -> None:
    with pytest.raises(Refused, match=r"^version$"):
        meet(member(None), main(None), (lambda message: {**message, "version": 2}, as_it_is))


@pytest.mark.parametrize("code", sorted(trust.REFUSALS))
def test_a_refusal_is_heard_and_can_be_said(code: str) -> None:
    step = member(secret())
    next(step)
    with pytest.raises(Refused, match=f"^{code}$"):
        step.send({"refused": code})
    assert all("{" not in text.format(main="algo-1", host="algo-2") for text in trust.REFUSALS[code])


NASTY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=80) | st.just("0" * 64) | st.just("algo-2"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.dictionaries(
    st.sampled_from(["hello", "version", "job", "host", "nonce", "secret", "proof", "refused"]), NASTY, max_size=8
)


@given(FIELDS, FIELDS)
def test_whatever_is_sent_nobody_gets_in(first: Message, second: Message) -> None:
    """Nothing else is raised, either: a stranger ends its own connection, not the watch."""
    hello = {"hello": "trainwright", "version": 1, "job": "job", "host": "algo-2", "nonce": "0" * 64, "secret": True}
    for opening in (first, {**hello, **first}, hello):
        step = main(secret())
        next(step)
        with pytest.raises((Refused, WireError)):
            [step.send(message) for message in (opening, second)]


@given(FIELDS, FIELDS)
def test_whatever_a_false_main_host_says_nobody_follows(first: Message, second: Message) -> None:
    for opening in (first, {"nonce": "0" * 64, "secret": True}):
        step = member(secret())
        next(step)
        with pytest.raises((Refused, WireError)):
            [step.send(message) for message in (opening, second)]


# --- afterwards ------------------------------------------------------------------------------------------------------


def test_later_messages_are_of_one_direction_one_place_and_one_connection() -> None:
    (sends, receives), _ = meet(member(secret()), main(secret()))
    (elsewhere, _), _ = meet(member(secret()), main(secret()))
    line = Seal(sends).seal({"kind": "failed"}).rstrip(b"\n")
    assert Seal(sends).open(line)
    late = Seal(sends)
    late.count = 1
    for other in (Seal(receives), Seal(elsewhere), late, Seal(None)):
        with pytest.raises(WireError):
            other.open(line)
