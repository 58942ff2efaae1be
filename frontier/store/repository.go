package store

import "context"

// Repository is a [Store] with the calls that record one URL each.
type Repository struct {
	Store
}

var _ Claimer = Repository{}

// UpdateFetched records that the URL id was fetched. It returns [ErrStale] if the
// lease of params.Token was lost.
func (r Repository) UpdateFetched(ctx context.Context, id int64, params FetchedParams) error {
	return r.record(ctx, Fetch{ID: id, FetchedParams: params, Status: Fetched})
}

// UpdateFetchedWithFinalURL does as UpdateFetched and gives the row finalURL in
// its normal form, with its hash and host, unless another row has that URL. A
// finalURL that has no normal form is an error, and nothing is recorded.
func (r Repository) UpdateFetchedWithFinalURL(ctx context.Context, id int64, finalURL string, params FetchedParams) error {
	return r.record(ctx, Fetch{ID: id, FetchedParams: params, Status: Fetched, FinalURL: finalURL})
}

// UpdateFailed records that a fetch of the URL id failed, and why.
func (r Repository) UpdateFailed(ctx context.Context, id int64, reason string, params FailedParams) error {
	f := Fetch{
		ID: id, FetchedParams: params.FetchedParams, Status: Failed,
		LastError: reason, ErrorClass: params.ErrorClass, RetryIn: params.RetryIn,
	}
	if params.Dead {
		f.Status = Dead
	}
	return r.record(ctx, f)
}

func (r Repository) record(ctx context.Context, f Fetch) error {
	each, err := r.RecordFetch(ctx, []Fetch{f})
	if err != nil {
		return err
	}
	return each[0]
}
