package stores

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// UseTransport sends the requests of an S3 store to another transport, so that a test can run in a
// bubble without sockets.
func (s *Store) UseTransport(t http.RoundTripper) {
	if b, ok := s.backend.(*bucket); ok {
		o := b.client.Options()
		o.HTTPClient = &http.Client{Transport: bounded{t}}
		b.client = s3.New(o)
	}
}
