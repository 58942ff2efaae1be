package conversion

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/auth"
	"fetchd/fetch/markdown"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/stores"
)

// Limits limits what a request may set.
type Limits struct {
	MaxTotalTimeout     time.Duration // a request for more is clamped
	MaxBodyBytes        int64         // a request for more is clamped
	ForbidNonIdempotent bool          // allow_non_idempotent is refused (spec I2)
}

// Mode says which deliveries a method supports.
type Mode struct {
	unset   fetch.Delivery // if the request sets none
	streams bool           // the method can send chunks
}

// The modes of the methods.
var (
	FetchMode = Mode{fetch.Stream, true}
	UnaryMode = Mode{unset: fetch.Inline}
	ManyMode  = Mode{fetch.Inline, true}
)

// Configured is what the operator has configured and requests select by name.
type Configured struct {
	Providers map[string]AuthProvider
	Stores    *stores.Set
}

// AuthProvider provides credentials for origins.
type AuthProvider struct {
	auth.Provider
	// Callers are the names of the callers that may use the provider. If Callers is empty, every
	// caller may use it.
	Callers []string
}

// violations collects all faults of a request.
type violations struct{ badrequest.Violations }

// enum reads an enum field. A value that is not in the table is unknown to this server.
func enum[E interface {
	~int32
	fmt.Stringer
}, T comparable](v *violations, field string, value E, known table[E, T]) T {
	if value < 0 || int(value) >= len(known) {
		v.Add(field, "is %s, which this server does not know", value)
		value = 0
	}
	return known[value]
}

// conversion validates a request of the contract and converts it for package fetch.
type conversion struct {
	violations
	limits  *Limits
	in      *pb.FetchRequest
	out     *fetch.Request
	clamped []string // names of fields
}

// clamp returns got, but at most high. If got is over high, clamp records that the field is clamped.
func clamp[T int64 | time.Duration](c *conversion, field string, got, high T) T {
	if got > high {
		c.clamped = append(c.clamped, field)
		return high
	}
	return got
}

// setter returns who set a limit that the server does not clamp.
func setter(given bool) fetch.Setter {
	if given {
		return fetch.ByCaller
	}
	return fetch.ByProfile
}

// replacement replaces bytes from an origin that are not UTF-8.
const replacement = "\uFFFD"

// text makes a string from an origin valid for a proto string: one byte that is not UTF-8 would fail
// the whole call.
func text(s string) string { return strings.ToValidUTF8(s, replacement) }

// These tables map enums of the contract to values of package fetch. The enums of package classify
// have the numbers of the contract and need no table.
var (
	profiles = table[pb.RetryProfile, classify.Profile]{
		pb.RetryProfile_RETRY_PROFILE_UNSPECIFIED: classify.Standard,
		pb.RetryProfile_RETRY_PROFILE_STANDARD:    classify.Standard,
		pb.RetryProfile_RETRY_PROFILE_DOWNLOAD:    classify.Download,
	}
	scopes = table[pb.RedirectScope, fetch.Scope]{
		pb.RedirectScope_REDIRECT_SCOPE_UNSPECIFIED: fetch.AnyHost,
		pb.RedirectScope_REDIRECT_SCOPE_ANY:         fetch.AnyHost,
		pb.RedirectScope_REDIRECT_SCOPE_SAME_HOST:   fetch.SameHost,
		pb.RedirectScope_REDIRECT_SCOPE_SAME_ORIGIN: fetch.SameOrigin,
	}
	truncates = table[pb.OversizeAction, bool]{
		pb.OversizeAction_OVERSIZE_ACTION_UNSPECIFIED: false,
		pb.OversizeAction_OVERSIZE_ACTION_FAIL:        false,
		pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE:    true,
	}
	recoveries = table[pb.BodyRecovery, fetch.Recovery]{
		pb.BodyRecovery_BODY_RECOVERY_UNSPECIFIED: fetch.Resume,
		pb.BodyRecovery_BODY_RECOVERY_NONE:        fetch.NoRecovery,
		pb.BodyRecovery_BODY_RECOVERY_RESUME:      fetch.Resume,
		pb.BodyRecovery_BODY_RECOVERY_RESTART:     fetch.Restart,
	}
	levels = table[pb.EventLevel, fetch.Level]{
		pb.EventLevel_EVENT_LEVEL_UNSPECIFIED: fetch.Attempts,
		pb.EventLevel_EVENT_LEVEL_OUTCOME:     fetch.OutcomeOnly,
		pb.EventLevel_EVENT_LEVEL_ATTEMPTS:    fetch.Attempts,
		pb.EventLevel_EVENT_LEVEL_ALL:         fetch.All,
	}
	textContents = table[pb.TextContent, markdown.Content]{
		pb.TextContent_TEXT_CONTENT_UNSPECIFIED: markdown.Marked,
		pb.TextContent_TEXT_CONTENT_MARKED:      markdown.Marked,
		pb.TextContent_TEXT_CONTENT_ARTICLE:     markdown.Article,
	}
	textFallbacks = table[pb.TextFallback, markdown.Fallback]{
		pb.TextFallback_TEXT_FALLBACK_UNSPECIFIED:  markdown.NoFallback,
		pb.TextFallback_TEXT_FALLBACK_MARKED:       markdown.ToMarked,
		pb.TextFallback_TEXT_FALLBACK_NOSCRIPT:     markdown.ToNoscript,
		pb.TextFallback_TEXT_FALLBACK_ARTICLE_BODY: markdown.ToArticleBody,
		pb.TextFallback_TEXT_FALLBACK_SCRIPT:       markdown.Scripted,
	}
	cookieModes = table[pb.CookieMode, bool]{
		pb.CookieMode_COOKIE_MODE_UNSPECIFIED:  false,
		pb.CookieMode_COOKIE_MODE_NONE:         false,
		pb.CookieMode_COOKIE_MODE_WITHIN_FETCH: true,
	}
)

// table maps an enum of the contract, by its number, to values of T, and back.
type table[E ~int32, T comparable] []T

// wire returns the explicit enum value of a value, not UNSPECIFIED.
func (t table[E, T]) wire(value T) E { return E(1 + slices.Index(t[1:], value)) }
