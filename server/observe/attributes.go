package observe

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// Attributes that the semantic conventions do not define. Times are in seconds, as in
// the conventions.
const (
	fetchID         = attribute.Key("fetchd.fetch_id")
	outcomeKind     = attribute.Key("fetchd.outcome")
	decisionRule    = attribute.Key("fetchd.decision_rule")
	stopReason      = attribute.Key("fetchd.stop_reason")
	attemptCount    = attribute.Key("fetchd.attempt_count")
	exchangeCount   = attribute.Key("fetchd.exchange_count")
	bodySize        = attribute.Key("fetchd.body.size")
	attemptNumber   = attribute.Key("fetchd.attempt")
	attemptDecision = attribute.Key("fetchd.decision")
	failureReason   = attribute.Key("fetchd.reason")
	retryDelay      = attribute.Key("fetchd.retry.delay")
	retrySource     = attribute.Key("fetchd.retry.source")
	reusedConn      = attribute.Key("fetchd.connection.reused")
	backpressure    = attribute.Key("fetchd.backpressure")
	phasePrefix     = "fetchd.phase."
)

// fetchAttributes returns the attributes of a fetch. Labels and headers are omitted:
// they may be secret.
func fetchAttributes(req *fetch.Request, out *fetch.Outcome) []attribute.KeyValue {
	list := []attribute.KeyValue{
		fetchID.String(req.ID), semconv.URLFull(urls.Redact(req.URL)), method(req.Method),
		outcomeKind.String(out.Kind.String()), decisionRule.String(string(out.Rule)),
		attemptCount.Int(out.Attempts), exchangeCount.Int(out.Exchanges),
		bodySize.Int64(out.Body.Size), semconv.HTTPResponseBodySizeKey.Int64(out.Body.EncodedSize),
	}
	if out.Response != nil {
		list = append(list, semconv.HTTPResponseStatusCode(out.Response.StatusCode))
	}
	if f := out.Failure; f != nil {
		list = append(list, semconv.ErrorTypeKey.String(f.Class.String()),
			failureReason.String(f.Reason), stopReason.String(out.StopReason.String()))
	}
	return list
}

// attemptAttributes returns the attributes of an attempt.
func attemptAttributes(e *fetch.AttemptFinished) []attribute.KeyValue {
	d := &e.Decision
	list := []attribute.KeyValue{
		attemptNumber.Int(e.Attempt), attemptDecision.String(d.Verdict.String()), decisionRule.String(string(d.Rule)),
	}
	if f := e.Failure; f != nil {
		list = append(list, semconv.ErrorTypeKey.String(f.Class.String()), failureReason.String(f.Reason))
	}
	if d.NextAttempt > 0 {
		list = append(list, retryDelay.Float64(d.Delay.Seconds()), retrySource.String(d.DelaySource.String()))
	}
	return list
}

// hopAttributes returns the attributes of a hop. before is the number of earlier hops
// in the fetch.
func hopAttributes(h *fetch.Hop, before int) []attribute.KeyValue {
	x := &h.Exchange
	list := append(target(h.URL), method(h.Method), reusedConn.Bool(x.Reused))
	if h.StatusCode > 0 {
		list = append(list, semconv.HTTPResponseStatusCode(h.StatusCode))
	}
	if before > 0 {
		list = append(list, semconv.HTTPRequestResendCount(before))
	}
	if version, ok := strings.CutPrefix(x.Protocol, "HTTP/"); ok {
		list = append(list, semconv.NetworkProtocolVersion(strings.TrimSuffix(version, ".0")))
	}
	if version, ok := strings.CutPrefix(x.TLSVersion, "TLS "); ok {
		list = append(list, semconv.TLSProtocolVersion(version))
	}
	if peer, err := netip.ParseAddrPort(x.RemoteAddress); err == nil {
		list = append(list, semconv.NetworkPeerAddress(peer.Addr().String()), semconv.NetworkPeerPort(int(peer.Port())))
	}
	for i, took := range phasesOf(x) {
		if took > 0 {
			list = append(list, attribute.Float64(phasePrefix+phaseNames[i], took.Seconds()))
		}
	}
	if x.Backpressure > 0 {
		list = append(list, backpressure.Float64(x.Backpressure.Seconds()))
	}
	return list
}

func method(name string) attribute.KeyValue { return semconv.HTTPRequestMethodKey.String(name) }

// target returns the attributes of a hop's URL and removes the query.
func target(raw string) []attribute.KeyValue {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	list := append(make([]attribute.KeyValue, 0, 16), semconv.URLFull(urls.Redact(u)), semconv.ServerAddress(u.Hostname()))
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if n, err := strconv.Atoi(port); err == nil {
		list = append(list, semconv.ServerPort(n))
	}
	return list
}
