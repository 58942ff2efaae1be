// Package observe provides metrics for Prometheus and OpenTelemetry traces of fetches.
//
// [Observer] implements [fetch.Observer] and does not change the fetches. Every
// label has a closed set of values: no host name, path or other text chosen by an
// origin or a caller becomes a label. Spans show URLs as logs do, without query and
// userinfo (see [fetchd/fetch/urls.Redact]).
//
// A program calls [New] and passes the observer to package fetch and to the server.
// The server calls [Observer.Serving] once, [Observer.Start] at the start of each
// fetch and [Observer.Refused] for each call it rejects. After the server has shut
// down, the program calls [Observer.Shutdown]. [Metrics] can also be used alone.
package observe
