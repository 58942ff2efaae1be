package warc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"fetchd/warc"
)

// Write a request and its response, and read them back.
func Example() {
	var file bytes.Buffer // in practice, an *os.File
	w, err := warc.NewWriter(&file, warc.WriterOptions{})
	if err != nil {
		panic(err)
	}
	start := time.Date(2026, 11, 23, 4, 5, 6, 789e6, time.UTC)
	info, err := w.WriteInfo(&warc.Header{Date: start, Filename: "example.warc.gz"}, []warc.Field{
		{Name: "software", Value: "example/1.0"},
		{Name: "format", Value: "WARC File Format 1.1"},
	})
	if err != nil {
		panic(err)
	}

	request := warc.Header{
		Type:        warc.Request,
		ID:          warc.NewID(),
		Date:        start,
		TargetURI:   warc.EscapeURI("http://example.com/a b"),
		IPAddress:   netip.MustParseAddr("192.0.2.7"),
		WarcinfoID:  info.ID,
		ContentType: warc.HTTPRequest,
	}
	response := request
	response.Type, response.ID, response.ContentType = warc.Response, warc.NewID(), warc.HTTPResponse
	request.ConcurrentTo = []string{response.ID}
	response.ConcurrentTo = []string{request.ID}
	if _, err := w.WriteSeeker(&response, strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), warc.SHA1); err != nil {
		panic(err)
	}
	if _, err := w.WriteSeeker(&request, strings.NewReader("GET /a%20b HTTP/1.1\r\nHost: example.com\r\n\r\n"), warc.SHA1); err != nil {
		panic(err)
	}

	r := warc.NewReader(&file, warc.ReaderOptions{Verify: true})
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(err)
		}
		if err := rec.Finish(); err != nil {
			panic(err)
		}
		fmt.Printf("%s %q: %d bytes, payload %v\n", rec.Type, rec.TargetURI, rec.ContentLength, rec.PayloadVerdict)
	}
	// Output:
	// warcinfo "": 53 bytes, payload not checked
	// response "http://example.com/a%20b": 43 bytes, payload matches
	// request "http://example.com/a%20b": 42 bytes, payload matches
}

// Compute the digests while the block is spooled, so that it is read only once more.
func ExampleDigester() {
	body := io.LimitReader(strings.NewReader("HTTP/1.1 200 OK\r\n\r\nhello"), 1<<20)
	var spool bytes.Buffer // in practice, a temporary file
	digester, err := warc.NewDigester(warc.SHA256, true)
	if err != nil {
		panic(err)
	}
	if _, err := io.Copy(io.MultiWriter(&spool, digester), body); err != nil {
		panic(err)
	}
	w, err := warc.NewWriter(io.Discard, warc.WriterOptions{Plain: true})
	if err != nil {
		panic(err)
	}
	_, err = w.WriteRecord(&warc.Header{
		Type:          warc.Response,
		Date:          time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC),
		TargetURI:     "http://example.com/",
		BlockDigest:   digester.Block(),
		PayloadDigest: digester.Payload(),
		ContentType:   warc.HTTPResponse,
	}, &spool, digester.Length())
	fmt.Println(digester.Payload(), err)
	// Output: sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 <nil>
}

// Recover a file that a crash has truncated inside a record: truncate it to the offset of the error.
func ExampleError() {
	const head = "WARC/1.1\r\nWARC-Type: metadata\r\nWARC-Record-ID: <urn:example:1>\r\nWARC-Date: 2026-11-23T04:05:06Z\r\n"
	file := head + "Content-Length: 5\r\n\r\nhello\r\n\r\n" + head + "Content-Length: 5\r\n\r\nhel"
	r := warc.NewReader(strings.NewReader(file), warc.ReaderOptions{})
	for {
		rec, err := r.Next()
		if err == nil {
			err = rec.Finish() // the record is whole if this is nil
		}
		if failure, ok := errors.AsType[*warc.Error](err); ok {
			fmt.Println("inside a record:", errors.Is(err, io.ErrUnexpectedEOF), "truncate to", failure.Offset, "of", len(file))
			return
		}
		if err != nil {
			fmt.Println("the file is whole")
			return
		}
	}
	// Output: inside a record: true truncate to 127 of 248
}
