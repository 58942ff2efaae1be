package main

import (
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/jsontext"
)

// jsonLines writes every event as one line of JSON, without the data of body chunks.
func jsonLines(w io.Writer) func(*pb.FetchResponse) error {
	return func(m *pb.FetchResponse) error {
		if c := m.GetBodyChunk(); c != nil {
			m = &pb.FetchResponse{Sequence: m.GetSequence(), ElapsedOffset: m.GetElapsedOffset(),
				Event: &pb.FetchResponse_BodyChunk{BodyChunk: &pb.BodyChunk{Attempt: c.GetAttempt(), OffsetBytes: c.GetOffsetBytes()}}}
		}
		return writeJSON(w, m)
	}
}

// writeJSON writes a message as one line. The same message always gives the same line.
func writeJSON(w io.Writer, m proto.Message) error {
	text, err := jsontext.MarshalMessage(m)
	if err != nil {
		return fmt.Errorf("%w: %w", client.ErrContract, err)
	}
	if _, err := w.Write(jsontext.Escape(append(text, '\n'))); err != nil {
		return cli.OutputError(err)
	}
	return nil
}
