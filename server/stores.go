package server

import (
	"context"
	"iter"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server/observe"
	"fetchd/stores"
)

// configured is what the operator has configured and requests select by name.
type configured struct {
	providers map[string]AuthProvider
	stores    *stores.Set
}

// mayUse returns PERMISSION_DENIED if the caller may not use what a valid request names.
func (c *configured) mayUse(ctx context.Context, in *pb.FetchRequest) error {
	if name := in.GetAuthProvider(); name != "" && !permits(ctx, c.providers[name].Callers) {
		return status.Errorf(codes.PermissionDenied, "this caller may not use the auth provider %q", name)
	}
	_, ofBodies := c.stores.Get(in.GetBodyPolicy().GetStore())
	_, ofRecords := c.stores.Archive(in.GetRecord().GetStore())
	for name, callers := range map[string][]string{in.GetBodyPolicy().GetStore(): ofBodies, in.GetRecord().GetStore(): ofRecords} {
		if !permits(ctx, callers) {
			return status.Errorf(codes.PermissionDenied, "this caller may not use the store %q", name)
		}
	}
	return nil
}

// storeStats returns the numbers of each store, for the metrics.
func (s *service) storeStats() iter.Seq2[string, observe.StoreStats] {
	return func(yield func(string, observe.StoreStats) bool) {
		for store := range s.stores.Load().All() {
			if !yield(store.Name(), observe.StoreStats(store.Stats())) {
				return
			}
		}
	}
}

// archiveStats returns the numbers of each store for records, for the metrics.
func (s *service) archiveStats() iter.Seq2[string, observe.ArchiveStats] {
	return func(yield func(string, observe.ArchiveStats) bool) {
		for a := range s.stores.Load().Archives() {
			if !yield(a.Name(), observe.ArchiveStats(a.Stats())) {
				return
			}
		}
	}
}

// store reads the fields of delivery STORE. It is called when the others are read.
func (c *conversion) store(known *stores.Set) {
	p := c.in.GetBodyPolicy()
	if c.out.Delivery != fetch.Store {
		for field, value := range map[string]string{"store": p.GetStore(), "key": p.GetKey()} {
			if value != "" {
				c.Add("body_policy."+field, "is set with another delivery than store: give BODY_DELIVERY_STORE, or leave it out")
			}
		}
		return
	}
	switch {
	case c.out.Method == http.MethodHead:
		c.Add("body_policy.delivery", "is store with method HEAD, whose response has no body: use GET")
	case c.out.Header.Get("Range") != "":
		c.Add("body_policy.delivery", "is store together with a header Range: an object is a whole body, leave the header out")
	case c.out.Truncate:
		c.Add("body_policy.oversize_action", "is truncate with delivery store: an object is a whole body, leave it out")
	case c.out.OmitDigest:
		c.Add("body_policy.omit_digest", "is true with delivery store, which needs the digest: leave it out")
	case p.GetRecovery() == pb.BodyRecovery_BODY_RECOVERY_NONE:
		c.Add("body_policy.recovery", "is none with delivery store: a retry continues the object or starts it again, leave it out")
	}
	c.out.Recovery = fetch.Restart
	s, _ := known.Get(p.GetStore())
	records, _ := known.Archive(p.GetStore())
	switch {
	case records != nil:
		c.Add("body_policy.store", "is %.60q, which is a store for WARC files: give the name of a store for bodies", p.GetStore())
		return
	case p.GetStore() == "":
		c.Add("body_policy.store", "is empty: give the name of a store that the operator configured")
		return
	case s == nil:
		c.Add("body_policy.store", "is %.60q, which is not configured on this server: give the name of a configured store", p.GetStore())
		return
	}
	if err := s.Check(p.GetKey(), c.out.Integrity.SHA256); err != nil {
		c.Add("body_policy.key", "%s", err)
	}
	if most := s.MaxObjectBytes(); c.out.MaxBodyBytes > most {
		if p.MaxSizeBytes != nil {
			c.clamped = append(c.clamped, "body_policy.max_size_bytes")
		}
		c.out.MaxBodyBytes, c.out.SetBy.MaxBodyBytes = most, fetch.ByStore
	}
	c.out.Destination = &destination{s, p.GetKey(), c.out.Integrity.SHA256}
}

// destination is a place in a store, for package fetch.
type destination struct {
	store       *stores.Store
	key, sha256 string
}

// Ready implements [fetch.Destination].
func (d *destination) Ready() error { return d.store.Ready() }

// Begin implements [fetch.Destination].
func (d *destination) Begin(ctx context.Context, o fetch.Object) (fetch.Upload, error) {
	u, err := d.store.Begin(ctx, stores.Object{Key: d.key, SHA256: d.sha256, ContentType: o.ContentType, Size: o.Size, Memory: o.Memory})
	if err != nil {
		return nil, err
	}
	return upload{u}, nil
}

// upload is an upload for package fetch.
type upload struct{ *stores.Upload }

// Commit implements [fetch.Upload].
func (u upload) Commit(sha256 string) (fetch.StoredObject, error) {
	s, err := u.Upload.Commit(sha256)
	return fetch.StoredObject{Key: s.Key, ETag: s.ETag, Version: s.Version}, err
}

// storedObject converts where a body is.
func storedObject(o *fetch.Outcome, r *fetch.Request) *pb.StoredObject {
	to, ok := r.Destination.(*destination)
	if o.Stored == nil || !ok {
		return nil
	}
	return &pb.StoredObject{Store: to.store.Name(), Key: o.Stored.Key, SizeBytes: o.Body.Size, Sha256: o.Body.SHA256,
		Etag: text(o.Stored.ETag), Version: text(o.Stored.Version)}
}
