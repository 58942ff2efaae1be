package server_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/stores"
	"fetchd/warc"
)

// withArchives configures the stores pages and others for records, and bodies for bodies. The caller
// of the tests may not use others.
func withArchives(t *testing.T, dir string) func(*server.Config) {
	t.Helper()
	return withStoresOf(t, `  pages: {url: "warc+file://`+dir+`/pages"}
  others: {url: "warc+file://`+dir+`/others", callers: [somebody]}
  bodies: {url: "file://`+dir+`/bodies"}
`)
}

func recorded(in *pb.FetchRequest, store string) *pb.FetchRequest {
	in.RecordPolicy = &pb.RecordPolicy{Store: store}
	return in
}

// TestRecords checks that every method records all exchanges, and that the outcome says where each
// record is.
func TestRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, withArchives(t, dir))
	// Two attempts, the second with a redirect.
	const script = "503:size=100/302:size=200,to=%2Fs%2Fk%2F200:size=300/200:size=300"
	want := []string{
		"request 1 1 GET", "response 1 1 503", "request 2 1 GET", "response 2 1 302", "request 2 2 GET", "response 2 2 200",
	}
	for name, fetch := range methods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			key := strings.ReplaceAll(name, " ", "-")
			o := fetch(r, recorded(r.request("/s/"+key+"/"+strings.ReplaceAll(script, "%2Fk%2F", "%2F"+key+"%2F")), "pages"))
			var got []string
			for _, record := range o.GetRecords() {
				h, block := readRecord(t, filepath.Join(dir, "pages"), record)
				what, _, _ := strings.Cut(string(block), " ")
				if h.Type == warc.Response {
					what = string(block[len("HTTP/1.1 "):len("HTTP/1.1 200")])
				}
				got = append(got, fmt.Sprintf("%s %d %d %s", h.Type, record.GetAttempt(), record.GetHop(), what))
				if string(h.PayloadDigest) != record.GetPayloadDigest() || !h.Date.Equal(record.GetRecordTime().AsTime()) {
					t.Errorf("%v, but the record has %+v", record, h)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// readRecord reads the record that an outcome names, and checks its identifier.
func readRecord(t *testing.T, dir string, at *pb.WarcRecord) (*warc.Header, []byte) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, at.GetFile()+".open"))
	if err != nil {
		content, err = os.ReadFile(filepath.Join(dir, at.GetFile()))
	}
	must(t, err)
	record, err := warc.NewReader(bytes.NewReader(content[at.GetOffsetBytes():][:at.GetLengthBytes()]), warc.ReaderOptions{}).Next()
	must(t, err)
	block := new(bytes.Buffer)
	_, err = block.ReadFrom(record.Block)
	must(t, err)
	if record.Header.ID != at.GetRecordId() {
		t.Errorf("record %s at %d, want %s", record.Header.ID, at.GetOffsetBytes(), at.GetRecordId())
	}
	return &record.Header, block.Bytes()
}

// TestRevisits checks that a request that names an earlier record gets a revisit: for an equal
// payload and for a 304, and for no other response.
func TestRevisits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, withArchives(t, dir))
	const page = "200:size=500,etag=%22v1%22"
	first := r.mustFetch(recorded(r.request("/s/k/"+page+"/"+page+"/200:size=501/304"), "pages")).outcome
	base := first.GetRecords()[1]
	earlier := &pb.EarlierRecord{RecordId: base.GetRecordId(), Url: first.GetFinalUrl(), RecordTime: base.GetRecordTime(), PayloadDigest: base.GetPayloadDigest()}
	for _, row := range []struct {
		name    string
		want    pb.WarcType
		profile string
	}{
		{"equal", pb.WarcType_WARC_TYPE_REVISIT, warc.IdenticalPayloadDigest},
		{"changed", pb.WarcType_WARC_TYPE_RESPONSE, ""},
		{"304", pb.WarcType_WARC_TYPE_REVISIT, warc.ServerNotModified},
	} {
		in := recorded(r.request("/s/k/"+page+"/"+page+"/200:size=501/304"), "pages")
		in.RecordPolicy.Earlier = earlier
		if row.name == "304" {
			in.Precondition = &pb.Precondition{Etags: []string{`"v1"`}}
		}
		got := r.mustFetch(in).outcome.GetRecords()[1]
		h, block := readRecord(t, filepath.Join(dir, "pages"), got)
		if got.GetType() != row.want || h.Profile != row.profile {
			t.Errorf("%s: %s with profile %q, want %s with %q", row.name, got.GetType(), h.Profile, row.want, row.profile)
		}
		if row.profile != "" && (h.RefersTo != base.GetRecordId() || h.RefersToTargetURI != earlier.GetUrl() ||
			!h.RefersToDate.Equal(base.GetRecordTime().AsTime()) || !bytes.HasSuffix(block, []byte("\r\n\r\n"))) {
			t.Errorf("%s: %+v with %q", row.name, h, block)
		}
	}
}

// TestRecordPath checks that the response of the URL has a metadata record, and that of another hop has none.
func TestRecordPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, withArchives(t, dir))
	in := recorded(r.request("/r/k/302/1/200:size=10"), "pages")
	in.RecordPolicy.Path = &pb.CrawlPath{Via: "http://a.example/p?q#f", HopsFromSeed: "L", RequisiteOf: "http://a.example/ü"}
	out := r.mustFetch(in).outcome
	records := out.GetRecords()
	if len(records) != 4 {
		t.Fatalf("%d records in the outcome, want 4", len(records))
	}
	content, err := os.ReadFile(filepath.Join(dir, "pages", records[0].GetFile()+".open"))
	must(t, err)
	var got []string
	for all := warc.NewReader(bytes.NewReader(content), warc.ReaderOptions{}); ; {
		rec, err := all.Next()
		if err != nil {
			break
		}
		if rec.Type == warc.Metadata {
			fields, err := warc.ParseFields(rec.Block, warc.Limits{})
			must(t, err)
			got = append(got, fmt.Sprint(rec.ConcurrentTo, fields))
		}
	}
	want := fmt.Sprint([]string{records[1].GetRecordId()}, []warc.Field{{Name: "via", Value: "http://a.example/p?q#f"},
		{Name: "requisiteOf", Value: "http://a.example/%C3%BC"}, {Name: "hopsFromSeed", Value: "L"}})
	if len(got) != 1 || got[0] != want {
		t.Errorf("metadata %q, want %q", got, want)
	}
}

// TestRecordsRefused checks what is rejected before a request is made.
func TestRecordsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, withArchives(t, t.TempDir()))
	good := &pb.EarlierRecord{RecordId: "urn:uuid:94f48e09-cf6d-4181-bc4c-0abf926de179", Url: "http://a.example/", RecordTime: timestamppb.Now(),
		PayloadDigest: "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"}
	for _, row := range []struct {
		name   string
		change func(*pb.FetchRequest, *pb.EarlierRecord)
		code   codes.Code
		want   string
	}{
		{"no store", func(in *pb.FetchRequest, _ *pb.EarlierRecord) { in.RecordPolicy.Store = "" }, codes.InvalidArgument, "record_policy.store is empty"},
		{"unknown", func(in *pb.FetchRequest, _ *pb.EarlierRecord) { in.RecordPolicy.Store = "x" }, codes.InvalidArgument, "not configured"},
		{"a store for bodies", func(in *pb.FetchRequest, _ *pb.EarlierRecord) { in.RecordPolicy.Store = "bodies" }, codes.InvalidArgument, "store for bodies"},
		{"of other callers", func(in *pb.FetchRequest, _ *pb.EarlierRecord) { in.RecordPolicy.Store = "others" }, codes.PermissionDenied, `"others"`},
		{"a body into it", func(in *pb.FetchRequest, _ *pb.EarlierRecord) { toStore(in, "pages", "k") }, codes.InvalidArgument, "store for WARC files"},
		{"no id", func(_ *pb.FetchRequest, e *pb.EarlierRecord) { e.RecordId = "" }, codes.InvalidArgument, "record_policy.earlier.record_id"},
		{"an id with a line", func(_ *pb.FetchRequest, e *pb.EarlierRecord) { e.RecordId = "urn:a\r\nb: c" }, codes.InvalidArgument, "record_policy.earlier.record_id"},
		{"a long id", func(_ *pb.FetchRequest, e *pb.EarlierRecord) { e.RecordId = "urn:" + strings.Repeat("a", 300) }, codes.InvalidArgument, "record_policy.earlier.record_id"},
		{"no url", func(_ *pb.FetchRequest, e *pb.EarlierRecord) { e.Url = "" }, codes.InvalidArgument, "record_policy.earlier.url"},
		{"no time", func(_ *pb.FetchRequest, e *pb.EarlierRecord) { e.RecordTime = nil }, codes.InvalidArgument, "record_policy.earlier.record_time"},
		{"no digest", func(_ *pb.FetchRequest, e *pb.EarlierRecord) { e.PayloadDigest = "sha1:x\r\n" }, codes.InvalidArgument, "record_policy.earlier.payload_digest"},
		{"a via with a password", func(in *pb.FetchRequest, _ *pb.EarlierRecord) {
			in.RecordPolicy.Path = &pb.CrawlPath{Via: "http://jo:secret@a.example/"}
		}, codes.InvalidArgument, "record_policy.path.via"},
		{"a via that is no URL", func(in *pb.FetchRequest, _ *pb.EarlierRecord) {
			in.RecordPolicy.Path = &pb.CrawlPath{Via: "a\r\nb: c"}
		}, codes.InvalidArgument, "record_policy.path.via"},
		{"a page that is no URL", func(in *pb.FetchRequest, _ *pb.EarlierRecord) {
			in.RecordPolicy.Path = &pb.CrawlPath{RequisiteOf: "mailto:a@b"}
		}, codes.InvalidArgument, "record_policy.path.requisite_of"},
		{"hops with a line", func(in *pb.FetchRequest, _ *pb.EarlierRecord) {
			in.RecordPolicy.Path = &pb.CrawlPath{HopsFromSeed: "L\n"}
		}, codes.InvalidArgument, "record_policy.path.hops_from_seed"},
	} {
		e := proto.CloneOf(good)
		in := recorded(r.request("/s/refused/200"), "pages")
		in.RecordPolicy.Earlier = e
		row.change(in, e)
		_, err := r.Client.FetchUnary(t.Context(), in)
		if got := fmt.Sprint(err); status.Code(err) != row.code || !strings.Contains(got, row.want) {
			t.Errorf("%s: %s, want %s with %q", row.name, got, row.code, row.want)
		}
	}
	if n := len(r.Origin.Requests("refused")); n > 0 {
		t.Errorf("the origin got %d requests", n)
	}
}

// TestRecordMetrics checks the series of a store for records.
func TestRecordMetrics(t *testing.T) {
	t.Parallel()
	o := newObserved(t, withArchives(t, t.TempDir()))
	o.mustUnary(recorded(o.request("/s/k/200:size=10"), "pages"))
	o.want(map[string]float64{
		`fetchd_archive_up{store="pages"}`: 1, `fetchd_archive_up{store="others"}`: 1,
		`fetchd_archive_records_total{store="pages",type="request"}`: 1, `fetchd_archive_records_total{store="pages",type="response"}`: 1,
		`fetchd_archive_records_total{store="pages",type="revisit"}`: 0, `fetchd_archive_records_total{store="others",type="request"}`: 0,
		`fetchd_archive_errors_total{store="pages"}`: 0, `fetchd_archive_spool_bytes{store="pages"}`: 0, `fetchd_archive_files_open{store="pages"}`: 1,
		`fetchd_archive_files_waiting{store="pages"}`: 0, `fetchd_archive_waiting_bytes{store="pages"}`: 0,
		`fetchd_archive_oldest_waiting_seconds{store="pages"}`: 0,
	})
	if n := o.series()[`fetchd_archive_bytes_total{store="pages"}`]; n < 100 || n > 10_000 {
		t.Errorf("%v bytes of two records", n)
	}
}

// withStoresOf configures the stores of a settings file.
func withStoresOf(t *testing.T, text string) func(*server.Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stores.yaml")
	must(t, os.WriteFile(file, []byte("stores:\n"+text), 0o600))
	set, err := stores.ReadFile(file, new(stores.Set))
	must(t, err)
	t.Cleanup(func() { must(t, set.Close(t.Context())) })
	return func(c *server.Config) { c.Stores = set }
}

// withStores configures the stores open, small and others in dir. The caller of the tests may not
// use others.
func withStores(t *testing.T, dir string) func(*server.Config) {
	t.Helper()
	return withStoresOf(t, `  open: {url: "file://`+dir+`/open", prefix: p}
  small: {url: "file://`+dir+`/small", max-object-bytes: 1000}
  others: {url: "file://`+dir+`/others", callers: [somebody]}
  bucket: {url: "s3://bucket?region=eu-central-1&endpoint=http://127.0.0.1:1", access-key-id: a, secret-access-key: b}
`)
}

func toStore(in *pb.FetchRequest, store, key string) *pb.FetchRequest {
	in.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: store, Key: key}}}
	return in
}

// TestStore checks that every method stores a body and says where it is.
func TestStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, withStores(t, dir))
	const size = 3 << 20
	want := r.Origin.Body(size)
	check := func(t *testing.T, key string, o *pb.FetchOutcome) {
		t.Helper()
		digest := o.GetBodySummary().GetSha256()
		got := &pb.StoredObject{Store: "open", Key: strings.ReplaceAll(key, "DIGEST", digest[:2]+"/"+digest), SizeBytes: size, Sha256: digest}
		if !proto.Equal(o.GetStoredObject(), got) {
			t.Errorf("stored %v, want %v", o.GetStoredObject(), got)
		}
		file, err := os.ReadFile(filepath.Join(dir, "open", "p", filepath.FromSlash(got.GetKey())))
		if err != nil || !bytes.Equal(file, want) {
			t.Errorf("the file has %d bytes (%v), want the %d of the origin", len(file), err, len(want))
		}
	}
	path := "/s/k/200:size=3145728"
	for name, fetch := range methods {
		t.Run(name, func(t *testing.T) {
			r, key := r.in(t), strings.ReplaceAll(name, " ", "-")
			check(t, key, fetch(r, toStore(r.request(path), "open", key)))
		})
	}
	t.Run("without a key", func(t *testing.T) {
		r := r.in(t)
		a := r.mustFetch(toStore(r.request(path), "open", ""))
		check(t, "sha256/DIGEST", a.outcome)
		if len(a.body) > 0 {
			t.Errorf("%d bytes came in chunks too", len(a.body))
		}
		p := r.mustUnary(toStore(r.request(path), "open", "a/b")).GetEffectiveRequest().GetBodyPolicy().GetStore()
		if p.GetStore() != "open" || p.GetKey() != "a/b" {
			t.Errorf("effective policy %v", p)
		}
	})
	t.Run("too large for the store", func(t *testing.T) {
		r := r.in(t)
		in := toStore(r.request(path), "small", "k")
		in.BodyPolicy.MaxSizeBytes = new(int64(5000))
		m := r.mustUnary(in)
		wantClass(t, m.GetOutcome(), pb.ErrorClass_ERROR_CLASS_BODY_TOO_LARGE, pb.StopReason_STOP_REASON_NOT_RETRIED, 1)
		if text := m.GetOutcome().GetError().GetMessage(); !strings.Contains(text, "1000 bytes that the store takes") {
			t.Errorf("message %q", text)
		}
		if !slices.Equal(m.GetClampedFields(), []string{"body_policy.max_size_bytes"}) || m.GetEffectiveRequest().GetBodyPolicy().GetMaxSizeBytes() != 1000 {
			t.Errorf("clamped %q, effective %v", m.GetClampedFields(), m.GetEffectiveRequest().GetBodyPolicy())
		}
	})
	t.Run("of others", func(t *testing.T) {
		r := r.in(t)
		_, err := r.Client.FetchUnary(t.Context(), toStore(r.request(path), "others", "k"))
		wantCode(t, "a store of others", err, codes.PermissionDenied)
	})
	t.Run("over raw", func(t *testing.T) {
		r := r.in(t)
		resp := r.rawCall(t.Context(), "GET", path, sets("Fetchd-Request", `{"body_policy":{"store":{"store":"open"}}}`))
		r.wantStatus(resp, 400, codes.InvalidArgument, "body_policy.store")
	})
}

// TestStoreRefuses checks what cannot be stored, and that the error names the field.
func TestStoreRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, withStores(t, t.TempDir()))
	policy := func(change func(*pb.BodyPolicy)) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) { change(in.BodyPolicy) }
	}
	for _, row := range []struct {
		name, store, key string
		change           func(*pb.FetchRequest)
		want             string // the field
	}{
		{"no store", "", "k", nil, "body_policy.store.store"},
		{"an unknown store", "nobody", "k", nil, "body_policy.store.store"},
		{"a key that leaves the prefix", "open", "../k", nil, "body_policy.store.key"},
		{"a bucket without a key", "bucket", "", nil, "body_policy.store.key"},
		{"HEAD", "open", "k", func(in *pb.FetchRequest) { in.Method = "HEAD" }, "body_policy.store"},
		{"a part", "open", "k", func(in *pb.FetchRequest) { in.Headers = []*pb.Header{{Name: "Range", Value: "bytes=0-9"}} }, "body_policy.store"},
		{"truncated", "open", "k", policy(func(p *pb.BodyPolicy) { p.OversizeAction = pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE }), "body_policy.oversize_action"},
		{"without a digest", "open", "k", policy(func(p *pb.BodyPolicy) { p.OmitDigest = true }), "body_policy.omit_digest"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := toStore(r.request("/s/refused/200"), row.store, row.key)
			if row.change != nil {
				row.change(in)
			}
			_, err := r.Client.FetchUnary(t.Context(), in)
			wantViolations(t, err, []string{row.want})
		})
	}
	t.Run("a bucket with the digest", func(t *testing.T) {
		r := r.in(t)
		in := toStore(r.request("/s/k/404"), "bucket", "")
		in.Integrity = &pb.Integrity{Sha256: strings.Repeat("a", 64)}
		r.mustUnary(in)
	})
	r.wantRequests("refused", 0)
}
