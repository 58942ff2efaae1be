package archive_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"fetchd/stores/archive"
	"fetchd/warc"
)

// FuzzResponse commits arbitrary bytes that were received in arbitrary pieces. The file can be read,
// and the block is a prefix of the final response. A response that net/http reads to its end is not truncated.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{okResponse("hello"), "HTTP/1.1 100 Continue\r\n\r\n" + okResponse(""), "HTTP/1.1 200 OK\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\nmore",
		"HTTP/1.1 304 Not Modified\nSet-Cookie: a\n b\n\n", "SSH-2.0\r\n", "\r\n\r\n", "HTTP/1.1 101 A\r\n\r\n\x00\xff", body(70_000)} {
		f.Add([]byte(s), uint16(7), byte(0), int64(5))
		f.Add([]byte(s), uint16(1), byte(1), int64(-1))
		f.Add([]byte(s), uint16(40000), byte(0xff), int64(1<<62))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, received []byte, piece uint16, flags byte, length int64) {
		path := dir + "/" + strings.ReplaceAll(t.Name(), "/", "_") + ".warc"
		a := openArchive(t, archive.Config{File: path, Redact: []string{"Set-Cookie"}})
		e := plainExchange(length)
		e.Chunked, e.Bodyless, e.Whole = flags&1 != 0, flags&2 != 0, flags&4 != 0
		if flags&8 != 0 {
			e.Earlier = &archive.Earlier{ID: "urn:a", URL: e.URL, Date: began, PayloadDigest: "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N"}
		}
		c := a.Begin(nil)
		must(t, c.Sent([]byte(getRequest)))
		for rest := received; len(rest) > 0; {
			n := min(int(piece)+1, len(rest))
			must(t, c.Received(rest[:n]))
			rest = rest[n:]
		}
		outcomes, err := c.Commit(e)
		must(t, err)
		closeArchive(t, a)
		records := readFile(t, path)[1:]
		must(t, os.Remove(path))
		sameAs(t, outcomes, records)
		if len(records) == 1 {
			if final := finalOf(received); len(final) > 0 {
				t.Errorf("no record of %.200q", final)
			}
			return
		}
		r := records[1]
		if warc.Get(r.Extra, "Fetchd-Redacted") == "" && !bytes.HasPrefix(finalOf(received), []byte(r.block)) {
			t.Errorf("block %.200q is no prefix of %.200q", r.block, finalOf(received))
		}
		checkWhole(t, received, e, r)
	})
}

// finalOf returns what follows the interim responses, with another method than the archive has.
func finalOf(received []byte) []byte {
	for {
		lines := bytes.SplitAfter(received, []byte("\n"))
		fields := strings.SplitN(string(bytes.TrimRight(lines[0], "\r\n")), " ", 2)
		if len(fields) != 2 || len(fields[0]) != 8 || !strings.HasPrefix(fields[0], "HTTP/1.") {
			return received
		}
		code, _, _ := strings.Cut(strings.TrimLeft(fields[1], " "), " ")
		if len(code) != 3 || code[0] != '1' || code == "101" || strings.Trim(code, "0123456789") != "" {
			return received
		}
		rest, ended := received, false
		for _, line := range lines {
			rest = rest[len(line):]
			if text := string(line); text == "\n" || text == "\r\n" {
				ended = true
				break
			}
		}
		if !ended || len(received)-len(rest) > archive.MaxHead {
			return received
		}
		received = rest
	}
}

// checkWhole compares with net/http where a response without interim ones ends.
func checkWhole(t *testing.T, received []byte, e archive.Exchange, r found) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(received))
	resp, err := http.ReadResponse(in, nil)
	if err != nil || !e.Whole || r.Type != warc.Response || resp.StatusCode/100 == 1 || warc.Get(r.Extra, "Fetchd-Redacted") != "" {
		return
	}
	if resp.ProtoMajor != 1 || resp.StatusCode < 100 {
		return // net/http reads it, but the fetch ends as N10, and the record is truncated
	}
	chunked := len(resp.TransferEncoding) > 0
	bodyless := resp.StatusCode == 204 || resp.StatusCode == 304
	if chunked != e.Chunked || bodyless != e.Bodyless || !chunked && !bodyless && resp.ContentLength != e.Length {
		return // the engine passes what net/http has found
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return
	}
	rest, err := io.ReadAll(in)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if want := received[:len(received)-len(rest)]; r.Truncated != "" || r.block != string(want) {
		t.Errorf("block %.200q, truncated %q, net/http has read %.200q", r.block, r.Truncated, want)
	}
}
