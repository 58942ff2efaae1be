package main

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
)

// Short names for the table.
const (
	success     = pb.OutcomeKind_OUTCOME_KIND_SUCCESS
	notModified = pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED
	failed      = pb.OutcomeKind_OUTCOME_KIND_FAILED

	transient   = pb.FailureType_FAILURE_TYPE_TRANSIENT
	permanent   = pb.FailureType_FAILURE_TYPE_PERMANENT
	rateLimited = pb.FailureType_FAILURE_TYPE_RATE_LIMITED

	notRetryable      = pb.RetryVerdict_RETRY_VERDICT_NOT_RETRYABLE
	attemptsExhausted = pb.RetryVerdict_RETRY_VERDICT_ATTEMPTS_EXHAUSTED
	retryAfterTooLong = pb.RetryVerdict_RETRY_VERDICT_RETRY_AFTER_TOO_LONG
	notIdempotent     = pb.RetryVerdict_RETRY_VERDICT_NOT_IDEMPOTENT
	bodyCommitted     = pb.RetryVerdict_RETRY_VERDICT_BODY_COMMITTED
	deadlinePassed    = pb.RetryVerdict_RETRY_VERDICT_DEADLINE
)

// backoff and asked are waits by W1 and by W2.
func backoff(d time.Duration) wait { return wait{d, pb.DelaySource_DELAY_SOURCE_BACKOFF, "W1"} }

func asked(d time.Duration) wait { return wait{d, pb.DelaySource_DELAY_SOURCE_RETRY_AFTER, "W2"} }

// firstWait is the default before the first retry of profile STANDARD.
const firstWait = 200 * time.Millisecond

// quick is a policy whose first wait is 20 ms, where the wait is not the point.
func quick() *pb.RetryPolicy {
	return &pb.RetryPolicy{BaseDelay: durationpb.New(10 * time.Millisecond)}
}

// scenarios are the demo, in the order of docs/spec.md's subjects. It is
// constant.
var scenarios = []scenario{
	{
		name: "503 then 200", story: "The origin is overloaded once. The second attempt gets the page.",
		at: "http", path: "/s/KEY/503/200:size=2000",
		want: expectation{kind: success, waits: []wait{backoff(firstWait)}, requests: 2, body: 2000},
		breaks: []breakage{
			{rule: "H1", what: "the origin answers 200 at once", path: "/s/KEY/200:size=2000"},
			{rule: "W1", what: "the origin says how long to wait", path: "/s/KEY/503:retry-after=1/200:size=2000"},
		},
	},
	{
		name: "503 for ever", story: "The origin stays overloaded. Three attempts are all there are; the caller may come back later.",
		at: "http", path: "/s/KEY/503:body=overloaded",
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR, rule: "H1", failure: transient, retryable: true,
			stop: attemptsExhausted, waits: []wait{backoff(firstWait), backoff(2 * firstWait)}, requests: 3},
		breaks: []breakage{
			{rule: "I4", what: "the origin recovers in time", path: "/s/KEY/503:body=overloaded/503:body=overloaded/200"},
		},
	},
	{
		name: "429 with seconds", story: "The origin limits the rate and asks for a second. It gets exactly that.",
		at: "http", path: "/s/KEY/429:retry-after=1/200:size=500",
		want: expectation{kind: success, waits: []wait{asked(time.Second)}, requests: 2, body: 500},
		breaks: []breakage{
			{rule: "H2", what: "the origin forbids instead of limiting", path: "/s/KEY/403:retry-after=1/200:size=500"},
			{rule: "W2", what: "the origin asks for no time", path: "/s/KEY/429/200:size=500"},
		},
	},
	{
		name: "429 with a date", story: "Retry-After is a date. It counts from the origin's own clock, which is decades behind.",
		at: "http", path: "/s/KEY/429:date=Sun%2C%2006%20Nov%201994%2008:49:37%20GMT,retry-after=Sun%2C%2006%20Nov%201994%2008:49:38%20GMT/200:size=500",
		want: expectation{kind: success, waits: []wait{asked(time.Second)}, requests: 2, body: 500},
		breaks: []breakage{
			{rule: "W2", what: "the date is in the past, and counts as absent",
				path: "/s/KEY/429:date=Sun%2C%2006%20Nov%201994%2008:49:37%20GMT,retry-after=Sun%2C%2006%20Nov%201994%2008:49:36%20GMT/200:size=500"},
		},
	},
	{
		name: "429 with an hour", story: "An hour is no short wait. The fetch ends at once and tells the caller when to come back.",
		at: "http", path: "/s/KEY/429:retry-after=3600/200",
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_RATE_LIMITED, rule: "H2", failure: rateLimited, retryable: true,
			stop: retryAfterTooLong, retryAfter: time.Hour, requests: 1},
		breaks: []breakage{
			{rule: "W3", what: "the origin asks for no time at all", path: "/s/KEY/429:retry-after=0/200"},
		},
	},
	{
		name: "408 for a download", story: "A downloader tries again after 408, and starts with the base delay.",
		at: "http", path: "/s/KEY/408/200:size=500",
		ask: &pb.FetchRequest{RetryPolicy: &pb.RetryPolicy{Profile: pb.RetryProfile_RETRY_PROFILE_DOWNLOAD,
			BaseDelay: durationpb.New(20 * time.Millisecond), MaxJitter: durationpb.New(0)}},
		want: expectation{kind: success, waits: []wait{backoff(20 * time.Millisecond)}, requests: 2, body: 500},
		breaks: []breakage{
			{rule: "H5", what: "the origin answers 400 instead of 408", path: "/s/KEY/400/200:size=500"},
		},
	},
	{
		name: "reset then 200", story: "The connection is reset before a byte of the answer. The second attempt gets the page.",
		at: "http-other", path: "/s/KEY/reset/200:size=2000", // no pooled connection leads there: net/http would re-send by itself
		ask:  &pb.FetchRequest{RetryPolicy: quick()},
		want: expectation{kind: success, waits: []wait{backoff(20 * time.Millisecond)}, requests: 2, body: 2000},
		breaks: []breakage{
			{rule: "N4", what: "the origin resets nothing", path: "/s/KEY/200:size=2000"},
		},
	},
	{
		name: "body cut then whole", story: "The body breaks off in the middle. Nothing of it was passed on yet, so it is an ordinary retry.",
		at: "http", path: "/s/KEY/200:size=100000,cut=60000/200:size=100000",
		ask:  &pb.FetchRequest{RetryPolicy: quick()},
		want: expectation{kind: success, waits: []wait{backoff(20 * time.Millisecond)}, requests: 2, body: 100_000},
		breaks: []breakage{
			{rule: "N8", what: "the origin sends all of it", path: "/s/KEY/200:size=100000"},
			{rule: "B1", what: "the body is cut beyond the hold-back", path: "/s/KEY/200:size=2000000,cut=1500000/200:size=100000"},
		},
	},
	{
		name: "expired certificate", story: "The certificate is past its date. Not one request is sent, and it is not tried again.",
		at: "tls-expired", path: "/s/KEY/200",
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE, rule: "N6", failure: permanent,
			stop: notRetryable, requests: 0},
		breaks: []breakage{
			{rule: "N6", what: "the certificate is good", path: "/s/KEY/200", at: "https"},
		},
	},
	{
		name: "404", story: "What is not there will not be there in 200 ms either: one request.",
		at: "http", path: "/s/KEY/404:body=not%20here/200",
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_HTTP_CLIENT_ERROR, rule: "H6", failure: permanent,
			stop: notRetryable, requests: 1},
		breaks: []breakage{
			{rule: "H6", what: "the origin answers 500 instead of 404", path: "/s/KEY/500/200"},
		},
	},
	{
		name: "304 to a condition", story: "The caller holds the current version already. That is a success.",
		at: "http", path: "/s/KEY/200:size=500,etag=%22v1%22,cond",
		ask:  &pb.FetchRequest{Precondition: &pb.Precondition{Etags: []string{`"v1"`}}},
		want: expectation{kind: notModified, requests: 1},
		breaks: []breakage{
			{rule: "H7", what: "the origin has another version", path: "/s/KEY/200:size=500,etag=%22v2%22,cond"},
		},
	},
	{
		name: "5 redirects", story: "Five redirects are followed, over TLS and HTTP/2, within one attempt.",
		at: "https", path: "/r/KEY/302/5/200:size=500",
		want: expectation{kind: success, requests: 6, final: "/s/KEY/200:size=500", body: 500},
		breaks: []breakage{
			{rule: "D1", what: "the chain is one redirect too long", path: "/r/KEY/302/6/200:size=500"},
		},
	},
	{
		name: "6 redirects", story: "The sixth is one too many. The origin saw six requests and not a seventh.",
		at: "http", path: "/r/KEY/302/6/200",
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_TOO_MANY_REDIRECTS, rule: "R1", failure: permanent,
			stop: notRetryable, requests: 6, final: "/r/KEY/302/1/200"},
		breaks: []breakage{
			{rule: "R1", what: "the chain is one redirect shorter", path: "/r/KEY/302/5/200"},
		},
	},
	{
		name: "redirect loop", story: "Two URLs redirect to each other. It is seen before the first is asked again.",
		at: "http", path: "/loop2/KEY/302",
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_REDIRECT_LOOP, rule: "R2", failure: permanent,
			stop: notRetryable, requests: 2, final: "/loop2/KEY/302/b"},
		breaks: []breakage{
			{rule: "R2", what: "the second URL answers", path: "/r/KEY/302/1/200"},
		},
	},
	{
		name: "redirect inside", story: "A redirect leads to the address from which clouds hand out credentials. The guard does not go there.",
		at: "http", path: "/s/KEY/302:to=http:%2F%2F169.254.169.254%2Flatest%2F",
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED, rule: "P1", failure: permanent,
			stop: notRetryable, requests: 1},
		breaks: []breakage{
			{rule: "P1", what: "the redirect leads where the service may go", path: "/r/KEY/302/1/200"},
		},
	},
	{
		name: "body continued", story: "The connection breaks after bytes have gone out. The rest is asked for, and what came before stands.",
		at: "http", path: "/s/KEY/200:size=900000,etag=%22v1%22,range,cut=700000/200:size=900000,etag=%22v1%22,range",
		ask:  &pb.FetchRequest{RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(10 * time.Millisecond)}},
		want: expectation{kind: success, waits: []wait{backoff(20 * time.Millisecond)}, requests: 2, body: 900_000},
		breaks: []breakage{
			{rule: "B2", what: "the origin has another version then", path: "/s/KEY/200:size=900000,etag=%22v1%22,range,cut=700000/200:size=900000,etag=%22v2%22,range"},
		},
	},
	{
		name: "body changed", story: "The same, but the origin has another version then. Half of the one and half of the other would be neither.",
		at: "http", path: "/s/KEY/200:size=900000,etag=%22v1%22,range,cut=700000/200:size=900000,etag=%22v2%22,range",
		ask: &pb.FetchRequest{RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(10 * time.Millisecond)}},
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED, rule: "N8", failure: transient, retryable: true,
			stop: bodyCommitted, waits: []wait{backoff(20 * time.Millisecond)}, requests: 2, body: 700_000},
		breaks: []breakage{
			{rule: "B3", what: "the origin still has the version", path: "/s/KEY/200:size=900000,etag=%22v1%22,range,cut=700000/200:size=900000,etag=%22v1%22,range"},
		},
	},
	{
		name: "POST without a key", story: "Nobody knows whether the origin acted on it. It is sent once, 503 or not.",
		at: "http", path: "/s/KEY/503/200:size=500",
		ask: &pb.FetchRequest{Method: "POST", Body: []byte("order=17")},
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_HTTP_SERVER_ERROR, rule: "H1", failure: transient,
			stop: notIdempotent, requests: 1},
		breaks: []breakage{
			{rule: "I2", what: "the origin answers 200 at once", path: "/s/KEY/200:size=500"},
		},
	},
	{
		name: "POST with a key", story: "With a key, and leave to repeat it, it is tried again under the same key.",
		at: "http", path: "/s/KEY/503/200:size=500",
		ask: &pb.FetchRequest{Method: "POST", Body: []byte("order=17"), RetryPolicy: &pb.RetryPolicy{
			BaseDelay: durationpb.New(10 * time.Millisecond), IdempotencyKey: "order-17", AllowNonIdempotent: true}},
		want: expectation{kind: success, waits: []wait{backoff(20 * time.Millisecond)}, requests: 2, body: 500, key: "order-17"},
		breaks: []breakage{
			{rule: "I2", what: "the origin answers 200 at once", path: "/s/KEY/200:size=500"},
		},
	},
	{
		name: "deadline", story: "The origin is silent and the call's deadline near. The typed outcome still arrives in time.",
		at: "http", path: "/s/KEY/silent", deadline: 4 * time.Second, // its reserve, 200 ms, is room enough on a busy machine
		want: expectation{kind: failed, class: pb.ErrorClass_ERROR_CLASS_DEADLINE, rule: "P3", failure: transient, retryable: true,
			stop: deadlinePassed, requests: 1},
		breaks: []breakage{
			{rule: "P3", what: "the origin answers at once", path: "/s/KEY/200"},
		},
	},
}
