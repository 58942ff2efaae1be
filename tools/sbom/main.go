// Sbom writes the software bill of materials of a Go program, in the form of CycloneDX 1.6. It reads
// what the linker has left in the program, so equal programs have equal documents.
//
//	sbom PROGRAM FILE
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// document is the part of CycloneDX that is used.
type document struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp,omitempty"` // of the commit
	Component component `json:"component"`
}

type component struct {
	Ref     string `json:"bom-ref"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: sbom PROGRAM FILE")
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	content, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	text, err := json.MarshalIndent(describe(info, filepath.Base(args[0]), hex.EncodeToString(sum[:])), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], append(text, '\n'), 0o644)
}

// describe returns the document of a program that has the SHA-256 sum.
func describe(info *buildinfo.BuildInfo, name, sum string) document {
	program := module(&info.Main)
	program.Type, program.Name = "application", name
	program.PURL += subpath(info)
	program.Ref = program.PURL
	program.Hashes = []hash{{"SHA-256", sum}}
	version := strings.TrimPrefix(info.GoVersion, "go")
	all := []component{module(&debug.Module{Path: "std", Version: version})}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		all = append(all, module(dep))
	}
	linked := dependency{Ref: program.Ref}
	for _, c := range all {
		linked.DependsOn = append(linked.DependsOn, c.Ref)
	}
	d := document{"http://cyclonedx.org/schema/bom-1.6.schema.json", "CycloneDX", "1.6", 1, metadata{Component: program}, all, []dependency{linked}}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.time" {
			d.Metadata.Timestamp = setting.Value
		}
	}
	return d
}

// module returns the component of a module. Licenses are left out, because a program does not have them.
func module(m *debug.Module) component {
	version := strings.TrimSuffix(m.Version, "(devel)") // a build without data of a repository
	c := component{Type: "library", Name: m.Path, Version: version, PURL: purl(m.Path, version)}
	c.Ref = c.PURL
	return c
}

// purl returns the package URL of a module. The purl specification wants lower case.
func purl(name, version string) string {
	parts := strings.Split(strings.ToLower(name), "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	text := "pkg:golang/" + path.Join(parts...)
	if version != "" {
		text += "@" + url.QueryEscape(version)
	}
	return text
}

// subpath returns the folder of the program in its module, as a purl writes it.
func subpath(info *buildinfo.BuildInfo) string {
	folder, ok := strings.CutPrefix(info.Path, info.Main.Path+"/")
	if !ok {
		return ""
	}
	return "#" + folder
}
