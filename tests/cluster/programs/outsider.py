"""What somebody does who has the same image and the same network, and who is no host of the job.

He knows all but the secret: job, hosts, the contents of /opt/ml/input/config, these programs. He speaks the launcher's
own protocol with its own code. Runs in a container beside the job's:  python -B outsider.py WHAT ...
"""

import contextlib
import hashlib
import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, "/opt/trainwright/launcher")

import links
import trust

SETTINGS = json.loads(Path("/opt/trainwright/launcher/settings.json").read_text())
PORT, LIMIT, PATIENCE, SCANNERS = SETTINGS["watch_port"], SETTINGS["greeting_bytes"], 10, 16
COMES = 60  # seconds
CONFIG = Path("/opt/ml/input/config/resourceconfig.json")
FORGED = "forged words"
NOW = Path("/tmp/now")  # where it lies, the one in between adds his word


def guesses(job: str) -> dict[str, trust.Secret | None]:
    """Secrets that somebody could derive who has read everything."""
    config = CONFIG.read_text()
    arn = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{job}"
    known = {"job": job, "arn": arn, "config": config, "hosts": ",".join(json.loads(config)["hosts"]), "nothing": ""}
    hashed = {f"sha256 of {name}": hashlib.sha256(text.encode()).hexdigest() for name, text in known.items()}
    return {"no secret": None, **{name: trust.Secret(text) for name, text in {**known, **hashed}.items()}}


def guess(job: str, main: str, *hosts: str) -> None:
    """Tries to join as each of these hosts, and prints what came of it."""
    for host, (name, secret) in itertools.product(hosts, guesses(job).items()):
        try:
            links.call(secret, job, main, host, PORT, PATIENCE, LIMIT)
            said = "LET IN"
        except trust.Refused as refused:
            said = f"refused: {refused.code}"
        except links.Unreached as problem:
            said = f"unreached: {problem}"
        print(json.dumps([host, name, said]))


def shout(main: str, count: str) -> None:
    """Orders without any proof, noise, and connections that say nothing: many, all held open at once."""
    order = {"host": "algo-2", "code": 1, "cause": FORGED}
    words = [json.dumps({"kind": kind, **order}).encode() for kind in ("stop", "failed", "ended")]
    held = list[socket.socket]()
    for _, word in zip(range(int(count)), itertools.cycle([*words, bytes(range(256)) * 64, b""]), strict=False):
        sock = socket.create_connection((main, PORT), PATIENCE)
        held.append(sock)
        if word:
            sock.sendall(b"- " + word + b"\n")
    print(f"held {len(held)}", flush=True)
    NOW.touch()
    threading.Event().wait()


def scan(host: str) -> None:
    """Which ports of a host are open."""
    address, opened, ports = socket.gethostbyname(host), list[int](), iter(range(1, 1 << 16))

    def some() -> None:
        for port in ports:
            with socket.socket() as sock:
                sock.settimeout(PATIENCE)
                if sock.connect_ex((address, port)) == 0:
                    opened.append(port)

    scanners = [threading.Thread(target=some) for _ in range(SCANNERS)]
    for scanner in scanners:
        scanner.start()
    for scanner in scanners:
        scanner.join()
    print(json.dumps(sorted(opened)))


def impostor(kind: str, job: str, main: str, *hosts: str) -> None:
    """Plays the main host for whoever calls: with a guessed secret, or as one that has none."""
    with links.listen(PORT) as listener:
        print("listens", flush=True)
        while True:
            sock, _ = listener.accept()
            with sock, contextlib.suppress(ConnectionError):
                receive(sock, kind, job, main, hosts)


def receive(sock: socket.socket, kind: str, job: str, main: str, hosts: tuple[str, ...]) -> None:
    link = links.Link(sock, LIMIT)
    secret = None if kind == "downgrade" else trust.Secret(hashlib.sha256(job.encode()).hexdigest())
    steps = trust.admit(secret, job, main, hosts, lambda _: False)
    next(steps)
    sock.settimeout(PATIENCE)
    for _ in range(2):
        said = read(link)
        if kind == "downgrade":
            said |= {"secret": False, "proof": ""}
        try:
            reply = steps.send(said)
        except StopIteration as done:
            reply = done.value[2]
        except trust.Refused:  # that the proof is wrong is nothing to him
            reply = {"proof": "0" * 64}
        sock.sendall(link.sends.seal(reply or {}))
    print("they went on:", read(link), flush=True)


def read(link: links.Link) -> dict[str, object]:
    while link.receive():
        for message in link.messages():
            return message
    raise ConnectionError("they left")


def between(address: str) -> None:
    """Sits between a host and the main one, passes everything on, and then adds a word of his own."""
    with links.listen(PORT) as listener:
        print("listens", flush=True)
        near, _ = listener.accept()
    far = reach(address)
    threading.Thread(target=pour, args=(near, far), daemon=True).start()
    word = json.dumps({"kind": "failed", "host": "algo-1", "code": 1, "cause": FORGED}, separators=(",", ":"))
    for line in far.makefile("rb"):
        near.sendall(line)
        if NOW.exists():
            near.sendall(b"0" * 64 + b" " + word.encode() + b"\n")
            print("said it", flush=True)
            break
    threading.Event().wait()


def reach(address: str) -> socket.socket:
    """The main host may come up later than the one that calls it."""
    end = time.monotonic() + COMES
    while True:
        try:
            return socket.create_connection((address, PORT), PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def pour(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(LIMIT):
        target.sendall(data)


DOES: dict[str, Callable[..., None]] = {
    "guess": guess,
    "shout": shout,
    "scan": scan,
    "impostor": impostor,
    "between": between,
}

if __name__ == "__main__":
    DOES[sys.argv[1]](*sys.argv[2:])
