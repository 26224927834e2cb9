"""Serves an object on loopback as Amazon S3 does, and credentials as SageMaker, ECS and EKS do.

Prints what s3torchconnector reads of it, and whose key it signs by.
"""

import http.server
import json
import os
import re
import threading
from datetime import UTC, datetime, timedelta

BODY = b"0123456789"
LATER = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
ROLE = {"AccessKeyId": "served", "SecretAccessKey": "x", "Token": "x", "Expiration": LATER}
signed = set()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/role":
            self.answer(200, json.dumps(ROLE).encode(), {})
            return
        signed.update(re.findall("Credential=([^/]+)/", self.headers.get("Authorization", "")))
        first, last = re.findall(r"\d+", self.headers.get("Range", f"bytes=0-{len(BODY) - 1}"))
        part = BODY[int(first) : int(last) + 1]
        place = f"bytes {first}-{int(first) + len(part) - 1}/{len(BODY)}"
        about = {"Content-Range": place, "ETag": '"0"', "Last-Modified": "Sat, 01 Aug 2026 00:00:00 GMT"}
        self.answer(206 if "Range" in self.headers else 200, part, about)

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes, about: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **about}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
here = f"http://127.0.0.1:{server.server_port}"
os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{here}/role"

from s3torchconnector import S3ClientConfig, S3MapDataset  # noqa: E402  # its client reads the environment

data = S3MapDataset.from_objects(
    ["s3://bucket/object"],
    region="us-east-1",
    endpoint=here,
    s3client_config=S3ClientConfig(force_path_style=True),
)
read = data[0].read()
print(f"signed by {' '.join(sorted(signed))}: {read!r}")
