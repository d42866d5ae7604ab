#!/bin/bash
# kafka-go 0.4.51 (pierrec/lz4 4.1.15, which its go.mod asks for): LZ4 frames with block checksums cannot be read.
# Seen: a frame of liblz4 whose blocks have checksums, as aiokafka and rskafka write them into records, is "invalid block checksum";
# the same data without them is read. lz4 4.1.22 reads both: `go get github.com/pierrec/lz4/v4@v4.1.22` in the program helps.
# Judge: liblz4 itself (lz4 4.4.5 for Python), which wrote the frames and reads them.
set -euo pipefail
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install lz4==4.4.5
"$dir/venv/bin/python" - "$dir" <<'PY'
import sys

import lz4.frame

for name, has_checksums in (("plain", False), ("checksums", True)):
    frame = lz4.frame.compress(b"hello " * 100, block_checksum=has_checksums)
    assert lz4.frame.decompress(frame) == b"hello " * 100
    open(f"{sys.argv[1]}/{name}", "wb").write(frame)
PY

mkdir "$dir/program"
cd "$dir/program"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/segmentio/kafka-go/compress"
)

func main() {
	for _, name := range os.Args[1:] {
		file, _ := os.Open(name)
		data, err := io.ReadAll(compress.Lz4.Codec().NewReader(file))
		if err != nil {
			fmt.Println(len(data), "bytes, an error")
		} else {
			fmt.Println(len(data), "bytes")
		}
	}
}
GO
export GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/segmentio/kafka-go@v0.4.51 2>/dev/null
{
    go list -m github.com/pierrec/lz4/v4
    go run . ../plain ../checksums
    go get github.com/pierrec/lz4/v4@v4.1.22 2>/dev/null
    go list -m github.com/pierrec/lz4/v4
    go run . ../plain ../checksums
} >"$dir/seen"

diff - "$dir/seen" <<'SEEN'
github.com/pierrec/lz4/v4 v4.1.15
600 bytes
0 bytes, an error
github.com/pierrec/lz4/v4 v4.1.22
600 bytes
600 bytes
SEEN
