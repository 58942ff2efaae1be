// Command contracts compiles the contracts and writes the Go code for them, in gen/, a descriptor for
// gRPC reflection next to each server, and the types of the Python package. It runs the plugins of
// buf.gen.yaml with buf's own compiler, and is built in seconds where buf takes minutes.
// The gate checks that "buf generate" writes the same.
//
// Run it in the root of the repository.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"github.com/bufbuild/protocompile/wellknownimports"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
	"sigs.k8s.io/yaml"
)

// plugin is an entry of buf.gen.yaml.
type plugin struct {
	Local []string // the command
	Out   string   // the folder
	Opt   []string // parameters of the plugin
}

// descriptorPaths are where the descriptor of each contract is written.
var descriptorPaths = map[string]string{
	"fetchd/v1/fetch.proto":      "server/descriptor.binpb",
	"frontier/v1/frontier.proto": "frontier/api/descriptor.binpb",
}

func main() {
	log.SetFlags(0)
	if err := generate(); err != nil {
		log.Fatal("contracts: ", err)
	}
}

func generate() error {
	config, err := os.ReadFile("buf.gen.yaml")
	if err != nil {
		return err
	}
	var settings struct{ Plugins []plugin }
	if err := yaml.Unmarshal(config, &settings); err != nil {
		return err
	}
	names, err := protoFiles()
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver:       wellknownimports.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"proto"}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	for _, file := range compiled {
		if err := writeDescriptor(file); err != nil {
			return err
		}
	}
	fetchd := compiled.FindFileByPath("fetchd/v1/fetch.proto")
	if err := pythonFiles(descriptors(fetchd), linker.Files{fetchd}); err != nil {
		return err
	}
	// A plugin that no longer writes a file must not leave the old one behind.
	if err := os.RemoveAll("gen"); err != nil {
		return err
	}
	set := descriptors(compiled...)
	var group errgroup.Group
	for _, p := range settings.Plugins {
		group.Go(func() error {
			return p.run(&pluginpb.CodeGeneratorRequest{
				FileToGenerate: names, Parameter: new(strings.Join(p.Opt, ",")), ProtoFile: set.File,
			})
		})
	}
	return group.Wait()
}

// writeDescriptor writes the descriptor of a contract and of what it imports.
func writeDescriptor(file linker.File) error {
	path, ok := descriptorPaths[file.Path()]
	if !ok {
		return fmt.Errorf("%s has no path for its descriptor: add it to descriptorPaths", file.Path())
	}
	descriptor, err := proto.MarshalOptions{Deterministic: true}.Marshal(descriptors(file))
	if err != nil {
		return err
	}
	return os.WriteFile(path, descriptor, 0o644)
}

// protoFiles returns the paths of the contracts' files, relative to proto.
func protoFiles() (names []string, err error) {
	err = fs.WalkDir(os.DirFS("proto"), ".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".proto") {
			names = append(names, path)
		}
		return err
	})
	return names, err
}

// descriptors returns the files and what they import. Each file comes after its imports.
func descriptors(files ...linker.File) *descriptorpb.FileDescriptorSet {
	set, seen := new(descriptorpb.FileDescriptorSet), map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, file := range files {
		add(file)
	}
	return set
}

// run calls the plugin and writes the files it returns.
func (p plugin) run(request *pluginpb.CodeGeneratorRequest) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	command := exec.Command(p.Local[0], p.Local[1:]...)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("%v: %w", p.Local, err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return fmt.Errorf("%v: %w", p.Local, err)
	}
	if response.Error != nil {
		return fmt.Errorf("%v: %s", p.Local, response.GetError())
	}
	for _, file := range response.GetFile() {
		path := filepath.Join(p.Out, file.GetName())
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file.GetContent()), 0o644)); err != nil {
			return err
		}
	}
	return nil
}
