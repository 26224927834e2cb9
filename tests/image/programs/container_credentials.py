"""Serves credentials on loopback as SageMaker, ECS and EKS do, and prints which boto3 finds, and how."""

import http.server
import json
import os
import threading
from datetime import UTC, datetime, timedelta

import boto3

LATER = datetime.now(UTC) + timedelta(hours=1)
SAID = {"AccessKeyId": "served", "SecretAccessKey": "x", "Token": "x", "Expiration": LATER.isoformat()}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(SAID).encode())

    def log_message(self, *_: object) -> None:
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"http://127.0.0.1:{server.server_port}/role"
found = boto3.Session().get_credentials()
print(found.method, found.access_key)
