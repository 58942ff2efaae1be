package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"fetchd/frontier/api"
	pb "fetchd/gen/frontier/v1"
	"fetchd/test/must"
)

// TestCallersInLogAndMetrics checks that the line of each call has its caller, that rejected calls
// have one line for each caller and reason, and that callers without a name have one label value.
func TestCallersInLogAndMetrics(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	r := newRig(t, func(c *api.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Authenticate = func(token string, _ *tls.ConnectionState) (string, error) {
			if token == "" {
				return "", errors.New("send a token")
			}
			return token, nil
		}
	})
	r.server.SetCallers([]string{"alice", "bob"})
	for i := range 20 {
		for _, name := range []string{"alice", fmt.Sprint("guest", i)} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+name)
			if _, err := r.Claim(ctx, &pb.ClaimRequest{Limit: -1}); err == nil {
				t.Fatal("a claim of -1 URLs was accepted")
			}
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.web+"/v1/claim", strings.NewReader("{}"))
		must.Succeed(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer bob")
		resp, err := r.http.Do(req)
		must.Succeed(t, err)
		_ = resp.Body.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil { // it writes the last lines
		t.Fatal(err)
	}
	calls, rejected := make(map[string]int), make(map[string]int)
	for line := range bytes.Lines(log.bytes()) {
		var l struct {
			Msg, Level, Caller, Reason string
			Count                      int
			Code                       string `json:"grpc.code"`
		}
		must.Succeed(t, json.Unmarshal(line, &l))
		name := l.Caller
		if strings.HasPrefix(name, "guest") {
			name = "guest"
		}
		switch l.Msg {
		case "finished call":
			calls[name+" "+l.Code+" "+l.Level]++
		case "calls rejected":
			rejected[name+" "+l.Reason+" "+l.Level] += l.Count
		}
	}
	if diff := cmp.Diff(map[string]int{"alice InvalidArgument DEBUG": 20, "guest InvalidArgument DEBUG": 20, "bob OK DEBUG": 20}, calls); diff != "" {
		t.Errorf("calls in the log (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"alice InvalidArgument INFO": 20, "guest InvalidArgument INFO": 20}, rejected); diff != "" {
		t.Errorf("rejected calls in the log (-want +got)\n%s", diff)
	}
	families, err := r.metrics.Gather()
	must.Succeed(t, err)
	counts := make(map[string]float64)
	for _, f := range families {
		if f.GetName() == "frontier_api_caller_calls_total" {
			for _, m := range f.GetMetric() {
				counts[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"alice InvalidArgument": 20, "bob OK": 20, "other InvalidArgument": 20}, counts); diff != "" {
		t.Errorf("calls in the metrics (-want +got)\n%s", diff)
	}
}

// lockedBuffer is a buffer for a log.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.Bytes())
}
