//go:build linux

package stores

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
	"fetchd/test/rig"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "64"); err != nil { // most tests wait
		panic(err)
	}
	rig.Main(m, "fetchd")
}

// entry is a store in the file of --stores-file.
type entry struct {
	URL             string   `yaml:"url"`
	Prefix          string   `yaml:"prefix,omitempty"`
	Callers         []string `yaml:"callers,omitempty"`
	MaxObjectBytes  int64    `yaml:"max-object-bytes,omitempty"`
	AccessKeyID     string   `yaml:"access-key-id,omitempty"`
	SecretAccessKey string   `yaml:"secret-access-key,omitempty"`
}

// service is one fetchd.
type service struct {
	*testing.T
	*rig.Fetchd
	client pb.FetchServiceClient
}

// start runs fetchd with a file of stores until the test ends.
func start(ctx context.Context, t *testing.T, o *origin.Origin, stores string, opt rig.FetchdOptions) *service {
	t.Helper()
	opt.HTTP, opt.Args = "127.0.0.1:0", slices.Concat(rig.Reach(t, []string{"http"}, o), []string{"--stores-file", stores}, opt.Args)
	f := rig.StartFetchd(ctx, t, opt)
	return &service{t, f, pb.NewFetchServiceClient(rig.Dial(t, f.GRPC))}
}

// request returns a request for a body that goes to a store.
func request(url, store, key string) *pb.FetchRequest {
	return &pb.FetchRequest{
		Url:           url,
		BodyPolicy:    &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: store, Key: key}}, MaxSizeBytes: proto.Int64(1 << 30)},
		TimeoutPolicy: &pb.TimeoutPolicy{TotalTimeout: durationpb.New(10 * time.Minute), AttemptTimeout: durationpb.New(10 * time.Minute)},
	}
}

// fetch makes a fetch. It returns an error of the call.
func (s *service) fetch(ctx context.Context, r *pb.FetchRequest) (*pb.FetchOutcome, error) {
	out, err := s.client.FetchUnary(ctx, r)
	return out.GetOutcome(), err
}

// body is a body of the origin.
type body struct{ size, offset int64 }

// step is the step of the origin that answers with the body.
func (b body) step() string { return fmt.Sprintf("200:size=%d,offset=%d", b.size, b.offset) }

// site is an origin that knows the digests of its bodies.
type site struct {
	*origin.Origin
	mu      sync.Mutex
	digests map[body]func() string
}

// transport keeps no connection.
var transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{Origin: rig.Origin(t), digests: make(map[body]func() string)}
}

// digest returns the SHA-256 of a body. It reads the body from the origin once.
func (s *site) digest(t *testing.T, b body) string {
	t.Helper()
	s.mu.Lock()
	digest := s.digests[b]
	if digest == nil {
		digest = sync.OnceValue(func() string {
			req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, s.URL("http", "/s/digests/"+b.step()), http.NoBody)
			must.Succeed(t, err)
			resp, err := transport.RoundTrip(req)
			must.Succeed(t, err)
			defer resp.Body.Close()
			return digestOf(t, resp.Body)
		})
		s.digests[b] = digest
	}
	s.mu.Unlock()
	return digest()
}

// describe formats an outcome for a message.
func describe(o *pb.FetchOutcome, err error) string {
	e := o.GetError()
	switch {
	case err != nil || o == nil:
		return fmt.Sprint(err)
	case e == nil:
		return fmt.Sprintf("%s, %d attempts", o.GetKind(), o.GetAttemptCount())
	}
	return fmt.Sprintf("%s, %s: %s: %s, %d attempts", e.GetErrorClass(), e.GetReason(), e.GetMessage(), e.GetDetail(), o.GetAttemptCount())
}

// wantStored checks that a fetch has stored the body.
func (s *site) wantStored(t *testing.T, out *pb.FetchOutcome, err error, store, key string, b body) {
	t.Helper()
	o := out.GetStoredObject()
	if out.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS || o.GetStore() != store || o.GetKey() != key || o.GetSizeBytes() != b.size || o.GetSha256() != s.digest(t, b) {
		t.Errorf("%s, object %v, want SUCCESS and %d bytes in %s as %s", describe(out, err), o, b.size, store, key)
	}
}
