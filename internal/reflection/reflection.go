// Package reflection serves a contract with its comments over gRPC reflection.
package reflection

import (
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

// Register serves the contract of a descriptor with its comments over gRPC reflection, and health and
// reflection without comments.
func Register(s *grpc.Server, descriptor []byte) error {
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(descriptor, set); err != nil {
		return fmt.Errorf("embedded descriptor: %w", err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return fmt.Errorf("embedded descriptor: %w", err)
	}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		_ = files.RegisterFile(file) // an error means that it is part of the contract
		return true
	})
	options := reflection.ServerOptions{Services: s, DescriptorResolver: files}
	reflectv1.RegisterServerReflectionServer(s, reflection.NewServerV1(options))
	reflectv1alpha.RegisterServerReflectionServer(s, reflection.NewServer(options))
	return nil
}
