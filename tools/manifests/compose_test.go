package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// compose reads a file as Compose does, and checks it against Compose's schema.
func compose(t *testing.T, text []byte) (*types.Project, error) {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(folder, "compose.yaml"), Content: text}},
		Environment: types.Mapping{},
	}, loader.WithProfiles([]string{"grafana", "frontier", "frontier-api"}))
}

func TestCompose(t *testing.T) {
	project, err := compose(t, read(t, filepath.Join(root, "deploy/compose.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	known := flagsOf(t)
	fetchd := project.Services["fetchd"]
	if err := named(sizing(t), int64(fetchd.MemLimit)); err != nil {
		t.Error(err)
	}
	if got, want := int64(fetchd.MemLimit), render(t, "fetchd").box().Resources.Limits.Memory().Value(); got != want {
		t.Errorf("fetchd's memory limit is %d bytes, in the chart %d", got, want)
	}
	for name := range fetchd.Environment {
		if !isVariable(name, known) {
			t.Errorf("no flag has the variable %s", name)
		}
	}
	if !fetchd.ReadOnly || !slices.Equal(fetchd.CapDrop, []string{"ALL"}) || !slices.Contains(fetchd.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("fetchd: read_only %t, cap_drop %v, security_opt %v", fetchd.ReadOnly, fetchd.CapDrop, fetchd.SecurityOpt)
	}
	if fetchd.HealthCheck == nil || !slices.Contains(fetchd.HealthCheck.Test, "healthcheck") {
		t.Error("fetchd: no health check")
	}
	serve := flagsOfCommand(t, "frontier", "serve")
	for _, arg := range project.Services["frontier-api"].Command[1:] {
		if name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "="); !slices.Contains(serve, name) {
			t.Errorf("frontier-api: frontier serve has no flag %s", arg)
		}
	}
	if api := project.Services["frontier-api"]; api.HealthCheck == nil || !slices.Contains(api.HealthCheck.Test, "healthcheck") {
		t.Error("frontier-api: no health check")
	}
	for _, service := range project.Services {
		if _, set := service.Environment["GOMEMLIMIT"]; set || service.MemLimit <= 0 {
			t.Errorf("%s: the memory limit is %d, want one, and no GOMEMLIMIT: the program derives it", service.Name, service.MemLimit)
		}
		for _, p := range service.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is published on %q, want loopback", service.Name, p.Published, p.HostIP)
			}
		}
		for _, v := range service.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", service.Name, err)
			}
		}
	}
}

func TestBrokenComposeIsRefused(t *testing.T) {
	sound := string(read(t, filepath.Join(root, "deploy/compose.yaml")))
	for _, row := range []struct{ name, old, new string }{
		{"a key that is not there", "mem_limit:", "memory_limit:"},
		{"a number that is a word", "pids_limit: 512", "pids_limit: many"},
		{"a volume that is not declared", "- prometheus:/prometheus", "- promethus:/prometheus"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := compose(t, []byte(strings.Replace(sound, row.old, row.new, 1))); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}
