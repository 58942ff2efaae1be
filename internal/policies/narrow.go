package policies

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// Denial is a decision of a policy against a request or a target.
type Denial struct {
	Policy string
	// Reason is the kind of the rule in lower_snake_case, such as name_denied or methods. There are few.
	Reason string
	// Rule is the entry that decides, such as "*.ads.example". It may be empty.
	Rule string
	// Host is the host of the URL that was judged.
	Host string
	// Target is what was judged: the address, the port or the scheme, as Reason says, or "". It is for the log alone.
	Target string
	// Reported says that nothing was blocked, because the mode of the policy is report.
	Reported bool
}

// maxDenials limits what a fetch remembers of what was forbidden.
const maxDenials = 16

// denialBytes is the memory of a denial without its host.
const denialBytes = 96

// Judge judges the targets of one fetch by the policy that its caller had when the call began, and by the one
// that it has now: what either forbids is forbidden. It is a [fetch.Narrower] and safe for concurrent use.
type Judge struct {
	// Grow is asked before memory is used for a denial. If it refuses, the denial is reported each time. Nil means no limit.
	Grow func(bytes int64) bool
	// Route is the name of the egress route of the fetch. Empty means that of the settings.
	Route string

	began   *Policy
	now     func() *Policy
	told    func(Denial)
	mu      sync.Mutex
	host    string
	denials []Denial // that were told
}

// Deny records a denial of the request itself: that of a reason, which is a field. host is that of its URL. It reports
// whether the request is denied, which mode report does only for a route: it is open to those policies only that name it.
func (j *Judge) Deny(reason, host string) bool {
	d := Denial{Policy: j.began.Name, Reason: reason, Host: host, Reported: j.began.Report && reason != EgressRoute}
	if j.began.Nothing && reason != EgressRoute {
		d.Rule = egress.Nothing
	}
	j.record(d)
	return !d.Reported
}

// EgressRoute is the field with the name of a route, and the reason of a denial for its sake.
const EgressRoute = "egress_route"

// Used is what a fetch has used of what a policy limits.
type Used struct {
	Time                time.Duration
	Bytes               int64
	Attempts, Redirects int
}

// End records what a fetch has used beyond the limits of a policy that only reports. Under one that is enforced these
// are the limits of the fetch. host is that of its URL.
func (j *Judge) End(used Used, host string) {
	limits := &j.began.Request
	if !j.began.Report {
		return
	}
	for _, l := range []struct {
		reason string
		over   bool
	}{
		{"total_timeout", limits.MaxTotalTimeout > 0 && used.Time > limits.MaxTotalTimeout},
		{"max_size_bytes", limits.MaxSizeBytes > 0 && used.Bytes > limits.MaxSizeBytes},
		{"max_attempts", limits.MaxAttempts > 0 && used.Attempts > limits.MaxAttempts},
		{"max_redirects", limits.MaxRedirects != nil && used.Redirects > *limits.MaxRedirects},
	} {
		if l.over {
			j.Deny(l.reason, host)
		}
	}
}

// QuotaReason returns the reason of a denial for want of a quota, by the key of the file.
func QuotaReason(quota string) string { return strings.ReplaceAll(quota, "-", "_") }

// NewJudge returns the judge of a fetch. began is the policy of its caller, and now returns the present one. told is
// called for each denial, once for each rule and host unless there are very many.
func NewJudge(began *Policy, now func() *Policy, told func(Denial)) *Judge {
	return &Judge{began: began, now: now, told: told}
}

// CheckURL implements fetch.Narrower.
func (j *Judge) CheckURL(u *url.URL, redirected bool) error {
	j.mu.Lock()
	j.host = u.Hostname()
	j.mu.Unlock()
	return j.both(target{url: u, redirected: redirected})
}

// CheckAddr implements fetch.Narrower.
func (j *Judge) CheckAddr(address netip.AddrPort) error { return j.both(target{address: address}) }

// Permits implements fetch.Narrower.
func (j *Judge) Permits(address netip.AddrPort) bool {
	now := j.now()
	return j.began.permits(address) && (now == j.began || now.permits(address))
}

func (p *Policy) permits(address netip.AddrPort) bool {
	return p == nil || p.Report || p.guard.CheckAddr(address) == nil
}

// target is what is judged: a URL, or an address if there is no URL.
type target struct {
	url        *url.URL
	redirected bool
	address    netip.AddrPort
}

func (p *Policy) check(t target) error {
	if t.url != nil {
		return p.guard.CheckURL(t.url, t.redirected)
	}
	return p.guard.CheckAddr(t.address)
}

// judged returns the part of the target that a reason is about.
func (t target) judged(reason string) string {
	switch {
	case reason == "scheme_not_allowed":
		return t.url.Scheme
	case reason == "port_not_allowed":
		return urls.Port(t.url)
	case !strings.HasPrefix(reason, "address_"):
		return ""
	case t.url != nil:
		return t.url.Hostname()
	}
	return t.address.Addr().WithZone("").Unmap().String()
}

// Reported returns what the policy would have blocked, if callers are told. It is called when the fetch is over.
func (j *Judge) Reported() []Denial {
	if !j.began.ToCaller {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.denials), func(d Denial) bool { return !d.Reported })
}

func (j *Judge) both(t target) error {
	err := j.one(j.began, t)
	if now := j.now(); err == nil && now != j.began {
		err = j.one(now, t)
	}
	return err
}

func (j *Judge) one(p *Policy, t target) error {
	if p == nil && j.Route == "" {
		return nil
	}
	if p == nil { // there are no policies any more, and so no routes
		p = &Policy{Name: j.began.Name, guard: j.began.guard}
	}
	err, reported := p.check(t), p.Report
	if t.url != nil && !p.leaves(j.Route) {
		err = fault.RouteNotAllowed(p.Name, j.Route)
		reported = reported && j.Route == "" // see Deny
	}
	if err == nil {
		return nil
	}
	d := Denial{Policy: p.Name, Reported: reported}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		d.Reason, d.Rule = own.Reason, own.Rule
	}
	d.Target = t.judged(d.Reason)
	j.mu.Lock()
	d.Host = j.host
	j.mu.Unlock()
	j.record(d)
	if reported {
		return nil
	}
	return err
}

// record tells a denial unless it was told before.
func (j *Judge) record(d Denial) {
	j.mu.Lock()
	known := slices.ContainsFunc(j.denials, func(other Denial) bool {
		other.Target = d.Target // the addresses of a name are one denial
		return other == d
	})
	if !known {
		d = j.rememberLocked(d)
	}
	j.mu.Unlock()
	if !known {
		j.told(d)
	}
}

// rememberLocked adds a denial, if there is memory for it, and returns it. Its host is no longer a part of the URL, which
// would be kept with it. Denials of one host share its text.
func (j *Judge) rememberLocked(d Denial) Denial {
	bytes := int64(denialBytes)
	if same := slices.IndexFunc(j.denials, func(known Denial) bool { return known.Host == d.Host }); same >= 0 {
		d.Host = j.denials[same].Host
	} else {
		d.Host = strings.Clone(d.Host)
		bytes += int64(len(d.Host))
	}
	if len(j.denials) < maxDenials && (j.Grow == nil || j.Grow(bytes)) {
		j.denials = append(j.denials, d)
	}
	return d
}
