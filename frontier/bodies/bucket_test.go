package bodies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"fetchd/stores"
	"fetchd/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bucket answers the requests of uploads as S3 does. Package stores is tested with a real server.
type bucket struct {
	*testing.T
	down bool // answers 500

	mu       sync.Mutex
	objects  map[string]string
	parts    map[string]string // by path and number
	busy     int               // requests in flight
	busiest  int
	arriving *sync.WaitGroup // a PUT waits for it; may be nil
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	b.mu.Lock()
	b.busy++
	b.busiest = max(b.busiest, b.busy)
	arriving := b.arriving
	b.mu.Unlock()
	if arriving != nil {
		arriving.Done()
		arriving.Wait()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	q := r.URL.Query()
	switch {
	case err != nil || b.down:
		w.WriteHeader(http.StatusInternalServerError)
	case r.Method == http.MethodPost && q.Has("uploads"):
		_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
	case r.Method == http.MethodPut && q.Has("partNumber"):
		b.parts[r.URL.Path+" "+q.Get("partNumber")] = string(body)
		w.Header().Set("ETag", `"part"`)
	case r.Method == http.MethodPost:
		var whole strings.Builder
		for n := 1; n <= len(b.parts); n++ {
			whole.WriteString(b.parts[fmt.Sprint(r.URL.Path, " ", n)])
		}
		b.objects[r.URL.Path] = whole.String()
		_, _ = io.WriteString(w, "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
	case r.Method == http.MethodPut:
		b.objects[r.URL.Path] = string(body)
	default: // HEAD and DELETE after a failure
		w.WriteHeader(http.StatusNotFound)
	}
}

// newBucket returns a bucket, and a store of bodies in it.
func newBucket(t *testing.T) (*bucket, *Store) {
	b := &bucket{T: t, objects: make(map[string]string), parts: make(map[string]string)}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	place, err := stores.Open("bucket", stores.Config{URL: "s3://bucket?region=r&use_path_style=true&endpoint=" + server.URL, Prefix: "p", AccessKeyID: "id", SecretAccessKey: "key"})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := place.Close(context.Background()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return b, New(place, 1<<30)
}

// TestBucket checks that bodies of any length have their digest as name in a bucket, whether they
// came in pieces or at once.
func TestBucket(t *testing.T) {
	t.Parallel()
	b, s := newBucket(t)
	want := make(map[string]string)
	for _, row := range []struct{ size, last int }{{0, 0}, {1000, 1000}, {1001, 1}, {1 << 20, 0}, {6 << 20, 0}} {
		body := strings.Repeat("x", row.size)
		if err := keep(s, digest(body), body, row.last); err != nil {
			t.Errorf("keep(%d bytes) = %v", row.size, err)
		}
		want["/bucket/p/"+nameOf(digest(body))] = body
	}
	dropped := s.New(t.Context())
	if _, err := dropped.Write(make([]byte, 6<<20)); err != nil {
		t.Fatal(err)
	}
	dropped.Drop()
	if !maps.Equal(b.objects, want) || len(b.parts) != 2 {
		t.Errorf("objects %q and %d parts, want %q and 2", slices.Sorted(maps.Keys(b.objects)), len(b.parts), slices.Sorted(maps.Keys(want)))
	}
}

// TestBucketDown checks that a bucket that is down gets no body, and that the next try stores it.
func TestBucketDown(t *testing.T) {
	t.Parallel()
	b, s := newBucket(t)
	b.down = true
	err := keep(s, digest("a"), "a", 0)
	if e, ok := errors.AsType[*stores.Error](err); !ok || e.Reason() != stores.ReasonError || len(b.objects) > 0 {
		t.Errorf("keep = %v with %d objects, want an error of the store", err, len(b.objects))
	}
	b.down = false
	if err := keep(s, digest("a"), "a", 0); err != nil || len(b.objects) != 1 {
		t.Errorf("keep = %v with %d objects, want it stored", err, len(b.objects))
	}
}

// TestUploadsAreLimited checks that no more bodies than allowed are uploaded at once.
func TestUploadsAreLimited(t *testing.T) {
	t.Parallel()
	const limit = 3
	b, s := newBucket(t)
	s.slots = make(chan struct{}, limit)
	b.arriving = new(sync.WaitGroup)
	b.arriving.Add(limit)
	var uploads sync.WaitGroup
	for n := range limit {
		uploads.Go(func() {
			if err := keep(s, digest(fmt.Sprint(n)), fmt.Sprint(n), 1); err != nil {
				t.Error(err)
			}
		})
	}
	b.arriving.Wait() // all of them upload at once
	b.mu.Lock()
	b.arriving = nil
	b.mu.Unlock()
	for n := range 10 * limit {
		uploads.Go(func() {
			if err := keep(s, digest(fmt.Sprint("more", n)), fmt.Sprint("more", n), 0); err != nil {
				t.Error(err)
			}
		})
	}
	uploads.Wait()
	if b.busiest != limit || len(b.objects) != 11*limit {
		t.Errorf("up to %d requests at once, %d objects; want %d and %d", b.busiest, len(b.objects), limit, 11*limit)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range limit {
		s.slots <- struct{}{}
	}
	cancel()
	body := s.New(ctx)
	defer body.Drop()
	if err := body.Commit(digest(""), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit without a slot = %v, want %v", err, context.Canceled)
	}
}
