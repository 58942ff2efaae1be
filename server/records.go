package server

import (
	"net/netip"

	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/fetch"
	"fetchd/fetch/urls"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/stores"
	"fetchd/stores/archive"
	"fetchd/warc"
)

// maxRecordID is the maximum length of a record id in bytes. Ours have 45.
const maxRecordID = 256

// record reads the policy for records.
func (c *conversion) record(known *stores.Set) {
	p := c.in.GetRecord()
	if p == nil {
		return
	}
	to, _ := known.Archive(p.GetStore())
	bodies, _ := known.Get(p.GetStore())
	switch {
	case p.GetStore() == "":
		c.Add("record.store", "is empty: give the name of a store for WARC files that the operator configured")
	case bodies != nil:
		c.Add("record.store", "is %.60q, which is a store for bodies: give the name of a store whose URL starts with warc+", p.GetStore())
	case to == nil:
		c.Add("record.store", "is %.60q, which is not configured on this server: give the name of a configured store", p.GetStore())
	}
	c.out.Recorder = &recorder{to, c.earlierRecord(p.GetEarlier())}
}

// earlierRecord reads the record that a revisit refers to, or nil.
func (c *conversion) earlierRecord(p *pb.EarlierRecord) *archive.Earlier {
	if p == nil {
		return nil
	}
	e := &archive.Earlier{ID: p.GetRecordId(), URL: p.GetUrl(), Date: p.GetRecordTime().AsTime(), PayloadDigest: warc.Digest(p.GetPayloadDigest())}
	if len(e.ID) > maxRecordID || warc.CheckURI(e.ID) != nil {
		c.Add("record.earlier.record_id", "is not a record id: give record_id of the earlier outcome, such as urn:uuid:…")
	}
	if u, err := urls.Parse(e.URL); err != nil {
		c.Add("record.earlier.url", "%s", err)
	} else {
		e.URL = urls.WithoutUserinfo(u) // as the URLs of hops are written
	}
	if t := p.GetRecordTime(); t == nil || t.CheckValid() != nil {
		c.Add("record.earlier.record_time", "is not a valid time: give record_time of the earlier outcome")
	}
	if _, ok := e.PayloadDigest.Sum(); !ok && e.PayloadDigest != "" {
		c.Add("record.earlier.payload_digest", "is not a SHA-1 or SHA-256: give payload_digest of the earlier outcome, such as sha1:…")
	}
	return e
}

// recorder is an archive for package fetch.
type recorder struct {
	*archive.Archive
	earlier *archive.Earlier
}

// Begin implements [fetch.Recorder].
func (r *recorder) Begin(memory *budget.Lease) fetch.Recording {
	return &recording{r.Archive.Begin(memory), r.earlier}
}

// recording is a capture for package fetch.
type recording struct {
	*archive.Capture
	earlier *archive.Earlier
}

var truncations = map[fetch.Truncation]warc.Truncated{
	fetch.TooLong:      warc.TruncatedLength,
	fetch.TookTooLong:  warc.TruncatedTime,
	fetch.Disconnected: warc.TruncatedDisconnect,
	fetch.Stopped:      warc.TruncatedUnspecified,
}

// Commit implements [fetch.Recording].
func (r *recording) Commit(e *fetch.RecordedExchange) ([]fetch.Record, error) {
	peer, _ := netip.ParseAddrPort(e.RemoteAddress) // empty if it is not known
	records, err := r.Capture.Commit(archive.Exchange{
		URL: e.URL, Method: e.Method, Date: e.Start, Address: peer.Addr(), Protocol: e.Protocol, TLS: e.TLSVersion,
		Redact: e.Redact, RequestLength: e.RequestLength, Whole: e.Truncated == fetch.Whole, Length: e.ContentLength, Chunked: e.Chunked, Bodyless: e.Bodyless,
		Truncated: truncations[e.Truncated], Earlier: r.earlier})
	out := make([]fetch.Record, len(records))
	for i, record := range records {
		out[i] = fetch.Record{Type: recordTypes[record.Type], ID: record.ID, File: record.File, Offset: record.Offset, Length: record.Length,
			Time: record.Date, PayloadDigest: string(record.PayloadDigest)}
	}
	return out, err
}

var recordTypes = map[warc.Type]fetch.RecordType{
	warc.Request:  fetch.RecordedRequest,
	warc.Response: fetch.RecordedResponse,
	warc.Revisit:  fetch.RecordedRevisit,
}

// records converts where records are.
func records(in []fetch.Record) []*pb.WarcRecord {
	if len(in) == 0 {
		return nil
	}
	type messages struct {
		record pb.WarcRecord
		time   timestamppb.Timestamp
	}
	all, out := make([]messages, len(in)), make([]*pb.WarcRecord, len(in))
	for i, r := range in {
		m := &all[i]
		m.time.Seconds, m.time.Nanos = r.Time.Unix(), int32(r.Time.Nanosecond())
		m.record.Type, m.record.RecordId, m.record.File = pb.WarcType(r.Type), r.ID, r.File
		m.record.OffsetBytes, m.record.LengthBytes = r.Offset, r.Length
		m.record.Attempt, m.record.Hop = int32(r.Attempt), int32(r.Hop)
		m.record.RecordTime, m.record.PayloadDigest = &m.time, r.PayloadDigest
		out[i] = &m.record
	}
	return out
}
