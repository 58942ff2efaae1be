// Package conformance has the rules of docs/spec.md as data, for implementations in any language.
// A [Vector] states what must be decided after an observation. A [Scenario] states what a fetch
// looks like on the network. A [GuardRow] states where a client with an egress guard may connect.
// README.md in this folder describes their format.
//
// Package kit judges a server or a client by this data; fetch-conformance is its command.
// The tests of this package check the data itself. TestMutation changes package classify in every
// place where a rule could be wrong, and expects a vector to fail. It takes about 20 s; go test
// -short skips it.
package conformance

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed vectors/*.json
var files embed.FS

// Vector is an observation and the decision that must follow.
type Vector struct {
	// File is the file of the vector. Name is unique over all files.
	File string `json:"-"`
	Name string `json:"name"`
	// Why explains the expected values, Rule is the rule that it tests, and Source where it comes
	// from.
	Why    string `json:"why"`
	Rule   string `json:"rule"`
	Source string `json:"source"`

	Observation Observation `json:"observation"`
	Verdict     Verdict     `json:"verdict"`
}

// Vectors returns all vectors in the order of the files. It returns an error if a file is
// malformed.
func Vectors() (all []Vector, err error) {
	err = load(files, "vectors/*.json", func(name string, file *struct {
		About   string   `json:"about"`
		Vectors []Vector `json:"vectors"`
	}) error {
		for i := range file.Vectors {
			file.Vectors[i].File = name
		}
		all = append(all, file.Vectors...)
		return nil
	})
	return all, err
}

// load calls f for each file that matches a pattern, in the order of their names.
func load[F any](files fs.FS, pattern string, f func(name string, file *F) error) error {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		file := new(F)
		decoder := json.NewDecoder(strings.NewReader(guardAddresses.Replace(string(data))))
		decoder.DisallowUnknownFields()
		if err = decoder.Decode(file); err == nil {
			err = f(name, file)
		}
		if err != nil {
			return fmt.Errorf("conformance: %s: %w", name, err)
		}
	}
	return nil
}
