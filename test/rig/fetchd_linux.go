package rig

import (
	"context"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"fetchd/test/signatures"
)

// Fetchd is a fetchd as it ships, in its own process.
type Fetchd struct {
	*Process
	Addresses
	Logged Log
}

// FetchdOptions are the properties of a [Fetchd]. The zero value has none.
type FetchdOptions struct {
	Args, Env []string
	HTTP      string // address; none by default
	Cgroup    *Cgroup
}

// StartFetchd starts a fetchd until the test ends, and waits until it serves. Nothing in its log may be a key.
func StartFetchd(ctx context.Context, t testing.TB, o FetchdOptions) *Fetchd {
	t.Helper()
	args := slices.Concat([]string{Program("fetchd"), "--grpc-addr", "127.0.0.1:0", "--http-addr", o.HTTP}, o.Args)
	if o.Cgroup != nil {
		args = o.Cgroup.Command(args...)
	}
	f := new(Fetchd)
	var err error
	if f.Process, err = Start(args, o.Env, f.Logged.Add); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Stop()
		if leak := signatures.Leaked(f.Logged.String()); leak != "" {
			t.Errorf("the key %q is in the log", leak)
		}
	})
	if f.Addresses, err = f.Serving(ctx); err != nil {
		t.Fatalf("%v\n%s", err, f.Logged.String())
	}
	return f
}

// StoresFile writes a file of --stores-file with stores by name, and returns its path.
func StoresFile[T any](t testing.TB, stores map[string]T) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"stores": stores})
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "stores.yaml", text)
}
