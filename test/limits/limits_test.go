//go:build linux

package limits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"fetchd/conformance/origin"
	"fetchd/test/need"
	"fetchd/test/rig"
)

const (
	manifest      = "../../deploy/kubernetes.yaml"
	serviceConfig = "../../deploy/grpc/service-config.json"
)

// The names of the settings.
const (
	shipped = "shipped"
	none    = "none"
)

// column is a memory limit.
type column struct {
	name  string
	bytes int64
}

var columns = []column{{"256MiB", 256 << 20}, {"512MiB", 512 << 20}, {"1GiB", 1 << 30}}

// setting is a configuration of the service.
type setting struct {
	name      string
	args      []string
	fetches   int // the maximum at once
	perCaller int // 0: no separate limit
}

// gateFetches bounds the fetches of a row in the gate, where time is short.
const gateFetches = 2000

// gateLanes is how many processes share the rows of a setting in the gate. In the long form one
// process survives all of them.
const gateLanes = 2

// settings reads the shipped manifest and the binary's defaults.
func settings(t *testing.T, all bool) []setting {
	t.Helper()
	text := shippedSettings(t)
	var file struct {
		Fetches   int `yaml:"max-fetches"`
		PerCaller int `yaml:"max-fetches-per-caller"`
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil || file.Fetches == 0 {
		t.Fatalf("%s: max-fetches %d, %v", manifest, file.Fetches, err)
	}
	path := filepath.Join(t.TempDir(), "fetchd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	both := []setting{{shipped, []string{"--config", path}, file.Fetches, file.PerCaller}, {none, nil, 10_000, 0}}
	if !all {
		for i := range both {
			both[i].fetches = min(both[i].fetches, gateFetches)
		}
	}
	return both
}

// shippedSettings returns the settings of fetchd in the manifest.
func shippedSettings(t *testing.T) string {
	t.Helper()
	file, err := os.Open(manifest)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for documents := yaml.NewDecoder(file); ; {
		var object struct{ Data map[string]string }
		if err := documents.Decode(&object); err != nil {
			t.Fatalf("%s has no settings of fetchd: %v", manifest, err)
		}
		if text := object.Data["fetchd.yaml"]; text != "" {
			return text
		}
	}
}

// callers returns how many fetches each attacker makes at once: all that the service
// accepts, except a few that are left for the bystander.
func (s setting) callers() []int {
	const spare = 20
	n := s.fetches - spare
	if s.perCaller == 0 {
		return []int{n}
	}
	return chunks(n, s.perCaller)
}

func TestMain(m *testing.M) {
	if config := os.Getenv(crowdVariable); config != "" {
		runCrowd(config)
		return
	}
	rig.Main(m, "fetchd", "frontier")
}

// TestLimits runs the requested rows, columns and settings.
func TestLimits(t *testing.T) {
	rig.Long(t, 3*time.Hour)
	group, err := rig.NewCgroup(columns[0].bytes)
	if err != nil {
		need.Missing(t, "run it as root on Linux, with a memory controller that can be written to", "no memory cgroup can be made: %v", err)
	}
	if err := group.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := os.Getenv("FETCHD_LIMITS") == "all"
	for i, c := range columns {
		if i > 0 && !all {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			for _, s := range settings(t, all) {
				var selected []row
				for _, r := range rows {
					if all || r.gate == s.name {
						selected = append(selected, r)
					}
				}
				lanes := 1
				if !all {
					lanes = gateLanes
				}
				for n := range lanes {
					t.Run(fmt.Sprintf("%s-%d", s.name, n+1), func(t *testing.T) {
						t.Parallel()
						l := newLane(t, c, s)
						defer l.finish()
						for i := n; i < len(selected); i += lanes {
							t.Run(selected[i].name, func(t *testing.T) { l.run(t, selected[i]) })
						}
					})
				}
			}
		})
	}
}

// lane runs rows one after the other on one process, as long as that lives.
type lane struct {
	*testing.T
	column  column
	setting setting
	config  string // of the bystander
	origin  *origin.Origin
	hostile *hostile
	args    []string

	running map[bool]*service // with and without tokens
	fields  map[bool]int      // maximum of a head over HTTP/1.1 and HTTP/2
}

func newLane(t *testing.T, c column, s setting) *lane {
	t.Helper()
	l := &lane{T: t, column: c, setting: s, hostile: newHostile(t), running: make(map[bool]*service), fields: make(map[bool]int)}
	l.origin = rig.Origin(t)
	config, err := os.ReadFile(serviceConfig)
	if err != nil {
		t.Fatal(err)
	}
	l.config = string(config)
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authorities, append(l.origin.CAPEM(), l.hostile.authority...), 0o600); err != nil {
		t.Fatal(err)
	}
	l.args = append(l.args, s.args...)
	l.args = append(l.args, "--egress-allow-cidr", "127.0.0.0/8", "--egress-ca-file", authorities)
	for _, addr := range []string{l.origin.Addr("http"), l.origin.Addr("https"), l.origin.Addr("https1"),
		l.hostile.plain.Addr().String(), l.hostile.secure.Addr().String()} {
		_, port, _ := strings.Cut(addr, ":")
		l.args = append(l.args, "--egress-allow-port", port)
	}
	return l
}

// service returns the lane's process, and starts it if there is none.
func (l *lane) service(t *testing.T, withTokens bool) *service {
	t.Helper()
	if s := l.running[withTokens]; s != nil {
		return s
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var callers *tokens
	if withTokens {
		var err error
		if callers, err = newTokens(l.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := startService(ctx, l.column.bytes, l.args, callers)
	if err != nil {
		t.Fatal(err)
	}
	l.running[withTokens] = s
	return s
}

// drop stops a process that has ended or must not be reused.
func (l *lane) drop(t *testing.T, s *service) {
	t.Helper()
	delete(l.running, s.tokens != nil)
	if err := s.stop(t.Context()); err != nil {
		t.Errorf("remove the cgroup: %v", err)
	}
}

// finish compares the process's size with its size when idle, and stops it.
func (l *lane) finish() {
	var waits sync.WaitGroup
	for _, s := range l.running {
		waits.Go(func() {
			began := time.Now()
			size, err := s.settles(l.Context())
			if err != nil {
				l.Error(err)
			}
			l.Logf("resident %s, %s when idle, %v after the last row", mib(size), mib(s.idle), time.Since(began).Round(time.Second))
		})
	}
	waits.Wait()
	for _, s := range l.running {
		l.drop(l.T, s)
	}
}
