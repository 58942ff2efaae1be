package main

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"fetchd/bench/report"
)

// subject is a load on something.
type subject struct {
	name    string
	service string // that it goes through; empty means none
	program string // that makes the load: go, python, node, curl
	kind    string
	from    string // listener of the origin: http, https or h2
	path    string
	open    int
	hold    string // what is held open in place of a load; see caller.Hold
	decide  bool   // no load, but the decision of package classify
	faults  bool   // some fetches may end as failed
}

// mode is how a row compares its two subjects.
type mode int

const (
	ratio mode = iota
	difference
	alone // there is no second one, or it is only told
)

// row is a line of the table: a figure of one subject, held against another's.
type row struct {
	name, what string
	of, beside string // names of subjects of the group
	figure     figure
	mode       mode
	goal       report.Goal
}

// group is what is measured in turn, so that what it compares was measured side by
// side.
type group struct {
	name, title  string
	subjects     []subject
	rows         []row
	share        int           // of the rounds that are made, one in so many; 0 means all
	warmup, span time.Duration // 0 means those of the run
	fresh        bool          // every run has services of its own
}

// rounds of the group, where the run has n.
func (g *group) rounds(n int) int {
	if g.share == 0 {
		return n
	}
	return (n + g.share - 1) / g.share
}

// The paths that are fetched most.
const (
	smallPath = "/b/1024"
	largePath = "/b/16777216"
	baseOpen  = 64
)

// through is a load from Go on a service.
func through(name, service, kind string) subject {
	return subject{name: name, service: service, program: "go", kind: kind, from: "http", path: smallPath, open: baseOpen}
}

// by is a load made by a program, through fetchd where its kind is one of gRPC's.
func by(name, program, kind string) subject {
	s := through(name, "", kind)
	s.program = program
	if len(kind) > 5 && kind[:5] == "grpc-" {
		s.service = "fetchd"
	}
	return s
}

// with changes a subject.
func (s subject) with(change func(*subject)) subject {
	change(&s)
	return s
}

// plan is everything that is measured, in order.
func plan() []group {
	return slices.Concat([]group{
		{name: "unary", title: "1 KiB, 64 open", subjects: []subject{
			through("relay, FetchUnary", "relay", "grpc-unary"),
			through("fetchd, FetchUnary", "fetchd", "grpc-unary"),
			through("fetchd with traces, FetchUnary", "traced", "grpc-unary"),
			through("fetchd, FetchMany", "fetchd", "grpc-many"),
		}, rows: []row{
			{name: "unary", what: "FetchUnary of 1 KiB: fetchd with its guard, metrics and log, beside the bare relay",
				of: "fetchd, FetchUnary", beside: "relay, FetchUnary", figure: serviceCPU, goal: report.AtMost(1.20)},
			{name: "unary-traced", what: "the same with traces of 0.1 % of the fetches",
				of: "fetchd with traces, FetchUnary", beside: "relay, FetchUnary", figure: serviceCPU, goal: report.AtMost(1.35)},
			{name: "many", what: "FetchMany of 1 KiB, 16 tasks a message, beside one FetchUnary each on the bare relay",
				of: "fetchd, FetchMany", beside: "relay, FetchUnary", figure: serviceCPU, goal: report.AtMost(0.85)},
		}},
		{name: "stream", title: "1 KiB, 64 open, streamed", subjects: []subject{
			through("relay, Fetch", "relay", "grpc-stream"),
			through("fetchd, Fetch", "fetchd", "grpc-stream"),
		}, rows: []row{
			{name: "stream", what: "Fetch of 1 KiB with its default events, beside the bare relay's four messages",
				of: "fetchd, Fetch", beside: "relay, Fetch", figure: serviceCPU, goal: report.AtMost(1.30)},
		}},
		{name: "engine", title: "1 KiB, 64 open, in the caller's process", subjects: []subject{
			by("net/http", "go", "net-http"),
			by("go-retryablehttp", "go", "retryablehttp"),
			by("package fetch", "go", "engine"),
		}, rows: []row{
			{name: "engine", what: "the engine alone, in the caller's process, beside go-retryablehttp",
				of: "package fetch", beside: "go-retryablehttp", figure: callerCPU, goal: report.AtMost(1.40)},
			{name: "engine-net-http", what: "the same beside net/http alone",
				of: "package fetch", beside: "net/http", figure: callerCPU},
		}},
		{name: "large", title: "16 MiB, 4 open, streamed", subjects: []subject{
			through("relay, Fetch of 16 MiB", "relay", "grpc-stream").with(large),
			through("fetchd, Fetch of 16 MiB", "fetchd", "grpc-stream").with(large),
		}, rows: []row{
			{name: "large", what: "Fetch of 16 MiB with its SHA-256, beside the bare relay with the same in chunks of 31 KiB",
				of: "fetchd, Fetch of 16 MiB", beside: "relay, Fetch of 16 MiB", figure: volume, goal: report.AtLeast(0.95)},
		}},
	}, languages(), []group{
		{name: "latency", title: "1 KiB, one open", subjects: []subject{
			by("net/http, one open", "go", "net-http").with(opened(1)),
			through("relay, FetchUnary, one open", "relay", "grpc-unary").with(opened(1)),
			through("fetchd, FetchUnary, one open", "fetchd", "grpc-unary").with(opened(1)),
		}, rows: []row{
			{name: "latency", what: "one fetch at a time: FetchUnary less net/http called directly",
				of: "fetchd, FetchUnary, one open", beside: "net/http, one open", figure: median, mode: difference, goal: report.AtMost(200)},
		}},
		crowd(), decision(),
	}, matrix(), waiting())
}

func large(s *subject) { s.path, s.open = largePath, 4 }

func opened(n int) func(*subject) { return func(s *subject) { s.open = n } }

// languages are callers that are not written in Go.
func languages() []group {
	return []group{
		{name: "python", title: "1 KiB, 64 open, from Python", subjects: []subject{
			by("Python, FetchUnary over asyncio", "python", "grpc-unary"),
			by("Python, requests with urllib3's Retry", "python", "requests"),
			by("Python, aiohttp", "python", "aiohttp"),
		}, rows: []row{
			{name: "python-rate", what: "from Python: FetchUnary over asyncio beside requests with urllib3's Retry",
				of: "Python, FetchUnary over asyncio", beside: "Python, requests with urllib3's Retry", figure: rate, goal: report.AtLeast(5)},
			{name: "python-cpu", what: "the same, what the caller computes",
				of: "Python, FetchUnary over asyncio", beside: "Python, requests with urllib3's Retry", figure: callerCPU, goal: report.AtMost(0.12)},
			{name: "python-aiohttp", what: "from Python: FetchUnary over asyncio beside aiohttp",
				of: "Python, FetchUnary over asyncio", beside: "Python, aiohttp", figure: rate, goal: report.AtLeast(1.2)},
		}},
		{name: "uvloop", title: "1 KiB, 64 open, from Python with uvloop", share: 2, subjects: []subject{
			by("Python, FetchUnary on uvloop", "python", "grpc-unary-uvloop"),
			by("Python, aiohttp on uvloop", "python", "aiohttp-uvloop"),
		}, rows: []row{
			{name: "python-uvloop", what: "the same, both on uvloop",
				of: "Python, FetchUnary on uvloop", beside: "Python, aiohttp on uvloop", figure: rate},
		}},
		{name: "node", title: "1 KiB, 64 open, from Node", warmup: 2 * time.Second, subjects: []subject{
			by("Node, FetchUnary with grpc-js", "node", "grpc-unary"),
			by("Node, FetchUnary over node:http2", "node", "grpc-unary-http2"),
			by("Node, FetchMany", "node", "grpc-many"),
			by("Node, got", "node", "got"),
			by("Node, undici RetryAgent", "node", "undici"),
		}, rows: []row{
			{name: "node-unary", what: "from Node: FetchUnary over node:http2 beside got",
				of: "Node, FetchUnary over node:http2", beside: "Node, got", figure: rate, goal: report.AtLeast(1.6)},
			{name: "node-grpc-js", what: "the same with the gRPC library for Node, @grpc/grpc-js",
				of: "Node, FetchUnary with grpc-js", beside: "Node, got", figure: rate},
			{name: "node-many", what: "from Node: FetchMany beside got",
				of: "Node, FetchMany", beside: "Node, got", figure: rate, goal: report.AtLeast(3)},
			{name: "node-unary-undici", what: "from Node: FetchUnary over node:http2 beside undici's RetryAgent",
				of: "Node, FetchUnary over node:http2", beside: "Node, undici RetryAgent", figure: rate},
			{name: "node-many-undici", what: "from Node: FetchMany beside undici's RetryAgent",
				of: "Node, FetchMany", beside: "Node, undici RetryAgent", figure: rate},
		}},
		{name: "curl", title: "1 KiB, curl", share: 3, subjects: []subject{
			through("fetchd, FetchUnary", "fetchd", "grpc-unary"),
			by("curl, a process for each fetch", "curl", "curl").with(opened(8)),
			by("curl --parallel", "curl", "curl-parallel"),
		}, rows: []row{
			{name: "curl", what: "FetchUnary beside a process of curl for each fetch, 8 at once",
				of: "fetchd, FetchUnary", beside: "curl, a process for each fetch", figure: allCPU},
			{name: "curl-parallel", what: "FetchUnary beside one curl --parallel",
				of: "fetchd, FetchUnary", beside: "curl --parallel", figure: allCPU},
		}},
	}
}

// crowd compares many open fetches with few at one rate: each waits for its origin
// as long as makes 2,500 of them end in a second.
func crowd() group {
	return group{name: "crowd", title: "1 KiB, the origin answers after a while, 2,500/s", share: 2,
		warmup: 5 * time.Second, span: 4 * time.Second, // of which 4 s pass until all are open
		subjects: []subject{
			through("fetchd, 64 open", "fetchd", "grpc-unary").with(func(s *subject) { s.path = "/w/25.6ms/1024" }),
			through("fetchd, 10,000 open", "fetchd", "grpc-unary").with(func(s *subject) { s.path, s.open = "/w/4s/1024", 10_000 }),
		}, rows: []row{
			{name: "crowd", what: "10,000 fetches open beside 64, both 2,500 a second",
				of: "fetchd, 10,000 open", beside: "fetchd, 64 open", figure: serviceCPU, goal: report.AtMost(1.3)},
		}}
}

// decision is what package classify takes to decide.
func decision() group {
	decide := subject{name: "classify.Decide", decide: true}
	return group{name: "decide", title: "a decision", subjects: []subject{decide}, rows: []row{
		{name: "decide", what: "one decision of package classify", of: decide.name, figure: single, mode: alone, goal: report.AtMost(100)},
		{name: "decide-allocations", what: "allocations of one", of: decide.name, figure: singleHeap, mode: alone, goal: report.AtMost(0)},
	}}
}

// selected keeps the rows whose names match, and of their groups what they need.
func selected(all []group, only *regexp.Regexp) []group {
	var kept []group
	for _, g := range all {
		g.rows = slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool { return !only.MatchString(r.name) })
		g.subjects = slices.DeleteFunc(slices.Clone(g.subjects), func(s subject) bool {
			return !slices.ContainsFunc(g.rows, func(r row) bool { return r.of == s.name || r.beside == s.name })
		})
		if len(g.rows) > 0 {
			kept = append(kept, g)
		}
	}
	return kept
}

// list tells the names of the rows.
func list(all []group) string {
	text := ""
	for _, g := range all {
		for _, r := range g.rows {
			text += fmt.Sprintf("%-24s %-8s %s\n", r.name, r.goal, r.what)
		}
	}
	return text
}
