//go:build linux

package warc

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fetchd/test/must"
	"fetchd/warc"
)

// sample returns a correct file with a warcinfo record, a request and its response.
func sample(t *testing.T, name string) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := warc.NewWriter(&file, warc.WriterOptions{})
	must.Succeed(t, err)
	date := time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC)
	info, err := w.WriteInfo(&warc.Header{Date: date, Filename: name}, []warc.Field{{Name: "software", Value: "test"}})
	must.Succeed(t, err)
	request := warc.Header{Type: warc.Request, ID: warc.NewID(), Date: date, TargetURI: "http://example.com/", IPAddress: netip.MustParseAddr("192.0.2.7"),
		WarcinfoID: info.ID, ContentType: warc.HTTPRequest}
	response := request
	response.Type, response.ID, response.ContentType = warc.Response, warc.NewID(), warc.HTTPResponse
	request.ConcurrentTo, response.ConcurrentTo = []string{response.ID}, []string{request.ID}
	for _, r := range []struct {
		header *warc.Header
		block  string
	}{
		{&request, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"},
		{&response, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
	} {
		if _, err := w.WriteSeeker(r.header, strings.NewReader(r.block), warc.SHA1); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

// member is a member of a gzip file.
type member struct{ text []byte }

// split returns the members of a file.
func split(t *testing.T, file []byte) []member {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(file))
	z, err := gzip.NewReader(in)
	var found []member
	for ; err == nil; err = z.Reset(in) {
		z.Multistream(false)
		text, failed := io.ReadAll(z)
		if failed != nil {
			t.Fatal(failed)
		}
		found = append(found, member{text})
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return found
}

// join writes members to a file.
func join(members []member) []byte {
	var file bytes.Buffer
	for _, m := range members {
		z := gzip.NewWriter(&file)
		_, _ = z.Write(m.text) // a buffer takes everything
		_ = z.Close()
	}
	return file.Bytes()
}
