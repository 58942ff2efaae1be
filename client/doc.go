// Package client calls a fetchd: a body is an [io.Reader], a fetch that failed
// a typed error.
//
//	conn, err := grpc.NewClient(target, append(client.DialOptions(), credentials)...)
//	c := client.New(conn)
//	resp, err := c.Get(ctx, "https://example.com/")
//	defer resp.Body.Close()
//	_, err = io.Copy(file, resp.Body)
//
// Errors come from two planes, and are told apart by type.
//
// What happened at the target is an [*Error]. It holds the outcome, and matches
// one of [ErrTransient], [ErrPermanent], [ErrRateLimited] and [ErrNeedsAuth].
// [Error.Retryable] says whether a later fetch of the same request may succeed:
// the service has made those attempts that could help at once.
//
// Anything else speaks of the service or of the request, and is a gRPC status:
// status.Code tells its code. Where the caller's context was the cause, the error
// matches the context's as well.
//
// The package decides nothing, tries nothing again and keeps nothing. What gRPC
// itself tries again is in [DialOptions]. Messages are those of the contract, so
// that every field of a request can be set: see [pb.FetchRequest].
package client
