package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/internal/cli"
)

// reported is the verdict of each row of a category of which a guard fails one, while its maintainers have time to fix that.
const reported kit.Verdict = "reported"

// record is a record and the page of its evidence.
type record struct {
	*judge.Record
	// Kind says what kind of guard it is, and Reproduce how to judge it again. Days has the day on which each category of
	// a guard was reported to its maintainers.
	Kind, Reproduce string
	Days            map[string]string
	Page            string
}

// ways are the kinds of records of each folder below that of the results.
var ways = []struct {
	folder string
	ways   []string
}{{"", []string{"client", "service", "decide"}}, {"guard", []string{"guard"}}}

// read reads the records of a folder, sorted by name. An error names the file.
func read(folder string) ([]*record, error) {
	var all []*record
	files := make(map[string]string) // by page
	for _, f := range ways {
		folder := filepath.Join(folder, f.folder)
		entries, err := os.ReadDir(folder)
		if f.folder != "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() || filepath.Ext(entry.Name()) != ".json" {
				continue
			}
			file := filepath.Join(folder, entry.Name())
			r, err := readRecord(file)
			if err == nil && !slices.Contains(f.ways, r.Way) {
				err = fmt.Errorf("a record of way %q does not belong into this folder", r.Way)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			r.Page = r.Way + "-" + safe(r.Subject) + ".html"
			if other := files[r.Page]; other != "" {
				return nil, fmt.Errorf("%s: the name %q is also that of %s", file, r.Subject, other)
			}
			files[r.Page] = file
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no records", folder)
	}
	slices.SortFunc(all, func(a, b *record) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Subject), strings.ToLower(b.Subject)), strings.Compare(a.Subject, b.Subject))
	})
	return all, nil
}

// readRecord reads a record and checks what the pages rely on. Programs of others have a say in its text: characters that
// could hide or reverse it are escaped.
func readRecord(file string) (*record, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(record)
	if r.Record, err = judge.ReadRecord(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	var more struct {
		Kind, Reproduce string
		Levels          []struct{ Level, Reported string }
	}
	if err := json.Unmarshal(data, &more); err != nil {
		return nil, err
	}
	r.Kind, r.Reproduce, r.Days = cli.Escape(more.Kind), cli.Escape(more.Reproduce), make(map[string]string)
	for _, l := range more.Levels {
		r.Days[cli.Escape(l.Level)] = cli.Escape(l.Reported)
	}
	for _, text := range []*string{&r.Judge, &r.Data, &r.Subject, &r.Command, &r.Version} {
		*text = cli.Escape(*text)
	}
	if r.Subject == "" || len(r.Results) == 0 {
		return nil, errors.New("it has no name or no results")
	}
	seen := make(map[string]bool)
	for i := range r.Results {
		x := &r.Results[i]
		x.Kind, x.Name, x.Level = cli.Escape(x.Kind), cli.Escape(x.Name), cli.Escape(x.Level)
		for j := range x.Failures {
			x.Failures[j] = cli.Escape(x.Failures[j])
		}
		what := x.Kind + " " + strconv.Quote(x.Name)
		if seen[what] {
			return nil, fmt.Errorf("%s has two results", what)
		}
		seen[what] = true
		switch x.Verdict {
		case kit.Held, kit.Failed, kit.NotApplicable, kit.NotRun:
		case reported:
			if r.Way == "guard" {
				break
			}
			fallthrough
		default:
			return nil, fmt.Errorf("%s: the verdict %q is unknown", what, x.Verdict)
		}
	}
	return r, nil
}

var unsafe = regexp.MustCompile(`[^a-z0-9.]+`)

// safe makes a part of a file name, or of an anchor, from a name. Different names have different ones, also where case
// does not count.
func safe(name string) string {
	short := strings.Trim(unsafe.ReplaceAllString(name, "-"), "-.")
	if short == name && name != "" && len(name) <= 60 {
		return name
	}
	short = strings.Trim(unsafe.ReplaceAllString(strings.ToLower(name), "-"), "-.")
	hash := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%.40s--%x", short, hash[:4])
}
