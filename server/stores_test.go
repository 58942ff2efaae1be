package server_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/stores"
)

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
	in.BodyPolicy = &pb.BodyPolicy{Delivery: pb.BodyDelivery_BODY_DELIVERY_STORE, Store: store, Key: key}
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
			key := strings.ReplaceAll(name, " ", "-")
			check(t, key, fetch(r.in(t), toStore(r.request(path), "open", key)))
		})
	}
	t.Run("without a key", func(t *testing.T) {
		r := r.in(t)
		a := r.mustFetch(toStore(r.request(path), "open", ""))
		check(t, "sha256/DIGEST", a.outcome)
		if len(a.body) > 0 {
			t.Errorf("%d bytes came in chunks too", len(a.body))
		}
		p := r.mustUnary(toStore(r.request(path), "open", "a/b")).GetEffectiveRequest().GetBodyPolicy()
		if p.GetStore() != "open" || p.GetKey() != "a/b" || p.GetRecovery() != pb.BodyRecovery_BODY_RECOVERY_RESTART {
			t.Errorf("effective policy %v", p)
		}
	})
	t.Run("too large for the store", func(t *testing.T) {
		r := r.in(t)
		in := toStore(r.request(path), "small", "k")
		in.BodyPolicy.MaxSizeBytes = new(int64(5000))
		m := r.mustUnary(in)
		wantClass(t, m.GetOutcome(), pb.ErrorClass_ERROR_CLASS_BODY_TOO_LARGE, pb.RetryVerdict_RETRY_VERDICT_NOT_RETRYABLE, 1)
		if text := m.GetOutcome().GetError().GetMessage(); !strings.Contains(text, "1000 bytes that the store takes") {
			t.Errorf("message %q", text)
		}
		if !slices.Equal(m.GetClampedFields(), []string{"body_policy.max_size_bytes"}) || m.GetEffectiveRequest().GetBodyPolicy().GetMaxSizeBytes() != 1000 {
			t.Errorf("clamped %q, effective %v", m.GetClampedFields(), m.GetEffectiveRequest().GetBodyPolicy())
		}
	})
	t.Run("of others", func(t *testing.T) {
		r := r.in(t)
		_, err := r.Client.FetchUnary(t.Context(), &pb.FetchUnaryRequest{Request: toStore(r.request(path), "others", "k")})
		wantCode(t, "a store of others", err, codes.PermissionDenied)
	})
	t.Run("over raw", func(t *testing.T) {
		r := r.in(t)
		resp := r.rawCall(t.Context(), "GET", path, sets("Fetchd-Request", `{"body_policy":{"delivery":"BODY_DELIVERY_STORE","store":"open"}}`))
		r.wantStatus(resp, 400, codes.InvalidArgument, "delivery")
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
		{"no store", "", "k", nil, "body_policy.store"},
		{"an unknown store", "nobody", "k", nil, "body_policy.store"},
		{"a key that leaves the prefix", "open", "../k", nil, "body_policy.key"},
		{"a bucket without a key", "bucket", "", nil, "body_policy.key"},
		{"HEAD", "open", "k", func(in *pb.FetchRequest) { in.Method = "HEAD" }, "body_policy.delivery"},
		{"a part", "open", "k", func(in *pb.FetchRequest) { in.Headers = []*pb.Header{{Name: "Range", Value: "bytes=0-9"}} }, "body_policy.delivery"},
		{"truncated", "open", "k", policy(func(p *pb.BodyPolicy) { p.OversizeAction = pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE }), "body_policy.oversize_action"},
		{"without a digest", "open", "k", policy(func(p *pb.BodyPolicy) { p.OmitDigest = true }), "body_policy.omit_digest"},
		{"without recovery", "open", "k", policy(func(p *pb.BodyPolicy) { p.Recovery = pb.BodyRecovery_BODY_RECOVERY_NONE }), "body_policy.recovery"},
		{"from a resume point", "open", "k", policy(func(p *pb.BodyPolicy) { p.ResumePoint = &pb.ResumePoint{OffsetBytes: 1, Validator: `"a"`} }), "body_policy.resume_point"},
		{"a store with another delivery", "open", "", policy(func(p *pb.BodyPolicy) { p.Delivery = pb.BodyDelivery_BODY_DELIVERY_DIGEST }), "body_policy.store"},
		{"a key with another delivery", "", "k", policy(func(p *pb.BodyPolicy) { p.Delivery = pb.BodyDelivery_BODY_DELIVERY_DIGEST }), "body_policy.key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			in := toStore(r.request("/s/refused/200"), row.store, row.key)
			if row.change != nil {
				row.change(in)
			}
			_, err := r.Client.FetchUnary(t.Context(), &pb.FetchUnaryRequest{Request: in})
			wantViolations(t, err, []string{"request." + row.want})
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

// TestStoreDown checks that a store that failed several times refuses at once, that this costs the
// origin nothing, and that other stores still work.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, withStores(t, t.TempDir()))
	for i := range 8 { // five of them open the breaker
		out := r.mustUnary(toStore(r.request("/s/k/200:size=10"), "bucket", key(i))).GetOutcome()
		attempts := int32(1)
		if i >= 5 {
			attempts = 0
		}
		wantClass(t, out, pb.ErrorClass_ERROR_CLASS_STORE_FAILURE, pb.RetryVerdict_RETRY_VERDICT_STOPPED, attempts)
		if refused := out.GetError().GetReason() == "store_unavailable"; refused != (i >= 5) || !out.GetError().GetRetryable() || strings.Contains(out.GetError().GetDetail(), "127.0.0.1") {
			t.Errorf("fetch %d: %v", i, out.GetError())
		}
	}
	r.wantRequests("k", 5)
	if out := r.mustUnary(toStore(r.request("/s/k/200:size=10"), "open", "k")).GetOutcome(); out.GetStoredObject() == nil {
		t.Errorf("another store: %v", out)
	}
}
