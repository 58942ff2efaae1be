package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"fetchd/internal/wait"
)

// profileFolder is the variable that names a service's folder for profiles.
const profileFolder = "BENCH_PROFILES"

// profiled is laid over cmd/fetchd where profiles are asked for.
const profiled = `package main

import (
	"context"
	"os"
	"syscall"

	"fetchd/bench/profile"
)

func init() {
	profile.OnSignal(context.Background(), os.Getenv("` + profileFolder + `"), syscall.SIGUSR1, syscall.SIGUSR2, os.Stderr)
}
`

// overlay has go build take a file more, without writing into the tree.
func (w *workshop) overlay() (flag string, err error) {
	source, list := filepath.Join(w.work, "profiled.go"), filepath.Join(w.work, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(w.root, "cmd", "fetchd", "profiled.go"): source}})
	if err != nil {
		return "", err
	}
	return "-overlay=" + list, errors.Join(os.WriteFile(source, []byte(profiled), 0o600), os.WriteFile(list, text, 0o600))
}

// profiles are those of a service, one after the other.
type profiles struct {
	folder string // where it writes them; empty means that it does not
	taken  int
}

// newProfiles makes a folder for a service.
func (w *workshop) newProfiles() (*profiles, error) {
	if w.choices.Profile == "" {
		return &profiles{}, nil
	}
	folder, err := os.MkdirTemp(w.work, "profiles")
	return &profiles{folder: folder}, err
}

// environ is what the service is told.
func (p *profiles) environ(base []string) []string { return append(base, profileFolder+"="+p.folder) }

// signal begins a profile, or ends it.
func (s *service) signal(which os.Signal) error {
	if s == nil || s.profiles.folder == "" {
		return nil
	}
	return s.Signal(which)
}

// keep puts the profile that was taken last where it was asked for, under the name
// of what was measured.
func (w *workshop) keep(ctx context.Context, s *service, name string, round int) error {
	if s == nil || s.profiles.folder == "" {
		return nil
	}
	s.profiles.taken++
	from := filepath.Join(s.profiles.folder, fmt.Sprintf("%d.pprof", s.profiles.taken))
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := wait.Poll(ctx, 10*time.Millisecond, func() (bool, error) { return isFile(from), nil }); err != nil {
		return fmt.Errorf("profile of %s: %w", name, err)
	}
	text, err := os.ReadFile(from) // the folders may be of two file systems
	if err == nil {
		err = os.MkdirAll(w.choices.Profile, 0o755)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.choices.Profile, fmt.Sprintf("%s-%d.pprof", fileName(name), round+1)), text, 0o644)
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// fileName is a name that a shell takes as it is.
func fileName(text string) string {
	return strings.Trim(notInName.ReplaceAllString(strings.ToLower(text), "-"), "-")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
