//go:build linux

package replicas

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "fetchd/gen/fetchd/v1"
)

// row is one kind of call of the run whose history is checked.
type row struct {
	name, listener string
	path           string // KEY is replaced by the key of the call, GOOD(OFFSET+SIZE) by a 200 with that body
	unsure         bool
	change         func(*pb.FetchRequest)
}

// rows are faults that origins commit, and successes. Each 200 has a different body, which
// distinguishes the attempts.
var rows = []row{
	{name: "200", listener: "http", path: "/s/KEY/GOOD(0+2000),delay=20ms"},
	{name: "503, then 200", listener: "http", path: "/s/KEY/503:size=50/GOOD(100+3000)"},
	{name: "503 for ever", listener: "http", path: "/s/KEY/503"},
	{name: "429, then 200", listener: "http", path: "/s/KEY/429:retry-after=0/GOOD(7+900)"},
	{name: "503 and a wait", listener: "http", path: "/s/KEY/503:retry-after=1/GOOD(9+900)"},
	{name: "404", listener: "http", path: "/s/KEY/404:size=300"},
	{name: "POST and 503", listener: "http", path: "/s/KEY/503", change: func(r *pb.FetchRequest) { r.Method, r.Body = "POST", []byte("once") }},
	{name: "reset before the head", listener: "http", path: "/s/KEY/reset/GOOD(11+4000)"},
	{name: "reset in the head", listener: "http", path: "/s/KEY/reset:at=in-head/GOOD(12+4000)"},
	{name: "closed before the head", listener: "http", path: "/s/KEY/fin/fin/GOOD(13+4000)"},
	{name: "a cut that is held back", listener: "http", path: "/s/KEY/GOOD(1000+9000),cut=5000/GOOD(20000+7000)"},
	{name: "a reset that is held back", listener: "http", path: "/s/KEY/GOOD(1000+9000),cut=5000,how=rst/GOOD(30000+11000)"},
	{name: "a cut that is not", listener: "http", path: "/s/KEY/GOOD(500+300000),cut=200000,how=rst/GOOD(40000+300000)", change: holdNothing},
	{name: "a slow body", listener: "http", path: "/s/KEY/GOOD(3+3000),drip=500@10ms"},
	{name: "a slow body that is not held back", listener: "http", path: "/s/KEY/GOOD(4+30000),drip=5000@10ms", change: holdNothing},
	{name: "a long body", listener: "http", path: "/s/KEY/GOOD(5+1500000)"},
	{name: "a coded body", listener: "http", path: "/s/KEY/503/GOOD(6+20000),coding=gzip"},
	{name: "redirects", listener: "http", path: "/r/KEY/302/3/GOOD(8+800)"},
	{name: "redirects to a 503", listener: "http", path: "/r/KEY/307/2/503/GOOD(9+800)"},
	{name: "a redirect to another port", listener: "http", path: "/cross/KEY/302/http-other/reset/GOOD(9+700)"},
	{name: "HTTP/2", listener: "https", path: "/s/KEY/GOOD(10+5000),delay=10ms"},
	{name: "HTTP/2 and 503", listener: "https", path: "/s/KEY/503/GOOD(60000+5000)"},
	{name: "a cut that is continued", listener: "http", path: "/s/KEY/GOOD(500+300000),etag=%22v%22,range,cut=200000,how=rst/GOOD(500+300000),etag=%22v%22,range", change: holdNothing},
	{name: "HTTP/2 and a cut that is continued", listener: "https", path: "/s/KEY/GOOD(500+300000),etag=%22v%22,range,cut=150000/GOOD(500+300000),etag=%22v%22,range", change: holdNothing},
	{name: "a cut, and another body then", listener: "http", path: "/s/KEY/GOOD(500+300000),etag=%22v%22,range,cut=200000,how=rst/GOOD(40000+300000),etag=%22w%22,range", change: holdNothing},
	{name: "HTTP/2 and a cut", listener: "https", path: "/s/KEY/GOOD(70000+9000),cut=5000/GOOD(80000+9000)"},
	{name: "TLS and a reset", listener: "https1", path: "/s/KEY/reset/GOOD(90000+5000)"},
	// A GOAWAY also ends other requests on that connection, read or not.
	{name: "GOAWAY", listener: "h2fault", path: "/s/KEY/h2-goaway/GOOD(11+5000)", unsure: true},
	{name: "GOAWAY with an error", listener: "h2fault", path: "/s/KEY/h2-goaway:code=2/GOOD(12+5000)", unsure: true},
	{name: "a stream that is reset", listener: "h2fault", path: "/s/KEY/h2-rst:code=2/GOOD(13+5000)", unsure: true},
	{name: "nobody listens", listener: "refused", path: "/s/KEY/GOOD(1+1)"},
	// On a slow machine the request may be abandoned before it is read.
	{name: "no answer in time", listener: "http", path: "/s/KEY/silent/GOOD(14+900)", unsure: true,
		change: func(r *pb.FetchRequest) {
			r.TimeoutPolicy = &pb.TimeoutPolicy{HeaderTimeout: durationpb.New(100 * time.Millisecond)}
		}},
	{name: "all events", listener: "http", path: "/r/KEY/302/2/503/GOOD(15+900)", change: func(r *pb.FetchRequest) { r.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL }},
	{name: "the outcome alone", listener: "http", path: "/s/KEY/503/GOOD(16+900)", change: func(r *pb.FetchRequest) { r.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME }},
}

func holdNothing(r *pb.FetchRequest) {
	r.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: &pb.StreamDelivery{MaxHoldBackBytes: new(int64)}}}
}

// script returns the path of the row for a key.
func (r *row) script(key string) string {
	path := strings.ReplaceAll(r.path, "KEY", key)
	for {
		before, rest, ok := strings.Cut(path, "GOOD(")
		if !ok {
			return path
		}
		label, after, _ := strings.Cut(rest, ")")
		offset, size, _ := strings.Cut(label, "+")
		path = fmt.Sprintf("%s200:size=%s,offset=%s,header=%s=%s%s", before, size, offset, bodyLabel, label, after)
	}
}

// request returns a request of the row with short waits.
func (r *row) request(url string) *pb.FetchRequest {
	in := &pb.FetchRequest{Url: url, RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(20 * time.Millisecond)}}
	if r.change != nil {
		r.change(in)
	}
	return in
}
