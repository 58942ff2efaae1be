package peers

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/fetchdtest"
	"fetchd/test/must"
	"fetchd/test/need"
	"fetchd/test/rig"
)

// frontConfig is what nginx needs besides the servers, as a format for the folder and the user.
const frontConfig = `
daemon off;
master_process off;
%[2]s
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/tmp; proxy_temp_path %[1]s/tmp; fastcgi_temp_path %[1]s/tmp; uwsgi_temp_path %[1]s/tmp; scgi_temp_path %[1]s/tmp;
`

// defaults are servers without any setting.
const defaults = `
server { listen 9090 http2; location / { grpc_pass grpc://127.0.0.1:8080; } }
server { listen 9091; location / { proxy_pass http://127.0.0.1:8081; } }
`

// front is an nginx in front of a fetchd.
type front struct {
	*fetchdtest.Server
	calls pb.FetchServiceClient // through nginx
	web   string                // the HTTP API behind nginx
}

func startFront(t *testing.T, program, servers string) *front {
	t.Helper()
	f := &front{Server: fetchdtest.Start(t, fetchdtest.Options{})}
	grpc, web, folder, user := rig.FreeAddress(t, "127.0.0.1"), rig.FreeAddress(t, "127.0.0.2"), t.TempDir(), ""
	if os.Getuid() == 0 {
		user = "user root;"
	}
	servers = strings.NewReplacer("listen 9090", "listen "+grpc, "listen 9091", "listen "+web, "127.0.0.1:8080", f.Addr,
		"127.0.0.1:8081", strings.TrimPrefix(f.URL, "http://")).Replace(servers)
	path := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(path, []byte(fmt.Sprintf(frontConfig, folder, user)+servers+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(folder, "error.log")); err == nil && t.Failed() {
			t.Logf("nginx: %s", text)
		}
	})
	startProgram(t, grpc, program, "-p", folder, "-c", path)
	f.calls, f.web = pb.NewFetchServiceClient(rig.Dial(t, grpc)), "http://"+web
	return f
}

// request returns a request for an answer of the origin, without small limits of time.
func (f *front) request(script string) *pb.FetchRequest {
	long := durationpb.New(10 * time.Minute)
	return &pb.FetchRequest{Url: f.Origin.URL("http", "/s/k/"+script), EventLevel: pb.EventLevel_EVENT_LEVEL_OUTCOME,
		TimeoutPolicy: &pb.TimeoutPolicy{TotalTimeout: long, AttemptTimeout: durationpb.New(0), HeaderTimeout: long, IdleTimeout: long}}
}

// TestBehindNginx calls fetchd through nginx, with nginx's defaults and with the settings that we recommend. No call may
// be lost, and nothing may be held back. nginx's limits of silence are a minute.
func TestBehindNginx(t *testing.T) {
	t.Parallel()
	rig.Long(t, 8*time.Minute)
	program := need.Program(t, "nginx", "nginx-light")
	settings, err := os.ReadFile("../../deploy/nginx/fetchd.conf")
	must.Succeed(t, err)
	const silence, silent = 75 * time.Second, "200:size=10,delay=75s"
	for _, row := range []struct {
		name     string
		settings bool // it needs them
		run      func(*testing.T, *front)
	}{
		{"a silent fetch", false, func(t *testing.T, f *front) {
			stream, err := f.calls.Fetch(t.Context(), f.request(silent))
			for err == nil {
				_, err = stream.Recv()
			}
			if err != io.EOF { //nolint:errorlint // gRPC returns it as it is
				t.Error(err)
			}
		}},
		{"a silent unary fetch", true, func(t *testing.T, f *front) {
			if _, err := f.calls.FetchUnary(t.Context(), f.request(silent)); err != nil {
				t.Error(err)
			}
		}},
		{"a stream with pauses", false, func(t *testing.T, f *front) { f.stream(t, 1, 2, silence) }},
		{"a stream of five minutes", true, func(t *testing.T, f *front) { f.stream(t, 1, 5, silence) }},
		{"a stream of 3,000 fetches with 3 MB of requests", true, func(t *testing.T, f *front) { f.stream(t, 3000, 1, 0) }},
		{"4,000 calls", false, func(t *testing.T, f *front) {
			var calls sync.WaitGroup
			for range 40 {
				calls.Go(func() {
					for range 100 {
						if _, err := f.calls.FetchUnary(t.Context(), f.request("200:size=10")); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			calls.Wait()
		}},
		{"lines as they happen", false, lines},
		{"a raw body", false, func(t *testing.T, f *front) { f.raw(t, "200:size=900000", 900_000) }},
		{"a raw body that breaks", false, func(t *testing.T, f *front) { f.raw(t, "200:size=900000,cut=800000", -1) }},
		{"metrics", true, func(t *testing.T, f *front) {
			resp := f.call(t, http.MethodGet, "/metrics", "")
			if server := resp.Header.Get("Server"); resp.StatusCode != http.StatusForbidden || !strings.HasPrefix(server, "nginx") {
				t.Errorf("%s from %s, want 403 from nginx", resp.Status, server)
			}
		}},
		{"a silent raw body", true, func(t *testing.T, f *front) { f.raw(t, silent, 10) }},
	} {
		for name, servers := range map[string]string{"defaults": defaults, "settings": string(settings)} {
			if row.settings && name == "defaults" {
				continue
			}
			t.Run(row.name+", "+name, func(t *testing.T) {
				t.Parallel()
				row.run(t, startFront(t, program, servers))
			})
		}
	}
}

// stream sends n tasks with a body of 1,000 bytes on a stream of FetchMany, rounds times, with a pause after each.
func (f *front) stream(t *testing.T, n, rounds int, pause time.Duration) {
	t.Helper()
	stream, err := f.calls.FetchMany(t.Context())
	must.Succeed(t, err)
	sent := make(chan error, 1)
	go func() {
		for round := range rounds {
			for i := range n {
				in := f.request("200:size=10")
				in.Method, in.Body = "PUT", make([]byte, 1000)
				if err := stream.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{{Tag: fmt.Sprint(round, " ", i), Request: in}}}); err != nil {
					sent <- err
					return
				}
			}
			time.Sleep(pause) //nolint:forbidigo // this is the silence
		}
		sent <- stream.CloseSend()
	}()
	outcomes := 0
	for {
		m, err := stream.Recv()
		for _, e := range m.GetEvents() {
			if e.GetEvent().GetOutcome().GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
				outcomes++
			}
		}
		if err == io.EOF { //nolint:errorlint // gRPC returns it as it is
			break
		}
		if err != nil {
			t.Fatalf("after %d outcomes: %v", outcomes, err)
		}
	}
	if err := <-sent; err != nil || outcomes != n*rounds {
		t.Errorf("%d outcomes, %v; want %d", outcomes, err, n*rounds)
	}
}

// lines reads the first line of a fetch whose origin is still silent.
func lines(t *testing.T, f *front) {
	began := time.Now()
	resp := f.call(t, "POST", "/v1/fetch", fmt.Sprintf(`{"url": %q}`, f.Origin.URL("http", "/s/k/200:size=10,delay=10s")))
	in := bufio.NewScanner(resp.Body)
	for first := true; in.Scan(); first = false {
		if first && time.Since(began) > 5*time.Second {
			t.Errorf("the first line came after %v", time.Since(began))
		}
	}
	if err := in.Err(); err != nil {
		t.Error(err)
	}
}

// raw fetches a body as bytes. size -1 means that it breaks.
func (f *front) raw(t *testing.T, script string, size int) {
	t.Helper()
	resp := f.call(t, "GET", "/v1/raw?url="+url.QueryEscape(f.Origin.URL("http", "/s/k/"+script)), "")
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || (err == nil) != (size >= 0) || size >= 0 && len(body) != size {
		t.Errorf("%s, %d bytes, %v; want %d", resp.Status, len(body), err, size)
	}
}

func (f *front) call(t *testing.T, method, path, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.web+path, strings.NewReader(body))
	must.Succeed(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Fetchd-Request", `{"timeout_policy": {"total_timeout": "300s", "attempt_timeout": "0s", "header_timeout": "300s"}}`)
	resp, err := (&http.Client{Transport: new(http.Transport), Timeout: 8 * time.Minute}).Do(req)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}
