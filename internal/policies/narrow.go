package policies

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"fetchd/fetch/fault"
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
	// Reported says that nothing was blocked, because the mode of the policy is report.
	Reported bool
}

// maxDenials limits what a fetch remembers of what was forbidden.
const maxDenials = 16

// Judge judges the targets of one fetch by the policy that its caller had when the call began, and by the one
// that it has now: what either forbids is forbidden. It is a [fetch.Narrower] and safe for concurrent use.
type Judge struct {
	began   *Policy
	now     func() *Policy
	told    func(Denial)
	mu      sync.Mutex
	host    string
	denials []Denial // that were told
}

// Report adds a denial of the request itself that blocked nothing.
func (j *Judge) Report(d Denial) { j.denials = append(j.denials, d) }

// QuotaReason returns the reason of a denial for want of a quota, by the key of the file.
func QuotaReason(quota string) string { return strings.ReplaceAll(quota, "-", "_") }

// Exceeds tells and reports that the caller is over a quota of a policy in mode report.
func (j *Judge) Exceeds(host, quota string) {
	d := Denial{Policy: j.began.Name, Reason: QuotaReason(quota), Host: host, Reported: true}
	j.told(d)
	j.Report(d)
}

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
	if p == nil {
		return nil
	}
	err := p.check(t)
	if err == nil {
		return nil
	}
	d := Denial{Policy: p.Name, Reported: p.Report}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		d.Reason, d.Rule = own.Reason, own.Rule
	}
	j.mu.Lock()
	d.Host = j.host
	known := slices.Contains(j.denials, d)
	if !known && len(j.denials) < maxDenials {
		d.Host = strings.Clone(d.Host) // it would keep the whole URL
		j.denials = append(j.denials, d)
	}
	j.mu.Unlock()
	if !known {
		j.told(d)
	}
	if p.Report {
		return nil
	}
	return err
}
