package stores

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"fetchd/internal/budget"
)

// tokenName is the metadata of an object that has the token of its upload.
const tokenName = "fetchd-upload"

// s3Sink writes one object. An object of one part is one PutObject. A longer one is a multipart
// upload, which begins when its second part does.
type s3Sink struct {
	bucket      *bucket
	memory      *budget.Lease
	key         *string
	contentType *string
	metadata    map[string]string // with the token
	part        part
	sent        int64
	created     chan struct{} // closed when the multipart upload has begun, or cannot; nil before
	id          *string       // of the multipart upload; nil before it begins and after it ends
	etags       []string      // of the parts that were sent
	uncertain   bool          // the last request failed, and the store may still carry it out
}

func newS3Sink(b *bucket, key string, o Object, memory *budget.Lease) *s3Sink {
	return &s3Sink{
		bucket: b, memory: memory, key: aws.String(key), contentType: contentType(o.ContentType),
		metadata: map[string]string{tokenName: rand.Text()}, part: part{memory: memory},
	}
}

// contentType returns nil for one that an origin made up and a header cannot contain.
func contentType(text string) *string {
	if text = strings.TrimSpace(text); text == "" || len(text) > 255 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil
	}
	return &text
}

func (s *s3Sink) space(ctx context.Context) ([]byte, error) {
	if s.part.size == partSize {
		if err := s.sendPart(ctx); err != nil {
			return nil, err
		}
	}
	return s.part.space()
}

func (s *s3Sink) wrote(n int) { s.part.size += n }

// sendPart sends the part, and begins the multipart upload before the first one.
func (s *s3Sink) sendPart(ctx context.Context) error {
	if s.id == nil {
		if err := s.create(ctx); err != nil {
			return err
		}
	}
	if len(s.etags) == maxParts {
		return ErrTooLarge
	}
	if !s.memory.Grow(budget.Body, partMemory) {
		return budget.ErrRefused
	}
	var etag string
	var err error
	if s.uncertain, err = s.request(ctx, "UploadPart", func(ctx context.Context) error {
		if _, err := s.part.Seek(0, 0); err != nil {
			return err
		}
		out, err := s.bucket.client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: s.bucket.name, Key: s.key, UploadId: s.id, PartNumber: aws.Int32(int32(len(s.etags) + 1)),
			Body: &s.part, ContentLength: aws.Int64(int64(s.part.size)),
		})
		if err != nil {
			return err
		}
		if etag = short(out.ETag, maxETag); etag == "" {
			return errors.New("the response has no valid ETag")
		}
		return nil
	}); err != nil {
		return err
	}
	s.etags = append(s.etags, etag)
	s.sent += int64(s.part.size)
	s.part.reset()
	return nil
}

// create begins the multipart upload. If ctx ends, the caller does not wait, but the request goes on
// for a moment: an upload whose ID is not known cannot be aborted.
func (s *s3Sink) create(ctx context.Context) error {
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.created = make(chan struct{})
	var err error
	go func() {
		defer close(s.created)
		defer cancel()
		_, err = s.request(live, "CreateMultipartUpload", s.createOnce)
	}()
	select {
	case <-s.created:
		return err
	case <-ctx.Done():
		time.AfterFunc(shortLimit, cancel)
		return context.Cause(ctx)
	}
}

func (s *s3Sink) createOnce(ctx context.Context) error {
	out, err := s.bucket.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: s.bucket.name, Key: s.key, ContentType: s.contentType, Metadata: s.metadata,
	})
	if err != nil {
		return err
	}
	id := short(out.UploadId, maxID)
	if id == "" {
		return errors.New("the response has no valid upload ID")
	}
	s.id = &id
	return nil
}

func (s *s3Sink) request(ctx context.Context, op string, do func(context.Context) error) (maybe bool, err error) {
	return s.bucket.request(ctx, op, maxTries, requestLimit, do)
}

func (s *s3Sink) commit(ctx context.Context, _ string) (stored Stored, err error) {
	var maybe bool
	if s.id == nil {
		stored, maybe, err = s.put(ctx)
	} else {
		if s.part.size > 0 {
			if err := s.sendPart(ctx); err != nil {
				return Stored{}, err
			}
		}
		stored, maybe, err = s.complete(ctx)
	}
	s.uncertain = maybe
	if err != nil && maybe && ctx.Err() == nil {
		if found, ok := s.find(ctx); ok {
			stored, err = found, nil
		}
	}
	if err == nil {
		s.id = nil
	}
	return stored, err
}

func (s *s3Sink) put(ctx context.Context) (stored Stored, maybe bool, err error) {
	s.sent = int64(s.part.size)
	maybe, err = s.request(ctx, "PutObject", func(ctx context.Context) error {
		if _, err := s.part.Seek(0, 0); err != nil {
			return err
		}
		out, err := s.bucket.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: s.bucket.name, Key: s.key, ContentType: s.contentType, Metadata: s.metadata,
			Body: &s.part, ContentLength: aws.Int64(int64(s.part.size)),
		})
		if err == nil {
			stored = Stored{ETag: short(out.ETag, maxETag), Version: short(out.VersionId, maxID)}
		}
		return err
	})
	return stored, maybe, err
}

func (s *s3Sink) complete(ctx context.Context) (stored Stored, maybe bool, err error) {
	// The list is charged with partMemory.
	parts := make([]types.CompletedPart, len(s.etags))
	for i := range s.etags {
		parts[i] = types.CompletedPart{ETag: &s.etags[i], PartNumber: aws.Int32(int32(i + 1))}
	}
	maybe, err = s.request(ctx, "CompleteMultipartUpload", func(ctx context.Context) error {
		out, err := s.bucket.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: s.bucket.name, Key: s.key, UploadId: s.id, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		})
		if err != nil {
			return err
		}
		// A store sends the status 200 before it begins, so that the status alone means nothing.
		if stored = (Stored{ETag: short(out.ETag, maxETag), Version: short(out.VersionId, maxID)}); stored.ETag == "" {
			return errors.New("the response has no valid ETag")
		}
		return nil
	})
	return stored, maybe, err
}

// find asks the store for the object after the response to the last request was lost.
func (s *s3Sink) find(ctx context.Context) (stored Stored, ok bool) {
	_, err := s.bucket.request(ctx, "HeadObject", maxTries, shortLimit, func(ctx context.Context) error {
		out, err := s.bucket.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: s.bucket.name, Key: s.key})
		if err == nil {
			ok = out.Metadata[tokenName] == s.metadata[tokenName] && aws.ToInt64(out.ContentLength) == s.sent
			stored = Stored{ETag: short(out.ETag, maxETag), Version: short(out.VersionId, maxID)}
		}
		return err
	})
	return stored, ok && err == nil
}

func (s *s3Sink) busy() bool {
	if s.created == nil {
		return false
	}
	select {
	case <-s.created:
		return s.id != nil
	default:
		return true
	}
}

// discard aborts the multipart upload with a single try: the lifecycle rule of the bucket or
// [Store.Clean] removes what is left. A part that the store is still receiving may outlive the
// abort, so a second one follows.
func (s *s3Sink) discard(ctx context.Context) {
	s.part.reset()
	if s.created != nil {
		<-s.created
	}
	if s.id == nil {
		return
	}
	_ = s.bucket.abort(ctx, *s.key, *s.id, 1, shortLimit)
	if s.uncertain {
		<-time.After(abortPause)
		_ = s.bucket.abort(ctx, *s.key, *s.id, 1, shortLimit)
	}
}

// short returns a text of the store, or an empty one if it is too long or cannot be printed.
func short(text *string, most int) string {
	t := aws.ToString(text)
	if len(t) > most || strings.ContainsFunc(t, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return t
}
