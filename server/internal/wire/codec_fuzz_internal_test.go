package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
)

// FuzzUnmarshal checks that the codec decodes like protobuf, and refuses only messages with too
// many elements.
func FuzzUnmarshal(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.FetchRequest{Url: "http://a.example/", Headers: []*pb.Header{{Name: "A", Value: "b"}}, Labels: map[string]string{"a": "b"}},
		&pb.FetchRequest{RetryPolicy: &pb.RetryPolicy{ExcludedStatusCodes: []int32{500, 503}}, Body: make([]byte, 20_000)},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, 1)
		f.Add(data, 20_000)
	}
	f.Fuzz(func(t *testing.T, piece []byte, times int) {
		if times < 1 || len(piece) == 0 || times*len(piece) > 1<<20 {
			return
		}
		data := bytes.Repeat(piece, times)
		got, want := new(pb.FetchRequest), new(pb.FetchRequest)
		err := NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, got)
		if CheckElements(got) != nil {
			if len(data) <= longRequest {
				t.Errorf("%d bytes are refused", len(data))
			}
			return
		}
		if wantErr := proto.Unmarshal(data, want); (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
			t.Errorf("%d bytes: %v, want %v", len(data), err, wantErr)
		}
	})
}

// FuzzJSONElements compares the count with the commas, braces and brackets outside of strings, as
// encoding/json parses them.
func FuzzJSONElements(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2,{"b":"c,\"{["}]}`, `"\\"`, `{`, `"`, `[[],"\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := badrequest.JSONElements(text)
		if !json.Valid(text) {
			return // arbitrary bytes must only not panic
		}
		want, values := 0, json.NewDecoder(bytes.NewReader(text))
		var sizes []int // of the open arrays and objects, in tokens
		for {
			token, err := values.Token()
			if err != nil {
				break
			}
			switch d, _ := token.(json.Delim); d {
			case '{', '[':
				want++
				sizes = append(sizes, 0)
				continue
			case '}', ']':
				sizes = sizes[:len(sizes)-1]
			}
			if values.More() && len(sizes) > 0 {
				want++ // a comma follows; a colon in an object does not count
			}
		}
		if got > want {
			t.Errorf("%q: %d, want at most %d", text, got, want)
		}
	})
}
