package timeline_test

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	pb "fetchd/gen/fetchd/v1"
)

// flakyFetch is a fetch of three attempts: a redirect to a 503 over TLS; a connection
// that is refused; a success after the redirect, on a connection that was kept. The second wait is a Retry-After.
func flakyFetch() ([]*pb.FetchEvent, error) { return parse(flaky) }

// stalledFetch is a fetch whose record ends in its first attempt: a redirect was
// followed, and no answer came since.
func stalledFetch() ([]*pb.FetchEvent, error) { return parse(flaky[:3]) }

func parse(lines []string) ([]*pb.FetchEvent, error) {
	var messages []*pb.FetchEvent
	for i, line := range lines {
		m := new(pb.FetchEvent)
		if err := protojson.Unmarshal([]byte(line), m); err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

const first = `"url":"https://origin.example/a?q=1&empty&p=a%20b","method":"GET","status_code":302,"location_url":"https://origin.example/b"`

const handshake = `"tls_cipher_suite":"TLS_AES_128_GCM_SHA256","alpn_protocol":"h2","certificate":{"subject":"CN=origin.example,O=Example",` +
	`"issuer":"CN=Example CA","not_after":"2026-05-06T07:08:09Z","sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}`

var flaky = []string{
	`{"sequence":1,"admitted":{"fetch_id":"F1","effective_request":{"url":"https://origin.example/a?q=1&empty&p=a%20b#part","method":"GET"},
		"start_time":"2026-03-04T05:06:07.089Z"}}`,
	`{"sequence":2,"elapsed_offset":"0.0001s","attempt_started":{"attempt":1,"url":"https://origin.example/a?q=1&empty&p=a%20b"}}`,
	`{"sequence":3,"elapsed_offset":"0.050s","redirect_followed":{"attempt":1,"hop":{` + first + `,"start_offset":"0s",
		"headers":[{"name":"Location","value":"/b"},{"name":"Set-Cookie","value":"session=hush; Path=/"}],
		"exchange":{"remote_address":"192.0.2.1:443","protocol":"HTTP/2.0","tls_version":"TLS 1.3",` + handshake + `,"resolve_duration":"0.005s",
		"connect_duration":"0.010s","tls_duration":"0.015s","processing_duration":"0.018s"}}}}`,
	`{"sequence":4,"elapsed_offset":"0.080s","response_started":{"attempt":1,"response":{"status_code":503,"protocol":"HTTP/2.0",
		"headers":[{"name":"Content-Type","value":"text/plain"}]}}}`,
	`{"sequence":5,"elapsed_offset":"0.100s","attempt_finished":{"attempt":1,"response":{"status_code":503,"protocol":"HTTP/2.0",
		"headers":[{"name":"Content-Type","value":"text/plain"}]},
		"error":{"error_class":"ERROR_CLASS_HTTP_SERVER_ERROR","failure_type":"FAILURE_TYPE_TRANSIENT","phase":"PHASE_PROCESSING","class_rule":"H1",
			"message":"the origin answered with a server error","retryable":true,"url":"https://origin.example/b"},
		"retry_decision":{"rule":"W1","retry":{"attempt":2,"delay":"0.200s","delay_source":"DELAY_SOURCE_BACKOFF",
			"start":"RETRY_START_FIRST_URL"}},
		"hops":[{` + first + `,"start_offset":"0s","exchange":{"remote_address":"192.0.2.1:443","protocol":"HTTP/2.0","tls_version":"TLS 1.3",` + handshake + `,
			"resolve_duration":"0.005s","connect_duration":"0.010s","tls_duration":"0.015s","processing_duration":"0.018s"}},
			{"url":"https://origin.example/b","method":"GET","status_code":503,"start_offset":"0.050s","exchange":{
			"remote_address":"192.0.2.1:443","protocol":"HTTP/2.0","tls_version":"TLS 1.3","connection_reused":true,
			"processing_duration":"0.030s","transfer_duration":"0.020s","backpressure_duration":"0.0025s"}}]}}`,
	`{"sequence":6,"elapsed_offset":"0.300s","attempt_started":{"attempt":2,"url":"https://origin.example/a?q=1&empty&p=a%20b"}}`,
	`{"sequence":7,"elapsed_offset":"0.320s","attempt_finished":{"attempt":2,
		"error":{"error_class":"ERROR_CLASS_CONNECT_REFUSED","failure_type":"FAILURE_TYPE_TRANSIENT","phase":"PHASE_CONNECT","class_rule":"N2",
			"message":"the connection was refused","retryable":true,"url":"https://origin.example/a?q=1&empty&p=a%20b"},
		"retry_decision":{"rule":"W2","retry":{"attempt":3,"delay":"0.400s","delay_source":"DELAY_SOURCE_RETRY_AFTER",
			"start":"RETRY_START_FIRST_URL"}},
		"hops":[{"url":"https://origin.example/a?q=1&empty&p=a%20b","method":"GET","start_offset":"0.300s",
			"exchange":{"resolve_duration":"0.004s"}}]}}`,
	`{"sequence":8,"elapsed_offset":"0.720s","attempt_started":{"attempt":3,"url":"https://origin.example/a?q=1&empty&p=a%20b"}}`,
	`{"sequence":9,"elapsed_offset":"0.800s","redirect_followed":{"attempt":3,"hop":{` + first + `,"start_offset":"0.720s",
		"headers":[{"name":"Location","value":"/b"}],
		"exchange":{"remote_address":"[2001:db8::1]:443","protocol":"HTTP/2.0","tls_version":"TLS 1.3","processing_duration":"0.050s",
		"transfer_duration":"0.010s"}}}}`,
	`{"sequence":10,"elapsed_offset":"0.900s","response_started":{"attempt":3,"response":{"status_code":200,"protocol":"HTTP/2.0",
		"headers":[{"name":"Content-Encoding","value":"gzip"},{"name":"Content-Type","value":"text/html"}]}}}`,
	`{"sequence":11,"elapsed_offset":"0.950s","body_chunk":{"attempt":3,"data":"PHA+aGk8L3A+"}}`,
	`{"sequence":12,"elapsed_offset":"1s","attempt_finished":{"attempt":3,"response":{"status_code":200,"protocol":"HTTP/2.0",
		"headers":[{"name":"Content-Encoding","value":"gzip"},{"name":"Content-Type","value":"text/html"}]},
		"retry_decision":{"rule":"H0","stop_reason":"STOP_REASON_NO_FAILURE"},
		"hops":[{` + first + `,"start_offset":"0.720s","exchange":{"remote_address":"[2001:db8::1]:443","protocol":"HTTP/2.0",
			"tls_version":"TLS 1.3","processing_duration":"0.050s","transfer_duration":"0.010s"}},
			{"url":"https://origin.example/b","method":"GET","status_code":200,"start_offset":"0.800s","exchange":{
			"remote_address":"[2001:db8::1]:443","protocol":"HTTP/2.0","tls_version":"TLS 1.3","connection_reused":true,
			"processing_duration":"0.100s","transfer_duration":"0.100s"}}]}}`,
	`{"sequence":13,"elapsed_offset":"1s","outcome":{"kind":"OUTCOME_KIND_SUCCESS","final_url":"https://origin.example/b","attempt_count":3,
		"exchange_count":4,"response_attempt":3,"decision_rule":"H0","total_duration":"1s","fetch_id":"F1",
		"response":{"status_code":200,"protocol":"HTTP/2.0"},"body_summary":{"size_bytes":"9","encoded_size_bytes":"7"}}}`,
}
