//go:build linux

package warc

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fetchd/test/must"
	"fetchd/test/rig"
)

// record is a record as check.mjs reads it.
type record struct {
	File        string      `json:"file"`
	Offset      int64       `json:"offset"`
	Length      int64       `json:"length"`
	Type        string      `json:"type"`
	ID          string      `json:"id"`
	URI         string      `json:"uri"`
	BlockSize   int64       `json:"block_size"`
	Fields      [][2]string `json:"fields"`
	Start       string      `json:"start"` // the first line of an HTTP message
	Head        []string    `json:"head"`  // its field lines
	PayloadSize int64       `json:"payload_size"`
	BodySize    int64       `json:"body_size"` // of the payload without the framing of chunks
	BodySHA256  string      `json:"body_sha256"`
}

// field returns the value of a field of the record, or "".
func (r *record) field(name string) string {
	for _, f := range r.Fields {
		if strings.EqualFold(f[0], name) {
			return f[1]
		}
	}
	return ""
}

// checker is the path of check.mjs.
type checker string

func newChecker(t *testing.T) checker {
	t.Helper()
	return checker(rig.NodeProgram(t, "check.mjs"))
}

// run runs check.mjs, within a minute because warcio may not end. faults is what it writes to
// standard error.
func (c checker) run(ctx context.Context, t *testing.T, args ...string) (records []record, faults string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, faults, err := run(ctx, t, "node", append([]string{string(c)}, args...)...)
	if err != nil && faults == "" || ctx.Err() != nil {
		t.Fatalf("check.mjs %q: %v", args, err)
	}
	for line := range strings.Lines(out) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("check.mjs: %v in %q", err, line)
		}
		records = append(records, r)
	}
	return records, faults
}

// read checks whole files with check.mjs and with fetchctl warc check, and returns their records.
func (c checker) read(ctx context.Context, t *testing.T, files ...string) []record {
	t.Helper()
	if len(files) == 0 {
		return nil
	}
	records, faults := c.run(ctx, t, files...)
	if faults != "" {
		t.Errorf("check.mjs: %.2000s", faults)
	}
	out, faults, err := run(ctx, t, rig.Program("fetchctl"), append([]string{"warc", "check"}, files...)...)
	if err != nil || faults != "" {
		t.Errorf("fetchctl warc check: %v\n%.2000s%.2000s", err, out, faults)
	}
	return records
}

// wholeFiles returns the paths of the closed files in dir.
func wholeFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.warc.gz"))
	must.Succeed(t, err)
	return files
}

func openFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.open"))
	must.Succeed(t, err)
	return files
}

// TestChecker damages a correct file. check.mjs must report each fault, and fetchctl warc check each
// that violates the standard.
func TestChecker(t *testing.T) {
	t.Parallel()
	ctx := rig.Long(t, 2*time.Minute)
	c := newChecker(t)
	const name = "a.warc.gz"
	good := sample(t, name)
	for _, row := range []struct {
		name   string
		change func([]member) []byte
		want   string // in the report of check.mjs; "" for none
		legal  bool   // the standard allows it, so fetchctl warc check does too
	}{
		{"no change", join, "", true},
		{"truncated in a record", func(m []member) []byte { all := join(m); return all[:len(all)-30] }, "no whole member", false},
		{"bytes after the last record", func(m []member) []byte { return append(join(m), "more"...) }, "no whole member", false},
		{"two records in a member", func(m []member) []byte {
			m[1].text = append(m[1].text, m[2].text...)
			return join(append(m[:2], m[3:]...))
		}, "the member has", false},
		{"one record in two members", func(m []member) []byte {
			half := len(m[1].text) / 2
			return join([]member{m[0], {m[1].text[:half]}, {m[1].text[half:]}, m[2]})
		}, "a.warc.gz at", false},
		{"another byte in a block", func(m []member) []byte {
			m[2].text = bytes.Replace(m[2].text, []byte("hello"), []byte("jello"), 1)
			return join(m)
		}, "WARC-Block-Digest is", false},
		{"another payload digest", func(m []member) []byte {
			at := bytes.Index(m[2].text, []byte("WARC-Payload-Digest: sha1:")) + len("WARC-Payload-Digest: sha1:")
			copy(m[2].text[at:], "AAAA")
			return join(m)
		}, "WARC-Payload-Digest is", false},
		{"Content-Length is too small", func(m []member) []byte {
			m[2].text = bytes.Replace(m[2].text, []byte("\r\nContent-Length: 4"), []byte("\r\nContent-Length: 3"), 1)
			return join(m)
		}, "does not end after Content-Length", false},
		{"a record twice", func(m []member) []byte { return join(append(m, m[2])) }, "another record has the same WARC-Record-ID", false},
		{"no request", func(m []member) []byte { return join([]member{m[0], m[2]}) }, "WARC-Concurrent-To is in none of the files", true},
		{"no warcinfo", func(m []member) []byte { return join(m[1:]) }, "the first record is not a warcinfo record", true},
		{"another file name", func(m []member) []byte {
			m[0].text = bytes.Replace(m[0].text, []byte("Filename: a."), []byte("Filename: b."), 1)
			return join(m)
		}, "WARC-Filename is b.warc.gz", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name)
			changed := row.change(split(t, good))
			must.Succeed(t, os.WriteFile(file, changed, 0o600))
			records, faults := c.run(ctx, t, file)
			if row.want == "" && (faults != "" || len(records) != 3) || !strings.Contains(faults, row.want) {
				t.Errorf("%d records, standard error is %q, want %q", len(records), faults, row.want)
			}
			out, faults, err := run(ctx, t, rig.Program("fetchctl"), "warc", "check", file)
			if (err == nil) != row.legal {
				t.Errorf("fetchctl warc check: %v\n%s%s", err, out, faults)
			}
		})
	}
}
