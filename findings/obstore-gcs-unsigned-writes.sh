#!/bin/bash
# obstore 0.12.1 (object_store): with `skip_signature`, reads of GCS are sent without a login, but a write asks for a token first.
# Seen: the documented "will not fetch credentials and will not sign requests" holds for GET, HEAD and lists; PUT and DELETE ask the
# machine's metadata service for a token, and send it.
# Beside it: S3Store of the same package, which signs neither.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install obstore==0.12.1

env -u GOOGLE_APPLICATION_CREDENTIALS HOME="$dir" "$dir/venv/bin/python" - >"$dir/seen" <<'PY'
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        is_metadata = "computeMetadata" in self.path
        login = "signed" if "Authorization" in self.headers else "unsigned"
        print(f"  {self.command} {'a token' if is_metadata else f'the object, {login}'}", flush=True)
        body = json.dumps({"access_token": "t", "expires_in": 3600}).encode() if is_metadata else b"x"
        self.send_response(200)
        for name, value in (("ETag", '"e"'), ("Last-Modified", "Mon, 30 Nov 2026 21:00:00 GMT")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = do_HEAD = answer

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
Thread(target=server.serve_forever, daemon=True).start()
address = f"127.0.0.1:{server.server_address[1]}"
os.environ["GCE_METADATA_HOST"] = address

import obstore
from obstore.store import GCSStore, S3Store

options = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}}
gcs = {"base_url": f"http://{address}", "skip_signature": True}
s3 = {"endpoint": f"http://{address}", "skip_signature": True, "region": "us-east-1"}
for name, store in (("GCS", GCSStore("bucket", config=gcs, **options)), ("S3", S3Store("bucket", config=s3, **options))):
    print(f"{name}: get")
    bytes(obstore.get(store, "key").bytes())
    print(f"{name}: put")
    obstore.put(store, "key", b"x", use_multipart=False)
PY

diff - "$dir/seen" <<'SEEN'
GCS: get
  GET the object, unsigned
GCS: put
  GET a token
  PUT the object, signed
S3: get
  GET the object, unsigned
S3: put
  PUT the object, unsigned
SEEN
