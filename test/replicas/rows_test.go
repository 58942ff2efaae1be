//go:build linux

package replicas

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
)

// row is one kind of call of the soak test.
type row struct {
	name, listener string
	path           string // KEY is replaced by the key of the call
	change         func(*pb.FetchRequest)
}

// rows are faults that origins commit, and successes.
var rows = []row{
	{name: "200", listener: "http", path: "/s/KEY/200:size=2000,offset=0,delay=20ms"},
	{name: "503, then 200", listener: "http", path: "/s/KEY/503:size=50/200:size=3000,offset=100"},
	{name: "503 for ever", listener: "http", path: "/s/KEY/503"},
	{name: "429, then 200", listener: "http", path: "/s/KEY/429:retry-after=0/200:size=900,offset=7"},
	{name: "503 and a wait", listener: "http", path: "/s/KEY/503:retry-after=1/200:size=900,offset=9"},
	{name: "404", listener: "http", path: "/s/KEY/404:size=300"},
	{name: "POST and 503", listener: "http", path: "/s/KEY/503", change: func(r *pb.FetchRequest) { r.Method, r.Body = "POST", []byte("once") }},
	{name: "reset before the head", listener: "http", path: "/s/KEY/reset/200:size=4000,offset=11"},
	{name: "reset in the head", listener: "http", path: "/s/KEY/reset:at=in-head/200:size=4000,offset=12"},
	{name: "closed before the head", listener: "http", path: "/s/KEY/fin/fin/200:size=4000,offset=13"},
	{name: "a cut that is held back", listener: "http", path: "/s/KEY/200:size=9000,offset=1000,cut=5000/200:size=7000,offset=20000"},
	{name: "a reset that is held back", listener: "http", path: "/s/KEY/200:size=9000,offset=1000,cut=5000,how=rst/200:size=11000,offset=30000"},
	{name: "a cut that is not", listener: "http", path: "/s/KEY/200:size=300000,offset=500,cut=200000,how=rst/200:size=300000,offset=40000", change: holdNothing},
	{name: "a slow body", listener: "http", path: "/s/KEY/200:size=3000,offset=3,drip=500@10ms"},
	{name: "a slow body that is not held back", listener: "http", path: "/s/KEY/200:size=30000,offset=4,drip=5000@10ms", change: holdNothing},
	{name: "a long body", listener: "http", path: "/s/KEY/200:size=1500000,offset=5"},
	{name: "a coded body", listener: "http", path: "/s/KEY/503/200:size=20000,offset=6,coding=gzip"},
	{name: "redirects", listener: "http", path: "/r/KEY/302/3/200:size=800,offset=8"},
	{name: "redirects to a 503", listener: "http", path: "/r/KEY/307/2/503/200:size=800,offset=9"},
	{name: "a redirect to another port", listener: "http", path: "/cross/KEY/302/http-other/reset/200:size=700,offset=9"},
	{name: "HTTP/2", listener: "https", path: "/s/KEY/200:size=5000,offset=10,delay=10ms"},
	{name: "HTTP/2 and 503", listener: "https", path: "/s/KEY/503/200:size=5000,offset=60000"},
	{name: "a cut that is continued", listener: "http", path: "/s/KEY/200:size=300000,offset=500,etag=%22v%22,range,cut=200000,how=rst/200:size=300000,offset=500,etag=%22v%22,range", change: holdNothing},
	{name: "HTTP/2 and a cut that is continued", listener: "https", path: "/s/KEY/200:size=300000,offset=500,etag=%22v%22,range,cut=150000/200:size=300000,offset=500,etag=%22v%22,range", change: holdNothing},
	{name: "a cut, and another body then", listener: "http", path: "/s/KEY/200:size=300000,offset=500,etag=%22v%22,range,cut=200000,how=rst/200:size=300000,offset=40000,etag=%22w%22,range", change: holdNothing},
	{name: "HTTP/2 and a cut", listener: "https", path: "/s/KEY/200:size=9000,offset=70000,cut=5000/200:size=9000,offset=80000"},
	{name: "TLS and a reset", listener: "https1", path: "/s/KEY/reset/200:size=5000,offset=90000"},
	{name: "GOAWAY", listener: "h2fault", path: "/s/KEY/h2-goaway/200:size=5000,offset=11"},
	{name: "GOAWAY with an error", listener: "h2fault", path: "/s/KEY/h2-goaway:code=2/200:size=5000,offset=12"},
	{name: "a stream that is reset", listener: "h2fault", path: "/s/KEY/h2-rst:code=2/200:size=5000,offset=13"},
	{name: "a port without a listener", listener: "refused", path: "/s/KEY/200:size=1,offset=1"},
	{name: "no answer in time", listener: "http", path: "/s/KEY/silent/200:size=900,offset=14",
		change: func(r *pb.FetchRequest) {
			r.TimeoutPolicy = &pb.TimeoutPolicy{HeaderTimeout: durationpb.New(100 * time.Millisecond)}
		}},
	{name: "all events", listener: "http", path: "/r/KEY/302/2/503/200:size=900,offset=15", change: func(r *pb.FetchRequest) { r.EventLevel = pb.EventLevel_EVENT_LEVEL_ALL }},
	{name: "the outcome alone", listener: "http", path: "/s/KEY/503/200:size=900,offset=16", change: func(r *pb.FetchRequest) { r.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME }},
}

func holdNothing(r *pb.FetchRequest) {
	r.BodyPolicy = &pb.BodyPolicy{Delivery: &pb.BodyPolicy_Stream{Stream: &pb.StreamDelivery{MaxHoldBackBytes: new(int64)}}}
}

// request returns a request of the row, for a key, with short waits.
func (r *row) request(o *origin.Origin, key string) *pb.FetchRequest {
	url := o.URL(r.listener, strings.ReplaceAll(r.path, "KEY", key))
	in := &pb.FetchRequest{Url: url, RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(20 * time.Millisecond)}}
	if r.change != nil {
		r.change(in)
	}
	return in
}
