"""Connect the hosts of one job: they wait for each other, and each learns at once why the job ends on another one.

The main host listens and all others connect to it. It alone decides which event came first, so that all hosts name the
same cause. Every wait has a timeout. Connections from outside the job are refused, noted once, and delay nothing.
"""

import time
from collections.abc import Iterable
from contextlib import suppress

import links
import trust
from errors import LauncherError, note
from links import Link
from meeting import Card, Event, Meeting, Settings
from sides import Main, Member
from worlds import World

__all__ = ["Event", "Meeting", "join", "tell"]

NAMED = 8  # hosts that one line names
STOPPED = "stopped while the hosts joined"


def join(world: World, settings: Settings, secret: trust.Secret | None, card: Card) -> Meeting:
    """Wait until all hosts have joined, for at most join_seconds. Raises LauncherError that names the missing hosts.

    `card`: data of this host that all others receive, such as its public ssh key.
    """
    if world.index == 0:
        return _gather(Main(world, settings, secret, card))
    return _enter(world, settings, secret, card)


def tell(world: World, settings: Settings, secret: trust.Secret | None, code: int, cause: str) -> None:
    """Tell the others, instead of join(), that this host has already failed, so that they do not wait. Raises nothing.

    It ends after tell_seconds; a host that starts later waits for join_seconds and then names this host as missing.
    """
    end = time.monotonic() + settings["tell_seconds"]
    try:
        meeting = Main(world, settings, secret, {}) if world.index == 0 else _reach(world, settings, secret, end)
    except LauncherError as problem:
        return note(f"the other hosts could not be told that this one failed: {problem.what}: {problem.why}")
    meeting.say("failed", code, cause)
    if isinstance(meeting, Main):
        while len(meeting.told) < world.host_count - 1 and time.monotonic() < end:
            time.sleep(settings["retry_seconds"])
    meeting.close()
    return None


def _reach(world: World, settings: Settings, secret: trust.Secret | None, end: float) -> Member:
    report = _Report(world.main, settings)
    while True:
        link = _call(world, settings, secret)
        if isinstance(link, Link):
            return Member(world, settings, link, None)
        if time.monotonic() > end:
            raise LauncherError(f"{world.main} was not reached", link)
        report.say(link)
        time.sleep(settings["retry_seconds"])


def names(hosts: Iterable[str]) -> str:
    every = list(hosts)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more


def _gather(meeting: Main) -> Meeting:
    """Wait, on the main host, for all others."""
    start = time.monotonic()
    seconds, every = meeting.settings["join_seconds"], meeting.settings["report_seconds"]
    try:
        while (waited := time.monotonic() - start) < seconds:
            if meeting.wait(min(every, seconds - waited)):
                return meeting
            _end_if_one_has_no_secret(meeting)
            note(f"waiting for {names(meeting.missing())} ({time.monotonic() - start:.0f} of {seconds:g} s)")
        raise _who_did_not_come(meeting)
    except BaseException as problem:
        told = f"{problem.what}: {problem.why}" if isinstance(problem, LauncherError) else STOPPED
        meeting.say("failed", 1, told)  # so that the others stop waiting; an earlier cause is kept
        meeting.close()
        raise


def _end_if_one_has_no_secret(meeting: Main) -> None:
    """End the job if one of its hosts reports that it has no secret, because it can never join.

    The report is not authenticated, so it only counts from the IP address to which the host's name resolves.
    """
    settings = meeting.settings
    for host, address in list(meeting.without_secret.items()):
        with suppress(links.Unreached):
            known = links.addresses(host, settings["watch_port"], settings["retry_seconds"])
            if address in [str(where[0]) for _, where in known]:
                what = f"{host} has no job secret, but this host has one"
                raise LauncherError(what, f"it reported so from its own address, {address}", trust.FIX_SECRET)


def _who_did_not_come(meeting: Main) -> LauncherError:
    missing, settings = meeting.missing(), meeting.settings
    port = settings["watch_port"]
    reasons = [
        f"{host}: {meeting.absent.get(host) or links.why_absent(host, port, settings['retry_seconds'])}"
        for host in missing[:NAMED]
    ]
    return LauncherError(
        f"{names(missing)} did not join within {settings['join_seconds']:g} s",
        "; ".join(reasons),
        f"read the log of {missing[0]}: it must run trainwright-launch with the same hosts, resolve "
        f"{meeting.world.main} and reach its port {port}",
    )


def _enter(world: World, settings: Settings, secret: trust.Secret | None, card: Card) -> Meeting:
    """Connect this member to the main host, with retries for join_seconds."""
    start, report = time.monotonic(), _Report(world.main, settings)
    port, seconds = settings["watch_port"], settings["join_seconds"]
    while True:
        link = _call(world, settings, secret)
        met = _wait_for_all(Member(world, settings, link, card), report) if isinstance(link, Link) else link
        if isinstance(met, Meeting):
            return met
        if time.monotonic() - start > seconds:
            fix = f"it must run trainwright-launch with the same hosts, and port {port} must be open: read its log"
            raise LauncherError(f"{world.main} was not reached within {seconds:g} s", met, fix)
        report.say(met)
        time.sleep(settings["retry_seconds"])


def _call(world: World, settings: Settings, secret: trust.Secret | None) -> Link | str:
    """Try once to connect. Returns the connection, or why it failed; raises LauncherError if a retry cannot help."""
    port, seconds, limit = (settings[name] for name in ("watch_port", "greeting_seconds", "greeting_bytes"))
    try:
        return links.call(secret, world.job, world.main, world.host, port, seconds, limit)
    except links.Unreached as problem:
        return str(problem)
    except trust.Refused as refused:
        why = trust.REFUSALS[refused.code][0].format(main=world.main, host=world.host)
        if refused.code in trust.PASSING:
            return why
        raise LauncherError(why, f"{world.main} and {world.host} ended the handshake", _fix(refused.code)) from None


def _fix(code: str) -> str:
    if code == "impostor":
        return "find the other container with this name or address, or give the job its own network"
    return trust.FIX_SECRET if "secret" in code else "start all hosts with the same list of hosts and the same image"


def _wait_for_all(meeting: Member, report: "_Report") -> Meeting | str:
    """Return the meeting once all have joined, or why the main host was lost. Raises LauncherError if the job ends."""
    settings = meeting.settings
    end = time.monotonic() + settings["join_seconds"] + settings["silent_seconds"]  # longer than the main host waits
    try:
        while time.monotonic() < end:
            if meeting.wait(settings["report_seconds"]):
                return meeting
            if meeting.gone:
                break
            report.say("it waits for other hosts, which its log names")
    except BaseException as problem:
        if not isinstance(problem, LauncherError):
            meeting.say("failed", 1, STOPPED)
        meeting.close()
        raise
    meeting.close()
    return meeting.gone or "it still waits for other hosts"


class _Report:
    """Note why this host waits, every report_seconds instead of at every try."""

    def __init__(self, host: str, settings: Settings) -> None:
        self.host, self.settings = host, settings
        self.start = self.said = time.monotonic()

    def say(self, why: str) -> None:
        now = time.monotonic()
        if now - self.said >= self.settings["report_seconds"]:
            self.said = now
            note(f"waiting for {self.host} ({now - self.start:.0f} of {self.settings['join_seconds']:g} s): {why}")
