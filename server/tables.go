package server

import (
	"slices"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

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
	deliveries = table[pb.BodyDelivery, fetch.Delivery]{
		pb.BodyDelivery_BODY_DELIVERY_UNSPECIFIED: fetch.Stream,
		pb.BodyDelivery_BODY_DELIVERY_STREAM:      fetch.Stream,
		pb.BodyDelivery_BODY_DELIVERY_INLINE:      fetch.Inline,
		pb.BodyDelivery_BODY_DELIVERY_DIGEST:      fetch.Digest,
		pb.BodyDelivery_BODY_DELIVERY_NONE:        fetch.None,
		pb.BodyDelivery_BODY_DELIVERY_AUTO:        fetch.Auto,
		pb.BodyDelivery_BODY_DELIVERY_STORE:       fetch.Store,
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
