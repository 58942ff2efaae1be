package frontier

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/robots"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// schedulers are words that only fields about the time of a fetch would contain.
var schedulers = []string{"abort", "budget", "claim", "crash", "crawl", "crawler", "delay", "depth", "domain", "due", "frontier",
	"host", "hosts", "interval", "lease", "polite", "politeness", "priority", "qps", "queue", "rank", "rate", "robots", "schedule",
	"scheduled", "scheduler", "shard", "slot", "weight", "worker"}

// waitsOfOneFetch are fields that contain such a word but are about the waits between the attempts
// of one fetch, which are up to fetchd.
var waitsOfOneFetch = []string{"fetchd.v1.RetryPolicy.base_delay", "fetchd.v1.RetryPolicy.max_delay"}

// TestRequestKnowsNoScheduler checks S1 on the contract: no field of a request is about scheduling.
func TestRequestKnowsNoScheduler(t *testing.T) {
	t.Parallel()
	var leaks []string
	fields := requestFields(new(pb.FetchRequest).ProtoReflect().Descriptor())
	for _, f := range fields {
		if speaksOfScheduler(string(f.Name())) {
			leaks = append(leaks, string(f.FullName()))
		}
	}
	slices.Sort(leaks)
	if !slices.Equal(leaks, waitsOfOneFetch) {
		t.Errorf("fields that speak of the scheduler: %q, want %q alone", leaks, waitsOfOneFetch)
	}
	if len(fields) < 50 {
		t.Errorf("%d fields were looked at: the walk misses most of them", len(fields))
	}
}

// requestFields returns the fields of a message and of its nested messages.
func requestFields(root protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	var fields []protoreflect.FieldDescriptor
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			fields = append(fields, f)
			if f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	walk(root)
	return fields
}

func speaksOfScheduler(field string) bool {
	return slices.ContainsFunc(strings.Split(field, "_"), func(word string) bool { return slices.Contains(schedulers, word) })
}

func TestSchedulerWords(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]bool{
		"crawl_delay": true, "host_delay": true, "lease_id": true, "priority": true, "robots_txt": true, "rate_limit": true,
		"url": false, "total_timeout": false, "headers": false, "ghost": false, "max_retry_after": false, "released": false,
	} {
		if got := speaksOfScheduler(field); got != want {
			t.Errorf("speaksOfScheduler(%s) = %v, want %v", field, got, want)
		}
	}
}

// heard are the requests that a service received, by URL.
type heard struct {
	mu       sync.Mutex
	requests map[string][]byte
}

func (h *heard) service(t *testing.T) Service {
	t.Helper()
	h.requests = make(map[string][]byte)
	s := &script{many: func(_ int, s manyStream) error {
		return fetchedAll(s, func(r *pb.FetchRequest) {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
			if err != nil {
				t.Error(err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.requests[r.GetUrl()] = b
		})
	}}
	return s.start(t, "script")
}

// TestRequestLeaksNothing checks S1 on the wire: two frontiers that know different things about the
// same URLs send the same requests.
func TestRequestLeaksNothing(t *testing.T) {
	t.Parallel()
	urls := []string{"http://a.test/1", "http://b.test/2", "http://c.test/3"}
	plain, marked := new(heard), new(heard)
	crawlScript(t, plain.service(t), openStore(t, filepath.Join(t.TempDir(), "plain.db"), time.Millisecond), Config{}, urls)

	s := openStore(t, filepath.Join(t.TempDir(), "marked.db"), 5*time.Millisecond)
	mark(t, s, urls)
	crawlScript(t, marked.service(t), s, Config{Name: "another", Open: 3, Lease: 20 * time.Minute, MaxCrawlDelay: time.Second,
		MaxRedirectWait: time.Second, DrainTime: time.Second}, urls)

	for _, u := range urls {
		for _, one := range []string{u, u[:len("http://a.test")] + "/robots.txt"} {
			a, b := plain.requests[one], marked.requests[one]
			if len(a) == 0 || !bytes.Equal(a, b) {
				t.Errorf("%s: %q by one frontier and %q by the other; want the same", one, a, b)
			}
		}
	}
}

// mark gives a frontier a history.
func mark(t *testing.T, s store.Store, urls []string) {
	t.Helper()
	delay, flights := 7*time.Millisecond, 3
	_, err := s.Put(t.Context(), store.Entries(urls...), store.Limits{})
	must(t, err)
	must(t, s.SetHost(t.Context(), "a.test", store.HostParams{Delay: &delay, CrawlDelay: &delay, MaxInFlight: &flights}))
	claims, err := s.Claim(t.Context(), store.ClaimParams{Limit: 3, Worker: "before"})
	must(t, err)
	if len(claims) != 3 {
		t.Fatalf("%d claims, want 3", len(claims))
	}
	_, err = s.RecordFetch(t.Context(), []store.Fetch{{ID: claims[0].ID, Status: store.Failed, LastError: "failed before", ErrorClass: "http_server_error",
		FetchedParams: store.FetchedParams{Token: claims[0].Token, Attempts: 3}}})
	must(t, err)
	for range 2 { // one counts as a crash, the other as a lease
		_, err = s.Abandon(t.Context(), []store.Lease{claims[1].Lease})
		must(t, err)
	}
	_, err = s.Release(t.Context(), []store.Lease{claims[2].Lease})
	must(t, err)
	must(t, s.Block(t.Context(), "b.test", 50*time.Millisecond))
	must(t, s.DelayHosts(t.Context(), []string{"c.test"}))
}

// crawlScript crawls urls until none is left.
func crawlScript(t *testing.T, service Service, s store.Store, c Config, urls []string) {
	t.Helper()
	c.Policy = DefaultPolicy()
	if _, err := s.Put(t.Context(), store.Entries(urls...), store.Limits{}); err != nil {
		t.Fatal(err)
	}
	w, err := New(s, []Service{service}, c)
	must(t, err)
	must(t, w.Run(t.Context()))
	if got := w.Stats(); got.Completed != int64(len(urls)) {
		t.Fatalf("%+v, want %d fetched", got, len(urls))
	}
}

// TestRequests checks that a page's request follows the configuration, and which fields differ in
// that of a robots.txt.
func TestRequests(t *testing.T) {
	t.Parallel()
	accept := []string{"text/html"}
	digest := &pb.BodyPolicy_Digest{Digest: new(pb.DigestDelivery)}
	kept := &shelf{kept: map[string]int{"x": 1}}
	for _, row := range []struct {
		name   string
		change func(c *Config)
		claim  store.Claim
		want   *pb.FetchRequest // the differences from the request for robots.txt
	}{
		{"the default", func(*Config) {}, store.Claim{}, &pb.FetchRequest{BodyPolicy: &pb.BodyPolicy{
			MaxSizeBytes: proto.Int64(16 << 20), Delivery: digest}}},
		{"bodies", func(c *Config) { c.Bodies, c.MaxBodyBytes = new(shelf), 9 }, store.Claim{},
			&pb.FetchRequest{BodyPolicy: stored(9, 0)}},
		{"types", func(c *Config) { c.Bodies, c.Accept = new(shelf), accept }, store.Claim{}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0), ContentPolicy: &pb.ContentPolicy{AcceptedMediaTypes: accept, RequireBody: true}}},
		{"types and a valid charset", func(c *Config) { c.Bodies, c.Accept, c.RequireValidCharset = new(shelf), accept, true }, store.Claim{}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0), ContentPolicy: &pb.ContentPolicy{AcceptedMediaTypes: accept, RequireBody: true, RequireValidCharset: true}}},
		{"a valid charset of any type", func(c *Config) { c.Bodies, c.RequireValidCharset = new(shelf), true }, store.Claim{}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0), ContentPolicy: &pb.ContentPolicy{RequireValidCharset: true}}},
		{"the profile of downloads", func(c *Config) { c.Bodies, c.Download = new(shelf), true }, store.Claim{}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0), RetryPolicy: &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD}}},
		{"the profile of downloads, and attempts", func(c *Config) { c.Bodies, c.Download, c.MaxAttempts = new(shelf), true, 2 }, store.Claim{}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0), RetryPolicy: &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD, MaxAttempts: proto.Int32(2)}}},
		{"no redirects", func(c *Config) { c.Bodies, c.Policy.FollowRedirects = new(shelf), false }, store.Claim{}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0), RedirectPolicy: &pb.RedirectPolicy{Follow: proto.Bool(false)}}},
		{"an ETag, rather than a date", func(c *Config) { c.Bodies = kept },
			store.Claim{BodyDigest: "x", ETag: `W/"1"`, LastModified: "Sun, 06 Nov 1994 08:49:37 GMT"}, &pb.FetchRequest{
				BodyPolicy: stored(16<<20, 0), Precondition: &pb.Precondition{Etags: []string{`W/"1"`}}}},
		{"no body was kept", func(c *Config) { c.Bodies = new(shelf) }, store.Claim{ETag: `W/"1"`}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0)}},
		{"the body is gone", func(c *Config) { c.Bodies = new(shelf) }, store.Claim{BodyDigest: "x", ETag: `W/"1"`}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0)}},
		{"no body is wanted", func(*Config) {}, store.Claim{ETag: `W/"1"`}, &pb.FetchRequest{
			BodyPolicy:   &pb.BodyPolicy{MaxSizeBytes: proto.Int64(16 << 20), Delivery: digest},
			Precondition: &pb.Precondition{Etags: []string{`W/"1"`}}}},
		{"a date", func(c *Config) { c.Bodies = kept }, store.Claim{BodyDigest: "x", LastModified: "Sun, 06 Nov 1994 08:49:37 GMT"}, &pb.FetchRequest{
			BodyPolicy:   stored(16<<20, 0),
			Precondition: &pb.Precondition{LastModifiedTime: timestamppb.New(time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC))}}},
		{"an ETag that is none", func(c *Config) { c.Bodies = kept },
			store.Claim{BodyDigest: "x", ETag: `abc`, LastModified: "Sun, 06 Nov 1994 08:49:37 GMT"}, &pb.FetchRequest{
				BodyPolicy:   stored(16<<20, 0),
				Precondition: &pb.Precondition{LastModifiedTime: timestamppb.New(time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC))}}},
		{"no date", func(c *Config) { c.Bodies = kept }, store.Claim{BodyDigest: "x", LastModified: "yesterday"}, &pb.FetchRequest{
			BodyPolicy: stored(16<<20, 0)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := Config{Policy: DefaultPolicy(), MaxAttempts: 2, UserAgent: "bot/1"}
			row.change(&c)
			c, err := c.withDefaults()
			must(t, err)
			got, want := c.pageRequest("http://a.test/", 3, row.claim, row.claim.Earlier), c.robotsRequest("http://a.test/", 3, row.claim.Earlier)
			if want.GetBodyPolicy().GetMaxSizeBytes() != robots.MaxBytes+1 || want.GetBodyPolicy().GetOversizeAction() != pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE {
				t.Errorf("robots.txt is asked for with %v, want it cut after %d bytes", want.GetBodyPolicy(), robots.MaxBytes+1)
			}
			want.BodyPolicy.MaxSizeBytes, want.BodyPolicy.OversizeAction = nil, 0
			if want.GetRedirectPolicy().GetFollow() {
				t.Error("redirects of a robots.txt are followed by the service, without a turn")
			}
			want.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: proto.Int32(3), Scope: pb.RedirectScope_REDIRECT_SCOPE_SAME_ORIGIN}
			if row.want.GetRedirectPolicy() != nil {
				want.RedirectPolicy = nil
			}
			proto.Merge(want, row.want)
			if !proto.Equal(got, want) {
				t.Errorf("page request\n %v\nwant\n %v", got, want)
			}
			if want.GetHeaders()[0].GetValue() != "bot/1" || want.GetRetryPolicy().GetMaxAttempts() != 2 || want.GetTimeoutPolicy().GetTotalTimeout().AsDuration() != time.Minute {
				t.Errorf("%v does not say what the configuration does", want)
			}
		})
	}
}

// stored is the policy for a body that is stored.
func stored(limit int64, oversize pb.OversizeAction) *pb.BodyPolicy {
	return &pb.BodyPolicy{MaxSizeBytes: &limit, OversizeAction: oversize,
		Delivery: &pb.BodyPolicy_Auto{Auto: &pb.StreamDelivery{Recovery: pb.BodyRecovery_BODY_RECOVERY_RESTART}}}
}

// TestIsETag checks RFC 9110 §8.8.3. An invalid entity-tag would make fetchd reject the request.
func TestIsETag(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]bool{
		`"abc"`: true, `W/"abc"`: true, `""`: true, `"a-ü"`: true, `"` + strings.Repeat("x", 1000) + `"`: true,
		``: false, `abc`: false, `"abc`: false, `abc"`: false, `"`: false, `w/"abc"`: false, `"a b"`: false, `"a"b"`: false,
		`"a","b"`: false, `*`: false, "\"a\nb\"": false, "\"a\xffb\"": false, `"` + strings.Repeat("x", 2000) + `"`: false,
	} {
		if got := isETag(tag); got != want {
			t.Errorf("isETag(%.40q) = %v, want %v", tag, got, want)
		}
	}
}
