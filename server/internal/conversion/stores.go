package conversion

import (
	"context"
	"net/http"
	"net/netip"
	"regexp"

	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/fetch"
	"fetchd/fetch/urls"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/stores"
	"fetchd/stores/archive"
	"fetchd/warc"
)

// store reads the settings of delivery store. It is called when the other fields are read.
func (c *conversion) store(known *stores.Set) {
	if c.out.Delivery != fetch.Store {
		return
	}
	p := c.in.GetBodyPolicy().GetStore()
	switch {
	case c.out.Method == http.MethodHead:
		c.Add("body_policy.store", "is set with method HEAD, whose response has no body: use GET")
	case c.out.Header.Get("Range") != "":
		c.Add("body_policy.store", "is set together with a header Range: an object is a whole body, leave the header out")
	case c.out.Truncate:
		c.Add("body_policy.oversize_action", "is truncate with delivery store: an object is a whole body, leave it out")
	case c.out.OmitDigest:
		c.Add("body_policy.omit_digest", "is true with delivery store, which needs the digest: leave it out")
	}
	c.out.Recovery = fetch.Restart
	s, _ := known.Get(p.GetStore())
	records, _ := known.Archive(p.GetStore())
	switch {
	case records != nil:
		c.Add("body_policy.store.store", "is %.60q, which is a store for WARC files: give the name of a store for bodies", p.GetStore())
		return
	case p.GetStore() == "":
		c.Add("body_policy.store.store", "is empty: give the name of a store that the operator configured")
		return
	case s == nil:
		c.Add("body_policy.store.store", "is %.60q, which is not configured on this server: give the name of a configured store", p.GetStore())
		return
	}
	if err := s.Check(p.GetKey(), c.out.Integrity.SHA256); err != nil {
		c.Add("body_policy.store.key", "%s", err)
	}
	if most := s.MaxObjectBytes(); c.out.MaxBodyBytes > most {
		if c.in.GetBodyPolicy().MaxSizeBytes != nil {
			c.clamped = append(c.clamped, "body_policy.max_size_bytes")
		}
		c.out.MaxBodyBytes, c.out.SetBy.MaxBodyBytes = most, fetch.ByStore
	}
	c.out.Destination = &destination{s, p.GetKey(), c.out.Integrity.SHA256}
}

// destination is a place in a store, for package fetch.
type destination struct {
	store       *stores.Store
	key, sha256 string
}

// Ready implements [fetch.Destination].
func (d *destination) Ready() error { return d.store.Ready() }

// Begin implements [fetch.Destination].
func (d *destination) Begin(ctx context.Context, o fetch.Object) (fetch.Upload, error) {
	u, err := d.store.Begin(ctx, stores.Object{Key: d.key, SHA256: d.sha256, ContentType: o.ContentType, Size: o.Size, Memory: o.Memory})
	if err != nil {
		return nil, err
	}
	return upload{u}, nil
}

// upload is an upload for package fetch.
type upload struct{ *stores.Upload }

// Commit implements [fetch.Upload].
func (u upload) Commit(sha256 string) (fetch.StoredObject, error) {
	s, err := u.Upload.Commit(sha256)
	return fetch.StoredObject{Key: s.Key, ETag: s.ETag, Version: s.Version}, err
}

// maxRecordID is the maximum length of a record id in bytes. Ours have 45.
const maxRecordID = 256

// record reads the policy for records.
func (c *conversion) record(known *stores.Set) {
	p := c.in.GetRecordPolicy()
	if p == nil {
		return
	}
	to, _ := known.Archive(p.GetStore())
	bodies, _ := known.Get(p.GetStore())
	switch {
	case p.GetStore() == "":
		c.Add("record_policy.store", "is empty: give the name of a store for WARC files that the operator configured")
	case bodies != nil:
		c.Add("record_policy.store", "is %.60q, which is a store for bodies: give the name of a store whose URL starts with warc+", p.GetStore())
	case to == nil:
		c.Add("record_policy.store", "is %.60q, which is not configured on this server: give the name of a configured store", p.GetStore())
	}
	c.out.Recorder = &recorder{to, c.earlierRecord(p.GetEarlier()), urls.WithoutUserinfo(c.out.URL), c.path(p.GetPath())}
}

// path returns the fields of a metadata record, named as Heritrix names them, or none.
func (c *conversion) path(p *pb.CrawlPath) []warc.Field {
	if p == nil {
		return nil
	}
	var fields []warc.Field
	for i, raw := range []string{p.GetVia(), p.GetRequisiteOf()} {
		if raw == "" {
			continue
		}
		u, err := urls.Parse(raw)
		if err != nil {
			c.Add([]string{"record_policy.path.via", "record_policy.path.requisite_of"}[i], "is not an http or https URL of at most 8 KiB without a user name: give the URL of a page, or leave it out")
		}
		fields = append(fields, warc.Field{Name: archive.MetadataURLs[i], Value: warc.EscapeURI(urls.WithoutUserinfo(u))})
	}
	hops := p.GetHopsFromSeed()
	if !hopsPattern.MatchString(hops) {
		c.Add("record_policy.path.hops_from_seed", "is %.80q: give at most 64 letters, digits and +", hops)
	}
	return append(fields, warc.Field{Name: "hopsFromSeed", Value: hops})
}

var hopsPattern = regexp.MustCompile(`^[0-9A-Za-z+]{0,64}$`)

// earlierRecord reads the record that a revisit refers to, or nil.
func (c *conversion) earlierRecord(p *pb.EarlierRecord) *archive.Earlier {
	if p == nil {
		return nil
	}
	e := &archive.Earlier{ID: p.GetRecordId(), URL: p.GetUrl(), Date: p.GetRecordTime().AsTime(), PayloadDigest: warc.Digest(p.GetPayloadDigest())}
	if len(e.ID) > maxRecordID || warc.CheckURI(e.ID) != nil {
		c.Add("record_policy.earlier.record_id", "is not a record id: give record_id of the earlier outcome, such as urn:uuid:…")
	}
	if u, err := urls.Parse(e.URL); err != nil {
		c.Add("record_policy.earlier.url", "%s", err)
	} else {
		e.URL = urls.WithoutUserinfo(u) // as the URLs of hops are written
	}
	if t := p.GetRecordTime(); t == nil || t.CheckValid() != nil {
		c.Add("record_policy.earlier.record_time", "is not a valid time: give record_time of the earlier outcome")
	}
	if _, ok := e.PayloadDigest.Sum(); !ok && e.PayloadDigest != "" {
		c.Add("record_policy.earlier.payload_digest", "is not a SHA-1 or SHA-256: give payload_digest of the earlier outcome, such as sha1:…")
	}
	return e
}

// recorder is an archive for package fetch.
type recorder struct {
	*archive.Archive
	earlier  *archive.Earlier
	url      string // of the request
	metadata []warc.Field
}

// Begin implements [fetch.Recorder].
func (r *recorder) Begin(memory *budget.Lease) fetch.Recording {
	return &recording{r.Archive.Begin(memory), r}
}

// recording is a capture for package fetch.
type recording struct {
	*archive.Capture
	recorder *recorder
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
	var metadata []warc.Field
	if e.URL == r.recorder.url {
		metadata = r.recorder.metadata
	}
	records, err := r.Capture.Commit(archive.Exchange{
		URL: e.URL, Method: e.Method, Date: e.Start, Address: peer.Addr(), Protocol: e.Protocol, TLS: e.TLSVersion,
		Redact: e.Redact, RedactResponse: e.RedactResponse, RequestLength: e.RequestLength, Whole: e.Truncated == fetch.Whole, Length: e.ContentLength, Chunked: e.Chunked, Bodyless: e.Bodyless,
		Truncated: truncations[e.Truncated], Earlier: r.recorder.earlier, Metadata: metadata})
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
