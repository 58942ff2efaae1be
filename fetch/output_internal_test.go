package fetch

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch/timers"
	"fetchd/fetch/urls"
)

// TestAttemptEndsWhileHoldBackIsSent checks that the whole hold-back is delivered even if the time limit
// of the attempt passes meanwhile. Otherwise the next attempt would resume the body after bytes that
// the caller does not have.
func TestAttemptEndsWhileHoldBackIsSent(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Egress: Egress{Unrestricted: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := NewRequest(classify.Standard)
	req.URL, _ = urls.Parse("http://origin.example/")
	var a *attempt
	var got []byte
	r := c.newRun(t.Context(), req, func(e Event) error {
		if chunk, ok := e.(BodyChunk); ok {
			a.cancel(&timers.Error{Class: classify.AttemptTimeout, Limit: time.Second})
			got = append(got, chunk.Data...)
		}
		return nil
	})
	defer r.close()
	a = r.newAttempt()
	a.newExchange()
	a.resp = &http.Response{StatusCode: http.StatusOK, ContentLength: -1}
	p := newProgress(a)
	o := newOutput(a, p)
	defer o.close()
	var sent []byte
	for i := range 10 {
		piece := bytes.Repeat([]byte{byte(i)}, chunkBytes)
		space, err := o.space()
		if err != nil {
			t.Fatal(err)
		}
		copy(space, piece)
		sent, p.size = append(sent, piece...), p.size+chunkBytes
		if err := o.wrote(chunkBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.finish(); err != nil {
		t.Errorf("finish = %v, want nil", err)
	}
	if !bytes.Equal(got, sent) || p.size != int64(len(got)) {
		t.Errorf("%d bytes were delivered, want %d; another attempt would continue at %d", len(got), len(sent), p.size)
	}
}
