package frontier

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// recordPolicy returns the policy of a request for url, or nil if the crawl is not recorded. earlier
// is sent to its own origin only: a 304 of another origin says nothing about it.
func (c *Config) recordPolicy(url string, earlier store.Earlier) *pb.RecordPolicy {
	if c.RecordStore == "" {
		return nil
	}
	p := &pb.RecordPolicy{Store: c.RecordStore}
	date, err := time.Parse(time.RFC3339Nano, earlier.Date)
	here, _ := normal.OriginOf(url)
	if there, _ := normal.OriginOf(earlier.URL); err == nil && here == there {
		p.Earlier = &pb.EarlierRecord{RecordId: earlier.RecordID, Url: earlier.URL, RecordTime: timestamppb.New(date), PayloadDigest: earlier.PayloadDigest}
	}
	return p
}

// responseRecord returns the record of the response of an outcome, or nil.
func responseRecord(o *pb.FetchOutcome) *pb.WarcRecord {
	for _, r := range slices.Backward(o.GetRecords()) {
		if r.GetType() != pb.WarcType_WARC_TYPE_REQUEST && r.GetAttempt() == o.GetResponseAttempt() {
			return r
		}
	}
	return nil
}

// archivedOf returns where the response of an outcome is.
func archivedOf(o *pb.FetchOutcome) store.Archived {
	r := responseRecord(o)
	if r == nil {
		return store.Archived{}
	}
	return store.Archived{File: r.GetFile(), Offset: r.GetOffsetBytes(), Length: r.GetLengthBytes(), RecordID: r.GetRecordId(),
		Date: dateOf(r), PayloadDigest: r.GetPayloadDigest()}
}

func dateOf(r *pb.WarcRecord) string { return r.GetRecordTime().AsTime().Format(time.RFC3339Nano) }

// earlierOf returns the record that the next fetch may refer to after a success. It is that of the
// response, or before if the response was recorded as a revisit of it. A payload that is not whole
// in one record has none: it was truncated, or continued by another attempt.
func earlierOf(o *pb.FetchOutcome, before store.Earlier) store.Earlier {
	r := responseRecord(o)
	switch {
	case r == nil || o.GetBodySummary().GetTruncated() || r.GetAttempt() != o.GetAttempts():
		return store.Earlier{}
	case r.GetType() == pb.WarcType_WARC_TYPE_REVISIT:
		return before
	}
	return store.Earlier{RecordID: r.GetRecordId(), URL: lastURL(o), Date: dateOf(r), PayloadDigest: r.GetPayloadDigest()}
}

// errNotRecorded means that a service does not know the field record of a request.
var errNotRecorded = errors.New("the service has fetched and not recorded it: use one that can record")

// recordError returns why the service could not record a fetch, or nil.
func (c *Config) recordError(o *pb.FetchOutcome) error {
	if c.RecordStore == "" {
		return nil
	}
	f := o.GetError()
	switch text := message(f); f.GetErrorClass() {
	case pb.ErrorClass_ERROR_CLASS_STORE_FAILURE:
		return fmt.Errorf("%s: %s", f.GetReason(), text)
	case pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST: // the service has another configuration than when the worker started
		if strings.Contains(text, "record.store") || strings.Contains(text, fmt.Sprintf("may not use the store %q", c.RecordStore)) {
			return errors.New(text)
		}
	}
	if o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS && len(o.GetRecords()) == 0 {
		return errNotRecorded
	}
	return nil
}
