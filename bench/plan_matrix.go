package main

import "fetchd/bench/report"

// matrix changes one property at a time of the base case, which is group unary: FetchUnary of
// 1 KiB over HTTP/1.1, 64 in flight, no faults.
func matrix() []group {
	one := func(name, title, path, from string, open int) group {
		change := func(s *subject) { s.path, s.from, s.open = path, from, open }
		fetchd, relay := "fetchd, "+title, "relay, "+title
		return group{name: name, title: title, share: 2, subjects: []subject{
			through(relay, "relay", "grpc-unary").with(change), through(fetchd, "fetchd", "grpc-unary").with(change),
		}, rows: []row{{name: name, what: "FetchUnary, " + title + ", compared with the bare relay", of: fetchd, base: relay, figure: serviceCPU}}}
	}
	faults := through("fetchd, 10 % faults", "fetchd", "grpc-unary").with(func(s *subject) { s.path, s.faults = "/f/10/1024", true })
	outcome := through("fetchd, the outcome alone", "fetchd", "grpc-unary-outcome")
	relay := through("relay, FetchUnary", "relay", "grpc-unary")
	many := through("fetchd, FetchMany, 1,000 open", "fetchd", "grpc-many").with(opened(1000))
	return []group{
		{name: "outcome", title: "event level OUTCOME", share: 2, subjects: []subject{relay, outcome}, rows: []row{
			{name: "outcome", what: "FetchUnary that asks for the outcome alone, compared with the bare relay", of: outcome.name, base: relay.name, figure: serviceCPU},
		}},
		one("64k", "64 KiB", "/b/65536", "http", baseOpen),
		one("tls", "TLS", smallPath, "https", baseOpen),
		one("h2", "HTTP/2", smallPath, "h2", baseOpen),
		one("open-1", "one open", smallPath, "http", 1),
		one("open-1000", "1,000 open", smallPath, "http", 1000),
		{name: "many-1000", title: "FetchMany, 1,000 open", share: 2, subjects: []subject{many}, rows: []row{
			{name: "many-1000", what: "FetchMany, 1,000 tasks open", of: many.name, figure: serviceCPU, mode: alone},
		}},
		{name: "faults", title: "10 % faults", share: 2, subjects: []subject{faults}, rows: []row{
			{name: "faults", what: "FetchUnary, 10 of 100 requests answered with 503", of: faults.name, figure: serviceCPU, mode: alone},
		}},
	}
}

// waiting measures the memory of 10,000 waiting fetches.
func waiting() []group {
	const n = 10_000
	held := func(name, service, kind, path string) subject {
		return subject{name: name, service: service, program: "go", hold: kind, from: "http", path: path, open: n}
	}
	return []group{
		{name: "backoff", title: "10,000 wait for their next attempt", share: 3, fresh: true, subjects: []subject{
			held("relay, stream on a timer", "timer", "stream", "/busy"),
			held("fetchd, Fetch in backoff", "fetchd", "stream", "/busy"),
			held("fetchd, task of FetchMany in backoff", "fetchd", "many", "/busy"),
		}, rows: []row{
			{name: "memory-backoff", what: "memory of a Fetch that waits for its next attempt, of 10,000, compared with a stream of the relay on a timer",
				of: "fetchd, Fetch in backoff", base: "relay, stream on a timer", figure: memory, mode: alone, goal: report.AtMost(16)},
			{name: "memory-many", what: "memory of a task of FetchMany that waits for its next attempt, of 10,000",
				of: "fetchd, task of FetchMany in backoff", figure: memory, mode: alone, goal: report.AtMost(12)},
		}},
		{name: "origin", title: "10,000 wait for their origin", share: 3, fresh: true, subjects: []subject{
			held("relay, FetchUnary at its origin", "relay", "unary", "/w/5m/1024"),
			held("fetchd, FetchUnary at its origin", "fetchd", "unary", "/w/5m/1024"),
		}, rows: []row{
			{name: "memory-origin", what: "memory of a fetch that waits for its origin, of 10,000, compared with the bare relay's",
				of: "fetchd, FetchUnary at its origin", base: "relay, FetchUnary at its origin", figure: memory, mode: alone, goal: report.AtMost(36)},
		}},
	}
}
