package fetch

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch/urls"
)

// TestOneLoop checks that go-retryablehttp asks for one verdict after each attempt, and for one
// delay between two attempts.
func TestOneLoop(t *testing.T) {
	t.Parallel()
	o, err := origin.Start(origin.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	c, err := New(Config{Egress: Egress{Unrestricted: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := NewRequest(classify.Standard)
	req.URL, _ = urls.Parse(o.URL("http", "/s/loop/503"))
	req.Policy.BaseDelay, req.Policy.MaxAttempts = 0, 4
	r := &run{client: c, req: req, caller: t.Context(), start: time.Now(), deadline: time.Now().Add(time.Minute)}
	defer r.close()
	r.initialHop = hopRequest{method: "GET", url: req.URL, header: c.firstHeader(req)}
	r.startHop = &r.initialHop

	var verdicts, waits int
	e := newEngine()
	e.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		verdicts++
		return checkRetry(ctx, resp, err)
	}
	e.Backoff = func(low, high time.Duration, n int, resp *http.Response) time.Duration {
		waits++
		return backoff(low, high, n, resp)
	}
	r.loop(e)
	if sent := len(o.Requests("loop")); verdicts != 4 || waits != 3 || sent != 4 || r.attempts != 4 {
		t.Errorf("%d verdicts, %d waits, %d requests, %d attempts, want 4, 3, 4, 4", verdicts, waits, sent, r.attempts)
	}
}

// TestNothingElseWaitsOrSends checks the calls in this package and those below it.
func TestNothingElseWaitsOrSends(t *testing.T) {
	t.Parallel()
	allowed := map[string][]string{ // call: files
		"time.AfterFunc": {"timers/timers.go", "conns/pool.go", "conns/http1.go", "conns/http2.go"}, // those of conns close connections and release memory
		".RoundTrip":     {"attempt.go", "conns/http2.go"},
		".Do":            {"loop.go", "conns/socket.go"}, // the socket's is that of a sync.Once
	}
	watched := []string{"time.Sleep", "time.After", "time.Tick", "time.NewTimer", "time.NewTicker", "time.AfterFunc",
		"http.Get", "http.Post", "http.Head", ".RoundTrip", ".Do"}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range append(files, below...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, call := range calls(t, file) {
			if !slices.Contains(watched, call) {
				continue
			}
			if seen[call] = true; !slices.Contains(allowed[call], file) {
				t.Errorf("%s calls %s: only go-retryablehttp waits and makes attempts", file, call)
			}
		}
	}
	for call := range allowed {
		if !seen[call] {
			t.Errorf("nothing calls %s any more: remove it from the list", call)
		}
	}
}

// calls returns the calls of selectors in a file: "time.Sleep" for a watched package, ".Do" for any
// method of that name.
func calls(t *testing.T, file string) []string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "time" || x.Name == "http") {
					found = append(found, x.Name+"."+sel.Sel.Name)
				} else {
					found = append(found, "."+sel.Sel.Name)
				}
			}
		}
		return true
	})
	return found
}
