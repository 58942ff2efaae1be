// Package timelinetest holds the messages of fetches with fixed times, for tests
// of what is made of them.
package timelinetest

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "fetchd/gen/fetchd/v1"
)

// Flaky is a fetch of three attempts: a redirect to a 503 over TLS; a connection
// that is refused; a success after the redirect, on a connection that was kept,
// after some time in a queue. The second wait is a Retry-After.
func Flaky() ([]*pb.FetchResponse, error) { return parse(flaky) }

// Stalled is a fetch whose record ends in its first attempt: a redirect was
// followed, and no answer came since.
func Stalled() ([]*pb.FetchResponse, error) { return parse(flaky[:3]) }

// Start is when the fetches begin.
func Start() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC) }

// Request is what was asked for.
func Request() *pb.FetchRequest {
	return &pb.FetchRequest{Url: "https://origin.example/a?q=1&empty&p=a%20b#part", Headers: []*pb.Header{
		{Name: "Accept", Value: "text/html"}, {Name: "authorization", Value: "Bearer hush"},
		{Name: "Cookie", Value: "session=hush; theme=hush"}, {Name: "X-Api-Key", Value: "hush"},
	}}
}

func parse(lines []string) ([]*pb.FetchResponse, error) {
	var messages []*pb.FetchResponse
	for i, line := range lines {
		m := new(pb.FetchResponse)
		if err := protojson.Unmarshal([]byte(line), m); err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

const first = `"url":"https://origin.example/a?q=1&empty&p=a%20b","method":"GET","statusCode":302,"locationUrl":"https://origin.example/b"`

var flaky = []string{
	`{"sequence":1,"admitted":{"fetchId":"F1","effectiveRequest":{"url":"https://origin.example/a?q=1&empty&p=a%20b#part","method":"GET"},
		"startTime":"2026-03-04T05:06:07.089Z"}}`,
	`{"sequence":2,"elapsedOffset":"0.0001s","attemptStarted":{"attempt":1,"url":"https://origin.example/a?q=1&empty&p=a%20b"}}`,
	`{"sequence":3,"elapsedOffset":"0.050s","redirectFollowed":{"attempt":1,"hop":{` + first + `,"startOffset":"0s",
		"headers":[{"name":"Location","value":"/b"},{"name":"Set-Cookie","value":"session=hush; Path=/"}],
		"exchange":{"remoteAddress":"192.0.2.1:443","protocol":"HTTP/2.0","tlsVersion":"TLS 1.3","resolveDuration":"0.005s",
		"connectDuration":"0.010s","tlsDuration":"0.015s","processingDuration":"0.018s"}}}}`,
	`{"sequence":4,"elapsedOffset":"0.080s","responseStarted":{"attempt":1,"response":{"statusCode":503,"protocol":"HTTP/2.0",
		"headers":[{"name":"Content-Type","value":"text/plain"}]}}}`,
	`{"sequence":5,"elapsedOffset":"0.100s","attemptFinished":{"attempt":1,"response":{"statusCode":503,"protocol":"HTTP/2.0",
		"headers":[{"name":"Content-Type","value":"text/plain"}]},
		"error":{"errorClass":"ERROR_CLASS_HTTP_SERVER_ERROR","failureType":"FAILURE_TYPE_TRANSIENT","phase":"PHASE_PROCESSING","rule":"H1",
			"message":"the origin answered with a server error","retryable":true,"url":"https://origin.example/b"},
		"retryDecision":{"verdict":"RETRY_VERDICT_RETRY","delay":"0.200s","delaySource":"DELAY_SOURCE_BACKOFF","rule":"W1","nextAttempt":2,
			"start":"RETRY_START_FIRST_URL"},
		"hops":[{` + first + `,"startOffset":"0s","exchange":{"remoteAddress":"192.0.2.1:443","protocol":"HTTP/2.0","tlsVersion":"TLS 1.3",
			"resolveDuration":"0.005s","connectDuration":"0.010s","tlsDuration":"0.015s","processingDuration":"0.018s"}},
			{"url":"https://origin.example/b","method":"GET","statusCode":503,"startOffset":"0.050s","exchange":{
			"remoteAddress":"192.0.2.1:443","protocol":"HTTP/2.0","tlsVersion":"TLS 1.3","connectionReused":true,
			"processingDuration":"0.030s","transferDuration":"0.020s","backpressureDuration":"0.0025s"}}]}}`,
	`{"sequence":6,"elapsedOffset":"0.300s","attemptStarted":{"attempt":2,"url":"https://origin.example/a?q=1&empty&p=a%20b"}}`,
	`{"sequence":7,"elapsedOffset":"0.320s","attemptFinished":{"attempt":2,
		"error":{"errorClass":"ERROR_CLASS_CONNECT_REFUSED","failureType":"FAILURE_TYPE_TRANSIENT","phase":"PHASE_CONNECT","rule":"N2",
			"message":"the connection was refused","retryable":true,"url":"https://origin.example/a?q=1&empty&p=a%20b"},
		"retryDecision":{"verdict":"RETRY_VERDICT_RETRY","delay":"0.400s","delaySource":"DELAY_SOURCE_RETRY_AFTER","rule":"W2","nextAttempt":3,
			"start":"RETRY_START_FIRST_URL"},
		"hops":[{"url":"https://origin.example/a?q=1&empty&p=a%20b","method":"GET","startOffset":"0.300s",
			"exchange":{"resolveDuration":"0.004s"}}]}}`,
	`{"sequence":8,"elapsedOffset":"0.720s","attemptStarted":{"attempt":3,"url":"https://origin.example/a?q=1&empty&p=a%20b"}}`,
	`{"sequence":9,"elapsedOffset":"0.800s","redirectFollowed":{"attempt":3,"hop":{` + first + `,"startOffset":"0.720s",
		"headers":[{"name":"Location","value":"/b"}],
		"exchange":{"remoteAddress":"[2001:db8::1]:443","protocol":"HTTP/2.0","tlsVersion":"TLS 1.3","queueDuration":"0.030s",
		"processingDuration":"0.050s"}}}}`,
	`{"sequence":10,"elapsedOffset":"0.900s","responseStarted":{"attempt":3,"response":{"statusCode":200,"protocol":"HTTP/2.0",
		"headers":[{"name":"Content-Encoding","value":"gzip"},{"name":"Content-Type","value":"text/html"}]}}}`,
	`{"sequence":11,"elapsedOffset":"0.950s","bodyChunk":{"attempt":3,"data":"PHA+aGk8L3A+"}}`,
	`{"sequence":12,"elapsedOffset":"1s","attemptFinished":{"attempt":3,"response":{"statusCode":200,"protocol":"HTTP/2.0",
		"headers":[{"name":"Content-Encoding","value":"gzip"},{"name":"Content-Type","value":"text/html"}]},
		"retryDecision":{"verdict":"RETRY_VERDICT_DONE","rule":"H0"},
		"hops":[{` + first + `,"startOffset":"0.720s","exchange":{"remoteAddress":"[2001:db8::1]:443","protocol":"HTTP/2.0",
			"tlsVersion":"TLS 1.3","queueDuration":"0.030s","processingDuration":"0.050s"}},
			{"url":"https://origin.example/b","method":"GET","statusCode":200,"startOffset":"0.800s","exchange":{
			"remoteAddress":"[2001:db8::1]:443","protocol":"HTTP/2.0","tlsVersion":"TLS 1.3","connectionReused":true,
			"processingDuration":"0.100s","transferDuration":"0.100s"}}]}}`,
	`{"sequence":13,"elapsedOffset":"1s","outcome":{"kind":"OUTCOME_KIND_SUCCESS","finalUrl":"https://origin.example/b","attempts":3,
		"exchanges":4,"responseAttempt":3,"rule":"H0","totalDuration":"1s","fetchId":"F1",
		"response":{"statusCode":200,"protocol":"HTTP/2.0"},"bodySummary":{"sizeBytes":"9","encodedSizeBytes":"7"}}}`,
}
