package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"fetchd/test/bench/origin"
)

// pprofSocket is the environment variable that names the socket on which a service offers
// profiles. The services do so only if --profile is given.
const pprofSocket = "BENCH_PPROF"

// profiled is a file that is added to cmd/fetchd for --profile.
const profiled = `package main

import (
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
)

func init() {
	if l, err := net.Listen("unix", os.Getenv("` + pprofSocket + `")); err == nil {
		go http.Serve(l, nil)
	}
}
`

// overlay returns the flag with which go build adds the file, without a change to the tree.
func (w *workshop) overlay() (string, error) {
	source, list := filepath.Join(w.work, "profiled.go"), filepath.Join(w.work, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(w.root, "cmd", "fetchd", "profiled.go"): source}})
	if err != nil {
		return "", err
	}
	return "-overlay=" + list, errors.Join(os.WriteFile(source, []byte(profiled), 0o600), os.WriteFile(list, text, 0o600))
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// profile takes a CPU profile of the service over the measured time, which must be whole
// seconds to be covered exactly. The file is named after what is measured.
func (w *workshop) profile(ctx context.Context, s *service, name string, span time.Duration) error {
	if s == nil || w.choices.Profile == "" {
		return nil
	}
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket)
	}}
	text, err := origin.Get(ctx, t, fmt.Sprintf("http://service/debug/pprof/profile?seconds=%.0f", max(span.Seconds(), 1)))
	if err == nil {
		err = os.MkdirAll(w.choices.Profile, 0o755)
	}
	if err != nil {
		return fmt.Errorf("profile of %s: %w", name, err)
	}
	file := strings.Trim(notInName.ReplaceAllString(strings.ToLower(name), "-"), "-") + ".pprof"
	return os.WriteFile(filepath.Join(w.choices.Profile, file), text, 0o644)
}
