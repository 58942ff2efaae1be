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
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
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
func Vectors() ([]Vector, error) {
	names, err := fs.Glob(files, "vectors/*.json")
	if err != nil {
		return nil, err
	}
	var all []Vector
	for _, name := range names {
		vectors, err := read(name)
		if err != nil {
			return nil, fmt.Errorf("conformance: %s: %w", name, err)
		}
		all = append(all, vectors...)
	}
	return all, nil
}

func read(name string) ([]Vector, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var file struct {
		About   string   `json:"about"`
		Vectors []Vector `json:"vectors"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, err
	}
	for i := range file.Vectors {
		file.Vectors[i].File = name
	}
	return file.Vectors, nil
}
