"""TF_CONFIG names every worker, and each finds the others at their addresses; no TensorFlow is needed for that."""

import json
import os
import socket
import sys
import time

LIMIT_SECONDS = 60

said = json.loads(os.environ["TF_CONFIG"])
workers, task = said["cluster"]["worker"], said["task"]
assert task["type"] == "worker", task
own = workers[task["index"]]
listening = socket.create_server(("", int(own.rpartition(":")[2])))
listening.settimeout(LIMIT_SECONDS)

found, until = {task["index"]}, time.monotonic() + LIMIT_SECONDS
connections = []
for index, address in enumerate(workers):
    while index > task["index"]:
        try:
            host, _, port = address.rpartition(":")
            connections.append(socket.create_connection((host, int(port)), LIMIT_SECONDS))
            connections[-1].sendall(bytes([task["index"]]))
            found.add(connections[-1].recv(1)[0])
            break
        except OSError:
            assert time.monotonic() < until, f"{address} does not answer"
            time.sleep(0.2)
for _ in range(task["index"]):
    connection, _ = listening.accept()
    found.add(connection.recv(1)[0])
    connection.sendall(bytes([task["index"]]))
    connections.append(connection)
assert found == set(range(len(workers))), found
sys.stdout.write(f"checked: rank {task['index']} of {len(workers)}\n")
