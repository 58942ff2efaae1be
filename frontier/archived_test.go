package frontier

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

const (
	requestType  = pb.WarcType_WARC_TYPE_REQUEST
	responseType = pb.WarcType_WARC_TYPE_RESPONSE
	revisitType  = pb.WarcType_WARC_TYPE_REVISIT
)

var (
	recordedAt = time.Date(2026, 1, 2, 3, 4, 5, 123_456_789, time.UTC)
	earlierOne = store.Earlier{RecordID: "urn:1", URL: "http://a.test/z", Date: "2026-01-02T03:04:05.123456789Z", PayloadDigest: "sha1:A"}
)

// TestRecordRequests checks what the request for a page says about records, and that it is
// conditional only if the payload is in a record.
func TestRecordRequests(t *testing.T) {
	t.Parallel()
	asked := &pb.EarlierRecord{RecordId: "urn:1", Url: "http://a.test/z", RecordTime: timestamppb.New(recordedAt), PayloadDigest: "sha1:A"}
	change := func(f func(e *store.Earlier)) store.Earlier {
		e := earlierOne
		f(&e)
		return e
	}
	for _, row := range []struct {
		name        string
		store       string
		bodies      Bodies
		earlier     store.Earlier
		want        *pb.RecordPolicy
		conditional bool
	}{
		{"no record is wanted", "", nil, earlierOne, nil, true},
		{"the first fetch", "crawl", nil, store.Earlier{}, &pb.RecordPolicy{Store: "crawl"}, false},
		{"an earlier record", "crawl", nil, earlierOne, &pb.RecordPolicy{Store: "crawl", Earlier: asked}, true},
		{"an earlier record, and no body was kept", "crawl", new(shelf), earlierOne, &pb.RecordPolicy{Store: "crawl", Earlier: asked}, false},
		{"a record of another host", "crawl", nil, change(func(e *store.Earlier) { e.URL = "http://b.test/z" }), &pb.RecordPolicy{Store: "crawl"}, false},
		{"a record of another scheme", "crawl", nil, change(func(e *store.Earlier) { e.URL = "https://a.test/z" }), &pb.RecordPolicy{Store: "crawl"}, false},
		{"a record without a date", "crawl", nil, change(func(e *store.Earlier) { e.Date = "yesterday" }), &pb.RecordPolicy{Store: "crawl"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c, err := Config{RecordStore: row.store, Bodies: row.bodies, Policy: DefaultPolicy()}.withDefaults()
			must(t, err)
			page := c.pageRequest("http://a.test/", 3, store.Claim{ETag: `"1"`}, row.earlier)
			robots := c.robotsRequest("http://a.test/robots.txt", 3, row.earlier)
			if !proto.Equal(page.GetRecordPolicy(), row.want) || !proto.Equal(robots.GetRecordPolicy(), row.want) {
				t.Errorf("page %v, robots.txt %v, want %v", page.GetRecordPolicy(), robots.GetRecordPolicy(), row.want)
			}
			if got := page.GetPrecondition() != nil; got != row.conditional {
				t.Errorf("conditional: %v, want %v", got, row.conditional)
			}
		})
	}
}

// TestCrawlPath checks what is recorded about the way to a URL.
func TestCrawlPath(t *testing.T) {
	t.Parallel()
	urls := map[int64]string{1: "http://a.test/page", 2: "http://a.test/style"}
	for _, row := range []struct {
		name  string
		claim store.Claim
		url   string
		want  *pb.CrawlPath
	}{
		{"the start", store.Claim{}, "http://a.test/", &pb.CrawlPath{}},
		{"a link", store.Claim{Depth: 2, Parent: 1}, "http://a.test/", &pb.CrawlPath{HopsFromSeed: "LL", Via: urls[1]}},
		{"a link that was a requisite", store.Claim{Depth: 1, Parent: 1, Need: store.Need{PageID: 1, Hops: 1}}, "http://a.test/", &pb.CrawlPath{HopsFromSeed: "L", Via: urls[1], RequisiteOf: urls[1]}},
		{"an image of a style sheet", store.Claim{Kind: store.Asset, Depth: 1, Parent: 2, Need: store.Need{PageID: 1, Hops: 2}}, "http://a.test/",
			&pb.CrawlPath{HopsFromSeed: "LEE", Via: urls[2], RequisiteOf: urls[1]}},
		{"the page was deleted", store.Claim{Depth: 1, Parent: 9}, "http://a.test/", &pb.CrawlPath{HopsFromSeed: "L"}},
		{"a redirect after many links", store.Claim{Depth: 1_000_000, Parent: 1}, "http://b.test/", &pb.CrawlPath{HopsFromSeed: "999950+" + strings.Repeat("L", 50) + "R", Via: "http://a.test/"}},
	} {
		row.claim.URL = "http://a.test/"
		if got := crawlPath(&row.claim, urls, row.url); !proto.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestEarlierRecord checks which record a fetch leaves for the next one.
func TestEarlierRecord(t *testing.T) {
	t.Parallel()
	rec := func(attempt, hop int32, kind pb.WarcType, id string) *pb.WarcRecord {
		return &pb.WarcRecord{Type: kind, RecordId: id, File: "f", OffsetBytes: 5, LengthBytes: 7, Attempt: attempt, Hop: hop,
			RecordTime: timestamppb.New(recordedAt), PayloadDigest: "sha1:A"}
	}
	made := func(records ...*pb.WarcRecord) *pb.FetchOutcome {
		last := records[len(records)-1].GetAttempt()
		return &pb.FetchOutcome{Records: records, AttemptCount: last, ResponseAttempt: last, Hops: []*pb.Hop{{Url: "http://a.test/"}, {Url: "http://a.test/z"}}}
	}
	before := store.Earlier{RecordID: "urn:0", URL: "http://a.test/0"}
	continued := made(rec(1, 1, requestType, "urn:r"), rec(1, 1, responseType, "urn:1"), rec(2, 1, requestType, "urn:s"), rec(2, 1, responseType, "urn:2"))
	continued.ResponseAttempt = 1
	truncated := made(rec(1, 1, requestType, "urn:r"), rec(1, 1, responseType, "urn:1"))
	truncated.BodySummary = &pb.BodySummary{Truncated: true}
	failed := made(rec(1, 1, requestType, "urn:r"), rec(1, 1, responseType, "urn:1"), rec(2, 1, requestType, "urn:s"))
	none := made(rec(1, 1, requestType, "urn:r"))
	none.ResponseAttempt = 0
	for _, row := range []struct {
		name     string
		outcome  *pb.FetchOutcome
		archived string // id of the record of the outcome
		want     store.Earlier
	}{
		{"no record", new(pb.FetchOutcome), "", store.Earlier{}},
		{"a response", made(rec(1, 1, requestType, "urn:r"), rec(1, 1, responseType, "urn:1")), "urn:1", earlierOne},
		{"a response after a redirect", made(rec(1, 1, responseType, "urn:0"), rec(1, 2, requestType, "urn:r"), rec(1, 2, responseType, "urn:1")), "urn:1", earlierOne},
		{"a response after a retry", made(rec(1, 1, responseType, "urn:0"), rec(2, 1, requestType, "urn:r"), rec(2, 1, responseType, "urn:1")), "urn:1", earlierOne},
		{"a revisit", made(rec(1, 1, requestType, "urn:r"), rec(1, 1, revisitType, "urn:1")), "urn:1", before},
		{"a response that was continued", continued, "urn:1", store.Earlier{}},
		{"a truncated response", truncated, "urn:1", store.Earlier{}},
		{"no response in the last attempt", failed, "", store.Earlier{}},
		{"no response at all", none, "", store.Earlier{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := earlierOf(row.outcome, before); got != row.want {
				t.Errorf("earlierOf = %+v, want %+v", got, row.want)
			}
			want := store.Archived{File: "f", Offset: 5, Length: 7, RecordID: row.archived, Date: earlierOne.Date, PayloadDigest: "sha1:A"}
			if row.archived == "" {
				want = store.Archived{}
			}
			if got := archivedOf(row.outcome); got != want {
				t.Errorf("archivedOf = %+v, want %+v", got, want)
			}
		})
	}
}

// TestCannotRecord checks that a fetch that could not be recorded is no failure of its URL, delays
// claims, and is logged once for all fetches in flight.
func TestCannotRecord(t *testing.T) {
	t.Parallel()
	fault := func(class pb.ErrorClass, text string) *pb.FetchOutcome {
		return &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED, Error: &pb.FetchError{ErrorClass: class, Reason: "store_full", Message: text, Retryable: true}}
	}
	full := fault(pb.ErrorClass_ERROR_CLASS_STORE_FAILURE, "the disk is full")
	for _, row := range []struct {
		name    string
		robots  bool
		outcome *pb.FetchOutcome
		log     string
	}{
		{"the archive is full", false, full, "store_full: the disk is full"},
		{"the archive is full for robots.txt", true, full, "store_full: the disk is full"},
		{"the store is gone", false, fault(pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST, `request.record_policy.store: is "crawl", which is not configured on this server`), "which is not configured"},
		{"the store is for others", false, fault(pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST, `this caller may not use the store "crawl"`), "this caller may not"},
		{"a service that is too old", false, page(""), "has fetched and not recorded it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			const hosts = 10
			var failed atomic.Int32
			s := &script{many: func(_ int, s manyStream) error {
				return answerAll(s, func(r *pb.FetchRequest) *pb.FetchOutcome {
					if failed.Add(1) <= hosts {
						return row.outcome
					}
					o := page(r.GetUrl())
					o.ResponseAttempt = 1
					o.Records = []*pb.WarcRecord{{Type: responseType, RecordId: "urn:1", File: "f", OffsetBytes: 5, Attempt: 1, Hop: 1, RecordTime: timestamppb.New(recordedAt)}}
					return o
				})
			}}
			var urls []string
			for n := range hosts {
				urls = append(urls, fmt.Sprintf("http://h%d.test/", n))
			}
			db := openStore(t, filepath.Join(t.TempDir(), "frontier.db"), time.Millisecond)
			if _, err := db.Put(t.Context(), store.Entries(urls...), store.Limits{}); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			var got []Record
			w, err := New(db, []Service{s.start(t, "script")}, Config{RecordStore: "crawl", Policy: DefaultPolicy(), IgnoreRobots: !row.robots,
				Logger: slog.New(slog.NewTextHandler(&log, nil)), Recorded: func(r Record) error { got = append(got, r); return nil }})
			must(t, err)
			must(t, w.Run(t.Context()))
			if len(got) != hosts || w.Stats().Errors != hosts {
				t.Errorf("%d outcomes, %+v; want %d after as many errors", len(got), w.Stats(), hosts)
			}
			for _, r := range got {
				if r.Status != string(store.Fetched) || r.WARCRecordID != "urn:1" || r.WARCFile != "f" || r.WARCOffset != 5 {
					t.Errorf("%+v, want it fetched, with its record", r)
				}
			}
			for _, url := range urls {
				if e, err := db.Why(t.Context(), url); err != nil || e.URL.FailureCount != 0 || e.URL.CrashCount != 0 {
					t.Errorf("%+v, %v; want no failure", e.URL, err)
				}
			}
			if text := log.String(); strings.Count(text, "cannot write WARC records") != 1 || !strings.Contains(text, row.log) {
				t.Errorf("log %q, want one line with %q", text, row.log)
			}
		})
	}
}
