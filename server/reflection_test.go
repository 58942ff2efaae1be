package server_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "fetchd/gen/fetchd/v1"
)

// asker calls the reflection service in one of its versions. Their messages have the same wire
// format.
type asker func(t *testing.T, in *reflectv1.ServerReflectionRequest) *reflectv1.ServerReflectionResponse

func (r *rig) asker(version string) asker {
	return func(t *testing.T, in *reflectv1.ServerReflectionRequest) *reflectv1.ServerReflectionResponse {
		t.Helper()
		stream, err := r.Conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
			"/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo")
		must(t, err)
		out := new(reflectv1.ServerReflectionResponse)
		must(t, errors.Join(stream.SendMsg(in), stream.RecvMsg(out), stream.CloseSend()))
		return out
	}
}

// TestReflection lists the services and reads the contract, as grpcurl does.
func TestReflection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, version := range []string{"v1", "v1alpha"} {
		t.Run(version, func(t *testing.T) {
			r := r.in(t)
			ask := r.asker(version)
			var services []string
			for _, s := range ask(t, &reflectv1.ServerReflectionRequest{
				MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
				services = append(services, s.GetName())
			}
			slices.Sort(services)
			want := []string{"fetchd.v1.FetchService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
			if diff := cmp.Diff(want, services); diff != "" {
				t.Errorf("services (-want +got)\n%s", diff)
			}
			for _, service := range want {
				if file := contract(t, ask, service); file == nil {
					t.Errorf("%s: no file descriptor", service)
				}
			}
			file := contract(t, ask, "fetchd.v1.FetchService")
			wantComments(t, file)
			plain := proto.CloneOf(file)
			plain.SourceCodeInfo = nil
			if diff := cmp.Diff(protodesc.ToFileDescriptorProto(pb.File_fetchd_v1_fetch_proto), plain, protocmp.Transform()); diff != "" {
				t.Errorf("embedded descriptor against the generated code (-generated +embedded)\n%s", diff)
			}
			byName := ask(t, &reflectv1.ServerReflectionRequest{
				MessageRequest: &reflectv1.ServerReflectionRequest_FileByFilename{FileByFilename: file.GetName()}})
			if n := len(byName.GetFileDescriptorResponse().GetFileDescriptorProto()); n == 0 {
				t.Errorf("file %s: %v", file.GetName(), byName)
			}
			unknown := ask(t, &reflectv1.ServerReflectionRequest{
				MessageRequest: &reflectv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "fetchd.v1.Nothing"}})
			if got := codes.Code(unknown.GetErrorResponse().GetErrorCode()); got != codes.NotFound {
				t.Errorf("unknown symbol: %s, want NotFound", got)
			}
		})
	}
}

// contract returns the file that holds a symbol: the first of those answered.
func contract(t *testing.T, ask asker, symbol string) *descriptorpb.FileDescriptorProto {
	t.Helper()
	answer := ask(t, &reflectv1.ServerReflectionRequest{
		MessageRequest: &reflectv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}})
	files := answer.GetFileDescriptorResponse().GetFileDescriptorProto()
	if len(files) == 0 {
		t.Fatalf("symbol %s: %v", symbol, answer)
	}
	file := new(descriptorpb.FileDescriptorProto)
	must(t, proto.Unmarshal(files[0], file))
	return file
}

// wantComments checks that every declaration of the contract has a comment.
func wantComments(t *testing.T, file *descriptorpb.FileDescriptorProto) {
	t.Helper()
	fd, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	must(t, err)
	n := 0
	check := func(d protoreflect.Descriptor) {
		n++
		if fd.SourceLocations().ByDescriptor(d).LeadingComments == "" {
			t.Errorf("%s has no comment", d.FullName())
		}
	}
	for i := range fd.Services().Len() {
		check(fd.Services().Get(i))
		for m := range fd.Services().Get(i).Methods().Len() {
			check(fd.Services().Get(i).Methods().Get(m))
		}
	}
	for i := range fd.Messages().Len() {
		check(fd.Messages().Get(i))
		for f := range fd.Messages().Get(i).Fields().Len() {
			check(fd.Messages().Get(i).Fields().Get(f))
		}
	}
	for i := range fd.Enums().Len() {
		check(fd.Enums().Get(i))
		for v := range fd.Enums().Get(i).Values().Len() {
			check(fd.Enums().Get(i).Values().Get(v))
		}
	}
	if n < 200 {
		t.Errorf("looked at %d declarations, want all of the contract's", n)
	}
}
