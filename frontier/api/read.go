package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"fetchd/frontier/normal"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/badrequest"
)

const (
	maxBatch     = 1000 // entries of a request
	maxHostBytes = 270
)

// bounded adds a violation if text is too long.
func bounded(v *badrequest.Violations, field, text string, limit int) {
	if len(text) > limit {
		v.AddTooLarge(field, len(text), limit)
	}
}

// batch reports whether a list has a valid number of entries.
func batch(v *badrequest.Violations, field string, n int) bool {
	if n >= 1 && n <= maxBatch {
		return true
	}
	v.Add(field, "has %d entries: give 1 to %d", n, maxBatch)
	return false
}

func readLeases(v *badrequest.Violations, sent []*pb.Lease) []store.Lease {
	if !batch(v, "leases", len(sent)) {
		return nil
	}
	leases := make([]store.Lease, len(sent))
	for i, l := range sent {
		leases[i] = readLease(v, badrequest.Indexed("leases", i), l)
	}
	return leases
}

func readLease(v *badrequest.Violations, field string, l *pb.Lease) store.Lease {
	if l.GetId() <= 0 || l.GetToken() <= 0 {
		v.Add(field, "is %d, %d: give the lease of a claim", l.GetId(), l.GetToken())
	}
	return store.Lease{ID: l.GetId(), Token: l.GetToken()}
}

// readHost reads a host as claims have it.
func readHost(v *badrequest.Violations, text string) string {
	if len(text) > maxHostBytes {
		v.AddTooLarge("host", len(text), maxHostBytes)
		return ""
	}
	host, err := hostOf(text)
	if err != nil {
		v.Add("host", "is %.80q, which is not a host: give one as in Claim.host, such as example.org or example.org:8080", text)
	}
	return host
}

// withAnyHost calls change with a host, or with an empty one, which means all.
func withAnyHost(ctx context.Context, text string, change func(ctx context.Context, host string) error) error {
	var v badrequest.Violations
	if text != "" {
		text = readHost(&v, text)
	}
	if err := v.Err(); err != nil {
		return err
	}
	return change(ctx, text)
}

// hostOf returns a host in normal form. A port that is the default of one scheme may be of a URL of the
// other, as in http://a.test:443/.
func hostOf(text string) (string, error) {
	if text == "" || strings.ContainsAny(text, "/\\?#@ \t\r\n") || !utf8.ValidString(text) {
		return "", fmt.Errorf("%.80q is not a host", text)
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Is6() {
		text = "[" + text + "]"
	}
	var found string
	for _, scheme := range []string{"https", "http"} {
		url, err := normal.NormalizeURL(scheme + "://" + text + "/")
		if err != nil {
			return "", err
		}
		host, err := normal.ExtractHost(url)
		if err != nil {
			return "", err
		}
		if found == "" || strings.EqualFold(host, text) {
			found = host
		}
	}
	return found, nil
}

// badEntry returns what is wrong with an entry other than its URL, or an empty field.
func badEntry(e *pb.Entry) (field, message string) {
	switch {
	case len(e.GetUrl()) > normal.MaxURLBytes:
		return "url", fmt.Sprintf("has %d bytes: give at most %d", len(e.GetUrl()), normal.MaxURLBytes)
	case len(e.GetParentUrl()) > normal.MaxURLBytes:
		return "parent_url", fmt.Sprintf("has %d bytes: give at most %d", len(e.GetParentUrl()), normal.MaxURLBytes)
	case e.GetKind() < pb.Kind_KIND_UNSPECIFIED || e.GetKind() > pb.Kind_KIND_SITEMAP:
		return "kind", fmt.Sprintf("is %d: give KIND_PAGE or KIND_SITEMAP", e.GetKind())
	case e.GetPriority() < -store.MaxPriority || e.GetPriority() > store.MaxPriority:
		return "priority", fmt.Sprintf("is %d: give -%d to %d", e.GetPriority(), store.MaxPriority, store.MaxPriority)
	case e.GetDepth() < 0:
		return "depth", fmt.Sprintf("is %d: give 0 or more", e.GetDepth())
	case len(e.GetMetadata()) > store.MaxMetadata:
		return "metadata", fmt.Sprintf("has %d bytes: give at most %d", len(e.GetMetadata()), store.MaxMetadata)
	case e.GetMetadata() != "" && !isObject(e.GetMetadata()):
		return "metadata", `is not a JSON object: give one such as {"page": 1}`
	case e.GetKind() == pb.Kind_KIND_SITEMAP && hasRules(e.GetMetadata()):
		return "metadata", fmt.Sprintf("has the field %q, which a sitemap has from \"frontier add\": give it another name", scope.RulesField)
	}
	return "", ""
}

func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && json.Valid([]byte(text))
}

// hasRules reports whether workers would take metadata for the rules of a sitemap. Its patterns could
// use much memory.
func hasRules(text string) bool {
	rules, err := scope.ReadRules(text)
	return rules != nil || err != nil
}

func kindOf(k store.Kind) pb.Kind {
	switch {
	case k < store.Page:
		return pb.Kind_KIND_REQUISITE
	case k == store.Sitemap:
		return pb.Kind_KIND_SITEMAP
	}
	return pb.Kind_KIND_PAGE
}

// statuses are the states of URLs.
var statuses = map[store.Status]pb.Status{
	store.Pending: pb.Status_STATUS_PENDING, store.Fetching: pb.Status_STATUS_FETCHING, store.Fetched: pb.Status_STATUS_FETCHED,
	store.Failed: pb.Status_STATUS_FAILED, store.Dead: pb.Status_STATUS_DEAD,
}
