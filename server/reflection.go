package server

import (
	_ "embed"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// descriptor is the contract as .ci/generate compiles it, with the comments, which
// the generated code leaves out.
//
//go:embed descriptor.binpb
var descriptor []byte

// registerReflection serves the contract with its comments over gRPC reflection.
func registerReflection(s *grpc.Server) error {
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(descriptor, set); err != nil {
		return fmt.Errorf("server: embedded descriptor: %w", err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return fmt.Errorf("server: embedded descriptor: %w", err)
	}
	options := reflection.ServerOptions{Services: s, DescriptorResolver: commented{files}}
	reflectv1.RegisterServerReflectionServer(s, reflection.NewServerV1(options))
	reflectv1alpha.RegisterServerReflectionServer(s, reflection.NewServer(options))
	return nil
}

// commented resolves the contract from the descriptor, and health and reflection from generated
// code.
type commented struct{ files *protoregistry.Files }

// FindFileByPath implements protodesc.Resolver.
func (c commented) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if fd, err := c.files.FindFileByPath(path); err == nil {
		return fd, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (c commented) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := c.files.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
