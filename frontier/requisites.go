package frontier

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/proto"

	"fetchd/frontier/links"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// Requisites are what pages need to be shown: images, style sheets, scripts, fonts, frames. A worker with them
// adds those of each page that it fetches (F67).
type Requisites struct {
	// MaxBodyBytes is the maximum length of one; zero means 256 MiB. Config.Accept does not apply to them.
	MaxBodyBytes int64
	// MaxHosts is how many hosts of the frontier only requisites may lead to; zero means 1,000.
	MaxHosts int64
}

const (
	defaultRequisiteBytes = 256 << 20
	defaultRequisiteHosts = 1000
	// maxPageHosts is how many other hosts the requisites of a page may have.
	maxPageHosts = 50
	// maxHops is how far requisites are from their page, through style sheets and frames.
	maxHops = 5
)

// needed reports whether a page needs the URL to be shown.
func (v *visit) needed() bool { return v.claim.Need.PageID != 0 }

// searchesRequisites reports whether the requisites of a response are added, if it is of a type that has some.
func (v *visit) searchesRequisites() bool {
	return v.w.config.Requisites != nil && (v.claim.Kind == store.Page || v.claim.Kind == store.Requisite)
}

// requisitePolicies changes the request for a page to that for a requisite, which has another media type, its own
// maximum length, and a Referer.
func (v *visit) requisitePolicies(r *pb.FetchRequest) error {
	r.ContentPolicy = nil
	if v.claim.Kind >= store.Page && v.w.config.RequireValidCharset {
		r.ContentPolicy = &pb.ContentPolicy{RequireValidCharset: true}
	}
	if limit := v.w.config.Requisites; limit != nil && (v.claim.Kind < store.Page || limit.MaxBodyBytes > v.w.config.MaxBodyBytes) {
		r.BodyPolicy.MaxSizeBytes = proto.Int64(limit.MaxBodyBytes)
	}
	urls, err := v.w.store.URLsOf(v.ctx, []int64{v.claim.Parent})
	if from := referrer(urls[v.claim.Parent], r.GetUrl()); err == nil && from != "" {
		r.Headers = append(r.Headers, &pb.Header{Name: "Referer", Value: from})
	}
	return err
}

// referrer returns the Referer of a request for a URL that another one, in its normal form, has named: Referrer Policy,
// strict-origin-when-cross-origin, with its limit of 4,096 bytes. It is empty if there is none.
func referrer(from, to string) string {
	origin, _ := normal.OriginOf(from)
	target, _ := normal.OriginOf(to)
	switch {
	case from == "" || strings.HasPrefix(from, "https:") && !strings.HasPrefix(to, "https:"):
		return ""
	case origin == target && len(from) <= 4096:
		return from
	}
	return origin + "/"
}

// putRequisites adds what a document needs. It returns the visit's ending if that failed, and why some were left out.
func (v *visit) putRequisites(page links.Page) (reason string, _ *ending) {
	c := v.claim
	need := store.Need{PageID: c.ID, Hops: 1}
	if c.Kind < store.Page {
		need = store.Need{PageID: c.Need.PageID, Hops: c.Need.Hops + 1}
	}
	var entries []store.Entry
	var out store.RequisiteResult
	out.OverPage = int64(page.OverRequisites)
	excluded, deep := 0, 0
	for _, r := range page.Requisites {
		switch kind := store.Asset; {
		case v.w.config.Discovery.excludes(r.URL):
			excluded++
		case need.Hops > maxHops:
			deep++
		default:
			if r.Searched {
				kind = store.Requisite
			}
			entry := v.entry(r.URL, kind, c.Depth)
			entry.Need = need
			entries = append(entries, entry)
		}
	}
	limits := v.w.config.requisiteLimits()
	var r store.RequisiteResult
	ok := len(entries) == 0 || v.w.persist("add requisites", func(ctx context.Context) (err error) {
		r, err = v.w.store.PutRequisites(ctx, need.PageID, entries, limits)
		return err
	})
	if !ok {
		return "", &ending{how: giveBackDelayed}
	}
	out.OverPage += r.OverPage
	v.w.found.add(func(f *Found) {
		f.Requisites += r.Added
		f.Excluded += int64(excluded)
		f.Over += r.Over
		f.OverRequisites += out.OverPage + r.OverPageHosts + int64(deep)
		f.OverRequisiteHosts += r.OverHosts
	})
	v.leftOut = v.leftOut || r.Over+r.OverHosts > 0
	var reasons []string
	for _, l := range []struct {
		n     int64
		limit string
	}{
		{out.OverPage, fmt.Sprintf("%d requisites of a page", links.MaxRequisites)}, {r.OverPageHosts, fmt.Sprintf("%d other hosts of a page", maxPageHosts)},
		{int64(deep), fmt.Sprintf("%d style sheets and frames from their page", maxHops)}, {r.OverHosts, fmt.Sprintf("%d hosts of requisites", limits.Hosts)},
	} {
		if l.n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d beyond %s", l.n, l.limit))
		}
	}
	return strings.Join(reasons, ", "), nil
}

// requisiteLimits returns the limits of what pages need.
func (c *Config) requisiteLimits() store.RequisiteLimits {
	limits := store.RequisiteLimits{OfPage: links.MaxRequisites, PageHosts: maxPageHosts, Hosts: defaultRequisiteHosts}
	if c.Requisites != nil {
		limits.Hosts = c.Requisites.MaxHosts
	}
	if c.Discovery != nil {
		limits.URLs = c.Discovery.Limits.URLs
	}
	return limits
}

// queueRequisite adds the target of a redirect, which is a hop more from the page. One that is too far is left out.
func (v *visit) queueRequisite(ctx context.Context, target string) error {
	entry := v.entry(target, v.claim.Kind, v.claim.Depth)
	if u, err := normal.NormalizeURL(target); err == nil && entry.Kind == store.Page && !v.inScope(u) {
		entry.Kind = store.Requisite
	}
	entry.Need = store.Need{PageID: v.claim.Need.PageID, Hops: v.claim.Need.Hops + 1}
	if entry.Need.Hops > maxHops {
		return nil
	}
	_, err := v.w.store.PutRequisites(ctx, entry.Need.PageID, []store.Entry{entry}, v.w.config.requisiteLimits()) // an invalid URL is ignored
	return err
}

// mayLead reports whether a redirect of a requisite may lead to u, which is in its normal form. It returns the visit's
// ending if that cannot be read.
func (v *visit) mayLead(u string) (bool, *ending) {
	ok, err := v.w.store.AllowRequisite(v.ctx, v.claim.Need.PageID, u, v.w.config.requisiteLimits())
	if err != nil {
		return false, v.storeFailed("read the requisites of a page", err)
	}
	return ok, nil
}

// noteLeftOut records that a limit has left out links or requisites of a page.
func (v *visit) noteLeftOut(e *ending, what, reason, limit string) {
	v.w.logger.InfoContext(v.ctx, what+" left out", slog.String("url", v.claim.URL), slog.String("reason", reason))
	v.w.metrics.cut.WithLabelValues(limit).Inc()
	text := what + " left out: " + reason
	if e.fetch.LastError != "" {
		text = e.fetch.LastError + "; " + text
	}
	e.fetch.LastError = text
}
