package jsontext_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/jsontext"
)

// TestMarshal compares the text of messages.
func TestMarshal(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"a chunk", &pb.FetchEvent{Sequence: 4, ElapsedOffset: durationpb.New(1500e6), Event: &pb.FetchEvent_BodyChunk{BodyChunk: &pb.BodyChunk{Attempt: 1, Data: []byte("a")}}},
			`{"sequence":"4","elapsed_offset":"1.500s","body_chunk":{"attempt":1,"offset_bytes":"0","data":"YQ=="}}`},
		{"an unset oneof", new(pb.FetchEvent), `{"sequence":"0"}`},
		{"defaults: false, 0, text and enums", new(pb.FetchError),
			`{"error_class":"ERROR_CLASS_UNSPECIFIED","failure_type":"FAILURE_TYPE_UNSPECIFIED","reason":"","message":"","retryable":false,"url":"","class_rule":"","detail":"","policy":"","policy_rule":"","request_state":"REQUEST_STATE_UNSPECIFIED"}`},
		{"empty lists, and an optional field that is unset", new(pb.HttpResponse), `{"status_code":0,"headers":[],"protocol":""}`},
		{"an optional field that is zero", &pb.HttpResponse{ContentLength: new(int64(0))}, `{"status_code":0,"headers":[],"content_length":"0","protocol":""}`},
		{"empty bytes", new(pb.Header), `{"name":"","value":"","raw_value":""}`},
		{"spaces and escapes in strings", &pb.Header{Name: ` a, b" : \`, Value: `\" ,`}, `{"name":" a, b\" : \\","value":"\\\" ,","raw_value":""}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := jsontext.MarshalMessage(row.m)
			if err != nil || string(got) != row.want {
				t.Errorf("%s (%v), want %s", got, err, row.want)
			}
			back := row.m.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal(got, back); err != nil || !proto.Equal(back, row.m) {
				t.Errorf("read back: %v (%v), want %v", back, err, row.m)
			}
		})
	}
	if text, err := jsontext.MarshalMessage(&pb.Header{Name: "\xff"}); err == nil {
		t.Errorf("a name that is not UTF-8: %s, want an error", text)
	}
}

// FuzzMarshal compares the text with that of json.Compact.
func FuzzMarshal(f *testing.F) {
	f.Add(`a "b\`, "", []byte{0})
	f.Add(" , ", `\\"`, []byte(nil))
	f.Fuzz(func(t *testing.T, name, value string, raw []byte) {
		m := &pb.HttpResponse{Headers: []*pb.Header{{Name: strings.ToValidUTF8(name, ""), Value: strings.ToValidUTF8(value, ""), RawValue: raw}, {}}}
		text, err := jsontext.MarshalMessage(m)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Compact(&want, text); err != nil || !bytes.Equal(text, want.Bytes()) {
			t.Errorf("%q, want %q (%v)", text, want.Bytes(), err)
		}
		if back := new(pb.HttpResponse); protojson.Unmarshal(text, back) != nil || !proto.Equal(back, m) {
			t.Errorf("%q is read as %v, want %v", text, back, m)
		}
	})
}
