package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fetchd/test/must"
	"fetchd/test/need"
)

// modules installs the packages of package-lock.json in the folder of the test, and returns their folder.
var modules = sync.OnceValues(func() (string, error) {
	found, err := exec.Command("bash", "-c", `here=$PWD; cd ../.. && . .ci/lib.sh && npm_modules "$here"`).Output()
	return filepath.Join(strings.TrimSpace(string(found)), "node_modules"), err
})

// NodeProgram returns the path of a program for Node that is in the folder of the test. It can import the
// packages of package-lock.json, which is in the same folder.
func NodeProgram(t testing.TB, name string) string {
	t.Helper()
	installed, err := modules()
	if err != nil {
		need.Missing(t, "install the Debian packages nodejs and npm", "npm cannot install the packages of package-lock.json: %v", err)
	}
	dir := t.TempDir()
	must.Succeed(t, os.Symlink(installed, filepath.Join(dir, "node_modules")))
	text, err := os.ReadFile(name)
	must.Succeed(t, err)
	path := filepath.Join(dir, name)
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	return path
}
