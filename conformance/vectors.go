// Package conformance holds the retry rules of docs/spec.md as data: vectors
// that say what an observation means and what follows, for any implementation
// in any language. Their form is told in this folder's README.md.
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

// Vector is one observation and what it must lead to.
type Vector struct {
	// File it stands in and Name, unique over all files.
	File string `json:"-"`
	Name string `json:"name"`
	// Why the expected values are right, the Rule it is about, and the Source.
	Why    string `json:"why"`
	Rule   string `json:"rule"`
	Source string `json:"source"`
	// Request is a fetchd.v1.ExplainRequest and Response what a
	// fetchd.v1.ExplainResponse must say, both in protobuf's JSON form.
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
}

// Vectors returns all vectors, by file and in the order of each. The error is
// about the files themselves.
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
