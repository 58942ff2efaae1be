package archive

import (
	"bytes"
	"path/filepath"
	"sync"

	"fetchd/warc"
)

// Capture takes the bytes of one exchange.
type Capture struct {
	archive *Archive

	mu             sync.Mutex
	ended          bool
	sent, received []byte
}

// Sent adds bytes of the request. It keeps a copy.
func (c *Capture) Sent(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.sent = append(c.sent, p...)
	}
	return nil
}

// Received adds bytes of the response. It keeps a copy.
func (c *Capture) Received(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.received = append(c.received, p...)
	}
	return nil
}

// Discard ends the capture without records. It may be called again.
func (c *Capture) Discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended, c.sent, c.received = true, nil, nil
}

// Commit writes the records of the exchange. They are in the file when it returns. It ends the
// capture.
func (c *Capture) Commit(e Exchange) ([]Record, error) {
	defer c.Discard()
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.archive
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.ended || len(c.sent) == 0 {
		return nil, nil
	}
	request := warc.Header{Type: warc.Request, ID: warc.NewID(), Date: e.Date, TargetURI: warc.EscapeURI(e.URL),
		ContentType: warc.HTTPRequest, IPAddress: e.Address.WithZone("")}
	response := request
	response.Type, response.ID, response.ContentType, response.Truncated = warc.Response, warc.NewID(), warc.HTTPResponse, e.Truncated
	request.ConcurrentTo, response.ConcurrentTo = []string{response.ID}, []string{request.ID}
	if len(c.received) == 0 {
		request.ConcurrentTo = nil
	}
	var records []Record
	for _, r := range []struct {
		header *warc.Header
		block  []byte
	}{{&request, c.sent}, {&response, c.received}} {
		if len(r.block) == 0 {
			break
		}
		d, err := warc.NewDigester(warc.SHA1, true)
		if err != nil {
			return nil, err
		}
		_, _ = d.Write(r.block)
		r.header.BlockDigest, r.header.PayloadDigest = d.Block(), d.Payload()
		at, err := a.writer.WriteRecord(r.header, bytes.NewReader(r.block), int64(len(r.block)))
		if err != nil {
			return nil, &Error{archive: a.name, reason: ReasonError, op: "write file", err: err}
		}
		records = append(records, Record{Type: r.header.Type, ID: r.header.ID, File: filepath.Base(a.file.Name()), Offset: at.Offset,
			Length: at.Length, Date: r.header.Date, PayloadDigest: r.header.PayloadDigest})
	}
	return records, nil
}
