package get

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

var fetchctl = clitest.Command("fetchctl", func() any {
	return new(struct {
		Get Command `cmd:""`
	})
})

// The same through a service on the network as through the one inside, its
// address from a flag or from the environment.
func TestServer(t *testing.T) {
	t.Parallel()
	o, addr := rig.Origin(t), clitest.Server(t)
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
	}{
		{name: "inside"},
		{name: "flag", args: []string{"--server", addr}},
		{name: "http", args: []string{"--server", "http://" + addr + "/"}},
		{name: "dns", args: []string{"--server", "dns:///" + addr}},
		{name: "environment", env: map[string]string{"FETCHD_SERVER": addr}},
		{name: "the flag wins", env: map[string]string{"FETCHD_SERVER": o.Addr("refused")}, args: []string{"--server", addr}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			key := strings.ReplaceAll(t.Name(), "/", "-")
			args := append([]string{"get", o.URL("http", "/s/"+key+"/503/200:size=700000")}, tt.args...)
			got := fetchctl.With(t.Context(), "", tt.env, args...)
			if got.Code != cli.ExitOK || got.Out != string(o.Body(700_000)) {
				t.Errorf("get: exit status %d, %d bytes; want 0 and the origin's 700000\n%s", got.Code, len(got.Out), got.Err)
			}
			if n := len(o.Requests(key)); n != 2 {
				t.Errorf("the origin saw %d requests, want 2", n)
			}
		})
	}
}

// interrupter is a standard error that interrupts the program when it has printed a text.
type interrupter struct {
	strings.Builder
	after     string
	interrupt context.CancelFunc
}

func (i *interrupter) Write(p []byte) (int, error) {
	n, err := i.Builder.Write(p)
	if strings.Contains(i.String(), i.after) {
		i.interrupt()
	}
	return n, err
}

// TestInterruptedSummary checks that an interrupted fetch says how far it was.
func TestInterruptedSummary(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	const wait = "503:size=5/429:retry-after=20/200"
	for _, row := range []struct {
		name, script, after, want string
		args                      []string
	}{
		{"a wait", wait, "retry in 20s", "fetchctl: interrupted after [0-9]+ ms, (19.[0-9]+|20.00) s before attempt 3\n  2 attempts had ended; the last one: 429 Too Many Requests, rate_limited \\(H2\\), retry in 20s \\(W2 retry_after\\)\n$", nil},
		{"JSON has the attempts", wait, `"retry_after":"20s"`, "}\nfetchctl: interrupted after [0-9]+ ms, (19.[0-9]+|20.00) s before attempt 3\n$", []string{"--json"}},
		{"a POST", "silent", "attempt_started", "in attempt 1, before the body; the request may have taken effect: find out before you send it again\n$", []string{"--json", "-X", "POST"}},
		{"a body", "503/200:size=3000000,stall=1500000", "response 200 OK", "fetchctl: interrupted after [0-9]+ ms in attempt 2, (before the body|after .* of the body)\n  1 attempt had ended; the last one: 503 ", []string{"-v", "-o", os.DevNull}},
		{"a short wait", "503/200", "retry in 200ms", "fetchctl: interrupted after [0-9]+ .s, [0-9]+ .s before attempt 2\n  1 attempt had ended", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			told := &interrupter{after: row.after, interrupt: cancel}
			args := append([]string{"get", "--retry-delay", "0.2", o.URL("http", "/s/"+strings.ReplaceAll(t.Name(), "/", "-")+"/"+row.script)}, row.args...)
			code := fetchctl(ctx, args, func(string) string { return "" }, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: told})
			if code != cli.ExitInterrupted || !regexp.MustCompile(row.want).MatchString(told.String()) {
				t.Errorf("exit status %d\n%s\nwant %d and %s", code, told.String(), cli.ExitInterrupted, row.want)
			}
		})
	}
}

// A run that is cancelled leaves no file and ends with 130, in every phase.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	for _, tt := range []struct{ name, script string }{
		{"before the head", "silent"},
		{"in the body", "200:size=3000000,stall=1500000"},
		{"while it waits", "429:retry-after=20/200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, key := t.TempDir(), strings.ReplaceAll(t.Name(), "/", "-")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan clitest.Result, 1)
			go func() {
				ended <- fetchctl.With(ctx, "", nil, "get", "-o", filepath.Join(dir, "file"), o.URL("http", "/s/"+key+"/"+tt.script))
			}()
			if _, err := o.Await(t.Context(), key, 1); err != nil {
				t.Fatal(err)
			}
			cancel()
			if got := <-ended; got.Code != cli.ExitInterrupted || !strings.Contains(got.Err, "interrupted") {
				t.Errorf("exit status %d, %q; want %d", got.Code, got.Err, cli.ExitInterrupted)
			}
			clitest.Only(t, dir)
		})
	}
}

// TestGetRecovers fetches bodies that break off after chunks were delivered. A file
// has no name until it is complete, so its body may start again.
func TestGetRecovers(t *testing.T) {
	t.Parallel()
	const (
		cut = "200:size=3000000,cut=1500000"
		all = "200:size=3000000"
		v1  = ",etag=%22v1%22,range"
		v2  = ",etag=%22v2%22,range"
	)
	for _, tt := range []struct {
		name, script string
		args         []string
		want         int
		size         int64 // of the file
		ranges       []string
	}{
		{"continues with a strong validator", cut + v1 + "/" + all + v1, nil, cli.ExitOK, 3_000_000, []string{"", "bytes=1500000-"}},
		{"restarts without a validator", cut + "/" + all, nil, cli.ExitOK, 3_000_000, []string{"", ""}},
		{"restarts without ranges", cut + ",etag=%22v1%22/" + all, nil, cli.ExitOK, 3_000_000, []string{"", "bytes=1500000-"}},
		{"restarts twice", cut + "/200:size=3000000,cut=2000000/" + all, nil, cli.ExitOK, 3_000_000, []string{"", "", ""}},
		{"206 with a wrong range", cut + v1 + "/206:size=10/" + all, nil, cli.ExitOK, 3_000_000, []string{"", "bytes=1500000-", ""}},
		{"changed and longer", cut + v1 + "/200:size=4000000" + v2, nil, cli.ExitOK, 4_000_000, []string{"", "bytes=1500000-"}},
		{"changed and shorter than what came", cut + v1 + "/200:size=1000000" + v2, nil, cli.ExitOK, 1_000_000, []string{"", "bytes=1500000-"}},
		{"changed and within the hold-back", cut + "/200:size=1000", nil, cli.ExitOK, 1000, []string{"", ""}},
		{"changed and empty", cut + "/200:size=0", nil, cli.ExitOK, 0, []string{"", ""}},
		{"503 in between", cut + "/503:size=20/" + all, nil, cli.ExitOK, 3_000_000, []string{"", "", ""}},
		{"503 before it continues", cut + v1 + "/503/" + all + v1, nil, cli.ExitOK, 3_000_000, []string{"", "bytes=1500000-", "bytes=1500000-"}},
		{"the digest that was asked for", cut + "/" + all, []string{"--sha256", "right"}, cli.ExitOK, 3_000_000, []string{"", ""}},
		{"another digest", cut + "/" + all, []string{"--sha256", "wrong"}, cli.ExitPermanent, -1, []string{"", ""}},
		{"no attempt left", cut + "/" + all, []string{"-r", "0"}, cli.ExitTransient, -1, []string{""}},
		{"404 instead of the rest", cut + "/404", nil, cli.ExitPermanent, -1, []string{"", ""}},
		{"a Range of the caller's restarts", cut + v1 + "/" + all + v1, []string{"-H", "Range: bytes=0-"}, cli.ExitOK, 3_000_000, []string{"bytes=0-", "bytes=0-"}},
		{"a PUT restarts", cut + v1 + "/" + all + v1, []string{"-X", "PUT"}, cli.ExitOK, 3_000_000, []string{"", ""}},
		{"a POST is sent once", cut + v1 + "/" + all + v1, []string{"-X", "POST"}, cli.ExitNotIdempotent, -1, []string{""}},
		{"standard output does not restart", cut + "/" + all, []string{"-o", "-"}, cli.ExitTransient, -1, []string{""}},
		{"neither does a device", cut + "/" + all, []string{"-o", os.DevNull}, cli.ExitTransient, -1, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, dir := rig.Origin(t), t.TempDir()
			file := filepath.Join(dir, "file")
			args := []string{"get", "--json", "-o", file}
			for _, arg := range tt.args {
				switch arg {
				case "right":
					arg = fmt.Sprintf("%x", sha256.Sum256(o.Body(tt.size)))
				case "wrong":
					arg = fmt.Sprintf("%x", sha256.Sum256(nil))
				}
				args = append(args, arg)
			}
			got := fetchctl.Run(t, append(args, o.URL("http", "/s/k/"+tt.script))...)
			if got.Code != tt.want {
				t.Errorf("exit status %d, want %d\n%s", got.Code, tt.want, got.Err)
			}
			var asked []string
			for _, r := range o.Requests("k") {
				asked = append(asked, r.Header.Get("Range"))
			}
			if !slices.Equal(asked, tt.ranges) {
				t.Errorf("ranges %q, want %q", asked, tt.ranges)
			}
			if tt.size < 0 {
				clitest.Only(t, dir)
				return
			}
			want := o.Body(tt.size)
			clitest.File(t, file, want)
			clitest.Only(t, dir, "file")
			if !strings.Contains(got.Out, `"sha256":"`+fmt.Sprintf("%x", sha256.Sum256(want))+`"`) {
				t.Errorf("the outcome has another digest than the file:\n%s", got.Out)
			}
		})
	}
}

// TestGetIncludesOnce writes one head before a body, whichever attempts bring it.
func TestGetIncludesOnce(t *testing.T) {
	t.Parallel()
	const v1 = ",etag=%22v1%22,range"
	for _, tt := range []struct {
		name, script string
		toFile       bool
		size         int64
	}{
		{"continued in a file", "200:size=3000000,cut=1500000" + v1 + "/200:size=3000000" + v1, true, 3_000_000},
		{"continued on standard output", "200:size=3000000,cut=1500000" + v1 + "/200:size=3000000" + v1, false, 3_000_000},
		{"restarted", "200:size=3000000,cut=1500000/200:size=2000000", true, 2_000_000},
		{"restarted and empty", "200:size=3000000,cut=1500000/200:size=0", true, 0},
		{"after a 503", "503:size=10/200:size=10", true, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, file := rig.Origin(t), filepath.Join(t.TempDir(), "file")
			args := []string{"get", "-i", o.URL("http", "/s/k/"+tt.script)}
			if tt.toFile {
				args = append(args, "-o", file)
			}
			got := fetchctl.Run(t, args...)
			if tt.toFile {
				text, err := os.ReadFile(file)
				clitest.Must(t, err)
				got.Out = string(text)
			}
			head, body, _ := strings.Cut(got.Out, "\n\n")
			if got.Code != cli.ExitOK || !strings.HasPrefix(head, "HTTP/1.1 200 OK\n") || !strings.Contains(head, fmt.Sprintf("\nContent-Length: %d\n", tt.size)) {
				t.Errorf("exit status %d, head %q; want 200 and a length of %d\n%s", got.Code, head, tt.size, got.Err)
			}
			if body != string(o.Body(tt.size)) {
				t.Errorf("a body of %d bytes, want the origin's %d", len(body), tt.size)
			}
		})
	}
}

// Every time-out of the call is later than the fetch's own, so the outcome is
// what the user gets.
func TestTimeoutIsAnOutcome(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	got := fetchctl.Run(t, "get", "--timeout", "200ms", o.URL("http", "/s/timeout/silent"))
	if got.Code != cli.ExitTransient || !strings.Contains(got.Err, "deadline (P3") {
		t.Errorf("get --timeout: exit status %d, %q; want %d and P3", got.Code, got.Err, cli.ExitTransient)
	}
}

// A body arrives while it is still being sent, not at its end.
func TestBodyStreams(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	r, w := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		var told strings.Builder
		code := fetchctl(ctx, []string{"get", o.URL("http", "/s/stream/200:size=3000000,stall=1500000")},
			func(string) string { return "" }, cli.Streams{In: strings.NewReader(""), Out: w, Err: &told})
		_ = w.Close()
		ended <- code
	}()
	first := make([]byte, 600<<10) // more than the hold-back, less than the origin sends
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	if string(first) != string(o.Body(int64(len(first)))) {
		t.Error("the first bytes are not the origin's")
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != cli.ExitInterrupted {
		t.Errorf("exit status %d, want %d", code, cli.ExitInterrupted)
	}
}

// Each line of --json is a message of the contract, and they are all of them.
func TestJSONLines(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	got := fetchctl.Run(t, "get", "--json", "-v", "-o", filepath.Join(t.TempDir(), "file"), o.URL("http", "/r/json/302/1/503/200:size=700000"))
	var kinds []string
	for i, line := range strings.Split(strings.TrimSuffix(got.Out, "\n"), "\n") {
		m := new(pb.FetchEvent)
		if err := protojson.Unmarshal([]byte(line), m); err != nil {
			t.Fatalf("line %d: %v\n%s", i+1, err, line)
		}
		if m.GetSequence() != int64(i+1) || len(m.GetBodyChunk().GetData()) > 0 {
			t.Errorf("line %d has sequence %d and %d bytes of body", i+1, m.GetSequence(), len(m.GetBodyChunk().GetData()))
		}
		event := m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("event"))
		if n := len(kinds); n == 0 || kinds[n-1] != string(event.Name()) {
			kinds = append(kinds, string(event.Name()))
		}
	}
	attempt := []string{"attempt_started", "redirect_followed", "response_started"}
	want := slices.Concat([]string{"admitted"}, attempt, []string{"attempt_finished"}, attempt, []string{"body_chunk", "attempt_finished", "outcome"})
	if diff := cmp.Diff(want, kinds); diff != "" || got.Code != cli.ExitOK {
		t.Errorf("exit status %d, events (-want +got):\n%s", got.Code, diff)
	}
}
